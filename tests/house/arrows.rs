//! The arrows between modules and between files, held against the tables of `layers`.

use std::collections::{BTreeMap, BTreeSet};

use crate::layers::{House, REEXPORTED};
use crate::lex;

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

/// Complaints about circles between the rooms of a crate whose source is at `root`. A room is a file, together
/// with the files in the folder of its name: `x.rs` and `x/` are one. A `mod.rs` is a room beside those of its
/// folder: what it declares alone ties it to nothing.
pub(crate) fn circles(tree: &BTreeMap<String, String>, root: &str, krate: &str) -> Vec<String> {
    let files: BTreeMap<Vec<String>, (&str, &str)> = tree
        .iter()
        .filter_map(|(file, text)| {
            let file = file.strip_prefix(root).filter(|f| f.ends_with(".rs"))?;
            Some((module_of(file), (file, text.as_str())))
        })
        .filter(|(module, _)| !is_test_module(module))
        .collect();
    // The room of the longest beginning of a path that is a module.
    let room = |path: &[String]| {
        let known = (1..=path.len()).filter_map(|end| {
            let (file, _) = files.get(&path[..end])?;
            Some((end, *file))
        });
        let mut last = None;
        for (_, file) in known {
            last = Some(file.to_owned());
            if !file.ends_with("/mod.rs") {
                break;
            }
        }
        last
    };
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, (_, text)) in &files {
        let Some(from) = room(module) else { continue };
        let tokens = lex::without_tests(&lex::tokens(text));
        for path in lex::paths(&tokens, module, krate) {
            let to = room(&path.segments).filter(|to| *to != from);
            edges.entry(from.clone()).or_default().extend(to);
        }
    }
    let mut complaints = Vec::new();
    while let Some(cycle) = cycle(&edges) {
        complaints.push(format!(
            "{root}: files use each other in a circle: {}",
            cycle.join(" -> ")
        ));
        // Without one of its arrows, to find the next.
        if let [from, to, ..] = cycle.as_slice()
            && let Some(all) = edges.get_mut(from)
        {
            all.remove(to);
        }
    }
    complaints
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
    let from_below: BTreeSet<String> = match (root, house.within) {
        (root, []) if root == REEXPORTED.0 => tree
            .keys()
            .filter_map(|file| {
                module_of(file.strip_prefix(REEXPORTED.1)?)
                    .into_iter()
                    .next()
            })
            .collect(),
        _ => BTreeSet::new(),
    };
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
            if !modules.contains(to) && !from_below.contains(to) {
                complaints.push(format!("{root}{file}:{line}: `{full}` names no module"));
            } else if allowed.iter().any(|a| below(&full, a)) {
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
    use crate::layers::{HOUSES, Row};

    const TABLE: &[Row] = &[
        ("config", &[]),
        ("policy", &["config"]),
        ("plan", &["policy", "config::source"]),
        ("launch", &["plan", "report"]),
        ("report", &["launch"]),
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
                for used in uses.iter() {
                    let top = used.split("::").next();
                    let below = HOUSES.iter().find(|base| {
                        house.root == REEXPORTED.0
                            && base.root == REEXPORTED.1
                            && base.within.is_empty()
                    });
                    let mut rows = house
                        .uses
                        .iter()
                        .chain(below.iter().flat_map(|base| base.uses));
                    assert!(
                        rows.any(|(m, _)| Some(*m) == top),
                        "{}: {module} uses {used}",
                        house.root
                    );
                }
            }
        }
    }

    #[test]
    fn a_circle_between_files_is_found_and_one_room_is_none() {
        let find = |files: &[(&str, &str)]| {
            let files = files.iter();
            let tree = files.map(|(f, t)| (format!("src/{f}"), (*t).to_owned()));
            circles(&tree.collect(), "src/", "agent_sandbox")
        };
        let files = [
            ("lib.rs", "pub mod plan;"),
            (
                "plan/mod.rs",
                "mod hides; mod bounds; pub use self::hides::Hides; pub struct Plan;",
            ),
            (
                "plan/hides.rs",
                "mod rules; use super::bounds::Bound; use self::rules::Rule;",
            ),
            (
                "plan/hides/rules.rs",
                "use super::Hides; pub(in crate::plan) struct Rule;",
            ),
            ("plan/bounds.rs", "use std::path::Path;"),
        ];
        assert_eq!(find(&files), Vec::<String>::new());
        let mut up = files;
        up[3].1 = "use crate::plan::Plan;";
        assert_eq!(
            find(&up),
            [
                "src/: files use each other in a circle: plan/hides.rs -> plan/mod.rs -> plan/hides.rs"
            ]
        );
        let mut aside = files;
        aside[4].1 = "fn f() { super::hides::all() }";
        assert_eq!(find(&aside).len(), 1);
    }
}
