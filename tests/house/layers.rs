//! Who may use whom inside each crate, as tables, and the check that the code keeps to them.

use std::collections::{BTreeMap, BTreeSet};

use crate::lex;

/// The row's module may use every other module: it stands at the right end.
pub(crate) const EVERYTHING: &str = "*";

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

/// The houses of the tree.
pub(crate) const HOUSES: &[House] = &[
    House {
        root: "src/",
        krate: "agent_sandbox",
        within: &[],
        uses: USES,
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
        uses: CHAPERON,
    },
    House {
        root: "chaperon/daemon/src/",
        krate: "agent_sandbox_chaperon",
        within: &["slurm"],
        uses: SLURM,
    },
    House {
        root: "ebpf/events/src/",
        krate: "agent_sandbox_events",
        within: &[],
        uses: EVENTS,
    },
    House {
        root: "ebpf/tracer/src/",
        krate: "agent_sandbox_tracer",
        within: &[],
        uses: TRACER,
    },
    House {
        root: "ebpf/trail/src/",
        krate: "agent_sandbox_trail",
        within: &[],
        uses: TRAIL,
    },
];

/// The launcher.
///
/// `cli, config < policy < plan < backend < launch`, and `host` feeds `plan`: each uses only what
/// stands left of it.
const USES: &[Row] = &[
    ("sys", &[]),
    ("env_vars", &[]),
    ("failure", &[]),
    ("cli", &[]),
    ("config", &[]),
    ("policy", &["config"]),
    ("host", &["config::when", "env_vars", "policy", "sys"]),
    // What holds a command without bubblewrap, as data.
    ("fence", &[]),
    (
        "plan",
        &["config::source", "env_vars", "fence", "host", "policy"],
    ),
    // What launcher and init say to each other, as data.
    ("handoff", &["fence"]),
    ("backend", &["fence", "plan"]),
    // Runs inside the jail: it gets a handoff and has no policy to ask.
    ("init", &["fence", "handoff", "sys"]),
    // Runs beside a jail and has no policy to ask either.
    ("mediate", &["fence", "init", "sys"]),
    // Looks at what a command does, and decides nothing.
    ("observe", &["mediate", "plan", "sys"]),
    // Speaks to the terminal, inside as outside.
    ("notice", &["env_vars"]),
    // What the program knows when it is called inside the jail.
    ("inside", &["env_vars", "plan"]),
    ("report", &[EVERYTHING]),
    ("session", &[]),
    ("own_directory", &["host"]),
    // Reads what chaperons recorded.
    ("audit", &[]),
    ("launch", &[EVERYTHING]),
    // One jail for each job and node.
    ("share", &[EVERYTHING]),
    // A launch that Slurm asks for, on a compute node.
    ("job", &[EVERYTHING]),
    // A profile from a launch that is watched.
    ("profile_init", &[EVERYTHING]),
    // Whether a launch would work; `report` shows it.
    ("doctor", &[EVERYTHING]),
    ("main", &[EVERYTHING]),
];

/// What shim, chaperon and launcher say to each other.
const WIRE: &[Row] = &[
    ("command", &[]),
    ("message", &[]),
    ("frame", &[]),
    ("capsule", &[]),
    ("step", &["capsule"]),
    ("order", &["capsule", "command"]),
    // What is asked about the policy, as data.
    ("explain", &["order"]),
    ("text", &[]),
];

/// The shim: `sys < streams < trouble < signals < files, link, child < conversation`.
const SHIM: &[Row] = &[
    ("sys", &[]),
    ("streams", &["sys"]),
    ("trouble", &["streams", "sys"]),
    ("signals", &["sys", "trouble"]),
    ("files", &["signals", "sys"]),
    ("child", &["sys"]),
    ("link", &["sys", "trouble"]),
    ("call", &[]),
    ("conversation", &[EVERYTHING]),
    ("main", &[EVERYTHING]),
];

/// The chaperon: `conn < session < spawn < slurm < server`, above what needs nothing.
const CHAPERON: &[Row] = &[
    ("sys", &[]),
    ("refusal", &[]),
    ("budget", &["refusal"]),
    ("variables", &[]),
    ("files", &[]),
    ("audit", &[]),
    ("limiter", &[]),
    // What a session holds of records and questions, as data.
    ("cache", &[]),
    ("submitters", &[]),
    ("desk", &["budget", "refusal", "variables"]),
    ("conn", &["budget", "refusal", "sys"]),
    (
        "session",
        &[
            "audit",
            "budget",
            "cache",
            "desk",
            "limiter",
            "submitters",
            "variables",
        ],
    ),
    // Alone in starting processes.
    (
        "spawn",
        &["budget", "conn", "desk", "refusal", "session", "sys"],
    ),
    (
        "slurm",
        &[
            "audit",
            "cache",
            "conn",
            "desk",
            "files",
            "refusal",
            "session",
            "spawn",
            "submitters",
            "variables",
        ],
    ),
    ("server", &[EVERYTHING]),
    ("main", &[EVERYTHING]),
];

/// Inside the chaperon's `slurm`: the commands use the rest, the rest uses no command.
const SLURM: &[Row] = &[
    ("options", &[]),
    ("parse", &["options"]),
    ("explain", &["limits", "options", "parse"]),
    ("ids", &[]),
    ("export", &[]),
    ("streams", &[]),
    ("multi_prog", &[]),
    ("cluster", &[]),
    ("query", &[]),
    ("request", &[]),
    ("records", &["cluster"]),
    ("shown", &["records"]),
    ("format_fields", &["shown"]),
    ("format", &["format_fields"]),
    ("format_lines", &["format", "format_fields", "ids", "shown"]),
    ("submitted", &["query", "records"]),
    ("scope", &["ids", "query", "records", "submitted"]),
    ("limits", &["ids", "parse", "scope", "submitted"]),
    ("submission", &["export", "limits", "parse", "request"]),
    ("commands", &[EVERYTHING]),
];

/// What the tracer records, and how it is asked, as data.
const EVENTS: &[Row] = &[
    ("text", &[]),
    ("raw", &[]),
    ("record", &[]),
    ("protocol", &["raw"]),
    ("client", &["protocol"]),
    // What the launcher hands to the program that shows trails.
    ("ask", &["protocol", "raw"]),
];

/// The tracer: kernel and trails know nothing of each other, and the service has both.
const TRACER: &[Row] = &[
    ("sys", &[]),
    ("cli", &[]),
    ("kernel", &["sys"]),
    ("trail", &["sys"]),
    ("service", &["kernel", "sys", "trail"]),
    ("main", &[EVERYTHING]),
];

/// What shows trails: live, as a report, or of one command.
const TRAIL: &[Row] = &[
    ("text", &[]),
    ("clock", &[]),
    ("sensitive", &[]),
    ("fault", &["text"]),
    // The conversation with the tracer.
    ("link", &["fault", "text"]),
    // What was read so far, counted.
    ("model", &["sensitive"]),
    ("line", &["clock", "model", "text"]),
    (
        "report",
        &["clock", "fault", "link", "model", "sensitive", "text"],
    ),
    (
        "trace",
        &["fault", "line", "link", "model", "report", "text"],
    ),
    (
        "watch",
        &["clock", "fault", "line", "link", "model", "report", "text"],
    ),
    ("main", &[EVERYTHING]),
];

/// The module path of a source file: `config/load.rs` is `["config", "load"]`, the root is `[]`.
pub(crate) fn module_of(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if stem == "lib" {
        Vec::new()
    } else {
        stem.split('/').map(str::to_owned).collect()
    }
}

/// Whether the whole file is tests, and so under no layer.
fn is_test_module(module: &[String]) -> bool {
    module
        .iter()
        .skip(1)
        .any(|name| name == "tests" || name.ends_with("_tests"))
}

/// Complaints about edges that the table lacks, about modules without a row, and about cycles.
/// `tree` holds the text of each file by its path from the root of the tree.
pub(crate) fn layers(tree: &BTreeMap<String, String>, house: &House) -> Vec<String> {
    let root = house.root;
    let mut complaints = Vec::new();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let files: Vec<(&str, &str, Vec<String>)> = tree
        .iter()
        .filter_map(|(file, text)| {
            let file = file.strip_prefix(root).filter(|f| f.ends_with(".rs"))?;
            Some((file, text.as_str(), module_of(file)))
        })
        .filter(|(_, _, module)| !is_test_module(module))
        .collect();
    let modules: BTreeSet<&String> = files
        .iter()
        .filter_map(|(_, _, module)| inside(module, house.within)?.first())
        .collect();
    for module in &modules {
        if !house.uses.iter().any(|(name, _)| name == module) {
            let place = [house.within, &[module.as_str()]].concat().join("/");
            complaints.push(format!(
                "{root}{place}: no row in the table of tests/house/layers.rs"
            ));
        }
    }
    for (file, text, module) in &files {
        let Some(from) = inside(module, house.within).and_then(<[String]>::first) else {
            continue;
        };
        let allowed = house
            .uses
            .iter()
            .find(|(name, _)| name == from)
            .map_or(&[][..], |(_, uses)| uses);
        let tokens = lex::without_tests(&lex::tokens(text));
        for path in lex::paths(&tokens, module, house.krate) {
            let Some(used) = inside(&path.segments, house.within) else {
                continue;
            };
            let Some(to) = used.first().filter(|to| *to != from) else {
                continue;
            };
            let full = used.join("::");
            let line = path.line;
            if !modules.contains(to) {
                complaints.push(format!("{root}{file}:{line}: `{full}` names no module"));
            } else if allowed.contains(&EVERYTHING) || allowed.iter().any(|a| below(&full, a)) {
                edges.entry(from.clone()).or_default().insert(to.clone());
            } else {
                complaints.push(format!("{root}{file}:{line}: {from} may not use `{full}`"));
            }
        }
    }
    if let Some(cycle) = cycle(&edges) {
        complaints.push(format!(
            "{root}: modules use each other in a circle: {}",
            cycle.join(" -> ")
        ));
    }
    complaints
}

/// The rest of a path behind `within`, if it begins so.
fn inside<'a>(path: &'a [String], within: &[&str]) -> Option<&'a [String]> {
    let begins = path.len() >= within.len() && path.iter().zip(within).all(|(a, b)| a == b);
    begins.then(|| &path[within.len()..])
}

/// Whether the path `full` is `prefix` or lies below it.
fn below(full: &str, prefix: &str) -> bool {
    full.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// One circle in the graph, its first module repeated at the end.
fn cycle(edges: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(
        node: &str,
        edges: &BTreeMap<String, BTreeSet<String>>,
        trail: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = trail.iter().position(|n| n == node) {
            let mut found = trail[start..].to_vec();
            found.push(node.to_owned());
            return Some(found);
        }
        if done.contains(node) {
            return None;
        }
        trail.push(node.to_owned());
        let found = edges
            .get(node)
            .into_iter()
            .flatten()
            .find_map(|next| visit(next, edges, trail, done));
        trail.pop();
        done.insert(node.to_owned());
        found
    }
    let mut done = BTreeSet::new();
    edges
        .keys()
        .find_map(|node| visit(node, edges, &mut Vec::new(), &mut done))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Row] = &[
        ("config", &[]),
        ("policy", &["config"]),
        ("plan", &["policy", "config::source"]),
        ("launch", &[EVERYTHING]),
        ("report", &[EVERYTHING]),
        ("session", &[]),
    ];

    fn check_within(within: &'static [&'static str], files: &[(&str, &str)]) -> Vec<String> {
        let tree = files
            .iter()
            .map(|(f, t)| (format!("src/{f}"), (*t).to_owned()))
            .collect();
        let house = House {
            root: "src/",
            krate: "agent_sandbox",
            within,
            uses: TABLE,
        };
        layers(&tree, &house)
    }

    fn check(files: &[(&str, &str)]) -> Vec<String> {
        check_within(&[], files)
    }

    #[test]
    fn the_permitted_direction_passes() {
        let files = [
            ("lib.rs", "pub mod config; pub mod policy;"),
            ("config/source.rs", "pub struct Source;"),
            (
                "policy/mod.rs",
                "use crate::config::load; use self::merge::x; use super::config;",
            ),
            (
                "plan/env.rs",
                "use crate::config::source::Source; use super::check;",
            ),
            ("plan/tests.rs", "use crate::launch::x;"),
            ("launch.rs", "// crate::nothing\nuse crate::plan;"),
        ];
        assert_eq!(check(&files), Vec::<String>::new());
    }

    #[test]
    fn the_other_direction_is_refused() {
        let files = [
            ("config/mod.rs", "\nuse crate::policy::P;"),
            ("policy/mod.rs", ""),
        ];
        assert_eq!(
            check(&files),
            ["src/config/mod.rs:2: config may not use `policy::P`"]
        );
        let files = [
            ("config/load.rs", ""),
            ("plan.rs", "fn f() { super::config::load::x() }"),
        ];
        assert_eq!(
            check(&files),
            ["src/plan.rs:1: plan may not use `config::load::x`"]
        );
    }

    #[test]
    fn unknown_modules_and_root_items_are_refused() {
        assert_eq!(check(&[("utils.rs", "")]).len(), 1);
        assert_eq!(check(&[("plan.rs", "use crate::Thing;")]).len(), 1);
    }

    #[test]
    fn a_circle_is_refused_even_where_the_table_permits_it() {
        let files = [
            ("launch.rs", "use crate::report;"),
            ("report.rs", "use crate::launch;"),
        ];
        assert_eq!(
            check(&files),
            ["src/: modules use each other in a circle: launch -> report -> launch"]
        );
    }

    #[test]
    fn modules_inside_a_module_have_layers_of_their_own() {
        let files = [
            ("config.rs", "use crate::slurm::plan;"),
            ("slurm/mod.rs", "pub mod config; pub mod policy;"),
            ("slurm/config.rs", "use crate::plan; use super::policy::P;"),
            ("slurm/policy/merge.rs", "use super::super::config;"),
            ("slurm/policy_tests.rs", "use crate::slurm::launch;"),
        ];
        assert_eq!(
            check_within(&["slurm"], &files),
            ["src/slurm/config.rs:1: config may not use `policy::P`"]
        );
        assert_eq!(
            check_within(&["slurm"], &[("slurm/utils.rs", "")]),
            ["src/slurm/utils: no row in the table of tests/house/layers.rs"]
        );
    }

    #[test]
    fn the_tables_name_only_modules_that_have_a_row() {
        for house in HOUSES {
            for (module, uses) in house.uses {
                for used in uses.iter().filter(|u| **u != EVERYTHING) {
                    let top = used.split("::").next();
                    assert!(
                        house.uses.iter().any(|(m, _)| Some(*m) == top),
                        "{}: {module} uses {used}",
                        house.root
                    );
                }
            }
        }
    }
}
