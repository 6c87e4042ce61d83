//! Trails, read: whoever may read them gets the files themselves from the tracer, as descriptors
//! ([`crate::protocol::Request::Open`]), and finds, orders and follows the records here.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads the clock, and files that the tracer has opened"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::client::{Connection, Unanswered};
use crate::protocol::{OPENED, Request, Response, TrailFile, VERSION, Which};
use crate::record::{LINE_BYTES, Record, Trail, What};
use crate::sys;

/// So much is read at a time, in bytes.
const CHUNK: usize = 16 * 1024;

/// A first line is mostly shorter, in bytes.
const HEADER: usize = 4096;

/// So many records are given at a time.
const MANY: usize = 256;

/// So many files are kept open; of others the descriptor is asked for again. A process may usually open 1024.
const KEPT: usize = 512;

/// Between two looks for files that are new.
const LOOK: Duration = Duration::from_secs(1);

/// So many files are looked at for a list, the newest.
const LISTED: usize = 2000;

/// The last line of a trail that has ended is shorter, in bytes.
const END: u64 = 2048;

/// Where files come from: the tracer.
pub trait Source {
    /// The next files of these trails, in their order, behind that one; none at the end.
    ///
    /// # Errors
    /// They cannot be had.
    fn files(
        &self,
        which: &Which,
        after: Option<(u32, String)>,
    ) -> Result<Vec<TrailFile>, Unanswered>;

    /// Opens files, at most [`OPENED`], by users and names; none of one that is gone.
    ///
    /// # Errors
    /// They cannot be had.
    fn open(&self, files: Vec<(u32, String)>) -> Result<Vec<Option<File>>, Unanswered>;
}

impl<S: Source> Source for &S {
    fn files(
        &self,
        which: &Which,
        after: Option<(u32, String)>,
    ) -> Result<Vec<TrailFile>, Unanswered> {
        (**self).files(which, after)
    }

    fn open(&self, files: Vec<(u32, String)>) -> Result<Vec<Option<File>>, Unanswered> {
        (**self).open(files)
    }
}

impl Source for Connection {
    fn files(
        &self,
        which: &Which,
        after: Option<(u32, String)>,
    ) -> Result<Vec<TrailFile>, Unanswered> {
        let request = Request::Files {
            version: VERSION,
            which: which.clone(),
            after,
        };
        match self.ask(&request)? {
            Response::Files(files) => Ok(files),
            _ => Err(Unanswered::Strange),
        }
    }

    fn open(&self, files: Vec<(u32, String)>) -> Result<Vec<Option<File>>, Unanswered> {
        let count = files.len();
        self.send(&Request::Open {
            version: VERSION,
            files,
        })?;
        let mut came: Vec<OwnedFd> = Vec::new();
        let there = match self.next_with(&mut came)? {
            Response::Opened(there) if there.len() == count => there,
            _ => return Err(Unanswered::Strange),
        };
        let mut came = came.into_iter();
        let mut opened = Vec::new();
        for there in there {
            opened.push(match there {
                false => None,
                // The kernel leaves out what finds no room in this process.
                true => match came.next() {
                    Some(file) => Some(File::from(file)),
                    None => return Err(Unanswered::Broken(sys::no_descriptors_left())),
                },
            });
        }
        Ok(opened)
    }
}

fn all_files<S: Source>(source: &S, which: &Which) -> Result<Vec<TrailFile>, Unanswered> {
    let mut files: Vec<TrailFile> = Vec::new();
    loop {
        let after = files.last().map(|last| (last.uid, last.name.clone()));
        let more = source.files(which, after.clone())?;
        let Some(last) = more.last() else {
            return Ok(files);
        };
        if after.is_some_and(|after| (last.uid, last.name.clone()) <= after) {
            return Err(Unanswered::Strange);
        }
        files.extend(more);
    }
}

fn takes(which: &Which, trail: &Trail) -> bool {
    match which {
        Which::All => true,
        Which::Session(session) => trail.session.as_deref() == Some(session),
        Which::Job(job) => trail.job == Some(*job),
        // Names of other nodes' files were ruled out.
        Which::Trace(trace) => trail.trace == *trace,
    }
}

/// What the beginning of a file says.
enum Head {
    /// Nothing yet.
    Empty,
    /// It is none of ours.
    Foreign,
    /// Its first record.
    Of(Box<Record>),
}

fn head(file: &File, uid: u32) -> io::Result<Head> {
    let newline = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n');
    let mut line = vec![0; HEADER];
    let mut held = file.read_at(&mut line, 0)?;
    if newline(&line[..held]).is_none() && held == HEADER {
        line.resize(LINE_BYTES, 0);
        held = file.read_at(&mut line, 0)?;
    }
    let Some(end) = newline(&line[..held]) else {
        return Ok(match held < LINE_BYTES {
            true => Head::Empty,
            false => Head::Foreign,
        });
    };
    Ok(match serde_json::from_slice::<Record>(&line[..end]) {
        // A directory is one user's, whatever a file in it says.
        Ok(record) if record.trail.uid == uid => Head::Of(Box::new(record)),
        _ => Head::Foreign,
    })
}

/// When a trail began, as each of its files says.
fn began(first: &Record) -> f64 {
    match &first.what {
        What::Header(header) => header.began,
        _ => first.time,
    }
}

/// What tells trails apart.
type Key = (u32, String, u32, Option<String>, Option<u32>, u64);

fn key(first: &Record) -> Key {
    let trail = &first.trail;
    (
        trail.uid,
        trail.node.clone(),
        trail.trace,
        trail.session.clone(),
        trail.job,
        began(first).to_bits(),
    )
}

/// As times are ordered.
fn order(time: f64) -> i64 {
    let bits = time.to_bits().cast_signed();
    bits ^ (bits >> 63).cast_unsigned().wrapping_shr(1).cast_signed()
}

/// A trail that there is.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// What it is about.
    pub trail: Trail,
    /// When it began, in seconds since 1970.
    pub began: f64,
    /// Whether it goes on.
    pub live: bool,
}

/// The trails that there are, the newest first; and whether there are older ones that are not among them.
///
/// # Errors
/// The tracer cannot be asked, or files cannot be read.
pub fn list<S: Source>(source: &S) -> Result<(Vec<Listed>, bool), Unanswered> {
    let mut files = all_files(source, &Which::All)?;
    files.sort_by_key(|file| Reverse(file.modified));
    let more = files.len() > LISTED;
    files.truncate(LISTED);
    // By trail: what is known of it, and the number of the first record of the file that says whether it goes on.
    let mut all: BTreeMap<Key, (Listed, u64)> = BTreeMap::new();
    for some in files.chunks(OPENED) {
        let names = some.iter().map(|file| (file.uid, file.name.clone()));
        for (file, opened) in some.iter().zip(source.open(names.collect())?) {
            let Some(opened) = opened else { continue };
            let Head::Of(first) = head(&opened, file.uid).map_err(Unanswered::Broken)? else {
                continue;
            };
            let live = file.live.unwrap_or_else(|| !ended(&opened));
            let seq = first.seq;
            let (listed, last) = all.entry(key(&first)).or_insert_with(|| {
                let began = began(&first);
                let trail = first.trail;
                (Listed { trail, began, live }, seq)
            });
            if seq > *last {
                (listed.live, *last) = (live, seq);
            }
        }
    }
    let mut all: Vec<Listed> = all.into_values().map(|(listed, _)| listed).collect();
    all.sort_by(|a, b| b.began.total_cmp(&a.began));
    Ok((all, more))
}

/// Whether the last record of a file is that of an end.
fn ended(file: &File) -> bool {
    let tail = || -> io::Result<Vec<u8>> {
        let length = file.metadata()?.len();
        let bytes = length.min(END);
        let mut tail = vec![0; usize::try_from(bytes).unwrap_or(0)];
        file.read_exact_at(&mut tail, length - bytes)?;
        Ok(tail)
    };
    let tail = tail().unwrap_or_default();
    let last = tail.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
    let last = last.map(serde_json::from_slice::<Record>);
    matches!(last, Some(Ok(record)) if matches!(record.what, What::End(_)))
}

/// Reads trails, and follows them: what is there now in the order of its times, then what is added.
#[derive(Debug)]
pub struct Reader<S> {
    source: S,
    which: Which,
    /// Files that were looked at.
    known: BTreeSet<(u32, String)>,
    trails: BTreeMap<Key, usize>,
    streams: Vec<Stream>,
    /// Streams by the time of their next record.
    order: BinaryHeap<Reverse<(i64, usize)>>,
    looked: Instant,
    /// Lines that are no records.
    pub unreadable: u64,
}

/// One trail.
#[derive(Debug, Default)]
struct Stream {
    /// The file that is read, and those behind it.
    files: VecDeque<Part>,
    /// From where on it is read.
    at: u64,
    held: Vec<u8>,
    /// What of `held` was used.
    used: usize,
    next: Option<(Record, String)>,
    ended: bool,
}

/// A file of a trail.
#[derive(Debug)]
struct Part {
    name: (u32, String),
    /// The number of its first record.
    first: u64,
    opened: Option<File>,
}

impl<S: Source> Reader<S> {
    /// Begins to read.
    ///
    /// # Errors
    /// The tracer cannot be asked, or files cannot be read.
    pub fn new(source: S, which: Which) -> Result<Self, Unanswered> {
        let mut reader = Self {
            source,
            which,
            known: BTreeSet::new(),
            trails: BTreeMap::new(),
            streams: Vec::new(),
            order: BinaryHeap::new(),
            looked: Instant::now(),
            unreadable: 0,
        };
        reader.look()?;
        Ok(reader)
    }

    /// The next records, with their lines; none if there are no more for now.
    ///
    /// # Errors
    /// The tracer cannot be asked, or files cannot be read.
    pub fn read(&mut self) -> Result<Vec<(Record, String)>, Unanswered> {
        if self.order.is_empty() {
            let goes_on = |(_, stream): &(usize, &Stream)| !stream.ended || stream.files.len() > 1;
            let all = self.streams.iter().enumerate().filter(goes_on);
            self.order
                .extend(all.map(|(at, _)| Reverse((i64::MIN, at))));
        }
        let mut records = Vec::new();
        while records.len() < MANY
            && let Some(Reverse((_, at))) = self.order.pop()
        {
            let stream = &mut self.streams[at];
            records.extend(stream.next.take());
            stream.advance(&self.source, &mut self.unreadable)?;
            if let Some((record, _)) = &stream.next {
                self.order.push(Reverse((order(record.time), at)));
            }
        }
        Ok(records)
    }

    /// The same, of trails that go on: now and then it is looked for files that are new.
    ///
    /// # Errors
    /// The tracer has gone, or files cannot be read.
    pub fn follow(&mut self) -> Result<Vec<(Record, String)>, Unanswered> {
        if self.order.is_empty() && self.looked.elapsed() >= LOOK {
            self.look()?;
        }
        self.read()
    }

    /// Where files come from.
    pub fn source(&self) -> &S {
        &self.source
    }

    fn look(&mut self) -> Result<(), Unanswered> {
        let mut fresh = all_files(&self.source, &self.which)?;
        fresh.retain(|file| !self.known.contains(&(file.uid, file.name.clone())));
        for some in fresh.chunks(OPENED) {
            let names: Vec<_> = some
                .iter()
                .map(|file| (file.uid, file.name.clone()))
                .collect();
            for (name, opened) in names.iter().zip(self.source.open(names.clone())?) {
                let Some(opened) = opened else { continue };
                match head(&opened, name.0).map_err(Unanswered::Broken)? {
                    Head::Empty => continue,
                    Head::Of(first) if takes(&self.which, &first.trail) => {
                        self.add(name.clone(), opened, &first);
                    }
                    Head::Of(_) | Head::Foreign => {}
                }
                self.known.insert(name.clone());
            }
        }
        self.looked = Instant::now();
        Ok(())
    }

    fn add(&mut self, name: (u32, String), opened: File, first: &Record) {
        let at = *self.trails.entry(key(first)).or_insert_with(|| {
            self.streams.push(Stream::default());
            // Nothing is read of a trail before the others have come to its beginning.
            let at = self.streams.len() - 1;
            self.order.push(Reverse((order(began(first)), at)));
            at
        });
        let part = Part {
            name,
            first: first.seq,
            opened: (self.known.len() < KEPT).then_some(opened),
        };
        let files = &mut self.streams[at].files;
        let place = files.partition_point(|other| other.first < part.first);
        files.insert(place, part);
    }
}

impl Stream {
    /// Finds the next record.
    fn advance<S: Source>(&mut self, source: &S, unreadable: &mut u64) -> Result<(), Unanswered> {
        while let Some(line) = self.line(source)? {
            let text = String::from_utf8_lossy(line).into_owned();
            let length = line.len() + 1;
            self.used += length;
            match serde_json::from_str::<Record>(&text) {
                Ok(record) => {
                    self.ended = matches!(record.what, What::End(_));
                    self.next = Some((record, text));
                    return Ok(());
                }
                Err(_) => *unreadable += 1,
            }
        }
        Ok(())
    }

    /// The next whole line, without its end.
    fn line<S: Source>(&mut self, source: &S) -> Result<Option<&[u8]>, Unanswered> {
        loop {
            let held = &self.held[self.used..];
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(&self.held[self.used..self.used + end]));
            }
            let Some(part) = self.files.front() else {
                return Ok(None);
            };
            self.held.drain(..self.used);
            self.used = 0;
            let before = self.held.len();
            // A line that is longer than any, or that never ends, is none of ours: the file is left.
            let some = if before > LINE_BYTES {
                0
            } else {
                self.held.resize(before + CHUNK, 0);
                let read = part.read(source, self.at, &mut self.held[before..]);
                self.held
                    .truncate(before + *read.as_ref().ok().unwrap_or(&0));
                read?
            };
            self.at += some as u64;
            if some > 0 {
                continue;
            }
            // The next file was there before nothing more was found in this one.
            if self.files.len() == 1 {
                if self.held.is_empty() {
                    self.held = Vec::new();
                }
                return Ok(None);
            }
            self.files.pop_front();
            self.at = 0;
            self.held.clear();
        }
    }
}

impl Part {
    fn read<S: Source>(&self, source: &S, at: u64, into: &mut [u8]) -> Result<usize, Unanswered> {
        let again;
        let file = match &self.opened {
            Some(file) => Some(file),
            None => {
                again = source.open(vec![self.name.clone()])?.pop().flatten();
                again.as_ref()
            }
        };
        // One that is gone has no more.
        let read = file.map_or(Ok(0), |file| file.read_at(into, at));
        read.map_err(Unanswered::Broken)
    }
}
