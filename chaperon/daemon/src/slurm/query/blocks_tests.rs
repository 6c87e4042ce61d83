use proptest::prelude::*;

use super::*;
use crate::slurm::records::{Kind, Text};

/// What `scontrol show job` of Slurm 22.05 prints, shortened.
fn job(first: &str, name: &str, uid: &str, comment: &str) -> String {
    format!(
        "{first} JobName={name}\n   UserId={uid} GroupId=g(2001) MCS_label=N/A\n   \
         Priority=0 Nice=0 Account=proj1 QOS=normal\n   JobState=RUNNING Reason=None\n   \
         Command=/state/capsule\n   WorkDir=/\n   {comment}StdErr=/state/log-7.out\n   \
         StdIn=/dev/null\n   StdOut=/state/log-7.out\n   Power=\n   \n\n"
    )
}

fn line(text: &str) -> String {
    let joined: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    format!("{} \n", joined.join(" "))
}

const ALICE: Who<'_> = Who {
    user: "alice",
    knows_b: false,
};

fn record() -> Record {
    Record {
        session: "s".into(),
        project: Text::from("/p"),
        submitted: 0,
        kind: Kind::Batch,
        command: Text::from("/p/job.sh"),
        cwd: Text::from("/p/wd"),
        output: Some(Text::from("o-%j-%x")),
        error: None,
        input: None,
        array: false,
        hours: None,
    }
}

fn rewritten(text: &str, oneliner: bool) -> Vec<String> {
    let all = Block::all(text.as_bytes(), false, oneliner);
    let ours = all
        .iter()
        .filter(|block| block.job == Some(7) && block.uid == Some(2001));
    ours.map(|block| String::from_utf8(block.rewritten(Some(&record()), ALICE, oneliner)).unwrap())
        .collect()
}

#[test]
fn jobs_are_told_apart() {
    let text = [
        job("JobId=7", "a b", "alice(2001)", ""),
        job("JobId=9 ArrayJobId=8 ArrayTaskId=1", "x", "bob(2002)", ""),
        job(
            "JobId=8 ArrayJobId=8 ArrayTaskId=2-5%2",
            "x",
            "bob(2002)",
            "",
        ),
    ]
    .concat();
    let all = Block::all(text.as_bytes(), false, false);
    let ids: Vec<_> = all
        .iter()
        .map(|block| (block.id, block.job, block.uid, block.task))
        .collect();
    assert_eq!(
        ids,
        [
            (7, Some(7), Some(2001), None),
            (9, Some(8), Some(2002), Some(1)),
            (8, Some(8), Some(2002), Some(NO_TASK)),
        ]
    );
    assert_eq!(all[0].name, b"a b");
}

#[test]
fn what_was_asked_for_is_shown() {
    let text = job("JobId=7", "n", "alice(2001)", "Comment=c \n   ");
    let expected = text
        .replace("/state/capsule", "/p/job.sh")
        .replace("WorkDir=/", "WorkDir=/p/wd")
        .replace("/state/log-7.out", "/p/wd/o-7-n");
    assert_eq!(rewritten(&text, false), std::slice::from_ref(&expected));
    assert_eq!(rewritten(&line(&text), true), [line(&expected)]);
}

#[test]
fn values_with_blanks_and_keys_in_them_shift_nothing() {
    let name = "x StdOut=/etc/passwd Command=y";
    let comment = "Comment=a Command=b WorkDir=c StdErr=d StdIn=e StdOut=f \n   ";
    let text = job("JobId=7", name, "alice(2001)", comment);
    for (text, oneliner) in [(text.clone(), false), (line(&text), true)] {
        let all = rewritten(&text, oneliner);
        assert_eq!(all.len(), 1);
        assert!(!all[0].contains("/state/log"), "{}", all[0]);
        assert!(all[0].contains(name));
    }
}

#[test]
fn a_name_with_lines_in_it_begins_no_job() {
    let name = "x\nJobId=7 JobName=y\n   UserId=alice(2001)";
    let text = job("JobId=9", name, "bob(2002)", "");
    assert_eq!(rewritten(&text, false), Vec::<String>::new());
}

#[test]
fn a_line_that_the_chaperon_wrote_is_left_out() {
    let text = job("JobId=7", "n", "alice(2001)", "").replace(
        "   WorkDir",
        "   SubmitLine=sbatch --ignore-pbs\n   WorkDir",
    );
    for (text, oneliner) in [(text.clone(), false), (line(&text), true)] {
        assert!(!rewritten(&text, oneliner)[0].contains("ignore-pbs"));
    }
}

#[test]
fn steps_are_told_apart() {
    let text = "StepId=7.batch UserId=2001 StartTime=x\n   State=RUNNING\n\nStepId=8_2.0 UserId=2002 x\n\n";
    let all = Block::all(text.as_bytes(), true, false);
    let ids: Vec<_> = all.iter().map(|block| (block.job, block.uid)).collect();
    assert_eq!(ids, [(Some(7), Some(2001)), (Some(8), Some(2002))]);
}

#[test]
fn messages_are_no_jobs() {
    let all = Block::all(b"No jobs in the system\n", false, false);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].job, None);
    assert!(Block::all(b"", false, false).is_empty());
}

#[test]
fn names_are_left_out_of_reservations() {
    let text = "ReservationName=r\n   Users=alice,bob Groups=(null) Accounts=x Licenses=(null)\n   Users=alice\n";
    let said = String::from_utf8(nameless(text.as_bytes(), "alice")).unwrap();
    assert_eq!(
        said,
        "ReservationName=r\n   Users=- Groups=(null) Accounts=- Licenses=(null)\n   Users=alice\n"
    );
}

#[test]
fn names_are_left_out_of_texts_and_partitions() {
    for (text, said) in [
        (
            "   Comment=for bob and x\n   Extra=1\n",
            "   Comment=- \n   Extra=1\n",
        ),
        ("Comment=alice for bob State=UP\n", "Comment=- State=UP\n"),
        (
            "   Reason=bad disk [bob@2025-01-01T00:00:00]\n",
            "   Reason=bad disk [-@2025-01-01T00:00:00]\n",
        ),
        (
            "   AllowGroups=g1 AllowAccounts=a1,a2 AllowQos=ALL\n   DenyAccounts=b\n",
            "   AllowGroups=- AllowAccounts=- AllowQos=ALL\n   DenyAccounts=-\n",
        ),
        (
            "AllowGroups=ALL AllowAccounts=ALL\n",
            "AllowGroups=ALL AllowAccounts=ALL\n",
        ),
    ] {
        let shown = nameless(text.as_bytes(), "alice");
        assert_eq!(String::from_utf8_lossy(&shown), said);
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in proptest::collection::vec(any::<u8>(), 0..300), tail in ".{0,80}") {
        let keys = format!("JobId=7 ArrayJobId=7 JobName=x UserId=a(2001) Command={tail} StdOut= StdIn= StdErr=");
        let text = [keys.as_bytes(), &text[..]].concat();
        for (steps, oneliner) in [(false, false), (false, true), (true, false)] {
            for block in Block::all(&text, steps, oneliner) {
                let _ = block.rewritten(Some(&record()), ALICE, oneliner);
            }
        }
        let _ = nameless(&text, "alice");
    }
}
