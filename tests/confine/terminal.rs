//! The user's terminal, which the jail shares: nothing may be typed into it.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::backend::{is_as_good, launcher_words};
use crate::operations::text;
use crate::probe::{Attack, WORD, address, c, outcome, syscall, tell};
use crate::world::{World, not_checked, probe_path};

pub(crate) const ATTACKS: &[Attack] = &[("type", type_into), ("session", session)];

const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const TIOCCONS: u64 = 0x541d;
const TIOCSETD: u64 = 0x5423;
/// What the attack types.
const TYPED: &str = "typed-by-the-jail\n";

/// Types into the terminal in every way, and writes the answers to a file.
fn type_into(words: &[String]) {
    let mut lines = Vec::new();
    let terminals: Vec<OwnedFd> = [
        "/dev/tty",
        "/proc/self/fd/0",
        "/proc/self/fd/1",
        "/dev/console",
    ]
    .iter()
    .filter_map(|path| {
        let path = c(path);
        // SAFETY: opens a file by a name that lives across the call.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NOCTTY) };
        // SAFETY: a descriptor that was just made.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    })
    .collect();
    let numbers = terminals.iter().map(AsRawFd::as_raw_fd).chain(0..3);
    for fd in numbers {
        for high in [0, 1 << 32, 1 << 63, u64::from(u32::MAX) << 32] {
            for byte in TYPED.bytes() {
                let answer = outcome(syscall(
                    libc::SYS_ioctl,
                    &[fd as u64, TIOCSTI | high, address(&byte)],
                ));
                lines.push(format!("TIOCSTI {answer}"));
            }
            const PASTE: [u8; 2] = [3, 0];
            let answer = outcome(syscall(
                libc::SYS_ioctl,
                &[fd as u64, TIOCLINUX | high, address(&PASTE)],
            ));
            lines.push(format!("TIOCLINUX {answer}"));
            let answer = outcome(syscall(libc::SYS_ioctl, &[fd as u64, TIOCCONS | high, 0]));
            lines.push(format!("TIOCCONS {answer}"));
            let discipline = 0i32;
            let answer = outcome(syscall(
                libc::SYS_ioctl,
                &[fd as u64, TIOCSETD | high, address(&discipline)],
            ));
            lines.push(format!("TIOCSETD {answer}"));
        }
    }
    lines.push(format!("terminals {}", terminals.len()));
    lines.sort();
    lines.dedup();
    fs::write(&words[0], lines.join("\n")).expect("the report");
}

/// A session of its own with a terminal: runs a command there as a shell would, and then looks
/// what stands in the terminal's input.
fn session(words: &[String]) {
    let (mut master, mut slave) = (0, 0);
    // SAFETY: makes a terminal, and makes it this session's own.
    unsafe {
        let null = std::ptr::null_mut();
        assert_eq!(
            libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()),
            0,
            "openpty"
        );
        // The leader of a process group cannot make a session, so a child does.
        let child = libc::fork();
        if child > 0 {
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            assert_eq!(status, 0, "the session failed");
            return;
        }
        assert!(libc::setsid() > 0, "setsid");
        assert_eq!(libc::ioctl(slave, libc::TIOCSCTTY, 0), 0, "TIOCSCTTY");
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    // SAFETY: duplicates of the terminal for the command.
    unsafe {
        command.pre_exec(move || {
            for fd in 0..3 {
                if libc::dup2(slave, fd) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let status = command.status().expect("the command");
    tell("status", status.code().unwrap_or(-1));
    let mut waiting = 0i32;
    let mut input = [0u8; 4096];
    // SAFETY: asks the terminal, and reads what is there without waiting.
    let count = unsafe {
        libc::ioctl(slave, libc::FIONREAD, &mut waiting);
        let flags = libc::fcntl(slave, libc::F_GETFL);
        libc::fcntl(slave, libc::F_SETFL, flags | libc::O_NONBLOCK);
        libc::read(slave, input.as_mut_ptr().cast(), input.len())
    };
    let read = usize::try_from(count).unwrap_or(0);
    tell("input", String::from_utf8_lossy(&input[..read]));
    tell("waiting", waiting);
}

#[test]
fn nothing_is_typed_into_the_users_terminal() {
    let world = World::new();
    let told = world.project("told");
    let attack = [
        text(&probe_path()),
        WORD.to_owned(),
        "type".to_owned(),
        text(&told),
    ];
    let plain = world.outside().attack("session", &attack);
    let possible = plain.get("input").contains("typed-by-the-jail");
    if !possible {
        not_checked(
            "typing into a terminal as a control",
            "this host's kernel refuses it to everybody",
        );
    }
    for nested in ["jail.nested=false", "jail.nested=true"] {
        let probe = text(&probe_path());
        let mut jailed = launcher_words(&["-q", "--set", nested, "--read", &probe, "--"]);
        jailed.extend(attack.iter().cloned());
        fs::remove_file(&told).unwrap();
        let report = world.outside().attack("session", &jailed);
        assert_eq!(report.get("status"), "0", "{report:?}");
        assert_eq!((report.get("input"), report.get("waiting")), ("", "0"));
        let answers = fs::read_to_string(&told).unwrap();
        for line in answers
            .lines()
            .filter(|line| !line.starts_with("terminals"))
        {
            assert!(line.ends_with(" EPERM"), "{answers}");
        }
        assert!(
            !answers.contains("terminals 0"),
            "no terminal was found inside: {answers}"
        );
    }
}

/// Other terminals of the user, and of other users.
#[test]
fn other_terminals_are_out_of_reach() {
    let world = World::new();
    let (mut master, mut slave) = (0, 0);
    // SAFETY: makes a terminal.
    unsafe {
        let null = std::ptr::null_mut();
        assert_eq!(
            libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()),
            0
        );
    }
    let name = fs::read_link(format!("/proc/self/fd/{slave}")).unwrap();
    let operation = crate::op!("write", &name);
    assert_eq!(world.outside().operation(operation.clone()), "ok");
    let shell = ["sh", "-c", "echo x > \"$0\"", name.to_str().unwrap()];
    let attack = [
        text(&probe_path()),
        WORD.to_owned(),
        "operations".to_owned(),
        operation.clone(),
    ];
    let answer = world.jail([]).operation(operation);
    assert!(is_as_good(&answer, "ENOENT"), "{answer}");
    let output = world.jail([]).run(&shell);
    assert_ne!(output.code(), 0, "{output:?}");
    // Nor through the device of one's own terminal.
    let mut jailed = launcher_words(&["-q", "--read", &text(&probe_path()), "--"]);
    jailed.extend(attack);
    let report = world.outside().attack("session", &jailed);
    assert_eq!(report.get("status"), "0", "{report:?}");
    // SAFETY: closes what was made above.
    unsafe {
        libc::close(master);
        libc::close(slave);
    }
}
