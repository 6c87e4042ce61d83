//! For any enforced layers, any user's policy, any options and any host: the plan allows no more than
//! the enforced layers alone.

use std::cell::Cell;
use std::path::PathBuf;

use agent_sandbox::config::source::{Source, Sourced};
use agent_sandbox::host::mount_table::Alias;
use agent_sandbox::plan::Step;
use agent_sandbox::policy::PathSpec;
use agent_sandbox::policy::merge::{Additions, HOME_MODES};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

use super::case::{EVENTS, Says, Traced, Words};
use super::oracle::{Oracle, marker};
use super::profile;
use crate::host;
use crate::kept;
use crate::random::{config, path, what};
use crate::scenario::{Scenario, text};
use crate::tree::What;

const NAMES: [&str; 7] = [".ssh", "key", ".config", "work", "sub", "a", "w*"];
const VARIABLES: [&str; 8] = [
    "*_TOKEN", "CI_*", "*", "LANG", "SECRET", "COPY", "CI_TOKEN", "PATH",
];
const VALUES: [&str; 3] = ["ghp_*", "*0123456789*", "C.*"];
const DEVICES: [&str; 4] = ["/dev/gpu*", "/dev/gpu0", "/dev/disk0", "/dev/*"];
const MODULES: [&str; 4] = ["gcc", "gcc/12", "gcc/12/x", "gccx"];

/// As the built-in policy does.
const OWN: &str = "[files]\nhide = [\"~/.config/agent-sandbox\", \"~/.local/state/agent-sandbox\", \
    \"/home/ada/.config/agent-sandbox\", \"/home/ada/.local/state/agent-sandbox\"]\n";

#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<(String, What)>,
    unreadable: Vec<String>,
    enforced: Vec<Says>,
    user: Says,
    profile: String,
    options: [Vec<String>; 3],
    option_home: Option<usize>,
    option_pass: Vec<String>,
    option_set: Vec<(String, String)>,
    project: String,
    home: Option<&'static str>,
    aliases: Vec<(&'static str, &'static str)>,
    git: bool,
}

/// A path in the home, whose last name may be a pattern.
fn in_home() -> impl Strategy<Value = String> {
    let names = prop::collection::vec(prop::sample::select(&NAMES[..6]), 0..3);
    (names, prop::sample::select(&NAMES[..])).prop_map(|(names, last)| {
        let above: String = names.iter().map(|name| format!("{name}/")).collect();
        format!("~/{above}{last}")
    })
}

/// Any path, whose last name may be a pattern, by a link of root's or not.
fn anywhere() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => path(),
        2 => path().prop_map(|path| path.replacen("/data", "/scratch", 1)),
        2 => in_home(),
        2 => prop::sample::select(&["/data", "/usr", "/etc", "/home", "/nfs", "/nfs/ada", "/opt"][..])
            .prop_map(str::to_owned),
        1 => prop::sample::select(&["/data/w*", "/nfs/*", "/scratch/a*", "/*", "/home/*"][..])
            .prop_map(str::to_owned),
    ]
}

/// A path to hide: none above our own programs.
fn somewhere() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => path(),
        2 => path().prop_map(|path| path.replacen("/data", "/scratch", 1)),
        3 => in_home(),
        1 => prop::sample::select(&["/nfs/ada", "/opt", "/data/w*", "/nfs/*", "/scratch/a*"][..])
            .prop_map(str::to_owned),
    ]
    .prop_filter("there is a home and a project", |path| {
        !["/home/ada", "/home/ada/project"].contains(&path.as_str())
    })
}

fn some<T: std::fmt::Debug + Clone + 'static>(
    one: impl Strategy<Value = T> + 'static,
    weight: f64,
) -> BoxedStrategy<Option<Vec<T>>> {
    prop::option::weighted(weight, prop::collection::vec(one, 0..4)).boxed()
}

fn names(all: &'static [&'static str], weight: f64) -> BoxedStrategy<Option<Vec<String>>> {
    some(prop::sample::select(all).prop_map(str::to_owned), weight)
}

fn set() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop::sample::select(&["CI_TOKEN", "LANG", "SECRET", "NEW", "COPY"][..]);
    let value = prop::sample::select(&["ghp_1", "C.ASCII", "x", "0123456789abcdefghij"][..]);
    let one = (name, value).prop_map(|(name, value)| (name.to_owned(), value.to_owned()));
    // A table of TOML names each variable once.
    prop::collection::vec(one, 0..3).prop_map(|mut all| {
        all.sort();
        all.dedup_by(|a, b| a.0 == b.0);
        all
    })
}

fn traced() -> impl Strategy<Value = Traced> {
    (
        0..3_usize,
        prop::sample::subsequence(EVENTS.to_vec(), 0..3),
        [prop::bool::ANY, prop::bool::ANY, prop::bool::ANY],
        1_u64..9,
        prop::sample::subsequence(vec!["--key=*", "*secret*"], 0..3),
    )
        .prop_map(|(mode, events, switches, every, redact)| Traced {
            mode,
            events,
            switches,
            every,
            redact,
        })
}

fn words() -> impl Strategy<Value = Words> {
    let word = |most: usize| prop::option::weighted(0.4, 0..most);
    let number = || prop::sample::select(&[0_u64, 1, 5, 9][..]);
    let switch = || prop::option::weighted(0.4, prop::bool::ANY);
    (
        (
            word(2),
            word(4),
            word(2),
            word(2),
            word(2),
            word(3),
            word(3),
            (word(3), word(2)),
        ),
        (
            switch(),
            switch(),
            word(2),
            prop::option::weighted(0.4, 1_u64..9),
        ),
        prop::option::weighted(0.4, [0..3_usize, 0..3]),
        prop::option::weighted(0.3, traced()),
        prop::option::weighted(0.4, [1_u64..9, 1_u64..9]),
        prop::option::weighted(0.4, number()),
        prop::option::weighted(0.4, number()),
        prop::option::weighted(0.4, [number(), number(), number(), number(), number()]),
    )
        .prop_map(
            |(words, single, demands, traced, sizes, shm, processes, limits)| {
                let (nested, keyctl, settings, timeout) = single;
                let (git, mode, users, network, slurm, scope, queries, (allocation, state)) = words;
                Words {
                    git,
                    mode,
                    users,
                    network,
                    slurm,
                    scope,
                    queries,
                    allocation,
                    state,
                    nested,
                    keyctl,
                    settings,
                    timeout,
                    demands,
                    traced,
                    sizes,
                    shm,
                    processes,
                    limits,
                }
            },
        )
}

/// A layer, each of whose lists that give is there with this weight.
fn says(weight: f64) -> impl Strategy<Value = Says> {
    let parents = || {
        prop_oneof![
            6 => Just(None),
            1 => some(anywhere(), 0.99),
            3 => Just(Some(vec!["/home".to_owned()])),
        ]
    };
    (
        (
            parents(),
            some(in_home(), weight),
            some(in_home(), weight),
            (some(in_home(), weight / 2.0), some(in_home(), weight / 2.0)),
            some(
                in_home().prop_filter("no pattern", |path| !path.contains('*')),
                0.3,
            ),
            some(anywhere(), weight),
            some(anywhere(), weight),
            some(somewhere(), 0.4),
            some(somewhere(), 0.4),
        ),
        (
            names(&VARIABLES, 0.4),
            names(&VARIABLES, 0.4),
            names(&VALUES, 0.3),
            set(),
            names(&DEVICES, 0.5),
            names(&DEVICES, 0.3),
            names(&MODULES, 0.5),
        ),
        words(),
    )
        .prop_map(|(paths, others, words)| {
            let (parents, home_read, home_write, own, protect, read, write, hide, unhide) = paths;
            let (seed, keep) = own;
            let (pass, env_hide, hide_values, set, allow, deny, load) = others;
            Says {
                parents,
                home_read,
                home_write,
                seed,
                keep,
                protect,
                read,
                write,
                hide,
                unhide,
                pass,
                env_hide,
                hide_values,
                set,
                allow,
                deny,
                load,
                words,
            }
        })
}

fn case() -> impl Strategy<Value = Case> {
    let paths = || prop::collection::vec(path(), 0..2);
    (
        (
            prop::collection::vec((path(), what()), 0..24),
            prop::option::weighted(0.2, path()).prop_map(Vec::from_iter),
            prop::collection::vec(says(0.5), 1..3),
            says(0.8),
            [paths().boxed(), paths().boxed(), paths().boxed()],
            profile::text(),
        ),
        (
            prop::option::weighted(0.3, 0..4_usize),
            names(&VARIABLES, 0.5),
            set(),
            prop_oneof![9 => Just("/home/ada/project".to_owned()), 1 => path()],
            prop::option::weighted(
                0.25,
                prop::sample::select(&["/data", "/data/work", "/home/ada/work", "/home"][..]),
            ),
            prop::sample::subsequence(
                vec![("/nfs/ada", "/home/ada"), ("/data/a", "/home/ada/.ssh")],
                0..3,
            ),
            (prop::bool::ANY, prop::bool::ANY),
        ),
    )
        .prop_map(|(files, rest)| {
            let (nodes, unreadable, enforced, user, options, profile) = files;
            let (option_home, option_pass, option_set, project, home, aliases, rest) = rest;
            let (git, except) = rest;
            let mut user = user;
            // A place that need not exist has no pattern.
            let keep = user.keep.iter_mut();
            keep.for_each(|all| all.retain(|path| !path.contains('*')));
            // Word for word what the site hides, and a way to see it.
            let hides = enforced.iter().filter_map(|layer| layer.hide.as_ref());
            for entry in hides.flatten().filter(|_| except) {
                user.unhide.get_or_insert_default().push(entry.clone());
                let list = match entry.starts_with("~/") {
                    true => &mut user.home_read,
                    false => &mut user.read,
                };
                list.get_or_insert_default().push(entry.clone());
            }
            Case {
                nodes,
                unreadable,
                enforced,
                user,
                profile,
                options,
                option_home,
                option_pass: option_pass.unwrap_or_default(),
                option_set,
                project,
                home,
                aliases,
                git,
            }
        })
}

impl Case {
    fn scenario(&self) -> Scenario {
        let mut tree = host::system();
        tree.put("/scratch", What::Link("/data".into()));
        tree.put(
            "/home/ada/.config/agent-sandbox/config.toml",
            What::File(Vec::new()),
        );
        for (path, what) in &self.nodes {
            // The directories themselves are root's.
            let parts = path.split('/').count();
            if parts > 2 {
                // Each file tells where it stands, so that a text tells which files it is made of.
                let what = match what {
                    What::File(_) => What::File(marker(path).into_bytes()),
                    other => other.clone(),
                };
                tree.put(path, what);
            }
        }
        tree.put("/data", What::Directory);
        for device in ["/dev/gpu0", "/dev/gpu1", "/dev/disk0"] {
            tree.put(device, What::Device);
        }
        tree.put("/home/ada/project", What::Directory);
        if self.git {
            tree.put("/home/ada/project/.git/hooks", What::Directory);
            tree.put("/home/ada/project/.git/config", What::File(Vec::new()));
        }
        for path in &self.unreadable {
            tree.make_unreadable(std::path::Path::new(path));
        }
        let mut scenario = Scenario::new(tree)
            .only_policy(&self.user.toml())
            .profile("base.toml", OWN)
            .profile("tool.toml", &self.profile)
            .project(&self.project)
            .options(self.additions())
            .variable("CI_TOKEN", "0123456789abcdefghij")
            .variable("SECRET", "zyxwvutsrqponmlkji")
            .variable("COPY", "in zyxwvutsrqponmlkji")
            .facts(|facts| {
                facts.home_aliases = self
                    .aliases
                    .iter()
                    .map(|(at, of)| Alias {
                        at: at.into(),
                        of: of.into(),
                    })
                    .collect();
                if let Some(home) = self.home {
                    facts.passwd_home = Some(std::mem::replace(&mut facts.home, home.into()));
                    facts.home_reals = vec![home.into(), "/home/ada".into()];
                }
            });
        for layer in &self.enforced {
            scenario = scenario.enforced(&layer.toml());
        }
        scenario
    }

    fn additions(&self) -> Additions {
        let source = Source::option("--option");
        let paths = |all: &[String]| {
            all.iter()
                .map(|path| Sourced::new(PathSpec::parse(path).unwrap(), source.clone()))
                .collect()
        };
        let [read, write, hide] = &self.options;
        let sourced = |value: &String| Sourced::new(value.clone(), source.clone());
        let set = self.option_set.iter();
        Additions {
            read: paths(read),
            write: paths(write),
            hide: paths(hide),
            pass: self.option_pass.iter().map(sourced).collect(),
            set: set
                .map(|pair| Sourced::new(pair.clone(), source.clone()))
                .collect(),
            home: self
                .option_home
                .map(|at| Sourced::new(HOME_MODES[at].1, source.clone())),
        }
    }
}

/// So many that each kind of plan comes often.
const CASES: u32 = 1500;

#[test]
fn no_user_layer_widens_what_the_site_enforces() {
    let (plans, narrowed) = (Cell::new(0), Cell::new(0));
    let (kept, below, besides) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let config = config(CASES);
    let whole = config.cases >= CASES;
    let judged = TestRunner::new(config).run(&case(), |case| {
        let scenario = case.scenario();
        let plan = match scenario.plan() {
            Ok(plan) => plan,
            // The planner never runs into its own checks.
            Err(error) if error.to_string().contains("refusing an unsafe plan") => {
                return Err(TestCaseError::fail(error.to_string()));
            }
            Err(_) => return Ok(()),
        };
        plans.set(plans.get() + 1);
        narrowed.set(narrowed.get() + usize::from(!plan.clamped.is_empty()));
        let keeping = &plan.keeping;
        let all = keeping.makes.len() + keeping.seeds.len() + keeping.logins.len();
        kept.set(kept.get() + usize::from(plan.kept().next().is_some()));
        besides.set(besides.get() + usize::from(all > plan.kept().count()));
        let in_kept = |step: &Step| plan.kept_around(&step.at).is_some();
        below.set(below.get() + usize::from(plan.steps.iter().any(in_kept)));
        let homes: Vec<PathBuf> = scenario.host.homes().map(PathBuf::from).collect();
        let aliases: Vec<(PathBuf, PathBuf)> = case
            .aliases
            .iter()
            .rev()
            .map(|(at, of)| (PathBuf::from(at), PathBuf::from(of)))
            .collect();
        let oracle = Oracle {
            enforced: &case.enforced,
            tree: &scenario.tree,
            aliases: &aliases,
            homes: &homes,
        };
        let mut complaints = oracle.complaints(&plan, &scenario.merged());
        complaints.extend(kept::judge::complaints(
            &plan,
            &scenario.host,
            &scenario.tree,
        ));
        if complaints.is_empty() {
            return Ok(());
        }
        let layers: String = case.enforced.iter().map(Says::toml).collect();
        let user = format!("{}\nPROFILE\n{}", case.user.toml(), case.profile);
        let complaints = complaints.join("\n");
        Err(TestCaseError::fail(format!(
            "{complaints}\n\nENFORCED\n{layers}\nUSER\n{user}\n{}",
            text(&plan)
        )))
    });
    if let Err(error) = judged {
        panic!("{error}");
    }
    // Enough of the cases are about something, where PROPTEST_CASES asks for no fewer.
    if !whole {
        return;
    }
    let (plans, narrowed) = (plans.get(), narrowed.get());
    assert!(
        plans > 400 && narrowed > 300,
        "{plans} plans, {narrowed} narrowed"
    );
    let (kept, below, besides) = (kept.get(), below.get(), besides.get());
    assert!(
        kept > 100 && below > 20 && besides > 15,
        "{kept} keep something, {below} show something in it, {besides} make or carry something"
    );
}
