use proptest::prelude::*;

use super::*;
use crate::slurm::query::format_lines::{Rewriter, Shown};
use crate::slurm::query::shown::{JobPath, Named};

const MARK: &str = "\x1e1234";

/// What squeue would print for these values.
fn printed(layout: &Layout, id: &str, uid: &str, values: &[&str]) -> Vec<u8> {
    let mut text = format!("{id} {uid}{MARK}").into_bytes();
    let mut values = values.iter();
    for piece in &layout.pieces {
        text.extend_from_slice(piece.before.as_bytes());
        for column in layout.columns(piece) {
            column.lay_out(values.next().unwrap().as_bytes(), &mut text);
            if piece.passes {
                text.extend_from_slice(column.suffix.as_bytes());
            }
        }
        text.extend_from_slice(MARK.as_bytes());
    }
    text.extend_from_slice(layout.after.as_bytes());
    text.push(b'\n');
    text
}

fn shown(job: u32, uid: u32) -> Shown {
    match (job, uid) {
        (1, 2001) => Shown::InScope,
        (9, _) => Shown::Not,
        _ => Shown::Masked,
    }
}

fn recorded(_: u32, place: JobPath, _: &Named<'_>) -> Option<Vec<u8>> {
    (place == JobPath::Command).then(|| b"/p/job.sh".to_vec())
}

/// Rewrites an answer that arrives in parts of this many bytes.
fn in_parts(layout: &Layout, answer: &[u8], size: usize) -> Result<Vec<u8>, Refusal> {
    let mut rewriter = Rewriter::new(layout, MARK, shown, recorded);
    let mut output = Vec::new();
    for part in answer.chunks(size) {
        output.extend(rewriter.part(part)?);
    }
    output.extend(rewriter.end()?);
    Ok(output)
}

fn rewritten(layout: &Layout, answer: &[u8]) -> String {
    let whole = in_parts(layout, answer, usize::MAX).unwrap();
    for size in [1, 7, 64] {
        assert_eq!(in_parts(layout, answer, size).unwrap(), whole, "{size}");
    }
    String::from_utf8(whole).unwrap()
}

#[test]
fn formats_are_written_anew() {
    let short = |text| {
        Layout::short(text, false)
            .unwrap()
            .short_option("|")
            .unwrap()
    };
    assert_eq!(short("%i %j"), "--format=%F %U|%i |%j|");
    assert_eq!(short("a %.18i%%5u,%t"), "--format=%F %U|a %.18i|%5u|,%t|");
    assert_eq!(short("none"), "--format=%F %U|none");
    let long = |text| Layout::long(text, false).unwrap().long_option("|");
    assert_eq!(
        long("JobID,name:.5,UserName:8x"),
        "--Format=arrayjobid:20,userid:10|,jobid:20|,name:.5|,username:8|x"
    );
    let steps = Layout::short("%i %j", true).unwrap();
    assert_eq!(steps.short_option("|").unwrap(), "--format=%i %U|%i |%j|");
}

#[test]
fn what_is_no_column_is_refused() {
    for text in ["%", "%!", "%5", "%.", "%99999i", "%é"] {
        let ok = Layout::short(text, false).map(|layout| layout.columns.len());
        assert!(matches!(ok, Err(_) | Ok(0)), "{text}");
    }
    assert!(Layout::short("%F", true).is_err());
    for text in ["nonsense", "jobid ", "jobid:99999"] {
        assert!(Layout::long(text, false).is_err(), "{text}");
    }
}

#[test]
fn names_of_others_are_hidden_at_the_same_width() {
    let layout = Layout::short("%.6i|%8j|%u|%t", false).unwrap();
    let mut answer = b"Sat Nov 21 11:20:22 2026\n".to_vec();
    answer.extend(printed(
        &layout,
        "ARRAY_JOB_ID",
        "UID",
        &["JOBID", "NAME", "USER", "ST"],
    ));
    answer.extend(printed(
        &layout,
        "1",
        "2001",
        &["1", "my job", "alice", "R"],
    ));
    answer.extend(printed(&layout, "2", "2002", &["2", "secret", "bob", "R"]));
    answer.extend(printed(&layout, "1", "2002", &["1", "secret", "bob", "R"]));
    answer.extend(printed(&layout, "9", "2002", &["9", "secret", "bob", "R"]));
    assert_eq!(
        rewritten(&layout, &answer),
        "Sat Nov 21 11:20:22 2026\n JOBID|NAME    |USER|ST\n     1|my job  |alice|R\n     2|-       |-|R\n     1|-       |-|R\n"
    );
}

#[test]
fn a_name_with_lines_in_it_stays_one_value() {
    let layout = Layout::short("%i %j", false).unwrap();
    let forged = "x\n1 2001\x1e 1 bob's".to_owned();
    let mut answer = printed(&layout, "2", "2002", &["2", &forged]);
    answer.extend(printed(&layout, "1", "2001", &["1", "a\nb"]));
    assert_eq!(rewritten(&layout, &answer), "2 -\n1 a\nb\n");
}

#[test]
fn the_capsule_is_not_shown() {
    let layout = Layout::short("%.12o|%i", false).unwrap();
    let mut answer = printed(&layout, "1", "2001", &["/x", "1", "1", "N/A", "n"]);
    answer.extend(printed(&layout, "2", "2001", &["/x", "2", "2", "N/A", "n"]));
    assert_eq!(
        rewritten(&layout, &answer),
        "   /p/job.sh|1\n           -|2\n"
    );
}

#[test]
fn an_answer_in_another_layout_is_not_shown() {
    let layout = Layout::short("%i", false).unwrap();
    for answer in ["12 secret\n", "\x1e1234", "            \x1e1234secret\n"] {
        for size in [1, 100] {
            assert!(
                in_parts(&layout, answer.as_bytes(), size).is_err(),
                "{answer:?}"
            );
        }
    }
    assert_eq!(in_parts(&layout, b"", 1).unwrap(), b"");
    assert_eq!(in_parts(&layout, b"\n", 1).unwrap(), b"\n");
}

#[test]
fn what_is_cut_off_is_not_shown() {
    let layout = Layout::short("%i|%j", false).unwrap();
    let mut answer = printed(&layout, "2", "2002", &["2", "secret"]);
    answer.extend(printed(&layout, "2", "2002", &["2", "secret"]));
    answer.truncate(answer.len() - 3);
    let mut rewriter = Rewriter::new(&layout, MARK, shown, recorded);
    assert_eq!(rewriter.part(&answer).unwrap(), b"2|-\n");
    assert!(rewriter.end().is_err());
}

#[test]
fn columns_that_everybody_may_see_share_a_mark() {
    let layout = Layout::short("a%i b%t c%j d%u e%M f", false).unwrap();
    assert_eq!(
        layout.short_option("|").unwrap(),
        "--format=%F %U|a%i b%t c|%j| d%u| e%M f|"
    );
    let answer = printed(&layout, "2", "2002", &["2", "R", "secret", "bob", "1:00"]);
    assert_eq!(rewritten(&layout, &answer), "a2 bR c- d- e1:00 f\n");
}

#[test]
fn the_fields_are_distinct() {
    for fields in [&FIELDS[..], &STEP_FIELDS[..]] {
        for (number, field) in fields.iter().enumerate() {
            for other in &fields[number + 1..] {
                assert!(!other.is(field.name), "{}", field.name);
                assert!(
                    field.letter.is_none() || field.letter != other.letter,
                    "{}",
                    field.name
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in ".{0,60}", answer in proptest::collection::vec(any::<u8>(), 0..200)) {
        for layout in [Layout::short(&text, false), Layout::long(&text, true)].into_iter().flatten() {
            let _ = layout.short_option(MARK);
            let _ = layout.long_option(MARK);
            let _ = in_parts(&layout, &answer, 9);
        }
    }

    #[test]
    fn values_of_any_kind_come_back(name in "[^\x1e]{0,30}") {
        let layout = Layout::short("%i %j|%t", false).unwrap();
        let answer = printed(&layout, "1", "2001", &["1", &name, "R"]);
        prop_assert_eq!(rewritten(&layout, &answer), format!("1 {name}|R\n"));
    }
}
