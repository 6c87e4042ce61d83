//! Directories of the user's and of the node's.

use super::super::facts::{DirectoryFacts, DirectoryState, Facts};
use super::super::line::Finding;
use super::{ask, unfit, ways_out, without};

pub(super) fn home(facts: &Facts) -> Option<Finding> {
    let home = &facts.files.home;
    let mut found = on(home);
    if let Some(other) = &facts.files.other_home {
        found.push_str(&format!(
            "; the user database names {}, which is protected as well",
            other.display()
        ));
    }
    let path = home.path.display();
    let changeable = home.links.iter().find(|(_, changeable)| *changeable);
    Some(match home.state {
        DirectoryState::Directory { own: false, .. } => Finding::degraded(
            format!("{found}; it belongs to somebody else"),
            ask(&format!("make {path} the user's own (chown)")),
        ),
        DirectoryState::Directory { mode, .. } if mode & 0o022 != 0 => Finding::degraded(
            format!("{found}; others may write there (mode {mode:04o})"),
            format!("chmod go-w '{path}'"),
        ),
        DirectoryState::Directory { .. } => match changeable {
            Some((link, _)) => Finding::degraded(
                format!(
                    "{found}; `{}` on the way is a link that others than administrators can change",
                    link.display()
                ),
                format!("export HOME='{}'", home.real.display()),
            ),
            None => Finding::ok(found),
        },
        state => Finding::new(
            without(facts),
            format!("{path}: {}", no_directory(state)),
            ask(&format!("{path} has to be a directory that answers")),
        ),
    })
}

pub(super) fn state(facts: &Facts) -> Option<Finding> {
    let state = &facts.files.state;
    let (path, found) = (state.path.display(), on(state));
    let refuses = facts.files.state_refuses.as_ref();
    Some(match state.state {
        // What the others say, they say better.
        DirectoryState::Missing
        | DirectoryState::Directory {
            own: true,
            writable: true,
            ..
        } if refuses.is_some() => Finding::new(
            without(facts),
            format!(
                "{found}; nothing can be written there: {}",
                refuses.map_or("", String::as_str)
            ),
            format!(
                "make room where '{path}' is (df -h, df -i, quota), or set XDG_STATE_HOME to a directory with room"
            ),
        ),
        DirectoryState::Missing => Finding::ok(format!("{found}; the first session makes it")),
        DirectoryState::Directory { own: false, .. } => Finding::new(
            without(facts),
            format!("{found}; it belongs to somebody else, and nothing is recorded"),
            ask(&format!("make {path} the user's own (chown)")),
        ),
        DirectoryState::Directory {
            writable: false, ..
        } => Finding::new(
            without(facts),
            format!("{found}; you may not write there, and nothing is recorded"),
            format!("chmod u+rwx '{path}'"),
        ),
        DirectoryState::Directory { mode, .. } if mode & 0o022 != 0 => Finding::degraded(
            format!("{found}; others may write there (mode {mode:04o})"),
            format!("chmod go-w '{path}'"),
        ),
        DirectoryState::Directory { .. } => Finding::ok(found),
        state => Finding::new(
            without(facts),
            format!("{path}: {}, and nothing is recorded", no_directory(state)),
            format!(
                "mkdir -p -m 700 '{path}', or set XDG_STATE_HOME to a directory that you may write"
            ),
        ),
    })
}

/// Why no session could be recorded, or keep what it has to.
pub(super) fn in_the_way(facts: &Facts) -> Option<String> {
    let files = &facts.files;
    if let Some(why) = &files.records_refuse {
        return Some(format!("no session can be recorded: {why}"));
    }
    let why = files.state_refuses.as_ref().filter(|_| files.keeps)?;
    let path = files.state.path.display();
    Some(format!("nothing can be kept in {path}: {why}"))
}

pub(super) fn node_local(facts: &Facts) -> Option<Finding> {
    let Some(place) = &facts.files.node_local else {
        return Some(Finding::new(
            without(facts),
            "neither /tmp nor /var/tmp nor /dev/shm can hold a directory of yours alone: no jail of Landlock's, and tasks of a job do not share one",
            ask("make /tmp root's own with mode 1777: chown root /tmp; chmod 1777 /tmp"),
        ));
    };
    let found = on(place);
    Some(match place.local {
        true => Finding::ok(found),
        false => Finding::degraded(
            format!("{found}, which other nodes may share"),
            ask("give each node a /tmp of its own (a local file system or tmpfs)"),
        ),
    })
}

pub(super) fn project(facts: &Facts) -> Option<Finding> {
    let project = facts.files.project.as_ref()?;
    let path = project.path.display();
    let Some(trouble) = &project.trouble else {
        return Some(Finding::ok(path.to_string()));
    };
    let finding = match unfit(facts) {
        Some(_) => Finding::broken,
        None => Finding::degraded,
    };
    let fix = match trouble.hints.is_empty() {
        true => "cd to a project directory, or give one with -C DIR".to_owned(),
        false => ways_out(trouble),
    };
    Some(finding(trouble.message.clone(), fix))
}

/// A directory, where it really is, and on what.
fn on(place: &DirectoryFacts) -> String {
    let mut text = place.path.display().to_string();
    if place.real != place.path {
        text.push_str(&format!(", really {}", place.real.display()));
    }
    if let Some(kind) = &place.kind {
        let far = if place.local {
            ""
        } else {
            " (not of this node alone)"
        };
        text.push_str(&format!(", on {kind}{far}"));
    }
    text
}

fn no_directory(state: DirectoryState) -> &'static str {
    match state {
        DirectoryState::Missing => "does not exist",
        DirectoryState::Unmakeable => "does not exist, and cannot be made",
        DirectoryState::NoDirectory => "is not a directory",
        DirectoryState::Closed => "cannot be looked at",
        DirectoryState::Hung => "does not answer",
        DirectoryState::Directory { .. } => "is a directory",
    }
}
