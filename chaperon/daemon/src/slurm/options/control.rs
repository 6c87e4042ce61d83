//! The options of scancel, scontrol and sacctmgr. Subcommands are operands and judged by
//! the commands themselves.

use agent_sandbox_wire::command::Command;

use super::option::{Kind, Opt, Table};
use super::queries::{CLUSTERS, CONF, CONF_SERVER, JWT};
use super::row::{NO, flag, no, ours, pass};
use super::shared::OWN;

const OTHER_CLUSTER: &str =
    "jobs stay on this cluster; leave it out, or log in to the other one and work there";
const OTHER_USER: &str = "jobs are changed as the user who started the session; leave it out";

const AUTOCOMPLETE: Opt = pass("autocomplete", NO, Kind::Name).since(23, 2);
const CLUSTER: Opt = no("clusters", 'M', Kind::Word, OTHER_CLUSTER).alias(&["cluster"]);

pub(super) static SCANCEL: Table = Table {
    command: Command::Scancel,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        pass("account", 'A', Kind::Word).reads(&[(OWN, "SCANCEL_ACCOUNT")]),
        no(
            "admin-comment",
            NO,
            Kind::Text,
            "it is for administrators; leave it out",
        )
        .since(25, 11),
        flag("batch", 'b').reads(&[(OWN, "SCANCEL_BATCH")]),
        flag("ctld", NO).reads(&[(OWN, "SCANCEL_CTLD")]),
        no(
            "cron",
            'c',
            Kind::Flag,
            "it would end jobs of scrontab, which are none of the session's; use scancel outside",
        )
        .since(23, 2)
        .reads(&[(OWN, "SCANCEL_CRON")]),
        flag("full", 'f').reads(&[(OWN, "SCANCEL_FULL")]),
        flag("help", NO),
        flag("hurry", 'H').reads(&[(OWN, "SCANCEL_HURRY")]),
        flag("interactive", 'i').reads(&[(OWN, "SCANCEL_INTERACTIVE")]),
        CLUSTER,
        flag("me", NO).since(22, 5),
        pass("name", 'n', Kind::Text)
            .alias(&["jobname"])
            .reads(&[(OWN, "SCANCEL_NAME")]),
        pass("nodelist", 'w', Kind::Nodes),
        pass("partition", 'p', Kind::Word).reads(&[(OWN, "SCANCEL_PARTITION")]),
        pass("qos", 'q', Kind::Word).reads(&[(OWN, "SCANCEL_QOS")]),
        flag("quiet", 'Q'),
        pass("reservation", 'R', Kind::Word),
        no("sibling", NO, Kind::Word, OTHER_CLUSTER),
        pass("signal", 's', Kind::Name),
        pass("state", 't', Kind::Word).reads(&[(OWN, "SCANCEL_STATE")]),
        flag("usage", NO),
        pass("user", 'u', Kind::Word).reads(&[(OWN, "SCANCEL_USER")]),
        flag("verbose", 'v')
            .reads(&[(OWN, "SCANCEL_VERBOSE")])
            .many(),
        flag("version", 'V'),
        pass("wckey", NO, Kind::Text).reads(&[(OWN, "SCANCEL_WCKEY")]),
    ],
    dropped: &[CONF, CONF_SERVER, JWT, CLUSTERS],
    kept: &[],
    permutes: true,
    release: None,
};

pub(super) static SCONTROL: Table = Table {
    command: Command::Scontrol,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        flag("all", 'a').reads(&[(OWN, "SCONTROL_ALL")]),
        CLUSTER,
        flag("details", 'd'),
        no("federation", NO, Kind::Flag, OTHER_CLUSTER),
        flag("future", 'F').reads(&[(OWN, "SCONTROL_FUTURE")]),
        flag("help", 'h').alias(&["usage"]),
        flag("hide", NO),
        ours(
            "json",
            NO,
            Kind::Name,
            "the answer is filtered by job and printed as JSON",
        )
        .since(23, 2)
        .optional(),
        flag("local", NO).reads(&[(OWN, "SCONTROL_LOCAL")]),
        flag("oneliner", 'o'),
        flag("quiet", 'Q'),
        no("sibling", NO, Kind::Flag, OTHER_CLUSTER),
        no("uid", 'u', Kind::Name, OTHER_USER),
        flag("verbose", 'v').many(),
        flag("version", 'V'),
        no(
            "yaml",
            NO,
            Kind::Name,
            "what it prints is not filtered by job; use --json",
        )
        .since(23, 2)
        .optional(),
    ],
    dropped: &[
        CONF,
        CONF_SERVER,
        JWT,
        CLUSTERS,
        (
            "SLURM_CONF_OUT",
            "it would choose where scontrol write config writes",
        ),
        ("SCONTROL_FEDERATION", CLUSTERS.1),
        ("SCONTROL_SIB", CLUSTERS.1),
        ("SCONTROL_SIBLING", CLUSTERS.1),
    ],
    kept: &[
        ("SLURM_TIME_FORMAT", Kind::TimeFormat),
        ("SLURM_BITSTR_LEN", Kind::Number),
        // `scontrol show hostnames` without a list.
        ("SLURM_NODELIST", Kind::Nodes),
    ],
    permutes: true,
    release: None,
};

pub(super) static SACCTMGR: Table = Table {
    command: Command::Sacctmgr,
    who: OWN,
    rows: &[
        AUTOCOMPLETE,
        flag("help", 'h').alias(&["usage"]),
        flag("immediate", 'i'),
        flag("noheader", 'n'),
        flag("oneliner", 'o'),
        flag("parsable", 'p'),
        flag("parsable2", 'P'),
        flag("quiet", 'Q'),
        flag("readonly", 'r'),
        flag("associations", 's'),
        flag("verbose", 'v').many(),
        flag("version", 'V'),
        pass("json", NO, Kind::Name).since(23, 2).optional(),
        pass("yaml", NO, Kind::Name).since(23, 2).optional(),
    ],
    dropped: &[CONF, CONF_SERVER, JWT, CLUSTERS],
    kept: &[("SLURM_TIME_FORMAT", Kind::TimeFormat)],
    permutes: true,
    release: None,
};
