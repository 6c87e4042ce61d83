//! Landlock's rules for a process, by the rights that the kernel's ABI has.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::fence::{Right, Rule};
use crate::sys::process;

/// The first ABI with scopes (`landlock(7)`).
const SCOPES: i32 = 6;

/// The newest ABI whose rights are used; what a newer one adds would need rules that nobody plans.
const NEWEST: i32 = 8;

/// Restricts this process, and what it starts, to the rules for good: every right on files that the
/// ABI has is taken but for what they give. With ABI 6 signals and abstract sockets reach no process
/// outside. The standard streams can be opened again (`/dev/stdout`) for what they are open for. The
/// process must have one thread and [`crate::sys::privileges::no_new_privileges`].
///
/// A rule whose path is gone is left out, for it would only give something.
///
/// # Errors
/// A sentence: a path that is not what was planned, or what the kernel answers. Nothing is restricted
/// then.
pub fn restrict(rules: &[Rule], abi: i32) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("cannot confine the command with Landlock: {error}")
    };
    let running = process::landlock_abi();
    if abi < 1 || running < abi {
        return Err(failed(&format_args!(
            "the jail was planned for its ABI {abi}, and the kernel has {running}"
        )));
    }
    let rights = Rights::of(abi);
    let mut domain = begin(&rights, abi).map_err(|error| failed(&error))?;
    for rule in rules {
        let Some((file, is_directory)) = planned(rule)? else {
            continue;
        };
        let given = rights.given(rule.right, is_directory);
        domain = domain
            .add_rule(PathBeneath::new(file, given))
            .map_err(|error| failed(&format_args!("`{}`: {error}", shown(rule))))?;
    }
    for (file, given) in streams(&rights) {
        domain = domain
            .add_rule(PathBeneath::new(file, given))
            .map_err(|error| failed(&format_args!("a standard stream: {error}")))?;
    }
    domain.restrict_self().map_err(|error| failed(&error))?;
    Ok(())
}

/// A domain without rules.
fn begin(rights: &Rights, abi: i32) -> Result<RulesetCreated, landlock::RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(rights.all)?;
    let rules = if abi < SCOPES {
        rules
    } else {
        rules.scope(Scope::AbstractUnixSocket | Scope::Signal)?
    };
    rules.create()
}

/// The rights of an ABI.
struct Rights {
    all: BitFlags<AccessFs>,
    /// Those that mean something on what is no directory.
    of_files: BitFlags<AccessFs>,
}

impl Rights {
    fn of(abi: i32) -> Self {
        let abi = ABI::from(abi.min(NEWEST));
        Self {
            all: AccessFs::from_all(abi),
            of_files: AccessFs::from_file(abi),
        }
    }

    /// What a rule gives.
    fn given(&self, right: Right, is_directory: bool) -> BitFlags<AccessFs> {
        let given = match right {
            Right::Read => AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir,
            Right::ReadFiles => AccessFs::Execute | AccessFs::ReadFile,
            Right::Write => self.all & !AccessFs::IoctlDev,
            Right::Device => {
                AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
            }
        };
        given
            & if is_directory {
                self.all
            } else {
                self.of_files
            }
    }
}

fn shown(rule: &Rule) -> std::path::Display<'_> {
    Path::new(OsStr::from_bytes(&rule.path)).display()
}

/// Opens what a rule is about, and whether it is a directory; `None` if it is gone.
///
/// # Errors
/// A sentence: it is something else than was planned.
fn planned(rule: &Rule) -> Result<Option<(File, bool)>, String> {
    let cannot = |error: io::Error| format!("cannot open `{}`: {error}", shown(rule));
    let path = Path::new(OsStr::from_bytes(&rule.path));
    let file = match open_path(path, libc::O_NOFOLLOW) {
        Ok(file) => file,
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => Ok(None),
                _ => Err(cannot(error)),
            };
        }
    };
    let meta = file.metadata().map_err(cannot)?;
    // The paths are real ones: where there is a symbolic link now there was none.
    let other = rule.id.is_some_and(|id| id != (meta.dev(), meta.ino()));
    if other || meta.is_symlink() {
        return Err(format!(
            "`{}` was replaced while the jail was built; somebody is changing it",
            shown(rule)
        ));
    }
    Ok(Some((file, meta.is_dir())))
}

/// The standard streams that are files or devices, and what they are open for. Programs write to
/// `/dev/stdout`, which opens the file behind it anew. Pipes and sockets need no rule.
fn streams(rights: &Rights) -> Vec<(File, BitFlags<AccessFs>)> {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    [input.as_fd(), output.as_fd(), error.as_fd()]
        .into_iter()
        .filter_map(|stream| {
            let (file, given) = stream_rule(stream)?;
            let given = given & rights.of_files;
            (!given.is_empty()).then_some((file, given))
        })
        .collect()
}

fn stream_rule(stream: BorrowedFd<'_>) -> Option<(File, BitFlags<AccessFs>)> {
    // A stream may be closed.
    let flags = OFlag::from_bits_retain(fcntl(stream, FcntlArg::F_GETFL).ok()?);
    let behind = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let file = open_path(Path::new(&behind), 0).ok()?;
    let kind = file.metadata().ok()?.file_type();
    let device = kind.is_char_device();
    if !device && !kind.is_file() {
        return None;
    }
    let write = AccessFs::WriteFile | AccessFs::Truncate;
    let mut given = match flags & OFlag::O_ACCMODE {
        _ if flags.contains(OFlag::O_PATH) => return None,
        OFlag::O_RDONLY => AccessFs::ReadFile.into(),
        OFlag::O_WRONLY => write,
        _ => write | AccessFs::ReadFile,
    };
    if device {
        given |= AccessFs::IoctlDev;
    }
    Some((file, given))
}

fn open_path(path: &Path, flags: i32) -> io::Result<File> {
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC | flags)
        .open(path)
}
