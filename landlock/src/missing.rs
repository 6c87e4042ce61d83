//! What a jail of Landlock's lacks of one of bubblewrap's: the one table behind what a launch says,
//! what it refuses, and `docs/reference/backends.md`.

use super::required::{Feature, Required};
use super::translate::Translated;
use agent_sandbox_base::config::source::Layer;
use agent_sandbox_base::host::HostFacts;
use agent_sandbox_base::missing::{Kind, MissingFeature};
use agent_sandbox_base::plan::model::PlanError;
use agent_sandbox_base::policy::{NetworkMode, Policy, Requirement, Users};

/// A feature that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name, in words joined by hyphens.
    pub id: &'static str,
    /// What it means. Whether somebody requires a [`Kind::Required`] says [`Feature::required`]; the key of the same name
    /// in `[landlock]` says more.
    pub kind: Kind,
    /// What a jail of bubblewrap's has.
    pub bubblewrap: &'static str,
    /// What is so instead, exactly.
    pub sentence: &'static str,
    /// The launches that it is about.
    pub holds: Holds,
}

impl Row {
    /// What a launch is told of it.
    #[must_use]
    pub fn feature(&self) -> MissingFeature {
        MissingFeature {
            id: self.id,
            kind: self.kind,
            sentence: self.sentence,
        }
    }
}

/// Which launches a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holds {
    /// All.
    Always,
    /// Those on a kernel whose Landlock ABI is smaller.
    BelowAbi(i32),
    /// Those with `network.mode = "isolated"`.
    Isolated,
    /// Those with `network.mode = "filtered"`.
    FilteredNetwork,
    /// Those with `jail.users = "filtered"`.
    FilteredUsers,
    /// Those with a limit on processes.
    LimitedProcesses,
    /// Those on a host that has Slurm.
    SlurmHere,
    /// Those in which Slurm's commands work.
    SlurmWorks,
    /// Those in which a directory that is given has something hidden in it.
    HiddenInside,
}

/// What there is to know of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The kernel's Landlock ABI.
    pub abi: i32,
    /// Whether the host has Slurm.
    pub slurm_here: bool,
    /// Whether its commands work inside.
    pub slurm_works: bool,
    /// Whether a directory that is given has something hidden in it.
    pub hidden_inside: bool,
}

impl Holds {
    fn in_launch(self, now: &Circumstances<'_>) -> bool {
        match self {
            Self::Always => true,
            Self::BelowAbi(abi) => now.abi < abi,
            Self::Isolated => now.policy.network.mode.value == NetworkMode::Isolated,
            Self::FilteredNetwork => now.policy.network.mode.value == NetworkMode::Filtered,
            Self::FilteredUsers => now.policy.jail.users.value == Users::Filtered,
            Self::LimitedProcesses => now.policy.jail.max_processes.value > 0,
            Self::SlurmHere => now.slurm_here,
            Self::SlurmWorks => now.slurm_works,
            Self::HiddenInside => now.hidden_inside,
        }
    }
}

const fn row(
    id: &'static str,
    kind: Kind,
    holds: Holds,
    bubblewrap: &'static str,
    sentence: &'static str,
) -> Row {
    Row {
        id,
        kind,
        bubblewrap,
        sentence,
        holds,
    }
}

/// The ids of the demands, and their keys in `[landlock]`.
const USERS: &str = "users";
const SIZES: &str = "sizes";

/// The table, in the order of the documentation.
pub const MISSING: &[Row] = &[
    row(
        "processes",
        Kind::Open,
        Holds::Always,
        "processes of the jail alone have a number and a place in `/proc`",
        "/proc shows of every process of this host what it shows to everybody (number, name, arguments, user, state, \
         use of time and memory, limits, cgroup, mounts, numbers of open files), and the list of System V objects; not \
         environment, memory, directories or what is open; none outside can be signalled, traced or changed",
    ),
    row(
        "metadata",
        Kind::Open,
        Holds::Always,
        "what is hidden or was never given has no name inside",
        "of every path that your user could search to, one can ask whether it exists, and its owner, mode, size, times, \
         extended attributes and what a link says; what is closed can be neither read, executed, listed, watched nor \
         changed; hiding answers EACCES",
    ),
    row(
        "moved-files",
        Kind::Open,
        Holds::Always,
        "what is moved out of a given directory is out of reach",
        "what somebody moves out of a given directory while the jail runs can still be read at its new place",
    ),
    row(
        "cgroup",
        Kind::Open,
        Holds::Always,
        "a cgroup namespace: `/proc/self/cgroup` says `/`",
        "/proc/self/cgroup names the cgroups as the host does",
    ),
    row(
        "file-system-calls",
        Kind::Open,
        Holds::Always,
        "a read-only mount stands against most of them",
        "ioctl(2) commands that one file system alone has (Lustre's striping, some of btrfs) work on what is open for \
         reading; those that make or remove files, or change flags, versions, encryption or verity, are refused",
    ),
    row(
        "connections",
        Kind::Open,
        Holds::FilteredNetwork,
        "in a filtered network `/proc/net` shows what the jail has, and nobody else's addresses, routes and connections",
        "in a filtered network /proc/net and netlink(7) show the host's addresses, routes and connections, as they do to everybody on it",
    ),
    row(
        USERS,
        Kind::Required,
        Holds::FilteredUsers,
        "`jail.users = \"filtered\"`: the system's users and you",
        "all users and groups in the host's /etc/passwd and /etc/group are listed",
    ),
    row(
        SIZES,
        Kind::Required,
        Holds::Always,
        "`jail.tmp_size`, `jail.home_size` and `jail.shm_size` limit what is written to private directories",
        "what is written to TMPDIR, the private home and /dev/shm is limited by the host's file systems alone",
    ),
    row(
        "tmp",
        Kind::Stricter,
        Holds::Always,
        "`/tmp`, `/var/tmp` and `/run` are private",
        "/tmp, /var/tmp and /run are closed; TMPDIR and XDG_RUNTIME_DIR name private directories",
    ),
    row(
        "home",
        Kind::Stricter,
        Holds::Always,
        "the private home stands at the path of the home",
        "HOME names a private directory at another path, with links to what is given; the rest of the real home is closed, \
         also to programs that ask the user database for it; a program that saves by renaming a new file over such a \
         link replaces the link, and what it saved goes with the session",
    ),
    row(
        "shared-memory",
        Kind::Stricter,
        Holds::Always,
        "a private `/dev/shm`",
        "/dev/shm is the host's; of what is there the jail opens, changes and removes only files that it made itself, and opens \
         them for writing alone or for both",
    ),
    row(
        "system-v",
        Kind::Stricter,
        Holds::Always,
        "System V objects and POSIX message queues of its own",
        "System V shared memory, semaphores and message queues, and POSIX message queues, are refused (ENOSYS)",
    ),
    row(
        "unix-datagrams",
        Kind::Stricter,
        Holds::Always,
        "local datagram sockets, which reach those of the jail",
        "local datagram sockets and pairs of them are refused (EPROTONOSUPPORT)",
    ),
    row(
        "abstract-sockets",
        Kind::Stricter,
        Holds::BelowAbi(6),
        "abstract local sockets of the jail can be connected to",
        "no abstract local socket can be connected to, not even one made inside (Linux 6.12 has what is needed)",
    ),
    row(
        "signal-driven",
        Kind::Stricter,
        Holds::Always,
        "a descriptor can be told to send signals when it becomes ready (`O_ASYNC`, `F_SETOWN`)",
        "no descriptor can be told to send signals when it becomes ready, not even to its own process",
    ),
    row(
        "network",
        Kind::Stricter,
        Holds::Isolated,
        "`network.mode = \"isolated\"`: a loopback of its own",
        "there are no sockets of networks at all, not even for the loopback",
    ),
    row(
        "servers",
        Kind::Stricter,
        Holds::FilteredNetwork,
        "in a filtered network programs listen, and reach each other at the jail's own loopback",
        "in a filtered network nothing can listen at an address or an abstract name (EACCES): at the host's loopback every user would \
         reach it; localhost is the host's, to which network.private alone leads",
    ),
    row(
        "datagrams",
        Kind::Stricter,
        Holds::FilteredNetwork,
        "in a filtered network the filter's resolver is asked as any other",
        "in a filtered network there is TCP alone: RES_OPTIONS has glibc ask for names by it; a program that asks by datagrams, as \
         those made with musl or with Go without cgo do, finds none",
    ),
    row(
        "host-names",
        Kind::Stricter,
        Holds::FilteredNetwork,
        "in a filtered network /etc/hosts has the loopback alone",
        "in a filtered network the host's /etc/hosts counts: an address that stands there is taken for the first of its names that is \
         allowed",
    ),
    row(
        "addresses",
        Kind::Stricter,
        Holds::FilteredNetwork,
        "in a filtered network a connection is at the address that was asked for",
        "in a filtered network getpeername(2) names a port of the loopback, by which all connections leave",
    ),
    row(
        "certificates",
        Kind::Stricter,
        Holds::FilteredNetwork,
        "where credentials are exchanged, the system's file of certificates has that of the filter",
        "where credentials are exchanged, the file of certificates that variables name has that of the filter, and the system's own has not",
    ),
    row(
        "peers",
        Kind::Stricter,
        Holds::Always,
        "the server of a local socket is told who connected",
        "the server of a local socket is told the mediator's process number, and the right user, for who connected",
    ),
    row(
        "undumpable",
        Kind::Stricter,
        Holds::Always,
        "programs that make themselves undumpable work",
        "calls that the mediator carries out, such as connect(2) and chmod(2), fail in a program that makes itself \
         undumpable, as ssh-agent does",
    ),
    row(
        "terminals",
        Kind::Stricter,
        Holds::Always,
        "a private `/dev/pts`",
        "/dev/pts is closed: a new terminal is had from /dev/ptmx by TIOCGPTPEER, as openpty(3) does, and not by its path",
    ),
    row(
        "nested",
        Kind::Stricter,
        Holds::Always,
        "`jail.nested = true` permits namespaces; a program may have a Landlock domain or a seccomp listener of its own",
        "namespaces are refused whatever jail.nested says, and so are a program's own Landlock domain (ENOSYS) and seccomp listener (EBUSY)",
    ),
    row(
        "file-attributes",
        Kind::Stricter,
        Holds::Always,
        "flags of files in writable directories can be changed (`chattr`), leases be taken",
        "flags, versions, encryption and verity of files cannot be changed, and no leases be taken",
    ),
    row(
        "proc-writing",
        Kind::Stricter,
        Holds::Always,
        "a process may write to its own files in `/proc`",
        "nothing in /proc can be written: oom_score_adj, coredump_filter and the names of other threads stay",
    ),
    row(
        "process-limit",
        Kind::Stricter,
        Holds::LimitedProcesses,
        "`jail.max_processes` counts the jail's processes (Linux 5.14)",
        "jail.max_processes counts all processes of your user on this host",
    ),
    row(
        "later-files",
        Kind::Stricter,
        Holds::HiddenInside,
        "what comes into being beside something hidden is like its directory",
        "what comes into being beside something hidden stays closed in a directory that is readable; in one that is \
         writable it can be opened but not executed",
    ),
    row(
        "slurm-commands",
        Kind::Stricter,
        Holds::SlurmHere,
        "a stand-in covers each of Slurm's commands at its place",
        "Slurm's own commands stay in sight at their paths, where they can authenticate to nobody; who executes one of them is led \
         to the stand-in, but for processes that are traced or undumpable, and execveat(2)",
    ),
    row(
        "tasks",
        Kind::Stricter,
        Holds::SlurmWorks,
        "the tasks of a step on one node share a jail",
        "in jobs on such nodes, tasks that srun starts have a jail each, and neither share memory nor signal each other; \
         processes that mpirun starts on one node are in one jail",
    ),
];

/// What this launch lacks.
///
/// # Errors
/// Somebody requires a feature that is missing: each key that does, with its place.
pub fn judge(
    policy: &Policy,
    host: &HostFacts,
    translated: &Translated,
) -> Result<Vec<MissingFeature>, PlanError> {
    held(&Circumstances {
        policy,
        abi: translated.abi,
        slurm_here: host.slurm.is_some(),
        slurm_works: translated.plan.wants_chaperon(),
        hidden_inside: translated.handed_over.listings,
    })
}

/// As [`judge`], by the circumstances alone.
///
/// # Errors
/// As [`judge`].
pub fn held(now: &Circumstances<'_>) -> Result<Vec<MissingFeature>, PlanError> {
    let held = || MISSING.iter().filter(|row| row.holds.in_launch(now));
    let refused: Vec<Refused<'_>> = held().filter_map(|row| refused(row, now.policy)).collect();
    match refused.as_slice() {
        [] => Ok(held().map(Row::feature).collect()),
        refused => Err(refusal(now.policy, refused)),
    }
}

/// A feature that is missing and required.
struct Refused<'a> {
    feature: Feature,
    by: Vec<Required<'a>>,
}

fn refused<'a>(row: &Row, policy: &'a Policy) -> Option<Refused<'a>> {
    let feature = match row.id {
        USERS => Feature::Users,
        SIZES => Feature::Sizes,
        _ => return None,
    };
    let by = feature.required(policy);
    (!by.is_empty()).then_some(Refused { feature, by })
}

fn refusal(policy: &Policy, refused: &[Refused<'_>]) -> PlanError {
    let by = refused.iter().flat_map(|one| &one.by);
    let by: Vec<String> = by
        .map(|one| format!("{} ({})", one.key, one.source))
        .collect();
    let message = format!(
        "a jail that Landlock makes cannot give what the policy demands: {}",
        by.join(", ")
    );
    // The site's own key, or its word that the built-in value is required as well.
    let by_site = refused.iter().find_map(|one| {
        let enforced = one.by.iter().find(|required| !required.waivable);
        let answer = one.feature.answer(policy);
        let refuses =
            answer.source.layer == Layer::SiteEnforced && answer.value != Requirement::Degraded;
        match enforced {
            Some(required) => Some((required.key.to_owned(), required.source)),
            None => refuses.then(|| (format!("landlock.{}", one.feature.name()), &answer.source)),
        }
    });
    let hint = match by_site {
        Some((key, source)) => format!(
            "the site does not let it do without: {key} ({source}); use --backend bwrap where bubblewrap works"
        ),
        None => {
            let written: Vec<String> = refused
                .iter()
                .map(|one| format!("`{} = \"degraded\"`", one.feature.name()))
                .collect();
            let set: Vec<String> = refused
                .iter()
                .map(|one| format!("--set landlock.{}=degraded", one.feature.name()))
                .collect();
            format!(
                "if it may do without, say so: below `[landlock]` in ~/.config/agent-sandbox/config.toml {}, or {}",
                written.join(" and "),
                set.join(" ")
            )
        }
    };
    PlanError::new(message).hint(hint)
}

#[cfg(test)]
mod tests;
