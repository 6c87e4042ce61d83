//! What the jail keeps of its own, as far as a launch has to do with it: what is missing is made, kept
//! directories get their links and seeds before the command starts, and logins that were made inside
//! are carried out when it is over.
//!
//! Kept directories hold what hostile commands wrote, and some may still run, in other sessions of the
//! project: no path in them is followed, and nothing of them is trusted.

mod links;
mod logins;
mod logout;
mod missing;
mod seeds;
mod write_back;

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;

use super::left::Left;
use super::prepared::Prepared;
use super::store::{self, Store};
use super::ways;
use crate::failure::{self, one_line};
use crate::plan::model::persistent::{JsonSeed, shown_in};
use crate::plan::{Mount, Plan};
use crate::session;
use links::Instead;
use logins::{Carried, Login};
use logout::Notes;
use seeds::Seeded;
use write_back::Returned;

/// How often is planned anew because something was made. What is made once can show that more is missing.
const MOST_ROUNDS: u32 = 4;

/// What has to be done when the session is over.
#[derive(Debug, Default)]
pub struct StateChanges {
    logins: Vec<Login>,
    /// Files of which values come back, with the kept directory that holds each copy.
    write_backs: Vec<(JsonSeed, PathBuf)>,
    stores: PathBuf,
    home: PathBuf,
    /// Records of sessions, and which of them stands for this one.
    records: PathBuf,
    session: String,
    project: Option<PathBuf>,
    /// What is looked at when the session is over.
    left: Option<Left>,
}

/// Makes everything that the plan needs, and plans.
///
/// # Errors
/// As [`Prepared::plan`]; something that is missing cannot be made; a directory of the store is not as it
/// was made.
pub fn ready(prepared: &mut Prepared) -> Result<(Plan, StateChanges)> {
    let in_job = prepared.invocation.job.is_some();
    let mut plan = prepared.plan()?;
    for _ in 0..MOST_ROUNDS {
        let made = make_missing(&plan)?;
        // A launcher that was killed has not carried its logins out. Jobs leave that to sessions.
        let carried = !in_job && StateChanges::of_plan(prepared, &plan).carry_missing();
        if !made && !carried {
            break;
        }
        prepared.files = prepared.files.anew();
        plan = prepared.plan()?;
    }
    if let Some(what) = plan.keeping.makes.iter().find(|make| make.is_in_home()) {
        let path = what.path().display();
        bail!("`{path}` was made for an agent's state, and is gone again");
    }
    let mut state_changes = match in_job {
        true => StateChanges::default(),
        false => StateChanges::of_plan(prepared, &plan),
    };
    furnish(&mut plan, &state_changes)?;
    if !in_job {
        state_changes.left = Left::begin(prepared, &plan)?;
    }
    Ok((plan, state_changes))
}

/// Makes what is missing in the home directory; whether there was anything.
fn make_missing(plan: &Plan) -> Result<bool> {
    let all = plan.keeping.makes.iter();
    let mut any = false;
    for what in all.filter(|what| what.is_in_home()) {
        missing::make(what)?;
        any = true;
    }
    Ok(any)
}

/// Makes kept directories and what belongs into them.
fn furnish(plan: &mut Plan, state_changes: &StateChanges) -> Result<()> {
    let all: Vec<(PathBuf, PathBuf)> = plan
        .kept()
        .map(|(at, from)| (at.to_path_buf(), from.to_path_buf()))
        .collect();
    let (Some(path), Some(project), false) = (&plan.keeping.store, &plan.project, all.is_empty())
    else {
        return Ok(());
    };
    let mut notes = String::new();
    let store = Store::open(path, &plan.keeping.stores, project)?;
    let logins = logins::of_plan(plan);
    let mut carried = Notes::read(store.held());
    let mut ids = Vec::new();
    for (at, from) in &all {
        let kept = store.directory(from)?;
        ids.push(store::id(&kept)?);
        let told = EntryNames { plan, at };
        for link in plan.kept_links(at) {
            let login = logins
                .iter()
                .find(|login| login.kept == *from && login.below == link.name);
            let target = plan.shown_in_store(&link.at).unwrap_or_default();
            let instead = state_changes.instead(login, &kept);
            match links::make(&kept, &link.name, &target, instead) {
                Ok(moved) => notes.push_str(&told.moved(&link.name, &moved)),
                Err(errno) => return Err(told.cannot(&link.name, errno)),
            }
        }
        for login in plan.keeping.logins.iter() {
            if let Ok(below) = login.kept.strip_prefix(from) {
                // The user has logged out, and an agent could make no file where a link leads nowhere.
                links::remove_link(&kept, below).map_err(|errno| told.cannot(below, errno))?;
            }
        }
        carried.forget(&kept, from);
        for seed in &plan.keeping.seeds {
            if let Ok(below) = seed.to.strip_prefix(from) {
                // A launcher that was killed has brought nothing back.
                if state_changes.project.is_some() && !seed.back.is_empty() {
                    state_changes.bring_back(seed, (&kept, below));
                }
                let seeded = seeds::write_seed(&seed.from, &seed.keys, &kept, below);
                notes.push_str(&told.seeded(below, &seed.from, seeded));
                carried.carried(&seed.from, &seed.to, &seed.keys);
            }
        }
    }
    carried.write(store.held());
    for ((at, _), id) in all.iter().zip(ids) {
        plan.know_kept(at, id);
    }
    failure::say(&notes);
    Ok(())
}

/// Where Landlock is the jail: makes in the store what the links in kept directories lead to, for
/// nothing is mounted there. The jail cannot change it.
///
/// # Errors
/// Something cannot be made.
pub fn show(plan: &Plan) -> Result<()> {
    let (Some(path), Some(project)) = (&plan.keeping.store, &plan.project) else {
        return Ok(());
    };
    let below_kept = plan
        .steps
        .iter()
        .filter(|step| plan.kept_around(&step.at).is_some());
    let mut below_kept = below_kept.peekable();
    if below_kept.peek().is_none() {
        return Ok(());
    }
    let store = Store::open(path, &plan.keeping.stores, project)?;
    let top = shown_in(path);
    let held = store.directory(&top)?;
    let mut whole: Option<&Path> = None;
    for step in below_kept {
        let inside = whole.is_some_and(|whole| step.at.starts_with(whole));
        let shown = plan.shown_in_store(&step.at).unwrap_or_default();
        let Ok(below) = shown.strip_prefix(&top) else {
            continue;
        };
        let failed = || format!("cannot make `{}`", shown.display());
        match &step.mount {
            Mount::Bind { from, .. } if !inside => {
                whole = Some(&step.at);
                links::make(&held, below, from, Instead::Dropped).with_context(failed)?;
            }
            Mount::File { content } if !inside => {
                let above = links::way(&held, below).with_context(failed)?;
                put(&above, store::last(below), content).with_context(failed)?;
            }
            // A directory that is taken apart is made for what stands in it.
            _ => {}
        }
    }
    Ok(())
}

/// Writes a read-only file of ours, unless it says that already. Other sessions may read it.
fn put(above: &OwnedFd, name: &OsStr, content: &[u8]) -> Result<()> {
    let most = content.len() as u64;
    if let Ok(Some(file)) = ways::regular(above, name, OFlag::O_RDONLY)
        && file.content(most)?.as_deref() == Some(content)
    {
        return Ok(());
    }
    let temporary = format!("new.{}", session::new_id()?);
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(above, temporary.as_str(), flags, Mode::S_IRUSR)?;
    std::fs::File::from(file).write_all(content)?;
    Ok(renameat(above, temporary.as_str(), above, name)?)
}

/// How messages name a place in a kept directory.
struct EntryNames<'a> {
    plan: &'a Plan,
    at: &'a Path,
}

impl EntryNames<'_> {
    fn name(&self, below: &Path) -> String {
        named(&self.plan.home, &self.at.join(below))
    }

    fn moved(&self, below: &Path, moved: &[std::ffi::OsString]) -> String {
        let line = |name: &std::ffi::OsString| {
            let (at, name) = (self.name(below), one_line(&name.to_string_lossy()));
            format!(
                "agent-sandbox: note: `{at}`: an agent put something in its place in this project's state; it is \
                 called `{name}` now\n"
            )
        };
        moved.iter().map(line).collect()
    }

    fn seeded(&self, below: &Path, from: &Path, seeded: std::io::Result<Seeded>) -> String {
        let (at, from) = (self.name(below), named(&self.plan.home, from));
        let why = match seeded {
            Ok(Seeded::Already | Seeded::Written) => return String::new(),
            Ok(Seeded::NoObject) => "it holds no JSON object".to_owned(),
            Err(error) => error.to_string(),
        };
        format!(
            "agent-sandbox: note: `{at}` in this project's state gets nothing from `{from}`: {why}\n"
        )
    }

    fn cannot(&self, below: &Path, errno: Errno) -> anyhow::Error {
        let why = match errno {
            Errno::EBUSY => "another session of this project keeps changing it",
            errno => errno.desc(),
        };
        let store = self.plan.keeping.store.as_deref().unwrap_or(self.at);
        failure::Failure::new(format!(
            "cannot show `{}` in this project's state: {why}",
            self.name(below)
        ))
        .hint(format!(
            "try again; `{}` is this project's state, and can be removed while no session runs",
            store.display()
        ))
        .into()
    }
}

/// A path as the user would name it, in one line.
fn named(home: &Path, path: &Path) -> String {
    let name = match path.strip_prefix(home) {
        Ok(below) => Path::new("~").join(below),
        Err(_) => path.to_path_buf(),
    };
    one_line(&name.to_string_lossy())
}

/// The seeds of which something comes back, and the kept directory around each.
fn write_backs_of(plan: &Plan) -> Vec<(JsonSeed, PathBuf)> {
    let all = plan
        .keeping
        .seeds
        .iter()
        .filter(|seed| !seed.back.is_empty());
    all.filter_map(|seed| {
        let (_, kept) = plan.kept().find(|(_, kept)| seed.to.starts_with(kept))?;
        Some((seed.clone(), kept.to_path_buf()))
    })
    .collect()
}

impl StateChanges {
    fn of_plan(prepared: &Prepared, plan: &Plan) -> Self {
        let host = &prepared.host;
        Self {
            logins: logins::of_plan(plan),
            write_backs: write_backs_of(plan),
            stores: plan.keeping.stores.clone(),
            home: plan.home.clone(),
            records: session::directory(host.uid, &host.state_directory),
            session: plan.session.clone(),
            project: plan.project.clone(),
            left: None,
        }
    }

    /// Carries out the logins that the user has none of; whether there was one.
    fn carry_missing(&self) -> bool {
        let missing = self.logins.iter().filter(|login| !login.exists);
        missing.filter(|login| self.carry(login)).count() > 0
    }

    /// Carries a login out, says so if the user had none, and answers whether that is so.
    fn carry(&self, login: &Login) -> bool {
        let Some(kept) = login.kept_directory(&self.stores) else {
            return false;
        };
        let host = named(&self.home, &login.host);
        match login.carry(&kept) {
            Ok(Carried::New) => {
                failure::say(&format!(
                    "agent-sandbox: the login made in this project was kept: {host}\n"
                ));
                if !self.is_shared() {
                    login.forget(&kept);
                }
                true
            }
            Ok(Carried::Nothing | Carried::Renewed) => false,
            Ok(Carried::Unfit) => {
                failure::say(&format!(
                    "agent-sandbox: note: what an agent wrote as `{host}` is no login file, and stays in this project\n"
                ));
                false
            }
            Err(error) => {
                let error = one_line(&error.to_string());
                failure::say(&format!(
                    "agent-sandbox: note: the login made in this project cannot be kept as `{host}`: {error}\n"
                ));
                false
            }
        }
    }

    /// What becomes of a file where a link belongs. A login that another session works with stays, and
    /// a job leaves it to sessions.
    fn instead(&self, login: Option<&Login>, kept: &OwnedFd) -> Instead {
        let Some(login) = login.filter(|login| login.kept_file(kept).is_some()) else {
            return Instead::Aside;
        };
        if self.project.is_none() {
            return Instead::Stays;
        }
        match login.carry(kept) {
            Ok(Carried::Unfit) | Err(_) => Instead::Aside,
            Ok(_) if self.is_shared() => Instead::Stays,
            Ok(_) => Instead::Dropped,
        }
    }

    /// Whether another session of this project runs on this node, as far as anybody knows. In a job
    /// nobody does.
    fn is_shared(&self) -> bool {
        let Some(project) = &self.project else {
            return true;
        };
        let Ok(all) = session::running(&self.records) else {
            return true;
        };
        all.iter()
            .any(|other| other.id != self.session && other.project == *project)
    }

    /// The session is over: carries the logins out that were made in it.
    pub fn end(mut self) {
        drop(self.left.take());
        for login in &self.logins {
            self.carry(login);
        }
        for (seed, kept) in &self.write_backs {
            let Ok(below) = seed.to.strip_prefix(kept) else {
                continue;
            };
            if let Some(kept) = store::existing(kept, &self.stores) {
                self.bring_back(seed, (&kept, below));
            }
        }
    }

    /// Takes back what may come of a kept login.
    fn bring_back(&self, seed: &JsonSeed, kept: (&OwnedFd, &Path)) {
        let host = named(&self.home, &seed.from);
        match write_back::take(&seed.from, &seed.back, kept) {
            Ok(Returned::Nothing | Returned::Renewed) => {}
            Err(error) => failure::say(&format!(
                "agent-sandbox: note: the login of this project cannot be kept as `{host}`: {}\n",
                one_line(&error.to_string())
            )),
        }
    }
}
