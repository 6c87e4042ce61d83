//! What the plan is told of the caller and the host, as data.

use super::allocation::Allocation;
use super::files::Found;
use super::mount_table::Alias;
use super::slurm::Slurm;
use crate::policy::paths::Expansion;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The caller and the host, as far as the plan needs them.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Real user id.
    pub uid: u32,
    /// Real group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The user's name, from `/etc/passwd` or the name service.
    pub user: Option<String>,
    /// `$HOME`.
    pub home: PathBuf,
    /// The home directory that the user database names, if it is another one.
    pub passwd_home: Option<PathBuf>,
    /// Other paths at which a home directory, or a directory below it, appears, because its file
    /// system is mounted twice.
    pub home_aliases: Vec<Alias>,
    /// The home directories without symbolic links.
    pub home_reals: Vec<PathBuf>,
    /// The caller's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// On a compute node: the variables that paths of the policy begin with, as they were where the
    /// session was launched. `None` where it is launched here.
    pub carried: Option<Vec<(OsString, OsString)>>,
    /// The running executable, symbolic links resolved.
    pub executable: PathBuf,
    /// Programs of ours beside it that run outside whether or not the host has Slurm.
    pub companions: Vec<PathBuf>,
    /// The dynamic linker that starts it, if it needs one.
    pub loader: Option<PathBuf>,
    /// Directories of ours that no jail may write: configuration, state; by every name.
    pub own_directories: Vec<PathBuf>,
    /// The one of them that holds state.
    pub state_directory: PathBuf,
    /// Where tasks of the caller's jobs may meet, by every name; whether or not something stands
    /// there. No jail may see one, nor make one.
    pub join_directories: Vec<PathBuf>,
    /// Standard input, if it is a regular file that was opened for reading only.
    pub input: Option<Found>,
    /// `/etc/passwd`, `/etc/group` and `/etc/nsswitch.conf`, where they exist.
    pub databases: Databases,
    /// Landlock's ABI version; 0 where there is none.
    pub landlock_abi: i32,
    /// Why there can be no mediator beside a jail of bubblewrap's; `None`: there can.
    pub no_mediator: Option<super::mediation::NoMediator>,
    /// Slurm, where its commands are found in the directories that the policy names.
    pub slurm: Option<Slurm>,
    /// The allocation of Slurm's in which this session was started, if one was found and proved.
    pub allocation: Option<Allocation>,
    /// Whether a tracer answers where the policy says.
    pub traced: bool,
}

/// The user database in files.
#[derive(Clone, Debug, Default)]
pub struct Databases {
    /// `/etc/passwd`, see `passwd(5)`.
    pub passwd: Option<Vec<u8>>,
    /// `/etc/group`, see `group(5)`.
    pub group: Option<Vec<u8>>,
    /// `/etc/nsswitch.conf`, see `nsswitch.conf(5)`.
    pub nsswitch: Option<Vec<u8>>,
    /// The caller's own line in the format of `passwd(5)`, also where no file has it.
    pub caller: Option<String>,
    /// The caller's groups by name.
    pub groups: Vec<(u32, String)>,
}

/// Whether whoever submits a job chooses the value that a variable has on the node, as of
/// `SLURM_JOB_NAME`. `SLURM_TMPDIR` is none of Slurm's own; sites set it.
fn is_a_jobs_choice(name: &str) -> bool {
    let slurms = ["SLURM_", "SBATCH_", "SALLOC_", "SRUN_"];
    let prefixed = slurms.iter().any(|prefix| name.starts_with(prefix));
    (prefixed && name != "SLURM_TMPDIR") || matches!(name, "PWD" | "OLDPWD")
}

impl Expansion for HostFacts {
    fn home(&self) -> &Path {
        &self.home
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        self.path_variable(name)
    }

    fn other_value(&self, name: &str) -> Option<&OsStr> {
        self.other_path_variable(name)
    }
}

impl HostFacts {
    /// Our own programs, which no jail may write.
    pub fn programs(&self) -> impl Iterator<Item = &PathBuf> {
        let of_slurm = self.slurm.iter().flat_map(Slurm::programs);
        std::iter::once(&self.executable)
            .chain(&self.companions)
            .chain(of_slurm)
    }

    /// A variable of the caller's environment.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        value_in(&self.environment, name)
    }

    /// The value with which paths of the policy that begin with a variable are meant: the one that
    /// it had where the session was launched. What was unset there may be a matter of the node's
    /// (a directory that the site's prolog makes), but not what a job says.
    pub fn path_variable(&self, name: &str) -> Option<&OsStr> {
        match &self.carried {
            None => self.variable(name),
            Some(carried) => value_in(carried, name).or_else(|| {
                let own = self.variable(name);
                own.filter(|_| !is_a_jobs_choice(name))
            }),
        }
    }

    /// The value that such a variable has on this node, if it is another.
    pub fn other_path_variable(&self, name: &str) -> Option<&OsStr> {
        let own = self.carried.is_some().then(|| self.variable(name));
        own.flatten()
            .filter(|own| self.path_variable(name) != Some(own))
    }

    /// Whether an alias stands for a home directory as a whole, which every alias does that is not
    /// for something below one.
    fn is_home(&self, of: &Path) -> bool {
        self.home_reals.iter().any(|home| home == of)
    }

    /// The home that the user database names, whatever `HOME` says; `None` if it names none.
    pub fn database_home(&self) -> Option<PathBuf> {
        let line = self.databases.caller.as_ref();
        let named = || line?.split(':').nth(5).map(PathBuf::from);
        let home = self.passwd_home.clone().or_else(named)?;
        home.is_absolute().then_some(home)
    }

    /// Every directory that counts as the caller's home.
    pub fn homes(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.home.as_path())
            .chain(self.passwd_home.as_deref())
            .chain(
                self.home_aliases
                    .iter()
                    .filter(|alias| self.is_home(&alias.of))
                    .map(|alias| alias.at.as_path()),
            )
    }
}

pub(super) fn value_in<'a>(all: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    let found = all.iter().find(|(given, _)| given == name);
    found.map(|(_, value)| value.as_os_str())
}
