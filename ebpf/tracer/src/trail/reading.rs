//! Reading back: the records of trails, sorted by time, a part at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;

use agent_sandbox_events::protocol::{Listed, Which};
use agent_sandbox_events::record::{LINE_BYTES, Trail};
use serde::Deserialize;

use super::store::{Store, TrailFile};

/// As much is read for one answer at most, in bytes: a matter of a millisecond.
const WORK: usize = 256 * 1024;

/// All trails that are read at a time share so much memory, in bytes.
const MEMORY: usize = 4 * 1024 * 1024;

/// A trail has of that so much at least and at most, in bytes.
const CHUNK: (usize, usize) = (2048, 64 * 1024);

/// So many trails are listed, the newest.
const LISTED: usize = 1000;

/// Reads trails. It holds no file open; what is written after it was made is not in it.
#[derive(Debug)]
pub struct Reader {
    root: OwnedFd,
    streams: Vec<Stream>,
    /// By the time of its next record, in bits (they order as the times do, which are positive).
    order: BinaryHeap<Reverse<(u64, usize)>>,
    chunk: usize,
}

/// One trail.
#[derive(Debug)]
struct Stream {
    files: Vec<TrailFile>,
    /// Which of the files, and from where on.
    file: usize,
    at: u64,
    held: Vec<u8>,
    /// What of `held` was given out.
    given: usize,
}

/// Which trails one gets.
pub(super) fn takes(viewer: u32, which: &Which, node: &str, trail: &Trail) -> bool {
    let may = viewer == 0 || viewer == trail.uid;
    may && match which {
        Which::All => true,
        Which::Newest => false,
        Which::Session(session) => trail.session.as_deref() == Some(session),
        Which::Job(job) => trail.job == Some(*job),
        Which::Trace(trace) => trail.trace == *trace && trail.node == node,
    }
}

impl Reader {
    /// Of the trails that the viewer may see and asks for. [`Which::Newest`] has to be said otherwise before.
    pub(super) fn new(store: &Store, viewer: u32, which: &Which) -> io::Result<Self> {
        let survey = store.find(viewer, which)?;
        let wanted = survey
            .trails()
            .filter(|files| takes(viewer, which, store.node(), &files[0].trail));
        let streams: Vec<Stream> = wanted
            .map(|files| Stream {
                files: files.to_vec(),
                file: 0,
                at: 0,
                held: Vec::new(),
                given: 0,
            })
            .collect();
        // Nothing is read of a trail before the others have come to its beginning.
        let begins = streams.iter().enumerate();
        let order = begins
            .map(|(at, stream)| Reverse((bits(stream.files[0].began), at)))
            .collect();
        let chunk = (MEMORY / streams.len().max(1)).clamp(CHUNK.0, CHUNK.1);
        Ok(Self {
            root: store.root()?,
            streams,
            order,
            chunk,
        })
    }

    /// The next lines, whole ones, at most `room` bytes of them; none at the end. Nothing yet is an empty answer.
    /// A line for which there is no room at all is left out: `room` should be [`LINE_BYTES`] at least.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn next(&mut self, room: usize) -> io::Result<Option<Vec<u8>>> {
        let mut lines = Vec::new();
        let mut work = 0;
        while let Some(Reverse((time, at))) = self.order.pop() {
            let until = self.order.peek().map_or(u64::MAX, |next| next.0.0);
            let stream = &mut self.streams[at];
            // As long as it is this trail's turn.
            let mut time = time;
            loop {
                if time > until || work > WORK {
                    self.order.push(Reverse((time, at)));
                    break;
                }
                let Some(line) = stream.line(&self.root, self.chunk, &mut work)? else {
                    break;
                };
                let due = moment(line).unwrap_or(time);
                if due > until {
                    self.order.push(Reverse((due, at)));
                    break;
                }
                let length = line.len();
                if length <= room {
                    if lines.len() + length > room {
                        self.order.push(Reverse((due, at)));
                        return Ok(Some(lines));
                    }
                    lines.extend_from_slice(line);
                }
                stream.given += length;
                time = due;
            }
            if work > WORK {
                return Ok(Some(lines));
            }
        }
        Ok(if lines.is_empty() { None } else { Some(lines) })
    }
}

impl Stream {
    /// The next whole line, which stays the next until it is given out.
    fn line(
        &mut self,
        root: &OwnedFd,
        chunk: usize,
        work: &mut usize,
    ) -> io::Result<Option<&[u8]>> {
        loop {
            let held = &self.held[self.given..];
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(&self.held[self.given..=self.given + end]));
            }
            let Some(file) = self.files.get(self.file) else {
                return Ok(None);
            };
            // A line that is longer than any, or that never ends, is none of ours: the file is left.
            let over = held.len() > LINE_BYTES;
            let left = usize::try_from(file.bytes.saturating_sub(self.at)).unwrap_or(usize::MAX);
            self.held.drain(..self.given);
            self.given = 0;
            let before = self.held.len();
            self.held.resize(before + left.min(chunk), 0);
            let some = if over || left == 0 {
                0
            } else {
                match Store::read(root, file, self.at, &mut self.held[before..]) {
                    Ok(some) => some,
                    // Removed meanwhile: the numbers of the records show it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                    Err(error) => return Err(error),
                }
            };
            self.held.truncate(before + some);
            *work += some + 512;
            self.at += some as u64;
            if some == 0 {
                self.held.clear();
                (self.file, self.at) = (self.file + 1, 0);
            }
        }
    }
}

fn bits(time: f64) -> u64 {
    time.max(0.0).to_bits()
}

/// The time of a line. It stands near the beginning, behind the number.
fn moment(line: &[u8]) -> Option<u64> {
    let near = &line[..line.len().min(80)];
    let at = memchr::memmem::find(near, b",\"time\":")? + 8;
    let end = near[at..].iter().position(|byte| *byte == b',')?;
    let text = std::str::from_utf8(&near[at..at + end]).ok();
    let time: Option<f64> = text.and_then(|text| text.parse().ok());
    time.or_else(|| {
        #[derive(Deserialize)]
        struct Time {
            time: f64,
        }
        serde_json::from_slice::<Time>(line)
            .ok()
            .map(|line| line.time)
    })
    .map(bits)
}

/// What there is to read for that viewer: the newest, the newest first. `live` says of a trail of this node
/// whether it goes on; of others, their last record does.
pub(super) fn list(
    store: &Store,
    viewer: u32,
    live: &dyn Fn(&TrailFile) -> bool,
) -> io::Result<Vec<Listed>> {
    let survey = store.find(viewer, &Which::All)?;
    let mut trails: Vec<&[TrailFile]> = survey.trails().collect();
    trails.reverse();
    trails.truncate(LISTED);
    let listed = trails.into_iter().filter_map(|files| {
        let (first, last) = (files.first()?, files.last()?);
        let trail = first.trail.clone();
        let here = trail.node == store.node();
        Some(Listed {
            uid: trail.uid,
            node: trail.node,
            session: trail.session,
            job: trail.job,
            step: trail.step,
            trace: trail.trace,
            began: first.began,
            live: if here {
                live(first)
            } else {
                !store.ended(last)
            },
        })
    });
    Ok(listed.collect())
}

/// What [`Which::Newest`] is for that viewer: the newest session, or the newest trace if there is none.
pub(super) fn newest(store: &Store, viewer: u32) -> io::Result<Option<Which>> {
    let survey = store.find(viewer, &Which::All)?;
    let newest = |with: bool| {
        let files = survey.files.iter().rev();
        files
            .map(|file| &file.trail)
            .find(|trail| !with || trail.session.is_some())
    };
    let here = |trail: &&Trail| trail.session.is_some() || trail.node == store.node();
    let found = newest(true).or_else(|| newest(false).filter(here));
    Ok(found.map(|trail| match &trail.session {
        Some(session) => Which::Session(session.clone()),
        None => Which::Trace(trail.trace),
    }))
}
