//! Loading an object: in a child, as the kernel's type information takes tens of megabytes once it is parsed,
//! and the service is to stay small. The child loads, attaches and pins, says how that went on its standard
//! output, and ends; what is pinned stays.

#![allow(clippy::disallowed_methods, reason = "effects: starts a process")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use aya::programs::links::FdLink;
use aya::programs::{Program, ProgramError};
use aya::{Btf, BtfError, EbpfLoader};
use serde::{Deserialize, Serialize};

use super::maps::NAMES;
use super::objects::{Hook, Kind, hooks};
use super::pins::Pins;
use super::settings::{Error, Settings};

/// How loading went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Programs that run.
    pub attached: Vec<String>,
    /// Programs that do not, and what the kernel said.
    pub refused: BTreeMap<String, String>,
    /// Why nothing at all was loaded.
    pub failed: Option<String>,
}

/// Has an object loaded and pinned.
///
/// # Errors
/// Nothing at all was loaded.
pub(crate) fn load(
    settings: &Settings,
    kind: Kind,
    pins: &Pins,
    lsm: bool,
) -> Result<Report, Error> {
    let broken = |why: String| Error::Load {
        kind: kind.name(),
        why,
    };
    let mut command = Command::new(settings.program());
    command
        .args(["load", "--kind", kind.name(), "--directory"])
        .arg(pins.path())
        .args(["--ring", &settings.ring.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    if lsm {
        command.arg("--lsm");
    }
    if let Some(objects) = &settings.objects {
        command.arg("--objects").arg(objects);
    }
    let output = command
        .output()
        .map_err(|error| broken(error.to_string()))?;
    let report: Report = serde_json::from_slice(&output.stdout)
        .map_err(|_| broken(format!("the loading process ended with {}", output.status)))?;
    match report.failed {
        Some(why) => Err(broken(why)),
        None => Ok(report),
    }
}

/// What the child does: loads an object, attaches its programs, pins all of it at `directory`.
#[must_use]
pub fn child(kind: Kind, objects: Option<&Path>, directory: &Path, ring: u32, lsm: bool) -> Report {
    let mut report = Report::default();
    if let Err(error) = attempt(kind, objects, &Pins::at(directory), ring, lsm, &mut report) {
        report.failed = Some(chain(error.as_ref()));
    }
    report
}

type Failure = Box<dyn std::error::Error>;

fn attempt(
    kind: Kind,
    objects: Option<&Path>,
    pins: &Pins,
    ring: u32,
    lsm: bool,
    report: &mut Report,
) -> Result<(), Failure> {
    let bytes = kind.bytes(objects)?;
    let hooks = hooks(&bytes)?;
    let btf = Btf::from_sys_fs()?;
    let mut object = EbpfLoader::new()
        .btf(Some(&btf))
        .allow_unsupported_maps()
        .map_max_entries("events", ring)
        .load(&bytes)?;
    let new = pins.prepare()?;
    for (name, map) in object.maps_mut() {
        if NAMES.contains(&name) {
            map.pin(new.maps().join(name))?;
        }
    }
    // In the order of the table, which is that of the alphabet: the same on each node.
    for (name, hook) in &hooks {
        let Some(program) = object.program_mut(name) else {
            continue;
        };
        if hook.kind.starts_with("lsm") && !lsm {
            let why = "security hooks of eBPF programs are switched off (`bpf` is not in lsm=)";
            report.refused.insert(name.clone(), why.to_owned());
            continue;
        }
        match attach(program, hook, &btf) {
            Ok(link) => {
                program.pin(new.programs().join(name))?;
                link.pin(new.links().join(name))?;
                report.attached.push(name.clone());
            }
            Err(ProgramError::Btf(BtfError::UnknownBtfTypeName { .. })) => {
                new.note_absent(name)?;
                let why = format!("this kernel has no `{}`", hook.target);
                report.refused.insert(name.clone(), why);
            }
            Err(error) => {
                report.refused.insert(name.clone(), told(&error));
            }
        }
    }
    pins.settle(&new)?;
    Ok(())
}

fn attach(program: &mut Program, hook: &Hook, btf: &Btf) -> Result<FdLink, ProgramError> {
    let target = hook.target.as_str();
    Ok(match program {
        Program::FEntry(program) => {
            program.load(target, btf)?;
            let link = program.attach()?;
            program.take_link(link)?.into()
        }
        Program::FExit(program) => {
            program.load(target, btf)?;
            let link = program.attach()?;
            program.take_link(link)?.into()
        }
        Program::Lsm(program) => {
            program.load(target, btf)?;
            let link = program.attach()?;
            program.take_link(link)?.into()
        }
        Program::BtfTracePoint(program) => {
            program.load(target, btf)?;
            let link = program.attach()?;
            program.take_link(link)?.into()
        }
        Program::Iter(program) => {
            program.load(target, btf)?;
            let link = program.attach()?;
            FdLink::try_from(program.take_link(link)?)
                .map_err(|error| ProgramError::IOError(std::io::Error::other(error)))?
        }
        _ => return Err(ProgramError::UnexpectedProgramType),
    })
}

/// What the kernel said of a program, in a line: of the verifier's log its last words, which are what it
/// stumbled over.
fn told(error: &ProgramError) -> String {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    else {
        return chain(error);
    };
    match last_words(&verifier_log.to_string()) {
        Some(line) => format!("{io_error}: {line}"),
        None => io_error.to_string(),
    }
}

fn last_words(log: &str) -> Option<&str> {
    log.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty() && !is_statistics(line))
}

/// What the verifier's log ends with, whatever it was about.
fn is_statistics(line: &str) -> bool {
    ["processed ", "verification time ", "stack depth "]
        .iter()
        .any(|begin| line.starts_with(begin))
}

/// An error and its causes, each once.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_words_are_told_and_its_statistics_are_not() {
        let log = "0: R1=ctx() R10=fp0\n\
                   1: (85) call bpf_d_path#147\n\
                   helper call is not allowed in probe\n\
                   processed 2 insns (limit 1000000)\n\
                   \n";
        assert_eq!(last_words(log), Some("helper call is not allowed in probe"));
        assert_eq!(last_words("processed 0 insns\n"), None);
    }

    #[test]
    fn a_report_travels() {
        let report = Report {
            attached: vec!["a".to_owned()],
            refused: [("b".to_owned(), "no".to_owned())].into(),
            failed: None,
        };
        let text = serde_json::to_vec(&report).expect("JSON");
        assert_eq!(
            serde_json::from_slice::<Report>(&text).expect("the same"),
            report
        );
    }
}
