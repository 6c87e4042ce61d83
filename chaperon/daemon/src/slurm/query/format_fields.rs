//! The columns of `squeue`, Slurm 20.11 to 26.05: letters of `--format` and names of `--Format`
//! (`squeue(1)`, `src/squeue/opts.c`), and what each may show of jobs outside the scope. What is not
//! plainly a state, a size, a time or a place is a name.

use super::shown::JobPath;

/// What may be shown of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// States, sizes, times, places: of every job.
    All,
    /// Names: of jobs in the scope.
    Ours,
    /// What the capsule took the place of: from the job's record.
    Recorded(JobPath),
}

/// A column that can be asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Its letter in `--format`.
    pub letter: Option<char>,
    /// Its name in `--Format`, in lower case.
    pub name: &'static str,
    /// Other names for the same.
    aliases: &'static [&'static str],
    /// What may be shown of it.
    pub show: Show,
}

impl Field {
    /// Whether it has this name, in any case.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
            || self
                .aliases
                .iter()
                .any(|alias| alias.eq_ignore_ascii_case(name))
    }
}

const fn field(
    letter: Option<char>,
    name: &'static str,
    aliases: &'static [&'static str],
    show: Show,
) -> Field {
    Field {
        letter,
        name,
        aliases,
        show,
    }
}

/// Columns of jobs.
pub(super) static FIELDS: [Field; 120] = [
    field(Some('A'), "jobid", &[], Show::All),
    field(Some('i'), "jobarrayid", &[], Show::All),
    field(Some('F'), "arrayjobid", &[], Show::All),
    field(Some('K'), "arraytaskid", &[], Show::All),
    field(Some('a'), "account", &[], Show::Ours),
    field(Some('b'), "tres-per-node", &["gres"], Show::All),
    field(Some('B'), "batchhost", &[], Show::All),
    field(Some('c'), "mincpus", &[], Show::All),
    field(Some('C'), "numcpus", &[], Show::All),
    field(Some('d'), "mintmpdisk", &[], Show::All),
    field(Some('D'), "numnodes", &[], Show::All),
    field(Some('e'), "endtime", &[], Show::All),
    field(Some('E'), "dependency", &[], Show::Ours),
    field(Some('f'), "feature", &[], Show::Ours),
    field(Some('g'), "groupname", &[], Show::Ours),
    field(Some('G'), "groupid", &[], Show::Ours),
    field(Some('h'), "oversubscribe", &["shared"], Show::All),
    field(Some('H'), "sockets", &[], Show::All),
    field(Some('I'), "cores", &[], Show::All),
    field(Some('j'), "name", &[], Show::Ours),
    field(Some('J'), "threads", &[], Show::All),
    field(Some('k'), "comment", &[], Show::Ours),
    field(Some('l'), "timelimit", &[], Show::All),
    field(Some('L'), "timeleft", &[], Show::All),
    field(Some('m'), "minmemory", &[], Show::All),
    field(Some('M'), "timeused", &[], Show::All),
    field(Some('n'), "reqnodes", &[], Show::Ours),
    field(Some('N'), "nodelist", &[], Show::All),
    field(Some('o'), "command", &[], Show::Recorded(JobPath::Command)),
    field(Some('O'), "contiguous", &[], Show::All),
    field(Some('p'), "priority", &[], Show::All),
    field(Some('P'), "partition", &[], Show::All),
    field(Some('q'), "qos", &[], Show::Ours),
    field(Some('Q'), "prioritylong", &[], Show::All),
    field(Some('r'), "reason", &[], Show::All),
    field(Some('R'), "reasonlist", &[], Show::All),
    field(Some('s'), "selectjobinfo", &[], Show::Ours),
    field(Some('S'), "starttime", &[], Show::All),
    field(Some('t'), "statecompact", &[], Show::All),
    field(Some('T'), "state", &[], Show::All),
    field(Some('U'), "userid", &[], Show::Ours),
    field(Some('u'), "username", &[], Show::Ours),
    field(Some('v'), "reservation", &[], Show::Ours),
    field(Some('V'), "submittime", &[], Show::All),
    field(Some('w'), "wckey", &[], Show::Ours),
    field(Some('W'), "licenses", &[], Show::Ours),
    field(Some('x'), "excnodes", &[], Show::Ours),
    field(Some('X'), "corespec", &[], Show::All),
    field(Some('y'), "nice", &[], Show::All),
    field(Some('Y'), "schednodes", &[], Show::All),
    field(Some('z'), "sct", &[], Show::All),
    field(
        Some('Z'),
        "workdir",
        &[],
        Show::Recorded(JobPath::Directory),
    ),
    field(None, "accruetime", &[], Show::All),
    field(None, "boardspernode", &[], Show::All),
    field(None, "cpus-per-tres", &[], Show::All),
    field(None, "cronjob", &[], Show::All),
    field(None, "deadline", &[], Show::All),
    field(None, "delayboot", &[], Show::All),
    field(None, "derivedec", &[], Show::All),
    field(None, "eligibletime", &[], Show::All),
    field(None, "exclusive", &[], Show::All),
    field(None, "exit_code", &[], Show::All),
    field(None, "hetjobid", &["packjobid"], Show::All),
    field(None, "hetjoboffset", &["packjoboffset"], Show::All),
    field(None, "hetjobidset", &["packjobidset"], Show::All),
    field(None, "lastschedeval", &[], Show::All),
    field(None, "licensesalloc", &[], Show::Ours),
    field(None, "maxcpus", &[], Show::All),
    field(None, "maxnodes", &[], Show::All),
    field(None, "mem-per-tres", &[], Show::All),
    field(None, "mintime", &[], Show::All),
    field(None, "ntpercore", &[], Show::All),
    field(None, "ntpernode", &[], Show::All),
    field(None, "ntpersocket", &[], Show::All),
    field(None, "ntperboard", &[], Show::All),
    field(None, "numtasks", &[], Show::All),
    field(None, "pendingtime", &[], Show::All),
    field(None, "preempttime", &[], Show::All),
    field(None, "profile", &[], Show::All),
    field(None, "reboot", &[], Show::All),
    field(None, "reqswitch", &[], Show::All),
    field(None, "requeue", &[], Show::All),
    field(None, "resizetime", &[], Show::All),
    field(None, "restartcnt", &[], Show::All),
    field(None, "runtime", &[], Show::All),
    field(None, "segmentsize", &[], Show::All),
    field(None, "sperboard", &[], Show::All),
    field(None, "tres-alloc", &["tres"], Show::All),
    field(None, "tres-bind", &[], Show::All),
    field(None, "tres-freq", &[], Show::All),
    field(None, "tres-per-job", &[], Show::All),
    field(None, "tres-per-socket", &[], Show::All),
    field(None, "tres-per-task", &[], Show::All),
    field(None, "wait4switch", &[], Show::All),
    field(None, "batchflag", &[], Show::All),
    field(None, "cpus-per-task", &["cpuspertask"], Show::All),
    field(None, "admin_comment", &[], Show::Ours),
    field(None, "allocnodes", &[], Show::Ours),
    field(None, "allocsid", &[], Show::Ours),
    field(None, "associd", &[], Show::Ours),
    field(None, "burstbuffer", &[], Show::Ours),
    field(None, "burstbufferstate", &[], Show::Ours),
    field(None, "cluster", &[], Show::Ours),
    field(None, "clusterfeature", &[], Show::Ours),
    field(None, "container", &[], Show::Ours),
    field(None, "containerid", &[], Show::Ours),
    field(None, "mcslabel", &[], Show::Ours),
    field(None, "network", &[], Show::Ours),
    field(None, "origin", &[], Show::Ours),
    field(None, "originraw", &[], Show::Ours),
    field(None, "prefer", &[], Show::Ours),
    field(None, "siblingsactive", &[], Show::Ours),
    field(None, "siblingsactiveraw", &[], Show::Ours),
    field(None, "siblingsviable", &[], Show::Ours),
    field(None, "siblingsviableraw", &[], Show::Ours),
    field(None, "sluid", &[], Show::Ours),
    field(None, "system_comment", &[], Show::Ours),
    field(None, "stdin", &[], Show::Recorded(JobPath::Input)),
    field(None, "stdout", &[], Show::Recorded(JobPath::Output)),
    field(None, "stderr", &[], Show::Recorded(JobPath::Error)),
];

/// Columns of steps.
pub(super) static STEP_FIELDS: [Field; 31] = [
    field(Some('i'), "stepid", &[], Show::All),
    field(Some('A'), "numtasks", &[], Show::All),
    field(Some('b'), "tres-per-node", &["gres"], Show::All),
    field(Some('j'), "stepname", &[], Show::Ours),
    field(Some('l'), "timelimit", &[], Show::All),
    field(Some('M'), "timeused", &[], Show::All),
    field(Some('N'), "nodes", &[], Show::All),
    field(Some('P'), "partition", &[], Show::All),
    field(Some('S'), "starttime", &[], Show::All),
    field(Some('U'), "userid", &[], Show::Ours),
    field(Some('u'), "username", &[], Show::Ours),
    field(None, "arrayjobid", &[], Show::All),
    field(None, "arraytaskid", &[], Show::All),
    field(None, "cpufreq", &[], Show::All),
    field(None, "cpus-per-tres", &[], Show::All),
    field(None, "jobid", &[], Show::All),
    field(None, "mem-per-tres", &[], Show::All),
    field(None, "numcpus", &[], Show::All),
    field(None, "runtime", &[], Show::All),
    field(None, "stepstate", &[], Show::All),
    field(None, "tres-bind", &[], Show::All),
    field(None, "tres-freq", &[], Show::All),
    field(None, "tres-per-job", &[], Show::All),
    field(None, "tres-per-socket", &[], Show::All),
    field(None, "tres-per-step", &[], Show::All),
    field(None, "tres-per-task", &[], Show::All),
    field(None, "cluster", &[], Show::Ours),
    field(None, "container", &[], Show::Ours),
    field(None, "containerid", &[], Show::Ours),
    field(None, "network", &[], Show::Ours),
    field(None, "resvports", &[], Show::Ours),
];
