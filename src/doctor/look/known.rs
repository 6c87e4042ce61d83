//! What a site's file is compared with: names that Slurm and the user database have, and what stands at its paths.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_sandbox_wire::command::Command;

use super::super::lint::{Kind, Known, There};
use super::run::{self, Held, LONGEST_OUTPUT, Program};
use super::slurm::program;
use crate::host::HostFacts;
use crate::host::accounts;
use crate::host::files::{Files, Found, HostFiles, Look};
use crate::host::found;
use crate::launch::FIRST_TIMEOUT;
use crate::policy::PathSpec;
use crate::policy::paths::glob;

/// Slurm may take so long to say which names there are.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions to Slurm at once.
const AT_ONCE: usize = 4;
/// Of so many directories into which links lead is told.
const MOST_LED_TO: usize = 3;

/// This host and its cluster.
pub(crate) struct Host {
    slurm: BTreeMap<Kind, Vec<String>>,
    hosts: Vec<String>,
    files: HostFiles,
    /// What was not asked for, and why.
    pub(crate) unchecked: Vec<String>,
}

/// How Slurm is asked for names of a kind.
fn question(kind: Kind) -> (Command, &'static [&'static str]) {
    match kind {
        Kind::Partition => (Command::Sinfo, &["--noheader", "--format=%R"]),
        Kind::Constraint => (Command::Sinfo, &["--noheader", "--format=%f"]),
        Kind::Node => (Command::Sinfo, &["--noheader", "--Node", "--format=%N"]),
        Kind::Account => (
            Command::Sacctmgr,
            &[
                "--noheader",
                "--parsable2",
                "list",
                "account",
                "format=account",
            ],
        ),
        Kind::Qos => (
            Command::Sacctmgr,
            &["--noheader", "--parsable2", "list", "qos", "format=name"],
        ),
        Kind::Reservation => (Command::Scontrol, &["--oneliner", "show", "reservation"]),
        Kind::License => (Command::Scontrol, &["--oneliner", "show", "license"]),
    }
}

/// The names in what Slurm says.
fn names(kind: Kind, said: &str) -> Vec<String> {
    let behind = |word: &str| {
        let lines = said.lines().flat_map(str::split_whitespace);
        let names = lines.filter_map(|field| field.strip_prefix(word));
        names.map(str::to_owned).collect()
    };
    match kind {
        Kind::Reservation => behind("ReservationName="),
        Kind::License => behind("LicenseName="),
        Kind::Constraint => said
            .lines()
            .flat_map(|line| line.split(','))
            .map(|name| name.trim().to_owned())
            .filter(|name| name != "(null)")
            .collect(),
        _ => said.lines().map(|line| line.trim().to_owned()).collect(),
    }
}

impl Host {
    /// Asks Slurm, where it can be trusted. `host` has what was found of it.
    pub(crate) fn ask(host: Option<&HostFacts>, hosts: Vec<String>, held: &mut Held) -> Self {
        let mut all = Self {
            slurm: BTreeMap::new(),
            hosts,
            files: HostFiles::new(FIRST_TIMEOUT),
            unchecked: Vec::new(),
        };
        let asked: Vec<(Kind, Program)> = Kind::ALL
            .into_iter()
            .filter_map(|kind| {
                let (command, words) = question(kind);
                let words: Vec<OsString> = words.iter().map(OsString::from).collect();
                Some((kind, program(host?, command, &words, PATIENCE)?))
            })
            .collect();
        if asked.is_empty() {
            let why = "names of Slurm's: there is no Slurm here that can be trusted";
            all.unchecked.push(why.to_owned());
        }
        // Where the controller is away each question would take its time.
        let (first, others) = asked.split_at(asked.len().min(1));
        for part in [first, others] {
            all.add(part, held);
            if all.slurm.is_empty() {
                break;
            }
        }
        all
    }

    fn add(&mut self, asked: &[(Kind, Program)], held: &mut Held) {
        let programs: Vec<Program> = asked.iter().map(|(_, program)| program.clone()).collect();
        for ((kind, _), ran) in asked.iter().zip(run::all(held, &programs, AT_ONCE)) {
            if ran.good() && ran.stdout.len() < LONGEST_OUTPUT {
                let names = names(*kind, &String::from_utf8_lossy(&ran.stdout));
                self.slurm.insert(*kind, names);
                continue;
            }
            let why = match ran.good() {
                true => "there are more than are read".to_owned(),
                false => ran.why(),
            };
            self.unchecked
                .push(format!("names of Slurm's, {}: {why}", kind.word()));
        }
    }

    fn found(&self, found: &Found) -> There {
        match found.kind == found::Kind::Directory && found.uid == 0 {
            true => There::Roots,
            false => There::Something,
        }
    }
}

impl Known for Host {
    fn of_slurm(&self, kind: Kind) -> Option<&[String]> {
        self.slurm.get(&kind).map(Vec::as_slice)
    }

    fn has_group(&self, name: &str) -> Option<bool> {
        accounts::has_group(name).ok()
    }

    fn has_user(&self, name: &str) -> Option<bool> {
        let account = accounts::named(name).ok()?;
        Some(account.is_some())
    }

    fn hosts(&self) -> &[String] {
        &self.hosts
    }

    fn there(&self, spec: &PathSpec) -> There {
        if spec.names_home() || spec.variable().is_some() {
            return There::Untold;
        }
        let (path, name) = match spec.other_homes() {
            Some((directory, _)) => (directory, None),
            None => {
                let path = PathBuf::from(spec.to_string());
                match (path.parent(), path.file_name(), spec.is_pattern()) {
                    (Some(parent), Some(name), true) => (parent.to_owned(), Some(name.to_owned())),
                    _ => (path, None),
                }
            }
        };
        let found = match self.files.look(&path) {
            Look::Found(found) => found,
            Look::Missing => return There::Nothing,
            Look::Denied(_) | Look::Closed(_) | Look::Hung => return There::Untold,
        };
        let Some(name) = name else {
            return self.found(&found);
        };
        let Some(entries) = self.files.entries(&path) else {
            return There::Untold;
        };
        let (name, mut entries) = (name.as_encoded_bytes(), entries.iter());
        match entries.any(|entry| glob(name, entry.name.as_encoded_bytes())) {
            true => There::Something,
            false => There::Nothing,
        }
    }

    fn led_to(&self, spec: &PathSpec) -> Vec<String> {
        let Some((directory, _)) = spec.other_homes() else {
            return Vec::new();
        };
        // Listed, and nothing in it looked at.
        let entries = self.files.entries(&directory).unwrap_or_default();
        let links = entries.iter().filter_map(|entry| entry.target.as_deref());
        let mut all: Vec<String> = links
            .filter(|target| target.is_absolute() && !target.starts_with(&directory))
            .filter_map(Path::parent)
            .filter(|at| *at != Path::new("/"))
            .map(|at| at.display().to_string())
            .collect();
        all.sort_unstable();
        all.dedup();
        all.truncate(MOST_LED_TO);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_what_slurm_says() {
        for (kind, said, expected) in [
            (Kind::Partition, "debug\nlong\n", vec!["debug", "long"]),
            (
                Kind::Constraint,
                "a100,ib\n(null)\nib",
                vec!["a100", "ib", "ib"],
            ),
            (
                Kind::Reservation,
                "ReservationName=day StartTime=2026-01-01T00:00:00 Nodes=n1\nReservationName=x A=b\n",
                vec!["day", "x"],
            ),
            (Kind::Reservation, "No reservations in the system\n", vec![]),
            (
                Kind::License,
                "LicenseName=matlab Total=3 Used=0\n",
                vec!["matlab"],
            ),
        ] {
            assert_eq!(names(kind, said), expected, "{said}");
        }
    }
}
