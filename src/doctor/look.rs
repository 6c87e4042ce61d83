//! Looks at the node, tries what can be tried, and answers with facts.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it looks at the node, and starts programs and sessions"
)]

mod directories;
mod filtered;
mod kernel;
pub(super) mod known;
pub(super) mod nodes;
mod policy;
pub(super) mod run;
mod slurm;
mod tracer;
mod trial;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::Words;
use super::facts::{Bubblewrap, Facts, Jail, Project, Tools, Trouble, User};
use crate::cli::Options;
use crate::env_vars;
use crate::host;
use crate::host::allocation::Detected;
use crate::host::files::HostFiles;
use crate::launch::{self, FIRST_TIMEOUT, Prepared, modules};
use crate::launch::{bubblewrap, choice};
use crate::plan::Plan;
use filtered::Filtered;
use run::{Held, Program};
use trial::{Scratch, Setting};

/// How long a program may take to say its version.
const BRIEFLY: Duration = Duration::from_secs(3);
/// A user who owns nothing (the kernel's overflow user id, user_namespaces(7)).
const NOBODY: u32 = 65534;
/// The program of tmux(1).
const TMUX: &str = "tmux";

/// All facts. `words` says an error as its message and the ways out.
///
/// # Errors
/// There is no telling who asks, or for what: the home directory, the current directory.
pub(super) fn facts(options: &Options, held: &mut Held, words: Words) -> Result<Facts> {
    let trouble = |error: &anyhow::Error| {
        let (message, hints) = words(error);
        Trouble { message, hints }
    };
    let uid = nix::unistd::Uid::current();
    let root = uid.is_root() || nix::unistd::Uid::effective().is_root();
    let files = HostFiles::new(FIRST_TIMEOUT);
    let locations = launch::locations()?;
    let prepared = launch::prepare(options, &[]);
    let mut all = Facts {
        user: User {
            root,
            executable: host::executable()?,
        },
        kernel: kernel::look(),
        jail: Jail {
            asked: options.backend.unwrap_or_default(),
            bubblewrap: bubblewrap(held, &trouble),
            ..Jail::default()
        },
        files: directories::look(&files)?,
        policy: policy::look(&locations, prepared.as_ref().map_err(&trouble)),
        ..Facts::default()
    };
    let environment: Vec<_> = std::env::vars_os().collect();
    all.tools = Tools {
        tmux: in_search_path(TMUX),
        lmod: modules::find(&environment),
    };
    let Ok(mut prepared) = prepared else {
        return Ok(all);
    };
    all.tracer = Some(tracer::look(&mut prepared));
    if root {
        // What belongs to root is trusted by users, and by root it is "your own".
        prepared.host.uid = NOBODY;
        prepared.host.find_slurm(&prepared.policy, &files);
    }
    let unfit = unfit(&prepared);
    let named = options.project.as_ref();
    let given = named.is_some();
    all.files.project = Some(Project {
        path: place(&prepared),
        given,
        trouble: unfit.as_ref().map(&trouble),
    });
    let allocation = match root {
        true => Detected::Nothing,
        false => {
            prepared.find_allocation();
            prepared.allocation.clone()
        }
    };
    all.slurm = slurm::look(held, &prepared, prepared.plan().ok().as_ref());
    if let Some(slurm) = &mut all.slurm {
        slurm.allocation = allocation;
    }
    if root || (unfit.is_some() && given) {
        return Ok(all);
    }
    let scratch = Scratch::new(uid.as_raw())?;
    // In no directory that could be a project the trial has one with nothing in it.
    let prepared = match unfit {
        None => prepared,
        Some(_) => launch::prepare(&elsewhere(options, &scratch), &[])?,
    };
    if self::unfit(&prepared).is_some() {
        return Ok(all);
    }
    let plan = prepared.plan().ok();
    all.files.keeps = plan
        .as_ref()
        .is_some_and(|plan| plan.kept().next().is_some());
    let place = place(&prepared);
    let filtered = Filtered::new(&Options {
        project: Some(place.clone()),
        ..options.clone()
    });
    let tried = trial::all(
        held,
        &Setting {
            options,
            executable: &all.user.executable,
            environment: &environment,
            scratch: &scratch,
            project: &place,
            slurm: plan.as_ref().is_some_and(Plan::wants_chaperon),
            filtered: filtered.as_ref(),
        },
    );
    all.jail.bwrap = tried.bwrap;
    all.jail.landlock = tried.landlock;
    all.jail.session = tried.session;
    all.jail.filtered = tried.filtered;
    if let Some(slurm) = &mut all.slurm {
        slurm.on = plan.as_ref().map(Plan::wants_chaperon);
        slurm.request = tried.request;
    }
    Ok(all)
}

/// The directory in which a session of these options would start.
fn place(prepared: &Prepared) -> PathBuf {
    let named = prepared.invocation.project.as_ref();
    named.unwrap_or(&prepared.invocation.cwd).clone()
}

/// Why the directory can be no project; what is wrong with any project does not count.
fn unfit(prepared: &Prepared) -> Option<anyhow::Error> {
    let error = prepared.plan().err()?;
    match prepared.plan_without_project() {
        Err(other) if other.to_string() == error.to_string() => None,
        Ok(plan) if prepared.can_start(&plan).is_err() => None,
        _ => Some(error),
    }
}

/// The same options with a project that has nothing in it.
fn elsewhere(options: &Options, scratch: &Scratch) -> Options {
    Options {
        project: Some(scratch.project()),
        ..options.clone()
    }
}

fn bubblewrap(held: &mut Held, trouble: &dyn Fn(&anyhow::Error) -> Trouble) -> Bubblewrap {
    let path = match bubblewrap::find() {
        Ok(path) => path,
        Err(error) => {
            return Bubblewrap {
                reason: Some(trouble(&error)),
                ..Bubblewrap::default()
            };
        }
    };
    let meta = std::fs::metadata(&path).ok();
    Bubblewrap {
        version: version(held, &path),
        lacks: host::bubblewrap::lacks(&path),
        set_id: meta.is_some_and(|meta| meta.mode() & 0o4000 != 0),
        reason: choice::found(&path).map(|reason| Trouble {
            message: reason.what,
            hints: reason.hints,
        }),
        path: Some(path),
    }
}

/// What a trusted program says of its version.
fn version(held: &mut Held, program: &Path) -> Option<String> {
    let program = Program {
        words: vec![program.into(), "--version".into()],
        environment: Vec::new(),
        cwd: Some("/".into()),
        patience: BRIEFLY,
    };
    let ran = run::all(held, &[program], 1).pop()?;
    ran.first_line().filter(|_| ran.good())
}

/// A program in the caller's search path, as far as it is absolute. It is not started.
fn in_search_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(env_vars::PATH).unwrap_or_else(|| env_vars::DEFAULT_PATH.into());
    let places = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    places
        .map(|directory| directory.join(name))
        .find(|program| {
            let meta = std::fs::metadata(program);
            meta.is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
        })
}
