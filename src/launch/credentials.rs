//! Values of credentials, read outside before anything runs inside: they go to the filter, and nowhere else.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_sandbox_hosts::{Credential, Secret};
use agent_sandbox_wire::network::KeptCredential;
use anyhow::Result;
use bstr::ByteSlice;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use zeroize::Zeroizing;

use super::prepared::Prepared;
use crate::config::source::Layer;
use crate::env_vars;
use crate::failure::{self, Failure};
use crate::host::HostFacts;
use crate::host::files::{Files, Kind, Look};
use crate::plan::model::network::PlannedCredential;
use crate::plan::{Access, Mount, Plan};
use crate::policy::ValueSource;

/// The longest value, in bytes: servers take heads of 8 KiB.
const LONGEST: usize = 7 << 10;
/// Shorter ones stand in other texts by chance, where they would be replaced.
const SHORTEST: usize = 8;
/// How long a command may take: it may ask an agent for a passphrase.
const PATIENCE: Duration = Duration::from_secs(60);
/// By which a shell or a loader runs something before the command.
const LOADING: [&str; 4] = ["BASH_ENV", "ENV", "LD_AUDIT", "LD_PRELOAD"];

/// The credentials of a plan with their values.
///
/// # Errors
/// One has none: nothing is started.
pub(super) fn read(prepared: &Prepared, plan: &Plan) -> Result<Vec<Credential>> {
    let read = planned(plan).map(|one| {
        with_value(one, prepared, plan).map_err(|why| {
            Failure::new(format!(
                "the credential `{}` ({}) cannot be read: {why}",
                one.name, one.source
            ))
            .hint("nothing was started; --set network.credentials=off does without credentials")
            .into()
        })
    });
    read.collect()
}

/// The same of a job, which starts without those that cannot be read on its node: they stay placeholders.
///
/// What a capsule says is read as the user's own: none can be submitted from inside but by the chaperon, which writes the session's policy
/// into it. Commands have the chaperon's environment, of which nothing comes from inside.
pub(super) fn read_in_job(
    prepared: &Prepared,
    plan: &Plan,
) -> (Vec<Credential>, Vec<KeptCredential>) {
    let mut read = Vec::new();
    let kept = |one: &PlannedCredential, why: &str| KeptCredential {
        why: failure::one_line(&format!(
            "the credential `{}` ({}) stays a placeholder in this job: {why}",
            one.name, one.source
        )),
        // A profile's is the key of an agent's model, which most jobs do not need.
        told: one.source.layer == Layer::User,
    };
    let known = plan.filter.iter().flat_map(|filter| &filter.kept);
    let mut all: Vec<_> = known.map(|(one, why)| kept(one, why)).collect();
    for one in planned(plan) {
        match with_value(one, prepared, plan) {
            Ok(one) => read.push(one),
            Err(why) => all.push(kept(one, &why)),
        }
    }
    (read, all)
}

/// One that could be exchanged, if programs of the jail knew the filter.
pub(super) fn unknown(one: &Credential) -> KeptCredential {
    KeptCredential {
        why: format!(
            "the credential `{}` stays a placeholder in this step: another step made the jail of the job on this node, and could not read it",
            one.name
        ),
        told: true,
    }
}

fn planned(plan: &Plan) -> impl Iterator<Item = &PlannedCredential> {
    plan.filter.iter().flat_map(|filter| &filter.credentials)
}

fn with_value(
    one: &PlannedCredential,
    prepared: &Prepared,
    plan: &Plan,
) -> Result<Credential, String> {
    Ok(Credential {
        name: one.name.clone(),
        hosts: one.hosts.clone(),
        placeholder: one.placeholder.clone(),
        value: value(one, prepared, plan)?,
        by_base_url: one.by_base_url,
    })
}

/// Takes out of an environment what holds one of the values.
pub(super) fn conceal(credentials: &[Credential], environment: &mut Vec<Vec<u8>>) {
    environment.retain(|entry| {
        !credentials
            .iter()
            .any(|one| entry.contains_str(one.value.reveal()))
    });
}

fn value(one: &PlannedCredential, prepared: &Prepared, plan: &Plan) -> Result<Secret, String> {
    let host = &prepared.host;
    let read = match &one.from {
        ValueSource::Variable(name) => {
            let value = host
                .variable(name)
                .ok_or_else(|| format!("the variable {name} is not set"))?;
            Zeroizing::new(value.as_bytes().to_vec())
        }
        ValueSource::File(path) => {
            let path = path.expand(host).ok_or("its path leads nowhere")?;
            file(&path, &prepared.files, plan)?
        }
        ValueSource::Command(line) => {
            let complaints = match prepared.invocation.job {
                None => Stdio::inherit(),
                // It is the job's output, which is read inside.
                Some(_) => Stdio::null(),
            };
            command(line, complaints, host, plan)?
        }
    };
    let text = std::str::from_utf8(&read)
        .map_err(|_| "it is no text")?
        .trim();
    match text.len() {
        SHORTEST..=LONGEST if text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(text.to_owned().into())
        }
        SHORTEST..=LONGEST => {
            Err("it has other letters than a header can hold, or several words".to_owned())
        }
        0 => Err("it is empty".to_owned()),
        _ => Err(format!("it has not {SHORTEST} to {LONGEST} bytes")),
    }
}

fn file(path: &Path, files: &dyn Files, plan: &Plan) -> Result<Zeroizing<Vec<u8>>, String> {
    let Look::Found(found) = files.look(path) else {
        return Err(format!("`{}` cannot be found", path.display()));
    };
    let mut on_the_way = found
        .links
        .iter()
        .map(|(link, _)| link)
        .chain([&found.real]);
    if on_the_way.any(|place| is_changed_inside(place, plan)) {
        return Err(format!(
            "`{}` stands where the jail can write",
            path.display()
        ));
    }
    if found.kind != Kind::File {
        return Err(format!("`{}` is no file", path.display()));
    }
    // By the real path no link is followed, and a FIFO is not waited for.
    let read = files.small_file(&found.real, LONGEST + 2);
    read.map(Zeroizing::new)
        .ok_or_else(|| format!("`{}` cannot be read, or is too long", path.display()))
}

/// What a line prints, in a shell outside. It gets the user's variables, less what leads to something that the jail can change: that
/// would run outside what was written inside.
fn command(
    line: &str,
    complaints: Stdio,
    host: &HostFacts,
    plan: &Plan,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("its command cannot be run: {error}");
    let mut child = Command::new("/bin/sh")
        .args(["-c", line])
        .current_dir("/")
        .env_clear()
        .envs(environment(host, plan))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(complaints)
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take().ok_or("its command has no output")?;
    let read = until(output.into(), Instant::now() + PATIENCE).map_err(failed);
    if !matches!(read, Ok(Some(_))) {
        // It has nothing more to say.
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    match read? {
        None => Err(format!(
            "its command printed more than {LONGEST} bytes, or did not end within {PATIENCE:?}"
        )),
        Some(_) if !status.success() => Err(format!("its command failed ({status})")),
        Some(value) => Ok(value),
    }
}

/// Reads to the end; nothing if that does not come in time.
fn until(output: OwnedFd, deadline: Instant) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut output = File::from(output);
    let mut value = Zeroizing::new(vec![0; LONGEST + 2]);
    let mut length = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut ready = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, left)? == 0 || length == value.len() {
            return Ok(None);
        }
        match output.read(&mut value[length..])? {
            0 => {
                value.truncate(length);
                return Ok(Some(value));
            }
            more => length += more,
        }
    }
}

fn environment(host: &HostFacts, plan: &Plan) -> Vec<(OsString, OsString)> {
    let changed = |entry: &&[u8]| {
        let path = PathBuf::from(OsStr::from_bytes(entry));
        // By its real path as well: a link of the user's own may lead there.
        let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        !path.is_absolute() || is_changed_inside(&path, plan) || is_changed_inside(&real, plan)
    };
    let writable: Vec<&[u8]> = writable(plan)
        .map(|place| place.as_os_str().as_bytes())
        .collect();
    let kept = host.environment.iter().filter_map(|(name, value)| {
        let bytes = value.as_bytes();
        if name == env_vars::PATH || name == env_vars::LD_LIBRARY_PATH {
            let steady: Vec<&[u8]> = bytes
                .split(|byte| *byte == b':')
                .filter(|entry| !changed(entry))
                .collect();
            return Some((
                name.clone(),
                OsStr::from_bytes(&steady.join(&b':')).to_owned(),
            ));
        }
        let loads =
            LOADING.iter().any(|other| name == other) || name.as_bytes().starts_with(b"BASH_FUNC_");
        let mut paths = bytes
            .split(|byte| b":=,; ".contains(byte))
            .filter(|part| part.starts_with(b"/"));
        let leads_inside = writable.iter().any(|place| bytes.contains_str(place))
            || paths.any(|path| changed(&path));
        (!loads && !leads_inside).then(|| (name.clone(), value.clone()))
    });
    kept.collect()
}

/// The places of the host's that what is inside can change.
fn writable(plan: &Plan) -> impl Iterator<Item = &Path> {
    plan.steps.iter().filter_map(|step| match &step.mount {
        Mount::Bind {
            from,
            access: Access::Write,
            ..
        }
        | Mount::Kept { from, .. } => Some(from.as_path()),
        _ => None,
    })
}

fn is_changed_inside(place: &Path, plan: &Plan) -> bool {
    writable(plan).any(|from| place.starts_with(from))
}
