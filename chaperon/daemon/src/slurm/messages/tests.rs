use super::*;

fn messages(options: &[(&'static str, Option<&str>)]) -> Messages {
    Messages {
        own: b"srun: ".to_vec(),
        options: options
            .iter()
            .map(|(name, value)| (*name, value.map(|value| value.as_bytes().to_vec())))
            .collect(),
        hidden: vec![b"agent-sandbox".to_vec(), b"/dev/fd/".to_vec()],
        state: b"/home/a/.state".to_vec(),
        ..Messages::default()
    }
}

fn shown(mut messages: Messages, parts: &[&str]) -> String {
    let mut all = Vec::new();
    for part in parts {
        all.extend(messages.part(part.as_bytes()));
    }
    all.extend(messages.end());
    String::from_utf8(all).unwrap()
}

const LIST: &str = "srun: defined options\n\
    srun: -------------------- --------------------\n\
    srun: (null)              : node01\n\
    srun: chdir               : /p\n\
    srun: export              : ALL\n\
    srun: job-name            : true\n\
    srun: ntasks              : 2\n\
    srun: open-mode           : a\n\
    srun: output              : /dev/fd/9\n\
    srun: verbose             : 1\n\
    srun: -------------------- --------------------\n\
    srun: end of defined options\n";

#[test]
fn options_are_those_that_the_user_gave() {
    let all = messages(&[
        ("chdir", None),
        ("error", Some("e: %j")),
        ("export", Some("A=1")),
        ("job-name", None),
        ("open-mode", None),
        ("output", Some("out.txt")),
    ]);
    assert_eq!(
        shown(all, &[LIST]),
        "srun: defined options\n\
         srun: -------------------- --------------------\n\
         srun: (null)              : node01\n\
         srun: error               : e: %j\n\
         srun: export              : A=1\n\
         srun: ntasks              : 2\n\
         srun: output              : out.txt\n\
         srun: verbose             : 1\n\
         srun: -------------------- --------------------\n\
         srun: end of defined options\n"
    );
}

#[test]
fn lines_of_ours_are_left_out_and_failures_are_not() {
    let text = "srun: debug:  running /opt/agent-sandbox\n\
        srun: error: cannot open /home/a/.state/x\n\
        srun: jobid 7: nodes(1):`n'\n\
        slurmstepd-n: debug:  /opt/agent-sandbox task\n\
        slurmstepd-n: error: agent-sandbox is not there\n\
        slurmstepd-n: starting 1 tasks\n";
    assert_eq!(
        shown(messages(&[]), &[text]),
        "srun: error: cannot open <state>/x\n\
         srun: jobid 7: nodes(1):`n'\n\
         slurmstepd-n: error: agent-sandbox is not there\n\
         slurmstepd-n: starting 1 tasks\n"
    );
}

#[test]
fn what_a_step_writes_passes_as_it_is() {
    let own = "no newline agent-sandbox /dev/fd/3 \u{1b}[0m";
    assert_eq!(shown(messages(&[]), &[own]), own);
    // In pieces, and at once: only what may become a line of the command's waits.
    let mut all = messages(&[]);
    assert_eq!(all.part(b"sru"), b"");
    assert_eq!(all.part(b"b"), b"srub");
    assert_eq!(all.part(b"srun: agent-sandbox\n"), b"srun: agent-sandbox\n");
    assert_eq!(all.part(b"srun: x"), b"");
    assert_eq!(all.part(b"y\nz"), b"srun: xy\nz");
    // A line without an end is no line of srun's.
    let mut all = messages(&[]);
    let long = [b"srun: ".to_vec(), vec![b'x'; LONGEST + 1]].concat();
    assert_eq!(all.part(&long), long);
}

#[test]
fn the_words_of_a_script_stand_before_the_options() {
    let mut all = messages(&[]);
    all.found = vec![b"-J".to_vec(), b"a b".to_vec()];
    let text = shown(all, &[LIST]);
    assert!(
        text.starts_with(
            "srun: debug2: Found in script, argument \"-J\"\n\
             srun: debug2: Found in script, argument \"a b\"\nsrun: defined options\n"
        ),
        "{text}"
    );
}
