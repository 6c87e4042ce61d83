//! Standard input, output and error pass through unchanged.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::Hasher;
use std::process::Stdio;

use crate::world::{World, code, wait};

#[test]
fn output_and_error_stay_apart() {
    let world = World::new();
    world
        .sh("echo out; echo err >&2; exit 2")
        .run()
        .expect(2, "out\n", "err\n");
}

fn noise(length: usize) -> Vec<u8> {
    // Every byte value, and no period that a buffer's size divides (xorshift64).
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut all = Vec::with_capacity(length + 8);
    while all.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend_from_slice(&state.to_le_bytes());
    }
    all.truncate(length);
    all
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[test]
fn fifty_megabytes_pass_unchanged() {
    let world = World::new();
    let input = noise(50 << 20);
    let expected = (input.len(), hash(&input));
    let output = world.quiet(["cat"]).input(input).run();
    assert_eq!((output.code, output.err().as_str()), (0, ""));
    assert_eq!((output.stdout.len(), hash(&output.stdout)), expected);
}

#[test]
fn files_as_streams() {
    let world = World::new();
    let from = world.write("home/project/from", "text");
    let to = world.place.join("elsewhere");
    let mut child = world
        .quiet(["sh", "-c", "cat; echo err >&2"])
        .command()
        .stdin(File::open(&from).unwrap())
        .stdout(File::create(&to).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(code(wait(&mut child, "cat")), 0);
    assert_eq!(fs::read_to_string(&to).unwrap(), "text");
}

#[test]
fn closed_streams() {
    let world = World::new();
    let by = |redirect: &str| {
        [
            "sh".to_owned(),
            "-c".to_owned(),
            format!("exec \"$@\" {redirect}"),
            "sh".to_owned(),
        ]
    };
    world
        .sh("cat; echo code $?")
        .by(by("<&-"))
        .run()
        .expect(0, "code 0\n", "");
    assert_eq!(world.sh("exit 4").by(by(">&-")).run().code, 4);
    assert_eq!(
        world.call(["sh", "-c", "exit 4"]).by(by("2>&-")).run().code,
        4
    );
    assert_eq!(world.sh("exit 4").by(by("<&- >&- 2>&-")).run().code, 4);
}

/// What reads no more ends the command by SIGPIPE, as without the jail.
#[test]
fn a_reader_that_leaves() {
    let world = World::new();
    let call = world.quiet(["yes"]).by([
        "bash",
        "-c",
        "\"$@\" | head -n 1; echo ${PIPESTATUS[0]}",
        "bash",
    ]);
    call.run().expect(0, "y\n141\n", "");
}

/// Whatever else the caller has open stays outside.
#[test]
fn other_descriptors_stay_outside() {
    let world = World::new();
    let call = world.sh("ls /proc/self/fd | tr '\\n' ' '").by([
        "bash",
        "-c",
        "exec 3< / 7< /etc/passwd 200> /dev/null; exec \"$@\"",
        "bash",
    ]);
    // 3 is the directory that `ls` itself lists.
    call.run().expect(0, "0 1 2 3 ", "");
}

#[test]
fn signals_are_as_a_login_has_them() {
    /// glibc's own (`SIGCANCEL`, `SIGSETXID`), which no program can set through it.
    const INTERNAL: u64 = 1 << 31 | 1 << 32;
    let world = World::new();
    let call = world.quiet(["cat", "/proc/self/status"]);
    let by = [
        "bash",
        "-c",
        "trap '' INT TERM PIPE USR1; exec \"$@\"",
        "bash",
    ];
    let output = call.by(by).run();
    for name in ["SigBlk:", "SigIgn:", "SigCgt:"] {
        let text = output.out();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        let set = u64::from_str_radix(line.trim(), 16).unwrap();
        assert_eq!(set & !INTERNAL, 0, "{name} {set:x}");
    }
}
