//! Registrations: what a caller may have traced and forbidden.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads the tracer's own table of mounts"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use agent_sandbox_events::protocol::Register;
use agent_sandbox_events::record::Trail;

use super::{Core, SHORT};
use crate::service::cgroups::Cgroup;
use crate::service::coverage::{self, Coverage};
use crate::service::forbidden::{self, Blind, MOST_MOUNTS, Seen};
use crate::service::kernel::Kernel;
use crate::service::limits::Verdict;
use crate::service::process::{Process, is_short};
use crate::service::refusal::{Refusal, instead, no, room};
use crate::service::registry::{File, Trace};
use crate::trail::Redaction;

/// Looking for a cgroup in so many directories costs as much as a request.
const LOOKS: u32 = 25;

/// Who asks.
#[derive(Debug)]
pub struct Caller {
    /// Effective user id when it connected.
    pub uid: u32,
    /// The process that connected, if it still lives.
    pub process: io::Result<Process>,
    /// The mark that it had when its connection was accepted, 0 without one; none if it had ended.
    pub mark: Option<u32>,
}

/// A trace that is registered and has not begun.
#[derive(Debug)]
pub struct Registered {
    /// Its id.
    pub id: u32,
    /// Whether that is a trace that goes on, which this one joins.
    pub joins: bool,
    /// What was asked.
    pub register: Box<Register>,
    /// What comes of it.
    pub coverage: Coverage,
    /// Whose tasks.
    pub uid: u32,
    /// The process, held.
    pub process: Option<Process>,
    /// What is forbidden.
    pub forbidden: BTreeSet<File>,
}

/// Files to be forbidden, and what cannot be, a sentence each.
struct Forbidding {
    files: BTreeSet<File>,
    taken: u32,
    blind: Vec<String>,
}

/// A process that Slurm keeps in a job is traced as that job's, and as no other's.
fn is_its_job(register: &Register, process: Option<&Process>) -> Result<(), Refusal> {
    let (Some(said), Some(process)) = (register.job, process) else {
        return Ok(());
    };
    match process.job() {
        Ok(Some(job)) if job != said => Err(no(format!(
            "this process is of job {job}, by its cgroup, and not of job {said}"
        ))),
        _ => Ok(()),
    }
}

/// Whether no job is said, or Slurm keeps the process in the one that is.
fn is_known(said: Option<u32>, process: Option<&Process>) -> bool {
    let kept = |process: &Process| matches!(process.job(), Ok(job) if job == said);
    said.is_none() || process.is_some_and(kept)
}

impl<K: Kernel> Core<K> {
    /// [`agent_sandbox_events::protocol::Request::Register`]: who may have that traced, and with what. `waiting` are
    /// the registrations of all other connections. Returns what begins with [`Core::begin`], and sentences about what
    /// will not be seen or denied.
    ///
    /// # Errors
    /// The caller may not, or there is no room.
    pub fn register<'a>(
        &mut self,
        caller: Caller,
        register: Box<Register>,
        waiting: impl Iterator<Item = &'a Registered>,
    ) -> Result<(Registered, Vec<String>), Refusal> {
        if let Some(wrong) = coverage::misnamed(&register) {
            return Err(no(wrong));
        }
        Redaction::new(&register.redact).map_err(|error| no(error.to_string()))?;
        let scope = register.scope;
        if scope.process.is_none() && scope.cgroup.is_none() {
            return Err(no("neither a process nor a cgroup"));
        }
        if scope.descendants && scope.process.is_none() {
            return Err(no("descendants of no process"));
        }
        let peer = caller.uid;
        let caller = match caller.process {
            Ok(caller) => Some(caller),
            Err(error) if is_short(&error) => return Err(self.short(error)),
            Err(_) => None,
        };
        let process = match scope.process {
            None => None,
            Some(pid) => Some(self.process(peer, caller.as_ref(), pid)?),
        };
        let cgroup = match scope.cgroup {
            None => None,
            Some(id) => Some(self.cgroup(peer, caller.as_ref(), process.as_ref(), id)?),
        };
        is_its_job(&register, process.as_ref())?;
        let uid = match (peer, &process, &cgroup) {
            (0, Some(process), _) => process.uids[0],
            (0, None, Some(cgroup)) => cgroup.owner,
            (uid, ..) => uid,
        };
        if let Some(id) = scope.cgroup {
            let holder = self.registry.of_cgroup(id);
            let holder = holder.and_then(|holder| self.registry.get(holder));
            if holder.is_some_and(|holder| holder.trail.uid != uid) {
                return Err(no("this cgroup is traced for another user"));
            }
        }
        let coverage = Coverage::new(&register, &self.config.demand);
        let mut registered = Registered {
            id: 0,
            joins: false,
            register,
            coverage,
            uid,
            process,
            forbidden: BTreeSet::new(),
        };
        let like = self.trace_of(&registered);
        let mut joined = self.to_join(&like, waiting);
        if joined.is_none() && self.usage.trace(uid) != Verdict::Room {
            self.make_room(uid);
        }
        let mut crowded = Vec::new();
        if joined.is_none() && self.usage.crowded(uid, 1, 0) {
            joined = self.stand_in(&like, |_| true);
            crowded.extend(joined.map(|id| {
                format!(
                    "you have many traces already: this is recorded in trace {id} of the session"
                )
            }));
        }
        match joined {
            Some(id) => (registered.id, registered.joins) = (id, true),
            None => {
                room(self.usage.trace(uid), "traces")?;
                self.usage.traced(uid);
                registered.id = self.registry.fresh();
            }
        }
        let about = self.kernel.about();
        let mut blind = about.blind.clone();
        blind.extend(crowded);
        if registered.coverage.denies() && !about.enforces {
            blind.push("nothing is denied: the kernel does not let the tracer".to_owned());
        }
        Ok((registered, blind))
    }

    /// The trace that a task of a step will join: one that goes on, or that another task is about to begin.
    fn to_join<'a>(
        &self,
        like: &Trace,
        mut waiting: impl Iterator<Item = &'a Registered>,
    ) -> Option<u32> {
        let joined = self.registry.joined_by(&like.trail, like);
        let goes_on = joined.filter(|id| !self.ending.contains_key(id));
        goes_on.or_else(|| {
            let fits = |other: &&Registered| {
                !other.joins && self.trace_of(other).is_joined_by(&like.trail, like)
            };
            waiting.find(fits).map(|other| other.id)
        })
    }

    /// The trace that comes of a registration.
    pub(super) fn trace_of(&self, registered: &Registered) -> Trace {
        let register = &registered.register;
        Trace {
            trail: Trail {
                node: self.node.clone(),
                uid: registered.uid,
                session: register.session.clone(),
                job: register.job,
                step: register.step.clone(),
                trace: registered.id,
            },
            coverage: registered.coverage.clone(),
            forbidden: registered.forbidden.clone(),
            lifetime: register.lifetime,
            processes: registered.process.iter().map(|held| held.named).collect(),
            descendants: register.scope.descendants,
            cgroup: register.scope.cgroup,
            command: coverage::shortened(&register.command),
            redact: register.redact.clone(),
            job_unverified: !is_known(register.job, registered.process.as_ref()),
        }
    }

    /// The process that a caller names.
    fn process(
        &mut self,
        uid: u32,
        caller: Option<&Process>,
        pid: u32,
    ) -> Result<Process, Refusal> {
        let caller = caller.ok_or_else(|| no("whoever connected has ended"))?;
        match caller.in_our_namespace() {
            Ok(true) => {}
            Ok(false) => {
                return Err(instead(
                    "you count processes otherwise than the node does: in another pid namespace",
                    "ask from outside of the container",
                ));
            }
            Err(error) if is_short(&error) => return Err(self.short(error)),
            Err(_) => return Err(no("whoever connected has ended")),
        }
        // The same words for all of it: nobody learns which processes others have.
        let unknown = || no(format!("there is no process {pid}, or it is not yours"));
        if pid == std::process::id() {
            return Err(no("the tracer does not trace itself"));
        }
        match Process::open(pid, uid) {
            Ok(process) => Ok(process),
            Err(error) if is_short(&error) => Err(self.short(error)),
            Err(_) => Err(unknown()),
        }
    }

    /// The tracer lacks descriptors or memory: the caller has done nothing wrong, and the administrators must know.
    fn short(&mut self, error: std::io::Error) -> Refusal {
        let refusal = instead(
            format!("{SHORT}: {error}"),
            "the node's administrators find more in the tracer's log",
        );
        self.complain(SHORT, Err::<(), _>(error));
        refusal
    }

    /// The cgroup that a caller names.
    fn cgroup(
        &mut self,
        uid: u32,
        caller: Option<&Process>,
        process: Option<&Process>,
        id: u64,
    ) -> Result<Cgroup, Refusal> {
        let cgroups = self.cgroups.as_mut();
        let cgroups = cgroups.ok_or_else(|| no("this node has no cgroup v2"))?;
        let unknown = || no(format!("there is no cgroup {id}, or it is not yours"));
        let got = cgroups.get(id);
        let looked_at = cgroups.take_looked_at();
        self.usage.asked(uid, looked_at / LOOKS);
        let cgroup = match got {
            Ok(found) => found.ok_or_else(unknown)?,
            Err(error) => return Err(no(format!("the tracer cannot look up cgroups: {error}"))),
        };
        // The whole node is root's alone, whoever is in it.
        if uid != 0 && cgroup.path == Path::new("/") {
            return Err(unknown());
        }
        let inside = |process: &Process| process.cgroup().is_ok_and(|path| cgroup.holds(&path));
        if uid == 0 || cgroup.owner == uid || [caller, process].into_iter().flatten().any(inside) {
            Ok(cgroup)
        } else {
            Err(unknown())
        }
    }

    /// Forbids files to a trace that has not begun. They count when it begins: the tasks of a step, that bring the
    /// same, join then. Returns how many were taken, and sentences about those that were not.
    ///
    /// # Errors
    /// There would be too many.
    pub fn forbid_later(
        &mut self,
        caller: &Caller,
        registered: &mut Registered,
        with: &[OwnedFd],
    ) -> Result<(u32, Vec<String>), Refusal> {
        let forbidding = self.forbidding(caller, with);
        let most = self.config.limits.forbidden_per_user;
        let all = registered.forbidden.union(&forbidding.files).count();
        if !u32::try_from(all).is_ok_and(|all| all <= most) {
            room(Verdict::User(most), "forbidden files")?;
        }
        registered.forbidden.extend(forbidding.files);
        Ok((forbidding.taken, forbidding.blind))
    }

    /// The same to a trace that goes on.
    ///
    /// # Errors
    /// It has ended, or there would be too many.
    pub fn forbid_now(
        &mut self,
        caller: &Caller,
        id: u32,
        with: &[OwnedFd],
    ) -> Result<(u32, Vec<String>), Refusal> {
        if self.registry.get(id).is_none() {
            return Err(no("the trace has ended"));
        }
        let forbidding = self.forbidding(caller, with);
        let added = self.forbid_in(id, &forbidding.files);
        self.remember();
        added?;
        Ok((forbidding.taken, forbidding.blind))
    }

    /// Looks at the files that these descriptors are of.
    fn forbidding(&mut self, caller: &Caller, with: &[OwnedFd]) -> Forbidding {
        let mut seen = Seen::default();
        if let Ok(process) = &caller.process {
            seen.add(&process.mounts(MOST_MOUNTS).unwrap_or_default());
        }
        // The tracer's own last: nobody can make them look otherwise.
        seen.add(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        let mut blind: BTreeMap<Blind, usize> = BTreeMap::new();
        let mut trusted: BTreeMap<u64, bool> = BTreeMap::new();
        let mut files: BTreeSet<File> = BTreeSet::new();
        let mut taken = 0;
        for descriptor in with {
            match forbidden::identify(descriptor, &seen) {
                Err(reason) => *blind.entry(reason).or_default() += 1,
                Ok(found) => {
                    // fstat(2) is believed for a whole mount once the kernel has said the same.
                    let mut file = found.file;
                    if trusted.get(&found.mount) != Some(&true) {
                        let told = self.kernel.identify(descriptor.as_fd());
                        file = told.unwrap_or(file);
                        trusted.insert(found.mount, file == found.file);
                    }
                    files.insert(file);
                    taken += 1;
                }
            }
        }
        let mut sentences: Vec<String> = blind
            .iter()
            .map(|(reason, count)| reason.sentence(*count))
            .collect();
        sentences.truncate(16);
        Forbidding {
            files,
            taken,
            blind: sentences,
        }
    }

    /// Forbids more in a trace that goes on. What the kernel has not taken is not counted.
    pub(super) fn forbid_in(&mut self, id: u32, files: &BTreeSet<File>) -> Result<(), Refusal> {
        let Some(trace) = self.registry.get_mut(id) else {
            return Ok(());
        };
        let uid = trace.trail.uid;
        for file in files {
            if trace.forbidden.contains(file) {
                continue;
            }
            room(self.usage.forbidden(uid, 1), "forbidden files")?;
            let taken = self.kernel.forbid(id, file.0, file.1);
            taken.map_err(|error| no(format!("the kernel takes no more of them: {error}")))?;
            trace.forbidden.insert(*file);
            self.usage.forbade(uid, 1);
        }
        Ok(())
    }
}
