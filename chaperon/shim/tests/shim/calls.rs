//! What the chaperon is told of a call.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use agent_sandbox_wire::message::End;

use crate::chaperon::{Shim, ShimDirectory, binary, complains};

#[test]
fn arguments_and_environment_are_bytes() {
    let place = ShimDirectory::new();
    let arguments: [&[u8]; 4] = [b"\xff\xfe", b"", b"a  b\n", b"--x=\"'"];
    let mut command = place.shim();
    command
        .args(arguments.map(OsStr::from_bytes))
        .env("ODD", OsStr::from_bytes(b"\xff=\n"));
    let (shim, mut talk) = place.begin(&mut command);
    assert_eq!(talk.call.command, b"sbatch");
    assert_eq!(talk.call.arguments, arguments);
    assert!(talk.call.environment.contains(&b"ODD=\xff=\n".to_vec()));
    let cwd = place.dir.path().canonicalize().unwrap();
    assert_eq!(talk.call.cwd, cwd.as_os_str().as_bytes());
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
}

#[test]
fn the_umask_is_told() {
    let place = ShimDirectory::new();
    let mut command = place.shim_after("umask 027; exec \"$0\" \"$@\"");
    let (shim, mut talk) = place.begin(&mut command);
    assert_eq!(talk.call.umask, 0o027);
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
}

#[test]
fn a_directory_that_is_gone_has_no_name() {
    let place = ShimDirectory::new();
    let mut command = place.shim_after("mkdir gone; cd gone; rmdir ../gone; exec \"$0\"");
    let (shim, mut talk) = place.begin(&mut command);
    assert_eq!(talk.call.cwd, b"");
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
}

#[test]
fn the_streams_themselves_are_passed() {
    let place = ShimDirectory::new();
    let (mut shim, mut talk) = place.begin_with_streams(&mut place.shim());
    let mut input = shim.0.stdin.take().unwrap();
    input.write_all(b"typed").unwrap();
    drop(input);
    let mut files = talk.standard.drain(..).map(std::fs::File::from);
    let mut read = String::new();
    files.next().unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read, "typed");
    files.next().unwrap().write_all(b"out").unwrap();
    files.next().unwrap().write_all(b"err").unwrap();
    drop(files);
    talk.end(End::SUCCESS);
    let output = shim.output();
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"out"[..], &b"err"[..])
    );
}

#[test]
fn closed_streams_lead_nowhere() {
    let place = ShimDirectory::new();
    let mut command = place.shim_after("exec \"$0\" <&- >&- 2>&-");
    let (shim, mut talk) = place.begin_with_streams(&mut command);
    let null = std::fs::metadata("/dev/null").unwrap().rdev();
    for file in talk.standard.drain(..).map(std::fs::File::from) {
        assert_eq!(file.metadata().unwrap().rdev(), null);
    }
    talk.end(End::Code(3));
    assert_eq!(shim.output().status.code(), Some(3));
}

#[test]
fn a_large_call_arrives_whole() {
    let place = ShimDirectory::new();
    let large = "x".repeat(100_000);
    let mut command = place.shim();
    command.args(vec![&large; 15]);
    let (shim, mut talk) = place.begin(&mut command);
    assert_eq!(talk.call.arguments, vec![large.into_bytes(); 15]);
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
}

#[test]
fn a_call_that_is_too_large_is_refused() {
    let place = ShimDirectory::new();
    let script = "ulimit -s unlimited || exit 99
        large=$(printf %0100000d 0); all=()
        for i in {1..45}; do all+=(\"$large\"); done
        exec \"$0\" \"${all[@]}\"";
    let shim = Shim(place.shim_after(script).spawn().unwrap());
    let mut stream = place.connection();
    stream
        .write_all(&agent_sandbox_wire::frame::PREFACE)
        .unwrap();
    let output = shim.output();
    if output.status.code() == Some(99) {
        println!("not checked: a call that is too large: the stack is limited here");
        return;
    }
    complains(
        &output,
        1,
        "sbatch: error: arguments and environment are too long: 45",
    );
}

#[test]
fn names_that_are_no_commands_are_refused() {
    for name in ["agent-sandbox-shim", "sbatchx", ""] {
        let output = std::process::Command::new(binary())
            .arg0(name)
            .arg("sbatch")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        complains(
            &output,
            2,
            "agent-sandbox-shim: error: this program stands in for",
        );
    }
}

#[test]
fn the_last_part_of_a_path_is_the_name() {
    let place = ShimDirectory::new();
    let mut command = place.shim();
    command.arg0("/usr/bin/squeue");
    let (shim, mut talk) = place.begin(&mut command);
    assert_eq!(talk.call.command, b"squeue");
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
}
