//! The calls that could give a file a set-user-ID or set-group-ID bit.
//!
//! The bit outlives the jail: a jailed program could copy a shell into the project and give it mode
//! 4755, and another user of the same host would run it outside of the jail, with the user's rights.
//! So every call that takes the mode of a file is refused these two bits; `mkdir` needs no rule, for
//! the kernel drops them there (mkdir(2)). On a directory the set-group-ID bit runs nothing, and
//! directories of a group have it: a mediator gives it there, and to nothing else (`crate::mediate`).
//! Where there is one, its filter hands the calls over that change a mode to one with that bit. `umask` and extended attributes cannot
//! set them, and io_uring and `open_by_handle_at` are refused anyway.
//!
//! The kernel takes the arguments as `int` and `umode_t`, so high bits count for nothing.

use crate::plan::model::syscalls::{Answer, SyscallRule, When, always, on};

/// S_ISUID and S_ISGID: include/uapi/linux/stat.h.
const SET_ID_BITS: u64 = 0o6000;
const SET_USER_ID: u64 = 0o4000;
const SET_GROUP_ID: u64 = 0o2000;
/// O_CREAT and `__O_TMPFILE`, the flags with which the kernel looks at the mode: WILL_CREATE,
/// fs/open.c; numbers in include/uapi/asm-generic/fcntl.h.
const CREATING_FLAGS: u64 = 0o100 | 0o20_000_000;

/// At least one of `bits` in an argument of 32 bits or fewer.
const fn any_bit(index: u8, bits: u64) -> When {
    When::ArgAnyBit {
        index,
        bits,
        width32: true,
    }
}

const SET_ID: &str = "could give a file a set-user-ID or set-group-ID bit, with which another user of this host would run it \
     outside the jail with your rights";
const SET_GROUP: &str = "could give a file a set-group-ID bit, and no mediator is there that could tell files from directories \
     (`agent-sandbox doctor` says why), so setgid directories (`chmod g+s`) are refused too";
const OPENAT2: &str = "passes the mode of a new file in memory, which this filter cannot read, and so could set its \
     set-user-ID bit; libraries fall back to openat, whose mode is checked";

/// The mode in the second argument.
const MODE_SECOND: When = any_bit(1, SET_ID_BITS);
/// The mode in the third argument.
const MODE_THIRD: When = any_bit(2, SET_ID_BITS);

/// Refused besides where no mediator looks at what gets the bit.
pub(super) const WITHOUT_MEDIATOR: &[SyscallRule] = &[
    on("chmod", any_bit(1, SET_GROUP_ID), Answer::Perm, SET_GROUP),
    on("fchmod", any_bit(1, SET_GROUP_ID), Answer::Perm, SET_GROUP),
    on(
        "fchmodat",
        any_bit(2, SET_GROUP_ID),
        Answer::Perm,
        SET_GROUP,
    ),
    on(
        "fchmodat2",
        any_bit(2, SET_GROUP_ID),
        Answer::Perm,
        SET_GROUP,
    ),
];

/// Refused whatever the policy says.
pub(super) const RULES: &[SyscallRule] = &[
    on("chmod", any_bit(1, SET_USER_ID), Answer::Perm, SET_ID),
    on("fchmod", any_bit(1, SET_USER_ID), Answer::Perm, SET_ID),
    on("fchmodat", any_bit(2, SET_USER_ID), Answer::Perm, SET_ID),
    on("fchmodat2", any_bit(2, SET_USER_ID), Answer::Perm, SET_ID),
    on("creat", MODE_SECOND, Answer::Perm, SET_ID),
    on("mknod", MODE_SECOND, Answer::Perm, SET_ID),
    on("mknodat", MODE_THIRD, Answer::Perm, SET_ID),
    // Without one of the flags the mode is not looked at, and callers leave anything in its place.
    on(
        "open",
        When::All(&[any_bit(1, CREATING_FLAGS), any_bit(2, SET_ID_BITS)]),
        Answer::Perm,
        SET_ID,
    ),
    on(
        "openat",
        When::All(&[any_bit(2, CREATING_FLAGS), any_bit(3, SET_ID_BITS)]),
        Answer::Perm,
        SET_ID,
    ),
    always("openat2", Answer::NoSys, OPENAT2),
];
