//! The node's tracer: found, asked to trace a jail, and left alone. What it is asked stands in the plan
//! ([`crate::plan::build::trace`]).
//!
//! The process that becomes the command has confined itself then, and is held (`handoff::Report::Held`): nothing of
//! the jail has run, and no path that was chosen inside been opened, before it is traced. The tracer keeps the trace
//! until the last process has ended; no connection stays open for it. What it must deny is named by descriptors that
//! were opened before, as paths may be changed by whoever has them.

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::protocol::{
    DESCRIPTORS, Enforce, Lifetime, Register, Request, Response, Scope, VERSION,
};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};

use super::observed;
use super::prepared::Prepared;
use super::tracer::{PATIENCE, SOON, TracerState, Trouble, connect, slow};
use crate::config::site::Site;
use crate::failure::{self, Failure};
use crate::observe::trail::Traced;
use crate::plan::Plan;
use crate::plan::model::trace::{RawPath, TraceRequest, told};
use crate::sys::paths;

/// As many things are forbidden at most: each is an open file for a moment, of which a process usually has 1024.
const MOST_FORBIDDEN: usize = 750;

/// A tracer that waits for the jail's first process.
#[derive(Debug)]
pub struct Tracer {
    connection: Connection,
    request: TraceRequest,
    forbidden: Vec<OwnedFd>,
    /// Whether what is lacking is said.
    says: bool,
    /// Whether it was said that it is slow.
    waits: Cell<bool>,
    /// Whether nobody demands the second layer: it only tells more, where there is one.
    modest: bool,
}

impl Prepared {
    /// Makes the tracer ready for the jail of a plan; `None` if it is not traced. What cannot be had and is not
    /// required is said if `says`, but not that there is no tracer.
    ///
    /// # Errors
    /// The policy demands what cannot be had.
    pub fn tracer(&mut self, plan: &Plan, says: bool) -> Result<Option<Tracer>, Failure> {
        match &plan.trace.request {
            Some(request) => {
                let modest = self.recorder.is_some() && observed::asks_for_audit(&self.policy);
                let ready = ready(std::mem::take(&mut self.tracer), request, says, modest)?;
                self.is_traced = ready.is_some();
                Ok(ready)
            }
            None => Ok(None),
        }
    }
}

/// The same for a task that joins a jail which another process planned. One task of a step is enough to say
/// what is lacking.
///
/// # Errors
/// As [`Prepared::tracer`].
pub fn for_task(request: &TraceRequest, says: bool) -> Result<Option<Tracer>, Failure> {
    let site = Site::of_this_build();
    let found = connect(request.socket.path(), &site);
    ready(found, request, says, false)
}

fn ready(
    found: TracerState,
    request: &TraceRequest,
    says: bool,
    modest: bool,
) -> Result<Option<Tracer>, Failure> {
    let connection = match found {
        TracerState::Unwanted => return Ok(None),
        TracerState::Listens(connection) => connection,
        TracerState::Unfit(trouble) => return without(request, trouble, says).map(|()| None),
        TracerState::Nothing => {
            let what = format!(
                "no tracer runs on this node (nobody listens at `{}`)",
                request.socket.path().display()
            );
            let hint = "admin: start agent-sandbox-tracer on this node".to_owned();
            let trouble = Trouble::new(what, Some(hint));
            // That there is none is as usual as that there is one, but for who wants it to deny.
            return match (request.required, request.enforce) {
                (false, Enforce::Off | Enforce::Audit) => Ok(None),
                _ => without(request, trouble, says).map(|()| None),
            };
        }
    };
    let mut tracer = Tracer {
        connection,
        request: request.clone(),
        forbidden: Vec::new(),
        says,
        waits: Cell::new(false),
        modest,
    };
    match tracer.arm() {
        Ok(()) => Ok(Some(tracer)),
        Err(trouble) => without(request, trouble.of_one_who_listens(), says).map(|()| None),
    }
}

/// What becomes of a launch that cannot be traced as asked.
fn without(request: &TraceRequest, trouble: Trouble, says: bool) -> Result<(), Failure> {
    let Trouble {
        what,
        hint,
        listens,
    } = trouble;
    if request.required {
        let mut failure = Failure::new(format!(
            "the policy demands that this is traced, and it cannot be: {what}"
        ));
        failure.hints.extend(hint);
        return Err(failure.hint(format!("what demands it: {}", request.rule)));
    }
    if request.held && listens {
        let mut failure = Failure::new(format!(
            "the session of this job was to be traced, and this cannot be: {what}"
        ));
        failure.hints.extend(hint);
        return Err(failure.hint(format!("what asks for it: {}", request.rule)));
    }
    warn(says, &format!("this is not traced: {what}"));
    Ok(())
}

fn warn(says: bool, what: &str) {
    if says {
        let what = failure::one_line(what);
        failure::say(&format!("agent-sandbox: warning: {what}\n"));
    }
}

impl Tracer {
    /// Asks, and waits: for one that is slow too, which is said once.
    fn ask(&self, request: &Request, files: &[BorrowedFd<'_>]) -> Result<Response, Unanswered> {
        match self.connection.ask_with(request, files) {
            Err(Unanswered::Broken(error))
                if error.kind() == io::ErrorKind::WouldBlock && !self.waits.replace(true) =>
            {
                if self.says {
                    slow();
                }
                self.connection.wait_for(PATIENCE - SOON)?;
                let answer = self.connection.next();
                self.connection.wait_for(PATIENCE)?;
                answer
            }
            answer => answer,
        }
    }

    /// Makes the second layer ready, if one is asked for.
    fn arm(&mut self) -> Result<(), Trouble> {
        if self.request.enforce == Enforce::Off {
            return Ok(());
        }
        let request = Request::Status { version: VERSION };
        let Response::Status(status) = self.ask(&request, &[])? else {
            return Err(Unanswered::Strange.into());
        };
        if self.modest {
            if !status.enforces || self.open_forbidden().is_err() {
                self.forbidden.clear();
                self.request.enforce = Enforce::Off;
            }
            return Ok(());
        }
        if status.enforces {
            return self.open_forbidden();
        }
        let what = format!(
            "the tracer can deny nothing on this kernel ({} {}), and {} asks for it",
            failure::one_line(&status.object),
            failure::one_line(&status.kernel),
            self.request.enforce_rule
        );
        if self.request.required {
            let hint = "`agent-sandbox doctor` says what it needs for that".to_owned();
            return Err(Trouble::new(what, Some(hint)));
        }
        warn(self.says, &what);
        self.request.enforce = Enforce::Off;
        Ok(())
    }

    /// Opens what is forbidden, as it is at this moment.
    fn open_forbidden(&mut self) -> Result<(), Trouble> {
        let shown = identities(&self.request.shown);
        for path in &self.request.forbidden {
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let file = match open(path.path(), flags, Mode::empty()) {
                Ok(file) => file,
                // Gone, or where the caller cannot get: neither can the jail.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => continue,
                Err(errno) => {
                    let what = format!("cannot open `{}`: {errno}", path.path().display());
                    return Err(Trouble::new(what, None));
                }
            };
            let found = fstat(&file).map_err(|errno| Trouble::new(errno.to_string(), None))?;
            // The jail shows it, or something in it, by another name.
            if shown.contains(&(found.st_dev, found.st_ino)) {
                continue;
            }
            if self.forbidden.len() == MOST_FORBIDDEN {
                let what =
                    format!("the policy hides more than {MOST_FORBIDDEN} files and directories");
                let hint = "name directories in files.hide, in place of what is in them".to_owned();
                return Err(Trouble::new(what, Some(hint)));
            }
            self.forbidden.push(file);
        }
        Ok(())
    }

    /// Where a session has a cgroup of its own: the session. Slurm has made the cgroups of a job, and they are root's.
    /// What is traced is not what is in them: the launcher and the chaperon are as well, which would fill the trail and
    /// be denied what is the jail's alone to miss.
    pub fn session(&self) -> Option<&str> {
        (self.request.step.is_none()).then_some(&self.request.session)
    }

    /// Has a process traced, with all that it has started, and all that is in a cgroup. Returns when the trace has
    /// begun, and says which it is; the connection is closed then. `command` is for the trail's header.
    ///
    /// # Errors
    /// The policy demands it, and it cannot be had.
    pub fn begin(
        self,
        process: u32,
        command: &[Vec<u8>],
        cgroup: Option<u64>,
    ) -> Result<Option<Traced>, Failure> {
        let (request, says) = (self.request.clone(), self.says);
        match self.conversation(process, command, cgroup) {
            Ok(traced) => Ok(Some(traced)),
            Err(trouble) => without(&request, trouble.of_one_who_listens(), says).map(|()| None),
        }
    }

    fn conversation(
        self,
        process: u32,
        command: &[Vec<u8>],
        cgroup: Option<u64>,
    ) -> Result<Traced, Trouble> {
        let (request, says) = (self.request.clone(), self.says);
        let required = request.required && request.enforce == Enforce::On;
        let (job, step) = request.step.unzip();
        let register = Register {
            version: VERSION,
            session: Some(request.session.clone()),
            job,
            step,
            command: told(command),
            scope: Scope {
                process: Some(process),
                descendants: true,
                cgroup,
            },
            events: request.events,
            every: request.every,
            missing: request.missing,
            hidden: request.hidden,
            redact: request.redact,
            enforce: request.enforce,
            no_internet: request.no_internet,
            no_user_namespace: request.no_user_namespace,
            lifetime: Lifetime::Tasks,
        };
        let done = |response| match response {
            Response::Done => Ok(()),
            _ => Err(Trouble::from(Unanswered::Strange)),
        };
        let trace = match self.ask(&Request::Register(Box::new(register)), &[])? {
            Response::Registered { trace, .. } => trace,
            _ => return Err(Unanswered::Strange.into()),
        };
        for some in self.forbidden.chunks(DESCRIPTORS) {
            let lent: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
            let answer = self.ask(&Request::Forbid { version: VERSION }, &lent);
            if self.modest {
                // There is no room for more, for example: so much less is told.
                match answer {
                    Ok(_) => continue,
                    Err(Unanswered::Refused { .. }) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            match answer? {
                Response::Forbidden { blind, .. } if blind.is_empty() => {}
                Response::Forbidden { blind, .. } => {
                    let what = format!(
                        "not all of what is hidden can be denied: {}",
                        blind.join("; ")
                    );
                    match required {
                        true => return Err(Trouble::new(what, None)),
                        false => warn(says, &what),
                    }
                }
                _ => return Err(Unanswered::Strange.into()),
            }
        }
        done(self.ask(&Request::Begin, &[])?)?;
        Ok(Traced {
            session: request.session,
            trace,
            first: process,
        })
    }
}

/// Device and inode of these, and of every directory above them.
fn identities(shown: &[RawPath]) -> HashSet<(u64, u64)> {
    let mut names: HashSet<&Path> = HashSet::new();
    for path in shown {
        for above in path.path().ancestors() {
            // Those above it were taken with it.
            if !names.insert(above) {
                break;
            }
        }
    }
    // No link counts, the last part of the path or one in its middle: an earlier session can have put one where a
    // shown directory stood, to something hidden. Where the kernel cannot say that, before Linux 5.6, nothing is shown.
    let found = names
        .into_iter()
        .filter_map(|path| paths::pin_plain(path).and_then(fstat).ok());
    found.map(|found| (found.st_dev, found.st_ino)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    /// Whether a path is taken for one that is shown.
    fn is_shown(shown: &[&Path], path: &Path) -> bool {
        let shown: Vec<RawPath> = shown.iter().map(|path| RawPath::from(*path)).collect();
        let found = fs::metadata(path).unwrap();
        identities(&shown).contains(&(found.dev(), found.ino()))
    }

    #[test]
    fn a_link_in_a_shown_path_spares_nothing_that_is_forbidden() {
        let place = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(place.path()).unwrap();
        let forbidden = place.join("forbidden");
        fs::create_dir_all(forbidden.join("sub/keys")).unwrap();
        let project = place.join("project");
        fs::create_dir_all(project.join("data/sub/keys")).unwrap();
        let shown = project.join("data/sub/keys");
        assert!(is_shown(&[&shown], &shown));
        assert!(is_shown(&[&shown], &project.join("data")));

        // The session moves its directory away, and puts a link there.
        fs::rename(project.join("data"), project.join("moved")).unwrap();
        symlink(&forbidden, project.join("data")).unwrap();
        for below in ["", "sub", "sub/keys"] {
            assert!(!is_shown(&[&shown], &forbidden.join(below)), "{below}");
        }
        // As the last part of the path, too.
        assert!(!is_shown(&[&project.join("data")], &forbidden));
        assert!(is_shown(&[&shown], &project));
    }
}
