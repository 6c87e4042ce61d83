//! The launcher's side of the chaperon: what it is told. It is started at the first call from inside.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agent_sandbox_wire::errand::{Errand, What};
use agent_sandbox_wire::explain::Question;
use agent_sandbox_wire::order::{self, JailPath, JobContext, Order, QueryCache};
use anyhow::{Context, Result};
use bstr::ByteSlice;
use nix::fcntl::readlink;

use super::on_call::OnCall;
use super::prepared::{FIRST_TIMEOUT, Prepared};
use crate::env_vars;
use crate::failure::{self, Failure};
use crate::host::HostFacts;
use crate::host::files::HostFiles;
use crate::host::slurm::{self, CHAPERON, Conf};
use crate::logging;
use crate::own_directory;
use crate::plan::model::network::PlannedCredential;
use crate::plan::{Mount, Plan, Step};
use crate::sys::fds;
use crate::sys::paths::by_descriptor;

/// Variables of the caller's that the real commands get: how they speak and tell the time.
const PASSED: [&str; 3] = ["LANG", "LANGUAGE", "TZ"];
/// A longer name of a language or a time zone is none.
const LONGEST_VALUE: usize = 64;
/// What the chaperon had to say stands here, below the state directory. Its audit record is kept
/// elsewhere: this is for what should not happen.
pub(super) const LOG: &str = "slurm/chaperon.log";
/// What a launch needs of it; `None` if the plan wants no chaperon. `told` is what the user was
/// told of the jail, a line each; `job` is the job in which this launch runs, if Slurm started it;
/// else it is the allocation in which the session was started, if there is one.
///
/// # Errors
/// The order cannot be written.
pub fn on_call(
    prepared: &Prepared,
    plan: &Plan,
    mut told: Vec<String>,
    job: Option<JobContext>,
) -> Result<Option<OnCall>> {
    let host = &prepared.host;
    let Some(slurm) = host.slurm.as_ref().filter(|_| plan.wants_chaperon()) else {
        return Ok(None);
    };
    let program = slurm
        .chaperon
        .clone()
        .context("the chaperon is not installed")?;
    let mut snapshot = prepared.snapshot.clone();
    told.retain(|line| !snapshot.told.contains(line));
    snapshot.told.extend(told);
    snapshot.traced |= prepared.is_traced;
    // A job's are those of its session, whatever it can exchange itself.
    if let (None, Some(filter)) = (&prepared.invocation.job, &plan.filter) {
        let all = filter.credentials.iter();
        let placeholder = |one: &PlannedCredential| (one.name.clone(), one.placeholder.clone());
        snapshot.placeholders = all.map(placeholder).collect();
    }
    let request = plan.trace.request.as_ref();
    let signer = request.filter(|_| snapshot.traced);
    let signer = signer.map(|request| request.socket.path().as_os_str().as_bytes().to_vec());
    let order = Order {
        snapshot,
        signer,
        tracer: plan.trace.keeps_audit(),
        places: plan.steps.iter().filter_map(place).collect(),
        job: job.or_else(|| {
            host.allocation.as_ref().map(|ours| JobContext {
                id: ours.job,
                environment: ours.variables.clone(),
            })
        }),
        ..order(prepared)
    };
    let text = order::encode(&order).context("cannot write the chaperon's order")?;
    let order = fds::memory_file(c"agent-sandbox-slurm", &text)?;
    let log = host.state_directory.join(LOG);
    // Where the user is told that a job waits for them.
    let errors = io::stderr().as_fd().try_clone_to_owned()?;
    OnCall::new(program, "serve", vec![order, errors], log).map(Some)
}

/// What holds for this directory, without a session.
fn order(prepared: &Prepared) -> Order {
    let host = &prepared.host;
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let rules = &prepared.policy.slurm;
    let slurm = host.slurm.as_ref();
    let commands = slurm.map(|slurm| &slurm.commands).into_iter().flatten();
    Order {
        snapshot: prepared.snapshot.clone(),
        scope: rules.scope.value,
        queries: rules.queries.value,
        allocation: rules.allocation.value,
        limits: rules.limits.values(),
        bounds: prepared.policy.job_bounds(),
        budgets: prepared.policy.budgets(),
        commands: commands
            .map(|(command, path)| (*command, bytes(path)))
            .collect(),
        agent_sandbox: bytes(&host.executable),
        query_cache: query_cache(host.uid, rules.query_cache_seconds.value),
        state: bytes(&host.state_directory),
        tracer: None,
        signer: None,
        environment: slurm.map_or_else(Vec::new, |slurm| environment(host, &slurm.conf)),
        user: user(host),
        uid: host.uid,
        home: bytes(&host.home),
        places: Vec::new(),
        job: None,
    }
}

/// Lets the chaperon's program do something for the user; its exit code.
///
/// # Errors
/// It cannot be started, or does not take the errand.
pub fn errand(prepared: &Prepared, what: What) -> Result<u8> {
    let mut order = order(prepared);
    order.snapshot.session.clear();
    order.limits.queries_per_minute = 0;
    let program = program(CHAPERON)?;
    let text = postcard::to_allocvec(&Errand { order, what });
    let text = text.with_context(|| format!("cannot ask `{}`", program.display()))?;
    ask(&program, "errand", &text)
}

/// Where answers of Slurm's are shared. A node without a place for it has none.
fn query_cache(uid: u32, seconds: u32) -> Option<QueryCache> {
    if seconds == 0 {
        return None;
    }
    let directory = own_directory::open_for(uid, &own_directory::parents(), "").ok()?;
    let path = readlink(by_descriptor(&directory).as_str()).ok()?;
    Some(QueryCache {
        directory: path.into_vec(),
        seconds,
    })
}

/// A place of the jail's, as far as files can stand in it.
fn place(step: &Step) -> Option<JailPath> {
    let own = match step.mount {
        Mount::Bind { .. } | Mount::Kept { .. } => false,
        Mount::Tmpfs { .. } | Mount::Directory { .. } | Mount::HideDirectory => true,
        _ => return None,
    };
    Some(JailPath {
        at: step.at.as_os_str().as_bytes().to_vec(),
        own,
    })
}

/// Lets the chaperon's program say what is allowed of a command line of Slurm's; its exit code.
///
/// # Errors
/// It cannot be started, or does not take the question.
pub fn explain(program: &Path, question: &Question) -> Result<u8> {
    let failed = || format!("cannot ask `{}`", program.display());
    let text = postcard::to_allocvec(question).with_context(failed)?;
    ask(program, "explain", &text)
}

/// Has the chaperon's program do something, by what it is told on standard input; its exit code.
fn ask(program: &Path, verb: &str, text: &[u8]) -> Result<u8> {
    let failed = || format!("cannot ask `{}`", program.display());
    let asked = fds::memory_file(c"agent-sandbox-question", text).with_context(failed)?;
    let status = Command::new(program)
        .arg(verb)
        .env_clear()
        .stdin(Stdio::from(asked))
        .status()
        .with_context(failed)?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(failure::FAILED))
}

/// Becomes the shim under another name, with these words.
///
/// # Errors
/// It cannot be started.
pub fn call(program: &Path, name: &str, words: Option<&str>) -> io::Result<u8> {
    // Nothing of this process is to be done after it.
    Err(Command::new(program).arg0(name).args(words).exec())
}

/// A program of ours, by its name.
///
/// # Errors
/// It is not installed.
pub fn program(name: &str) -> Result<PathBuf> {
    let executable = crate::host::executable()?;
    let files = HostFiles::new(FIRST_TIMEOUT);
    let found = slurm::program(name, &executable, &files);
    Ok(found.ok_or_else(|| {
        Failure::new(format!("`{name}` is not installed"))
            .hint("install agent-sandbox again with all of its programs")
    })?)
}

fn user(host: &HostFacts) -> String {
    host.user.clone().unwrap_or_else(|| host.uid.to_string())
}

/// The whole environment of the real commands, `NAME=VALUE`. Nothing of it comes from inside.
pub fn environment(host: &HostFacts, conf: &Conf) -> Vec<Vec<u8>> {
    let user = user(host);
    let line = host.databases.caller.as_deref().unwrap_or_default();
    let shell = line
        .rsplit(':')
        .next()
        .filter(|shell| shell.starts_with('/'))
        .unwrap_or("/bin/sh");
    let mut all: Vec<(&OsStr, &OsStr)> = Vec::new();
    let mut set = |name, value| all.push((OsStr::new(name), value));
    set(env_vars::PATH, OsStr::new("/usr/bin:/bin"));
    set(env_vars::HOME, host.home.as_os_str());
    set("USER", OsStr::new(&user));
    set("LOGNAME", OsStr::new(&user));
    set("SHELL", OsStr::new(shell));
    if let Conf::At(path) = conf {
        set(env_vars::SLURM_CONF, path.as_os_str());
    }
    // Jobs have it from the real command, and log as their session does.
    let filter = logging::filter();
    if let Some(filter) = &filter {
        set(env_vars::LOG, OsStr::new(filter));
    }
    let passed = host.environment.iter().filter(|(name, value)| {
        let name = name.to_str().unwrap_or_default();
        (PASSED.contains(&name) || name.starts_with("LC_")) && is_plain(name, value)
    });
    all.extend(passed.map(|(name, value)| (name.as_os_str(), value.as_os_str())));
    all.into_iter()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// Whether a value names a language or a time zone of the system's. One that is a path would make
/// the C library read that file (`setlocale(3)`, `tzset(3)`).
fn is_plain(name: &str, value: &OsStr) -> bool {
    let text = value.as_bytes();
    let letters = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.@:,+".contains(byte);
    let zone = |byte: &u8| letters(byte) || *byte == b'/';
    let path = text.starts_with(b"/") || text.starts_with(b":") || text.contains_str("..");
    text.len() <= LONGEST_VALUE
        && !path
        && if name == "TZ" {
            text.iter().all(zone)
        } else {
            text.iter().all(letters)
        }
}

#[cfg(test)]
mod tests {
    use super::is_plain;
    use std::ffi::OsStr;

    #[test]
    fn names_of_languages_and_zones_pass_and_paths_do_not() {
        let plain = |name, value: &str| is_plain(name, OsStr::new(value));
        assert!(plain("LANG", "de_DE.UTF-8@euro"));
        assert!(plain("LANGUAGE", "de:en"));
        assert!(plain("TZ", "Europe/Berlin"));
        assert!(plain("TZ", "CET-1CEST,M3.5.0,M10.5.0/3"));
        for (name, value) in [
            ("LANG", "/home/ada/project/locale"),
            ("LC_ALL", "../../home/ada/x"),
            ("LC_ALL", "a/b"),
            ("TZ", "/tmp/zone"),
            ("TZ", ":/tmp/zone"),
            ("TZ", "Europe/../../../tmp/zone"),
            ("LANG", "a\nb"),
        ] {
            assert!(!plain(name, value), "{name}={value}");
        }
        assert!(!plain("LANG", &"a".repeat(65)));
    }
}
