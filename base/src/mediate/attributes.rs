//! What `chmod(2), chown(2), utimensat(2), setxattr(2), getxattr(2)` and their kin ask for, read once from the caller's
//! registers and memory.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{Gid, Uid};

use super::caller::Caller;
use super::resolve::{self, How, PathArgument, Process};

/// `fchmodat2(2)` (Linux 6.6) and the calls on attributes with a directory (Linux 6.13): the same
/// numbers everywhere, include/uapi/asm-generic/unistd.h.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_GETXATTRAT: i64 = 464;
const SYS_REMOVEXATTRAT: i64 = 466;

/// The longest name of an attribute, in bytes (`XATTR_NAME_MAX`, include/uapi/linux/limits.h).
const LONGEST_NAME: usize = 255;
/// The longest value of an attribute, in bytes (`XATTR_SIZE_MAX`, as above).
const LONGEST_VALUE: u64 = 64 * 1024;

/// Whose attributes a call changes.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// The file of a descriptor, which must be more than an `O_PATH` one.
    Descriptor(i32),
    /// What a path leads to.
    Path(PathArgument<'a>, How),
}

/// What a call changes.
#[derive(Clone, Debug)]
pub enum Change {
    /// The mode.
    Mode(u32),
    /// User and group; `None`: stays.
    Owner(Option<Uid>, Option<Gid>),
    /// Last access and last change; `None`: both are now.
    Times(Option<[libc::timespec; 2]>),
    /// An attribute gets a value, by the flags of `setxattr(2)`.
    SetAttribute(CString, Vec<u8>, i32),
    /// An attribute ends.
    RemoveAttribute(CString),
}

/// Whether a call gives a file a mode.
pub fn gives_mode(number: i32) -> bool {
    match i64::from(number) {
        libc::SYS_fchmod | libc::SYS_fchmodat | SYS_FCHMODAT2 => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => true,
        _ => false,
    }
}

/// A call that gets an attribute.
#[derive(Debug)]
pub struct Get {
    /// Of what.
    pub whose: Whose,
    /// Its path, if it is named by one.
    pub path: Option<Vec<u8>>,
    /// Which attribute.
    pub name: CString,
    /// Where the value goes in the caller's memory.
    pub address: u64,
    /// How much of it fits, in bytes; 0: the length alone is asked for.
    pub room: u64,
}

/// The call, if it is one that gets an attribute, read once.
pub fn gets_attribute(caller: &Caller) -> Option<Result<Get, Errno>> {
    let arguments = &caller.call.arguments;
    let whose = match i64::from(caller.call.number) {
        libc::SYS_getxattr => Ok(Whose::path(caller, true)),
        libc::SYS_lgetxattr => Ok(Whose::path(caller, false)),
        libc::SYS_fgetxattr => Ok(Whose::descriptor(caller)),
        SYS_GETXATTRAT => Whose::at(caller, caller.int(2)),
        _ => return None,
    };
    let read = |whose: Whose| {
        let (at, memory) = match i64::from(caller.call.number) {
            SYS_GETXATTRAT => {
                let (address, room, _) = in_memory(caller, arguments[4], arguments[5])?;
                (3, (address, room))
            }
            _ => (1, (arguments[2], arguments[3])),
        };
        Ok(Get {
            whose,
            path: whose.text(caller)?,
            name: name(caller, arguments[at])?,
            address: memory.0,
            room: memory.1,
        })
    };
    Some(whose.and_then(read))
}

/// All that a call says, read once.
pub fn read_call(caller: &Caller) -> Result<(Whose, Option<Vec<u8>>, Change), Errno> {
    let (whose, what) = asked(caller)?;
    Ok((whose, whose.text(caller)?, what.read(caller)?))
}

/// A copy of a descriptor that is more than an `O_PATH` one, as the calls ask that take one.
pub fn usable(process: &dyn Process, number: i32) -> Result<OwnedFd, Errno> {
    let fd = process
        .descriptor(number)
        .map_err(|error| resolve::errno(&error))?;
    let flags = OFlag::from_bits_truncate(fcntl(&fd, FcntlArg::F_GETFL)?);
    if flags.contains(OFlag::O_PATH) {
        return Err(Errno::EBADF);
    }
    Ok(fd)
}

/// Where a call says whose attributes it changes.
#[derive(Clone, Copy, Debug)]
pub struct Whose {
    /// The descriptor, or the one that a path begins at.
    descriptor: i32,
    /// The address of the path; `None`: there is none, the descriptor is meant.
    path: Option<u64>,
    how: How,
}

impl Whose {
    fn descriptor(caller: &Caller) -> Self {
        Self {
            descriptor: caller.int(0),
            path: None,
            how: How::default(),
        }
    }

    fn path(caller: &Caller, follow: bool) -> Self {
        Self {
            descriptor: libc::AT_FDCWD,
            path: Some(caller.call.arguments[0]),
            how: How {
                follow,
                empty: false,
            },
        }
    }

    fn at(caller: &Caller, flags: i32) -> Result<Self, Errno> {
        let known = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
        if flags & !known != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            descriptor: caller.int(0),
            path: Some(caller.call.arguments[1]),
            how: How {
                follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0,
                empty: flags & libc::AT_EMPTY_PATH != 0,
            },
        })
    }

    fn text(&self, caller: &Caller) -> Result<Option<Vec<u8>>, Errno> {
        let Some(address) = self.path else {
            return Ok(None);
        };
        let path = caller.path(address);
        path.map(Some).map_err(|error| resolve::errno(&error))
    }

    /// The same with its path, if it has one.
    pub fn subject<'a>(&self, path: Option<&'a [u8]>) -> Subject<'a> {
        match path {
            None => Subject::Descriptor(self.descriptor),
            Some(path) => {
                let given = PathArgument {
                    directory: self.descriptor,
                    path,
                };
                Subject::Path(given, self.how)
            }
        }
    }
}

/// What of a call is to be read before its change is known.
#[derive(Clone, Copy, Debug)]
enum What {
    Mode(usize),
    Owner(usize),
    /// `struct timespec[2]` at the address in this argument.
    Nanoseconds(usize),
    /// `struct timeval[2]`.
    #[cfg(target_arch = "x86_64")]
    Microseconds(usize),
    /// `struct utimbuf`.
    #[cfg(target_arch = "x86_64")]
    Seconds(usize),
    /// Name, value, length and flags from this argument on.
    SetAttribute(usize),
    /// The name in this argument, `struct xattr_args` and its length behind it.
    SetAttributeAt(usize),
    RemoveAttribute(usize),
}

/// What the call is, by its number.
fn asked(caller: &Caller) -> Result<(Whose, What), Errno> {
    let descriptor = Whose::descriptor(caller);
    let path = |follow| Whose::path(caller, follow);
    let at = |flags| Whose::at(caller, flags);
    Ok(match i64::from(caller.call.number) {
        libc::SYS_fchmod => (descriptor, What::Mode(1)),
        libc::SYS_fchmodat => (at(0)?, What::Mode(2)),
        SYS_FCHMODAT2 => (at(caller.int(3))?, What::Mode(2)),
        libc::SYS_fchown => (descriptor, What::Owner(1)),
        libc::SYS_fchownat => (at(caller.int(4))?, What::Owner(2)),
        libc::SYS_utimensat => (timed(caller, caller.int(3))?, What::Nanoseconds(2)),
        libc::SYS_setxattr => (path(true), What::SetAttribute(1)),
        libc::SYS_lsetxattr => (path(false), What::SetAttribute(1)),
        libc::SYS_fsetxattr => (descriptor, What::SetAttribute(1)),
        SYS_SETXATTRAT => (at(caller.int(2))?, What::SetAttributeAt(3)),
        libc::SYS_removexattr => (path(true), What::RemoveAttribute(1)),
        libc::SYS_lremovexattr => (path(false), What::RemoveAttribute(1)),
        libc::SYS_fremovexattr => (descriptor, What::RemoveAttribute(1)),
        SYS_REMOVEXATTRAT => (at(caller.int(2))?, What::RemoveAttribute(3)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => (path(true), What::Mode(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown => (path(true), What::Owner(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown => (path(false), What::Owner(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime => (path(true), What::Seconds(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes => (path(true), What::Microseconds(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat => (timed(caller, 0)?, What::Microseconds(2)),
        _ => return Err(Errno::ENOSYS),
    })
}

/// Without a path, `utimensat(2)` means the descriptor.
fn timed(caller: &Caller, flags: i32) -> Result<Whose, Errno> {
    if caller.call.arguments[1] != 0 {
        return Whose::at(caller, flags);
    }
    match (flags, caller.int(0)) {
        (0, libc::AT_FDCWD) => Err(Errno::EFAULT),
        (0, _) => Ok(Whose::descriptor(caller)),
        _ => Err(Errno::EINVAL),
    }
}

impl What {
    fn read(self, caller: &Caller) -> Result<Change, Errno> {
        let arguments = &caller.call.arguments;
        Ok(match self {
            Self::Mode(argument) => Change::Mode(caller.int(argument).cast_unsigned()),
            Self::Owner(argument) => {
                let id = |argument| {
                    let id = caller.int(argument).cast_unsigned();
                    (id != u32::MAX).then_some(id)
                };
                let (user, group) = (id(argument), id(argument + 1));
                Change::Owner(user.map(Uid::from_raw), group.map(Gid::from_raw))
            }
            Self::Nanoseconds(argument) => {
                times(caller, argument, |[a, b, c, d]| Some([(a, b), (c, d)]))?
            }
            #[cfg(target_arch = "x86_64")]
            Self::Microseconds(argument) => times(caller, argument, |[a, b, c, d]| {
                let range = 0..1_000_000;
                (range.contains(&b) && range.contains(&d)).then_some([(a, b * 1000), (c, d * 1000)])
            })?,
            #[cfg(target_arch = "x86_64")]
            Self::Seconds(argument) => times(caller, argument, |[a, b]| Some([(a, 0), (b, 0)]))?,
            Self::SetAttribute(at) => {
                let name = name(caller, arguments[at])?;
                let value = value(caller, arguments[at + 1], arguments[at + 2])?;
                Change::SetAttribute(name, value, caller.int(at + 3))
            }
            Self::SetAttributeAt(at) => {
                let name = name(caller, arguments[at])?;
                let (address, length, flags) =
                    in_memory(caller, arguments[at + 1], arguments[at + 2])?;
                Change::SetAttribute(name, value(caller, address, length)?, flags)
            }
            Self::RemoveAttribute(at) => Change::RemoveAttribute(name(caller, arguments[at])?),
        })
    }
}

/// Times, made of `N` numbers of 64 bits at the address in an argument; 0: now.
fn times<const N: usize>(
    caller: &Caller,
    argument: usize,
    pairs: impl Fn([i64; N]) -> Option<[(i64, i64); 2]>,
) -> Result<Change, Errno> {
    let address = caller.call.arguments[argument];
    if address == 0 {
        return Ok(Change::Times(None));
    }
    let bytes = read(caller, address, N * 8)?;
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = i64::from_ne_bytes(bytes.try_into().map_err(|_| Errno::EFAULT)?);
    }
    let times = pairs(numbers).ok_or(Errno::EINVAL)?;
    Ok(Change::Times(Some(times.map(|(seconds, nanoseconds)| {
        libc::timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        }
    }))))
}

/// The name of an attribute.
fn name(caller: &Caller, address: u64) -> Result<CString, Errno> {
    let name = match caller.path(address).map_err(|error| resolve::errno(&error)) {
        Ok(name) => name,
        Err(Errno::ENAMETOOLONG) => return Err(Errno::ERANGE),
        Err(errno) => return Err(errno),
    };
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(Errno::ERANGE);
    }
    CString::new(name).map_err(|_| Errno::EINVAL)
}

/// The value of an attribute.
fn value(caller: &Caller, address: u64, length: u64) -> Result<Vec<u8>, Errno> {
    if length > LONGEST_VALUE {
        return Err(Errno::E2BIG);
    }
    match usize::try_from(length).map_err(|_| Errno::E2BIG)? {
        0 => Ok(Vec::new()),
        length => read(caller, address, length),
    }
}

/// `struct xattr_args` (include/uapi/linux/xattr.h): an address of 64 bits, length and flags of 32.
fn in_memory(caller: &Caller, address: u64, length: u64) -> Result<(u64, u64, i32), Errno> {
    const SIZE: usize = 16;
    if length < SIZE as u64 {
        return Err(Errno::EINVAL);
    }
    if length > SIZE as u64 {
        // A newer form, which says more than is known here.
        return Err(Errno::E2BIG);
    }
    let bytes = read(caller, address, SIZE)?;
    let [value, rest] = [0, 8].map(|at| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[at..at + 8]);
        number
    });
    let [length, flags] = [0, 4].map(|at| {
        let mut number = [0; 4];
        number.copy_from_slice(&rest[at..at + 4]);
        number
    });
    Ok((
        u64::from_ne_bytes(value),
        u32::from_ne_bytes(length).into(),
        i32::from_ne_bytes(flags),
    ))
}

/// Exactly as many bytes.
fn read(caller: &Caller, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let bytes = caller
        .read(address, length)
        .map_err(|error| resolve::errno(&error))?;
    if bytes.len() == length {
        Ok(bytes)
    } else {
        Err(Errno::EFAULT)
    }
}
