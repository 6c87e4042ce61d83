//! The first process inside the jail (pid 1): checks that the mounts are the planned ones, starts
//! the command, reaps, passes signals on, and tells the launcher how things go. When it ends, the
//! kernel ends everything else in the jail.
//!
//! It is trusted, and stands among hostile processes of the same uid: it makes itself
//! non-dumpable first, so that none of them can trace it or read its descriptors.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it acts inside the jail"
)]

use std::ffi::{CString, OsStr, OsString};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Pid;

use crate::handoff::{End, LONGEST_DATAGRAM, Order, Report, Request};
use crate::sys::process::Change;
use crate::sys::{fds, process};

/// Exit code for a jail that could not be finished; the launcher has the reason.
const FAILED: i32 = 125;

/// Runs as init. `arguments` are the numbers of three descriptors: the user's standard error, the
/// socket to the launcher, the order. Never returns.
pub fn main(arguments: &[OsString]) -> ! {
    // The launcher shows the reason; without a socket to it there is nobody to tell.
    let code = match run(arguments) {
        Ok(code) => code,
        Err(()) => FAILED,
    };
    process::exit_now(code)
}

fn run(arguments: &[OsString]) -> Result<i32, ()> {
    nix::sys::prctl::set_dumpable(false).map_err(drop)?;
    if std::process::id() != 1 {
        return Err(());
    }
    let numbers: Vec<i32> = arguments
        .iter()
        .filter_map(|text| text.to_str()?.parse().ok())
        .filter(|&number| number > 2)
        .collect();
    let [stderr, control, order] = numbers[..] else {
        return Err(());
    };
    let stderr = fds::inherited(stderr).map_err(drop)?;
    let control = fds::inherited(control).map_err(drop)?;
    let order = fds::inherited(order).map_err(drop)?;
    // Nothing but the standard streams reaches the command, whatever bubblewrap left open.
    fds::close_on_exec_from(3).map_err(drop)?;
    let control = Control(control);
    let outcome = prepare(stderr, order).and_then(|order| start(&control, &order));
    match outcome {
        Ok(code) => Ok(code),
        Err(reason) => {
            control.send(&Report::Refused(reason));
            Err(())
        }
    }
}

struct Control(OwnedFd);

impl Control {
    fn send(&self, report: &Report) {
        // A launcher that is gone takes the jail with it; there is nothing to do about it here.
        if let Ok(text) = postcard::to_allocvec(report) {
            let _ = send(self.0.as_raw_fd(), &text, MsgFlags::MSG_NOSIGNAL);
        }
    }

    /// The next request; `None` when the launcher is gone.
    fn receive(&self) -> Option<Request> {
        let mut buffer = [0; LONGEST_DATAGRAM];
        match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(0) | Err(_) => None,
            Ok(length) => postcard::from_bytes(&buffer[..length]).ok(),
        }
    }
}

fn prepare(stderr: OwnedFd, order: OwnedFd) -> Result<Order, String> {
    let mut text = Vec::new();
    std::fs::File::from(order)
        .read_to_end(&mut text)
        .map_err(|error| format!("cannot read the order: {error}"))?;
    let order: Order =
        postcard::from_bytes(&text).map_err(|error| format!("cannot read the order: {error}"))?;
    fds::become_standard(&stderr, 2)
        .map_err(|error| format!("cannot set standard error: {error}"))?;
    drop(stderr);
    for expect in &order.expect {
        let path = Path::new(OsStr::from_bytes(&expect.path));
        let shown = path.display();
        let meta = std::fs::symlink_metadata(path)
            .map_err(|error| format!("`{shown}` is not in the jail: {error}"))?;
        if (meta.dev(), meta.ino()) != expect.id {
            return Err(format!(
                "`{shown}` was replaced while the jail was built; somebody is changing it"
            ));
        }
        if expect.read_only {
            let flags = statvfs(path)
                .map_err(|error| format!("cannot check `{shown}`: {error}"))?
                .flags();
            if !flags.contains(FsFlags::ST_RDONLY) {
                return Err(format!("`{shown}` is writable in the jail and must not be"));
            }
        }
    }
    if let Some(path) = &order.input {
        let path = Path::new(OsStr::from_bytes(path));
        reopen_input(path).map_err(|error| format!("cannot reopen standard input: {error}"))?;
    }
    Ok(order)
}

/// Replaces standard input by the same file through a mount of the jail, at the same offset.
fn reopen_input(path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    let offset = nix::unistd::lseek(std::io::stdin(), 0, nix::unistd::Whence::SeekCur)?;
    file.seek(SeekFrom::Start(offset.unsigned_abs()))?;
    fds::become_standard(&file, 0)
}

fn start(control: &Control, order: &Order) -> Result<i32, String> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    children
        .thread_block()
        .map_err(|error| format!("cannot block SIGCHLD: {error}"))?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let deaths = SignalFd::with_flags(&children, flags)
        .map_err(|error| format!("cannot make a signalfd: {error}"))?;
    control.send(&Report::Ready);
    match process::fork().map_err(|error| format!("cannot fork: {error}"))? {
        process::Side::Child => become_command(control, order),
        process::Side::Parent(command) => Ok(attend(control, &deaths, command)),
    }
}

/// Waits for the command, for everything that is re-parented to it, and for the launcher.
fn attend(control: &Control, deaths: &SignalFd, command: Pid) -> i32 {
    loop {
        let mut ready = [
            PollFd::new(deaths.as_fd(), PollFlags::POLLIN),
            PollFd::new(control.0.as_fd(), PollFlags::POLLIN),
        ];
        if let Err(errno) = poll(&mut ready, PollTimeout::NONE) {
            if errno == Errno::EINTR {
                continue;
            }
            return FAILED;
        }
        let (died, asked) = (
            ready[0].any().unwrap_or(false),
            ready[1].any().unwrap_or(false),
        );
        if died {
            while let Ok(Some(_)) = deaths.read_signal() {}
            if let Some(code) = reap(control, command) {
                return code;
            }
        }
        if asked {
            match control.receive() {
                Some(Request::Signal(number)) => {
                    if let Ok(signal) = Signal::try_from(number) {
                        let _ = nix::sys::signal::kill(command, signal);
                    }
                }
                // The launcher is gone: so is the jail.
                None => return FAILED,
            }
        }
    }
}

fn reap(control: &Control, command: Pid) -> Option<i32> {
    // The end of the loop is that there is no news, or that there are no children.
    while let Ok(Some((pid, change))) = process::next_change() {
        let end = match change {
            _ if pid != command => continue,
            Change::Stopped(signal) => {
                control.send(&Report::Stopped(signal));
                continue;
            }
            Change::Exited(code) => End::Code(code),
            Change::Killed(signal) => End::Signal(signal),
        };
        control.send(&Report::Ended(end));
        return Some(end.exit_code().into());
    }
    None
}

/// The child: becomes the command.
fn become_command(control: &Control, order: &Order) -> ! {
    if let Err(reason) = confine(order) {
        control.send(&Report::Refused(reason));
        process::exit_now(FAILED);
    }
    let errno = execute(order).raw_os_error().unwrap_or(libc::EIO);
    control.send(&Report::NotExecuted { errno });
    process::exit_now(FAILED)
}

fn confine(order: &Order) -> Result<(), String> {
    if let Some(most) = order.max_processes {
        let (_, hard) =
            getrlimit(Resource::RLIMIT_NPROC).map_err(|error| format!("getrlimit: {error}"))?;
        let most = most.min(hard);
        setrlimit(Resource::RLIMIT_NPROC, most, most)
            .map_err(|error| format!("cannot limit processes: {error}"))?;
    }
    if order.landlock_scope {
        landlock(order.writable.as_deref())
            .map_err(|error| format!("cannot confine the command with Landlock: {error}"))?;
    }
    let cwd = Path::new(OsStr::from_bytes(&order.cwd));
    std::env::set_current_dir(cwd)
        .map_err(|error| format!("cannot change into `{}`: {error}", cwd.display()))?;
    process::default_signals().map_err(|error| format!("cannot reset the signals: {error}"))
}

/// Keeps the command from abstract unix sockets and from processes outside (Landlock ABI 6), and
/// from writing anywhere but below `writable`.
fn landlock(writable: Option<&[Vec<u8>]>) -> Result<(), Box<dyn std::error::Error>> {
    use landlock::{
        ABI, AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
        RulesetCreatedAttr, Scope,
    };
    // Without the right on ioctl(2) of ABI 5: devices are chosen by the mounts.
    let write = AccessFs::from_write(ABI::V3);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    if writable.is_some() {
        rules = rules.handle_access(write)?;
    }
    let mut rules = rules.create()?;
    for path in writable.unwrap_or_default() {
        let file = open_path(Path::new(OsStr::from_bytes(path)))?;
        let rights = if file.metadata()?.is_dir() {
            write
        } else {
            write & AccessFs::from_file(ABI::V3)
        };
        rules = rules.add_rule(PathBeneath::new(file, rights))?;
    }
    if writable.is_some() {
        // Programs write to /dev/stdout and /dev/stderr, which open the file behind them anew.
        // Pipes and sockets need no rule.
        for stream in [0, 1, 2] {
            let file = match open_path(Path::new(&format!("/proc/self/fd/{stream}"))) {
                Ok(file) => file,
                Err(_) => continue,
            };
            let kind = file.metadata()?.file_type();
            let output = stream != 0 && kind.is_file();
            if output || kind.is_char_device() {
                rules =
                    rules.add_rule(PathBeneath::new(file, write & AccessFs::from_file(ABI::V3)))?;
            }
        }
    }
    rules.restrict_self()?;
    Ok(())
}

fn open_path(path: &Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
        .open(path)
}

/// Executes the command as `execvp(3)` does: searched if it has no slash, and handed to `/bin/sh`
/// if the kernel does not know its format.
fn execute(order: &Order) -> std::io::Error {
    let text = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
    let mut argv: Vec<CString> = order.argv.iter().map(|word| text(word)).collect();
    let environment: Vec<CString> = order.environment.iter().map(|entry| text(entry)).collect();
    let Some(command) = order.argv.first().filter(|command| !command.is_empty()) else {
        return std::io::Error::from_raw_os_error(libc::ENOENT);
    };
    let candidates: Vec<CString> = if command.contains(&b'/') {
        vec![text(command)]
    } else {
        order
            .search
            .split(|&byte| byte == b':')
            // An empty entry means the current directory, which is the hostile project.
            .filter(|directory| directory.starts_with(b"/"))
            .map(|directory| text(&[directory, b"/", command].concat()))
            .collect()
    };
    let mut answer = std::io::Error::from_raw_os_error(libc::ENOENT);
    for path in candidates {
        let error = process::exec(&path, &argv, &environment);
        match error.raw_os_error() {
            Some(libc::ENOEXEC) => {
                argv.splice(0..1, [c"/bin/sh".to_owned(), path]);
                return process::exec(&c"/bin/sh".to_owned(), &argv, &environment);
            }
            Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG) => {}
            Some(libc::EACCES) => answer = error,
            _ => return error,
        }
    }
    answer
}
