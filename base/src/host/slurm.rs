//! Slurm on this host: the real commands, as far as nobody but administrators can have put them
//! there, and our own programs that stand between them and the jail.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use agent_sandbox_wire::command::Command;

use super::authority;
use super::files::Files;
use super::found::{Found, Kind, Look};
use crate::policy::paths::glob;

/// File name of the chaperon's program.
pub const CHAPERON: &str = "agent-sandbox-chaperon";
/// File name of the shim's program.
pub const SHIM: &str = "agent-sandbox-shim";

/// File name of the configuration of Slurm's MPI plugins, which stands beside `slurm.conf`.
const MPI: &str = "mpi.conf";

/// Asked for first in each directory: who has no such command there has none that is of use.
const FIRST: Command = Command::Squeue;

/// Slurm's commands and what belongs to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slurm {
    /// The real commands that are used, by the paths under which they were found; all from one
    /// directory. Empty if none can be trusted.
    pub commands: Vec<(Command, PathBuf)>,
    /// The real paths of everything that has the name of a command in any of the directories.
    pub covers: Vec<PathBuf>,
    /// Commands that are not used, and why.
    pub distrusted: Vec<(PathBuf, String)>,
    /// Directories with commands that the site does not let be used.
    pub refused: Vec<PathBuf>,
    /// `SLURM_CONF` of the launcher's own environment.
    pub conf: Conf,
    /// Sockets of the authority (munge) that its configuration names.
    pub sockets: Vec<Named>,
    /// Directories of `slurmd` that its configuration names, in which each step's `slurmstepd`
    /// listens to whoever is the user; the last component may be a pattern with `*`.
    pub spools: Vec<Named>,
    /// Directories for temporary files that the configuration names. Slurm's PMIx server tells its
    /// clients to use them.
    pub temporary: Vec<Named>,
    /// Ports of Slurm's own services that the configuration names, the first and the last of each range, with the place.
    pub ports: Vec<(String, (u16, u16))>,
    /// The shim's program, if it is installed.
    pub shim: Option<PathBuf>,
    /// The chaperon's program, if it is installed.
    pub chaperon: Option<PathBuf>,
}

/// A path, and the place in a file that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The path.
    pub path: PathBuf,
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: u32,
}

/// Which configuration the real commands read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Conf {
    /// The one that is built into them.
    #[default]
    BuiltIn,
    /// This file.
    At(PathBuf),
    /// `SLURM_CONF` names a file that cannot be trusted: it chooses which libraries Slurm loads.
    Distrusted {
        /// The file.
        path: PathBuf,
        /// Completes "`PATH` …".
        reason: String,
    },
}

/// Who may own what is run or read outside the jail. The caller never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// All others: where an administrator chose the place.
    Others {
        /// The caller.
        uid: u32,
    },
    /// Administrators alone, where the user chose the place: a directory of an accomplice's or of a subordinate UID of the
    /// user's own is as good as theirs. Who owns the launcher is one; a tree of software often belongs to one account.
    Administrators {
        /// The caller.
        uid: u32,
        /// The launcher's owner.
        launcher: u32,
    },
}

impl Owners {
    /// Those of a place that the user chose. A launcher of the user's own holds nobody to anything, and trusts as it is told.
    fn of_users_choice(question: &Question<'_>, files: &dyn Files) -> Self {
        let uid = question.uid;
        match files.look(question.executable) {
            Look::Found(found) if found.uid == uid => Self::Others { uid },
            Look::Found(found) => Self::Administrators {
                uid,
                launcher: found.uid,
            },
            _ => Self::Administrators { uid, launcher: 0 },
        }
    }

    /// Why this owner is none of them. Completes "which …".
    fn distrust(self, owner: u32) -> Option<String> {
        let (Self::Others { uid } | Self::Administrators { uid, .. }) = self;
        match self {
            _ if owner == uid => Some("belongs to you".to_owned()),
            Self::Administrators { launcher, .. } if owner != 0 && owner != launcher => {
                Some(format!(
                    "belongs to the user {owner}, who is neither root nor the owner of agent-sandbox"
                ))
            }
            _ => None,
        }
    }
}

/// What is asked about Slurm.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// Directories to look in, the first preferred.
    pub directories: &'a [PathBuf],
    /// Which of them the site or the built-in policy names. What a user names, or writes into a job's capsule by hand,
    /// has to be an administrator's: see [`Owners`].
    pub by_site: &'a dyn Fn(&Path) -> bool,
    /// Of which of them the commands may be used. What has their names in the others is covered all
    /// the same.
    pub allowed: &'a dyn Fn(&Path) -> bool,
    /// The caller's search path: a directory that stands in it earlier is preferred over all.
    pub search: Option<&'a OsStr>,
    /// `SLURM_CONF`
    pub conf: Option<&'a OsStr>,
    /// The running executable.
    pub executable: &'a Path,
    /// The caller.
    pub uid: u32,
}

/// Looks for Slurm. Where there is none this costs a look or two for each directory.
pub fn find(question: &Question<'_>, files: &dyn Files) -> Option<Slurm> {
    let first: Vec<PathBuf> = question
        .directories
        .iter()
        .map(|directory| directory.join(FIRST.name()))
        .collect();
    // The directories themselves are looked at first: in one that is missing nothing needs a look.
    files.prefetch(question.directories);
    files.prefetch(&first);
    let present = |directory: &&PathBuf| matches!(files.look(&directory.join(FIRST.name())), Look::Found(found) if found.kind == Kind::File);
    let directories: Vec<&PathBuf> = question.directories.iter().filter(present).collect();
    if directories.is_empty() {
        return None;
    }
    let mut slurm = Slurm {
        conf: conf(question, files),
        shim: program(SHIM, question.executable, files),
        chaperon: program(CHAPERON, question.executable, files),
        ..Slurm::default()
    };
    slurm.read_configurations(question, files);
    let mut best: Option<(usize, Vec<(Command, PathBuf)>)> = None;
    let chosen = Owners::of_users_choice(question, files);
    for directory in directories {
        let owners = match (question.by_site)(directory) {
            true => Owners::Others { uid: question.uid },
            false => chosen,
        };
        let trusted = slurm.look_in(directory, owners, files);
        let rank = rank(question.search, directory);
        let allowed = (question.allowed)(directory);
        if !allowed {
            slurm.refused.push(directory.clone());
        }
        let has_first = allowed && trusted.iter().any(|(command, _)| *command == FIRST);
        if has_first && best.as_ref().is_none_or(|(other, _)| rank < *other) {
            best = Some((rank, trusted));
        }
    }
    slurm.commands = best.map(|(_, commands)| commands).unwrap_or_default();
    Some(slurm)
}

/// The place of a directory in the search path.
fn rank(search: Option<&OsStr>, directory: &Path) -> usize {
    let mut entries = std::env::split_paths(search.unwrap_or_default());
    entries
        .position(|entry| entry == directory)
        .unwrap_or(usize::MAX)
}

impl Slurm {
    /// Notes everything in a directory that has the name of a command; those that can be trusted.
    fn look_in(
        &mut self,
        directory: &Path,
        owners: Owners,
        files: &dyn Files,
    ) -> Vec<(Command, PathBuf)> {
        let places: Vec<(Command, PathBuf)> = Command::ALL
            .into_iter()
            .map(|command| (command, directory.join(command.name())))
            .collect();
        let paths: Vec<PathBuf> = places.iter().map(|(_, path)| path.clone()).collect();
        files.prefetch(&paths);
        let mut trusted = Vec::new();
        for (command, path) in places {
            let Look::Found(found) = files.look(&path) else {
                continue;
            };
            if found.kind != Kind::File {
                continue;
            }
            match distrust(&found, owners, files) {
                None if found.mode & 0o111 == 0 => {}
                None => trusted.push((command, path)),
                Some(reason) => self.distrusted.push((path, reason)),
            }
            if !self.covers.contains(&found.real) {
                self.covers.push(found.real);
            }
        }
        trusted
    }

    /// Notes what configuration files name, whichever of them is in use: hiding one too many harms
    /// nobody, nor does an empty directory.
    fn read_configurations(&mut self, question: &Question<'_>, files: &dyn Files) {
        let asked = question
            .conf
            .map(Path::new)
            .filter(|conf| conf.is_absolute());
        let usual = authority::CONFIGURATIONS.map(Path::new);
        let places: Vec<PathBuf> = usual
            .into_iter()
            .chain(asked)
            .map(Path::to_path_buf)
            .collect();
        files.prefetch(&places);
        for file in places {
            let Look::Found(found) = files.look(&file) else {
                continue;
            };
            let text = files.small_file(&found.real, authority::LARGEST);
            let said = authority::read(&text.unwrap_or_default());
            let named = |path: PathBuf, line| Named {
                path,
                file: file.clone(),
                line,
            };
            // What is written with `..`, by the name that it has.
            let by_all_names = |(line, path): (u32, PathBuf)| {
                let real = match files.look(&path) {
                    Look::Found(found) => found.real,
                    _ => path.clone(),
                };
                [path, real].map(|path| named(path, line))
            };
            let spools = said.spools.into_iter().flat_map(|(line, directory)| {
                let places = spool_places(&directory, files);
                places.into_iter().map(move |place| (line, place))
            });
            self.spools.extend(spools.flat_map(by_all_names));
            self.sockets
                .extend(said.sockets.into_iter().flat_map(by_all_names));
            let temporary = said.temporary.into_iter();
            self.temporary
                .extend(temporary.map(|(line, path)| named(path, line)));
            let ports = said.ports.into_iter();
            self.ports
                .extend(ports.map(|(line, ports)| (format!("{}:{line}", file.display()), ports)));
            self.read_mpi(&file.with_file_name(MPI), files);
        }
    }

    /// Notes what the configuration of Slurm's MPI plugins names (`mpi.conf(5)`).
    fn read_mpi(&mut self, file: &Path, files: &dyn Files) {
        let Look::Found(found) = files.look(file) else {
            return;
        };
        let text = files.small_file(&found.real, authority::LARGEST);
        let said = authority::read(&text.unwrap_or_default()).temporary;
        self.temporary
            .extend(said.into_iter().map(|(line, path)| Named {
                path,
                file: file.to_path_buf(),
                line,
            }));
    }

    /// Our own programs, which no jail may write.
    pub fn programs(&self) -> impl Iterator<Item = &PathBuf> {
        self.shim.iter().chain(&self.chaperon)
    }
}

/// Why the user, and so an agent of an earlier session, could have chosen what is found at a path;
/// `None` if not: the file, all directories above it and the links on the way are of these owners, and
/// nobody else can write them. Completes "`PATH` …".
pub fn distrust(found: &Found, owners: Owners, files: &dyn Files) -> Option<String> {
    for (at, target) in &found.links {
        // `..` behind a name leads through a directory of which nothing is known.
        let mut named = false;
        for part in target.components() {
            if part == Component::ParentDir && named {
                return Some(format!(
                    "leads through the symbolic link `{}` to `{}`",
                    at.display(),
                    target.display()
                ));
            }
            named |= matches!(part, Component::Normal(_));
        }
        if let Some(reason) = at
            .parent()
            .and_then(|above| changeable(above, owners, files))
        {
            return Some(reason);
        }
    }
    changeable(&found.real, owners, files)
}

/// Why a file at a real path, or a directory above it, could be replaced or changed by others than these owners.
/// Completes "`PATH` …".
pub fn changeable(real: &Path, owners: Owners, files: &dyn Files) -> Option<String> {
    const STICKY: u32 = 0o1000;
    for above in real.ancestors() {
        let Look::Found(found) = files.look(above) else {
            return Some(format!(
                "lies in `{}`, which does not answer",
                above.display()
            ));
        };
        let what = if above == real && found.kind != Kind::Directory {
            String::new()
        } else {
            format!("lies in `{}`, which ", above.display())
        };
        if let Some(reason) = owners.distrust(found.uid) {
            return Some(format!("{what}{reason}"));
        }
        // In a sticky directory nobody replaces what is another's, and what stands in this one on
        // the way is not the user's.
        let sticky = found.kind == Kind::Directory && found.mode & STICKY != 0;
        if found.mode & 0o022 != 0 && !sticky {
            return Some(format!("{what}can be changed by its group or by others"));
        }
    }
    None
}

/// Everything that may be meant by a directory in which `%h` and `%n` stand for the node's names
/// (`slurm.conf(5)`, `SlurmdSpoolDir`); a host does not know what names Slurm has for it.
fn spool_places(directory: &Path, files: &dyn Files) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("/")];
    let mut parts = directory.components().peekable();
    while let Some(part) = parts.next() {
        let part = part.as_os_str();
        let pattern = name_pattern(part);
        match (pattern, parts.peek().is_some()) {
            (None, _) => places.iter_mut().for_each(|place| place.push(part)),
            // Where nodes alone have entries, all is theirs.
            (Some(pattern), false) if pattern.iter().all(|&byte| byte == b'*') => {}
            (Some(pattern), false) => {
                let pattern = OsStr::from_bytes(&pattern);
                places.iter_mut().for_each(|place| place.push(pattern));
            }
            // A rule has no pattern in the middle of its path.
            (Some(pattern), true) => {
                let mut found = Vec::new();
                for place in places {
                    let Some(entries) = files.entries(&place) else {
                        return vec![place];
                    };
                    let fits = entries.iter().filter(|entry| {
                        !matches!(entry.kind, Kind::File | Kind::Other | Kind::Device)
                            && glob(&pattern, entry.name.as_bytes())
                    });
                    found.extend(fits.map(|entry| place.join(&entry.name)));
                }
                places = found;
            }
        }
    }
    places.retain(|place| place != Path::new("/"));
    places
}

/// A component with `*` in place of each `%` and the letter behind it; `None` if there is none.
fn name_pattern(part: &OsStr) -> Option<Vec<u8>> {
    let mut pattern = Vec::new();
    let mut bytes = part.as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        if byte == b'%' {
            bytes.next();
            pattern.push(b'*');
        } else {
            pattern.push(byte);
        }
    }
    part.as_bytes().contains(&b'%').then_some(pattern)
}

fn conf(question: &Question<'_>, files: &dyn Files) -> Conf {
    let Some(path) = question.conf.filter(|path| !path.is_empty()) else {
        return Conf::BuiltIn;
    };
    let path = PathBuf::from(path);
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    let reason = if !path.is_absolute() || !path.components().all(plain) {
        Some("is not a plain absolute path".to_owned())
    } else {
        match files.look(&path) {
            // In a job slurmd says it. Often it belongs to Slurm's own user.
            Look::Found(found) => distrust(&found, Owners::Others { uid: question.uid }, files),
            Look::Missing => Some("does not exist".to_owned()),
            _ => Some("cannot be looked at".to_owned()),
        }
    };
    match reason {
        None => Conf::At(path),
        Some(reason) => Conf::Distrusted { path, reason },
    }
}

/// Where a program of ours stands: beside the executable, or in `../libexec/agent-sandbox`.
pub fn program(name: &str, executable: &Path, files: &dyn Files) -> Option<PathBuf> {
    let beside = executable.parent()?;
    let places = [
        Some(beside.join(name)),
        beside
            .parent()
            .map(|above| above.join("libexec/agent-sandbox").join(name)),
    ];
    places
        .into_iter()
        .flatten()
        .find_map(|path| match files.look(&path) {
            Look::Found(found) if found.kind == Kind::File => Some(found.real),
            _ => None,
        })
}
