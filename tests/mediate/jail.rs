//! A small jail around a function of a test.

use std::any::Any;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use agent_sandbox::sys::process::{
    Change, Side, default_signals, exit_now, fork, landlock_abi, wait,
};
use agent_sandbox::sys::{passing, privileges};
use agent_sandbox_landlock::access::{
    AccessMap, MapEntry, MediatorConfig, Permission, Right, Rule,
};
use agent_sandbox_landlock::mediator::Given;
use agent_sandbox_landlock::{mediator, restrict};
use agent_sandbox_support::process::state;
pub(crate) use agent_sandbox_support::waiting::until;
use nix::sys::prctl;
use nix::unistd::{Pid, pipe};

/// How long anything may take, on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A filter that hands these calls over, whatever their arguments.
pub(crate) fn handing_over(calls: &[i64]) -> Vec<u8> {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let mut program = vec![(LOAD, 0, 0, 0)];
    for &call in calls {
        program.push((EQUAL, 0, 1, u32::try_from(call).expect("a number")));
        program.push((RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    }
    program.push((RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    let mut bytes = Vec::new();
    for (code, yes, no, value) in program {
        bytes.extend(u16::to_ne_bytes(code));
        bytes.extend([yes, no]);
        bytes.extend(u32::to_ne_bytes(value));
    }
    bytes
}

/// Everything can be read and written, as far as Landlock and the mediator are asked.
pub(crate) fn config() -> MediatorConfig {
    let rule = |right| Rule {
        path: b"/".into(),
        id: None,
        right,
    };
    MediatorConfig {
        access_map: AccessMap::new(vec![MapEntry {
            at: b"/".into(),
            permission: Permission::Write,
            direct: true,
            listed: true,
        }]),
        rules: vec![rule(Right::Read), rule(Right::Write), rule(Right::Device)],
        abi: landlock_abi(),
        stand_in: None,
        listed: None,
        git_config: None,
    }
}

/// Whether the kernel can do what these tests are about; else the reason is printed.
pub(crate) fn possible() -> bool {
    let lacks = landlock_abi() < 1;
    if lacks {
        eprintln!("not checked: the mediator: this kernel has no Landlock");
    }
    !lacks
}

/// What a panic said.
fn reason(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words")
}

/// Does something in this process and ends it; the exit code says whether it went well. What went
/// wrong is written to `words`.
pub(crate) fn act_and_end(words: &OwnedFd, act: impl FnOnce()) -> ! {
    let done = catch_unwind(AssertUnwindSafe(act));
    if let Err(payload) = &done {
        let _ = nix::unistd::write(words, reason(payload.as_ref()).as_bytes());
    }
    exit_now(if done.is_ok() { 0 } else { 101 })
}

/// Ends what a test leaves behind when it fails.
struct Clean;

impl Drop for Clean {
    fn drop(&mut self) {
        mediator::ending::end_all();
    }
}

/// Does something in a child, which has one thread: a launcher. Whatever goes wrong in it, or in a jail
/// that it starts with the same words, fails the test.
pub(crate) fn in_launcher(act: impl FnOnce(&OwnedFd)) {
    let (mut reader, words) = pipe().map(|(r, w)| (File::from(r), w)).expect("a pipe");
    let child = match fork().expect("fork") {
        Side::Child => {
            drop(reader);
            let copy = words.try_clone().expect("dup");
            act_and_end(&words, || {
                prctl::set_child_subreaper(true).expect("subreaper");
                let _clean = Clean;
                act(&copy);
            })
        }
        Side::Parent(child) => child,
    };
    drop(words);
    let mut said = String::new();
    reader.read_to_string(&mut said).expect("read");
    assert_eq!(
        (wait(child).expect("wait"), said.as_str()),
        (Change::Exited(0), "")
    );
}

/// Becomes the command: as confined as it is, and as traceable as a program that was executed. Where the mediator leads connections,
/// the command makes none.
pub(crate) fn become_command(config: &MediatorConfig, calls: &[i64], mediator: OwnedFd, led: bool) {
    default_signals().expect("signals");
    privileges::no_new_privileges().expect("no_new_privs");
    restrict::restrict(&config.rules, config.abi, led.then_some(&[])).expect("Landlock");
    prctl::set_dumpable(true).expect("dumpable");
    let listener = privileges::filter_with_listener(&handing_over(calls)).expect("a filter");
    passing::send(&mediator, b"l", Some(listener.as_fd())).expect("send");
}

fn open_descriptors() -> Vec<i32> {
    let listed: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .expect("descriptors")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    // The one by which they were listed is closed by now.
    let open = |number: &i32| {
        // SAFETY: F_GETFD only asks.
        unsafe { libc::fcntl(*number, libc::F_GETFD) >= 0 }
    };
    listed.into_iter().filter(open).collect()
}

/// Starts a jail in which `act` is done while these calls are handed over; the mediator. It ends with
/// 0 if all went well.
pub(crate) fn start(words: &OwnedFd, calls: &[i64], act: impl FnOnce()) -> Pid {
    start_fenced(words, config(), config(), calls, act)
}

/// The same with another configuration, and for the command the rules of yet another.
pub(crate) fn start_fenced(
    words: &OwnedFd,
    config: MediatorConfig,
    for_command: MediatorConfig,
    calls: &[i64],
    act: impl FnOnce(),
) -> Pid {
    start_given(words, Given::default(), (config, for_command), calls, act)
}

/// The same with what some mediators are given.
pub(crate) fn start_given(
    words: &OwnedFd,
    given: Given,
    (config, for_command): (MediatorConfig, MediatorConfig),
    calls: &[i64],
    act: impl FnOnce(),
) -> Pid {
    // The pipes of the test.
    let kept = open_descriptors();
    let led = given.way_out.is_some();
    mediator::start_given(config, &kept, given, |mediator| {
        match fork().expect("fork") {
            Side::Child => act_and_end(words, || {
                become_command(&for_command, calls, mediator, led);
                act();
            }),
            Side::Parent(command) => {
                drop(mediator);
                let code = match wait(command) {
                    Ok(Change::Exited(code)) => code,
                    other => {
                        let said = format!("the command ended so: {other:?}");
                        let _ = nix::unistd::write(words, said.as_bytes());
                        102
                    }
                };
                exit_now(code)
            }
        }
    })
    .expect("a mediator")
}

/// Does something in a jail, from beginning to end.
pub(crate) fn in_jail(calls: &[i64], act: impl FnOnce()) {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        let mediator = start(words, calls, act);
        assert_eq!(
            wait(mediator).expect("wait"),
            Change::Exited(0),
            "the jail's end"
        );
    });
}

/// Runs something in a child of this process; the child.
pub(crate) fn child(act: impl FnOnce()) -> Pid {
    match fork().expect("fork") {
        Side::Child => {
            let done = catch_unwind(AssertUnwindSafe(act));
            exit_now(i32::from(done.is_err()))
        }
        Side::Parent(child) => child,
    }
}

/// Whether a process is there that is no zombie.
pub(crate) fn runs(process: Pid) -> bool {
    state(process.as_raw()).is_some_and(|state| !['Z', 'X'].contains(&state))
}

/// Waits until a process, or a thread of this one by its number, waits in the kernel: of a caller that has said that it
/// is about to call, in that call.
pub(crate) fn until_it_waits(task: Pid) {
    until("a caller's wait", || state(task.as_raw()) == Some('S'));
}

/// The result of a call that touches no memory of this process but what its arguments say.
pub(crate) fn call(number: i64, arguments: [u64; 4]) -> Result<i64, i32> {
    let [a, b, c, d] = arguments;
    // SAFETY: each test passes what the call takes.
    let done = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
    if done < 0 {
        return Err(nix::errno::Errno::last_raw());
    }
    Ok(done)
}

/// A pipe's end that says when every process that holds the other has ended.
pub(crate) fn ended(reader: OwnedFd) -> bool {
    let mut asked = [nix::poll::PollFd::new(
        reader.as_fd(),
        nix::poll::PollFlags::POLLIN,
    )];
    let within = u16::try_from(PATIENCE.as_millis()).expect("short");
    nix::poll::poll(&mut asked, within).expect("poll") == 1
}

/// Writes a word to a pipe.
pub(crate) fn say(pipe: &OwnedFd, word: &[u8]) {
    let mut file = File::from(pipe.try_clone().expect("dup"));
    file.write_all(word).expect("write");
}

/// Reads some bytes from a pipe.
pub(crate) fn hear<const N: usize>(pipe: &OwnedFd) -> [u8; N] {
    let mut word = [0; N];
    let mut file = File::from(pipe.try_clone().expect("dup"));
    file.read_exact(&mut word).expect("read");
    word
}
