//! Records of whom and from where an answer is made: the caller's own, those of a node's users with root's own record, or what
//! was collected from many nodes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use agent_sandbox_events::audit::DIRECTORY;
use anyhow::Result;
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use crate::audit::files::Unread;
use crate::audit::{self, Begun};
use crate::cli::{Since, Wanted};
use crate::failure::{self, Failure, one_line};
use crate::host;
use crate::session;
use crate::users::{self, Known, Source};

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
}

/// What stands last in an answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Tail {
    /// What was not read.
    pub(super) unread: Unread,
    /// How much there is of what another question is about.
    pub(super) others: u64,
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
    read: impl Fn(&Place<'_>) -> Result<Vec<Vec<u8>>>,
) -> Result<(Vec<Found>, bool)> {
    let since = wanted.since.map(seconds);
    let place = |records, state| Place {
        records,
        state,
        wanted,
        since,
    };
    let Some(sources) = sources(wanted)? else {
        let (_, directories) = host::directories(None)?;
        let uid = Uid::current().as_raw();
        let state = directories.state;
        let lines = read(&place(state.join(audit::RECORDS), Some((uid, state))))?;
        let own = users::by_name(&uid.to_string()).map(|user| user.name);
        let own = (uid, own.unwrap_or_else(|_| uid.to_string()));
        return Ok((vec![found(Some(own), lines.join(&b'\n'))], false));
    };
    let found_in = users::read_lines(sources, |source| match source {
        Source::User(user) => {
            let state = user.state();
            read(&place(state.join(audit::RECORDS), Some((user.uid, state))))
        }
        Source::Directory(directory) => read(&place(directory.clone(), None)),
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
        all.push(one);
    }
    Ok((all, true))
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
    /// Behind these lines.
    pub(super) fn behind(self, mut lines: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        lines.push(serde_json::to_vec(&self)?);
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

/// Whether a session's command and project are those that are wanted. `agents`: the names of profiles by their commands.
pub(super) fn fits(
    wanted: &Wanted,
    agents: &HashMap<String, String>,
    command: &str,
    project: &str,
) -> bool {
    let agent = wanted.agent.as_deref().is_none_or(|agent| {
        agent == command || agents.get(command).is_some_and(|name| name == agent)
    });
    agent && is_in(wanted, Path::new(project))
}

/// Whether a project is the one that is wanted.
pub(super) fn is_in(wanted: &Wanted, project: &Path) -> bool {
    let Some(wanted) = wanted.project.as_deref() else {
        return true;
    };
    let absolute = std::path::absolute(wanted);
    // As a launch names it, where it is there.
    let real = users::real_path(wanted);
    [absolute, real]
        .into_iter()
        .flatten()
        .any(|path| path == project)
}
