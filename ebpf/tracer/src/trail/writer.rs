//! One trail: its records wait as lines, get their numbers when they are written, and are written whole or
//! counted as lost.

use std::sync::Arc;

use agent_sandbox_events::raw::Event;
use agent_sandbox_events::record::{Away, End, Header, Lost, Trail, VERSION, What};

use super::clock::{Now, round};
use super::hidden::Hidden;
use super::line;
use super::redact::Redaction;
use super::store::{Last, Store};
use super::what::{missing, opens_hidden};

/// So many different reasons for losses are kept until they are written.
const REASONS: usize = 4;

/// Of a command so many bytes are kept in the header: with all of them escaped a line is still no longer than
/// [`agent_sandbox_events::record::LINE_BYTES`].
const COMMAND_BYTES: usize = 8192;

/// Why the kernel loses events.
const NO_ROOM: &str = "more happened than the tracer could take in";

/// A trail that is being written.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) trail: Arc<Trail>,
    pub(super) header: Header,
    pub(super) redaction: Redaction,
    /// What its policy hides.
    pub(super) hidden: Arc<Hidden>,
    /// Events that were denied, or of what is hidden.
    pub(super) denied: u64,
    prefix: Vec<u8>,
    /// The number of the last record that is written.
    seq: u64,
    /// Events that were lost.
    lost: u64,
    /// Of those, as many are told in records that are written, and in records that wait.
    told: u64,
    said: u64,
    why: Vec<String>,
    /// What the kernel has counted of this trace's losses.
    kernel: u64,
    lines: Vec<u8>,
    waiting: Vec<Waiting>,
    file: Option<Current>,
    /// The number of the next file.
    next: u32,
    /// What the last record says.
    ending: End,
    /// A header is to be written, though no record waits.
    begins: bool,
}

/// A line that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Where it ends in `lines`.
    end: usize,
    /// So many events are in it.
    events: u64,
    /// `lost` as it says.
    lost: u64,
    /// Its time.
    time: f64,
}

/// The file that is written.
#[derive(Debug)]
struct Current {
    name: String,
    bytes: u64,
}

impl Writer {
    pub(super) fn new(trail: Trail, mut header: Header, redaction: Redaction, now: &Now) -> Self {
        header.version = VERSION;
        if header.began == 0.0 {
            header.began = round(now.wall);
        }
        header.command = command(&header.command);
        Self {
            prefix: line::prefix(&trail),
            trail: Arc::new(trail),
            header,
            redaction,
            hidden: Arc::default(),
            denied: 0,
            seq: 0,
            lost: 0,
            told: 0,
            said: 0,
            why: Vec::new(),
            kernel: 0,
            lines: Vec::new(),
            waiting: Vec::new(),
            file: None,
            next: 1,
            ending: End::default(),
            begins: false,
        }
    }

    /// It goes on where it ended, with a new file.
    pub(super) fn goes_on(&mut self, last: &Last) {
        self.header.began = last.began;
        self.seq = last.seq;
        let lost = last.lost;
        (self.lost, self.told, self.said, self.kernel) = (lost, lost, lost, lost);
        self.next = last.files.saturating_add(1);
    }

    /// Whether the trail records such an event. The kernel leaves out most of what it does not; for the sake of what is
    /// hidden it tells of all that is missing.
    pub(super) fn takes(&self, event: &Event<'_>) -> bool {
        !missing(event) || self.header.missing || opens_hidden(event, &self.hidden)
    }

    /// What the kernel has lost of this trace's events altogether; says by how many that is more.
    pub(super) fn kernel_lost(&mut self, total: u64) -> u64 {
        let more = total.saturating_sub(self.kernel);
        self.kernel = self.kernel.max(total);
        more
    }

    /// More events are lost for lack of room.
    pub(super) fn lose(&mut self, more: u64) {
        if more > 0 {
            self.lost += more;
            self.reason(NO_ROOM.to_string());
        }
    }

    fn reason(&mut self, why: String) {
        if self.why.len() < REASONS && !self.why.contains(&why) {
            self.why.push(why);
        }
    }

    /// Adds a record of so many events.
    pub(super) fn add(&mut self, time: f64, what: &What, events: u64) {
        self.tell_loss(time);
        self.line(time, what, events);
    }

    /// Adds a record of what was lost, if that is not said yet.
    pub(super) fn tell_loss(&mut self, time: f64) {
        if self.lost > self.said {
            let lost = Lost {
                more: self.lost - self.said,
                why: self.why.join("; "),
            };
            self.said = self.lost;
            self.line(time, &What::Lost(lost), 0);
        }
    }

    fn line(&mut self, time: f64, what: &What, events: u64) {
        line::body(&mut self.lines, round(time), &self.prefix, self.lost, what);
        self.waiting.push(Waiting {
            end: self.lines.len(),
            events,
            lost: self.said,
            time,
        });
    }

    /// Adds the record of an absence.
    pub(super) fn was_away(&mut self, seconds: f64, since: Option<f64>, now: &Now) {
        self.add(now.wall, &What::Away(Away { seconds, since }), 0);
    }

    /// Adds the last record.
    pub(super) fn end(&mut self, why: &str, skipped: u64, now: &Now) {
        self.ending = End {
            why: why.to_string(),
            skipped,
        };
        self.end_again(now);
    }

    /// Adds it again, after it could not be written.
    pub(super) fn end_again(&mut self, now: &Now) {
        self.add(now.wall, &What::End(self.ending.clone()), 0);
    }

    /// The header is to be written now.
    pub(super) fn header(&mut self) {
        self.begins = true;
    }

    /// Bytes that wait.
    pub(super) fn waits(&self) -> usize {
        self.lines.len()
    }

    /// Writes what waits, and gives each line that is written to `take`. What cannot be written is lost, counted
    /// here, and told by the first record that can be written again; the error and the number are for others.
    pub(super) fn write(
        &mut self,
        store: &mut Store,
        now: &Now,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), (u64, String)> {
        self.tell_loss(now.wall);
        let mut done = 0;
        let mut chunk = Vec::new();
        let failed = loop {
            if done == self.waiting.len() && !self.begins {
                break None;
            }
            match self.write_some(store, now, &mut done, &mut chunk, take) {
                Ok(()) => {}
                Err(error) => break Some(error),
            }
        };
        let mut result = Ok(());
        if let Some(error) = failed {
            let lost: u64 = self.waiting[done..].iter().map(|line| line.events).sum();
            let why = format!("the trail cannot be written: {error}");
            self.lost += lost;
            self.said = self.told;
            self.reason(why.clone());
            result = Err((lost, why));
        } else if self.told == self.lost {
            self.why.clear();
        }
        self.waiting.clear();
        if self.lines.capacity() > 2 * SPARE {
            self.lines = Vec::new();
        } else {
            self.lines.clear();
        }
        result
    }

    /// Writes what goes into one file.
    fn write_some(
        &mut self,
        store: &mut Store,
        now: &Now,
        done: &mut usize,
        chunk: &mut Vec<u8>,
        take: &mut dyn FnMut(&[u8]),
    ) -> std::io::Result<()> {
        let limit = store.file_bytes();
        let begin = done
            .checked_sub(1)
            .map_or(0, |before| self.waiting[before].end);
        let next = self.waiting.get(*done).map_or(0, |line| line.end - begin);
        let full = self
            .file
            .as_ref()
            .is_some_and(|file| file.bytes + (next + NUMBER) as u64 > limit);
        if full {
            self.leave(store);
        }
        chunk.clear();
        let mut seq = self.seq;
        let mut fresh = 0;
        if self.file.is_none() {
            let (name, number) = store.create(&self.trail, self.next, now)?;
            self.next = number.saturating_add(1);
            self.file = Some(Current { name, bytes: 0 });
            seq += 1;
            fresh = 1;
            line::number(chunk, seq);
            // In the order of times it stands before what follows.
            let time = self.waiting.get(*done).map_or(now.wall, |line| line.time);
            let time = round(time);
            line::body(
                chunk,
                time,
                &self.prefix,
                self.told,
                &What::Header(self.header.clone()),
            );
        }
        let Some(file) = self.file.as_mut() else {
            return Ok(());
        };
        let mut at = *done;
        while at < self.waiting.len() {
            let from = at
                .checked_sub(1)
                .map_or(0, |before| self.waiting[before].end);
            let body = &self.lines[from..self.waiting[at].end];
            // A file has one record at least.
            let length = file.bytes + (chunk.len() + body.len() + NUMBER) as u64;
            if length > limit && at > *done {
                break;
            }
            seq += 1;
            line::number(chunk, seq);
            chunk.extend_from_slice(body);
            at += 1;
        }
        let outcome = store.append(self.trail.uid, &file.name, file.bytes, chunk, now);
        let written = outcome
            .as_ref()
            .map_or_else(|error| error.written, |()| chunk.len());
        file.bytes += written as u64;
        self.begins &= file.bytes == 0;
        let mut lines = 0;
        for line in chunk[..written].split_inclusive(|byte| *byte == b'\n') {
            take(line);
            lines += 1;
        }
        self.seq += lines;
        *done += usize::try_from(lines).unwrap_or(0).saturating_sub(fresh);
        if let Some(last) = done.checked_sub(1).and_then(|last| self.waiting.get(last)) {
            self.told = self.told.max(last.lost);
        }
        match outcome {
            Ok(()) => Ok(()),
            // Somebody has removed it: the next file begins.
            Err(error) if error.why.kind() == std::io::ErrorKind::NotFound && fresh == 0 => {
                self.leave(store);
                Ok(())
            }
            Err(error) => {
                if self.file.as_ref().is_some_and(|file| file.bytes == 0) {
                    self.leave(store);
                }
                Err(error.why)
            }
        }
    }

    /// Leaves the file: it is not written any more.
    pub(super) fn leave(&mut self, store: &mut Store) {
        if let Some(file) = self.file.take() {
            store.close(self.trail.uid, &file.name, file.bytes);
        }
    }
}

/// What stands before a line's body is not longer, in bytes: `{"seq":` and 20 digits.
const NUMBER: usize = 28;

/// A buffer is kept up to twice this length, in bytes.
const SPARE: usize = 64 * 1024;

/// A command for the header: escaped, and cut at a word where that made it too long. Whoever begins the trail has hidden its
/// secrets.
fn command(words: &[String]) -> Vec<String> {
    let mut left = COMMAND_BYTES;
    let mut shown = Vec::new();
    for word in words {
        if word.len() >= left {
            shown.push("…".to_string());
            break;
        }
        left -= word.len() + 1;
        shown.push(agent_sandbox_events::text::escape(word.as_bytes()));
    }
    shown
}
