//! Landlock's rules for a process, by the rights that the kernel's ABI has.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it confines the process"
)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::Pid;

use super::access::{NETWORK, Right, Rule};
use agent_sandbox_base::sys::{fds, passing, paths, privileges, process, sockets};

/// The first ABI with scopes (`landlock(7)`).
const SCOPES: i32 = 6;

/// The newest ABI whose rights are used; what a newer one adds would need rules that nobody plans.
const NEWEST: i32 = 8;

/// What goes to the mediator with the listener.
const LISTENER: &[u8] = b"l";

/// How the process that becomes the command confines itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Landlock's rules.
    pub rules: Vec<Rule>,
    /// The kernel's Landlock ABI, as the plan knows it.
    pub abi: i32,
    /// Whether the mediator alone connects by TCP.
    pub led: bool,
    /// The filter that refuses, as `agent_sandbox_base::seccomp` compiles it.
    pub filter: Vec<u8>,
    /// The filter that hands calls over.
    pub handing_over: Vec<u8>,
    /// The number of the descriptor, a `SOCK_SEQPACKET` socket, on which the listener of that filter
    /// goes to the mediator.
    pub mediator: i32,
}

/// Confines this process by Landlock and two filters. The second hands calls over before the first
/// path that the agent chose is opened. `parent` is the process that forked this one.
///
/// # Errors
/// A sentence: what could not be done.
pub fn confine(by: &Confinement, parent: Pid) -> Result<(), String> {
    let failed = |what: &str, error: std::io::Error| format!("cannot {what}: {error}");
    privileges::end_with_parent(Some(parent))
        .map_err(|error| failed("bind the command to its parent", error))?;
    // No mount keeps the command from what it is given as an open file.
    fds::close_on_exec_from(3).map_err(|error| failed("keep descriptors back", error))?;
    refuse_datagrams(by.led)?;
    let mediator =
        fds::inherited(by.mediator).map_err(|error| failed("reach the mediator", error))?;
    privileges::drop_held().map_err(|error| failed("give capabilities up", error))?;
    privileges::no_new_privileges().map_err(|error| failed("set no_new_privs", error))?;
    restrict(&by.rules, by.abi, by.led.then_some(&[]))?;
    // What forked this process cannot be traced, and so this one cannot either: the mediator could
    // not read the paths that it opens. From here on nobody else inside can, for Landlock keeps those
    // of another domain from it, and in this domain there is nobody yet.
    nix::sys::prctl::set_dumpable(true)
        .map_err(|error| failed("make the command dumpable", error.into()))?;
    privileges::filter(&by.filter).map_err(|error| failed("install the seccomp filter", error))?;
    let listener = privileges::filter_with_listener(&by.handing_over)
        .map_err(|error| failed("install the seccomp filter of the mediator", error))?;
    passing::send(&mediator, LISTENER, Some(listener.as_fd()))
        .map_err(|error| failed("reach the mediator", error))
}

/// A datagram socket sends to any address that it is told, past the mediator. The command can make
/// none, and must not be given one.
fn refuse_datagrams(filtered: bool) -> Result<(), String> {
    for (number, name) in (0..).zip(["input", "output", "error"]) {
        // Only what is a socket has a domain.
        let domain = sockets::option(number, libc::SO_DOMAIN).ok();
        let kind = sockets::option(number, libc::SO_TYPE).ok();
        let what = match (domain, kind) {
            (Some(libc::AF_UNIX), Some(libc::SOCK_DGRAM)) => {
                "a local datagram socket, which reaches every service of yours"
            }
            (Some(domain), Some(kind))
                if filtered && domain != libc::AF_UNIX && kind != libc::SOCK_STREAM =>
            {
                "a socket that sends past the network's filter"
            }
            _ => continue,
        };
        return Err(format!(
            "standard {name} is {what}; give the command a file, a pipe or a terminal"
        ));
    }
    Ok(())
}

/// Restricts this process, and what it starts, to the rules for good: every right on files that the
/// ABI has is taken but for what they give. With ABI 6 signals and abstract sockets reach no process
/// outside. With `ports` TCP connects to these and to no other, at whatever address, and binds nowhere, which needs ABI 4. The
/// standard streams can be opened again (`/dev/stdout`) for what they are open for. The process must have one thread and [`agent_sandbox_base::sys::privileges::no_new_privileges`].
///
/// A rule whose path is gone, or is another file by now, is left out, for it would only give something.
///
/// # Errors
/// A sentence: a path that is not what was planned, or what the kernel answers. Nothing is restricted
/// then.
pub fn restrict(rules: &[Rule], abi: i32, ports: Option<&[u16]>) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("cannot confine the command with Landlock: {error}")
    };
    let running = process::landlock_abi();
    if abi < 1 || running < abi {
        return Err(failed(&format_args!(
            "the jail was planned for its ABI {abi}, and the kernel has {running}"
        )));
    }
    let rights = Rights::of(abi);
    if ports.is_some() && abi < NETWORK {
        return Err(failed(&format_args!(
            "its ABI {abi} has no rights about the network"
        )));
    }
    let mut domain = begin(&rights, abi, ports.is_some()).map_err(|error| failed(&error))?;
    for &port in ports.unwrap_or_default() {
        domain = domain
            .add_rule(NetPort::new(port, AccessNet::ConnectTcp))
            .map_err(|error| failed(&format_args!("port {port}: {error}")))?;
    }
    for rule in rules {
        let Some((file, is_directory)) = planned(rule)? else {
            continue;
        };
        let given = rights.given(rule.right, is_directory);
        domain = domain
            .add_rule(PathBeneath::new(file, given))
            .map_err(|error| failed(&format_args!("`{}`: {error}", shown(rule))))?;
    }
    for (file, given) in streams(&rights) {
        domain = domain
            .add_rule(PathBeneath::new(file, given))
            .map_err(|error| failed(&format_args!("a standard stream: {error}")))?;
    }
    domain.restrict_self().map_err(|error| failed(&error))?;
    Ok(())
}

/// A domain without rules.
fn begin(
    rights: &Rights,
    abi: i32,
    network: bool,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(rights.all)?;
    let rules = match network {
        true => rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?,
        false => rules,
    };
    let rules = if abi < SCOPES {
        rules
    } else {
        rules.scope(Scope::AbstractUnixSocket | Scope::Signal)?
    };
    rules.create()
}

/// The rights of an ABI.
struct Rights {
    all: BitFlags<AccessFs>,
    /// Those that mean something on what is no directory.
    of_files: BitFlags<AccessFs>,
}

impl Rights {
    fn of(abi: i32) -> Self {
        let abi = ABI::from(abi.min(NEWEST));
        Self {
            all: AccessFs::from_all(abi),
            of_files: AccessFs::from_file(abi),
        }
    }

    /// What a rule gives.
    fn given(&self, right: Right, is_directory: bool) -> BitFlags<AccessFs> {
        let given = match right {
            Right::Read => AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir,
            Right::ReadFiles => AccessFs::Execute | AccessFs::ReadFile,
            Right::Write => self.all & !AccessFs::IoctlDev,
            Right::Device => {
                AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
            }
        };
        given
            & if is_directory {
                self.all
            } else {
                self.of_files
            }
    }
}

fn shown(rule: &Rule) -> std::path::Display<'_> {
    Path::new(OsStr::from_bytes(&rule.path)).display()
}

/// Opens what a rule is about, and whether it is a directory; `None` if it is gone.
///
/// # Errors
/// A sentence: it is something else than was planned.
fn planned(rule: &Rule) -> Result<Option<(File, bool)>, String> {
    let cannot = |error: io::Error| format!("cannot open `{}`: {error}", shown(rule));
    let path = Path::new(OsStr::from_bytes(&rule.path));
    let file = match paths::path_only(path, OFlag::O_NOFOLLOW) {
        Ok(file) => file,
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => Ok(None),
                _ => Err(cannot(error)),
            };
        }
    };
    let meta = file.metadata().map_err(cannot)?;
    let other = rule.id.is_some_and(|id| id != (meta.dev(), meta.ino()));
    // The paths are real ones: where there is a symbolic link now there was none. Programs outside
    // save files by putting new ones in their place; to leave the rule out only gives less.
    if meta.is_symlink() || (other && !meta.is_dir()) {
        return Ok(None);
    }
    if other {
        return Err(format!(
            "`{}` was replaced while the jail was built; somebody is changing it",
            shown(rule)
        ));
    }
    Ok(Some((file, meta.is_dir())))
}

/// The standard streams that are files or devices, and what they are open for. Programs write to
/// `/dev/stdout`, which opens the file behind it anew. Pipes and sockets need no rule.
fn streams(rights: &Rights) -> Vec<(File, BitFlags<AccessFs>)> {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    [input.as_fd(), output.as_fd(), error.as_fd()]
        .into_iter()
        .filter_map(|stream| {
            let (file, given) = stream_rule(stream)?;
            let given = given & rights.of_files;
            (!given.is_empty()).then_some((file, given))
        })
        .collect()
}

fn stream_rule(stream: BorrowedFd<'_>) -> Option<(File, BitFlags<AccessFs>)> {
    // A stream may be closed.
    let flags = OFlag::from_bits_retain(fcntl(stream, FcntlArg::F_GETFL).ok()?);
    let behind = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let file = paths::path_only(Path::new(&behind), OFlag::empty()).ok()?;
    let kind = file.metadata().ok()?.file_type();
    let device = kind.is_char_device();
    if !device && !kind.is_file() {
        return None;
    }
    let write = AccessFs::WriteFile | AccessFs::Truncate;
    let mut given = match flags & paths::ACCESS_MODE {
        _ if flags.contains(OFlag::O_PATH) => return None,
        OFlag::O_RDONLY => AccessFs::ReadFile.into(),
        OFlag::O_WRONLY => write,
        _ => write | AccessFs::ReadFile,
    };
    if device {
        given |= AccessFs::IoctlDev;
    }
    Some((file, given))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Instant;

    use super::*;
    use agent_sandbox_base::sys::process::{Change, Side, exit_now, fork, wait};

    fn rule(path: &Path, right: Right) -> Rule {
        let meta = fs::symlink_metadata(path).expect("a file");
        Rule {
            path: path.as_os_str().as_bytes().to_vec(),
            id: Some((meta.dev(), meta.ino())),
            right,
        }
    }

    /// Does something in a child; what does not hold is its exit code, from 1 on.
    fn in_child(act: impl FnOnce() -> i32) -> Change {
        match fork().expect("a fork") {
            Side::Child => {
                let code = privileges::no_new_privileges().map_or(99, |()| act());
                exit_now(code)
            }
            Side::Parent(child) => wait(child).expect("its end"),
        }
    }

    fn denied<T>(done: io::Result<T>) -> bool {
        done.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
    }

    #[test]
    fn every_right_gives_what_it_says_with_every_abi() {
        let world = tempfile::tempdir().expect("a directory");
        let at = |name: &str| world.path().join(name);
        for name in ["read", "files", "write", "closed"] {
            fs::create_dir(at(name)).expect("a directory");
            fs::write(at(name).join("file"), "text").expect("a file");
        }
        fs::write(at("one"), "text").expect("a file");
        let rules = [
            rule(&at("read"), Right::Read),
            rule(&at("files"), Right::ReadFiles),
            rule(&at("write"), Right::Write),
            rule(&at("write"), Right::Read),
            rule(&at("one"), Right::Write),
            rule(Path::new("/dev/null"), Right::Device),
        ];
        for abi in 1..=process::landlock_abi().min(NEWEST) {
            let ended = in_child(|| {
                if restrict(&rules, abi, None).is_err() {
                    return 1;
                }
                let file = |name: &str| at(name).join("file");
                let append = |path: &Path| fs::OpenOptions::new().append(true).open(path);
                let holds = [
                    fs::read(file("read")).is_ok() && fs::read_dir(at("read")).is_ok(),
                    denied(append(&file("read"))) && denied(fs::remove_file(file("read"))),
                    denied(fs::write(at("read").join("new"), "")),
                    fs::read(file("files")).is_ok() && denied(fs::read_dir(at("files"))),
                    denied(fs::read(file("closed"))) && denied(fs::read_dir(at("closed"))),
                    denied(fs::read_dir("/")) && denied(fs::read("/etc/passwd")),
                    fs::write(file("write"), "new").is_ok(),
                    fs::create_dir(at("write").join("d")).is_ok(),
                    symlink("x", at("write").join("link")).is_ok(),
                    // Across directories: only from ABI 2 on.
                    fs::rename(file("write"), at("write").join("d/file")).is_ok() == (abi >= 2),
                    fs::remove_file(at("write").join("link")).is_ok(),
                    fs::remove_dir_all(at("write").join("d")).is_ok(),
                    fs::write(file("write"), "again").is_ok(),
                    append(&at("one")).is_ok() && fs::read(at("one")).is_ok(),
                    fs::write("/dev/null", "x").is_ok() && fs::read("/dev/null").is_ok(),
                ];
                let failed = holds.iter().position(|held| !held);
                failed.map_or(0, |at| 10 + at as i32)
            });
            assert_eq!(ended, Change::Exited(0), "ABI {abi}");
        }
    }

    #[test]
    fn what_is_not_as_planned_is_refused_and_what_is_gone_gives_nothing() {
        let world = tempfile::tempdir().expect("a directory");
        let at = |name: &str| world.path().join(name);
        fs::create_dir(at("one")).expect("a directory");
        fs::create_dir(at("two")).expect("a directory");
        symlink("two", at("link")).expect("a link");
        let abi = process::landlock_abi();
        let said = |rules: &[Rule], abi| restrict(rules, abi, None).expect_err("a refusal");
        let mut other = rule(&at("one"), Right::Read);
        other.id = rule(&at("two"), Right::Read).id;
        let link = rule(&at("link"), Right::Read);
        assert!(said(&[other], abi).contains("was replaced"));
        for planned in [0, abi + 1] {
            assert!(said(&[], planned).contains("planned for its ABI"));
        }
        let mut gone = rule(&at("one"), Right::Write);
        fs::remove_dir(at("one")).expect("removed");
        gone.path.extend(b"/below");
        // Whatever it leads to gets nothing by it, and a file is another when it was saved.
        let unplanned = Rule {
            id: None,
            ..link.clone()
        };
        fs::write(at("two/file"), "").expect("a file");
        let mut saved = rule(&at("two/file"), Right::Read);
        saved.id = saved.id.map(|(device, inode)| (device, inode + 1));
        let ended = in_child(|| {
            let restricted = restrict(&[gone, link, unplanned, saved], abi, None).is_ok();
            let open = !denied(fs::read_dir(at("two"))) || !denied(File::open(at("two/file")));
            i32::from(!restricted || open)
        });
        assert_eq!(ended, Change::Exited(0));
    }

    /// `/dev/stdout` opens the file behind it anew.
    #[test]
    fn a_stream_can_be_opened_again_for_what_it_is_open_for() {
        let world = tempfile::tempdir().expect("a directory");
        let at = |name: &str| world.path().join(name);
        fs::write(at("in"), "text").expect("a file");
        fs::write(at("out"), "").expect("a file");
        let ended = in_child(|| {
            let (Ok(input), Ok(output)) = (File::open(at("in")), File::create(at("out"))) else {
                return 1;
            };
            let placed = agent_sandbox_base::sys::fds::become_standard(&input, 0)
                .and(agent_sandbox_base::sys::fds::become_standard(&output, 1));
            if placed.is_err() || restrict(&[], process::landlock_abi(), None).is_err() {
                return 2;
            }
            let append = |path: &str| fs::OpenOptions::new().append(true).open(path);
            let holds = [
                fs::read("/proc/self/fd/0").is_ok_and(|text| text == b"text"),
                denied(append("/proc/self/fd/0")),
                append("/proc/self/fd/1").is_ok() && fs::write("/proc/self/fd/1", "x").is_ok(),
                denied(File::open("/proc/self/fd/1")),
                denied(File::open(at("out"))) && denied(fs::read_dir("/")),
            ];
            let failed = holds.iter().position(|held| !held);
            failed.map_or(0, |at| 10 + at as i32)
        });
        assert_eq!(ended, Change::Exited(0));
    }

    /// Bound sockets that listen without `bind(2)` are the mediator's business.
    #[test]
    fn tcp_reaches_the_ports_that_are_given_and_binds_nowhere() {
        use std::net::{Ipv4Addr, TcpListener, TcpStream};
        let abi = process::landlock_abi();
        assert!(restrict(&[], NETWORK - 1, Some(&[])).is_err());
        if abi < NETWORK {
            eprintln!("not checked: TCP under Landlock: the kernel's ABI is {abi}");
            return;
        }
        let all = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound"));
        let [given, other] = all
            .each_ref()
            .map(|one| one.local_addr().expect("its address"));
        for (ports, reached) in [(&[given.port()][..], true), (&[], false)] {
            let ended = in_child(|| {
                if restrict(&[], abi, Some(ports)).is_err() {
                    return 1;
                }
                let holds = [
                    TcpStream::connect(given).is_ok() == reached,
                    denied(TcpStream::connect(other)),
                    denied(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))),
                    denied(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))),
                ];
                let failed = holds.iter().position(|held| !held);
                failed.map_or(0, |at| 10 + at as i32)
            });
            assert_eq!(ended, Change::Exited(0), "{ports:?}");
        }
    }

    /// Prints what rules cost; no target, the machine's load decides.
    #[test]
    fn the_cost_of_rules() {
        const RULES: usize = 2000;
        let world = tempfile::tempdir().expect("a directory");
        let rules: Vec<Rule> = (0..RULES)
            .map(|number| {
                let path = world.path().join(number.to_string());
                fs::create_dir(&path).expect("a directory");
                rule(&path, Right::Write)
            })
            .collect();
        let ended = in_child(|| {
            let begun = Instant::now();
            let restricted = restrict(&rules, process::landlock_abi(), None).is_ok();
            let took = begun.elapsed();
            let text = format!("{RULES} rules: {took:?}\n");
            let _ = nix::unistd::write(io::stderr(), text.as_bytes());
            i32::from(!restricted)
        });
        assert_eq!(ended, Change::Exited(0));
    }
}
