//! What Slurm knows of a job is the capsule's; what is shown in its place stands in the record.

use agent_sandbox_wire::capsule::{Capsule, Program};
use serde_json::Value;

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

/// What is shown in this place; `None`: what Slurm has.
pub(super) fn shown(record: &Record, place: JobPath, job: &Named, user: &str) -> Option<Vec<u8>> {
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
            Some(pattern) => resolved(&pattern.0, record, job, user),
        }),
        JobPath::Output => Some(output(
            record,
            record.output.as_ref().map(|p| &p.0),
            job,
            user,
        )),
        JobPath::Error => {
            let pattern = record.error.as_ref().or(record.output.as_ref());
            Some(output(record, pattern.map(|p| &p.0), job, user))
        }
    }
}

fn output(record: &Record, pattern: Option<&Vec<u8>>, job: &Named, user: &str) -> Vec<u8> {
    match (pattern, job.array) {
        (Some(pattern), _) => resolved(pattern, record, job, user),
        (None, Some(_)) => resolved(b"slurm-%A_%a.out", record, job, user),
        (None, None) => resolved(b"slurm-%j.out", record, job, user),
    }
}

/// Fills a pattern in as Slurm does where it shows one: `%A`, `%a`, `%j`, `%u` and `%x`, without
/// widths; the rest stays (`_fname_format` of Slurm 22.05).
fn resolved(pattern: &[u8], record: &Record, job: &Named, user: &str) -> Vec<u8> {
    let (array, task) = job.array.unwrap_or((job.id, NO_TASK));
    let mut path = Vec::new();
    if !pattern.starts_with(b"/") {
        path.extend_from_slice(&record.cwd.0);
        path.push(b'/');
    }
    let mut bytes = pattern.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            path.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'A') => path.extend(array.to_string().bytes()),
            Some(b'a') => path.extend(task.to_string().bytes()),
            Some(b'j') => path.extend(job.id.to_string().bytes()),
            Some(b'u') => path.extend(user.bytes()),
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
        Some(path) if path.0.starts_with(b"/") => text(&path.0),
        Some(path) => text(&[&record.cwd.0, &b"/"[..], &path.0].concat()),
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
        String::from_utf8(shown(&record(output), place, &job, "alice").unwrap()).unwrap()
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
            show(Some("/o/%A_%a"), JobPath::Output, Some((5, 2))),
            "/o/5_2"
        );
        assert_eq!(show(None, JobPath::Input, None), "/dev/null");
        assert_eq!(show(None, JobPath::Command, None), "/p/job.sh");
        assert_eq!(show(None, JobPath::Directory, None), "/p/a b");
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
