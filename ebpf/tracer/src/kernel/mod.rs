//! The probes in the kernel, from user space: loaded once a node, pinned so that they outlive whoever loaded
//! them, tried before anyone relies on them, and talked to through their maps.

mod demand;
mod exercise;
mod iterator;
mod load;
mod maps;
mod objects;
mod obstacles;
mod pins;
mod programs;
mod prove;
mod settings;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

pub use exercise::child as exercise;
pub use load::{Report, child as load};
pub use maps::{Counts, Sweep, SweepWhat, TraceEntry};
pub use objects::Kind;
pub use settings::{Choice, Error, Settings};

use crate::sys::bpf;
use demand::{Demand, REST};
use maps::{MARK, Maps};
use pins::{Home, Pins, Purpose};
use programs::Running;
use prove::prove;

/// The trace of the self-test; no other one gets this number.
pub const SELF_TEST: u32 = u32::MAX;

/// Of other traces' events as many bytes are kept while the self-test reads the ring.
const KEPT_BYTES: usize = 16 << 20;

/// What is known of the probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// `trampolines` or `tracepoints`.
    pub object: String,
    /// The kernel's release.
    pub kernel: String,
    /// What cannot be seen or denied here, a sentence each.
    pub blind: Vec<String>,
    /// Whether denials hold, which was tried.
    pub enforces: bool,
    /// What the self-test proved, a line each.
    pub proved: Vec<String>,
    /// Whether an earlier tracer has loaded them: its traces go on.
    pub taken_over: bool,
    /// Programs that the kernel does not run, and what it said; known to whoever loaded them.
    pub refused: Vec<String>,
}

/// The probes.
pub struct Probes {
    maps: Maps,
    pins: Pins,
    home: Home,
    hash: String,
    about: About,
    /// Programs, for what they missed.
    programs: Vec<OwnedFd>,
    demand: Demand,
    /// Events of others that the self-test came across.
    kept: VecDeque<Vec<u8>>,
    kept_bytes: usize,
    /// Events that were lost here and not in the kernel.
    dropped: u64,
}

/// An object that is pinned and opened.
struct Tried {
    maps: Maps,
    programs: Vec<OwnedFd>,
    demand: Demand,
    report: Report,
    running: Running,
}

impl Probes {
    /// Takes over what is pinned, or loads the object that works; tries it.
    ///
    /// # Errors
    /// Nothing works here, or another tracer runs.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        Self::begin(settings, Purpose::Serve)
    }

    /// The same with pins of its own beside those of a tracer that serves; [`Probes::unpin`] is due then.
    ///
    /// # Errors
    /// Nothing works here.
    pub fn check(settings: &Settings) -> Result<Self, Error> {
        Self::begin(settings, Purpose::Check)
    }

    /// Removes the pins of a tracer that does not run any more, whatever is traced. Says how many objects
    /// were pinned.
    ///
    /// # Errors
    /// It runs, or the pins are not to be removed.
    pub fn unpin_all(settings: &Settings) -> Result<usize, Error> {
        let home = Home::open(&settings.bpffs, Purpose::Serve)?;
        let all = home.others("");
        for pins in &all {
            pins.remove().map_err(|error| Error::Pins {
                path: pins.path().to_owned(),
                error,
            })?;
        }
        home.remove();
        Ok(all.len())
    }

    fn begin(settings: &Settings, purpose: Purpose) -> Result<Self, Error> {
        obstacles::look()?;
        let mut home = Some(Home::open(&settings.bpffs, purpose)?);
        let mut last: Option<Error> = None;
        // What is pinned and works is never replaced by what would be better.
        let mut order: Vec<(Kind, bool)> = Vec::new();
        for fresh in [false, true] {
            order.extend(settings.object.kinds().iter().map(|kind| (*kind, fresh)));
        }
        for (kind, fresh) in order {
            let Some(at) = home.take() else { break };
            match Self::attempt(settings, at, kind, fresh) {
                Ok(mut probes) => {
                    if let Some(error) = last {
                        probes.about.refused.insert(0, load::chain(&error));
                    }
                    return Ok(probes);
                }
                Err((at, error)) => {
                    home = Some(at);
                    last = error.or(last);
                }
            }
        }
        if let (Purpose::Check, Some(home)) = (purpose, home) {
            home.remove();
        }
        Err(match last {
            Some(_) if obstacles::lockdown() => Error::Lockdown,
            Some(error) => error,
            None => Error::Load {
                kind: "no",
                why: "there is no kind to try".to_owned(),
            },
        })
    }

    /// One kind: that which is pinned, or loaded afresh. No error: nothing is pinned.
    fn attempt(
        settings: &Settings,
        home: Home,
        kind: Kind,
        fresh: bool,
    ) -> Result<Self, (Home, Option<Error>)> {
        let bytes = match kind.bytes(settings.objects.as_deref()) {
            Ok(bytes) => bytes,
            Err(error) => {
                let why = error.to_string();
                let kind = kind.name();
                return Err((home, Some(Error::Load { kind, why })));
            }
        };
        let hash = objects::hash16(&bytes);
        let pins = home.of(&hash);
        if !fresh && !pins.exist() {
            return Err((home, None));
        }
        let runs_lsm = obstacles::runs_lsm();
        let tried = Self::try_out(settings, kind, &pins, fresh, runs_lsm != Some(false));
        let failed = |pins: &Pins, error| match pins.remove() {
            Ok(()) => error,
            Err(error) => Error::Pins {
                path: pins.path().to_owned(),
                error,
            },
        };
        let tried = match tried {
            Ok(tried) => tried,
            Err(error) => return Err((home, Some(failed(&pins, error)))),
        };
        let mut probes = Self {
            maps: tried.maps,
            pins,
            home,
            hash,
            about: About::default(),
            programs: tried.programs,
            demand: tried.demand,
            kept: VecDeque::new(),
            kept_bytes: 0,
            dropped: 0,
        };
        let denials = programs::may_deny(&tried.running);
        let proof = match prove(&mut probes, settings, denials) {
            Ok(proof) if proof.sees() => proof,
            Ok(proof) => {
                let seen = proof.lines().join(", ");
                let kind = kind.name();
                let error = failed(&probes.pins, Error::Unproved { kind, seen });
                return Err((probes.home, Some(error)));
            }
            Err(error) => {
                let kind = kind.name();
                let error = failed(&probes.pins, Error::SelfTest { kind, error });
                return Err((probes.home, Some(error)));
            }
        };
        probes.about = programs::about(kind, &tried.running, &proof, runs_lsm);
        probes.about.taken_over = !fresh;
        let refused = tried.report.refused.iter();
        probes.about.refused = refused
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        probes.demand.rest(Duration::ZERO, &probes.pins);
        probes.tidy();
        Ok(probes)
    }

    fn try_out(
        settings: &Settings,
        kind: Kind,
        pins: &Pins,
        fresh: bool,
        lsm: bool,
    ) -> Result<Tried, Error> {
        let report = if fresh {
            load::load(settings, kind, pins, lsm)?
        } else {
            Report::default()
        };
        let failed = |error| Error::Pins {
            path: pins.path().to_owned(),
            error,
        };
        // What was detached as nobody needed it runs like the others.
        demand::attach(pins).map_err(failed)?;
        let attached = pins.attached().map_err(failed)?;
        let absent = pins.absent().map_err(failed)?;
        let missing = programs::missing_essential(kind, &attached);
        if let Some(program) = missing {
            let why = match report.refused.get(program) {
                Some(why) => format!("the kernel refuses the program `{program}`: {why}"),
                None => format!("the program `{program}` does not run"),
            };
            let kind = kind.name();
            return Err(Error::Load { kind, why });
        }
        let maps = Maps::open(&pins.maps()).map_err(|error| failed(maps::failure(error)))?;
        let demand = Demand::of(maps.flags().map_err(failed)?);
        let mut programs = Vec::new();
        for name in &attached {
            programs.push(bpf::pinned(&pins.programs().join(name)).map_err(failed)?);
        }
        Ok(Tried {
            maps,
            programs,
            demand,
            report,
            running: Running { attached, absent },
        })
    }

    /// What is known of the probes.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Makes a trace known, or changes one; what is counted goes on. An event that is counted while it is
    /// changed can be missed: a trace that records already is better left alone.
    ///
    /// # Errors
    /// There are too many (`E2BIG`), or what it forbids cannot be denied.
    pub fn set_trace(&mut self, id: u32, entry: &TraceEntry) -> io::Result<()> {
        self.demand.before(id, entry.flags, &self.pins)?;
        self.maps.set_trace(id, entry)?;
        self.demand.after(id, entry.flags);
        Ok(())
    }

    /// What was counted of a trace.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn counts(&self, id: u32) -> io::Result<Counts> {
        self.maps.counts(id)
    }

    /// Forgets a trace. Tasks that still carry its mark are neither recorded nor denied anything.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_trace(&mut self, id: u32) -> io::Result<()> {
        self.maps.remove_trace(id)?;
        self.demand.after(id, 0);
        Ok(())
    }

    /// All traces that the kernel knows.
    ///
    /// # Errors
    /// The kernel's.
    pub fn traces(&self) -> io::Result<Vec<u32>> {
        self.maps.traces()
    }

    /// What comes to be in or below this cgroup belongs to a trace from now on. What is there already, a
    /// sweep marks.
    ///
    /// # Errors
    /// There are too many (`E2BIG`).
    pub fn add_cgroup(&mut self, cgroup: u64, id: u32) -> io::Result<()> {
        self.maps.add_cgroup(cgroup, id)
    }

    /// The opposite.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_cgroup(&mut self, cgroup: u64) -> io::Result<()> {
        self.maps.remove_cgroup(cgroup)
    }

    /// Forbids a file, or a directory with all below it, to the tasks of a trace. Device and inode are those
    /// of [`Probes::identify`].
    ///
    /// # Errors
    /// There are too many (`E2BIG`).
    pub fn forbid(&mut self, trace: u32, device: u32, inode: u64) -> io::Result<()> {
        self.maps.forbid(trace, device, inode)
    }

    /// Nothing is forbidden to a trace any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pardon(&mut self, trace: u32) -> io::Result<()> {
        self.maps.pardon(trace)
    }

    /// What the kernel calls a file or directory: its device and its inode, which `fstat(2)` does not always
    /// tell (btrfs, overlayfs).
    ///
    /// # Errors
    /// The kernel's.
    pub fn identify(&mut self, file: BorrowedFd<'_>) -> io::Result<(u32, u64)> {
        let number = u64::try_from(file.as_raw_fd()).map_err(io::Error::other)?;
        self.maps.begin_identify(number)?;
        iterator::run(&self.pins)?;
        self.maps.identified()
    }

    /// Does something to every task that there is. Says to how many.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sweep(&mut self, sweep: &Sweep) -> io::Result<u64> {
        self.maps.begin_sweep(sweep)?;
        iterator::run(&self.pins)?;
        self.maps.swept()
    }

    /// The trace of a process: its mark, 0 without one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn mark(&self, process: BorrowedFd<'_>) -> io::Result<u32> {
        let map = self.maps.marks.fd().as_fd();
        let value = bpf::of_task::<MARK>(map, process)?;
        Ok(value.map_or(0, |value| {
            u32::from_ne_bytes([value[0], value[1], value[2], value[3]])
        }))
    }

    /// The ring buffer, for `epoll(7)`.
    #[must_use]
    pub fn ring_fd(&self) -> BorrowedFd<'_> {
        self.maps.ring.as_fd()
    }

    /// Hands over at most `budget` events, each once. Says how many there were: as many as the budget means
    /// that there are more.
    pub fn drain(&mut self, budget: usize, each: &mut dyn FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < budget {
            if let Some(event) = self.kept.pop_front() {
                self.kept_bytes -= event.len();
                each(&event);
            } else if let Some(event) = self.maps.ring.next() {
                each(&event);
            } else {
                break;
            }
            count += 1;
        }
        count
    }

    /// Reads the ring for the self-test: its own events are handed over, others' are kept.
    fn sort_out(&mut self, each: &mut dyn FnMut(&[u8])) {
        while let Some(event) = self.maps.ring.next() {
            if trace_of(&event) == Some(SELF_TEST) {
                each(&event);
            } else if self.kept_bytes + event.len() <= KEPT_BYTES {
                self.kept_bytes += event.len();
                self.kept.push_back(event.to_vec());
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Events that were lost and that no trace counts: for lack of a buffer, or as a program was interrupted
    /// on its processor by what would have started it again.
    #[must_use]
    pub fn misses(&self) -> u64 {
        let programs = self.programs.iter();
        let recursion = programs.filter_map(iterator::recursion_misses);
        let counted = self.maps.misses().unwrap_or_default();
        recursion.sum::<u64>() + counted + self.dropped
    }

    /// Removes pins of other objects (of an older version) of whose traces no task is left. Says how many
    /// objects stay, as something of theirs is alive.
    pub fn tidy(&mut self) -> usize {
        self.demand.rest(REST, &self.pins);
        let others = self.home.others(&self.hash);
        others
            .iter()
            .filter(|pins| iterator::is_alive(pins) || pins.remove().is_err())
            .count()
    }

    /// Removes everything: nothing is recorded or denied after it.
    ///
    /// # Errors
    /// The pins are not to be removed.
    pub fn unpin(self) -> io::Result<()> {
        self.pins.remove()?;
        self.home.remove();
        Ok(())
    }
}

/// The trace of an event, which stands in `head.trace`.
fn trace_of(event: &[u8]) -> Option<u32> {
    let word = event.get(24..28)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}
