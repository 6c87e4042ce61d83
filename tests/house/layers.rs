//! Who may use whom inside each crate, as tables; `arrows` checks that the code keeps to them.

mod chaperon;
mod network;
mod tracer;

/// A module, and the modules or parts of modules that it may use.
pub(crate) type Row = (&'static str, &'static [&'static str]);

/// Modules that stand in layers.
pub(crate) struct House {
    /// Where the crate's source is, from the root of the tree; it ends in `/`.
    pub(crate) root: &'static str,
    /// The library's name in paths.
    pub(crate) krate: &'static str,
    /// The module whose children the table is about; none: the crate's root.
    pub(crate) within: &'static [&'static str],
    /// Each module uses only what its row names.
    pub(crate) uses: &'static [Row],
}

/// The launcher has the modules of the crate below it under their own names.
pub(crate) const REEXPORTED: (&str, &str) = ("src/", "base/src/");

/// The houses of the tree.
pub(crate) const HOUSES: &[House] = &[
    House {
        root: "src/",
        krate: "agent_sandbox",
        within: &[],
        uses: USES,
    },
    House {
        root: "base/src/",
        krate: "agent_sandbox_base",
        within: &[],
        uses: BASE,
    },
    House {
        root: "base/src/",
        krate: "agent_sandbox_base",
        within: &["config"],
        uses: CONFIG,
    },
    House {
        root: "base/src/",
        krate: "agent_sandbox_base",
        within: &["policy"],
        uses: POLICY,
    },
    House {
        root: "base/src/",
        krate: "agent_sandbox_base",
        within: &["plan"],
        uses: PLAN,
    },
    House {
        root: "landlock/src/",
        krate: "agent_sandbox_landlock",
        within: &[],
        uses: LANDLOCK,
    },
    House {
        root: "chaperon/wire/src/",
        krate: "agent_sandbox_wire",
        within: &[],
        uses: WIRE,
    },
    House {
        root: "chaperon/shim/src/",
        krate: "agent_sandbox_shim",
        within: &[],
        uses: SHIM,
    },
    House {
        root: "chaperon/daemon/src/",
        krate: "agent_sandbox_chaperon",
        within: &[],
        uses: chaperon::CHAPERON,
    },
    House {
        root: "chaperon/daemon/src/",
        krate: "agent_sandbox_chaperon",
        within: &["slurm"],
        uses: chaperon::SLURM,
    },
    House {
        root: "chaperon/daemon/src/",
        krate: "agent_sandbox_chaperon",
        within: &["slurm", "submit"],
        uses: chaperon::SUBMIT,
    },
    House {
        root: "chaperon/daemon/src/",
        krate: "agent_sandbox_chaperon",
        within: &["slurm", "control"],
        uses: chaperon::CONTROL,
    },
    House {
        root: "chaperon/daemon/src/",
        krate: "agent_sandbox_chaperon",
        within: &["slurm", "query"],
        uses: chaperon::QUERY,
    },
    House {
        root: "ebpf/events/src/",
        krate: "agent_sandbox_events",
        within: &[],
        uses: EVENTS,
    },
    House {
        root: "ebpf/secrets/src/",
        krate: "agent_sandbox_secrets",
        within: &[],
        uses: tracer::SECRETS,
    },
    House {
        root: "ebpf/tracer/src/",
        krate: "agent_sandbox_tracer",
        within: &[],
        uses: tracer::TRACER,
    },
    House {
        root: "ebpf/attest/src/",
        krate: "agent_sandbox_attest",
        within: &[],
        uses: tracer::ATTEST,
    },
    House {
        root: "ebpf/trail/src/",
        krate: "agent_sandbox_trail",
        within: &[],
        uses: tracer::TRAIL,
    },
    House {
        root: "network/hosts/src/",
        krate: "agent_sandbox_hosts",
        within: &[],
        uses: network::HOSTS,
    },
    House {
        root: "network/filter/src/",
        krate: "agent_sandbox_filter",
        within: &[],
        uses: network::FILTER,
    },
    House {
        root: "network/ssh/src/",
        krate: "agent_sandbox_ssh",
        within: &[],
        uses: network::SSH,
    },
];

/// What a jail is planned from, and what backends make it with: `config < policy < plan`, and `host` feeds `plan`: each
/// uses only what stands left of it.
const BASE: &[Row] = &[
    ("sys", &[]),
    ("env_vars", &[]),
    ("failure", &[]),
    ("config", &[]),
    ("policy", &["config"]),
    ("host", &["config::when", "env_vars", "policy", "sys"]),
    ("plan", &["config::source", "env_vars", "host", "policy"]),
    // A table of system calls as a filter.
    ("seccomp", &["plan::model::syscalls"]),
    // What runs beside a jail and has no policy to ask.
    ("mediate", &["plan::model::git", "sys"]),
    ("session", &[]),
    ("own_directory", &["host"]),
    (
        "session_directory",
        &["failure", "own_directory", "session"],
    ),
    // What a backend's jail lacks.
    ("missing", &[]),
];

/// The launcher: `base < backend < launch`: each uses only what stands left of it.
const USES: &[Row] = &[
    // What a launch logs.
    ("logging", &["env_vars", "failure"]),
    ("cli", &[]),
    // What launcher and init say to each other, as data.
    ("handoff", &[]),
    (
        "backend",
        &[
            "config::source",
            "env_vars",
            "failure",
            "host",
            "mediate",
            "own_directory",
            "plan",
            "policy",
            "seccomp",
            "session",
            "sys",
        ],
    ),
    // Runs inside the jail: it gets a handoff and has no policy to ask.
    ("init", &["handoff", "sys"]),
    // Looks at what a command does, and decides nothing.
    ("observe", &["mediate", "plan", "sys"]),
    // Speaks to the terminal, inside as outside.
    ("notice", &["env_vars"]),
    // Asks Slurm, inside as outside.
    ("wait", &["cli", "failure"]),
    // What the program knows when it is called inside the jail.
    ("inside", &["env_vars", "plan"]),
    (
        "report",
        &[
            "audit",
            "cli",
            "config",
            "doctor",
            "env_vars",
            "failure",
            "host",
            "inside",
            "launch",
            "logging",
            "notice",
            "plan",
            "policy",
            "profile_init",
            "session",
            "users",
            "wait",
            "backend::missing",
        ],
    ),
    // Reads what chaperons recorded.
    ("audit", &[]),
    // Has users' files read, for root.
    ("users", &["failure", "host", "sys"]),
    (
        "launch",
        &[
            "audit",
            "backend",
            "cli",
            "config",
            "env_vars",
            "failure",
            "handoff",
            "host",
            "init",
            "logging",
            "mediate",
            "observe",
            "own_directory",
            "plan",
            "policy",
            "seccomp",
            "session",
            "session_directory",
            "sys",
            "users",
        ],
    ),
    // One jail for each job and node.
    (
        "share",
        &[
            "backend",
            "env_vars",
            "failure",
            "handoff",
            "host",
            "init",
            "launch",
            "mediate",
            "own_directory",
            "plan",
            "policy",
            "report",
            "seccomp",
            "sys",
        ],
    ),
    // A launch that Slurm asks for, on a compute node.
    (
        "job",
        &[
            "cli", "env_vars", "failure", "handoff", "launch", "logging", "plan", "report",
            "share", "sys",
        ],
    ),
    // A profile from a launch that is watched.
    (
        "profile_init",
        &[
            "cli", "config", "failure", "host", "launch", "observe", "plan", "policy", "session",
        ],
    ),
    // Whether a launch would work; `report` shows it.
    (
        "doctor",
        &[
            "cli",
            "config",
            "env_vars",
            "failure",
            "host",
            "launch",
            "own_directory",
            "plan",
            "policy",
            "session",
            "sys",
            "users",
        ],
    ),
    ("main", &["init", "job", "plan", "report"]),
];

/// Inside the configuration: what a file may hold and says, `parse`, and which files there are, `load`.
const CONFIG: &[Row] = &[
    ("source", &[]),
    ("pattern", &[]),
    ("diagnostic", &[]),
    ("built_in", &[]),
    ("index", &["diagnostic"]),
    // The table of keys. Its rows are tokens, and mean something where they are used.
    ("keys", &[]),
    ("schema", &["index", "keys"]),
    ("text", &["diagnostic", "source"]),
    ("when", &["pattern", "schema"]),
    ("agent", &["diagnostic", "schema", "source", "text"]),
    (
        "parse",
        &[
            "agent",
            "built_in",
            "diagnostic",
            "index",
            "schema",
            "source",
            "text",
            "when",
        ],
    ),
    ("files", &["diagnostic"]),
    ("site", &["diagnostic", "files"]),
    ("request", &["site", "when"]),
    (
        "profiles",
        &[
            "agent",
            "built_in",
            "diagnostic",
            "files",
            "parse",
            "request",
            "source",
        ],
    ),
    // A site's file before it is installed.
    (
        "draft",
        &[
            "diagnostic",
            "files",
            "load",
            "parse",
            "site",
            "source",
            "when",
        ],
    ),
    (
        "load",
        &[
            "diagnostic",
            "files",
            "parse",
            "profiles",
            "request",
            "schema",
            "site",
            "source",
            "text",
            "when",
        ],
    ),
];

/// Inside the policy: values, kinds of keys, what a layer states, what holds.
const POLICY: &[Row] = &[
    ("values", &[]),
    ("paths", &[]),
    ("trace", &["values"]),
    ("clamp", &["paths", "values"]),
    // Hosts that a filtered network leads to.
    ("hosts", &["clamp"]),
    ("ssh", &["clamp", "hosts", "paths", "values"]),
    // Names of Slurm's that a job may use.
    ("names", &["clamp", "paths"]),
    (
        "typed",
        &["clamp", "hosts", "names", "paths", "ssh", "trace", "values"],
    ),
    (
        "stated",
        &[
            "clamp", "hosts", "names", "paths", "ssh", "trace", "typed", "values",
        ],
    ),
    // Values that stay outside.
    ("credentials", &["hosts", "paths", "stated"]),
    ("bounds", &["clamp", "paths", "stated"]),
    ("injected_files", &["paths"]),
    ("state", &["clamp", "paths", "stated", "values"]),
    (
        "merged",
        &[
            "bounds",
            "injected_files",
            "clamp",
            "credentials",
            "hosts",
            "names",
            "paths",
            "ssh",
            "state",
            "stated",
            "trace",
            "values",
        ],
    ),
    // How many hours jobs may take, as the chaperon counts them.
    ("budgets", &["merged"]),
    // What a job may ask for, as the chaperon judges it.
    (
        "job_bounds",
        &["bounds", "clamp", "merged", "names", "stated", "values"],
    ),
    (
        "merge",
        &[
            "bounds",
            "clamp",
            "credentials",
            "hosts",
            "injected_files",
            "merged",
            "paths",
            "state",
            "stated",
            "values",
        ],
    ),
];

/// Inside the plan: the model knows nothing of the rest, and the checker nothing but the model.
const PLAN: &[Row] = &[
    ("model", &[]),
    ("build", &["model"]),
    ("check", &["model"]),
    // It asks the judgements of the builder again, for one name.
    ("explain", &["build::env", "model"]),
];

/// The jail that Landlock makes: from a plan to rules and an access map, what is checked of them and what is missing; and
/// what runs, which sees neither plan nor policy.
const LANDLOCK: &[Row] = &[
    ("access", &[]),
    ("refused", &[]),
    ("required", &[]),
    ("contents", &[]),
    ("handed_over", &["access"]),
    ("map", &["access"]),
    ("check", &["access"]),
    ("variables", &["contents"]),
    (
        "translate",
        &["access", "check", "contents", "map", "refused", "variables"],
    ),
    ("missing", &["required", "translate"]),
    ("stage", &["contents"]),
    ("restrict", &["access"]),
    ("mediator", &["access", "restrict"]),
];

/// What shim, chaperon and launcher say to each other.
const WIRE: &[Row] = &[
    ("command", &[]),
    ("message", &[]),
    ("frame", &[]),
    ("capsule", &[]),
    ("led", &[]),
    ("network", &["led"]),
    ("ssh", &[]),
    ("step", &["capsule"]),
    // What one job may ask for.
    ("bounds", &[]),
    ("budget", &[]),
    ("order", &["bounds", "budget", "capsule", "command"]),
    ("errand", &["order"]),
    // What is asked about the policy, as data.
    ("explain", &["bounds", "order"]),
    ("text", &[]),
    ("logging", &["text"]),
];

/// The shim: `sys < streams < trouble < signals < files, look, link, child < conversation`.
const SHIM: &[Row] = &[
    ("sys", &[]),
    ("streams", &["sys"]),
    ("trouble", &["streams", "sys"]),
    ("signals", &["sys", "trouble"]),
    ("files", &["signals", "sys"]),
    ("look", &[]),
    ("child", &["sys"]),
    ("link", &["sys", "trouble"]),
    ("call", &[]),
    (
        "conversation",
        &[
            "call", "child", "files", "link", "look", "signals", "streams", "sys", "trouble",
        ],
    ),
    (
        "main",
        &[
            "call",
            "child",
            "conversation",
            "files",
            "link",
            "look",
            "signals",
            "streams",
            "sys",
            "trouble",
        ],
    ),
];

/// What the tracer records, and how it is asked, as data.
const EVENTS: &[Row] = &[
    ("text", &[]),
    ("pattern", &[]),
    ("raw", &[]),
    ("record", &[]),
    ("sluid", &[]),
    // What is handed over for root's audit record, and what is signed of a job.
    ("audit", &[]),
    ("mark", &[]),
    ("protocol", &["audit", "mark", "raw"]),
    ("sys", &[]),
    ("client", &["protocol", "sys"]),
    ("handover", &["audit", "client", "protocol", "sys"]),
    ("trails", &["client", "protocol", "record", "sys"]),
    // What the launcher hands to the program that shows trails.
    ("ask", &["protocol", "raw"]),
];
