//! The shim ends as the real command does.

use agent_sandbox_wire::message::End;

use crate::chaperon::{ShimDirectory, died_of};

#[test]
fn with_its_code() {
    for code in [0, 1, 42, 130, 255] {
        let place = ShimDirectory::new();
        let (shim, mut talk) = place.begin(&mut place.shim());
        talk.end(End::Code(code));
        let output = shim.output();
        assert_eq!(output.status.code(), Some(code));
        assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()));
    }
}

#[test]
fn of_its_signal() {
    let realtime = libc::SIGRTMIN() + 3;
    let signals = [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGKILL,
        libc::SIGQUIT,
        libc::SIGSEGV,
        realtime,
    ];
    for signal in signals {
        let place = ShimDirectory::new();
        let (shim, mut talk) = place.begin(&mut place.shim());
        talk.end(End::Signal(signal));
        died_of(shim.output().status, signal);
    }
}

#[test]
fn of_its_signal_even_if_the_caller_ignores_it() {
    let place = ShimDirectory::new();
    let mut command = place.shim_after("trap '' TERM; exec \"$0\"");
    let (shim, mut talk) = place.begin(&mut command);
    talk.end(End::Signal(libc::SIGTERM));
    died_of(shim.output().status, libc::SIGTERM);
}

#[test]
fn of_what_is_no_signal_with_a_code() {
    for (signal, code) in [(libc::SIGSTOP, 147), (libc::SIGCONT, 146), (0, 128)] {
        let place = ShimDirectory::new();
        let (shim, mut talk) = place.begin(&mut place.shim());
        talk.end(End::Signal(signal));
        assert_eq!(shim.output().status.code(), Some(code));
    }
}
