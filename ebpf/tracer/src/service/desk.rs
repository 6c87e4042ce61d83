//! Requests: what may be asked, by whom, and what is answered.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads the tracer's own table of mounts"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use agent_sandbox_events::protocol::{
    DESCRIPTORS, Listed, Register, Request, Response, Status, VERSION, Which,
};
use agent_sandbox_events::record::Trail;

use super::cgroups::Cgroup;
use super::client::{Client, Follow, LINES_BYTES, Registered, Tracing};
use super::forbidden::{self, Blind, MOST_MOUNTS, Seen};
use super::kernel::Kernel;
use super::limits::{COSTLY, Verdict};
use super::process::{Process, is_short};
use super::registry::{File, Trace};
use super::serve::{SHORT, Service};
use super::wish::{self, Wish};
use crate::trail::Redaction;

/// Looking for a cgroup in so many directories costs as much as a request.
const LOOKS: u32 = 25;

/// Why something is refused, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Why.
    pub why: String,
    /// What to do instead.
    pub hint: Option<String>,
}

/// A refusal without a hint.
pub(super) fn no(why: impl Into<String>) -> Refusal {
    Refusal {
        why: why.into(),
        hint: None,
    }
}

/// A refusal with one.
pub(super) fn instead(why: impl Into<String>, hint: &str) -> Refusal {
    Refusal {
        why: why.into(),
        hint: Some(hint.to_owned()),
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        Response::Refused {
            why: refusal.why,
            hint: refusal.hint,
        }
    }
}

/// A refusal to read.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unreadable(error: std::io::Error) -> Refusal {
    no(format!("the records cannot be read: {error}"))
}

/// What a refusal of a trace by its number of things says.
pub(super) fn room(verdict: Verdict, things: &str) -> Result<(), Refusal> {
    match verdict {
        Verdict::Room => Ok(()),
        Verdict::User(most) => Err(instead(
            format!("you have {most} {things} already"),
            "the node's administrators can set more in `[limits]` of tracer.toml",
        )),
        Verdict::All(most) => Err(no(format!(
            "all users together may have {most} {things}, and most of them are taken"
        ))),
    }
}

/// What a request costs, in requests.
#[must_use]
pub(super) fn cost(request: &Request, descriptors: usize) -> u32 {
    match request {
        Request::Register(_) | Request::Status { .. } => 1,
        Request::Forbid { .. } => 2 + u32::try_from(descriptors / 25).unwrap_or(u32::MAX),
        Request::Begin | Request::End | Request::List { .. } | Request::Read { .. } => COSTLY,
    }
}

fn version(version: u32) -> Result<(), Refusal> {
    if version == VERSION {
        return Ok(());
    }
    Err(instead(
        format!("this is version {VERSION} of the conversation, and not {version}"),
        "use a launcher and a tracer of the same version",
    ))
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

impl<K: Kernel> Service<K> {
    /// Answers one request.
    pub(super) fn request(&mut self, client: &mut Client, request: Request, with: &[OwnedFd]) {
        if client.follow.is_some() {
            client.answer(&no("this connection follows records: open another one").into());
            return;
        }
        if !with.is_empty() && !matches!(request, Request::Forbid { .. }) {
            client.answer(&no("descriptors without a use").into());
            client.closing = true;
            return;
        }
        let answered = match request {
            Request::Register(register) => self.register(client, register),
            Request::Forbid { version: is } => version(is).and_then(|()| self.forbid(client, with)),
            Request::Begin => self.begin(client),
            Request::End => self.end_asked(client),
            Request::List { version: is } => version(is).and_then(|()| self.list(client)),
            Request::Read {
                version: is,
                which,
                history,
                follow,
            } => match version(is).and_then(|()| self.read(client, which, history, follow)) {
                Ok(None) => return,
                Ok(Some(response)) => Ok(response),
                Err(refusal) => Err(refusal),
            },
            Request::Status { version: is } => version(is).map(|()| self.status()),
        };
        client.answer(&answered.unwrap_or_else(Response::from));
    }

    fn register(
        &mut self,
        client: &mut Client,
        register: Box<Register>,
    ) -> Result<Response, Refusal> {
        version(register.version)?;
        if !matches!(client.tracing, Tracing::None) {
            return Err(no("this connection has a trace already: open another one"));
        }
        if let Some(wrong) = wish::misnamed(&register) {
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
        let caller = match client.process() {
            Ok(caller) => Some(caller),
            Err(error) if is_short(&error) => return Err(self.short(error)),
            Err(_) => None,
        };
        let process = match scope.process {
            None => None,
            Some(pid) => Some(self.process(client, caller.as_ref(), pid)?),
        };
        let cgroup = match scope.cgroup {
            None => None,
            Some(id) => Some(self.cgroup(client, caller.as_ref(), process.as_ref(), id)?),
        };
        is_its_job(&register, process.as_ref())?;
        let uid = match (client.peer.uid, &process, &cgroup) {
            (0, Some(process), _) => process.uids[0],
            (0, None, Some(cgroup)) => cgroup.owner,
            (uid, ..) => uid,
        };
        if let Some(id) = scope.cgroup {
            let holder = self.registry.of_cgroup(id, None);
            let holder = holder.and_then(|holder| self.registry.get(holder));
            if holder.is_some_and(|holder| holder.trail.uid != uid) {
                return Err(no("this cgroup is traced for another user"));
            }
        }
        let wish = Wish::new(&register, &self.config.demand);
        let mut registered = Registered {
            id: 0,
            joins: false,
            register,
            wish,
            uid,
            process,
            forbidden: BTreeSet::new(),
        };
        let like = self.trace_of(&registered, None);
        let mut joined = self.to_join(&like);
        if joined.is_none() && self.usage.trace(uid) != Verdict::Room {
            self.make_room(uid);
        }
        let mut crowded = Vec::new();
        if joined.is_none() && self.usage.crowded(uid, 1, 0) {
            joined = self.stand_in(&like, |_, _| true);
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
        let trace = registered.id;
        let about = self.kernel.about();
        let mut blind = about.blind.clone();
        blind.extend(crowded);
        if registered.wish.denies() && !about.enforces {
            blind.push("nothing is denied: the kernel does not let the tracer".to_owned());
        }
        client.tracing = Tracing::Registered(registered);
        Ok(Response::Registered { trace, blind })
    }

    /// The trace that a task of a step will join: one that goes on, or that another task is about to begin.
    fn to_join(&self, like: &Trace) -> Option<u32> {
        let joined = self.registry.joined_by(&like.trail, like);
        joined
            .filter(|id| !self.ending.contains_key(id))
            .or_else(|| {
                self.clients
                    .values()
                    .find_map(|client| match &client.tracing {
                        Tracing::Registered(other) if !other.joins => {
                            let trace = self.trace_of(other, None);
                            trace.is_joined_by(&like.trail, like).then_some(other.id)
                        }
                        _ => None,
                    })
            })
    }

    /// The trace that comes of a registration.
    pub(super) fn trace_of(&self, registered: &Registered, parent: Option<u32>) -> Trace {
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
            parent,
            wish: registered.wish.clone(),
            applied: registered.wish.clone(),
            forbidden: registered.forbidden.clone(),
            lifetime: register.lifetime,
            processes: registered.process.iter().map(|held| held.named).collect(),
            descendants: register.scope.descendants,
            cgroup: register.scope.cgroup,
            command: wish::shortened(&register.command),
            redact: register.redact.clone(),
            job_unverified: !is_known(register.job, registered.process.as_ref()),
        }
    }

    /// The process that a caller names.
    fn process(
        &mut self,
        client: &Client,
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
        let process = match Process::open(pid) {
            Ok(process) => process,
            Err(error) if is_short(&error) => return Err(self.short(error)),
            Err(_) => return Err(unknown()),
        };
        if client.peer.uid != 0 && !process.is_of(client.peer.uid) {
            return Err(unknown());
        }
        Ok(process)
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
        client: &Client,
        caller: Option<&Process>,
        process: Option<&Process>,
        id: u64,
    ) -> Result<Cgroup, Refusal> {
        let cgroups = self.cgroups.as_mut();
        let cgroups = cgroups.ok_or_else(|| no("this node has no cgroup v2"))?;
        let unknown = || no(format!("there is no cgroup {id}, or it is not yours"));
        let got = cgroups.get(id);
        let looked_at = cgroups.take_looked_at();
        self.usage.asked(client.peer.uid, looked_at / LOOKS);
        let cgroup = match got {
            Ok(found) => found.ok_or_else(unknown)?,
            Err(error) => return Err(no(format!("the tracer cannot look up cgroups: {error}"))),
        };
        let uid = client.peer.uid;
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

    fn forbid(&mut self, client: &mut Client, with: &[OwnedFd]) -> Result<Response, Refusal> {
        if with.is_empty() || with.len() > DESCRIPTORS {
            return Err(no("no descriptors, or too many"));
        }
        match &client.tracing {
            Tracing::None => return Err(no("register a trace first")),
            Tracing::Begun(id) if self.registry.get(*id).is_none() => {
                return Err(no("the trace has ended"));
            }
            Tracing::Registered(_) | Tracing::Begun(_) => {}
        }
        let mut seen = Seen::default();
        if let Ok(process) = client.process() {
            seen.add(&process.mounts(MOST_MOUNTS).unwrap_or_default());
        }
        // The tracer's own last: nobody can make them look otherwise.
        seen.add(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        let mut blind: BTreeMap<Blind, usize> = BTreeMap::new();
        let mut trusted: BTreeMap<u64, bool> = BTreeMap::new();
        let mut files: BTreeSet<File> = BTreeSet::new();
        let mut taken = 0;
        for descriptor in with {
            match forbidden::look(descriptor, &seen) {
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
        match &mut client.tracing {
            // They count when the trace begins: the tasks of a step, that bring the same, join then.
            Tracing::Registered(registered) => {
                let most = self.config.limits.forbidden_per_user;
                let all = registered.forbidden.union(&files).count();
                if u32::try_from(all).is_ok_and(|all| all <= most) {
                    registered.forbidden.extend(files);
                } else {
                    room(Verdict::User(most), "forbidden files")?;
                }
            }
            Tracing::Begun(id) => {
                let ids = self.registry.with_descendants(*id);
                let added = self.forbid_in(&ids, &files);
                self.remember();
                added?;
            }
            Tracing::None => {}
        }
        let mut sentences: Vec<String> = blind
            .iter()
            .map(|(reason, count)| reason.sentence(*count))
            .collect();
        sentences.truncate(16);
        Ok(Response::Forbidden {
            taken,
            blind: sentences,
        })
    }

    /// Forbids more in traces that go on. What the kernel has not taken is not counted.
    pub(super) fn forbid_in(&mut self, ids: &[u32], files: &BTreeSet<File>) -> Result<(), Refusal> {
        for id in ids {
            let Some(trace) = self.registry.get_mut(*id) else {
                continue;
            };
            let uid = trace.trail.uid;
            for file in files {
                if trace.forbidden.contains(file) {
                    continue;
                }
                room(self.usage.forbidden(uid, 1), "forbidden files")?;
                let taken = self.kernel.forbid(*id, file.0, file.1);
                taken.map_err(|error| no(format!("the kernel takes no more of them: {error}")))?;
                trace.forbidden.insert(*file);
                self.usage.forbade(uid, 1);
            }
        }
        Ok(())
    }

    fn list(&mut self, client: &Client) -> Result<Response, Refusal> {
        let mut room = LINES_BYTES;
        let mut fits = |listed: &Listed| {
            let words = [&listed.session, &listed.step].into_iter().flatten();
            let size = 64 + listed.node.len() + words.map(String::len).sum::<usize>();
            let left = room.checked_sub(size);
            room = left.unwrap_or(0);
            left.is_some()
        };
        let all = self.trails.list(client.peer.uid).map_err(unreadable)?;
        let listed = all.into_iter().take_while(|listed| fits(listed));
        Ok(Response::Trails(listed.collect()))
    }

    /// Begins to read; no answer: it comes by itself.
    fn read(
        &mut self,
        client: &mut Client,
        which: Which,
        history: bool,
        follow: bool,
    ) -> Result<Option<Response>, Refusal> {
        if !matches!(client.tracing, Tracing::None) {
            return Err(no("this connection has a trace: open another one to read"));
        }
        let viewer = client.peer.uid;
        let which = match which {
            Which::Newest => match self.trails.newest(viewer).map_err(unreadable)? {
                Some(which) => which,
                None => return Err(no("nothing of yours has been recorded here")),
            },
            which => which,
        };
        if !history && !follow {
            return Ok(Some(Response::Done));
        }
        // What is written up to now is read; what comes later is live: none is missed, none is sent twice.
        self.spread();
        if history {
            let reader = self.trails.reader(viewer, &which);
            client.reader = Some(reader.map_err(unreadable)?);
        }
        client.done_after_reading = !follow;
        if follow {
            client.follow = Some(Follow { which });
            self.followers += 1;
            self.trails.watch(true);
        }
        Ok(None)
    }

    fn status(&mut self) -> Response {
        let about = self.kernel.about();
        let state = self.trails.state();
        Response::Status(Box::new(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: about.kernel.clone(),
            object: about.object.clone(),
            enforces: about.enforces,
            blind: about.blind.clone(),
            proved: about.proved.clone(),
            traces: u32::try_from(self.registry.len()).unwrap_or(u32::MAX),
            events: state.events,
            lost: state.lost + self.kernel.misses() + self.unreadable,
            records: self.config.records.display().to_string(),
            trouble: state.trouble.into_iter().take(16).collect(),
        }))
    }
}
