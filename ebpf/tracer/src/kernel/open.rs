//! How the probes are opened: those that are pinned, or an object that is loaded afresh and tried.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::about::About;
use super::demand::{self, Demand};
use super::load::{self, Report};
use super::maps::{self, Maps};
use super::objects::{self, Kind};
use super::obstacles;
use super::pins::{Home, Pins, Purpose};
use super::probes::Probes;
use super::programs::{self, Running};
use super::prove::prove;
use super::settings::{Error, Settings};
use crate::sys::bpf;

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
}
