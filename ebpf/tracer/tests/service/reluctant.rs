//! Descriptors of a file system whose server opens a file and never answers when it is closed.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent_sandbox_events::client::Connection;
use agent_sandbox_events::protocol::{Request, Response, VERSION};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use nix::sys::stat::Mode;
use nix::unistd::{read, write};

use crate::world::{PATIENCE, Victim, World, in_time, me, of, path, refused, registered};

/// A launch waits for ten times as long.
const SOON: Duration = Duration::from_secs(1);

/// Of include/uapi/linux/fuse.h: the requests that are answered, and the one that never is.
const INIT: u32 = 26;
const OPEN: u32 = 14;
const FLUSH: u32 = 25;

const EXECUTES: &str = "executes";

/// A mount that is one file.
struct Reluctant {
    directory: tempfile::TempDir,
    /// The process whose execution hangs, or 0.
    hung: Arc<AtomicU32>,
    server: Option<JoinHandle<bool>>,
}

impl Reluctant {
    fn new() -> Option<Self> {
        let device = open("/dev/fuse", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty());
        let (0, Ok(device)) = (me(), device) else {
            println!("not checked: a server that is reluctant: it needs root and /dev/fuse");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let number = device.as_raw_fd();
        let data = format!("fd={number},rootmode=100644,user_id=0,group_id=0,allow_other");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let name = Some("reluctant");
        mount(name, &file, Some("fuse"), flags, Some(data.as_str())).unwrap();
        let hung = Arc::new(AtomicU32::new(0));
        let told = hung.clone();
        let server = Some(std::thread::spawn(move || serve(&device, &told)));
        // Whatever hangs in it, were the test to fail, ends then.
        let watched = file.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(60));
            let _ = umount2(&watched, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
        });
        Some(Self {
            directory,
            hung,
            server,
        })
    }

    fn open(&self) -> OwnedFd {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        open(&self.directory.path().join("file"), flags, Mode::empty()).unwrap()
    }

    /// Whether it was asked to close.
    fn end(mut self) -> bool {
        // All that waits for an answer gets an error.
        let flags = MntFlags::MNT_FORCE | MntFlags::MNT_DETACH;
        umount2(&self.directory.path().join("file"), flags).unwrap();
        self.server.take().unwrap().join().unwrap()
    }
}

fn serve(device: &OwnedFd, hung: &AtomicU32) -> bool {
    let mut flushed = false;
    let mut request = vec![0; 1 << 17];
    loop {
        match read(device, &mut request) {
            Ok(_) => {}
            Err(Errno::EINTR | Errno::ENOENT) => continue,
            Err(_) => return flushed,
        }
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let body = match word(4) {
            INIT => {
                let mut body = vec![0; 64];
                body[0..4].copy_from_slice(&7_u32.to_ne_bytes());
                body[4..8].copy_from_slice(&31_u32.to_ne_bytes());
                body[20..24].copy_from_slice(&4096_u32.to_ne_bytes());
                body
            }
            OPEN => vec![0; 16],
            FLUSH => {
                let task = word(32);
                // Until its execution ends, a process has the name of the thread that started it.
                let name = std::fs::read_to_string(format!("/proc/{task}/comm"));
                let executes = name.is_ok_and(|name| name.trim_end() == EXECUTES);
                if executes {
                    hung.store(task, Ordering::SeqCst);
                }
                if executes || std::fs::exists(format!("/proc/self/task/{task}")).unwrap() {
                    flushed = true;
                    continue;
                }
                // What another test executes closes it as well, and is not to hang.
                Vec::new()
            }
            _ => continue,
        };
        let mut answer = Vec::new();
        answer.extend(u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
        answer.extend(0_i32.to_ne_bytes());
        answer.extend(&request[8..16]);
        answer.extend(body);
        write(device, &answer).unwrap();
    }
}

fn is_served(world: &World) {
    let begin = Instant::now();
    let status = Request::Status { version: VERSION };
    assert!(world.connect().ask(&status).is_ok());
    in_time(begin, SOON);
}

#[test]
fn what_never_closes_keeps_nobody_waiting() {
    let mut world = World::with(|config| config.limits.requests_per_second = 100_000);
    let Some(reluctant) = Reluctant::new() else {
        return;
    };
    let victim = Victim::new();
    // To close it here would take for ever as well.
    let file = std::mem::ManuallyDrop::new(reluctant.open());
    let forbid = Request::Forbid { version: VERSION };
    // Where it is asked for: it is not taken, and what is sent with it is.
    let connection = world.connect();
    registered(&connection, &of(victim.pid()));
    let usr = path("/usr");
    match connection
        .ask_with(&forbid, &[file.as_fd(), usr.as_fd()])
        .unwrap()
    {
        Response::Forbidden { taken: 1, blind } => {
            assert_eq!(blind, ["1 file is not denied: opened, and not with O_PATH"]);
        }
        other => panic!("{other:?}"),
    }
    is_served(&world);
    // Where it is of no use.
    let status = Request::Status { version: VERSION };
    let useless = world.connect();
    let why = refused(useless.ask_with(&status, &[file.as_fd()]));
    assert!(why.contains("without a use"), "{why}");
    is_served(&world);
    // Where nobody takes it: behind the packet that ends the conversation.
    let gone = Connection::open(&world.config.socket, SOON).unwrap();
    gone.ask_with(&status, &[file.as_fd()]).unwrap_err();
    let _ = gone.ask_with(&forbid, &[file.as_fd()]);
    drop(gone);
    is_served(&world);
    // With a packet that is empty, and looks like the end of the conversation.
    let empty = world.connect();
    let rights = [file.as_raw_fd()];
    let with = [ControlMessage::ScmRights(&rights)];
    let number = empty.as_fd().as_raw_fd();
    sendmsg::<UnixAddr>(number, &[], &with, MsgFlags::MSG_NOSIGNAL, None).unwrap();
    is_served(&world);
    // The trace begins, and the tracer ends and begins again.
    assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
    world.stop();
    world.start();
    is_served(&world);
    assert!(reluctant.end(), "nobody was asked to close it");
}

/// Whoever reads `/proc/PID/stat` waits for what a process executes, and that for the server of a file that it closes.
#[test]
fn a_process_that_never_comes_to_execute_keeps_nobody_waiting() {
    let mut world = World::new();
    let Some(reluctant) = Reluctant::new() else {
        return;
    };
    let file = std::mem::ManuallyDrop::new(reluctant.open());
    let thread = std::thread::Builder::new().name(EXECUTES.to_owned());
    let started = thread.spawn(Victim::new).unwrap();
    let begin = Instant::now();
    while reluctant.hung.load(Ordering::SeqCst) == 0 {
        assert!(begin.elapsed() < PATIENCE, "nothing hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = reluctant.hung.load(Ordering::SeqCst);
    let (_connection, _) = world.trace(&of(pid));
    is_served(&world);
    world.stop();
    world.start();
    is_served(&world);
    assert!(reluctant.end(), "nobody was asked to close it");
    drop((started.join().unwrap(), file));
}
