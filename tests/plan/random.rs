//! Random hosts and random policies: no panic, and every plan passes the judge.

use std::path::{Path, PathBuf};

use agent_sandbox::host::slurm::Slurm;
use agent_sandbox_wire::command::Command;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError};

use crate::host;
use crate::judge;
use crate::scenario::Scenario;
use crate::tree::{Node, What};

/// Few names, so that what is planted and what is asked for meet.
const NAMES: [&str; 8] = [".ssh", "key", ".config", "gh", "work", "sub", "a", ".git"];
const ROOTS: [&str; 5] = [
    "/home/ada",
    "/home/ada",
    "/home/ada/project",
    "/data",
    "/nfs/ada",
];

const SQUEUE: &str = "/usr/bin/squeue";
const SHIM: &str = "/usr/libexec/agent-sandbox/agent-sandbox-shim";

pub(crate) fn path() -> impl Strategy<Value = String> {
    let names = prop::collection::vec(prop::sample::select(&NAMES[..]), 0..4);
    (prop::sample::select(&ROOTS[..]), names).prop_map(|(root, names)| {
        names
            .iter()
            .fold(root.to_owned(), |path, name| format!("{path}/{name}"))
    })
}

pub(crate) fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        4 => Just(What::File(b"x".to_vec())),
        3 => Just(What::Directory),
        4 => path().prop_map(|target| What::Link(target.into())),
        1 => prop::sample::select(&["..", "../..", ".", "sub", "../work", "/", "/etc"][..])
            .prop_map(|target| What::Link(target.into())),
        1 => Just(What::Socket),
        1 => Just(What::Hung),
    ]
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    nodes: Vec<(String, What)>,
    unreadable: Vec<String>,
    lists: [Vec<String>; 8],
    mode: &'static str,
    project: String,
    second_home: bool,
    git: bool,
    slurm: bool,
}

fn lists() -> impl Strategy<Value = [Vec<String>; 8]> {
    let list = |most| prop::collection::vec(path(), 0..most);
    [
        list(3),
        list(3),
        list(3),
        list(3),
        list(2),
        list(3),
        list(4),
        list(2),
    ]
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    (
        prop::collection::vec((path(), what()), 0..24),
        prop::collection::vec(path(), 0..2),
        lists(),
        prop::sample::select(&["tmpfs", "tmpfs", "restricted", "read", "write"][..]),
        prop_oneof![2 => Just("/home/ada/project".to_owned()), 3 => path()],
        prop::bool::weighted(0.2),
        prop::bool::ANY,
        prop::bool::weighted(0.3),
    )
        .prop_map(
            |(nodes, unreadable, lists, mode, project, second_home, git, slurm)| Case {
                nodes,
                unreadable,
                lists,
                mode,
                project,
                second_home,
                git,
                slurm,
            },
        )
}

fn quoted(paths: &[String]) -> String {
    let each: Vec<String> = paths.iter().map(|path| format!("{path:?}")).collect();
    format!("[{}]", each.join(", "))
}

/// Lists of `[home]` name their entries by `~`.
fn in_home(paths: &[String]) -> String {
    let each: Vec<String> = paths
        .iter()
        .filter_map(|path| path.strip_prefix("/home/ada/"))
        .map(|below| format!("~/{below}"))
        .collect();
    quoted(&each)
}

impl Case {
    pub(crate) fn scenario(&self) -> Scenario {
        let mut tree = host::system();
        tree.put(
            "/home/ada/.config/agent-sandbox/config.toml",
            What::File(Vec::new()),
        );
        for (path, what) in &self.nodes {
            tree.put(path, what.clone());
        }
        tree.put("/home/ada/project", What::Directory);
        tree.put(
            "/home/ada/.config/agent-sandbox/config.toml",
            What::File(Vec::new()),
        );
        if self.git {
            for name in ["hooks", "objects", "refs"] {
                tree.put(format!("/home/ada/project/.git/{name}"), What::Directory);
            }
            tree.put("/home/ada/project/.git/config", What::File(Vec::new()));
        }
        // Slurm's commands in a directory of root's, and what has their name elsewhere.
        let mut covers: Vec<PathBuf> = Vec::new();
        for place in [SQUEUE, SHIM, "/data/work/squeue", "/home/ada/work/squeue"] {
            tree.put(place, What::File(Vec::new()));
            let plain = |node: &Node| matches!(node.what, What::File(_));
            if place != SHIM && tree.get(Path::new(place)).is_some_and(plain) {
                covers.push(place.into());
            }
        }
        for path in &self.unreadable {
            tree.make_unreadable(Path::new(path));
        }
        let [
            read,
            write,
            home_read,
            home_write,
            seed,
            protect,
            hide,
            unhide,
        ] = &self.lists;
        let policy = format!(
            "[home]\nmode = {:?}\nread = {}\nwrite = {}\nseed = {}\nprotect = {}\n\
             [files]\nread = {}\nwrite = {}\nhide = {}\nunhide = {}\n",
            self.mode,
            in_home(home_read),
            in_home(home_write),
            in_home(seed),
            in_home(protect),
            quoted(&[&["/usr".to_owned(), "/etc".to_owned()], &read[..]].concat()),
            quoted(write),
            quoted(
                &[
                    &[
                        "/home/ada/.config/agent-sandbox".to_owned(),
                        "/home/ada/.local/state/agent-sandbox".to_owned()
                    ],
                    &hide[..]
                ]
                .concat()
            ),
            quoted(unhide),
        );
        Scenario::new(tree)
            .only_policy(&policy)
            .project(&self.project)
            .facts(|facts| {
                if self.second_home {
                    facts.passwd_home = Some(PathBuf::from("/nfs/ada"));
                }
                facts.slurm = self.slurm.then(|| Slurm {
                    commands: vec![(Command::Squeue, SQUEUE.into())],
                    covers,
                    shim: Some(SHIM.into()),
                    chaperon: Some(SHIM.into()),
                    ..Slurm::default()
                });
            })
    }
}

/// The same cases on every run, so that a failure is somebody's change; AGENT_SANDBOX_TEST_SEED
/// and PROPTEST_CASES look further.
pub(crate) fn config(cases: u32) -> Config {
    let seed = std::env::var("AGENT_SANDBOX_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(cases);
    Config {
        cases,
        rng_seed: RngSeed::Fixed(seed.unwrap_or(2)),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config(1000))]

    /// Every plan that comes out passes the judge, and the planner never runs into its own checks.
    #[test]
    fn every_plan_passes_the_judge(case in case()) {
        let scenario = case.scenario();
        match scenario.plan() {
            Err(error) => {
                let text = error.to_string();
                prop_assert!(!text.contains("refusing an unsafe plan"), "{text}");
            }
            Ok(plan) => {
                let complaints = judge::complaints(&plan, &scenario.merged(), &scenario.host, &scenario.tree);
                if !complaints.is_empty() {
                    let steps = crate::scenario::text(&plan);
                    return Err(TestCaseError::fail(format!("{}\n{steps}", complaints.join("\n"))));
                }
            }
        }
    }
}
