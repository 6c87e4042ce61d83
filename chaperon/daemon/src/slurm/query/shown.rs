//! What Slurm knows of a job is the capsule's; what is shown in its place stands in the record.

use agent_sandbox_wire::capsule::{Capsule, Program, default_output};
use serde_json::Value;

use crate::session::Session;
use crate::slurm::cluster;
use crate::slurm::options::KNOWS_B;
use crate::slurm::records::{Kind, Record, Text};

/// The number that Slurm shows of an array's task as long as it has none (`slurm.h`: NO_VAL).
pub(super) const NO_TASK: u32 = 0xffff_fffe;

/// What Slurm knows only of the capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobPath {
    /// The script.
    Command,
    /// The directory in which the job starts.
    Directory,
    /// Standard input.
    Input,
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// What names of files are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named<'a> {
    /// The job's number.
    pub id: u32,
    /// The array's number and the task's.
    pub array: Option<(u32, u32)>,
    /// The job's name.
    pub name: &'a [u8],
}

/// By whom and by which Slurm names are filled in.
#[derive(Clone, Copy)]
pub(super) struct Who<'a> {
    /// The user's name.
    pub user: &'a str,
    /// Whether `%b` stands for the last digit of a task's index.
    pub knows_b: bool,
}

impl<'a> Who<'a> {
    /// Those of a session.
    pub(super) fn of(session: &'a Session) -> Self {
        Self {
            user: &session.order.user,
            knows_b: cluster::known_release(session).is_none_or(|release| release >= KNOWS_B),
        }
    }
}

/// What is shown in this place; `None`: what Slurm has.
pub(super) fn shown(record: &Record, place: JobPath, job: &Named, who: Who<'_>) -> Option<Vec<u8>> {
    match place {
        JobPath::Directory => (!record.cwd.0.is_empty()).then(|| record.cwd.0.clone()),
        JobPath::Command => {
            let known = record.kind == Kind::Batch || record.command.0 != b"(null)";
            known.then(|| record.command.0.clone())
        }
        // Of the streams of srun and salloc Slurm shows nothing.
        _ if record.kind != Kind::Batch => None,
        JobPath::Input => Some(match &record.input {
            None => b"/dev/null".to_vec(),
            Some(pattern) => resolved(&pattern.0, record, job, who),
        }),
        JobPath::Output => Some(output(
            record,
            record.output.as_ref().map(|p| &p.0),
            job,
            who,
        )),
        JobPath::Error => {
            let pattern = record.error.as_ref().or(record.output.as_ref());
            Some(output(record, pattern.map(|p| &p.0), job, who))
        }
    }
}

/// How squeue's columns show names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileNames {
    /// As they were asked for, with the default's number filled in (`_print_job_std_out` in `print.c`, until 24.05).
    Given,
    /// As they were asked for, the default as a pattern (until 25.11).
    Patterns,
    /// The same, the default without a directory: as slurmctld has it.
    Stored,
    /// Filled in (`--expand-patterns`).
    Filled,
}

/// What is shown of a job in a column of squeue's; `None`: what Slurm has.
pub(super) fn column(
    record: &Record,
    place: JobPath,
    job: &Named,
    who: Who<'_>,
    names: FileNames,
) -> Option<Vec<u8>> {
    let asked = match place {
        _ if names == FileNames::Filled || record.kind != Kind::Batch => None,
        JobPath::Output => Some(record.output.as_ref()),
        JobPath::Error if names == FileNames::Given => {
            Some(record.error.as_ref().or(record.output.as_ref()))
        }
        JobPath::Error if record.error.is_none() => return Some(b"(null)".to_vec()),
        JobPath::Error => Some(record.error.as_ref()),
        JobPath::Input => record.input.as_ref().map(Some),
        JobPath::Command | JobPath::Directory => None,
    };
    let default = default_output(job.array.is_some()).to_vec();
    let pattern = match (asked, names) {
        (None, _) => return shown(record, place, job, who),
        (Some(Some(asked)), _) => asked.0.clone(),
        (Some(None), FileNames::Patterns) => default,
        (Some(None), FileNames::Stored) => return Some(default),
        (Some(None), _) => format!("slurm-{}.out", job.id).into_bytes(),
    };
    Some(absolute(&pattern, record))
}

/// As sbatch makes paths absolute.
fn absolute(pattern: &[u8], record: &Record) -> Vec<u8> {
    if pattern.starts_with(b"/") {
        return pattern.to_vec();
    }
    [&record.cwd.0, &b"/"[..], pattern].concat()
}

fn output(record: &Record, pattern: Option<&Vec<u8>>, job: &Named, who: Who<'_>) -> Vec<u8> {
    let pattern = pattern.map_or(default_output(job.array.is_some()), Vec::as_slice);
    resolved(pattern, record, job, who)
}

/// Fills a pattern in as Slurm does where it shows one: `%A`, `%a`, `%j`, `%u` and `%x`, without
/// widths; the rest stays (`_fname_format` of Slurm 22.05).
fn resolved(pattern: &[u8], record: &Record, job: &Named, who: Who<'_>) -> Vec<u8> {
    let (array, task) = job.array.unwrap_or((job.id, NO_TASK));
    let mut path = Vec::new();
    let pattern = absolute(pattern, record);
    let mut bytes = pattern.into_iter();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            path.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'A') => path.extend(array.to_string().bytes()),
            Some(b'a') => path.extend(task.to_string().bytes()),
            Some(b'j') => path.extend(job.id.to_string().bytes()),
            Some(b'b') if who.knows_b => path.extend((task % 10).to_string().bytes()),
            Some(b'u') => path.extend(who.user.bytes()),
            Some(b'x') => path.extend_from_slice(job.name),
            Some(other) => path.extend([b'%', other]),
            None => path.push(b'%'),
        }
    }
    path
}

/// The user's script, if this is a capsule of ours; `None`: it is a script like any other.
pub(super) fn unwrapped(script: &[u8]) -> Option<Vec<u8>> {
    // Slurm ends scripts with NUL in some places.
    let end = script
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |at| at + 1);
    match Capsule::from_batch_script(&script[..end]).ok()?.program {
        Program::Script { script, .. } => Some(script),
        Program::Command(_) | Program::PerTask(_) => None,
    }
}

/// A number in Slurm's JSON: plain, or with `set` and `infinite` beside it (since 23.02).
pub(super) fn number(value: &Value) -> Option<u32> {
    let number = match value.get("number") {
        Some(number) => (value.get("set") != Some(&Value::Bool(false))).then_some(number)?,
        None => value,
    };
    number.as_u64()?.try_into().ok()
}

/// Puts what is recorded into the description of a job that `squeue --json` or `scontrol --json`
/// gives.
pub(super) fn describe(job: &mut Value, record: &Record) {
    let Some(fields) = job.as_object_mut() else {
        return;
    };
    let text = |bytes: &[u8]| Value::String(String::from_utf8_lossy(bytes).into_owned());
    // sbatch makes paths absolute.
    let asked = |path: &Option<Text>, otherwise: &[u8]| match path {
        Some(path) => text(&absolute(&path.0, record)),
        None => text(otherwise),
    };
    let mut put = |name: &str, value: Value| {
        if let Some(old) = fields.get_mut(name) {
            *old = value;
        }
    };
    if !record.cwd.0.is_empty() {
        put("current_working_directory", text(&record.cwd.0));
    }
    if record.kind != Kind::Batch {
        return;
    }
    let command = if record.command.0 == b"(null)" {
        &[][..]
    } else {
        &record.command.0
    };
    put("command", text(command));
    put("standard_output", asked(&record.output, b""));
    put("standard_error", asked(&record.error, b""));
    put("standard_input", asked(&record.input, b"/dev/null"));
    // Expanded by Slurm since 24.11, from what the capsule has.
    for name in [
        "stdout_expanded",
        "stderr_expanded",
        "stdin_expanded",
        "script",
        "submit_line",
    ] {
        put(name, text(b""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Who<'_> = Who {
        user: "alice",
        knows_b: true,
    };

    fn record(output: Option<&str>) -> Record {
        Record {
            session: "s".into(),
            project: Text::from("/p"),
            submitted: 0,
            kind: Kind::Batch,
            command: Text::from("/p/job.sh"),
            cwd: Text::from("/p/a b"),
            output: output.map(Text::from),
            error: None,
            input: None,
            array: false,
            hours: None,
        }
    }

    fn show(output: Option<&str>, place: JobPath, array: Option<(u32, u32)>) -> String {
        let job = Named {
            id: 7,
            array,
            name: b"n",
        };
        String::from_utf8(shown(&record(output), place, &job, ALICE).unwrap()).unwrap()
    }

    #[test]
    fn paths_are_those_that_were_asked_for() {
        assert_eq!(show(None, JobPath::Output, None), "/p/a b/slurm-7.out");
        assert_eq!(
            show(None, JobPath::Error, Some((5, 2))),
            "/p/a b/slurm-5_2.out"
        );
        assert_eq!(
            show(Some("o/%j-%x-%u-%N%"), JobPath::Error, None),
            "/p/a b/o/7-n-alice-%N%"
        );
        assert_eq!(
            show(Some("/o/%A_%a-%b"), JobPath::Output, Some((5, 12))),
            "/o/5_12-2"
        );
        assert_eq!(show(None, JobPath::Input, None), "/dev/null");
        assert_eq!(show(None, JobPath::Command, None), "/p/job.sh");
        assert_eq!(show(None, JobPath::Directory, None), "/p/a b");
    }

    #[test]
    fn columns_show_names_as_squeue_does() {
        let (task, job) = (Some((5, 2)), None);
        for (names, asked, place, array, expected) in [
            (
                FileNames::Given,
                Some("%x"),
                JobPath::Error,
                job,
                "/p/a b/%x",
            ),
            (
                FileNames::Given,
                None,
                JobPath::Output,
                task,
                "/p/a b/slurm-7.out",
            ),
            (
                FileNames::Patterns,
                Some("/%x"),
                JobPath::Output,
                job,
                "/%x",
            ),
            (
                FileNames::Patterns,
                Some("x"),
                JobPath::Error,
                job,
                "(null)",
            ),
            (
                FileNames::Stored,
                None,
                JobPath::Output,
                job,
                "slurm-%j.out",
            ),
            (
                FileNames::Patterns,
                None,
                JobPath::Output,
                job,
                "/p/a b/slurm-%j.out",
            ),
            (
                FileNames::Patterns,
                None,
                JobPath::Output,
                task,
                "/p/a b/slurm-%A_%a.out",
            ),
            (FileNames::Patterns, None, JobPath::Input, job, "/dev/null"),
            (
                FileNames::Filled,
                Some("%x"),
                JobPath::Output,
                job,
                "/p/a b/n",
            ),
        ] {
            let job = Named {
                id: 7,
                array,
                name: b"n",
            };
            let text = column(&record(asked), place, &job, ALICE, names).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), expected, "{names:?}");
        }
    }

    #[test]
    fn numbers_of_old_and_new_slurm() {
        let parse = |text| number(&serde_json::from_str(text).unwrap());
        assert_eq!(parse("5"), Some(5));
        assert_eq!(
            parse(r#"{"set":true,"infinite":false,"number":5}"#),
            Some(5)
        );
        assert_eq!(parse(r#"{"set":false,"infinite":false,"number":0}"#), None);
        assert_eq!(parse("\"5\""), None);
    }
}
