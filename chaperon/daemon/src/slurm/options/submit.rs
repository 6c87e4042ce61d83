//! The options of sbatch, salloc and srun: one row for all three where they agree.

use agent_sandbox_wire::command::Command;

use super::option::{Kind, Opt, Table};
use super::row::{NO, flag, no, ours, pass};
use super::shared::{A, ALL, AR, B, BA, BR, R, of};

/// The variables of a row whose names differ in the command alone: `SBATCH_X`, `SALLOC_X`,
/// `SLURM_X`.
macro_rules! named {
    ($who:expr, $name:literal, $option:expr) => {
        of($who, $option).reads(&[
            (B, concat!("SBATCH_", $name)),
            (A, concat!("SALLOC_", $name)),
            (R, concat!("SLURM_", $name)),
        ])
    };
}

const OTHER_CLUSTER: &str =
    "jobs stay on this cluster; leave it out, or log in to the other one and work there";
const OTHER_USER: &str = "jobs run as the user who started the session; leave it out";
const CONTAINER: &str =
    "it would start an OCI container outside the jail; start the container in the job's script";
const STAGING: &str =
    "burst buffers are filled outside the jail; copy the files at the start of the job's script";
const SPREADS_FILES: &str = "it would read and write files on the nodes outside the jail; copy \
                             them in the job: srun --ntasks-per-node=1 cp FILE /tmp";
const PROGRAM: &str =
    "it would run a program outside the jail; start it from the job's script or the task";
const HET: &str = "heterogeneous jobs are not supported; submit separate jobs and tie them with \
                   --dependency";
const LAUNCHER: &str = "it is for launchers and debuggers of Slurm's own; leave it out";
const HOSTFILE: &str =
    "Slurm would read that file outside the jail; name the nodes with --nodelist";
const SELINUX: &str = "it would choose a security context other than the session's; leave it out";
const LOGIN_SHELL: &str = "it would run your login shell outside the jail; the job has this \
                           shell's environment, set in it what you need";

const STREAM: &str = "the file is opened in the jail, with Slurm's % patterns";
const ENVIRONMENT: &str = "the job's environment is the shell's, chosen by this list as Slurm does";
const DIRECTORY: &str = "the directory is entered in the jail";

const OPEN_MODES: Kind = Kind::OneOf(&["append", "truncate", "a", "t"]);

static ROWS: &[Opt] = &[
    of(R, pass("accel-bind", NO, Kind::Name)),
    named!(ALL, "ACCOUNT", pass("account", 'A', Kind::Word)),
    named!(ALL, "ACCTG_FREQ", pass("acctg-freq", NO, Kind::Word)),
    of(B, pass("array", 'a', Kind::Name)).reads(&[(B, "SBATCH_ARRAY_INX")]),
    of(
        R,
        no(
            "async",
            NO,
            Kind::Flag,
            "it would leave the step without its srun; put & behind the command",
        )
        .since(26, 5),
    ),
    of(ALL, pass("autocomplete", NO, Kind::Name).since(23, 2)),
    of(B, pass("batch", NO, Kind::Word)).reads(&[(B, "SBATCH_BATCH")]),
    named!(ALL, "BURST_BUFFER", no("bb", NO, Kind::Raw, STAGING)),
    of(ALL, no("bbf", NO, Kind::Path, STAGING)),
    of(R, no("bcast", NO, Kind::Path, SPREADS_FILES).optional()).reads(&[(R, "SLURM_BCAST")]),
    of(
        R,
        no("bcast-exclude", NO, Kind::Raw, SPREADS_FILES).since(21, 8),
    )
    .reads(&[(R, "SLURM_BCAST_EXCLUDE")]),
    of(ALL, pass("begin", 'b', Kind::Text)),
    of(A, flag("bell", NO)).reads(&[(A, "SALLOC_BELL")]),
    of(ALL, ours("chdir", 'D', Kind::Path, DIRECTORY))
        .reads(&[(R, "SLURM_REMOTE_CWD"), (R, "SLURM_WORKING_DIR")]),
    named!(
        ALL,
        "CLUSTER_CONSTRAINT",
        no("cluster-constraint", NO, Kind::Word, OTHER_CLUSTER)
    ),
    // SLURM_CLUSTERS is dropped: sites set it for everybody.
    of(
        ALL,
        no("clusters", 'M', Kind::Word, OTHER_CLUSTER).alias(&["cluster"]),
    )
    .reads(&[(B, "SBATCH_CLUSTERS"), (A, "SALLOC_CLUSTERS")]),
    of(ALL, pass("comment", NO, Kind::Text)),
    of(R, no("compress", NO, Kind::Word, SPREADS_FILES).optional()).reads(&[(R, "SLURM_COMPRESS")]),
    named!(
        ALL,
        "CONSOLIDATE_SEGMENTS",
        flag("consolidate-segments", NO).since(25, 11)
    ),
    named!(ALL, "CONSTRAINT", pass("constraint", 'C', Kind::Name)),
    of(ALL, no("container", NO, Kind::Path, CONTAINER).since(21, 8)).reads(&[
        (B, "SBATCH_CONTAINER"),
        (A, "SALLOC_CONTAINER"),
        (R, "SRUN_CONTAINER"),
    ]),
    of(
        ALL,
        no("container-id", NO, Kind::Word, CONTAINER).since(23, 2),
    )
    .reads(&[
        (B, "SBATCH_CONTAINER_ID"),
        (A, "SALLOC_CONTAINER_ID"),
        (R, "SRUN_CONTAINER_ID"),
    ]),
    of(
        ALL,
        no("container-type", NO, Kind::Word, CONTAINER).since(26, 5),
    )
    .reads(&[
        (B, "SBATCH_CONTAINER_TYPE"),
        (A, "SALLOC_CONTAINER_TYPE"),
        (R, "SRUN_CONTAINER_TYPE"),
    ]),
    of(ALL, no("context", NO, Kind::Word, SELINUX).since(21, 8)),
    of(ALL, flag("contiguous", NO)),
    named!(ALL, "CORE_SPEC", pass("core-spec", 'S', Kind::Number)),
    of(ALL, pass("cores-per-socket", NO, Kind::Number)).reads(&[(R, "SLURM_NCORES_PER_SOCKET")]),
    of(R, pass("cpu-bind", NO, Kind::Name).alias(&["cpu_bind"])).reads(&[(R, "SLURM_CPU_BIND")]),
    named!(ALL, "CPU_FREQ_REQ", pass("cpu-freq", NO, Kind::Name)),
    named!(ALL, "CPUS_PER_GPU", pass("cpus-per-gpu", NO, Kind::Number)),
    // Whether srun reads SLURM_CPUS_PER_TASK differs from version to version: it is among `kept`.
    of(ALL, pass("cpus-per-task", 'c', Kind::Number)).reads(&[(R, "SRUN_CPUS_PER_TASK")]),
    of(ALL, pass("deadline", NO, Kind::Text)),
    of(R, no("debugger-test", NO, Kind::Flag, LAUNCHER)),
    named!(ALL, "DELAY_BOOT", pass("delay-boot", NO, Kind::Time)),
    of(ALL, pass("dependency", 'd', Kind::Dependency)).reads(&[(R, "SLURM_DEPENDENCY")]),
    of(R, flag("disable-status", 'X')).reads(&[(R, "SLURM_DISABLE_STATUS")]),
    of(ALL, pass("distribution", 'm', Kind::Name))
        .reads(&[(B, "SBATCH_DISTRIBUTION"), (R, "SLURM_DISTRIBUTION")]),
    of(R, no("epilog", NO, Kind::Path, PROGRAM)).reads(&[(R, "SLURM_EPILOG")]),
    of(BR, ours("error", 'e', Kind::Path, STREAM)).reads(&[
        (B, "SBATCH_ERROR"),
        (R, "SLURM_STDERRMODE"),
        (R, "SRUN_ERROR"),
    ]),
    of(R, flag("exact", NO)).reads(&[(R, "SLURM_EXACT")]),
    of(ALL, pass("exclude", 'x', Kind::Nodes)),
    named!(
        ALL,
        "EXCLUSIVE",
        pass("exclusive", NO, Kind::Name).optional()
    ),
    of(BR, ours("export", NO, Kind::Raw, ENVIRONMENT)).reads(&[
        (B, "SBATCH_EXPORT"),
        (R, "SLURM_EXPORT_ENV"),
        (R, "SRUN_EXPORT_ENV"),
    ]),
    of(
        B,
        no(
            "export-file",
            NO,
            Kind::Path,
            "sbatch would read that file outside the jail; use --export=NAME=VALUE",
        ),
    ),
    of(
        B,
        no(
            "external",
            NO,
            Kind::Flag,
            "it makes a job without a script, for what runs outside Slurm; submit a script",
        )
        .since(25, 5),
    ),
    of(
        R,
        pass("external-launcher", NO, Kind::Name)
            .since(23, 11)
            .optional(),
    )
    .reads(&[(R, "SLURM_EXTERNAL_LAUNCHER")]),
    of(ALL, pass("extra", NO, Kind::Text).since(23, 2)),
    of(ALL, pass("extra-node-info", 'B', Kind::Name)),
    of(
        BA,
        no("get-user-env", NO, Kind::Name, LOGIN_SHELL).optional(),
    )
    .reads(&[(B, "SBATCH_GET_USER_ENV")]),
    of(ALL, no("gid", NO, Kind::Name, OTHER_USER)),
    named!(ALL, "GPU_BIND", pass("gpu-bind", NO, Kind::Name)),
    named!(ALL, "GPU_FREQ", pass("gpu-freq", NO, Kind::Name)),
    named!(ALL, "GPUS", pass("gpus", 'G', Kind::Name)),
    named!(ALL, "GPUS_PER_NODE", pass("gpus-per-node", NO, Kind::Name)),
    named!(
        ALL,
        "GPUS_PER_SOCKET",
        pass("gpus-per-socket", NO, Kind::Name)
    ),
    named!(ALL, "GPUS_PER_TASK", pass("gpus-per-task", NO, Kind::Name)),
    named!(ALL, "GRES", pass("gres", NO, Kind::Word)),
    named!(ALL, "GRES_FLAGS", pass("gres-flags", NO, Kind::Name)),
    of(ALL, flag("help", 'h')),
    of(
        R,
        no("het-group", NO, Kind::Name, HET).alias(&["pack-group"]),
    ),
    // In sbatch and salloc the two are read in this order.
    of(ALL, pass("hint", NO, Kind::Name)).reads(&[
        (B, "SLURM_HINT"),
        (B, "SBATCH_HINT"),
        (A, "SALLOC_HINT"),
        (A, "SLURM_HINT"),
        (R, "SLURM_HINT"),
    ]),
    of(ALL, flag("hold", 'H')),
    of(
        B,
        ours(
            "ignore-pbs",
            NO,
            Kind::Flag,
            "#PBS and #BSUB lines are left alone; without it they are translated as Slurm does",
        ),
    )
    .reads(&[(B, "SBATCH_IGNORE_PBS")]),
    of(R, pass("ignore-signals", NO, Kind::Name).since(26, 5)),
    of(AR, pass("immediate", 'I', Kind::Number).optional()).reads(&[(A, "SALLOC_IMMEDIATE")]),
    of(BR, ours("input", 'i', Kind::Path, STREAM)).reads(&[
        (B, "SBATCH_INPUT"),
        (R, "SLURM_STDINMODE"),
        (R, "SRUN_INPUT"),
    ]),
    of(R, no("interactive", NO, Kind::Flag, LAUNCHER)),
    of(ALL, pass("job-name", 'J', Kind::Text))
        .reads(&[(B, "SBATCH_JOB_NAME"), (R, "SLURM_JOB_NAME")]),
    of(
        R,
        ours(
            "jobid",
            NO,
            Kind::Jobs,
            "the job must be one of the session's",
        ),
    )
    .reads(&[(R, "SLURM_JOBID"), (R, "SLURM_JOB_ID")]),
    of(A, pass("kill-command", 'K', Kind::Name).optional()).reads(&[(A, "SALLOC_KILL_CMD")]),
    of(R, pass("kill-on-bad-exit", 'K', Kind::Number).optional())
        .reads(&[(R, "SLURM_KILL_BAD_EXIT")]),
    of(
        B,
        pass("kill-on-invalid-dep", NO, Kind::OneOf(&["yes", "no"])),
    ),
    of(R, flag("label", 'l')).reads(&[(R, "SLURM_LABELIO")]),
    // Until 20.02.
    of(R, no("launch-cmd", NO, Kind::Flag, LAUNCHER)),
    of(R, no("launcher-opts", NO, Kind::Raw, LAUNCHER)),
    of(ALL, pass("licenses", 'L', Kind::Word)),
    // Each adds to those before (`slurm_opt.c`, `arg_set_mail_type`).
    of(ALL, pass("mail-type", NO, Kind::Name).many()),
    of(ALL, pass("mail-user", NO, Kind::Mail)),
    of(ALL, pass("mcs-label", NO, Kind::Name)),
    named!(ALL, "MEM_PER_NODE", pass("mem", NO, Kind::Name)),
    named!(ALL, "MEM_BIND", pass("mem-bind", NO, Kind::Name)),
    named!(ALL, "MEM_PER_CPU", pass("mem-per-cpu", NO, Kind::Name)),
    named!(ALL, "MEM_PER_GPU", pass("mem-per-gpu", NO, Kind::Name)),
    of(ALL, pass("mem-update", NO, Kind::Name).since(26, 5)),
    of(ALL, pass("mincpus", NO, Kind::Number)),
    of(R, pass("mpi", NO, Kind::Name)).reads(&[(R, "SLURM_MPI_TYPE")]),
    of(R, pass("msg-timeout", NO, Kind::Number)),
    of(
        R,
        ours(
            "multi-prog",
            NO,
            Kind::Flag,
            "the file is read in the jail, and each of its programs starts in one",
        ),
    )
    .reads(&[(R, "SLURM_SRUN_MULTI")]),
    named!(ALL, "NETWORK", pass("network", NO, Kind::Name)),
    of(ALL, pass("nice", NO, Kind::Number).optional()),
    of(
        R,
        no(
            "no-allocate",
            'Z',
            Kind::Flag,
            "it would run tasks past Slurm's queue; leave it out",
        ),
    ),
    of(A, flag("no-bell", NO)).reads(&[(A, "SALLOC_NO_BELL")]),
    named!(
        ALL,
        "NO_KILL",
        pass("no-kill", 'k', Kind::OneOf(&["set", "off", "no"])).optional()
    ),
    of(B, flag("no-requeue", NO)).reads(&[(B, "SBATCH_NO_REQUEUE")]),
    of(
        A,
        ours(
            "no-shell",
            NO,
            Kind::Flag,
            "the allocation is made and no shell started",
        ),
    ),
    of(ALL, no("nodefile", 'F', Kind::Path, HOSTFILE)).reads(&[
        (B, "SLURM_HOSTFILE"),
        (A, "SLURM_HOSTFILE"),
        (R, "SLURM_HOSTFILE"),
    ]),
    of(ALL, pass("nodelist", 'w', Kind::Nodes)),
    of(ALL, pass("nodes", 'N', Kind::Name))
        .reads(&[(R, "SLURM_NNODES"), (R, "SLURM_JOB_NUM_NODES")]),
    of(ALL, pass("ntasks", 'n', Kind::Number)).reads(&[(R, "SLURM_NPROCS"), (R, "SLURM_NTASKS")]),
    of(ALL, pass("ntasks-per-core", NO, Kind::Number)).reads(&[(R, "SLURM_NTASKS_PER_CORE")]),
    of(ALL, pass("ntasks-per-gpu", NO, Kind::Number)).reads(&[(R, "SLURM_NTASKS_PER_GPU")]),
    of(
        ALL,
        pass("ntasks-per-node", NO, Kind::Number).alias(&["tasks-per-node"]),
    )
    .reads(&[(R, "SLURM_NTASKS_PER_NODE")]),
    of(ALL, pass("ntasks-per-socket", NO, Kind::Number)),
    of(ALL, pass("ntasks-per-tres", NO, Kind::Number)).reads(&[(R, "SLURM_NTASKS_PER_TRES")]),
    of(
        ALL,
        pass("oom-kill-step", NO, Kind::Number)
            .since(24, 11)
            .optional(),
    )
    .reads(&[(R, "SLURM_OOM_KILL_STEP")]),
    of(BR, ours("open-mode", NO, OPEN_MODES, STREAM))
        .reads(&[(B, "SBATCH_OPEN_MODE"), (R, "SLURM_OPEN_MODE")]),
    of(BR, ours("output", 'o', Kind::Path, STREAM)).reads(&[
        (B, "SBATCH_OUTPUT"),
        (R, "SLURM_STDOUTMODE"),
        (R, "SRUN_OUTPUT"),
    ]),
    named!(ALL, "OVERCOMMIT", flag("overcommit", 'O')),
    of(R, pass("overlap", NO, Kind::Name).optional()).reads(&[(R, "SLURM_OVERLAP")]),
    of(ALL, flag("oversubscribe", 's')),
    of(
        B,
        ours("parsable", NO, Kind::Flag, "the job's id is printed alone"),
    ),
    of(R, flag("parsable", NO).since(26, 5)),
    named!(ALL, "PARTITION", pass("partition", 'p', Kind::Name)),
    named!(ALL, "POWER", pass("power", NO, Kind::Name).until(24, 5)),
    of(ALL, pass("prefer", NO, Kind::Name).since(22, 5)),
    of(
        R,
        ours(
            "preserve-env",
            'E',
            Kind::Flag,
            "the task keeps the shell's SLURM_NNODES and SLURM_NTASKS",
        ),
    ),
    of(ALL, pass("priority", NO, Kind::Name)),
    named!(ALL, "PROFILE", pass("profile", NO, Kind::Name)),
    of(R, no("prolog", NO, Kind::Path, PROGRAM)).reads(&[(R, "SLURM_PROLOG")]),
    of(BR, pass("propagate", NO, Kind::Name).optional()),
    of(R, pass("pty", NO, Kind::Name).optional()),
    named!(ALL, "QOS", pass("qos", 'q', Kind::Name)),
    of(
        B,
        ours(
            "quiet",
            'Q',
            Kind::Flag,
            "the line with the job's id is left out",
        ),
    ),
    of(AR, flag("quiet", 'Q').many()),
    of(R, flag("quit-on-interrupt", NO)),
    of(
        ALL,
        no(
            "reboot",
            NO,
            Kind::Flag,
            "it would reboot nodes that others use too; leave it out",
        ),
    ),
    of(R, pass("relative", 'r', Kind::Number)),
    of(B, pass("requeue", NO, Kind::Name).optional()).reads(&[(B, "SBATCH_REQUEUE")]),
    named!(ALL, "RESERVATION", pass("reservation", NO, Kind::Name)),
    of(ALL, pass("resources", NO, Kind::Word).since(25, 11)),
    of(ALL, pass("resv-ports", NO, Kind::Number).optional()).reads(&[(R, "SLURM_RESV_PORTS")]),
    of(ALL, pass("segment", NO, Kind::Number).since(24, 5)).reads(&[
        (B, "SBATCH_SEGMENT_SIZE"),
        (A, "SALLOC_SEGMENT_SIZE"),
        (R, "SRUN_SEGMENT_SIZE"),
    ]),
    of(
        R,
        no("send-libs", NO, Kind::Name, SPREADS_FILES)
            .since(21, 8)
            .optional(),
    )
    .reads(&[(R, "SLURM_SEND_LIBS")]),
    named!(ALL, "SIGNAL", pass("signal", NO, Kind::Name)),
    of(R, pass("slurmd-debug", NO, Kind::Name)).reads(&[(R, "SLURMD_DEBUG")]),
    of(ALL, pass("sockets-per-node", NO, Kind::Number)).reads(&[(R, "SLURM_NSOCKETS_PER_NODE")]),
    named!(ALL, "SPREAD_JOB", flag("spread-job", NO)),
    named!(
        ALL,
        "SPREAD_SEGMENTS",
        flag("spread-segments", NO).since(25, 11)
    ),
    of(ALL, flag("stepmgr", NO).since(24, 5)),
    of(ALL, pass("switches", NO, Kind::Name)),
    of(R, no("task-epilog", NO, Kind::Path, PROGRAM)).reads(&[(R, "SLURM_TASK_EPILOG")]),
    of(R, no("task-prolog", NO, Kind::Path, PROGRAM)).reads(&[(R, "SLURM_TASK_PROLOG")]),
    of(BR, flag("test-only", NO)),
    named!(ALL, "THREAD_SPEC", pass("thread-spec", NO, Kind::Number)),
    of(R, pass("threads", 'T', Kind::Number)).reads(&[(R, "SLURM_THREADS")]),
    named!(
        ALL,
        "THREADS_PER_CORE",
        pass("threads-per-core", NO, Kind::Number)
    ),
    named!(ALL, "TIMELIMIT", pass("time", 't', Kind::Time)),
    of(ALL, pass("time-min", NO, Kind::Time)),
    of(ALL, pass("tmp", NO, Kind::Name)),
    of(R, pass("treewidth", NO, Kind::Name).since(23, 11)),
    named!(
        ALL,
        "TRES_BIND",
        pass("tres-bind", NO, Kind::Word).since(23, 11)
    ),
    named!(
        ALL,
        "TRES_PER_TASK",
        pass("tres-per-task", NO, Kind::Word).since(23, 2)
    ),
    of(ALL, no("uid", NO, Kind::Name, OTHER_USER)),
    of(R, flag("unbuffered", 'u')).reads(&[(R, "SLURM_UNBUFFEREDIO")]),
    of(ALL, flag("usage", NO)),
    named!(ALL, "USE_MIN_NODES", flag("use-min-nodes", NO)),
    named!(ALL, "DEBUG", flag("verbose", 'v').many()),
    of(ALL, flag("version", 'V')),
    of(B, flag("wait", 'W')).reads(&[(B, "SBATCH_WAIT")]),
    of(R, pass("wait", 'W', Kind::Number)).reads(&[(R, "SLURM_WAIT")]),
    named!(
        BA,
        "WAIT_ALL_NODES",
        pass("wait-all-nodes", NO, Kind::Number)
    ),
    of(R, flag("wait-for-children", NO).since(25, 5)),
    named!(ALL, "WCKEY", pass("wckey", NO, Kind::Text)),
    of(R, flag("whole", NO)),
    of(
        B,
        ours(
            "wrap",
            NO,
            Kind::Raw,
            "the text becomes the script of the job, as Slurm makes one of it",
        ),
    ),
    of(
        AR,
        no(
            "x11",
            NO,
            Kind::Name,
            "it would open your display to the job past the jail; leave it out",
        )
        .optional(),
    ),
];

const CONF: (&str, &str) = (
    "SLURM_CONF",
    "it would choose another configuration, and with it plug-ins that run as you",
);
const CONF_SERVER: (&str, &str) = ("SLURM_CONF_SERVER", CONF.1);
const JWT: (&str, &str) = (
    "SLURM_JWT",
    "it is a key to Slurm; the chaperon has its own way in",
);
const CLUSTERS: (&str, &str) = ("SLURM_CLUSTERS", "jobs and queries stay on this cluster");
const WORKING: (&str, &str) = (
    "SLURM_WORKING_CLUSTER",
    "Slurm sets it in jobs; the cluster is always this one",
);
const UMASK: (&str, &str) = (
    "SLURM_UMASK",
    "Slurm sets it in jobs; the mask is the calling process's",
);
const TEST_EXEC: (&str, &str) = (
    "SLURM_TEST_EXEC",
    "the program is looked for in the jail, not on this side",
);
const HET_SIZE: (&str, &str) = ("SLURM_HET_SIZE", HET);
const NODES_OF_JOB: (&str, &str) = (
    "SLURM_JOB_NODELIST",
    "Slurm sets it in jobs; the nodes of a job are known by its id",
);

const KEPT: &[(&str, Kind)] = &[
    ("SLURM_DIST_PLANESIZE", Kind::Number),
    ("SLURM_EXIT_ERROR", Kind::Number),
    ("SLURM_EXIT_IMMEDIATE", Kind::Number),
    ("SLURM_TIME_FORMAT", Kind::TimeFormat),
];

pub(super) static SBATCH: Table = Table {
    command: Command::Sbatch,
    rows: ROWS,
    who: B,
    dropped: &[CONF, CONF_SERVER, JWT, CLUSTERS, WORKING, UMASK],
    kept: &[
        KEPT[0],
        KEPT[1],
        KEPT[3],
        ("SBATCH_REQ_SWITCH", Kind::Number),
        ("SBATCH_WAIT4SWITCH", Kind::Time),
    ],
    permutes: false,
    release: None,
};

pub(super) static SALLOC: Table = Table {
    command: Command::Salloc,
    rows: ROWS,
    who: A,
    dropped: &[CONF, CONF_SERVER, JWT, CLUSTERS, WORKING],
    kept: &[
        KEPT[0],
        KEPT[1],
        KEPT[2],
        KEPT[3],
        ("SALLOC_REQ_SWITCH", Kind::Number),
        ("SALLOC_WAIT4SWITCH", Kind::Time),
    ],
    permutes: false,
    release: None,
};

pub(super) static SRUN: Table = Table {
    command: Command::Srun,
    rows: ROWS,
    who: R,
    dropped: &[
        CONF,
        CONF_SERVER,
        JWT,
        CLUSTERS,
        WORKING,
        UMASK,
        TEST_EXEC,
        HET_SIZE,
        NODES_OF_JOB,
    ],
    kept: &[
        KEPT[0],
        KEPT[1],
        KEPT[2],
        KEPT[3],
        ("SLURM_ARBITRARY_NODELIST", Kind::Nodes),
        ("SLURM_CPUS_PER_TASK", Kind::Number),
        ("SLURM_REQ_SWITCH", Kind::Number),
        ("SLURM_SRUN_REDUCE_TASK_EXIT_MSG", Kind::Number),
        ("SLURM_STEP_GRES", Kind::Word),
        ("SLURM_WAIT4SWITCH", Kind::Time),
    ],
    permutes: false,
    release: None,
};
