//! What aya does not offer of `bpf(2)`: pinned programs as descriptors, and the mark of a task.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Commands, from linux/bpf.h.
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_OBJ_PIN: libc::c_int = 6;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;

/// `union bpf_attr` for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct Attach {
    name: u64,
    program: u32,
    pad: u32,
}

/// `union bpf_attr` for `BPF_OBJ_GET` and `BPF_OBJ_PIN`.
#[repr(C)]
struct Get {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// `union bpf_attr` for `BPF_MAP_LOOKUP_ELEM`.
#[repr(C)]
struct Lookup {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Opens what is pinned at a path.
///
/// # Errors
/// There is nothing, or it may not be opened.
#[allow(unsafe_code)]
pub(crate) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut get = Get {
        path: address(path.as_ptr()),
        descriptor: 0,
        flags: 0,
    };
    let length = size_of::<Get>();
    // SAFETY: the structure is what the command reads, of that length, and the path ends in a zero and
    // lives until the call returns. The kernel writes nothing.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_GET, &raw mut get, length) };
    opened(result)
}

/// What `bpf(2)` answers to a command that opens something.
#[allow(unsafe_code)]
fn opened(result: libc::c_long) -> io::Result<OwnedFd> {
    let number = RawFd::try_from(result).unwrap_or(-1);
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it (with O_CLOEXEC) for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Attaches a program to the place that it was loaded for (LSM, fentry, fexit); it is detached when nothing
/// holds the link any more.
///
/// # Errors
/// The kernel's.
#[allow(unsafe_code)]
pub(crate) fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attach = Attach {
        // The place has no name here: it is the program's.
        name: 0,
        program: number(program),
        pad: 0,
    };
    let length = size_of::<Attach>();
    // SAFETY: the structure is what the command reads, of that length. The kernel writes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_RAW_TRACEPOINT_OPEN,
            &raw mut attach,
            length,
        )
    };
    opened(result)
}

/// Pins a link, a program or a map at a path.
///
/// # Errors
/// The kernel's.
#[allow(unsafe_code)]
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut pin = Get {
        path: address(path.as_ptr()),
        descriptor: number(object),
        flags: 0,
    };
    let length = size_of::<Get>();
    // SAFETY: the structure is what the command reads, of that length, and the path ends in a zero and
    // lives until the call returns. The kernel writes nothing.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_PIN, &raw mut pin, length) };
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// What a task storage holds for the process of a `pidfd_open(2)`; none if there is nothing for it. The
/// map's values must have `N` bytes: the caller has asked the kernel.
///
/// # Errors
/// The process has ended (`ESRCH`, `ENOENT`), or the map is none of that kind.
#[allow(unsafe_code)]
pub(crate) fn of_task<const N: usize>(
    map: BorrowedFd<'_>,
    process: BorrowedFd<'_>,
) -> io::Result<Option<[u8; N]>> {
    let key: RawFd = process.as_raw_fd();
    let mut value = [0; N];
    let mut lookup = Lookup {
        map: number(map),
        pad: 0,
        key: address(&raw const key),
        value: address(value.as_mut_ptr()),
        flags: 0,
    };
    let length = size_of::<Lookup>();
    // SAFETY: the structure is what the command reads, of that length. Of the key the kernel reads four
    // bytes, and it writes a value of the map, which has `N` bytes; both live until the call returns.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_ELEM, &raw mut lookup, length) };
    if result == 0 {
        return Ok(Some(value));
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::NotFound => Ok(None),
        error => Err(error),
    }
}

/// A descriptor as the kernel wants it.
fn number(descriptor: BorrowedFd<'_>) -> u32 {
    u32::try_from(descriptor.as_raw_fd()).unwrap_or(u32::MAX)
}

/// A pointer as the kernel wants it.
fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}
