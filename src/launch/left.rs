//! What a session leaves for programs outside: settings of agents and editors, hooks and configuration of git in a
//! project, which name commands that a later `claude`, `code` or `git` of the user runs. What is new at the end of a
//! session is said by name. What names programs by itself is set aside besides, under another name beside its own,
//! and is there again in the next session of the project (decision 0024).
//!
//! Everything in the project was written by hostile commands. The record of what stood there before stands
//! where no jail reaches.

mod git_config;
mod look;
pub(in crate::launch) mod record;

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::fcntl::{OFlag, renameat};

use super::prepared::Prepared;
use super::store::of_project;
use super::ways::{self, Missing};
use crate::failure::{self, one_line};
use crate::host::files::real_as_far_as_it_exists;
use crate::plan::Plan;
use crate::plan::build::obeyed;
use crate::plan::build::obeyed::Care;
use crate::plan::model::persistent;
use crate::policy::{Git, Settings};
use crate::session;
use crate::sys::paths::{self, by_descriptor};
use look::{GIT, Mark, ObeyedFile, Seen};
use record::{Below, Open, Own, Record};

/// How long a launch looks through a project before the command starts.
const AT_THE_START: Duration = Duration::from_millis(400);
/// And when it is over: nobody waits for a command then.
const AT_THE_END: Duration = Duration::from_secs(2);
/// What is appended to the name of what is set aside.
const ASIDE: &str = ".from-agent-sandbox";
/// Names that are said; the others stand in a file.
const MOST_SAID: usize = 30;
/// That file, in the project's store.
const LIST: &str = "left.txt";
/// Notes that are kept whole, in bytes: each, and all together.
const LARGEST_NOTES: u64 = 256 << 10;
const MOST_NOTES: usize = 1 << 20;
/// A session of another node counts as one that runs for so long, in seconds: a week.
const LONGEST_SESSION: u64 = 7 * 24 * 3600;
/// A session's jobs may have run on for so long, in seconds: two weeks.
const LONGEST_JOB: u64 = 14 * 24 * 3600;
/// By so many seconds the clock of a file system may be behind that of the node.
const SKEW: u64 = 120;

/// Looks after one session's project.
#[derive(Debug)]
pub struct Left {
    project: PathBuf,
    store: PathBuf,
    stores: PathBuf,
    /// Records of running sessions, and which of them is this one.
    records: PathBuf,
    session: String,
    /// Whether settings are set aside, and whether git's files are.
    protects: (bool, bool),
    /// The launcher, once there is something to end: what it forks ends without a word.
    pid: Option<u32>,
}

/// What became of a file.
enum Became {
    /// It has another name now.
    Aside(OsString),
    /// It stays, for this reason.
    Stays(String),
}

impl Left {
    /// Notes what stands in the project before the session's command starts, and puts back what earlier
    /// sessions left. The plan is made: what is put back is as writable as the session left it.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn begin(prepared: &Prepared, plan: &Plan) -> Result<Option<Self>> {
        let Some(project) = plan.project.clone() else {
            return Ok(None);
        };
        let (host, policy) = (&prepared.host, &prepared.policy.project);
        // Where the plan has it, too: a home may have a link in its path.
        let state = real_as_far_as_it_exists(&prepared.files, &host.state_directory);
        let mut left = Self {
            store: persistent::store(&state, Some(&project)),
            stores: persistent::stores(&state),
            records: session::directory(host.uid, &host.state_directory),
            session: plan.session.clone(),
            protects: (
                policy.settings.value == Settings::Protect,
                policy.git.value == Git::Protect,
            ),
            project,
            pid: None,
        };
        let store = left.open_store()?;
        let Some(at) = left.directory() else {
            bail!("cannot open the project `{}`", left.project.display());
        };
        let _alone = Record::lock(&store);
        let mut record = Record::read(&store);
        let (here, elsewhere) = left.others(&record);
        if record.open.is_empty() {
            let seen = look::through(&at, AT_THE_START);
            let jobs_since = may_run_on(record.jobs_since);
            if jobs_since > 0 {
                let since = "new since the last session here, and jobs of earlier ones could write";
                left.tell(&at, &store, &record, &seen, since);
            }
            record = Record {
                own: own_notes(&at, &seen),
                complete: seen.complete,
                levels: seen.levels,
                more: seen.more,
                since: session::now(),
                known: marks(&seen),
                jobs_since,
                closed: seen.closed.iter().cloned().map(Below).collect(),
                aside: record.aside,
                ..Record::default()
            };
        } else if here.is_empty() && elsewhere.is_empty() {
            // A launcher was killed: what its session left has been there since.
            let seen = look::through(&at, AT_THE_START);
            let by = "left by a session that did not end";
            left.tell(&at, &store, &record, &seen, by);
        }
        record.open = [here, elsewhere].concat();
        record.open.push(Open::own(&left.session));
        record.write(&store)?;
        left.pid = Some(std::process::id());
        let restored = restore(&at, &record);
        if !restored.is_empty() {
            record.restored.extend(restored);
            record.write(&store)?;
        }
        Ok(Some(left))
    }

    /// The session is over: says what it left, and sets aside what may not stay.
    fn end(&self) {
        let (Some(at), Ok(store)) = (self.directory(), self.open_store()) else {
            return failure::say(&format!(
                "agent-sandbox: note: nobody knows what was left in `{}`: it cannot be opened\n",
                one_line(&self.project.to_string_lossy())
            ));
        };
        let _alone = Record::lock(&store);
        let mut record = Record::read(&store);
        let (here, elsewhere) = self.others(&record);
        if !here.is_empty() {
            // The last one of the project looks.
            record.open = [here, elsewhere].concat();
            let _ = record.write(&store);
            return;
        }
        let seen = look::through(&at, AT_THE_END);
        // What stays is said first: of what is set aside nothing is run.
        let (mut lines, mut settled) = (not_seen(&seen), Vec::new());
        let mut aside = Vec::new();
        for (path, found) in self.news(&at, &record, &seen) {
            let (became, quiet) = self.settle(&at, &record, &path, &found);
            if let Became::Aside(name) = &became
                && path
                    .file_name()
                    .is_some_and(|own| *name == set_aside_name(own))
            {
                aside.push(Below(path.clone()));
            }
            let line = line(&path, &found, &became);
            match became {
                Became::Aside(_) if quiet => {}
                Became::Aside(_) => settled.push(line),
                Became::Stays(_) => lines.push(line),
            }
        }
        for own in &record.own {
            if let Err(error) = put_back(&at, own) {
                let path = named(&own.path.0);
                lines.push(format!(
                    "agent-sandbox: left in the project: your own `{path}` cannot be put back: {error:#}\n"
                ));
            }
        }
        let was_open = |path: &PathBuf| !record.closed.iter().any(|closed| closed.0 == *path);
        for path in seen.closed.iter().filter(|path| was_open(path)) {
            let path = named(path);
            lines.push(format!(
                "agent-sandbox: left in the project: `{path}` cannot be looked into\n"
            ));
        }
        lines.extend(settled);
        say(lines, &store);
        let again = record.aside.iter().filter(|path| !aside.contains(path));
        let again: Vec<Below> = again
            .filter(|path| is_aside(&at, &path.0))
            .cloned()
            .collect();
        aside.extend(again);
        // A record that is too large is none.
        let mut room = look::MOST_SET;
        aside.retain(|path| look::take(&mut room, &path.0));
        let mut ended = match elsewhere.is_empty() {
            true => Record::default(),
            // They compare with the same.
            false => Record {
                open: elsewhere,
                ..record.clone()
            },
        };
        ended = Record {
            aside,
            jobs_since: match self.had_jobs(record.since) {
                true => session::now(),
                false => may_run_on(record.jobs_since),
            },
            ..ended
        };
        if ended.jobs_since > 0 && ended.open.is_empty() {
            let stays = look::through(&at, AT_THE_START);
            ended.known = marks(&stays);
            (ended.complete, ended.levels) = (stays.complete, stays.levels);
            ended.more = stays.more;
            ended.since = session::now();
        }
        if let Err(error) = ended.write(&store) {
            failure::say(&format!("agent-sandbox: note: {error:#}\n"));
        }
    }

    /// Says what is new, and stays.
    fn tell(&self, at: &OwnedFd, store: &OwnedFd, record: &Record, seen: &Seen, since: &str) {
        let news = self.news(at, record, seen);
        let lines = news.iter().map(|(path, found)| {
            let (path, by) = (named(path), found.by);
            format!(
                "agent-sandbox: {since}: `{path}`, which {by} obeys outside; look at it first\n"
            )
        });
        say(lines.collect(), store);
    }

    /// What was not there before, or is another file; first what names commands by itself.
    fn news(&self, at: &OwnedFd, record: &Record, seen: &Seen) -> Vec<(PathBuf, ObeyedFile)> {
        let known = record.marks();
        let mut all = Vec::new();
        for (path, found) in &seen.found {
            match known.get(path.as_path()) {
                Some(mark) if *mark == found.mark => continue,
                // What is deeper than the first walk went may be older than the session.
                None if !record.knows(path, found.care)
                    && !is_newer(at, path, &found.mark, record.since) =>
                {
                    continue;
                }
                _ => {}
            }
            all.push((path.clone(), *found));
        }
        // Of many the first are said.
        all.sort_by_key(|(_, found)| Reverse(found.care));
        all
    }

    /// Sets a file aside, if it has to be; and whether that is worth no word.
    fn settle(
        &self,
        at: &OwnedFd,
        record: &Record,
        path: &Path,
        found: &ObeyedFile,
    ) -> (Became, bool) {
        let stays = |why: &str| (Became::Stays(why.to_owned()), false);
        let was_known = record.known.iter().any(|(known, _)| known.0 == path);
        let protects = match found.by {
            GIT => self.protects.1,
            _ => self.protects.0,
        };
        match found.care {
            Care::Said => return stays(if was_known { "changed" } else { "new" }),
            Care::Set | Care::Notes if !protects => {
                return stays(if was_known { "changed" } else { "new" });
            }
            // It was read-only inside: who changed it did so outside.
            Care::Set if was_known && is_read_only(path) => {
                return stays("changed while the session ran");
            }
            Care::Set | Care::Notes if !was_known && !record.knows(path, found.care) => {
                return stays("new, as far as its times say");
            }
            Care::Set | Care::Notes if !found.own => return stays("of another user's"),
            Care::Notes if was_known && !record.own.iter().any(|own| own.path.0 == path) => {
                return stays("changed, and too large or no text, so that yours is not there");
            }
            Care::Set | Care::Notes => {}
        }
        let put_back = record.put_back();
        let same = put_back.get(path);
        let quiet = same.is_some_and(|mark| mark.is_content_of(&found.mark));
        match set_aside(at, path, &self.session) {
            Ok(name) => (Became::Aside(name), quiet),
            Err(errno) => stays(&format!("it cannot be set aside: {}", errno.desc())),
        }
    }

    /// Whether a job was recorded since then, of this session or another one.
    fn had_jobs(&self, since: u64) -> bool {
        let Some(state) = self.stores.parent() else {
            return false;
        };
        let clusters = std::fs::read_dir(state.join("slurm")).into_iter().flatten();
        let mut times = clusters.flatten().filter_map(|cluster| {
            let is = std::fs::metadata(cluster.path().join("jobs")).ok()?;
            u64::try_from(is.mtime()).ok()
        });
        times.any(|changed| changed + SKEW >= since)
    }

    /// Other sessions of the record: those that run on this node, and those of other nodes, of which nobody
    /// knows whether they run.
    fn others(&self, record: &Record) -> (Vec<Open>, Vec<Open>) {
        let running = session::running(&self.records).unwrap_or_default();
        let (boot, now) = (session::boot(), session::now());
        let open = record.open.iter().filter(|one| one.id != self.session);
        let (here, elsewhere): (Vec<Open>, Vec<Open>) =
            open.cloned().partition(|one| one.boot == boot);
        let runs = |one: &Open| one.runs() || running.iter().any(|running| running.id == one.id);
        let recent = |one: &Open| one.since + LONGEST_SESSION > now;
        (
            here.into_iter().filter(runs).collect(),
            elsewhere.into_iter().filter(recent).collect(),
        )
    }

    fn directory(&self) -> Option<OwnedFd> {
        ways::directory(&self.project, Missing::Stays, |_| false).ok()
    }

    fn open_store(&self) -> Result<OwnedFd> {
        of_project(&self.store, &self.stores, &self.project)
    }
}

/// However a launch ends, what it put back does not stay.
impl Drop for Left {
    fn drop(&mut self) {
        if self.pid == Some(std::process::id()) {
            self.end();
        }
    }
}

/// What nobody knows of a project, a line each.
fn not_seen(seen: &Seen) -> Vec<String> {
    let mut what = Vec::new();
    match (seen.complete, seen.levels) {
        (true, _) => {}
        (false, 0) => what.push("nobody knows what, for it is too large to be looked through".into()),
        (false, levels) => what.push(format!(
            "nobody knows what below level {levels} of its directories, for it is too large to be looked through"
        )),
    }
    if seen.more {
        what.push("more of what programs obey than is looked at".to_owned());
    }
    let line = |what: &String| {
        format!(
            "agent-sandbox: left in the project: {what}: look yourself before an agent, an editor or git starts there\n"
        )
    };
    what.iter().map(line).collect()
}

/// When a session ended whose jobs may run still; 0 for none.
fn may_run_on(since: u64) -> u64 {
    match since + LONGEST_JOB > session::now() {
        true => since,
        false => 0,
    }
}

fn marks(seen: &Seen) -> Vec<(Below, Mark)> {
    let all = seen.found.iter();
    all.map(|(path, found)| (Below(path.clone()), found.mark))
        .collect()
}

/// Whether a file stands where the jail had it read-only.
fn is_read_only(path: &Path) -> bool {
    let set = obeyed::OBEYED.iter().filter(|one| one.care == Care::Set);
    let mut set = set.map(|one| Path::new(one.path.trim_end_matches('/')));
    let of_git = path == Path::new(".git/config") || path.starts_with(".git/hooks");
    of_git || set.any(|one| path.starts_with(one))
}

/// Whether a file, or the directory around it, changed after the sessions began. Only the kernel sets
/// this time.
fn is_newer(at: &OwnedFd, path: &Path, mark: &Mark, since: u64) -> bool {
    let since = i64::try_from(since.saturating_sub(SKEW)).unwrap_or(0);
    let around = path.parent().and_then(|above| look::below(at, above).ok());
    let around = around.and_then(|held| std::fs::metadata(by_descriptor(&held)).ok());
    mark.changed.0 >= since || around.is_some_and(|is| is.ctime() >= since)
}

/// The user's own text of what agents keep notes in.
fn own_notes(at: &OwnedFd, seen: &Seen) -> Vec<Own> {
    let notes = seen.found.iter().filter(|(_, one)| one.care == Care::Notes);
    let mut room = MOST_NOTES;
    let mut own = |path: &PathBuf| {
        let above = look::below(at, path.parent()?).ok()?;
        let file = ways::regular(&above, path.file_name()?, OFlag::O_RDONLY).ok()??;
        let (mode, modified) = (file.is.st_mode & 0o777, file.modified());
        let text = String::from_utf8(file.content(LARGEST_NOTES).ok()??).ok()?;
        room = room.checked_sub(text.len())?;
        Some(Own {
            path: Below(path.clone()),
            text,
            mode,
            modified,
        })
    };
    notes.filter_map(|(path, _)| own(path)).collect()
}

/// Puts the user's own text back, unless it is there.
fn put_back(at: &OwnedFd, own: &Own) -> Result<()> {
    let (Some(above), Some(name)) = (own.path.0.parent(), own.path.0.file_name()) else {
        return Ok(());
    };
    let above = match look::below(at, above) {
        // Its directory was removed.
        Err(Errno::ENOENT) => return Ok(()),
        above => above?,
    };
    if let Ok(Some(file)) = ways::regular(&above, name, OFlag::O_RDONLY)
        && file.content(LARGEST_NOTES)?.as_deref() == Some(own.text.as_bytes())
    {
        return Ok(());
    }
    own.write(&above, name)
}

/// Gives what was set aside its name again, for the session that begins; what that is.
fn restore(at: &OwnedFd, record: &Record) -> Vec<(Below, Mark)> {
    let one = |path: &Path| {
        let above = look::below(at, path.parent()?).ok()?;
        let name = path.file_name()?;
        let is = |name: &OsStr| {
            let path = Path::new(&by_descriptor(&above)).join(name);
            std::fs::symlink_metadata(path).ok().map(|is| Mark::of(&is))
        };
        let aside = set_aside_name(name);
        let kept = is(&aside)?;
        match is(name) {
            None => {}
            // The user's own is put back at the end. The newer counts.
            Some(own)
                if own.modified <= kept.modified
                    && record.own.iter().any(|one| one.path.0 == path) => {}
            Some(_) => return None,
        }
        renameat(&above, aside.as_os_str(), &above, name).ok()?;
        is(name)
    };
    let all = record.aside.iter();
    all.filter_map(|path| Some((path.clone(), one(&path.0)?)))
        .collect()
}

/// Whether something set aside is still there.
fn is_aside(at: &OwnedFd, path: &Path) -> bool {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return false;
    };
    look::below(at, above).is_ok_and(|above| {
        let path = Path::new(&by_descriptor(&above)).join(set_aside_name(name));
        std::fs::symlink_metadata(path).is_ok()
    })
}

/// Gives a file another name, in its own directory; the name. None that is there is taken: of two names of one file
/// `rename(2)` removes neither.
fn set_aside(at: &OwnedFd, path: &Path, session: &str) -> nix::Result<OsString> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::EINVAL);
    };
    let above = look::below(at, above)?;
    let mut last = Errno::EEXIST;
    for other in other_names(name, session) {
        let mut renamed = rename_to_new(&above, name, &other);
        if renamed == Err(Errno::EACCES) {
            // The directory is the user's own, without the right to write.
            let mode = std::fs::metadata(by_descriptor(&above)).map_err(|_| Errno::EACCES)?;
            let mode = mode.mode() & 0o7777;
            ways::set_mode(&above, mode | 0o300).map_err(|_| Errno::EACCES)?;
            renamed = rename_to_new(&above, name, &other);
            let _ = ways::set_mode(&above, mode);
        }
        match renamed {
            Ok(()) => return Ok(other),
            // Something of that name is in the way, or the name is too long.
            Err(errno @ (Errno::EEXIST | Errno::ENAMETOOLONG)) => last = errno,
            Err(errno) => return Err(errno),
        }
    }
    Err(last)
}

/// Under which names a file may be set aside: its own with more behind it, then shorter ones.
fn other_names(name: &OsStr, session: &str) -> Vec<OsString> {
    let first = set_aside_name(name);
    let mut second = first.clone();
    second.push(format!("-{session}"));
    let short = |number: u32| OsString::from(format!("left-{session}-{number}{ASIDE}"));
    [first, second]
        .into_iter()
        .chain((0..100).map(short))
        .collect()
}

/// Gives a file a name that nothing has.
fn rename_to_new(above: &OwnedFd, name: &OsStr, other: &OsStr) -> nix::Result<()> {
    match paths::rename(above, name, above, other, libc::RENAME_NOREPLACE) {
        // Some network file systems know no flags.
        Err(Errno::EINVAL | Errno::ENOSYS) if !is_there(above, other) => {
            renameat(above, name, above, other)?;
            match is_there(above, name) {
                true => Err(Errno::EEXIST),
                false => Ok(()),
            }
        }
        Err(Errno::EINVAL | Errno::ENOSYS) => Err(Errno::EEXIST),
        done => done,
    }
}

fn is_there(above: &OwnedFd, name: &OsStr) -> bool {
    let path = Path::new(&by_descriptor(above)).join(name);
    std::fs::symlink_metadata(path).is_ok()
}

fn set_aside_name(name: &OsStr) -> OsString {
    let mut aside = name.to_owned();
    aside.push(ASIDE);
    aside
}

fn line(path: &Path, found: &ObeyedFile, became: &Became) -> String {
    let (path, by) = (named(path), found.by);
    match became {
        Became::Aside(name) => format!(
            "agent-sandbox: left in the project: `{path}`, which {by} obeys outside: set aside as `{}` until the next \
             session; rename it if you want it\n",
            one_line(&name.to_string_lossy())
        ),
        Became::Stays(why) => format!(
            "agent-sandbox: left in the project: `{path}`, which {by} obeys outside: {why}; look at it first\n"
        ),
    }
}

fn named(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Says lines, and notes those that are too many.
fn say(lines: Vec<String>, store: &OwnedFd) {
    let more = lines.len().saturating_sub(MOST_SAID);
    let mut text = lines.iter().take(MOST_SAID).cloned().collect::<String>();
    if more > 0 {
        let written = record::replace(store, LIST.as_ref(), lines.concat().as_bytes());
        let at = std::fs::read_link(by_descriptor(store)).unwrap_or_default();
        text.push_str(&match written {
            Ok(()) => format!(
                "agent-sandbox: left in the project: {more} more, all in `{}`\n",
                at.join(LIST).display()
            ),
            Err(_) => lines.iter().skip(MOST_SAID).cloned().collect(),
        });
    }
    failure::say(&text);
}
