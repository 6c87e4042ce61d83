//! What this host is and has, found by trying. Feeds the plan; decides nothing.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it looks at the host"
)]

pub mod accounts;
pub mod allocation;
pub mod authority;
pub mod bubblewrap;
pub mod circumstances;
pub mod facts;
pub mod files;
pub mod found;
pub mod loader;
pub mod mediation;
pub mod mount_table;
pub mod peer;
pub mod places;
pub mod prober;
pub mod settled;
pub mod slurm;
pub mod unsized_file;
pub mod walk;

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{Gid, Uid};

use crate::env_vars;
use crate::policy::Policy;
use facts::value_in;
pub use facts::{Databases, HostFacts};
use files::{Files, Found, HostFiles, Kind, Look, real_as_far_as_it_exists};
use mount_table::Alias;
use places::Places;

/// The largest user database that is read; a site with more system users than this has LDAP.
const LARGEST_DATABASE: u64 = 8 << 20;

/// File name of the program that filters a network.
pub const FILTER: &str = "agent-sandbox-filter";

/// Programs of ours that run outside whether or not the host has Slurm: what filters, and what shows trails.
const COMPANIONS: [&str; 2] = [FILTER, agent_sandbox_events::ask::PROGRAM];

/// Where bubblewrap is looked for: directories that only an administrator can write. `PATH` is
/// not asked, for it may begin with a directory of the project.
const TRUSTED_DIRECTORIES: [&str; 4] =
    ["/usr/bin", "/usr/local/bin", "/bin", "/opt/bubblewrap/bin"];

/// Directories of the node's own in which every user may make one: where tasks of a job meet, best
/// first.
pub const NODE_LOCAL: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// The name of the user's directory in one of [`NODE_LOCAL`].
pub fn join_directory_name(uid: u32) -> String {
    format!("agent-sandbox-{uid}")
}

/// Directories of the user's that agent-sandbox owns.
#[derive(Clone, Debug)]
pub struct Directories {
    /// `~/.config/agent-sandbox`
    pub config: PathBuf,
    /// `~/.local/state/agent-sandbox`
    pub state: PathBuf,
}

/// The caller's home directory and our directories in it, from the environment; on a compute node
/// from the variables that a job brought.
///
/// # Errors
/// `HOME` is unset or not absolute.
pub fn directories(carried: Option<&[(OsString, OsString)]>) -> Result<(PathBuf, Directories)> {
    let home = match std::env::var_os(env_vars::HOME) {
        Some(home)
            if Path::new(&home)
                .components()
                .any(|part| part == Component::ParentDir) =>
        {
            bail!("HOME is `{}`; write it without `..`", home.display())
        }
        Some(home) if Path::new(&home).is_absolute() => PathBuf::from(home),
        Some(home) => bail!(
            "HOME is `{}`, which is not an absolute path",
            home.display()
        ),
        None => bail!("HOME is not set, so there is no telling which directory to protect"),
    };
    let variable = |name: &str| match carried {
        Some(all) => value_in(all, name).map(OsStr::to_owned),
        None => std::env::var_os(name),
    };
    let base = |name: &str, default: &str| match variable(name) {
        Some(dir) if Path::new(&dir).is_absolute() => PathBuf::from(dir),
        _ => home.join(default),
    };
    let config = base(env_vars::XDG_CONFIG_HOME, ".config").join("agent-sandbox");
    let state = base(env_vars::XDG_STATE_HOME, ".local/state").join("agent-sandbox");
    Ok((home, Directories { config, state }))
}

impl HostFacts {
    /// Looks at the host. `carried` is what a job brought, see [`HostFacts::carried`].
    ///
    /// # Errors
    /// Facts without which nothing can be planned: the home directory, the own executable.
    pub fn probe(files: &HostFiles, carried: Option<Vec<(OsString, OsString)>>) -> Result<Self> {
        let (home, directories) = directories(carried.as_deref())?;
        let uid = Uid::current();
        let databases = Databases::read(uid);
        let passwd_home = databases
            .caller
            .as_ref()
            .and_then(|line| line.split(':').nth(5))
            .map(PathBuf::from)
            .filter(|other| other.is_absolute() && *other != home && *other != Path::new("/"));
        let user = databases
            .caller
            .as_ref()
            .and_then(|line| line.split(':').next())
            .map(str::to_owned);
        let executable = executable()?;
        let groups = groups().context("cannot read the supplementary groups")?;
        let home_reals = reals(files, std::iter::once(&home).chain(&passwd_home));
        let home_aliases: Vec<Alias> = home_reals
            .iter()
            .flat_map(|home| files.mounts().other_names(home))
            .collect();
        Ok(Self {
            uid: uid.as_raw(),
            gid: Gid::current().as_raw(),
            groups,
            user,
            own_directories: own_directories(&directories, &home_aliases, files),
            state_directory: directories.state,
            join_directories: join_directories(uid, files),
            input: input(files),
            home_aliases,
            home_reals,
            home,
            passwd_home,
            environment: std::env::vars_os().collect(),
            carried,
            companions: COMPANIONS
                .iter()
                .filter_map(|name| slurm::program(name, &executable, files))
                .collect(),
            executable,
            loader: loader::find(),
            databases,
            landlock_abi: landlock_abi(),
            no_mediator: mediation::beside_bubblewrap().map(mediation::NoMediator::Refused),
            slurm: None,
            allocation: None,
            traced: false,
        })
    }

    /// Looks for Slurm in the directories that the policy names.
    pub fn find_slurm(&mut self, policy: &Policy, files: &dyn Files) {
        let named = policy.slurm.directories.iter();
        let directories: Vec<PathBuf> = named
            .filter_map(|directory| directory.value.expand(self))
            .collect();
        let lists = policy.bounds.layers.iter();
        let bounds: Vec<Places> = lists
            .filter_map(|layer| layer.slurm.directories.bound())
            .map(|list| Places::of(list.iter().map(|entry| &entry.value), self, files))
            .collect();
        let allowed = |directory: &Path| {
            let real = real_as_far_as_it_exists(files, directory);
            bounds.iter().all(|places| places.hold(&real))
        };
        // In full: a variable in it is the user's.
        let by_site = |directory: &Path| {
            let mut named = policy.slurm.directories.iter();
            named.any(|one| {
                one.source.is_of_this_node() && Path::new(&one.value.to_string()) == directory
            })
        };
        let question = slurm::Question {
            directories: &directories,
            by_site: &by_site,
            allowed: &allowed,
            search: self.variable(env_vars::PATH),
            conf: self.variable(env_vars::SLURM_CONF),
            executable: &self.executable,
            uid: self.uid,
        };
        self.slurm = slurm::find(&question, files);
    }
}

fn own_directories(
    directories: &Directories,
    aliases: &[Alias],
    files: &HostFiles,
) -> Vec<PathBuf> {
    let mut all = vec![directories.config.clone(), directories.state.clone()];
    let profiles = directories.config.join("profiles");
    let mut own = vec![directories.config.join("config.toml"), profiles.clone()];
    // Policy files may be links that lead elsewhere.
    let entries = files.entries(&profiles).unwrap_or_default();
    own.extend(entries.iter().map(|entry| profiles.join(&entry.name)));
    all.extend(own.iter().cloned());
    own.extend([directories.config.clone(), directories.state.clone()]);
    for directory in &own {
        let real = real_as_far_as_it_exists(files, directory);
        all.push(real.clone());
        all.extend(aliases.iter().filter_map(|alias| alias.name_of(&real)));
    }
    all
}

fn join_directories(uid: Uid, files: &HostFiles) -> Vec<PathBuf> {
    let name = join_directory_name(uid.as_raw());
    let mut all = Vec::new();
    for directory in NODE_LOCAL {
        // Of the directory itself: what stands in it may be a link of somebody's.
        let place = real_as_far_as_it_exists(files, Path::new(directory)).join(&name);
        let aliases = files.mounts().other_names(&place);
        all.extend(aliases.iter().filter_map(|alias| alias.name_of(&place)));
        all.push(place);
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The file behind standard input. Through its descriptor alone a process could open it again for
/// writing (`/proc/self/fd/0`), wherever it stands.
fn input(files: &HostFiles) -> Option<Found> {
    let flags = fcntl(std::io::stdin(), FcntlArg::F_GETFL).ok()?;
    let reading =
        OFlag::from_bits_truncate(flags) & crate::sys::paths::ACCESS_MODE == OFlag::O_RDONLY;
    let open = std::fs::metadata("/proc/self/fd/0").ok()?;
    if !reading || !open.is_file() {
        return None;
    }
    // Deleted, or in another mount namespace: then no path leads to it.
    let path = std::fs::read_link("/proc/self/fd/0").ok()?;
    match files.look(&path) {
        Look::Found(found)
            if found.kind == Kind::File
                && found.readable
                && found.id == (open.dev(), open.ino()) =>
        {
            Some(found)
        }
        _ => None,
    }
}

fn reals<'a>(files: &HostFiles, homes: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    homes
        .map(|home| real_as_far_as_it_exists(files, home))
        .collect()
}

impl Databases {
    fn read(uid: Uid) -> Self {
        let file = |path: &str| unsized_file::read(path, LARGEST_DATABASE).ok();
        let passwd = file("/etc/passwd");
        let group = file("/etc/group");
        let caller = passwd
            .as_deref()
            .and_then(|text| line_of(text, uid.as_raw()))
            .or_else(|| {
                // Not in the file: LDAP or SSSD. The name service is asked once, for the caller alone.
                Some(accounts::account(uid).ok().flatten()?.line)
            });
        let mut ids: Vec<u32> = groups().unwrap_or_default();
        ids.push(Gid::current().as_raw());
        ids.sort_unstable();
        ids.dedup();
        let groups = ids
            .into_iter()
            .filter_map(|gid| {
                let named = group.as_deref().and_then(|text| group_name(text, gid));
                let name = named.or_else(|| accounts::group(Gid::from_raw(gid)).ok().flatten())?;
                Some((gid, name))
            })
            .collect();
        Self {
            passwd,
            group,
            nsswitch: file("/etc/nsswitch.conf"),
            caller,
            groups,
        }
    }
}

/// The line of `passwd(5)` whose third field is `uid`.
fn line_of(passwd: &[u8], uid: u32) -> Option<String> {
    let wanted = uid.to_string();
    let text = String::from_utf8_lossy(passwd);
    text.lines()
        .find(|line| line.split(':').nth(2) == Some(&wanted))
        .map(str::to_owned)
}

/// The name in `group(5)` of the group `gid`.
fn group_name(group: &[u8], gid: u32) -> Option<String> {
    let wanted = gid.to_string();
    let text = String::from_utf8_lossy(group);
    let line = text
        .lines()
        .find(|line| line.split(':').nth(2) == Some(&wanted))?;
    line.split(':').next().map(str::to_owned)
}

/// The supplementary groups of this process, by the call itself: nix asks for a file below `/proc` first, each time.
fn groups() -> std::io::Result<Vec<u32>> {
    let groups = rustix::process::getgroups()?;
    Ok(groups.into_iter().map(|group| group.as_raw()).collect())
}

/// Landlock's ABI version by asking the kernel (`landlock_create_ruleset(2)`).
fn landlock_abi() -> i32 {
    crate::sys::process::landlock_abi()
}

/// Finds bubblewrap in a trusted directory: owned by root, as is the file, and writable by nobody
/// else.
///
/// # Errors
/// What was found instead, for each place.
pub fn find_bwrap() -> Result<PathBuf> {
    let mut reasons = Vec::new();
    for directory in TRUSTED_DIRECTORIES {
        let path = Path::new(directory).join("bwrap");
        match std::fs::metadata(&path) {
            Ok(meta) if !meta.is_file() => {
                reasons.push(format!("`{}` is not a file", path.display()))
            }
            Ok(meta) if meta.uid() != 0 || meta.mode() & 0o022 != 0 => {
                reasons.push(format!(
                    "`{}` is not root's own, or others may write it",
                    path.display()
                ));
            }
            Ok(meta) if meta.mode() & 0o111 == 0 => {
                reasons.push(format!("`{}` is not executable", path.display()));
            }
            Ok(_) => return Ok(path),
            Err(_) => {}
        }
    }
    let mut message = format!(
        "bubblewrap (bwrap) is not installed: looked in {}",
        TRUSTED_DIRECTORIES.join(", ")
    );
    for reason in reasons {
        message.push_str("; ");
        message.push_str(&reason);
    }
    bail!(message)
}

/// Where the running program stands. A task whose program the user could change runs it from a mount
/// of its own, which has no name; its first argument is the name then.
///
/// # Errors
/// It has none, or the name leads elsewhere by now.
pub fn executable() -> Result<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    const FAILED: &str = "cannot find the running executable";
    let named = std::env::current_exe().context(FAILED)?;
    if named != Path::new("/") {
        return Ok(named);
    }
    let named = PathBuf::from(std::env::args_os().next().context(FAILED)?);
    let (there, running) = (
        std::fs::metadata(&named).context(FAILED)?,
        std::fs::metadata("/proc/self/exe").context(FAILED)?,
    );
    if !named.is_absolute() || (there.dev(), there.ino()) != (running.dev(), running.ino()) {
        anyhow::bail!("{FAILED}: `{}` is another file", named.display());
    }
    Ok(named)
}
