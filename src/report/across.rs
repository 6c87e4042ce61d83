//! Records of whom and from where an answer is made: the caller's own, those of a node's users with root's own record, or what
//! was collected from many nodes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use agent_sandbox_events::audit::DIRECTORY;
use anyhow::Result;
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use crate::audit::files::Unread;
use crate::audit::line::Whose;
use crate::audit::shares::LeftOut;
use crate::audit::{self, Begun};
use crate::cli::{Since, Wanted};
use crate::failure::{self, Failure, one_line};
use crate::host;
use crate::session;
use crate::users::{self, Known, Source};

/// The room for the [`Tail`], in bytes.
const TAIL: usize = 64 << 10;
/// Users of whom a tail says that something had no room, those of whom most had none.
const MOST_LEFT_OUT: usize = 1000;
/// Those of them who are named.
const MOST_NAMED: usize = 16;

/// One place of records.
pub(super) struct Place<'a> {
    /// The directory of records.
    pub(super) records: PathBuf,
    /// The user's own state around it, and the user, if it is a user's.
    pub(super) state: Option<(u32, PathBuf)>,
    /// Which records.
    pub(super) wanted: &'a Wanted,
    /// Nothing before is wanted, in seconds since 1970.
    pub(super) since: Option<f64>,
    /// Whose lines they are.
    pub(super) whose: Whose,
    /// The room for what is found, in bytes.
    pub(super) room: usize,
}

/// What stands last in an answer.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Tail {
    /// What was not read.
    pub(super) unread: Unread,
    /// How much there is of what another question is about.
    pub(super) others: u64,
    /// What had no room, by user.
    pub(super) left_out: LeftOut,
}

/// What was read in one place: lines, without the [`Tail`].
pub(super) struct Found {
    /// Whose; `None`: its lines say so themselves.
    pub(super) user: Option<(u32, String)>,
    /// The lines.
    pub(super) text: Vec<u8>,
    /// The tail.
    pub(super) tail: Tail,
}

/// Which place is asked first: a line that root keeps stands for the same line of the user's.
fn order(source: &Source) -> bool {
    matches!(source, Source::User(_))
}

/// Reads what is wanted by `read`, whose lines have the newest and then the [`Tail`] last. The second answer is whether several
/// users may be meant.
///
/// # Errors
/// Others' records are wanted by somebody who is not root; what alone is wanted cannot be read.
pub(super) fn read(
    wanted: &Wanted,
    read: impl Fn(&Place<'_>) -> Result<Vec<u8>>,
) -> Result<(Vec<Found>, bool)> {
    let since = wanted.since.map(seconds);
    let mut names = Names::new(wanted)?;
    let only = names.only;
    let place = |records, state: Option<(u32, PathBuf)>, room: usize| Place {
        records,
        whose: match &state {
            Some((uid, _)) => Whose::One(*uid),
            None => Whose::Each(only),
        },
        state,
        wanted,
        since,
        room: room.saturating_sub(TAIL),
    };
    let Some(sources) = sources(wanted)? else {
        let (_, directories) = host::directories(None)?;
        let uid = Uid::current().as_raw();
        let state = directories.state;
        let records = state.join(audit::RECORDS);
        let text = read(&place(records, Some((uid, state)), usize::MAX))?;
        let own = users::by_name(&uid.to_string()).map(|user| user.name);
        let own = (uid, own.unwrap_or_else(|_| uid.to_string()));
        return Ok((vec![found(Some(own), text)], false));
    };
    let found_in = users::read_lines(sources, |source, room| match source {
        Source::User(user) => {
            let state = user.state();
            let records = state.join(audit::RECORDS);
            read(&place(records, Some((user.uid, state)), room))
        }
        Source::Directory(directory) => {
            users::must_be_directory(directory)?;
            read(&place(directory.clone(), None, room))
        }
    })?;
    let mut all = Vec::new();
    for (source, text) in found_in {
        let user = match &source {
            Source::User(user) => Some((user.uid, user.name.clone())),
            Source::Directory(_) => None,
        };
        let one = found(user, text);
        if let (Source::Directory(_), Some(told)) = (&source, one.tail.unread.told()) {
            let told = one_line(&format!("{}: {told}", source.name()));
            failure::say(&format!("agent-sandbox: {told}\n"));
        }
        say_left_out(&source, &one.tail.left_out, &mut names);
        all.push(one);
    }
    Ok((all, true))
}

/// Says of whom there was more than has room: first of whom most is missing.
fn say_left_out(source: &Source, left_out: &LeftOut, names: &mut Names) {
    let mut all: Vec<(u64, u32)> = left_out.iter().map(|(uid, count)| (*count, *uid)).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    for (count, uid) in all.iter().take(MOST_NAMED) {
        let whose = match source {
            Source::User(user) => user.name.clone(),
            Source::Directory(directory) => {
                format!("{}: user {}", directory.display(), names.name(*uid))
            }
        };
        let told = format!(
            "{whose}: {count} more are left out, the oldest; --user or --since shows more of one"
        );
        failure::say(&format!("agent-sandbox: {}\n", one_line(&told)));
    }
    if let Some(more) = all.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        let told = format!("{}: and some of {more} more users", source.name());
        failure::say(&format!("agent-sandbox: {}\n", one_line(&told)));
    }
}

/// What is read for others; `None`: the caller's own.
fn sources(wanted: &Wanted) -> Result<Option<Vec<Source>>> {
    if !wanted.from.is_empty() {
        let all = wanted.from.iter().cloned();
        return Ok(Some(all.map(Source::Directory).collect()));
    }
    let users = users::meant(wanted.user.as_deref(), Known::Ever)?;
    let Some(users) = users else {
        if wanted.all {
            return Err(not_root().into());
        }
        return Ok(None);
    };
    let mut all: Vec<Source> = users.into_iter().map(Source::User).collect();
    all.extend(roots_own().map(Source::Directory));
    all.sort_by_key(order);
    Ok(Some(all))
}

/// Who asks for all users and is not root.
pub(super) fn not_root() -> Failure {
    Failure::new("cannot show what all users did: only root sees other users")
        .hint("leave --all away for your own, or name directories that you can read with --from")
}

/// Root's own record on this node, if there is one that nobody else can write.
fn roots_own() -> Option<PathBuf> {
    if users::is_roots_alone(Path::new(DIRECTORY))? {
        return Some(DIRECTORY.into());
    }
    failure::say(&format!(
        "agent-sandbox: `{DIRECTORY}` is left out: others than root can change it\n"
    ));
    None
}

fn found(user: Option<(u32, String)>, mut text: Vec<u8>) -> Found {
    let last = text.iter().rposition(|&byte| byte == b'\n');
    let last = last.map_or(0, |at| at + 1);
    let tail = serde_json::from_slice(&text[last..]).unwrap_or_default();
    text.truncate(last.saturating_sub(1));
    Found { user, text, tail }
}

impl Tail {
    /// Behind these lines, each of which has its end.
    pub(super) fn behind(mut self, mut lines: Vec<u8>) -> Result<Vec<u8>> {
        if self.left_out.len() > MOST_LEFT_OUT {
            let mut counts: Vec<u64> = self.left_out.values().copied().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let least = counts[MOST_LEFT_OUT];
            self.left_out.retain(|_, count| *count > least);
        }
        serde_json::to_writer(&mut lines, &self)?;
        Ok(lines)
    }
}

/// The same as seconds since 1970.
pub(super) fn seconds(since: Since) -> f64 {
    match since {
        Since::Ago(seconds) => audit::now() - seconds as f64,
        Since::At(seconds) => seconds as f64,
    }
}

/// The users of records that root keeps, by number.
#[derive(Default)]
pub(super) struct Names {
    known: HashMap<u32, String>,
    /// The one that is wanted.
    only: Option<u32>,
}

impl Names {
    /// # Errors
    /// There is no user as the one that is wanted.
    pub(super) fn new(wanted: &Wanted) -> Result<Self> {
        // A number may be of another machine.
        let only = wanted.user.as_deref().map(|word| match word.parse() {
            Ok(uid) => Ok(uid),
            Err(_) => users::by_name(word).map(|user| user.uid),
        });
        Ok(Self {
            known: HashMap::new(),
            only: only.transpose()?,
        })
    }

    /// Whose a line of what was found is; `None` if it says nothing, or that one is not wanted.
    pub(super) fn whose(&self, found: &Found, says: Option<u32>) -> Option<u32> {
        let uid = match &found.user {
            Some((uid, _)) => Some(*uid),
            None => says,
        };
        uid.filter(|uid| self.only.is_none_or(|only| only == *uid))
    }

    /// The user's name, or number where this machine has no name for it.
    pub(super) fn name(&mut self, uid: u32) -> String {
        let name = self.known.entry(uid).or_insert_with(|| {
            let user = users::by_name(&uid.to_string());
            user.map_or_else(|_| uid.to_string(), |user| user.name)
        });
        name.clone()
    }
}

/// What runs now, as if the record told of its begin: one that is older than the record may still run.
pub(super) fn running(place: &Place<'_>) -> Result<Vec<(Begun, String)>> {
    let Some((uid, state)) = &place.state else {
        return Ok(Vec::new());
    };
    let running = session::running(&session::directory(*uid, state))?;
    let begun = running.into_iter().map(|record| {
        let begun = Begun {
            time: record.started as f64,
            session: record.id,
            agent: record.command,
            project: record.project.to_string_lossy().into_owned(),
        };
        (begun, record.host)
    });
    Ok(begun.collect())
}

/// The project that is wanted, by the names that a launch may have for it.
pub(super) struct Project(Option<[PathBuf; 2]>);

impl Project {
    /// Looks for the directory once, and not for each session.
    pub(super) fn new(wanted: &Wanted) -> Self {
        Self(wanted.project.as_ref().map(|wanted| {
            let absolute = std::path::absolute(wanted).unwrap_or_else(|_| wanted.clone());
            // As a launch names it, where it is there.
            let real = users::real_path(wanted).unwrap_or_else(|_| absolute.clone());
            [absolute, real]
        }))
    }

    /// Whether a project is this one.
    pub(super) fn is(&self, project: &Path) -> bool {
        self.0
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name == project))
    }
}

/// Whether a session's command is the agent that is wanted. `agents`: the names of profiles by their commands.
pub(super) fn is_agent(wanted: &Wanted, agents: &HashMap<String, String>, command: &str) -> bool {
    wanted.agent.as_deref().is_none_or(|agent| {
        agent == command || agents.get(command).is_some_and(|name| name == agent)
    })
}
