//! Who may use whom inside `src/`, as a table, and the check that the code keeps to it.

use std::collections::{BTreeMap, BTreeSet};

use crate::lex;

/// The row's module may use every other module: it stands at the right end.
pub(crate) const EVERYTHING: &str = "*";

/// Each top-level module and the modules, or parts of modules, that it may use.
///
/// `cli, config < policy < plan < backend < launch`, and `host` feeds `plan`: each uses only what
/// stands left of it.
pub(crate) const USES: &[(&str, &[&str])] = &[
    ("sys", &[]),
    ("env_vars", &[]),
    ("failure", &[]),
    ("cli", &[]),
    ("config", &[]),
    ("policy", &["config"]),
    ("host", &["env_vars", "policy", "sys"]),
    ("plan", &["config::source", "env_vars", "host", "policy"]),
    // What launcher and init say to each other, as data.
    ("handoff", &[]),
    ("backend", &["plan"]),
    // Runs inside the jail: it gets a handoff and has no policy to ask.
    ("init", &["handoff", "sys"]),
    ("report", &[EVERYTHING]),
    ("session", &[]),
    // Reads what chaperons recorded.
    ("audit", &[]),
    ("launch", &[EVERYTHING]),
    // A launch that Slurm asks for, on a compute node.
    ("job", &[EVERYTHING]),
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
/// `files` holds each file of `src/` by its path below it, with its text.
pub(crate) fn layers(files: &BTreeMap<String, String>, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let modules: BTreeSet<String> = files
        .keys()
        .filter_map(|file| module_of(file).first().cloned())
        .collect();
    for module in &modules {
        if !table.iter().any(|(name, _)| name == module) {
            complaints.push(format!(
                "src/{module}: no row in the table of tests/house/layers.rs"
            ));
        }
    }
    for (file, text) in files {
        let module = module_of(file);
        if is_test_module(&module) {
            continue;
        }
        let Some(from) = module.first() else { continue };
        let allowed = table
            .iter()
            .find(|(name, _)| name == from)
            .map_or(&[][..], |(_, uses)| uses);
        for path in lex::paths(
            &lex::without_tests(&lex::tokens(text)),
            &module,
            "agent_sandbox",
        ) {
            let Some(to) = path.segments.first() else {
                continue;
            };
            if to == from {
                continue;
            }
            let full = path.segments.join("::");
            let line = path.line;
            if !modules.contains(to) {
                complaints.push(format!(
                    "src/{file}:{line}: `{full}` names no module of src/"
                ));
            } else if allowed.contains(&EVERYTHING) || allowed.iter().any(|a| below(&full, a)) {
                edges.entry(from.clone()).or_default().insert(to.clone());
            } else {
                complaints.push(format!("src/{file}:{line}: {from} may not use `{full}`"));
            }
        }
    }
    if let Some(cycle) = cycle(&edges) {
        complaints.push(format!(
            "src: modules use each other in a circle: {}",
            cycle.join(" -> ")
        ));
    }
    complaints
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

    const TABLE: &[(&str, &[&str])] = &[
        ("config", &[]),
        ("policy", &["config"]),
        ("plan", &["policy", "config::source"]),
        ("launch", &[EVERYTHING]),
        ("report", &[EVERYTHING]),
        ("session", &[]),
    ];

    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let files = files
            .iter()
            .map(|(f, t)| ((*f).to_owned(), (*t).to_owned()))
            .collect();
        layers(&files, TABLE)
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
            ["src: modules use each other in a circle: launch -> report -> launch"]
        );
    }

    #[test]
    fn the_table_names_only_modules_that_have_a_row() {
        for (module, uses) in USES {
            for used in uses.iter().filter(|u| **u != EVERYTHING) {
                let top = used.split("::").next();
                assert!(
                    USES.iter().any(|(m, _)| Some(*m) == top),
                    "{module} uses {used}"
                );
            }
        }
    }
}
