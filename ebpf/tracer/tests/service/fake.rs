//! A kernel of the tests: it has the same maps, and marks processes that there really are. Nothing is
//! inherited: a test says what has been.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use agent_sandbox_tracer::kernel::{About, Counts, Sweep, SweepWhat, TraceEntry};
use agent_sandbox_tracer::service::kernel::Kernel;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// What the probes would know.
#[derive(Debug, Default)]
pub struct Inside {
    pub traces: BTreeMap<u32, (TraceEntry, Counts)>,
    pub marks: BTreeMap<u32, u32>,
    pub cgroups: BTreeMap<u64, u32>,
    pub members: BTreeMap<u64, Vec<u32>>,
    pub forbidden: BTreeSet<(u32, u32, u64)>,
    pub events: VecDeque<Vec<u8>>,
    pub sweeps: u64,
    /// This event comes again and again, and takes so long to read.
    pub flood: Option<(Vec<u8>, std::time::Duration)>,
}

/// The kernel. Clones share what is inside, as a kernel does when its tracer ends.
#[derive(Clone, Debug)]
pub struct Fake {
    inside: Arc<Mutex<Inside>>,
    wake: Arc<EventFd>,
    about: About,
}

impl Fake {
    pub fn new() -> Self {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        Self {
            inside: Arc::default(),
            wake: Arc::new(wake.unwrap()),
            about: About {
                object: "trampolines".to_owned(),
                kernel: "6.12.0-test".to_owned(),
                blind: vec!["the fake sees nothing by itself".to_owned()],
                enforces: true,
                ..About::default()
            },
        }
    }

    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }

    /// An event comes.
    pub fn event(&self, bytes: Vec<u8>) {
        self.inside().events.push_back(bytes);
        self.wake.write(1).unwrap();
    }

    pub fn wake(&self) {
        self.wake.write(1).unwrap();
    }
}

/// The parent of a process that lives, and its real user id.
fn living(pid: u32) -> Option<(u32, u32)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next().map(str::to_owned)
    };
    if ["Z", "X"].contains(&field("State:")?.as_str()) {
        return None;
    }
    Some((field("PPid:")?.parse().ok()?, field("Uid:")?.parse().ok()?))
}

fn processes() -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

impl Kernel for Fake {
    fn set_trace(&mut self, id: u32, entry: &TraceEntry) -> io::Result<()> {
        let mut inside = self.inside();
        let counts = inside.traces.get(&id).map(|(_, counts)| *counts);
        inside
            .traces
            .insert(id, (*entry, counts.unwrap_or_default()));
        Ok(())
    }

    fn counts(&self, id: u32) -> io::Result<Counts> {
        let inside = self.inside();
        let known = inside.traces.get(&id).map(|(_, counts)| *counts);
        known.ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove_trace(&mut self, id: u32) -> io::Result<()> {
        self.inside().traces.remove(&id);
        Ok(())
    }

    fn add_cgroup(&mut self, cgroup: u64, id: u32) -> io::Result<()> {
        self.inside().cgroups.insert(cgroup, id);
        Ok(())
    }

    fn remove_cgroup(&mut self, cgroup: u64) -> io::Result<()> {
        self.inside().cgroups.remove(&cgroup);
        Ok(())
    }

    fn forbid(&mut self, id: u32, device: u32, inode: u64) -> io::Result<()> {
        self.inside().forbidden.insert((id, device, inode));
        Ok(())
    }

    fn identify(&mut self, _: BorrowedFd<'_>) -> io::Result<(u32, u64)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn pardon(&mut self, id: u32) -> io::Result<()> {
        self.inside().forbidden.retain(|(trace, ..)| *trace != id);
        Ok(())
    }

    fn sweep(&mut self, sweep: &Sweep) -> io::Result<u64> {
        let mut inside = self.inside();
        inside.sweeps += 1;
        let mut found = Vec::new();
        for pid in processes() {
            let mark = inside.marks.get(&pid).copied().unwrap_or(0);
            let Some((parent, uid)) = living(pid) else {
                continue;
            };
            if sweep.uid != u32::MAX && sweep.uid != uid {
                continue;
            }
            let meant = match sweep.what {
                SweepWhat::Process(process) => pid == process,
                SweepWhat::Cgroup(cgroup) => inside
                    .members
                    .get(&cgroup)
                    .is_some_and(|all| all.contains(&pid)),
                SweepWhat::Replace => mark == sweep.from,
                SweepWhat::Count => mark == sweep.trace,
                SweepWhat::Children => inside.marks.get(&parent) == Some(&sweep.trace),
            };
            if sweep.what == SweepWhat::Count {
                found.extend(meant.then_some(pid));
                continue;
            }
            let from = sweep.from == u32::MAX || sweep.from == mark;
            if meant && from && mark != sweep.trace {
                found.push(pid);
            }
        }
        if sweep.what != SweepWhat::Count {
            for pid in &found {
                inside.marks.insert(*pid, sweep.trace);
            }
        }
        Ok(found.len() as u64)
    }

    fn mark(&self, process: BorrowedFd<'_>) -> io::Result<u32> {
        let info = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
        let info = std::fs::read_to_string(info)?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
        // Of one that has ended it is -1, and the map of the kernel (Linux 6.18) has nothing of it.
        let pid = pid.and_then(|pid| pid.trim().parse::<u32>().ok());
        let mark = pid.and_then(|pid| self.inside().marks.get(&pid).copied());
        Ok(mark.unwrap_or(0))
    }

    fn ring(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn drain(&mut self, budget: usize, each: &mut dyn FnMut(&[u8])) -> usize {
        let _ = self.wake.read();
        let mut count = 0;
        while count < budget {
            let next = self.inside().events.pop_front();
            let flood = self.inside().flood.clone();
            let Some(event) = next.or_else(|| {
                let (event, cost) = flood?;
                std::thread::sleep(cost);
                Some(event)
            }) else {
                return count;
            };
            each(&event);
            count += 1;
        }
        self.wake();
        count
    }

    fn misses(&self) -> u64 {
        0
    }

    fn traces(&self) -> io::Result<Vec<u32>> {
        Ok(self.inside().traces.keys().copied().collect())
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn tidy(&mut self) -> usize {
        0
    }
}

/// An event as the probes write it: kind, trace, process, and what stands behind the head.
fn event(kind: u8, trace: u32, pid: u32, uid: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let size = u32::try_from(72 + rest.len()).unwrap();
    bytes.extend(size.to_ne_bytes());
    bytes.extend([kind, 0]);
    bytes.extend(0_u16.to_ne_bytes());
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
    let time = u64::try_from(time.tv_sec()).unwrap() * 1_000_000_000
        + u64::try_from(time.tv_nsec()).unwrap();
    bytes.extend(time.to_ne_bytes());
    bytes.extend(7_u64.to_ne_bytes());
    for word in [trace, pid, pid, 1, uid, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(*b"test\0\0\0\0\0\0\0\0\0\0\0\0");
    bytes.extend([0; 8]);
    bytes.extend(rest);
    bytes
}

/// A file that was opened.
pub fn opened(trace: u32, pid: u32, uid: u32, path: &str) -> Vec<u8> {
    let mut rest = Vec::new();
    rest.extend(99_u64.to_ne_bytes());
    let length = u32::try_from(path.len() + 1).unwrap();
    for word in [8 << 20 | 1, 0, 0o100_644, length] {
        rest.extend(word.to_ne_bytes());
    }
    rest.extend(path.as_bytes());
    rest.push(0);
    event(3, trace, pid, uid, &rest)
}

/// A file that was opened, or was tried: the call's result is 0, or the error's number below it.
pub fn tried(trace: u32, pid: u32, uid: u32, path: &str, result: i32) -> Vec<u8> {
    // Behind size, kind, flags, time, cgroup and five numbers.
    const RESULT: usize = 44;
    let mut bytes = opened(trace, pid, uid, path);
    bytes[RESULT..RESULT + 4].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// A program that was started, with its arguments.
pub fn executed(trace: u32, pid: u32, uid: u32, path: &str, arguments: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    let path = [path.as_bytes(), &[0]].concat();
    let count = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
    for word in [count(&path), count(arguments), count(arguments), 0] {
        rest.extend(word.to_ne_bytes());
    }
    rest.extend(path);
    rest.extend(arguments);
    event(1, trace, pid, uid, &rest)
}

/// A process that has ended.
pub fn exited(trace: u32, pid: u32, uid: u32) -> Vec<u8> {
    event(2, trace, pid, uid, &[])
}
