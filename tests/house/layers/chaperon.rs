//! The tables of the chaperon.

use super::Row;

/// The chaperon: `conn < session < spawn < slurm < server`, above what needs nothing.
pub(crate) const CHAPERON: &[Row] = &[
    // Closes what came from inside, in a thread of its own.
    ("closing", &[]),
    ("sys", &["closing"]),
    ("refusal", &[]),
    ("budget", &["refusal"]),
    ("variables", &[]),
    ("files", &[]),
    ("audit", &["refusal"]),
    // What is logged, and that requests are recorded beside it.
    ("logging", &["audit"]),
    // Files that chaperons of a user share.
    ("locks", &[]),
    ("intent", &[]),
    ("limiter", &["locks"]),
    ("query_cache", &["locks"]),
    // What a session holds of records and questions, as data.
    ("cache", &[]),
    ("submitters", &["intent"]),
    (
        "query_queue",
        &["budget", "query_cache", "refusal", "variables"],
    ),
    ("conn", &["budget", "closing", "refusal", "sys"]),
    (
        "session",
        &[
            "audit",
            "budget",
            "cache",
            "query_cache",
            "query_queue",
            "limiter",
            "submitters",
            "terminal",
            "variables",
        ],
    ),
    // Alone in starting processes.
    (
        "spawn",
        &[
            "budget",
            "closing",
            "conn",
            "query_cache",
            "query_queue",
            "refusal",
            "session",
            "sys",
        ],
    ),
    (
        "slurm",
        &[
            "audit",
            "cache",
            "closing",
            "conn",
            "query_cache",
            "query_queue",
            "files",
            "intent",
            "locks",
            "refusal",
            "session",
            "spawn",
            "submitters",
            "sys",
            "variables",
        ],
    ),
    (
        "server",
        &[
            "audit",
            "budget",
            "cache",
            "closing",
            "conn",
            "query_cache",
            "query_queue",
            "files",
            "limiter",
            "locks",
            "logging",
            "refusal",
            "session",
            "slurm",
            "spawn",
            "submitters",
            "sys",
            "variables",
        ],
    ),
    // What is said on a session's standard error.
    ("terminal", &[]),
    // The filter of a session's network: a process of its own.
    (
        "network",
        &["audit", "closing", "logging", "sys", "terminal"],
    ),
    // Its ssh agent: another.
    (
        "ssh_agent",
        &["audit", "logging", "network::read_order", "sys", "terminal"],
    ),
    // Ports of a session's network for the user: a third.
    ("forward", &["closing", "sys"]),
    ("main", &["server", "slurm", "sys"]),
    // The program of all three.
    ("filter", &["forward", "network", "ssh_agent"]),
];

/// Inside the chaperon's `slurm`: `submit`, `control` and `query` use what they share, and nothing of each other.
pub(crate) const SLURM: &[Row] = &[
    ("options", &[]),
    ("parse", &["options"]),
    ("ids", &[]),
    ("cluster", &["options"]),
    ("request", &["cluster", "parse"]),
    // Asks Slurm.
    ("ask", &[]),
    ("answers", &["ask", "parse", "request"]),
    // What the keywords of scontrol have in common.
    ("keywords", &["parse"]),
    // Lines that all sessions of a user add to.
    ("lines", &[]),
    ("ledger", &["lines"]),
    ("records", &["cluster", "ledger"]),
    ("intents", &["cluster", "records"]),
    // How often a user's sessions submit.
    ("rates", &["ask", "lines", "records", "request"]),
    ("submitted", &["ask", "intents", "records"]),
    ("scope", &["ask", "ids", "records", "submitted"]),
    ("sluid", &["ask", "ids", "request", "scope"]),
    // What one job may ask for.
    ("bounds", &["ask", "options", "parse"]),
    ("limits", &["bounds", "parse"]),
    // How many hours jobs may take together, and which wait for the user.
    ("settle", &["ask", "bounds", "cluster", "ledger", "records"]),
    (
        "approval",
        &["ask", "bounds", "ledger", "lines", "records", "request"],
    ),
    (
        "hours",
        &[
            "approval", "bounds", "cluster", "ledger", "records", "settle",
        ],
    ),
    (
        "errand",
        &["approval", "bounds", "ledger", "records", "settle"],
    ),
    ("explain", &["bounds", "limits", "options", "parse"]),
    (
        "queue",
        &[
            "ids",
            "intents",
            "limits",
            "parse",
            "records",
            "scope",
            "submitted",
        ],
    ),
    ("messages", &["options", "parse", "request"]),
    // Makes jobs and steps.
    (
        "submit",
        &[
            "approval",
            "ask",
            "bounds",
            "cluster",
            "hours",
            "ids",
            "ledger",
            "limits",
            "messages",
            "options",
            "parse",
            "queue",
            "rates",
            "records",
            "request",
            "scope",
            "submitted",
        ],
    ),
    // Acts on jobs that are there.
    (
        "control",
        &[
            "answers",
            "ask",
            "bounds",
            "hours",
            "ids",
            "keywords",
            "limits",
            "messages",
            "options",
            "parse",
            "queue",
            "rates",
            "request",
            "scope",
            "submitted",
        ],
    ),
    // Shows.
    (
        "query",
        &[
            "answers", "ask", "cluster", "ids", "keywords", "options", "parse", "records",
            "request", "scope",
        ],
    ),
    // Its keywords act and show.
    (
        "scontrol",
        &[
            "answers",
            "ask",
            "control::jobs",
            "control::update",
            "keywords",
            "parse",
            "query::script",
            "query::show",
            "request",
        ],
    ),
    (
        "commands",
        &[
            "ask",
            "control::scancel",
            "parse",
            "query",
            "request",
            "scontrol",
            "sluid",
            "submit",
        ],
    ),
];

/// Inside `submit`: the stages know nothing of the commands that go through them.
pub(crate) const SUBMIT: &[Row] = &[
    ("export", &[]),
    ("streams", &[]),
    ("multi_prog", &[]),
    ("directory", &[]),
    ("own_words", &[]),
    ("no_job", &[]),
    ("target", &[]),
    ("capsule", &["export"]),
    // The tracer's word for a script.
    ("mark", &[]),
    ("submission", &["capsule", "directory", "no_job", "target"]),
    (
        "sbatch",
        &[
            "directory",
            "mark",
            "own_words",
            "target",
            "streams",
            "submission",
        ],
    ),
    (
        "srun",
        &[
            "multi_prog",
            "no_job",
            "own_words",
            "target",
            "streams",
            "submission",
        ],
    ),
    ("salloc", &["directory", "target", "submission"]),
];

/// Inside `control`: nothing uses the other.
pub(crate) const CONTROL: &[Row] = &[("jobs", &[]), ("scancel", &[]), ("update", &[])];

/// Inside `query`: what takes answers apart knows nothing of the commands.
pub(crate) const QUERY: &[Row] = &[
    ("shown", &[]),
    ("format_fields", &["shown"]),
    ("format", &["format_fields"]),
    ("format_lines", &["format", "format_fields", "shown"]),
    ("blocks", &["shown"]),
    ("json", &["shown"]),
    ("script", &["shown"]),
    ("show", &["blocks", "json", "shown"]),
    ("squeue", &["format", "format_lines", "json", "shown"]),
    ("sacct", &["format", "shown"]),
    ("sacctmgr", &[]),
    ("sdiag", &[]),
    ("sinfo", &["json"]),
    ("sprio", &[]),
    ("sshare", &[]),
    ("sstat", &[]),
];
