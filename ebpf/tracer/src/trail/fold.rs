//! Events that are alike: within a second they become one record with a count.
//!
//! Events wait here, in the order in which they came, at most about a second each. What is alike of one
//! process (all but the time, the thread and the processor) is counted and not kept. Memory is bounded: where
//! there is no room, the oldest goes on its way sooner. Nothing is allocated for an event.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use agent_sandbox_events::raw::{About, EVENT_BYTES, Event, Head, Kind};

use super::clock::SECOND;

/// As many events that differ wait at a time.
const WAITING: usize = 8192;

/// Their paths and arguments, in bytes: 128 each, and many times the longest event's.
const TEXT: usize = 1024 * 1024;

const _: () = assert!(TEXT > 8 * EVENT_BYTES);

/// What waits.
#[derive(Debug)]
pub(super) struct Fold {
    waiting: VecDeque<Slot>,
    /// Number of the first that waits; each has the next number.
    first: u64,
    /// By hash, the number of the newest of that kind.
    by_hash: HashMap<u64, u64, BuildHasherDefault<HashedKey>>,
    /// The key of the hash is random: nobody can make events that collide.
    key: RandomState,
    text: Box<[u8]>,
    /// Where the oldest text begins.
    begin: usize,
    /// Where the next one goes.
    end: usize,
}

#[derive(Debug)]
struct Slot {
    /// The trace whose trail it goes to.
    trail: u32,
    hash: u64,
    count: u64,
    head: Head,
    shape: Shape,
    /// Where its two texts are, one behind the other.
    at: usize,
    lengths: [usize; 2],
}

/// What an event says beside its head and its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Life,
    Exec {
        total: u32,
    },
    Open {
        inode: u64,
        device: u32,
        open_flags: u32,
        mode: u32,
    },
    Address {
        family: u16,
        kind: u16,
        protocol: u32,
    },
    Operation {
        what: u32,
        numbers: [u64; 3],
    },
}

/// One event that waited, and so many that were alike.
pub(super) struct Waited<'a> {
    pub(super) trail: u32,
    pub(super) event: Event<'a>,
    pub(super) count: u64,
}

impl Fold {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(WAITING),
            first: 0,
            by_hash: HashMap::with_capacity_and_hasher(WAITING, BuildHasherDefault::default()),
            key: RandomState::new(),
            text: vec![0; TEXT].into_boxed_slice(),
            begin: 0,
            end: 0,
        }
    }

    /// Counts the event with one that waits, if there is one like it that is less than a second older.
    /// Else says the hash to [`Fold::keep`] it with.
    pub(super) fn count(&mut self, trail: u32, event: &Event<'_>) -> Result<(), u64> {
        let (shape, texts) = apart(&event.about);
        let hash = self.hash(trail, &event.head, shape, texts);
        // A process begins and ends once.
        if matches!(event.head.kind, Kind::Fork | Kind::Exit) {
            return Err(hash);
        }
        let number = self.by_hash.get(&hash).copied();
        let place = number.and_then(|number| usize::try_from(number.checked_sub(self.first)?).ok());
        let Some(slot) = place.and_then(|place| self.waiting.get_mut(place)) else {
            return Err(hash);
        };
        let texts_at = &self.text[slot.at..slot.at + slot.lengths[0] + slot.lengths[1]];
        let same = slot.trail == trail
            && slot.count > 0
            && slot.shape == shape
            && slot.lengths == [texts[0].len(), texts[1].len()]
            && alike(&slot.head, &event.head)
            && texts_at[..slot.lengths[0]] == *texts[0]
            && texts_at[slot.lengths[0]..] == *texts[1]
            && event.head.time < slot.head.time.saturating_add(SECOND);
        if !same {
            return Err(hash);
        }
        slot.count += 1;
        Ok(())
    }

    /// Whether there is room to keep the event. If not, the oldest has to go first.
    pub(super) fn room(&self, event: &Event<'_>) -> bool {
        let (_, texts) = apart(&event.about);
        self.waiting.len() < WAITING && self.place(texts[0].len() + texts[1].len()).is_some()
    }

    /// Keeps the event, for which there is room. Says whether there was.
    pub(super) fn keep(&mut self, trail: u32, event: &Event<'_>, hash: u64) -> bool {
        let (shape, texts) = apart(&event.about);
        let lengths = [texts[0].len(), texts[1].len()];
        let Some(at) = self.place(lengths[0] + lengths[1]) else {
            return false;
        };
        let middle = at + lengths[0];
        self.end = middle + lengths[1];
        self.text[at..middle].copy_from_slice(texts[0]);
        self.text[middle..self.end].copy_from_slice(texts[1]);
        if self.waiting.is_empty() {
            self.begin = at;
        }
        let number = self.first + self.waiting.len() as u64;
        self.by_hash.insert(hash, number);
        self.waiting.push_back(Slot {
            trail,
            hash,
            count: 1,
            head: event.head,
            shape,
            at,
            lengths,
        });
        true
    }

    /// Lets the oldest go, if it is from before that time (all are from before `u64::MAX`).
    pub(super) fn oldest(&mut self, before: u64, take: &mut dyn FnMut(Waited<'_>)) -> bool {
        let due = |slot: &Slot| slot.count == 0 || slot.head.time < before;
        if !self.waiting.front().is_some_and(due) {
            return false;
        }
        let Some(slot) = self.waiting.pop_front() else {
            return false;
        };
        if self.by_hash.get(&slot.hash) == Some(&self.first) {
            self.by_hash.remove(&slot.hash);
        }
        self.first += 1;
        if slot.count > 0 {
            take(slot.waited(&self.text));
        }
        match self.waiting.front() {
            Some(next) => self.begin = next.at,
            None => (self.begin, self.end) = (0, 0),
        }
        true
    }

    /// Lets all of one trail go.
    pub(super) fn all_of(&mut self, trail: u32, take: &mut dyn FnMut(Waited<'_>)) {
        for slot in &mut self.waiting {
            if slot.trail == trail && slot.count > 0 {
                take(slot.waited(&self.text));
                slot.count = 0;
            }
        }
    }

    /// Where a text of that length fits in.
    fn place(&self, length: usize) -> Option<usize> {
        if self.waiting.is_empty() {
            return (length <= self.text.len()).then_some(0);
        }
        if self.end >= self.begin {
            if length <= self.text.len() - self.end {
                return Some(self.end);
            }
            return (length < self.begin).then_some(0);
        }
        (length < self.begin - self.end).then_some(self.end)
    }

    fn hash(&self, trail: u32, head: &Head, shape: Shape, texts: [&[u8]; 2]) -> u64 {
        let mut hasher = self.key.build_hasher();
        let numbers: [u64; 10] = {
            let first = u64::from(trail) | u64::from(head.pid) << 32;
            let second = u64::from(head.kind as u8)
                | u64::from(head.flags) << 8
                | u64::from(head.result.cast_unsigned()) << 32;
            let (a, b, c, d) = match shape {
                Shape::Life => (0, 0, 0, 0),
                Shape::Exec { total } => (total.into(), 0, 0, 0),
                Shape::Open {
                    inode,
                    device,
                    open_flags,
                    mode,
                } => (inode, device.into(), open_flags.into(), mode.into()),
                Shape::Address {
                    family,
                    kind,
                    protocol,
                } => (family.into(), kind.into(), protocol.into(), 0),
                Shape::Operation { what, numbers } => {
                    (what.into(), numbers[0], numbers[1], numbers[2])
                }
            };
            let comm = head.comm.split_at(8);
            let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
            let lengths = texts[0].len() as u64 | (texts[1].len() as u64) << 32;
            [
                first,
                second,
                head.cgroup,
                word(comm.0),
                word(comm.1),
                a,
                b,
                c,
                d,
                lengths,
            ]
        };
        let mut bytes = [0; 80];
        for (part, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            part.copy_from_slice(&number.to_ne_bytes());
        }
        hasher.write(&bytes);
        hasher.write(texts[0]);
        hasher.write(texts[1]);
        hasher.finish()
    }
}

impl Slot {
    fn waited<'a>(&self, text: &'a [u8]) -> Waited<'a> {
        let (first, second) = text[self.at..].split_at(self.lengths[0]);
        let second = &second[..self.lengths[1]];
        let about = match self.shape {
            Shape::Life => About::Life,
            Shape::Exec { total } => About::Exec {
                path: first,
                arguments: second,
                total,
            },
            Shape::Open {
                inode,
                device,
                open_flags,
                mode,
            } => About::Open {
                path: first,
                inode,
                device,
                open_flags,
                mode,
            },
            Shape::Address {
                family,
                kind,
                protocol,
            } => About::Address {
                family,
                kind,
                protocol,
                address: first,
            },
            Shape::Operation { what, numbers } => About::Operation {
                what,
                numbers,
                path: first,
                other: second,
            },
        };
        Waited {
            trail: self.trail,
            event: Event {
                head: self.head,
                about,
            },
            count: self.count,
        }
    }
}

/// An event's numbers and its texts.
fn apart<'a>(about: &About<'a>) -> (Shape, [&'a [u8]; 2]) {
    match *about {
        About::Life => (Shape::Life, [&[], &[]]),
        About::Exec {
            path,
            arguments,
            total,
        } => (Shape::Exec { total }, [path, arguments]),
        About::Open {
            path,
            inode,
            device,
            open_flags,
            mode,
        } => (
            Shape::Open {
                inode,
                device,
                open_flags,
                mode,
            },
            [path, &[]],
        ),
        About::Address {
            family,
            kind,
            protocol,
            address,
        } => (
            Shape::Address {
                family,
                kind,
                protocol,
            },
            [address, &[]],
        ),
        About::Operation {
            what,
            numbers,
            path,
            other,
        } => (Shape::Operation { what, numbers }, [path, other]),
    }
}

/// Alike in all but time, thread and processor.
fn alike(one: &Head, other: &Head) -> bool {
    Head {
        time: other.time,
        tid: other.tid,
        cpu: other.cpu,
        ..*one
    } == *other
}

/// The keys are hashes already.
#[derive(Default)]
struct HashedKey(u64);

impl Hasher for HashedKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

#[cfg(test)]
mod tests;
