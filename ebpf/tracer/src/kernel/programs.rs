//! What each program shows or denies, and what to say where it does not run. A test compares the table with
//! the programs of the committed objects.

use std::collections::BTreeSet;

use agent_sandbox_events::raw::Kind as Event;

use super::about::About;
use super::objects::Kind;
use super::obstacles::release;
use super::prove::Proof;

/// A program of an object.
pub(crate) struct Program {
    /// Its function.
    pub(crate) name: &'static str,
    /// The objects that have it.
    pub(crate) of: &'static [Kind],
    /// How much depends on it.
    pub(crate) need: Need,
}

/// What it is to be without a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing works.
    Essential,
    /// This is to be said.
    Shows(&'static str),
    /// The same, unless the kernel has no such place: then there is nothing to see.
    ShowsWhere(&'static str),
    /// The same, unless the other program runs, which does it on other kernels.
    OneOf(&'static str, &'static str),
    /// It denies: this is to be said.
    Denies(&'static str),
    /// The same, unless the kernel has no such place.
    DeniesWhere(&'static str),
}

impl Need {
    fn denies(self) -> bool {
        matches!(self, Need::Denies(_) | Need::DeniesWhere(_))
    }
}

/// The programs of an object, as they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    /// Those that are attached.
    pub(crate) attached: BTreeSet<String>,
    /// Those for which the kernel has no place.
    pub(crate) absent: BTreeSet<String>,
}

const BOTH: &[Kind] = &Kind::ALL;
const TRAMPOLINES: &[Kind] = &[Kind::Trampolines];
const TRACEPOINTS: &[Kind] = &[Kind::Tracepoints];

const fn program(name: &'static str, of: &'static [Kind], need: Need) -> Program {
    Program { name, of, need }
}

const fn shows(name: &'static str, without: &'static str) -> Program {
    program(name, TRAMPOLINES, Need::Shows(without))
}

const fn shows_where(name: &'static str, without: &'static str) -> Program {
    program(name, TRAMPOLINES, Need::ShowsWhere(without))
}

const fn denies(name: &'static str, without: &'static str) -> Program {
    program(name, TRAMPOLINES, Need::Denies(without))
}

const fn denies_where(name: &'static str, without: &'static str) -> Program {
    program(name, TRAMPOLINES, Need::DeniesWhere(without))
}

const FAILED_OPENS: &str = "opens that fail before a security module is asked (no permission)";
const REFUSED_FILES: &str = "who refused a new file";
const LINKS: &str = "hard links";
const RENAMES: &str = "renames";
const IDS: &str = "attempts to become another user or group that are refused";
const SIGNALS: &str = "signals to processes outside, where they are refused";
const KEYS: &str = "calls about keys";
const MEMORY: &str = "reading and writing another process's memory";
const MODULES: &str = "loading of kernel modules";
const NARROW: &str = "some operations of 32-bit programs";
const REMOVED: &str = "removed files and directories";
const MADE: &str = "new directories, symbolic links, pipes, devices and sockets";
const ATTRIBUTES: &str = "attributes and access lists of what is forbidden";

/// All programs.
pub(crate) const PROGRAMS: &[Program] = &[
    program("life_fork", BOTH, Need::Essential),
    program("life_exec", BOTH, Need::Essential),
    program("sweep_tasks", BOTH, Need::Essential),
    program(
        "life_cgroup",
        BOTH,
        Need::Shows("a process that enters a traced cgroup, until it is looked for"),
    ),
    program("life_exit", BOTH, Need::Shows("how a process ended")),
    program("call_begin", TRACEPOINTS, Need::Essential),
    program("call_end", TRACEPOINTS, Need::Essential),
    program(
        "signal_sent",
        TRACEPOINTS,
        Need::Shows("signals to processes outside"),
    ),
    program("open_checked", TRAMPOLINES, Need::Essential),
    program(
        "open_failed_filp",
        TRAMPOLINES,
        Need::OneOf("open_failed_file", FAILED_OPENS),
    ),
    program(
        "open_failed_file",
        TRAMPOLINES,
        Need::OneOf("open_failed_filp", FAILED_OPENS),
    ),
    shows_where("open_created", REFUSED_FILES),
    shows("open_created_inode", REFUSED_FILES),
    program("socket_connect", TRAMPOLINES, Need::Essential),
    shows(
        "socket_message",
        "messages to an address without a connection",
    ),
    shows("socket_listen", "who listens"),
    shows("socket_create", "raw sockets"),
    shows_where("name_link", LINKS),
    shows("name_link_inode", LINKS),
    shows_where("name_rename", RENAMES),
    shows("name_rename_inode", RENAMES),
    shows("op_ptrace", "ptrace"),
    shows("op_traceme", "ptrace of one's own parent"),
    shows("op_setuid", "changes of the user id"),
    shows("op_setgid", "changes of the group id"),
    shows("op_mount", "mounts"),
    shows("op_move_mount", "mounts that are moved"),
    shows("op_umount", "unmounts"),
    shows("op_pivot_root", "pivot_root"),
    shows("op_unshare", "unshare"),
    shows("op_user_namespace", "new user namespaces"),
    shows("op_module_file", MODULES),
    shows("op_module_data", MODULES),
    shows("op_kill", "signals to processes outside"),
    shows_where("op_chmod", "set-user-id and set-group-id bits"),
    shows("change_unlink_asked", REMOVED),
    shows("change_unlink", REMOVED),
    shows("change_rmdir_asked", REMOVED),
    shows("change_rmdir", REMOVED),
    shows("change_mkdir_asked", MADE),
    shows("change_mkdir", MADE),
    shows("change_mknod_asked", MADE),
    shows("change_mknod", MADE),
    shows("change_symlink_asked", MADE),
    shows("change_symlink", MADE),
    shows("change_truncate", "truncate(2) by path"),
    shows("entry_setns", "setns"),
    shows("entry_bpf", "bpf"),
    shows("entry_keyctl", KEYS),
    shows("entry_add_key", KEYS),
    shows("entry_request_key", KEYS),
    shows("entry_process_vm_readv", MEMORY),
    shows("entry_process_vm_writev", MEMORY),
    shows("entry_userfaultfd", "userfaultfd"),
    shows("entry_io_uring_setup", "io_uring"),
    shows("entry_init_module", MODULES),
    shows("entry_finit_module", MODULES),
    shows("entry_kill", SIGNALS),
    shows("entry_tkill", SIGNALS),
    shows("entry_tgkill", SIGNALS),
    shows("entry_sigqueue", SIGNALS),
    // On aarch64 32-bit programs enter most calls by the same functions as others.
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_setns", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_bpf", NARROW),
    shows_where("narrow_keyctl", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_add_key", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_request_key", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_process_vm_readv", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_process_vm_writev", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_userfaultfd", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_io_uring_setup", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_init_module", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_finit_module", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_kill", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_tkill", NARROW),
    #[cfg(target_arch = "x86_64")]
    shows_where("narrow_tgkill", NARROW),
    shows_where("narrow_sigqueue", NARROW),
    shows("refused_setuid", IDS),
    shows("refused_setreuid", IDS),
    shows("refused_setresuid", IDS),
    shows("refused_setgid", IDS),
    shows("refused_setregid", IDS),
    shows("refused_setresgid", IDS),
    denies("deny_open", "opens"),
    denies_where("deny_link", LINKS),
    denies("deny_link_inode", LINKS),
    denies_where("deny_rename", RENAMES),
    denies("deny_rename_inode", RENAMES),
    denies("deny_inode_create", "new files"),
    denies("deny_inode_unlink", "removing files"),
    denies("deny_inode_rmdir", "removing directories"),
    denies("deny_inode_mkdir", "new directories"),
    denies("deny_inode_mknod", "new sockets, pipes and devices"),
    denies("deny_inode_symlink", "new symbolic links"),
    denies(
        "deny_inode_setattr",
        "changes of size, mode, owner and times",
    ),
    denies("deny_inode_setxattr", ATTRIBUTES),
    denies("deny_inode_removexattr", ATTRIBUTES),
    denies("deny_inode_getxattr", ATTRIBUTES),
    denies("deny_inode_listxattr", ATTRIBUTES),
    denies_where("deny_inode_set_acl", ATTRIBUTES),
    denies_where("deny_inode_remove_acl", ATTRIBUTES),
    denies_where("deny_inode_get_acl", ATTRIBUTES),
    denies_where("deny_inode_file_setattr", ATTRIBUTES),
    denies("deny_watch", "watching with inotify"),
    denies(
        "deny_receive",
        "files that somebody else has opened and passes on",
    ),
    denies("deny_unix_connect", "connections to unix sockets"),
    denies("deny_unix_send", "messages to unix sockets"),
    denies("deny_connect", "connections to the internet"),
    denies("deny_message", "messages to the internet"),
    denies_where("deny_sctp", "connections of SCTP by socket options"),
    denies(
        "deny_user_namespace",
        "new user namespaces (from Linux 6.1)",
    ),
];

/// What no program of an object shows.
fn always(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Trampolines => {
            &["what seccomp refuses is not seen: it is refused before the kernel begins with it"]
        }
        Kind::Tracepoints => &[
            "what io_uring does for a process (opens, connections) is not seen",
            "paths of opens that fail are as the process wrote them, and may have been changed since",
            "who denied an open is known of seccomp alone",
            "addresses of connections that fail, and of messages, are as the process wrote them",
            "the name of an opened file is that of its descriptor after the call: another thread may have put another file there",
            "names that are removed, made, linked, renamed or mounted are as the process wrote them, and may have been changed since",
        ],
    }
}

/// The first program without which nothing works.
pub(crate) fn missing_essential(kind: Kind, attached: &BTreeSet<String>) -> Option<&'static str> {
    of(kind)
        .find(|program| program.need == Need::Essential && !attached.contains(program.name))
        .map(|program| program.name)
}

/// Whether there are programs that deny.
pub(crate) fn may_deny(running: &Running) -> bool {
    PROGRAMS
        .iter()
        .any(|program| program.need.denies() && running.attached.contains(program.name))
}

fn of(kind: Kind) -> impl Iterator<Item = &'static Program> {
    PROGRAMS
        .iter()
        .filter(move |program| program.of.contains(&kind))
}

/// What is to be said of an object of which these programs run and of which this is proved. `runs_lsm`:
/// whether the kernel runs security hooks of eBPF programs, if that is known.
pub(crate) fn about(kind: Kind, running: &Running, proof: &Proof, runs_lsm: Option<bool>) -> About {
    let mut blind: Vec<String> = always(kind).iter().map(|said| (*said).to_owned()).collect();
    let mut say = |said: String| {
        if !blind.contains(&said) {
            blind.push(said);
        }
    };
    let enforces = kind == Kind::Trampolines && proof.denies();
    let idle = |name: &str| !running.attached.contains(name);
    for program in of(kind).filter(|program| idle(program.name)) {
        let has_place = !running.absent.contains(program.name);
        match program.need {
            Need::Shows(without) => say(format!("not seen: {without}")),
            Need::ShowsWhere(without) if has_place => say(format!("not seen: {without}")),
            Need::OneOf(other, without) if idle(other) => say(format!("not seen: {without}")),
            Need::Denies(without) if enforces => say(format!("not denied: {without}")),
            Need::DeniesWhere(without) if enforces && has_place => {
                say(format!("not denied: {without}"));
            }
            _ => {}
        }
    }
    for event in Event::ALL {
        let tried = !matches!(event, Event::Listen | Event::Operation);
        if tried && !proof.seen.contains(&event) {
            say(format!(
                "not seen: {} (the self-test's was not)",
                event.name()
            ));
        }
    }
    if enforces {
        for what in &proof.let_through {
            say(format!("not denied: {what} (the self-test's was not)"));
        }
    } else {
        let why = match (kind, runs_lsm) {
            (Kind::Tracepoints, _) => "tracepoints cannot",
            (_, Some(false)) => "the kernel has no `bpf` in its list lsm=",
            _ => "the self-test was not denied what it should have been",
        };
        say(format!("nothing is denied by the tracer here: {why}"));
    }
    About {
        object: kind.name().to_owned(),
        kernel: release(),
        blind,
        enforces,
        proved: proof.lines(),
        taken_over: false,
        refused: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::objects::hooks;

    #[test]
    fn the_table_names_the_programs_of_the_objects() {
        for kind in Kind::ALL {
            let bytes = kind.bytes(None).expect("the object");
            let have: Vec<String> = hooks(&bytes).expect("an object").into_keys().collect();
            let mut named: Vec<&str> = of(kind).map(|program| program.name).collect();
            named.sort_unstable();
            assert_eq!(named, have, "{}", kind.name());
        }
    }

    #[test]
    fn programs_stand_in_for_each_other_both_ways() {
        for program in PROGRAMS {
            if let Need::OneOf(other, _) = program.need {
                let back = PROGRAMS.iter().any(|candidate| {
                    candidate.name == other
                        && matches!(candidate.need, Need::OneOf(name, _) if name == program.name)
                });
                assert!(back, "{other} does not name {}", program.name);
            }
        }
    }

    #[test]
    fn what_denies_is_a_security_hook() {
        let bytes = Kind::Trampolines.bytes(None).expect("the object");
        let hooks = hooks(&bytes).expect("an object");
        for program in of(Kind::Trampolines) {
            let is_hook = hooks[program.name].kind.starts_with("lsm");
            assert_eq!(program.need.denies(), is_hook, "{}", program.name);
        }
    }

    fn everything(kind: Kind) -> Running {
        Running {
            attached: of(kind).map(|program| program.name.to_owned()).collect(),
            absent: BTreeSet::new(),
        }
    }

    fn proof() -> Proof {
        let mut proof = Proof::default();
        proof.seen.extend(Event::ALL);
        proof
            .denied
            .extend(["open", "link", "rename", "connect", "internet"]);
        proof
    }

    #[test]
    fn a_program_that_does_not_run_is_spoken_of() {
        let mut running = everything(Kind::Tracepoints);
        let before = about(Kind::Tracepoints, &running, &proof(), None);
        assert!(!before.enforces);
        running.attached.remove("life_exit");
        let after = about(Kind::Tracepoints, &running, &proof(), None);
        assert_eq!(after.blind.len(), before.blind.len() + 1);
        assert!(after.blind.iter().any(|said| said.contains("ended")));
    }

    #[test]
    fn what_tracepoints_cannot_know_is_said() {
        let running = everything(Kind::Tracepoints);
        let blind = about(Kind::Tracepoints, &running, &proof(), None).blind;
        for word in ["addresses", "descriptor after", "removed"] {
            assert!(blind.iter().any(|said| said.contains(word)), "{word}");
        }
    }

    #[test]
    fn a_program_without_a_place_is_missed_only_if_it_was_to_have_one() {
        let blind = |running: &Running| {
            let about = about(Kind::Trampolines, running, &proof(), Some(true));
            about.blind
        };
        let mut running = everything(Kind::Trampolines);
        let before = blind(&running);
        for name in ["narrow_bpf", "deny_inode_set_acl", "open_failed_file"] {
            running.attached.remove(name);
            running.absent.insert(name.to_owned());
        }
        assert_eq!(blind(&running), before);
        running.absent.clear();
        // 32-bit programs have calls of their own on x86-64 alone.
        let missed = if cfg!(target_arch = "x86_64") { 2 } else { 1 };
        assert_eq!(blind(&running).len(), before.len() + missed);
        running.attached.remove("open_failed_filp");
        assert_eq!(blind(&running).len(), before.len() + missed + 1);
    }

    #[test]
    fn only_what_was_denied_in_the_test_is_promised() {
        let running = everything(Kind::Trampolines);
        let about = |proof: &Proof| about(Kind::Trampolines, &running, proof, Some(true));
        assert!(about(&proof()).enforces);
        let mut less = proof();
        less.denied.remove("rename");
        less.let_through.insert("rename");
        let less = about(&less);
        assert!(!less.enforces);
        assert!(
            less.blind
                .iter()
                .any(|said| said.starts_with("nothing is denied"))
        );
        let mut more = proof();
        more.let_through.insert("mkdir");
        assert!(about(&more).blind.iter().any(|said| said.contains("mkdir")));
    }

    #[test]
    fn an_essential_program_is_missed() {
        let mut attached = everything(Kind::Tracepoints).attached;
        assert_eq!(missing_essential(Kind::Tracepoints, &attached), None);
        attached.remove("life_exec");
        assert_eq!(
            missing_essential(Kind::Tracepoints, &attached),
            Some("life_exec")
        );
    }
}
