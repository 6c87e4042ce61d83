//! Random hosts, policies and steps: rules and access map are what the steps say, by a definition of
//! their own.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use agent_sandbox::host::HostFacts;
use agent_sandbox::host::files::{Files, Look};
use agent_sandbox::plan::{Access, Mount, Plan, Step, Why};
use agent_sandbox_landlock::access::{Permission, Right, Rule};
use agent_sandbox_landlock::{Thing, Translated, translate};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{STAGE, text};
use crate::host::plain;
use crate::random;
use crate::scenario::Scenario;
use crate::tree::{Tree, What};

/// What the steps of a plan say about a real path, by the deepest that decides.
fn said(plan: &Plan, host: &HostFacts, tree: &Tree, path: &Path) -> Permission {
    if host
        .join_directories
        .iter()
        .any(|place| path.starts_with(place))
    {
        return Permission::None;
    }
    let mut permission = Permission::None;
    for step in plan.steps.iter().filter(|step| path.starts_with(&step.at)) {
        permission = match &step.mount {
            Mount::Bind { from, access, .. } if *from == step.at => match access {
                Access::Read => Permission::Read,
                Access::Write => Permission::Write,
            },
            Mount::Proc => Permission::Read,
            Mount::HideFile
            | Mount::HideDirectory
            | Mount::Tmpfs { .. }
            | Mount::Directory { .. }
            | Mount::Dev => Permission::None,
            Mount::Link { .. } => match tree.get(&step.at).map(|node| &node.what) {
                Some(What::Link(_)) | None => permission,
                _ => Permission::None,
            },
            _ => permission,
        };
    }
    permission
}

/// What Landlock lets be done with each existing file, as the kernel finds it: the rules at it and
/// above it.
fn ruled(rules: &[Rule], path: &Path) -> Permission {
    let rules = rules.iter().filter(|rule| path.starts_with(rule.path()));
    let each = rules.map(|rule| match rule.right {
        Right::Read | Right::ReadFiles => Permission::Read,
        Right::Write | Right::Device => Permission::Write,
    });
    each.max().unwrap_or(Permission::None)
}

pub(super) fn complaints(translated: &Translated, scenario: &Scenario) -> Vec<String> {
    let mut all = misshapen(translated);
    let shim = scenario
        .host
        .slurm
        .as_ref()
        .and_then(|slurm| slurm.shim.as_deref());
    for (path, node) in scenario.tree.below(Path::new("/")) {
        if path.starts_with("/dev") || path.parent().is_none() || Some(path.as_path()) == shim {
            continue;
        }
        let said = said(&translated.plan, &scenario.host, &scenario.tree, path);
        let permission = translated.config.access_map.permission(path);
        if permission != said {
            all.push(format!(
                "{} is {permission:?} and should be {said:?}",
                path.display()
            ));
        }
        let ruled = ruled(&translated.rules, path);
        if ruled > said {
            all.push(format!(
                "a rule gives {}: {ruled:?}, not {said:?}",
                path.display()
            ));
        }
        // What exists and is a file is had by a rule; unless it is in no way to be opened.
        let unusual = matches!(node.what, What::Link(_) | What::Device | What::Hung);
        let gone = path.ancestors().any(|above| {
            scenario
                .tree
                .get(above)
                .is_some_and(|node| node.what == What::Hung || !node.readable)
        });
        if matches!(node.what, What::File(_)) && !unusual && !gone && ruled < said {
            all.push(format!(
                "no rule gives {}: {ruled:?}, not {said:?}",
                path.display()
            ));
        }
    }
    all
}

/// What the kernel, the mediator and the launch rely on: the order of what is made and of rules, and that
/// an entry which is left to Landlock has a rule.
fn misshapen(translated: &Translated) -> Vec<String> {
    let mut all = Vec::new();
    let mut made = BTreeMap::from([(PathBuf::new(), true)]);
    for staged in &translated.staged {
        let at = staged.at.as_path();
        let plain = at
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        let parent = at.parent().and_then(|parent| made.get(parent));
        if !plain || parent != Some(&true) || made.contains_key(at) {
            all.push(format!("{} has no place", at.display()));
        }
        made.insert(at.into(), matches!(staged.what, Thing::Directory(_)));
    }
    for rules in [&translated.rules, &translated.config.rules] {
        if !rules.is_sorted_by(|one, next| one.path() < next.path()) {
            all.push("rules are out of order".to_owned());
        }
    }
    for entry in translated.config.access_map.entries() {
        let ruled = ruled(&translated.rules, entry.path());
        let socket = translated.socket.as_deref() == Some(entry.path());
        let fits = match entry.permission {
            Permission::None | Permission::Own => !entry.direct && ruled == Permission::None,
            Permission::Read => entry.direct == (ruled == Permission::Read),
            Permission::Write => socket || entry.direct == (ruled == Permission::Write),
        };
        if !fits {
            let (at, direct) = (entry.path().display(), entry.direct);
            all.push(format!(
                "{at}: direct is {direct}, and rules give {ruled:?}"
            ));
        }
    }
    all
}

proptest! {
    #![proptest_config(random::config(1000))]

    /// For every random host and policy: no rule and no entry gives more than the steps say, and
    /// existing files have all of it.
    #[test]
    fn rules_and_territory_are_what_the_steps_say(case in random::case()) {
        let scenario = case.scenario();
        let Ok(plan) = scenario.plan() else { return Ok(()) };
        match translate(plan, &scenario.host, &scenario.tree, Path::new(STAGE), &[]) {
            Err(error) => {
                let text = error.to_string();
                prop_assert!(!text.contains("refusing an unsafe"), "{text}");
                prop_assert!(text.contains("listed") || text.contains("changes while"), "{text}");
            }
            Ok(translated) => {
                let complaints = complaints(&translated, &scenario);
                if !complaints.is_empty() {
                    let steps = crate::scenario::text(&translated.plan);
                    let text = text(&translated);
                    return Err(TestCaseError::fail(format!("{}\n{steps}\n{text}", complaints.join("\n"))));
                }
            }
        }
    }

    /// The same for steps that no policy would lead to.
    #[test]
    fn whatever_the_steps_are(nodes in nodes(), steps in steps()) {
        let scenario = Scenario::new(grown(&nodes)).only_policy("files.read = [\"/usr\"]");
        let mut plan = scenario.plan().unwrap();
        lay(&mut plan, &scenario.tree, &steps);
        let translated = translate(plan, &scenario.host, &scenario.tree, Path::new(STAGE), &[]);
        let translated = translated.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let complaints = complaints(&translated, &scenario);
        prop_assert!(complaints.is_empty(), "{}\n{}", complaints.join("\n"), text(&translated));
    }
}

/// Places below `/data`, few enough to meet.
fn place() -> impl Strategy<Value = PathBuf> {
    let names = prop::collection::vec(prop::sample::select(&["a", "b", "c"][..]), 0..4);
    names.prop_map(|names| {
        names
            .iter()
            .fold("/data".into(), |path: PathBuf, name| path.join(name))
    })
}

fn nodes() -> impl Strategy<Value = Vec<(PathBuf, What)>> {
    let what = prop_oneof![
        3 => Just(What::Directory),
        3 => Just(What::File(Vec::new())),
        1 => Just(What::Link("/data/a".into())),
        1 => Just(What::Socket),
    ];
    prop::collection::vec((place(), what), 1..24)
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    Read,
    Write,
    Hide,
    Empty,
}

fn steps() -> impl Strategy<Value = Vec<(PathBuf, Wish)>> {
    let wish = prop::sample::select(&[Wish::Read, Wish::Write, Wish::Hide, Wish::Empty][..]);
    prop::collection::vec((place(), wish), 1..8)
}

fn grown(nodes: &[(PathBuf, What)]) -> Tree {
    let mut tree = plain();
    tree.put("/data", What::Directory);
    for (path, what) in nodes {
        tree.put(path, what.clone());
    }
    tree
}

/// Lays the steps over those of a plan, where something stands that can be mounted over.
fn lay(plan: &mut Plan, tree: &Tree, steps: &[(PathBuf, Wish)]) {
    let mut all: BTreeMap<PathBuf, Step> = BTreeMap::new();
    for step in plan.steps.drain(..) {
        all.insert(step.at.clone(), step);
    }
    for (at, wish) in steps {
        let Look::Found(found) = tree.look(at) else {
            continue;
        };
        if found.real != *at {
            continue;
        }
        let directory = matches!(tree.get(at).map(|node| &node.what), Some(What::Directory));
        let bind = |access| Mount::Bind {
            from: at.clone(),
            access,
            id: found.id,
        };
        let mount = match wish {
            Wish::Read => bind(Access::Read),
            Wish::Write => bind(Access::Write),
            Wish::Hide if directory => Mount::HideDirectory,
            Wish::Hide => Mount::HideFile,
            Wish::Empty if directory => Mount::Directory { mode: 0o755 },
            Wish::Empty => continue,
        };
        let why = Why::Every("a test");
        all.insert(
            at.clone(),
            Step {
                at: at.clone(),
                mount,
                why,
            },
        );
    }
    plan.steps = all.into_values().collect();
}
