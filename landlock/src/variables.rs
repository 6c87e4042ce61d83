//! The environment where the private directories have moved.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use agent_sandbox_wire::SOCKET_VARIABLE;

use super::contents::{self, Places};
use agent_sandbox_base::env_vars;
use agent_sandbox_base::plan::model::stage::{HOME, RUN, TMP};
use agent_sandbox_base::plan::model::{Plan, Variable, Why};

/// glibc's resolver asks by TCP (`resolv.conf(5)`). Go's reads no such variable, and lets glibc ask where there is one.
const BY_STREAM: &str = "use-vc attempts:1";

/// The plan's environment, with the places that have moved. `shims` and `socket` say whether there
/// are any.
pub(super) fn moved(
    plan: &Plan,
    places: &Places,
    own: &Path,
    shims: bool,
    socket: bool,
) -> Vec<Variable> {
    let mut all = plan.variables.clone();
    for variable in &mut all {
        let list = variable.name.as_bytes().ends_with(b"PATH");
        variable.value = match list {
            _ if variable.name == env_vars::PWD => continue,
            true => entries(&variable.value, places),
            false => entry(&variable.value, places),
        };
    }
    for (name, at, why) in [
        (env_vars::HOME, HOME, "the private home directory"),
        (env_vars::TMPDIR, TMP, "a private directory"),
        (env_vars::TMUX_TMPDIR, TMP, "a private directory"),
        (env_vars::XDG_RUNTIME_DIR, RUN, "a private directory"),
    ] {
        set(&mut all, name, own.join(at).into(), why);
    }
    // The beginning of names, and no directory.
    let names = own.join(TMP).join("zsh");
    set(
        &mut all,
        env_vars::TMPPREFIX,
        names.into(),
        "in a private directory",
    );
    all.retain(|variable| variable.name != SOCKET_VARIABLE);
    if socket {
        let at = own.join(contents::SOCKET_IN_OWN);
        set(&mut all, SOCKET_VARIABLE, at.into(), "the chaperon");
    }
    let document = own.join(contents::DOCUMENT_IN_OWN);
    set(
        &mut all,
        env_vars::DOCUMENT,
        document.into(),
        "what `agent-sandbox explain` answers from inside",
    );
    if plan.filter.is_some() {
        let why = "names are asked for by TCP, as the filter answers them";
        set(&mut all, env_vars::RES_OPTIONS, BY_STREAM.into(), why);
    }
    if shims {
        shims_first(&mut all, &own.join(contents::SHIMS_IN_OWN));
    }
    all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Sets a variable, whatever the caller or a job brings; but `env.set` of the policy comes last.
fn set(all: &mut Vec<Variable>, name: &str, value: OsString, why: &'static str) {
    if all
        .iter()
        .any(|variable| variable.name == name && by_policy(&variable.why))
    {
        return;
    }
    all.retain(|variable| variable.name != name);
    all.push(Variable {
        name: name.into(),
        value,
        why: Why::Every(why),
    });
}

fn by_policy(why: &Why) -> bool {
    matches!(why, Why::Rule { key, .. } if key == "env.set")
}

/// The shims are found before Slurm's own commands, over which nothing can be put.
fn shims_first(all: &mut Vec<Variable>, shims: &Path) {
    let mut path = shims.as_os_str().to_owned();
    let known = all
        .iter_mut()
        .find(|variable| variable.name == env_vars::PATH);
    let given = known.as_ref().map(|variable| variable.value.as_os_str());
    let given = given.filter(|value| !value.is_empty());
    let given = given.unwrap_or(OsStr::new(env_vars::DEFAULT_PATH));
    for entry in split(given).filter(|entry| Path::new(entry) != shims) {
        path.push(":");
        path.push(entry);
    }
    match known {
        Some(variable) => variable.value = path,
        None => all.push(Variable {
            name: env_vars::PATH.into(),
            value: path,
            why: Why::Every("where the shims of Slurm's commands are found"),
        }),
    }
}

fn split(list: &OsStr) -> impl Iterator<Item = &OsStr> {
    list.as_bytes()
        .split(|&byte| byte == b':')
        .map(OsStr::from_bytes)
}

/// Each entry of a list as in `PATH`.
fn entries(list: &OsStr, places: &Places) -> OsString {
    let mut moved = OsString::new();
    for (number, part) in split(list).enumerate() {
        if number > 0 {
            moved.push(":");
        }
        moved.push(entry(part, places));
    }
    moved
}

/// A path that has moved, or the value as it is, to the letter.
fn entry(value: &OsStr, places: &Places) -> OsString {
    let path = Path::new(value);
    if !path.is_absolute() {
        return value.to_owned();
    }
    let real = places.real(path);
    if real == path {
        value.to_owned()
    } else {
        real.into()
    }
}
