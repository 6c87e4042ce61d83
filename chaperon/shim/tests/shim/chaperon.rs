//! A chaperon that does what a test says.

use std::io::{IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use agent_sandbox_support::process::{self, Drained, drain, wait};
pub(crate) use agent_sandbox_support::waiting::PATIENCE;
use agent_sandbox_support::waiting::until;
use agent_sandbox_wire::SOCKET_VARIABLE;
use agent_sandbox_wire::frame::{self, PREFACE};
use agent_sandbox_wire::message::{Call, End, FromShim, ToShim};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::sys;

/// A directory with a socket and a shim named `sbatch`.
pub(crate) struct ShimDirectory {
    pub(crate) dir: TempDir,
    listener: UnixListener,
}

impl ShimDirectory {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        symlink(binary(), dir.path().join("sbatch")).unwrap();
        Self { dir, listener }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The shim, to be started with arguments, in the directory, with pipes as streams.
    pub(crate) fn shim(&self) -> Command {
        self.around(&Command::new(self.path("sbatch")))
    }

    /// The shim, started by a shell that does something first. The shell's `"$0" "$@"` is the shim.
    pub(crate) fn shim_after(&self, script: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).arg(self.path("sbatch"));
        self.around(&shell)
    }

    fn around(&self, inner: &Command) -> Command {
        let mut command = Command::new(inner.get_program());
        command
            .args(inner.get_args())
            .env(SOCKET_VARIABLE, self.path("socket"))
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// A connection without a word said.
    pub(crate) fn connection(&self) -> UnixStream {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Takes the next call.
    pub(crate) fn accept(&self) -> Talk {
        let mut stream = self.connection();
        let mut preface = [0; 4];
        stream.read_exact(&mut preface).unwrap();
        assert_eq!(preface, PREFACE);
        stream.write_all(&PREFACE).unwrap();
        let mut talk = Talk {
            stream,
            call: Call {
                command: Vec::new(),
                arguments: Vec::new(),
                cwd: Vec::new(),
                environment: Vec::new(),
                umask: 0,
            },
            standard: Vec::new(),
        };
        let (message, files) = talk.receive_with();
        let FromShim::Call(call) = message else {
            panic!("{message:?} instead of a call");
        };
        assert_eq!(files.len(), 3);
        talk.call = call;
        talk.standard = files;
        talk
    }

    /// Starts the shim and takes its call.
    pub(crate) fn begin(&self, command: &mut Command) -> (Shim, Talk) {
        let (shim, mut talk) = self.begin_with_streams(command);
        // Else the pipes would not end with the shim.
        talk.standard.clear();
        (shim, talk)
    }

    /// The same, with the shim's own streams.
    pub(crate) fn begin_with_streams(&self, command: &mut Command) -> (Shim, Talk) {
        let shim = Shim(command.spawn().unwrap());
        (shim, self.accept())
    }
}

/// The program under test; another build of it when `AGENT_SANDBOX_SHIM` says so.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("AGENT_SANDBOX_SHIM").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_agent-sandbox-shim")),
        PathBuf::from,
    )
}

/// A conversation, from the chaperon's side.
pub(crate) struct Talk {
    pub(crate) stream: UnixStream,
    pub(crate) call: Call,
    pub(crate) standard: Vec<OwnedFd>,
}

impl Talk {
    pub(crate) fn send(&mut self, message: &ToShim) {
        frame::send(&mut self.stream, message).unwrap();
    }

    pub(crate) fn end(&mut self, end: End) {
        self.send(&ToShim::End(end));
    }

    #[track_caller]
    pub(crate) fn receive(&mut self) -> FromShim {
        let (message, files) = self.receive_with();
        assert!(files.is_empty(), "{message:?} with descriptors");
        message
    }

    /// A message and the descriptors that came with its first byte.
    #[track_caller]
    pub(crate) fn receive_with(&mut self) -> (FromShim, Vec<OwnedFd>) {
        let mut header = [0; 4];
        let mut space = nix::cmsg_space!([std::os::fd::RawFd; 8]);
        let (got, files) = {
            let mut parts = [IoSliceMut::new(&mut header)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let fd = self.stream.as_raw_fd();
            await_input(&self.stream);
            let got = recvmsg::<()>(fd, &mut parts, Some(&mut space), flags).unwrap();
            let mut files = Vec::new();
            for control in got.cmsgs().unwrap() {
                if let ControlMessageOwned::ScmRights(received) = control {
                    files.extend(received.into_iter().map(sys::own));
                }
            }
            (got.bytes, files)
        };
        assert!(got > 0, "the shim is gone");
        self.stream.read_exact(&mut header[got..]).unwrap();
        let mut body = vec![0; frame::body_length(header).unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        (frame::decode(&body).unwrap(), files)
    }

    /// All that comes of a file, and how it ended.
    #[track_caller]
    pub(crate) fn content(&mut self) -> (Vec<u8>, FromShim) {
        let mut content = Vec::new();
        loop {
            match self.receive() {
                FromShim::Content(part) => {
                    assert!(part.len() <= frame::PART);
                    content.extend(part);
                }
                end => return (content, end),
            }
        }
    }

    /// Nothing is said for a while.
    #[track_caller]
    pub(crate) fn hears_nothing(&mut self) {
        self.stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let mut byte = [0];
        let got = self.stream.read(&mut byte);
        assert!(got.is_err(), "something was said");
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

/// A running shim; killed when a test fails.
pub(crate) struct Shim(pub(crate) Child);

impl Shim {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Everything it wrote, and how it ended. The rest of standard input is the end of it.
    #[track_caller]
    pub(crate) fn output(mut self) -> Output {
        drop(self.0.stdin.take());
        let out = self.0.stdout.take().map(drain);
        let err = self.0.stderr.take().map(drain);
        let status = self.status();
        let text = |reader: Option<Drained>| reader.map(|reader| reader.all()).unwrap_or_default();
        Output {
            status,
            stdout: text(out),
            stderr: text(err),
        }
    }

    #[track_caller]
    pub(crate) fn status(&mut self) -> ExitStatus {
        wait(&mut self.0, "the shim")
    }

    /// Waits until the process is in this state (`proc(5)`, the third field of `stat`).
    #[track_caller]
    pub(crate) fn becomes(&self, state: char) {
        until(&format!("state {state}"), || {
            process::state(self.pid().as_raw()) == Some(state)
        });
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the next message: a wait with a limit ends early when the process is stopped and goes on.
fn await_input(stream: &UnixStream) {
    let patience = PollTimeout::try_from(PATIENCE).unwrap();
    let mut polled = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    while poll(&mut polled, patience) == Err(Errno::EINTR) {}
}

/// Fails unless the shim ended with this code and wrote this to standard error alone.
#[track_caller]
pub(crate) fn complains(output: &Output, code: i32, text: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(text), "{stderr}");
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(output.stdout, b"");
}

/// Fails unless the shim died of this signal.
#[track_caller]
pub(crate) fn died_of(status: ExitStatus, signal: i32) {
    assert_eq!(status.signal(), Some(signal), "{status}");
    assert!(!status.core_dumped());
}
