//! The layout of what the probes write into the ring buffer (`ebpf/probes/events.h`), and its parser.
//!
//! The kernel is trusted with the layout, and still nothing is read beyond the end of an event: a wrong
//! length is an [`Unreadable`] and never a crash of a service that runs as root.

use thiserror::Error;

/// Kinds of events: `head.kind`, and the bit of it in a trace's `events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A task came to be.
    Fork = 0,
    /// A program was started.
    Exec = 1,
    /// A process has ended.
    Exit = 2,
    /// A file was opened, or was not.
    Open = 3,
    /// `connect(2)`, or a message sent to an address.
    Connect = 4,
    /// `listen(2)`.
    Listen = 5,
    /// Something else that matters.
    Operation = 6,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Kind; 7] = [
        Kind::Fork,
        Kind::Exec,
        Kind::Exit,
        Kind::Open,
        Kind::Connect,
        Kind::Listen,
        Kind::Operation,
    ];

    /// Its bit in `trace.events`.
    #[must_use]
    pub fn bit(self) -> u32 {
        1 << self as u8
    }

    /// As policies and records name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fork => "fork",
            Kind::Exec => "exec",
            Kind::Exit => "exit",
            Kind::Open => "open",
            Kind::Connect => "connect",
            Kind::Listen => "listen",
            Kind::Operation => "operation",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Names of the operations, by number (`OP_*`).
pub const OPERATIONS: [&str; 28] = [
    "ptrace",
    "setuid",
    "setgid",
    "mount",
    "umount",
    "pivot_root",
    "unshare",
    "setns",
    "memfd_exec",
    "module_load",
    "bpf",
    "keyctl",
    "kill",
    "process_vm",
    "link",
    "rename",
    "chmod",
    "raw_socket",
    "userfaultfd",
    "io_uring",
    "user_namespace",
    "other_user",
    "forbidden",
    "unlink",
    "rmdir",
    "mkdir",
    "mknod",
    "symlink",
];

/// Who decided (`BY_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// It was allowed, or nobody knows.
    Nobody,
    /// Mode bits, ACLs, a read-only file system.
    Permissions,
    /// A security module of the kernel: Landlock, `SELinux`, `AppArmor` …
    SecurityModule,
    /// The tracer's own programs.
    Tracer,
    /// seccomp, or who traces the process: the call has not run.
    Seccomp,
}

/// Flags of an event (`FLAG_*`).
pub mod flags {
    /// Text is cut off.
    pub const TRUNCATED: u16 = 1;
    /// A path as the caller wrote it.
    pub const UNRESOLVED: u16 = 2;
    /// Read from the caller's memory.
    pub const FROM_USER: u16 = 4;
    /// Would have been denied.
    pub const WOULD_DENY: u16 = 8;
    /// A path's outer components are missing.
    pub const TAIL: u16 = 16;
    /// The program sets a user or group id.
    pub const SET_ID: u16 = 32;
    /// A path from the innermost component to the outermost.
    pub const REVERSED: u16 = 64;
    /// A kernel worker of the process's did it: `io_uring`.
    pub const WORKER: u16 = 128;
    /// The trace began in the middle of the call.
    pub const BEGUN_BEFORE: u16 = 256;
}

/// Flags of a trace (`TRACE_*`).
pub mod trace_flags {
    /// Its tasks are recorded.
    pub const RECORD: u32 = 1;
    /// What is forbidden is denied.
    pub const ENFORCE: u32 = 2;
    /// What is forbidden is recorded.
    pub const AUDIT: u32 = 4;
    /// No internet.
    pub const NO_INTERNET: u32 = 8;
    /// No new user namespace.
    pub const NO_USER_NAMESPACE: u32 = 16;
    /// Opens of missing files are recorded.
    pub const MISSING: u32 = 32;
}

/// The longest event, in bytes (`EVENT_BYTES`).
pub const EVENT_BYTES: usize = 8192;

/// Of arguments that are longer than what there is of them, so many bytes are the first, and the rest are the
/// last (`ARGUMENT_HEAD`).
pub const ARGUMENT_HEAD: usize = 1536;

/// `struct head`, in bytes.
const HEAD: usize = 72;

/// What every event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is about.
    pub kind: Kind,
    /// Who decided.
    pub by: By,
    /// [`flags`].
    pub flags: u16,
    /// Nanoseconds since the boot (`CLOCK_BOOTTIME`).
    pub time: u64,
    /// Id of the cgroup v2.
    pub cgroup: u64,
    /// Id of the trace whose task it is.
    pub trace: u32,
    /// The process, as the initial namespace numbers it.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The process's parent.
    pub ppid: u32,
    /// Real user id.
    pub uid: u32,
    /// 0, or the error as a negative number; of an exit the wait status.
    pub result: i32,
    /// The thread's name, with zeros after it.
    pub comm: [u8; 16],
    /// Number of the processor.
    pub cpu: u32,
}

impl Head {
    /// The thread's name, without the zeros.
    #[must_use]
    pub fn command(&self) -> &[u8] {
        until_zero(&self.comm)
    }
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About<'a> {
    /// A fork or an exit: nothing more.
    Life,
    /// A program was started.
    Exec {
        /// Its path.
        path: &'a [u8],
        /// Its arguments, zeros between them.
        arguments: &'a [u8],
        /// Their length altogether, in bytes.
        total: u32,
    },
    /// A file was opened, or was not.
    Open {
        /// Its path.
        path: &'a [u8],
        /// Its inode; 0 if there is none.
        inode: u64,
        /// Its device, as the kernel has it: major << 20 | minor.
        device: u32,
        /// `O_*`.
        open_flags: u32,
        /// Type and permissions; 0 if there is no file.
        mode: u32,
    },
    /// A connection, or where somebody listens.
    Address {
        /// `AF_*`.
        family: u16,
        /// `SOCK_*`.
        kind: u16,
        /// The protocol's number.
        protocol: u32,
        /// A `struct sockaddr` of that family.
        address: &'a [u8],
    },
    /// Something else.
    Operation {
        /// Index into [`OPERATIONS`].
        what: u32,
        /// Three numbers; which, `events.h` says of each operation.
        numbers: [u64; 3],
        /// A path.
        path: &'a [u8],
        /// Another path, or a name.
        other: &'a [u8],
    },
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// What every event says.
    pub head: Head,
    /// What this one says.
    pub about: About<'a>,
}

/// Bytes that are no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// It ends too early.
    #[error("an event ends too early")]
    Short,
    /// A kind, a decision or an operation that is not known.
    #[error("an event with an unknown number {0}")]
    Unknown(u32),
}

/// Reads an event. What stands behind its end (`head.size`) is not looked at.
///
/// # Errors
/// It is none.
pub fn parse(bytes: &[u8]) -> Result<Event<'_>, Unreadable> {
    let mut reader = Reader { bytes, at: 0 };
    let size = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
    reader.bytes = bytes.get(..size).ok_or(Unreadable::Short)?;
    let kind = reader.u8()?;
    let kind = *Kind::ALL
        .get(usize::from(kind))
        .ok_or(Unreadable::Unknown(kind.into()))?;
    let by = match reader.u8()? {
        0 => By::Nobody,
        1 => By::Permissions,
        2 => By::SecurityModule,
        3 => By::Tracer,
        4 => By::Seccomp,
        other => return Err(Unreadable::Unknown(other.into())),
    };
    let head = Head {
        kind,
        by,
        flags: reader.u16()?,
        time: reader.u64()?,
        cgroup: reader.u64()?,
        trace: reader.u32()?,
        pid: reader.u32()?,
        tid: reader.u32()?,
        ppid: reader.u32()?,
        uid: reader.u32()?,
        result: reader.i32()?,
        comm: reader.array()?,
        cpu: reader.u32()?,
    };
    reader.at = HEAD;
    let about = match kind {
        Kind::Fork | Kind::Exit => About::Life,
        Kind::Exec => {
            let [path, arguments, total, _] = reader.words()?;
            About::Exec {
                path: reader.path(path)?,
                arguments: reader.bytes(arguments)?,
                total,
            }
        }
        Kind::Open => {
            let inode = reader.u64()?;
            let [device, open_flags, mode, path] = reader.words()?;
            About::Open {
                path: reader.path(path)?,
                inode,
                device,
                open_flags,
                mode,
            }
        }
        Kind::Connect | Kind::Listen => {
            let (family, kind) = (reader.u16()?, reader.u16()?);
            let [protocol, address, _] = reader.words()?;
            About::Address {
                family,
                kind,
                protocol,
                address: reader.bytes(address)?,
            }
        }
        Kind::Operation => {
            let [what, _] = reader.words()?;
            if usize::try_from(what).map_or(true, |what| what >= OPERATIONS.len()) {
                return Err(Unreadable::Unknown(what));
            }
            let numbers = [reader.u64()?, reader.u64()?, reader.u64()?];
            let [path, other] = reader.words()?;
            About::Operation {
                what,
                numbers,
                path: reader.path(path)?,
                other: reader.path(other)?,
            }
        }
    };
    Ok(Event { head, about })
}

/// A path that was given from the innermost component to the outermost ([`flags::REVERSED`]), each with
/// a zero behind it, the right way round. With [`flags::TAIL`] it does not begin with a slash.
#[must_use]
pub fn turned(path: &[u8], flags: u16) -> Vec<u8> {
    if flags & flags::REVERSED == 0 {
        return until_zero(path).to_vec();
    }
    let mut whole = Vec::with_capacity(path.len() + 1);
    for component in path.split(|byte| *byte == 0).rev() {
        if component.is_empty() {
            continue;
        }
        if !whole.is_empty() || flags & flags::TAIL == 0 {
            whole.push(b'/');
        }
        whole.extend_from_slice(component);
    }
    if whole.is_empty() && flags & flags::TAIL == 0 {
        whole.push(b'/');
    }
    whole
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, length: u32) -> Result<&'a [u8], Unreadable> {
        let length = usize::try_from(length).map_err(|_| Unreadable::Short)?;
        let end = self.at.checked_add(length).ok_or(Unreadable::Short)?;
        let part = self.bytes.get(self.at..end).ok_or(Unreadable::Short)?;
        self.at = end;
        Ok(part)
    }

    /// With the zeros inside, where there are some, but not the one at the end.
    fn path(&mut self, length: u32) -> Result<&'a [u8], Unreadable> {
        let part = self.bytes(length)?;
        Ok(part.strip_suffix(&[0]).unwrap_or(part))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let length = u32::try_from(N).map_err(|_| Unreadable::Short)?;
        self.bytes(length)?
            .try_into()
            .map_err(|_| Unreadable::Short)
    }

    fn words<const N: usize>(&mut self) -> Result<[u32; N], Unreadable> {
        let mut all = [0; N];
        for word in &mut all {
            *word = self.u32()?;
        }
        Ok(all)
    }

    fn u8(&mut self) -> Result<u8, Unreadable> {
        self.array().map(u8::from_ne_bytes)
    }

    fn u16(&mut self) -> Result<u16, Unreadable> {
        self.array().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Result<u32, Unreadable> {
        self.array().map(u32::from_ne_bytes)
    }

    fn i32(&mut self) -> Result<i32, Unreadable> {
        self.array().map(i32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Unreadable> {
        self.array().map(u64::from_ne_bytes)
    }
}
