/* What the probes write and what the tracer reads: the layout of every event and of every map that both
 * sides share. Its other half is ebpf/events/src/raw.rs; a test there compares the two, line by line, so
 * each constant stands on a line of its own.
 *
 * All numbers are in the byte order of the machine. Everything is naturally aligned.
 */
#ifndef AGENT_SANDBOX_EVENTS_H
#define AGENT_SANDBOX_EVENTS_H

/* --- kinds of events: `head.kind`, and the bit of it in `trace.events` ------------------------------ */

/* A process came to be: head.pid and head.tid are its own, head.ppid is its parent's. Payload: none. Threads and
 * io_uring's workers are marked, but not told of. */
#define KIND_FORK 0
/* A program was started: `struct exec`. */
#define KIND_EXEC 1
/* A process has ended (its last thread): `head.result` is the wait status. Payload: none. */
#define KIND_EXIT 2
/* A file was opened, or was not: `struct opened`. */
#define KIND_OPEN 3
/* connect(2), or a message sent to an address: `struct address`. */
#define KIND_CONNECT 4
/* listen(2): `struct address`, of the socket's own side. */
#define KIND_LISTEN 5
/* Something else that matters: `struct operation`. */
#define KIND_OPERATION 6
#define KINDS 7

/* --- operations: `operation.what` -------------------------------------------------------------------- */

/* first: the other process; second: the mode (PTRACE_MODE_*); PTRACE_TRACEME has first = its parent. */
#define OP_PTRACE 0
/* first: the new effective id; second: the old one; third: LSM_SETID_* (id, re, res, fs). */
#define OP_SETUID 1
/* The same of groups. */
#define OP_SETGID 2
/* path: where; other: the file system's type or the source; first: MS_* flags. */
#define OP_MOUNT 3
/* path: where; first: flags. */
#define OP_UMOUNT 4
/* No payload but the head. */
#define OP_PIVOT_ROOT 5
/* first: CLONE_NEW* flags, of unshare(2) or clone(2). */
#define OP_UNSHARE 6
/* first: the descriptor; second: CLONE_NEW* flags. */
#define OP_SETNS 7
/* A program was started that has no name in any file system (memfd_create(2)): path. */
#define OP_MEMFD_EXEC 8
/* first: the kind of data (LOADING_MODULE …), path: the file's if there is one. */
#define OP_MODULE_LOAD 9
/* first: the command of bpf(2). */
#define OP_BPF 10
/* first: the system call's number: keyctl(2), add_key(2), request_key(2); second: its first argument. */
#define OP_KEYCTL 11
/* A signal to a process of no trace, or of another one. first: the process; second: the signal. */
#define OP_KILL 12
/* first: the other process; second: the system call's number. */
#define OP_PROCESS_VM 13
/* path: the existing file; other: the new name. */
#define OP_LINK 14
/* path: the old name; other: the new one; first: RENAME_* flags. Only from one directory to another. */
#define OP_RENAME 15
/* path; first: the new mode, of which set-user-id or set-group-id is set. */
#define OP_CHMOD 16
/* first: the family; second: the type; third: the protocol. AF_PACKET, or SOCK_RAW of any family but AF_NETLINK,
 * where that means nothing. */
#define OP_RAW_SOCKET 17
/* first: the flags. */
#define OP_USERFAULTFD 18
/* first: entries; second: IORING_SETUP_* flags where they are known. */
#define OP_IO_URING 19
/* A new user namespace (LSM hook userns_create, Linux 6.1). */
#define OP_USER_NAMESPACE 20
/* A task of the trace has what the trace's user has not, and nothing is recorded of it until it has not.
 * first: the id of the user or group; second: OTHER_*. */
#define OP_OTHER_USER 21
/* Something that only the second layer looks at was to be done to what is forbidden. first: FORBIDDEN_*;
 * path: what it was to be done to, from the root of its file system (FLAG_TAIL). */
#define OP_FORBIDDEN 22
/* path: a name that was removed. */
#define OP_UNLINK 23
/* path: a directory that was removed. */
#define OP_RMDIR 24
/* path: a new directory; first: its mode. */
#define OP_MKDIR 25
/* path: a new pipe, device or socket (bind(2), too), or with tracepoints a file of mknod(2); first: type and mode;
 * second: the device as mknod(2) is given it. */
#define OP_MKNOD 26
/* path: a new symbolic link; other: what it says. */
#define OP_SYMLINK 27
#define OPERATIONS 28

/* --- what was to be done to something forbidden: `operation.first` of OP_FORBIDDEN --------------------- */

#define FORBIDDEN_UNLINK 0
#define FORBIDDEN_RMDIR 1
#define FORBIDDEN_CREATE 2
#define FORBIDDEN_MKDIR 3
#define FORBIDDEN_MKNOD 4
#define FORBIDDEN_SYMLINK 5
/* Size, mode, owner or times. */
#define FORBIDDEN_CHANGE 6
/* Extended attributes and access control lists: set, removed, read. */
#define FORBIDDEN_ATTRIBUTE 7
/* inotify, fanotify. */
#define FORBIDDEN_WATCH 8
/* An open file was handed over by another process (SCM_RIGHTS, unix(7)). */
#define FORBIDDEN_RECEIVE 9
/* A unix socket was to be connected to, or sent to. */
#define FORBIDDEN_SOCKET 10
#define FORBIDDENS 11

/* --- what a task has that is not the user's: `operation.second` of OP_OTHER_USER ---------------------- */

/* A real, effective or saved user id. */
#define OTHER_USER 1
/* An effective or saved group id that is none of the user's groups. */
#define OTHER_GROUP 2
/* Capabilities that its program gave it. */
#define OTHER_CAPABILITIES 3

/* --- who decided: `head.by` -------------------------------------------------------------------------- */

/* It was allowed, or nobody knows: then `result` says whether it was. */
#define BY_NOBODY 0
/* The permissions of files (mode bits, ACLs, a read-only file system): before any security module. */
#define BY_PERMISSIONS 1
/* A security module of the kernel: Landlock, SELinux, AppArmor … */
#define BY_SECURITY_MODULE 2
/* This object, as the trace enforces (`TRACE_ENFORCE`). */
#define BY_TRACER 3
/* Before the kernel did anything: seccomp, or who traces the process with PTRACE_SYSEMU (only the tracepoint
 * object can tell). The call has not run, whatever `result` is. */
#define BY_SECCOMP 4

/* --- flags of an event: `head.flags` ----------------------------------------------------------------- */

/* Text was longer than there is room for, and is cut off. */
#define FLAG_TRUNCATED 1
/* A path is as the caller wrote it and not resolved (relative to its directory, with links). */
#define FLAG_UNRESOLVED 2
/* Read from the caller's memory after the call: the caller can have changed it. */
#define FLAG_FROM_USER 4
/* Would have been denied: the trace only audits (`TRACE_AUDIT`). */
#define FLAG_WOULD_DENY 8
/* The path has components beyond those that are here: it begins at some directory, not at the root. */
#define FLAG_TAIL 16
/* exec: the program sets a user or group id. */
#define FLAG_SET_ID 32
/* The path is given from the innermost component to the outermost, each followed by a zero byte: of every kind
 * of event; of operations `path`, and `other` of OP_LINK and OP_RENAME. */
#define FLAG_REVERSED 64
/* A kernel worker of the process's did it: io_uring. */
#define FLAG_WORKER 128
/* The trace began in the middle of the call: whether the kernel ran it is not known. */
#define FLAG_BEGUN_BEFORE 256

/* --- limits, in bytes -------------------------------------------------------------------------------- */

/* The longest event, with all of it. */
#define EVENT_BYTES 8192
/* The longest path (PATH_MAX, limits.h), with its zero. */
#define PATH_BYTES 4096
/* Of a program's arguments as many bytes are kept, zeros between them. Of more than that these are the first
 * ARGUMENT_HEAD, and the last ones. */
#define ARGUMENT_BYTES 2048
#define ARGUMENT_HEAD 1536
/* A struct sockaddr_un and its zero fit. */
#define ADDRESS_BYTES 112

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

/* What every event begins with. 72 bytes. */
struct head {
	u32 size;       /* of the event, with this */
	u8 kind;        /* KIND_* */
	u8 by;          /* BY_* */
	u16 flags;      /* FLAG_* */
	u64 time;       /* ns since the boot (CLOCK_BOOTTIME) */
	u64 cgroup;     /* id of the cgroup v2 */
	u32 trace;      /* id of the trace whose task it is */
	u32 pid;        /* of the process, as the initial namespace numbers it */
	u32 tid;        /* of the thread */
	u32 ppid;       /* of the process's parent */
	u32 uid;        /* real user id, as the initial user namespace numbers it */
	s32 result;     /* 0, or the error as a negative number; see KIND_EXIT */
	char comm[16];  /* the thread's name, with zeros after it */
	u32 cpu;        /* number of the processor */
	u32 pad;
};

/* Strings follow in the order in which their lengths are given; each length counts its zero, and is 0
 * where there is none. */

struct exec {
	struct head head;
	u32 path_bytes;      /* of the program as it was resolved */
	u32 argument_bytes;  /* of the arguments, zeros between them */
	u32 argument_total;  /* as long as they are altogether */
	u32 pad;
};

struct opened {
	struct head head;
	u64 inode;       /* 0 if there is none */
	u32 device;      /* dev_t as the kernel has it: major << 20 | minor */
	u32 open_flags;  /* O_* */
	u32 mode;        /* type and permissions of the file, 0 if there is none */
	u32 path_bytes;
};

struct address {
	struct head head;
	u16 family;  /* AF_* */
	u16 type;    /* SOCK_* */
	u32 protocol;
	u32 address_bytes; /* of a struct sockaddr of that family */
	u32 pad;
};

struct operation {
	struct head head;
	u32 what;   /* OP_* */
	u32 pad;
	u64 first;
	u64 second;
	u64 third;
	u32 path_bytes;
	u32 other_bytes;
};

/* --- maps --------------------------------------------------------------------------------------------- */

/* `traces`: hash, u32 id of a trace (never 0) -> this. */
#define TRACES 4096
/* Tasks of this trace are recorded. Without it they are only marked (a trace below it may record). */
#define TRACE_RECORD 1
/* What is forbidden is denied to tasks with no_new_privs (prctl(2)), and to root's traces; to others it is as if
 * the trace only audited. */
#define TRACE_ENFORCE 2
/* What is forbidden is let through, and recorded with FLAG_WOULD_DENY. */
#define TRACE_AUDIT 4
/* No connection and message of the families AF_INET and AF_INET6. */
#define TRACE_NO_INTERNET 8
/* No new user namespace. */
#define TRACE_NO_USER_NAMESPACE 16
/* Opens that fail because there is no such file (ENOENT, ENOTDIR) are recorded, too. */
#define TRACE_MISSING 32
struct trace {
	u32 events;   /* 1 << KIND_* */
	u32 flags;    /* TRACE_* */
	u32 uid;      /* whose tasks these are: of those of other users, or with rights of others, nothing is
	               * recorded */
	u32 every;    /* of the opens that were allowed each so manieth is recorded; 0 and 1: all */
	u64 operations; /* 1 << OP_* */
	u64 lost;     /* events for which there was no room, or that could not be looked at */
	u64 skipped;  /* opens that `every` left out */
	u64 opens;    /* counts for `every` */
	u32 parent;   /* id of the trace above, 0 if there is none: a task that is marked changes its mark only for a
	               * trace that is below its own */
	u32 rules;    /* id of the trace whose `forbidden` holds for these tasks, 0: its own; a trace below one that
	               * enforces has that one's here, and its flags */
};

/* `marks`: task storage: which trace a task belongs to. It is inherited, and stays when the task leaves
 * its cgroup. */
struct mark {
	u32 trace;
	u32 other;    /* 1 once OP_OTHER_USER was recorded */
	u64 call;     /* number of the system call + 1, 0 for none; trampolines: VERDICT_* of the call that runs */
	u64 aside;    /* trampolines: the process that ptrace(2)'s hook was asked about last; tracepoints: the
	               * effective ids before the call, the group's in the upper half */
	u64 ended;    /* 1 once the end of the process was told (in the mark of its first thread) */
	u64 dentry;   /* trampolines: what the hook of paths has let through last; its mount */
	u64 mount;
	u64 first;    /* tracepoints: the first argument of the system call, when it began */
	u64 spare;
};

/* `cgroups`: hash, u64 id of a cgroup v2 -> u32 id of the trace of everything in and below it. */
#define CGROUPS 4096

/* `forbidden`: hash, this -> u32 1: a directory with all below it, or a file, that tasks of the trace may
 * not open, link, rename, connect to. */
#define FORBIDDEN 65536
struct forbidden {
	u64 inode;
	u32 device;  /* as in `struct opened` */
	u32 trace;
};

/* `sweep`: array of one: what reading the iterator `sweep` does to every task that there is. */
#define SWEEP_NOTHING 0
/* Threads of the process `target` get the mark. */
#define SWEEP_PROCESS 1
/* Tasks in or below the cgroup `target` get the mark. */
#define SWEEP_CGROUP 2
/* Tasks whose mark is `from` get `trace`; 0 takes the mark away. */
#define SWEEP_REPLACE 3
/* Nothing changes: counts the tasks whose mark is `trace`. */
#define SWEEP_COUNT 4
/* Tasks whose parent process is marked with `trace` get the mark; to be repeated until `count` is 0. */
#define SWEEP_CHILDREN 5
/* No task: finds out `device` and `inode` of what the descriptor `target` of the reading process is open on, as
 * the kernel itself has them: stat(2) says others on btrfs and overlayfs. `count` is 1 if it is one. */
#define SWEEP_FILE 6
struct sweep {
	u32 what;    /* SWEEP_* */
	u32 trace;   /* id of the trace; it must be in `traces` */
	u64 target;
	u32 from;    /* only tasks with this mark, 0: with none; UINT_MAX: whatever mark */
	u32 uid;     /* only tasks of this real user id */
	u64 count;   /* result: tasks whose mark has changed, or that were counted */
	u64 inode;   /* result of SWEEP_FILE */
	u32 device;
	u32 pad;
};

/* `events`: ring buffer of the above. `slots`: per-CPU buffers in which events are put together.
 * `misses`: array of one, u64: tasks that could not be marked for lack of memory; each counts in `lost` of its
 * trace as well. `pulse`: array of one, u64: when the reader was last woken (emit.h). */
#define RING_BYTES 4194304

#endif
