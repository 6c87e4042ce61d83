//! The maps that this program shares with the probes: their values as bytes, laid out as in
//! `ebpf/probes/events.h`, in the machine's byte order.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;

use aya::Pod;
use aya::maps::{Array, HashMap, Map, MapData, MapError, RingBuf};

/// The trace of the self-test; no other one gets this number.
pub const SELF_TEST: u32 = u32::MAX;

/// Which tasks are traced, and what of them (`struct trace`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceEntry {
    /// Kinds of events, a bit each.
    pub events: u32,
    /// `TRACE_*`.
    pub flags: u32,
    /// Whose tasks these are: the real user id.
    pub uid: u32,
    /// Every Nth of the allowed opens is recorded; 0 and 1: all.
    pub every: u32,
    /// Operations, a bit each.
    pub operations: u64,
    /// The trace above it, 0 if there is none.
    pub parent: u32,
    /// The trace whose forbidden files are forbidden to these tasks, 0: its own. A trace below one that
    /// enforces has that one's here, and its flags.
    pub rules: u32,
}

/// What the probes have counted of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that were lost.
    pub lost: u64,
    /// Opens that `every` left out.
    pub skipped: u64,
}

/// What the iterator does to every task that there is (`struct sweep`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// To which tasks it does what.
    pub what: SweepWhat,
    /// The trace; 0 takes marks away ([`SweepWhat::Replace`]).
    pub trace: u32,
    /// Only tasks with this mark; 0: only those without one; `u32::MAX`: whatever mark.
    pub from: u32,
    /// Only tasks of this real user id.
    pub uid: u32,
}

/// See [`Sweep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepWhat {
    /// Marks all threads of this process.
    Process(u32),
    /// Marks everything in and below the cgroup v2 of this id.
    Cgroup(u64),
    /// Gives tasks with one mark another one.
    Replace,
    /// Counts the tasks that have the mark.
    Count,
    /// Marks tasks whose parent process has the mark: to be repeated until none is new.
    Children,
}

/// `struct trace`, in bytes.
const TRACE: usize = 56;
/// `struct sweep`, in bytes.
const SWEEP: usize = 48;
/// `struct forbidden`, in bytes.
const FORBIDDEN: usize = 16;
/// `count`, `inode` and `device` in `struct sweep`.
const SWEPT: usize = 24;
const INODE: usize = 32;
const DEVICE: usize = 40;
/// `sweep.what` that says what a descriptor is of.
const SWEEP_FILE: u32 = 6;
/// `struct mark`, in bytes.
pub(crate) const MARK: usize = 64;

type Trace = [u8; TRACE];
type Forbidden = [u8; FORBIDDEN];

/// The names of all maps that are pinned.
pub(crate) const NAMES: [&str; 7] = [
    "traces",
    "marks",
    "cgroups",
    "forbidden",
    "sweep",
    "events",
    "misses",
];

/// The maps, opened from their pins.
pub(crate) struct Maps {
    traces: HashMap<MapData, u32, Trace>,
    cgroups: HashMap<MapData, u64, u32>,
    /// Only an object that can deny has it.
    forbidden: Option<HashMap<MapData, Forbidden, u32>>,
    /// What `forbidden` holds, by trace: a trace that ends need not look through all of it.
    held: BTreeMap<u32, BTreeSet<Forbidden>>,
    sweep: Array<MapData, [u8; SWEEP]>,
    misses: Array<MapData, u64>,
    pub(crate) marks: MapData,
    pub(crate) ring: RingBuf<MapData>,
}

impl Maps {
    /// Opens what is pinned in a directory.
    pub(crate) fn open(directory: &Path) -> Result<Self, MapError> {
        let pinned = |name: &str| MapData::from_pin(directory.join(name));
        let map = |name: &str| pinned(name).and_then(Map::from_map_data);
        let forbidden: Option<HashMap<_, Forbidden, u32>> = match map("forbidden") {
            Ok(map) => Some(map.try_into()?),
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(error),
        };
        let mut held: BTreeMap<u32, BTreeSet<Forbidden>> = BTreeMap::new();
        for key in forbidden.iter().flat_map(HashMap::keys) {
            let key = key?;
            held.entry(trace_of(&key)).or_default().insert(key);
        }
        let marks = pinned("marks")?;
        let (size, expected) = (MARK, marks.info()?.value_size() as usize);
        if size != expected {
            return Err(MapError::InvalidValueSize { size, expected });
        }
        Ok(Self {
            traces: map("traces")?.try_into()?,
            cgroups: map("cgroups")?.try_into()?,
            forbidden,
            held,
            sweep: map("sweep")?.try_into()?,
            misses: map("misses")?.try_into()?,
            marks,
            ring: map("events")?.try_into()?,
        })
    }

    pub(crate) fn set_trace(&mut self, id: u32, entry: &TraceEntry) -> io::Result<()> {
        let mut value = encode_trace(entry);
        if let Some(old) = self.trace(id)? {
            // What is counted goes on.
            value[COUNTED].copy_from_slice(&old[COUNTED]);
        }
        self.traces.insert(id, value, 0).map_err(failure)
    }

    pub(crate) fn counts(&self, id: u32) -> io::Result<Counts> {
        let value = self.trace(id)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Counts {
            lost: u64_at(&value, COUNTED.start),
            skipped: u64_at(&value, COUNTED.start + 8),
        })
    }

    pub(crate) fn traces(&self) -> io::Result<Vec<u32>> {
        self.traces.keys().map(|key| key.map_err(failure)).collect()
    }

    /// The traces with their flags.
    pub(crate) fn flags(&self) -> io::Result<Vec<(u32, u32)>> {
        let traces = self.traces.iter();
        let flags = traces.map(|trace| trace.map(|(id, value)| (id, u32_at(&value, FLAGS))));
        flags.collect::<Result<_, _>>().map_err(failure)
    }

    pub(crate) fn remove_trace(&mut self, id: u32) -> io::Result<()> {
        gone_is_fine(self.traces.remove(&id))
    }

    pub(crate) fn add_cgroup(&mut self, cgroup: u64, id: u32) -> io::Result<()> {
        self.cgroups.insert(cgroup, id, 0).map_err(failure)
    }

    pub(crate) fn remove_cgroup(&mut self, cgroup: u64) -> io::Result<()> {
        gone_is_fine(self.cgroups.remove(&cgroup))
    }

    pub(crate) fn forbid(&mut self, trace: u32, device: u32, inode: u64) -> io::Result<()> {
        let key = encode_forbidden(trace, device, inode);
        let Some(forbidden) = &mut self.forbidden else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let held = self.held.entry(trace).or_default();
        if !held.contains(&key) {
            forbidden.insert(key, 1, 0).map_err(failure)?;
            held.insert(key);
        }
        Ok(())
    }

    pub(crate) fn pardon(&mut self, trace: u32) -> io::Result<()> {
        if let Some(forbidden) = &mut self.forbidden {
            for key in self.held.remove(&trace).unwrap_or_default() {
                gone_is_fine(forbidden.remove(&key))?;
            }
        }
        Ok(())
    }

    pub(crate) fn begin_sweep(&mut self, sweep: &Sweep) -> io::Result<()> {
        self.sweep.set(0, encode_sweep(sweep), 0).map_err(failure)
    }

    /// As many tasks the last sweep marked or counted.
    pub(crate) fn swept(&self) -> io::Result<u64> {
        let value = self.sweep.get(&0, 0).map_err(failure)?;
        Ok(u64_at(&value, SWEPT))
    }

    /// Asks for the device and the inode of a descriptor of this process.
    pub(crate) fn begin_identify(&mut self, descriptor: u64) -> io::Result<()> {
        let mut value = [0; SWEEP];
        value[..4].copy_from_slice(&SWEEP_FILE.to_ne_bytes());
        value[8..16].copy_from_slice(&descriptor.to_ne_bytes());
        self.sweep.set(0, value, 0).map_err(failure)
    }

    /// What the last [`Maps::begin_identify`] has found.
    pub(crate) fn identified(&self) -> io::Result<(u32, u64)> {
        let value = self.sweep.get(&0, 0).map_err(failure)?;
        let (inode, device) = (u64_at(&value, INODE), u32_at(&value, DEVICE));
        if inode == 0 {
            return Err(io::Error::other(
                "the kernel does not say what a descriptor is of",
            ));
        }
        Ok((device, inode))
    }

    pub(crate) fn misses(&self) -> io::Result<u64> {
        self.misses.get(&0, 0).map_err(failure)
    }

    fn trace(&self, id: u32) -> io::Result<Option<Trace>> {
        match self.traces.get(&id, 0) {
            Ok(value) => Ok(Some(value)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }
}

/// The trace ids of pinned `traces` of an object that is not the one in use. `None`: they are laid out in
/// another way, so nothing is known about them.
pub(crate) fn foreign_traces(directory: &Path) -> Option<Vec<u32>> {
    let traces: HashMap<_, u32, Trace> = opened(directory, "traces")?;
    traces.keys().collect::<Result<_, _>>().ok()
}

/// The parameters of the iterator of an object that is not the one in use.
pub(crate) struct ForeignSweep(Array<MapData, [u8; SWEEP]>);

impl ForeignSweep {
    pub(crate) fn open(directory: &Path) -> Option<Self> {
        let map = MapData::from_pin(directory.join("sweep"));
        let map = map.and_then(Map::from_map_data).ok()?;
        map.try_into().ok().map(Self)
    }

    pub(crate) fn begin(&mut self, sweep: &Sweep) -> io::Result<()> {
        self.0.set(0, encode_sweep(sweep), 0).map_err(failure)
    }

    pub(crate) fn swept(&self) -> io::Result<u64> {
        let value = self.0.get(&0, 0).map_err(failure)?;
        Ok(u64_at(&value, SWEPT))
    }
}

fn opened<K: Pod, V: Pod>(directory: &Path, name: &str) -> Option<HashMap<MapData, K, V>> {
    let map = MapData::from_pin(directory.join(name));
    map.and_then(Map::from_map_data).ok()?.try_into().ok()
}

/// `struct trace`: where `flags` stands.
const FLAGS: usize = 4;
/// `lost`, `skipped` and `opens` in `struct trace`: these the probes count.
const COUNTED: Range<usize> = 24..48;

fn encode_trace(entry: &TraceEntry) -> Trace {
    let mut value = [0; TRACE];
    let words = [entry.events, entry.flags, entry.uid, entry.every];
    for (place, word) in value.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    value[16..24].copy_from_slice(&entry.operations.to_ne_bytes());
    value[48..52].copy_from_slice(&entry.parent.to_ne_bytes());
    value[52..].copy_from_slice(&entry.rules.to_ne_bytes());
    value
}

fn encode_sweep(sweep: &Sweep) -> [u8; SWEEP] {
    let (what, target) = match sweep.what {
        SweepWhat::Process(process) => (1_u32, u64::from(process)),
        SweepWhat::Cgroup(cgroup) => (2, cgroup),
        SweepWhat::Replace => (3, 0),
        SweepWhat::Count => (4, 0),
        SweepWhat::Children => (5, 0),
    };
    let mut value = [0; SWEEP];
    value[..4].copy_from_slice(&what.to_ne_bytes());
    value[4..8].copy_from_slice(&sweep.trace.to_ne_bytes());
    value[8..16].copy_from_slice(&target.to_ne_bytes());
    value[16..20].copy_from_slice(&sweep.from.to_ne_bytes());
    value[20..24].copy_from_slice(&sweep.uid.to_ne_bytes());
    value
}

fn encode_forbidden(trace: u32, device: u32, inode: u64) -> Forbidden {
    let mut key = [0; FORBIDDEN];
    key[..8].copy_from_slice(&inode.to_ne_bytes());
    key[8..12].copy_from_slice(&device.to_ne_bytes());
    key[12..].copy_from_slice(&trace.to_ne_bytes());
    key
}

fn trace_of(key: &Forbidden) -> u32 {
    u32_at(key, 12)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

fn gone_is_fine(removed: Result<(), MapError>) -> io::Result<()> {
    match removed.map_err(failure) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn is_absent(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.kind() == io::ErrorKind::NotFound)
}

/// The system's error behind one of aya's, if there is one.
pub(crate) fn failure(error: MapError) -> io::Error {
    match error {
        MapError::KeyNotFound => io::ErrorKind::NotFound.into(),
        MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_laid_out_as_the_header_says() {
        let entry = TraceEntry {
            events: 1,
            flags: 2,
            uid: 3,
            every: 4,
            operations: 5,
            parent: 6,
            rules: 7,
        };
        let value = encode_trace(&entry);
        assert_eq!(&value[..4], 1_u32.to_ne_bytes());
        assert_eq!(&value[4..8], 2_u32.to_ne_bytes());
        assert_eq!(&value[8..12], 3_u32.to_ne_bytes());
        assert_eq!(&value[12..16], 4_u32.to_ne_bytes());
        assert_eq!(u64_at(&value, 16), 5);
        assert_eq!(value[COUNTED], [0; 24]);
        assert_eq!(u32_at(&value, 48), 6);
        assert_eq!(u32_at(&value, 52), 7);

        let sweep = Sweep {
            what: SweepWhat::Cgroup(7),
            trace: 8,
            from: u32::MAX,
            uid: 9,
        };
        let value = encode_sweep(&sweep);
        assert_eq!(&value[..4], 2_u32.to_ne_bytes());
        assert_eq!(&value[4..8], 8_u32.to_ne_bytes());
        assert_eq!(u64_at(&value, 8), 7);
        assert_eq!(&value[16..20], u32::MAX.to_ne_bytes());
        assert_eq!(&value[20..24], 9_u32.to_ne_bytes());
        assert_eq!(u64_at(&value, 24), 0);

        let key = encode_forbidden(10, 11, 12);
        assert_eq!(u64_at(&key, 0), 12);
        assert_eq!(&key[8..12], 11_u32.to_ne_bytes());
        assert_eq!(trace_of(&key), 10);
    }

    #[test]
    fn numbers_of_sweeps_are_those_of_the_header() {
        let header = include_str!("../../../probes/events.h");
        for (what, name) in [
            (SweepWhat::Process(0), "SWEEP_PROCESS"),
            (SweepWhat::Cgroup(0), "SWEEP_CGROUP"),
            (SweepWhat::Replace, "SWEEP_REPLACE"),
            (SweepWhat::Count, "SWEEP_COUNT"),
            (SweepWhat::Children, "SWEEP_CHILDREN"),
        ] {
            let sweep = Sweep {
                what,
                trace: 1,
                from: 0,
                uid: 0,
            };
            let number = encode_sweep(&sweep)[0];
            let line = format!("#define {name} {number}");
            assert!(header.lines().any(|have| have == line), "{line}");
        }
    }
}
