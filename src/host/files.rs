//! What stands where on the host's file systems, asked so that a dead network file system or an
//! automount without a server costs a bounded wait. A child process does the looking; when one
//! path does not answer in time, the child is left behind and a new one goes on with the rest.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{AccessFlags, Pid, access};
use serde::{Deserialize, Serialize};

use crate::sys::process::{Side, exit_now, fork};

/// As many symbolic links as the kernel follows in one path (`path_resolution(7)`).
const MOST_LINKS: usize = 40;
/// More entries than this in one directory are not granted one by one.
const MOST_ENTRIES: usize = 20_000;
/// Questions that are under way at once; their text stays far below a socket's buffer.
const BATCH: usize = 256;
/// No frame of the looking process is longer: a listing of [`MOST_ENTRIES`] names.
const LONGEST_FRAME: usize = MOST_ENTRIES * 300;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// Nothing there.
    Missing,
    /// Something there.
    Found(Found),
    /// A directory on the way may not be searched, or another error: its number.
    Denied(i32),
    /// No answer in time.
    Hung,
}

/// An existing file, by its real path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The path without symbolic links.
    pub real: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Device and inode.
    pub id: (u64, u64),
    /// Owner.
    pub uid: u32,
    /// Whether the caller may read it, or search it if it is a directory (`access(2)`).
    pub readable: bool,
    /// The symbolic links that were followed: where each stands (its directory by its real path),
    /// and what it says.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link (only in listings).
    Link,
    /// A character or block device.
    Device,
    /// A socket, a FIFO.
    Other,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// Its kind; links are not followed.
    pub kind: Kind,
    /// What a symbolic link says.
    pub target: Option<PathBuf>,
}

/// Answers about the host's files. The plan asks through this, so that it can be tested against a
/// tree that exists only in memory.
pub trait Files {
    /// Announces questions that will come, so that they can be answered together.
    fn prefetch(&self, paths: &[PathBuf]);
    /// What `path` leads to. `path` is absolute.
    fn look(&self, path: &Path) -> Look;
    /// The names in a directory, sorted; `None` if it cannot be listed (missing, denied, too
    /// large, no answer).
    fn entries(&self, directory: &Path) -> Option<Vec<Entry>>;
    /// The content of a small regular file that somebody hostile may have put there: no link is
    /// followed, a FIFO is not waited for, and what is longer than `most` bytes is `None`.
    fn small_file(&self, path: &Path, most: usize) -> Option<Vec<u8>>;
}

#[derive(Serialize, Deserialize)]
enum Question {
    Look(PathBuf),
    Entries(PathBuf),
    SmallFile(PathBuf, usize),
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Look(Look),
    Entries(Option<Vec<Entry>>),
    SmallFile(Option<Vec<u8>>),
}

/// The host's real files, through a looking process.
pub struct HostFiles {
    timeout: Cell<Duration>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    looker: Option<Looker>,
    looks: HashMap<PathBuf, Look>,
    entries: HashMap<PathBuf, Option<Vec<Entry>>>,
}

struct Looker {
    stream: UnixStream,
    child: Pid,
}

impl HostFiles {
    /// Answers about this host; one path may take `timeout`.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout: Cell::new(timeout),
            state: RefCell::default(),
        }
    }

    /// From now on one path may take `timeout`.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// Asks all questions, in order; `None` where there was no answer in time.
    fn ask(&self, questions: &[Question]) -> Vec<Option<Answer>> {
        let mut state = self.state.borrow_mut();
        let mut answers = Vec::with_capacity(questions.len());
        while answers.len() < questions.len() {
            let rest = &questions[answers.len()..];
            let batch = &rest[..rest.len().min(BATCH)];
            let Some(mut looker) = state.looker.take().or_else(|| Looker::start().ok()) else {
                // No process to be had (a process limit): look here, where waiting has no bound.
                answers.extend(rest.iter().map(|question| Some(answer(question))));
                break;
            };
            let before = answers.len();
            if looker.send(batch).is_ok() {
                for _ in batch {
                    let Some(answer) = looker.receive(self.timeout.get()) else {
                        break;
                    };
                    answers.push(Some(answer));
                }
            }
            if answers.len() - before == batch.len() {
                state.looker = Some(looker);
            } else {
                looker.abandon();
                answers.push(None);
            }
        }
        answers
    }
}

impl Files for HostFiles {
    fn prefetch(&self, paths: &[PathBuf]) {
        let unknown: Vec<&PathBuf> = {
            let state = self.state.borrow();
            paths
                .iter()
                .filter(|path| !state.looks.contains_key(*path))
                .collect()
        };
        let questions: Vec<Question> = unknown
            .iter()
            .map(|path| Question::Look((*path).clone()))
            .collect();
        let answers = self.ask(&questions);
        let mut state = self.state.borrow_mut();
        for (path, answer) in unknown.into_iter().zip(answers) {
            let look = match answer {
                Some(Answer::Look(look)) => look,
                _ => Look::Hung,
            };
            state.looks.insert(path.clone(), look);
        }
    }

    fn look(&self, path: &Path) -> Look {
        if let Some(look) = self.state.borrow().looks.get(path) {
            return look.clone();
        }
        self.prefetch(&[path.to_path_buf()]);
        self.state
            .borrow()
            .looks
            .get(path)
            .cloned()
            .unwrap_or(Look::Hung)
    }

    fn entries(&self, directory: &Path) -> Option<Vec<Entry>> {
        if let Some(entries) = self.state.borrow().entries.get(directory) {
            return entries.clone();
        }
        let entries = match self
            .ask(&[Question::Entries(directory.to_path_buf())])
            .pop()
        {
            Some(Some(Answer::Entries(entries))) => entries,
            _ => None,
        };
        self.state
            .borrow_mut()
            .entries
            .insert(directory.to_path_buf(), entries.clone());
        entries
    }

    fn small_file(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        match self
            .ask(&[Question::SmallFile(path.to_path_buf(), most)])
            .pop()
        {
            Some(Some(Answer::SmallFile(content))) => content,
            _ => None,
        }
    }
}

impl Drop for HostFiles {
    fn drop(&mut self) {
        if let Some(looker) = self.state.borrow_mut().looker.take() {
            looker.finish();
        }
    }
}

impl Looker {
    fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        match fork()? {
            Side::Child => {
                drop(ours);
                serve(theirs);
                exit_now(0)
            }
            Side::Parent(child) => Ok(Self {
                stream: ours,
                child,
            }),
        }
    }

    fn send(&mut self, questions: &[Question]) -> io::Result<()> {
        let mut text = Vec::new();
        for question in questions {
            put_frame(&mut text, question)?;
        }
        self.stream.write_all(&text)
    }

    /// The next answer; `None` after `timeout` without one, or if the process is gone.
    fn receive(&mut self, timeout: Duration) -> Option<Answer> {
        let deadline = Instant::now() + timeout;
        let mut head = [0; 4];
        self.fill(&mut head, deadline)?;
        let length = u32::from_le_bytes(head) as usize;
        if length > LONGEST_FRAME {
            return None;
        }
        let mut body = vec![0; length];
        self.fill(&mut body, deadline)?;
        postcard::from_bytes(&body).ok()
    }

    fn fill(&mut self, buffer: &mut [u8], deadline: Instant) -> Option<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = PollTimeout::try_from(left + Duration::from_millis(1)).ok()?;
            match poll(
                &mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)],
                wait,
            ) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                Err(_) => return None,
            }
            match self.stream.read(&mut buffer[filled..]).ok()? {
                0 => return None,
                count => filled += count,
            }
        }
        Some(())
    }

    /// Leaves a process that hangs in the kernel behind: SIGKILL takes effect when it wakes.
    fn abandon(self) {
        let _ = kill(self.child, Signal::SIGKILL);
        let _ = waitpid(self.child, Some(WaitPidFlag::WNOHANG));
    }

    fn finish(self) {
        drop(self.stream);
        // It reads the end of its socket and leaves; it cannot hang, for nothing is asked.
        let _ = waitpid(self.child, None);
    }
}

fn put_frame<T: Serialize>(into: &mut Vec<u8>, value: &T) -> io::Result<()> {
    let body = postcard::to_allocvec(value).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(&body);
    Ok(())
}

/// The looking process: answers until its socket ends.
fn serve(mut stream: UnixStream) {
    loop {
        let mut head = [0; 4];
        if stream.read_exact(&mut head).is_err() {
            return;
        }
        let mut body = vec![0; u32::from_le_bytes(head) as usize];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let Ok(question) = postcard::from_bytes::<Question>(&body) else {
            return;
        };
        let mut text = Vec::new();
        if put_frame(&mut text, &answer(&question)).is_err() || stream.write_all(&text).is_err() {
            return;
        }
    }
}

fn answer(question: &Question) -> Answer {
    match question {
        Question::Look(path) => Answer::Look(look(path)),
        Question::Entries(directory) => Answer::Entries(entries(directory).ok()),
        Question::SmallFile(path, most) => Answer::SmallFile(small_file(path, *most)),
    }
}

fn look(path: &Path) -> Look {
    match resolve(path) {
        Ok(found) => Look::Found(found),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => Look::Missing,
            Some(errno) => Look::Denied(errno),
            None => Look::Denied(libc::EIO),
        },
    }
}

/// Walks a path component by component, as the kernel does (`path_resolution(7)`), and notes the
/// symbolic links.
fn resolve(path: &Path) -> io::Result<Found> {
    let mut real = PathBuf::from("/");
    let mut links = Vec::new();
    // Components still to walk, the next one last.
    let mut rest: Vec<OsString> = Vec::new();
    push_components(&mut rest, path);
    while let Some(name) = rest.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        let here = real.join(&name);
        let meta = std::fs::symlink_metadata(&here)?;
        if meta.file_type().is_symlink() {
            if links.len() == MOST_LINKS {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            let target = std::fs::read_link(&here)?;
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            push_components(&mut rest, &target);
            links.push((here, target));
        } else {
            real = here;
        }
    }
    let meta = std::fs::symlink_metadata(&real)?;
    let search = meta.is_dir() && access(&real, AccessFlags::X_OK).is_ok();
    let readable = search || access(&real, AccessFlags::R_OK).is_ok();
    Ok(Found {
        kind: kind(meta.file_type()),
        id: (meta.dev(), meta.ino()),
        uid: meta.uid(),
        real,
        readable,
        links,
    })
}

fn push_components(rest: &mut Vec<OsString>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => rest.push(name.to_owned()),
            Component::ParentDir => rest.push(OsString::from("..")),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
}

fn kind(of: std::fs::FileType) -> Kind {
    if of.is_dir() {
        Kind::Directory
    } else if of.is_file() {
        Kind::File
    } else if of.is_symlink() {
        Kind::Link
    } else if of.is_char_device() || of.is_block_device() {
        Kind::Device
    } else {
        Kind::Other
    }
}

fn entries(directory: &Path) -> io::Result<Vec<Entry>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = kind(entry.file_type()?);
        let target = match kind {
            Kind::Link => Some(std::fs::read_link(entry.path())?),
            _ => None,
        };
        all.push(Entry {
            name: entry.file_name(),
            kind,
            target,
        });
        if all.len() > MOST_ENTRIES {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
    }
    all.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    Ok(all)
}

/// Opens each component with `O_NOFOLLOW`: between two looks, somebody inside a running jail may
/// replace any of them by a link.
fn small_file(path: &Path, most: usize) -> Option<Vec<u8>> {
    let quiet = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let mut here = open(
        "/",
        quiet | OFlag::O_PATH | OFlag::O_DIRECTORY,
        Mode::empty(),
    )
    .ok()?;
    let parent = path.parent()?.strip_prefix("/").ok()?;
    for component in parent.components() {
        let Component::Normal(name) = component else {
            return None;
        };
        here = openat(
            &here,
            name,
            quiet | OFlag::O_PATH | OFlag::O_DIRECTORY,
            Mode::empty(),
        )
        .ok()?;
    }
    let flags = quiet | OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = std::fs::File::from(openat(&here, path.file_name()?, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > most as u64 {
        return None;
    }
    let mut content = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut content).ok()?;
    (content.len() <= most).then_some(content)
}
