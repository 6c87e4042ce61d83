//! Sessions that are started to see whether they start: by this very program, as the user's own would
//! be, with a command that does nothing. What they record is kept in a directory that goes with them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::mkdtemp;

use super::super::facts::{FilteredTrial, Trial, Trouble};
use super::filtered::Filtered;
use super::run::{self, End, Held, Program, Ran};
use crate::cli::{Backend, Options};
use crate::env_vars;
use crate::failure::FAILED;
use crate::host;
use crate::own_directory;
use crate::session;

/// How long one may take. A tenth of a second is usual; modules, dead mounts and a node with ten times the work that it has
/// processors for take longer.
const PATIENCE: Duration = Duration::from_secs(45);
/// Does nothing.
pub(super) const NOTHING: &str = "/bin/true";
/// Asks Slurm something that Slurm's own program answers, and says when it began and when it had the
/// answer, in nanoseconds.
const REQUEST: &str = "date +%s%N; squeue --version >/dev/null || exit; date +%s%N";

/// A directory for what the trials leave, removed with all that is in it.
pub(crate) struct Scratch {
    path: PathBuf,
    /// Directories that sessions make and leave for the next, which were not there before.
    made: Vec<PathBuf>,
}

impl Scratch {
    /// Makes one.
    ///
    /// # Errors
    /// What `mkdtemp(3)` answers.
    pub(crate) fn new(uid: u32) -> Result<Self> {
        let parents = own_directory::parents();
        let made = parents.iter().find_map(|parent| {
            let made = mkdtemp(&parent.join("agent-sandbox-doctor.XXXXXX")).ok()?;
            std::fs::canonicalize(made).ok()
        });
        let path =
            made.context("no directory for a trial can be made in /tmp, /var/tmp or /dev/shm")?;
        let scratch = |below: &str| std::fs::create_dir(path.join(below));
        scratch("project")
            .and_then(|()| scratch("state"))
            .context("cannot make a directory for a trial")?;
        let sessions = session::directory(uid, &path.join("state/agent-sandbox"));
        let mut left: Vec<PathBuf> = own_directory::parents()
            .iter()
            .map(|parent| parent.join(host::join_directory_name(uid)))
            .collect();
        if !sessions.starts_with(&path) {
            left.extend(sessions.ancestors().take(2).map(Path::to_path_buf));
        }
        left.retain(|place| std::fs::symlink_metadata(place).is_err());
        Ok(Self { path, made: left })
    }

    /// A project with nothing in it.
    pub(crate) fn project(&self) -> PathBuf {
        self.path.join("project")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
        for place in &self.made {
            // Only if it is empty: another session may have come meanwhile.
            let _ = std::fs::remove_dir(place);
        }
    }
}

/// What the trials need to know.
pub(crate) struct Setting<'a> {
    pub(crate) options: &'a Options,
    pub(crate) executable: &'a Path,
    pub(crate) environment: &'a [(OsString, OsString)],
    pub(crate) scratch: &'a Scratch,
    /// The directory in which they are tried.
    pub(crate) project: &'a Path,
    /// Whether a session would have Slurm.
    pub(crate) slurm: bool,
    /// The session with a filtered network, unless there can be none.
    pub(crate) filtered: Option<&'a Filtered>,
}

/// What came of the trials.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    pub(crate) bwrap: Trial,
    pub(crate) landlock: Trial,
    pub(crate) session: Trial,
    pub(crate) request: Option<std::result::Result<u64, String>>,
    pub(crate) filtered: Option<FilteredTrial>,
}

/// Tries both backends, and a session as the options ask for it, which asks Slurm something.
pub(crate) fn all(held: &mut Held, setting: &Setting<'_>) -> Tried {
    let request = ["/bin/sh", "-c", REQUEST];
    let nothing = [NOTHING];
    let command: &[&str] = if setting.slurm { &request } else { &nothing };
    let asked = setting.options.backend.unwrap_or_default();
    let mut programs = vec![
        program(setting, setting.options, Backend::Bwrap, &nothing),
        program(setting, setting.options, Backend::Landlock, &nothing),
        program(setting, setting.options, asked, command),
    ];
    programs.extend(setting.filtered.map(|filtered| {
        let command = filtered.command();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        program(setting, &filtered.options, asked, &command)
    }));
    // Two at once: on a busy node they should not wait for each other's sake.
    let mut ran = run::all(held, &programs, 2).into_iter();
    let (Some(bwrap), Some(landlock), Some(session)) = (ran.next(), ran.next(), ran.next()) else {
        return Tried::default();
    };
    Tried {
        bwrap: judged(&bwrap),
        landlock: judged(&landlock),
        request: setting.slurm.then(|| answered(&session)),
        session: judged(&session),
        filtered: setting
            .filtered
            .zip(ran.next())
            .map(|(filtered, ran)| FilteredTrial {
                trial: judged(&ran),
                reached: filtered.may_reach.then(|| match ran.good() {
                    true => Ok(()),
                    false => Err(ran.why()),
                }),
            }),
    }
}

fn program(
    setting: &Setting<'_>,
    options: &Options,
    backend: Backend,
    command: &[&str],
) -> Program {
    let mut words: Vec<OsString> = vec![setting.executable.into(), "--quiet".into()];
    words.extend(as_words(options));
    words.extend(["--backend".into(), backend.word().into()]);
    words.extend(["--project".into(), setting.project.into(), "--".into()]);
    words.extend(command.iter().map(OsString::from));
    let mut environment: Vec<(OsString, OsString)> = setting
        .environment
        .iter()
        .filter(|(name, _)| {
            // What it logs would stand between what it says.
            let names = [env_vars::XDG_STATE_HOME, env_vars::PWD, env_vars::LOG];
            !names.iter().any(|left_out| name == left_out)
        })
        .cloned()
        .collect();
    environment.push((
        env_vars::XDG_STATE_HOME.into(),
        setting.scratch.path.join("state").into(),
    ));
    Program {
        words,
        environment,
        cwd: Some(setting.project.to_owned()),
        patience: PATIENCE,
    }
}

/// The options that decide the policy, as they were typed.
pub(super) fn as_words(options: &Options) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| words.extend([name.into(), value]);
    for (name, paths) in [
        ("--read", &options.read),
        ("--write", &options.write),
        ("--hide", &options.hide),
    ] {
        for path in paths {
            // The trial has another current directory.
            add(
                name,
                std::path::absolute(path)
                    .unwrap_or_else(|_| path.clone())
                    .into(),
            );
        }
    }
    options
        .env
        .iter()
        .for_each(|entry| add("--env", entry.clone()));
    options
        .set
        .iter()
        .for_each(|entry| add("--set", entry.into()));
    options
        .home
        .iter()
        .for_each(|mode| add("--home", mode.into()));
    options
        .profile
        .iter()
        .for_each(|name| add("--profile", name.into()));
    words
}

fn judged(ran: &Ran) -> Trial {
    match &ran.end {
        End::Late => Trial::Late {
            seconds: PATIENCE.as_secs(),
        },
        End::Code(code) if *code != i32::from(FAILED) => Trial::Started {
            milliseconds: u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX),
        },
        End::Code(_) => Trial::Failed(trouble(&ran.stderr)),
        End::Signal(_) | End::NotStarted(_) => Trial::Failed(Trouble {
            message: ran.why(),
            hints: Vec::new(),
        }),
    }
}

/// What a launch said that failed: `error:` and `hint:`, each with the lines that belong to it.
fn trouble(stderr: &[u8]) -> Trouble {
    let mut found = Trouble::default();
    let text = String::from_utf8_lossy(stderr);
    for line in text.lines() {
        if let Some(hint) = line.strip_prefix("hint: ") {
            found.hints.push(hint.to_owned());
        } else if let Some(error) = line.strip_prefix("error: ") {
            found.message = error.to_owned();
        } else if !found.message.is_empty() && found.hints.is_empty() {
            found.message = format!("{}\n{line}", found.message);
        }
    }
    if found.message.is_empty() {
        found.message = "it failed without a word".to_owned();
    }
    found
}

/// How long a request took, in milliseconds; or why it failed.
fn answered(ran: &Ran) -> std::result::Result<u64, String> {
    if !ran.good() {
        return Err(ran.why());
    }
    let text = String::from_utf8_lossy(&ran.stdout);
    let mut times = text.lines().map(|line| line.trim().parse::<u64>());
    match (times.next(), times.next()) {
        (Some(Ok(from)), Some(Ok(to))) => Ok(to.saturating_sub(from) / 1_000_000),
        _ => Err("the answer cannot be read".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_launch_said_is_taken_apart() {
        let said = b"agent-sandbox: note: x\nerror: unknown key `a`\n --> f:1\nhint: user: b\nhint: admin: c\n";
        let found = trouble(said);
        assert_eq!(found.message, "unknown key `a`\n --> f:1");
        assert_eq!(found.hints, ["user: b", "admin: c"]);
        assert_eq!(trouble(b"").message, "it failed without a word");
    }

    #[test]
    fn a_request_is_timed_by_two_numbers() {
        let ran = |stdout: &str, end| Ran {
            end,
            stdout: stdout.into(),
            stderr: b"squeue: error: no\n".to_vec(),
            took: Duration::ZERO,
        };
        assert_eq!(answered(&ran("1000000\n36000000\n", End::Code(0))), Ok(35));
        assert!(answered(&ran("1000000\n", End::Code(0))).is_err());
        assert_eq!(
            answered(&ran("1\n", End::Code(1))),
            Err("squeue: error: no".to_owned())
        );
    }
}
