//! The options of the commands that show: squeue, sinfo, sacct, sstat, sprio, sshare, sdiag.

use agent_sandbox_wire::command::Command;

use super::option::{Kind, Opt, Table};
use super::row::{NO, flag, no, ours, pass};
use super::shared::OWN;

const OTHER_CLUSTER: &str =
    "queries stay on this cluster; leave it out, or log in to the other one and work there";
const FOR_EVER: &str = "it would ask for ever; ask again when you need to know";
const AGAIN: &str = "the queue is asked again and again, no faster than the policy lets it";
const YAML: &str = "what it prints is not filtered; use --json";
const QUIETLY: &str = "accepted; Slurm would print how the query was written anew";
const IDS: &str = "the jobs must be in the session's scope";
const COLUMNS: &str = "the columns are filled in from what the session may see";
const LAYOUT: &str = "the lines are laid out on this side";
const WHOSE: &str = "other users' jobs show as the site's rules say";
const JSON: &str = "the answer is filtered by job and printed as JSON";

pub(super) const CONF: (&str, &str) = (
    "SLURM_CONF",
    "it would choose another configuration, and with it plug-ins that run as you",
);
pub(super) const CONF_SERVER: (&str, &str) = ("SLURM_CONF_SERVER", CONF.1);
pub(super) const JWT: (&str, &str) = (
    "SLURM_JWT",
    "it is a key to Slurm; the chaperon has its own way in",
);
pub(super) const CLUSTERS: (&str, &str) =
    ("SLURM_CLUSTERS", "jobs and queries stay on this cluster");

const TIME_FORMAT: (&str, Kind) = ("SLURM_TIME_FORMAT", Kind::TimeFormat);
const BITSTR_LEN: (&str, Kind) = ("SLURM_BITSTR_LEN", Kind::Number);

const AUTOCOMPLETE: Opt = pass("autocomplete", NO, Kind::Name).since(23, 2);
const CLUSTER: Opt = no("clusters", 'M', Kind::Word, OTHER_CLUSTER).alias(&["cluster"]);
const FEDERATION: Opt = no("federation", NO, Kind::Flag, OTHER_CLUSTER);
const SIBLING: Opt = no("sibling", NO, Kind::Flag, OTHER_CLUSTER).alias(&["sib"]);

pub(super) static SQUEUE: Table = Table {
    command: Command::Squeue,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        pass("accounts", 'A', Kind::Word).reads(&[(OWN, "SQUEUE_ACCOUNT")]),
        flag("all", 'a').reads(&[(OWN, "SQUEUE_ALL")]),
        flag("array", 'r').reads(&[(OWN, "SQUEUE_ARRAY")]),
        flag("array-unique", NO)
            .until(23, 2)
            .reads(&[(OWN, "SQUEUE_ARRAY_UNIQUE")]),
        flag("expand-patterns", NO).since(24, 5),
        ours("Format", 'O', Kind::Format, COLUMNS).reads(&[(OWN, "SQUEUE_FORMAT2")]),
        ours("format", 'o', Kind::Format, COLUMNS).reads(&[(OWN, "SQUEUE_FORMAT")]),
        FEDERATION,
        flag("help", NO),
        flag("helpstate", NO).since(24, 5),
        flag("helpformat", NO).since(24, 5),
        flag("helpFormat", NO).since(24, 5),
        flag("hide", NO),
        ours("iterate", 'i', Kind::Name, AGAIN),
        ours("jobs", 'j', Kind::Jobs, IDS).optional(),
        ours("json", NO, Kind::Name, JSON).since(21, 8).optional(),
        pass("licenses", 'L', Kind::Word).reads(&[(OWN, "SQUEUE_LICENSES")]),
        flag("local", NO).reads(&[(OWN, "SQUEUE_LOCAL")]),
        ours("long", 'l', Kind::Flag, LAYOUT),
        CLUSTER,
        ours("me", NO, Kind::Flag, WHOSE),
        pass("name", 'n', Kind::Text).reads(&[(OWN, "SQUEUE_NAMES")]),
        flag("noconvert", NO),
        pass("nodelist", 'w', Kind::Nodes).alias(&["nodes", "node"]),
        ours("noheader", 'h', Kind::Flag, LAYOUT),
        ours("notme", NO, Kind::Flag, WHOSE).since(24, 5),
        no(
            "only-job-state",
            NO,
            Kind::Flag,
            "it leaves out by what jobs are told apart; use --format=%i,%T",
        )
        .since(23, 11),
        pass("partitions", 'p', Kind::Word).reads(&[(OWN, "SQUEUE_PARTITION")]),
        flag("priority", 'P').reads(&[(OWN, "SQUEUE_PRIORITY")]),
        pass("qos", 'q', Kind::Word).reads(&[(OWN, "SQUEUE_QOS")]),
        pass("reservation", 'R', Kind::Word),
        pass("running-over", NO, Kind::Time).since(25, 11),
        pass("running-under", NO, Kind::Time).since(25, 11),
        SIBLING,
        pass("sort", 'S', Kind::Word).reads(&[(OWN, "SQUEUE_SORT")]),
        flag("start", NO),
        ours("steps", 's', Kind::Jobs, IDS).optional(),
        pass("states", 't', Kind::Word).reads(&[(OWN, "SQUEUE_STATES")]),
        flag("usage", NO),
        ours("user", 'u', Kind::Word, WHOSE)
            .alias(&["users"])
            .reads(&[(OWN, "SQUEUE_USERS")]),
        flag("verbose", 'v').many(),
        flag("version", 'V'),
        no("yaml", NO, Kind::Name, YAML).since(21, 8).optional(),
    ],
    dropped: &[
        CONF,
        CONF_SERVER,
        JWT,
        CLUSTERS,
        ("SQUEUE_FEDERATION", CLUSTERS.1),
        ("SQUEUE_SIB", CLUSTERS.1),
        ("SQUEUE_SIBLING", CLUSTERS.1),
    ],
    kept: &[TIME_FORMAT, BITSTR_LEN],
    permutes: true,
    release: None,
};

pub(super) static SINFO: Table = Table {
    command: Command::Sinfo,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        flag("all", 'a').reads(&[(OWN, "SINFO_ALL")]),
        flag("dead", 'd'),
        flag("exact", 'e'),
        FEDERATION,
        flag("future", 'F')
            .since(23, 2)
            .reads(&[(OWN, "SINFO_FUTURE")]),
        flag("help", NO),
        flag("helpformat", NO).since(24, 5),
        flag("helpFormat", NO).since(24, 5),
        flag("helpstate", NO).since(24, 5),
        flag("hide", NO),
        no("iterate", 'i', Kind::Name, FOR_EVER),
        flag("local", NO).reads(&[(OWN, "SINFO_LOCAL")]),
        flag("long", 'l'),
        CLUSTER,
        pass("nodes", 'n', Kind::Nodes),
        flag("noconvert", NO),
        flag("noheader", 'h'),
        flag("Node", 'N'),
        pass("format", 'o', Kind::Format).reads(&[(OWN, "SINFO_FORMAT")]),
        pass("Format", 'O', Kind::Format),
        pass("partition", 'p', Kind::Word).reads(&[(OWN, "SINFO_PARTITION")]),
        flag("responding", 'r'),
        flag("list-reasons", 'R'),
        flag("summarize", 's'),
        pass("sort", 'S', Kind::Word).reads(&[(OWN, "SINFO_SORT")]),
        pass("states", 't', Kind::Word),
        flag("reservation", 'T'),
        flag("usage", NO),
        flag("verbose", 'v').many(),
        flag("version", 'V'),
        pass("json", NO, Kind::Name).since(21, 8).optional(),
        no("yaml", NO, Kind::Name, YAML).since(21, 8).optional(),
    ],
    dropped: &[
        CONF,
        CONF_SERVER,
        JWT,
        CLUSTERS,
        ("SINFO_FEDERATION", CLUSTERS.1),
    ],
    kept: &[TIME_FORMAT],
    permutes: true,
    release: None,
};

pub(super) static SACCT: Table = Table {
    command: Command::Sacct,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        ours("allusers", 'a', Kind::Flag, WHOSE),
        pass("accounts", 'A', Kind::Word).many(),
        flag("allocations", 'X'),
        flag("array", NO).since(23, 2),
        ours("brief", 'b', Kind::Flag, COLUMNS),
        ours(
            "batch-script",
            'B',
            Kind::Flag,
            "the script is shown as it was submitted",
        )
        .since(21, 8),
        no(
            "completion",
            'c',
            Kind::Flag,
            "that log does not tell which session a job is of; leave it out",
        ),
        pass("constraints", 'C', Kind::Word).many(),
        ours("delimiter", NO, Kind::Raw, LAYOUT),
        flag("duplicates", 'D'),
        FEDERATION,
        flag("helpformat", 'e').alias(&["help-fields"]),
        flag("helpreason", NO).since(24, 5),
        flag("helpstate", NO).since(24, 5),
        pass("endtime", 'E', Kind::Text),
        no(
            "env-vars",
            NO,
            Kind::Flag,
            "Slurm keeps the environment of the capsule, not that of your job; print it in the \
             job's script",
        )
        .since(21, 8),
        flag("expand-patterns", NO).since(24, 5),
        no(
            "file",
            'f',
            Kind::Path,
            "sacct would read that file outside the jail; leave it out",
        ),
        pass("flags", 'F', Kind::Word),
        pass("gid", 'g', Kind::Word).alias(&["group"]).many(),
        flag("help", 'h'),
        flag("local", NO).reads(&[(OWN, "SACCT_LOCAL")]),
        pass("name", NO, Kind::Text).many(),
        pass("nnodes", 'i', Kind::Name),
        pass("ncpus", 'I', Kind::Name),
        ours("jobs", 'j', Kind::Jobs, IDS).many(),
        pass("timelimit-min", 'k', Kind::Time),
        pass("timelimit-max", 'K', Kind::Time),
        ours("long", 'l', Kind::Flag, COLUMNS),
        no("allclusters", 'L', Kind::Flag, OTHER_CLUSTER),
        CLUSTER,
        pass("nodelist", 'N', Kind::Nodes),
        flag("noconvert", NO),
        pass("units", NO, Kind::Name),
        flag("noheader", 'n'),
        ours("format", 'o', Kind::Format, COLUMNS)
            .alias(&["fields"])
            .reads(&[(OWN, "SACCT_FORMAT")])
            .many(),
        ours("parsable", 'p', Kind::Flag, LAYOUT),
        ours("parsable2", 'P', Kind::Flag, LAYOUT),
        pass("qos", 'q', Kind::Word).many(),
        pass("partition", 'r', Kind::Word).many(),
        pass("reason", 'R', Kind::Text),
        pass("state", 's', Kind::Word).many(),
        pass("starttime", 'S', Kind::Text),
        flag("truncate", 'T'),
        ours("user", 'u', Kind::Word, WHOSE).alias(&["uid"]).many(),
        flag("use-local-uid", NO),
        flag("usage", 'U'),
        ours("verbose", 'v', Kind::Flag, QUIETLY).many(),
        flag("version", 'V'),
        pass("wckeys", 'W', Kind::Word).many(),
        pass("whole-hetjob", NO, Kind::Name).optional(),
        pass("associations", 'x', Kind::Word).many(),
        ours("json", NO, Kind::Name, JSON).since(21, 8).optional(),
        no("yaml", NO, Kind::Name, YAML).since(21, 8).optional(),
    ],
    dropped: &[
        CONF,
        CONF_SERVER,
        JWT,
        CLUSTERS,
        ("SACCT_FEDERATION", CLUSTERS.1),
    ],
    kept: &[TIME_FORMAT, BITSTR_LEN],
    permutes: true,
    release: None,
};

pub(super) static SSTAT: Table = Table {
    command: Command::Sstat,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        flag("allsteps", 'a'),
        flag("helpformat", 'e'),
        flag("help", 'h'),
        ours("jobs", 'j', Kind::Jobs, IDS).many(),
        flag("noheader", 'n'),
        pass("format", 'o', Kind::Format).alias(&["fields"]).many(),
        flag("noconvert", NO),
        flag("pidformat", 'i'),
        flag("parsable", 'p'),
        flag("parsable2", 'P'),
        flag("usage", NO),
        ours("verbose", 'v', Kind::Flag, QUIETLY).many(),
        flag("version", 'V'),
    ],
    dropped: &[CONF, CONF_SERVER, JWT, CLUSTERS],
    kept: &[TIME_FORMAT],
    permutes: true,
    release: None,
};

pub(super) static SPRIO: Table = Table {
    command: Command::Sprio,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        flag("noheader", 'h'),
        ours("jobs", 'j', Kind::Jobs, IDS).optional(),
        ours("long", 'l', Kind::Flag, COLUMNS),
        CLUSTER,
        flag("norm", 'n'),
        ours("format", 'o', Kind::Format, COLUMNS).reads(&[(OWN, "SPRIO_FORMAT")]),
        pass("sort", 'S', Kind::Word),
        pass("partition", 'p', Kind::Word),
        ours("user", 'u', Kind::Word, WHOSE).alias(&["users"]),
        ours("verbose", 'v', Kind::Flag, QUIETLY).many(),
        flag("version", 'V'),
        flag("weights", 'w'),
        FEDERATION,
        flag("help", NO),
        flag("helpformat", NO).since(24, 5),
        flag("local", NO).reads(&[(OWN, "SPRIO_LOCAL")]),
        SIBLING,
        flag("usage", NO),
    ],
    dropped: &[
        CONF,
        CONF_SERVER,
        JWT,
        CLUSTERS,
        ("SPRIO_FEDERATION", CLUSTERS.1),
        ("SPRIO_SIBLING", CLUSTERS.1),
    ],
    kept: &[TIME_FORMAT],
    permutes: true,
    release: None,
};

pub(super) static SSHARE: Table = Table {
    command: Command::Sshare,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        pass("accounts", 'A', Kind::Word).many(),
        ours("all", 'a', Kind::Flag, WHOSE),
        flag("helpformat", 'e'),
        ours("long", 'l', Kind::Flag, COLUMNS),
        flag("partition", 'm'),
        CLUSTER,
        ours("noheader", 'n', Kind::Flag, LAYOUT),
        ours("format", 'o', Kind::Format, COLUMNS),
        ours("parsable", 'p', Kind::Flag, LAYOUT),
        ours("parsable2", 'P', Kind::Flag, LAYOUT),
        ours("users", 'u', Kind::Word, WHOSE).many(),
        ours("Users", 'U', Kind::Flag, WHOSE),
        ours("verbose", 'v', Kind::Flag, QUIETLY).many(),
        flag("version", 'V'),
        // In the getopt string without a long name: it leaves out the header like `-n`.
        ours("h", 'h', Kind::Flag, LAYOUT),
        flag("help", NO),
        flag("usage", NO),
        no(
            "json",
            NO,
            Kind::Name,
            "what it prints is not filtered by user; use --parsable2",
        )
        .since(23, 11)
        .optional(),
        no(
            "yaml",
            NO,
            Kind::Name,
            "what it prints is not filtered by user; use --parsable2",
        )
        .since(23, 11)
        .optional(),
    ],
    dropped: &[CONF, CONF_SERVER, JWT, CLUSTERS],
    kept: &[TIME_FORMAT],
    permutes: true,
    release: None,
};

pub(super) static SDIAG: Table = Table {
    command: Command::Sdiag,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        flag("all", 'a'),
        flag("help", 'h'),
        no(
            "reset",
            'r',
            Kind::Flag,
            "it would clear counters that the whole site reads; leave it out",
        ),
        flag("sort-by-id", 'i'),
        CLUSTER,
        flag("no-trunc", NO).since(25, 11),
        flag("sort-by-time", 't'),
        flag("sort-by-time2", 'T'),
        flag("usage", NO),
        flag("version", 'V'),
        no(
            "json",
            NO,
            Kind::Name,
            "what it prints is not filtered by user; leave it out",
        )
        .since(23, 2)
        .optional(),
        no(
            "yaml",
            NO,
            Kind::Name,
            "what it prints is not filtered by user; leave it out",
        )
        .since(23, 2)
        .optional(),
    ],
    dropped: &[CONF, CONF_SERVER, JWT, CLUSTERS],
    kept: &[TIME_FORMAT],
    permutes: true,
    release: None,
};
