//! Directories of cgroups by their ids.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The kind of a handle that is a node's 64-bit id alone (`FILEID_KERNFS`, include/linux/exportfs.h,
/// Linux 5.5).
const FILEID_KERNFS: i32 = 0xfe;

/// `struct file_handle` of `open_by_handle_at(2)`, with room for one id.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    id: u64,
}

/// The directory of the cgroup with this id, in the cgroup2 file system that `mount` is in. It needs
/// `CAP_DAC_READ_SEARCH`. No path is looked up, so nobody can lead it elsewhere.
///
/// # Errors
/// What `open_by_handle_at(2)` answers; `ESTALE` if there is no such cgroup.
#[allow(unsafe_code)]
pub(crate) fn cgroup(mount: BorrowedFd<'_>, id: u64) -> io::Result<OwnedFd> {
    let mut handle = Handle {
        bytes: 8,
        kind: FILEID_KERNFS,
        id,
    };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the handle is laid out as the call expects it, says its size, and outlives the call.
    let number = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut handle,
            flags,
        )
    };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = RawFd::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for this process, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
