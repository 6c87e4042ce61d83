//! A tracer that records nothing: it speaks the tracer's protocol (`agent_sandbox_events::protocol`) at a
//! socket of its own, and remembers what it was asked. What the launcher asks and when can so be seen on
//! machines where no probe can be loaded; what the real one does with it is shown by the suite `tracer`.

use std::fs;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use agent_sandbox::sys::fds::inherited;
use agent_sandbox_events::audit::Handed;
use agent_sandbox_events::client::{decode, encode};
use agent_sandbox_events::protocol::{
    DESCRIPTORS, PACKET_BYTES, Register, Request, Response, Status,
};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept4,
    bind, listen, recvmsg, send, socket,
};
use nix::sys::stat::fstat;

/// How long a slow one takes to begin.
const SLOWLY: Duration = Duration::from_secs(4);

/// How it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    /// It does what it is asked, and can deny.
    Whole,
    /// It does what it is asked, and can deny nothing.
    Weak,
    /// It does what it is asked, and takes its time to begin.
    Slow,
    /// It refuses to trace.
    Refuses,
    /// It takes the connection and says nothing.
    Silent,
    /// It answers something else.
    Strange,
}

/// What it was asked on one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) register: Option<Register>,
    /// Real user id of the process that was named, as the kernel says.
    pub(crate) uid: Option<u32>,
    /// Device and inode of what is forbidden.
    pub(crate) forbidden: Vec<(u64, u64)>,
    /// The programs of the process and of all that descend from it, when it was told to begin.
    pub(crate) programs: Vec<String>,
    /// Whether the file that was to be looked for was there when it was told to begin.
    pub(crate) too_late: bool,
    pub(crate) begun: bool,
    /// What it was handed for the audit record.
    pub(crate) handed: Vec<Handed>,
    /// Whether the connection was closed after that.
    pub(crate) closed: bool,
}

/// A tracer at a socket, until it is dropped.
pub(crate) struct Fake {
    socket: PathBuf,
    all: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    /// Listens in a directory. `witness` is a file that a command makes first of all.
    pub(crate) fn new(directory: &Path, manners: Manners, witness: Option<PathBuf>) -> Self {
        let path = directory.join("tracer.sock");
        let listener = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        listen(&listener, Backlog::new(64).unwrap()).unwrap();
        let all = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&all);
        thread::spawn(move || {
            // It ends with the process.
            while let Ok(number) = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
                let connection = inherited(number).unwrap();
                let (log, witness) = (Arc::clone(&log), witness.clone());
                thread::spawn(move || converse(&connection, manners, &log, witness.as_deref()));
            }
        });
        Self { socket: path, all }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What it was asked, on each connection that asked anything. Whatever is said last was said before the
    /// command began, so that all is there when the command has ended.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        for _ in 0..200 {
            let all = self.all.lock().unwrap();
            if all.iter().all(|asked| asked.closed) {
                break;
            }
            drop(all);
            thread::sleep(Duration::from_millis(5));
        }
        self.all.lock().unwrap().clone()
    }

    /// What it was asked by the one launch that there was.
    #[track_caller]
    pub(crate) fn one(&self) -> Asked {
        let mut all = self.asked();
        all.retain(|asked| asked.register.is_some());
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

fn converse(
    connection: &OwnedFd,
    manners: Manners,
    log: &Mutex<Vec<Asked>>,
    witness: Option<&Path>,
) {
    let at = {
        let mut all = log.lock().unwrap();
        all.push(Asked::default());
        all.len() - 1
    };
    let note = |change: &dyn Fn(&mut Asked)| change(&mut log.lock().unwrap()[at]);
    while let Some((request, files)) = receive(connection) {
        let answer = match (manners, request) {
            (Manners::Silent, _) => continue,
            (Manners::Strange, _) => Response::Files(Vec::new()),
            (_, Request::Status { .. }) => Response::Status(Box::new(Status {
                version: "0.0".into(),
                kernel: "6.0-fake".into(),
                object: match manners {
                    Manners::Weak => "tracepoints".into(),
                    _ => "trampolines".into(),
                },
                enforces: manners == Manners::Whole,
                blind: vec!["nothing can be seen".into()],
                records: "/nowhere".into(),
                ..Status::default()
            })),
            (Manners::Refuses, _) => Response::Refused {
                why: "there are too many traces\nof yours".into(),
                hint: Some("end some".into()),
            },
            (_, Request::Register(register)) => {
                let process = register.scope.process.unwrap();
                let uid = uid(process);
                note(&|asked| {
                    asked.register = Some((*register).clone());
                    asked.uid = uid;
                });
                Response::Registered {
                    trace: 1,
                    blind: Vec::new(),
                }
            }
            (_, Request::Forbid { .. }) => {
                let ids = files.iter().map(|file| {
                    let found = fstat(file).unwrap();
                    (found.st_dev, found.st_ino)
                });
                let ids: Vec<(u64, u64)> = ids.collect();
                note(&|asked| asked.forbidden.extend(&ids));
                Response::Forbidden {
                    taken: u32::try_from(ids.len()).unwrap(),
                    blind: Vec::new(),
                }
            }
            (_, Request::Begin) => {
                // Whoever does not wait is seen.
                thread::sleep(match manners {
                    Manners::Slow => SLOWLY,
                    _ => Duration::from_millis(100),
                });
                let too_late = witness.is_some_and(Path::exists);
                note(&|asked| {
                    let register = asked.register.as_ref().unwrap();
                    asked.programs = programs(register.scope.process.unwrap());
                    asked.begun = true;
                    asked.too_late = too_late;
                });
                Response::Done
            }
            (_, Request::Audit(handed)) => {
                note(&|asked| asked.handed.push((*handed).clone()));
                Response::Done
            }
            _ => Response::Refused {
                why: "this is no tracer".into(),
                hint: None,
            },
        };
        let packet = encode(&answer).unwrap();
        if send(connection.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL).is_err() {
            break;
        }
    }
    note(&|asked| asked.closed = true);
}

fn receive(connection: &OwnedFd) -> Option<(Request, Vec<OwnedFd>)> {
    let mut packet = vec![0; PACKET_BYTES];
    let mut space = nix::cmsg_space!([RawFd; DESCRIPTORS]);
    let (length, numbers) = {
        let mut parts = [IoSliceMut::new(&mut packet)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message =
            recvmsg::<UnixAddr>(connection.as_raw_fd(), &mut parts, Some(&mut space), flags)
                .ok()?;
        let mut numbers = Vec::new();
        for one in message.cmsgs().ok()? {
            if let ControlMessageOwned::ScmRights(some) = one {
                numbers.extend(some);
            }
        }
        (message.bytes, numbers)
    };
    let files = numbers.into_iter().map(|number| inherited(number).unwrap());
    let files = files.collect();
    if length == 0 {
        return None;
    }
    Some((decode(&packet[..length]).expect("a request"), files))
}

fn uid(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The first words of a process and of its descendants.
fn programs(process: u32) -> Vec<String> {
    let mut waiting = vec![process];
    let mut found = Vec::new();
    while let Some(pid) = waiting.pop() {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let first = line.split(|&byte| byte == 0).next().unwrap_or_default();
        found.push(String::from_utf8_lossy(first).into_owned());
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        waiting.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    found
}
