use super::*;
use crate::config::draft::read_draft;
use crate::config::parse::parse;
use crate::config::source::Layer;
use crate::config::when::Circumstances;
use crate::policy::merge::{Additions, merge};

/// A host with few names.
struct Small(Vec<String>);

impl Known for Small {
    fn of_slurm(&self, kind: Kind) -> Option<&[String]> {
        (kind != Kind::Qos).then_some(&self.0)
    }

    fn has_group(&self, name: &str) -> Option<bool> {
        (name != "untold").then_some(name == "students")
    }

    fn has_user(&self, name: &str) -> Option<bool> {
        Some(name == "ada")
    }

    fn hosts(&self) -> &[String] {
        &self.0[..1]
    }

    fn there(&self, spec: &PathSpec) -> There {
        match spec.to_string().as_str() {
            "/scratch" => There::Roots,
            path if path.contains("gone") => There::Nothing,
            _ => There::Something,
        }
    }

    fn led_to(&self, spec: &PathSpec) -> Vec<String> {
        let links = spec.to_string().starts_with("/links");
        links.then(|| "/vol/1".to_owned()).into_iter().collect()
    }
}

/// The remarks of a file, as `LINE LEVEL WHAT`.
fn of(name: &str, text: &str, other: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    let now = Circumstances::default();
    let (draft, again) = (
        read_draft(&path, &now).unwrap(),
        read_draft(&path, &now).unwrap(),
    );
    let layer = |layer, name: &str, text: &str| parse(layer, name, text).unwrap().raw;
    let (own, beside) = (
        read_draft(&path, &now).unwrap().always,
        match name {
            "enforced.toml" => layer(Layer::SiteDefaults, "defaults.toml", other),
            _ => layer(Layer::SiteEnforced, "enforced.toml", other),
        },
    );
    let policy = merge(&[own, beside], &Additions::default()).unwrap();
    let known = Small(
        ["login1", "debug", "long", "proj1"]
            .map(str::to_owned)
            .to_vec(),
    );
    let all = remarks(&draft, again, &policy, &known);
    let shown = |one: &Remark| {
        assert!(!one.fix.is_empty(), "{one:?}");
        let place = one.at.rsplit('/').next().unwrap();
        format!("{place} {:?} {}", one.level, one.what)
    };
    all.iter().map(shown).collect()
}

/// Each of these is a line that holds some words.
#[track_caller]
fn says(found: &[String], expected: &[&[&str]]) {
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for words in expected {
        let has = |line: &&String| words.iter().all(|word| line.contains(word));
        assert!(
            found.iter().any(|line| has(&line)),
            "no {words:?}: {found:#?}"
        );
    }
}

#[test]
fn a_file_of_names_that_are_there_is_not_remarkable() {
    let text = "[project]\nparents = [\"~/work\", \"/scratch/*\"]\n\
        [files]\nhide = [\"/data/x\", \"/data/xy\", \"/home/* but ~\"]\n\
        [jail]\nmax_processes = 500\n\
        [slurm.bounds]\npartitions = [\"debug\", \"lo*\"]\nqos = [\"whatever\"]\naccounts = [\"PROJ1\"]\n\
        [[when]]\ngroup = \"students\"\nhost = \"login*\"\n[when.jail]\nmax_processes = 50\n\
        [[when]]\naccount = \"proj*\"\n[when.slurm.bounds]\nminutes = 5\n\
        [[when]]\ngroup = [\"nobody-has-it\", \"stud*\"]\n[when.jail]\nnested = false\n\
        [[when]]\ngroup = \"untold\"\n[when.jail]\nnested = false\n";
    assert_eq!(of("enforced.toml", text, ""), [""; 0]);
}

#[test]
fn names_that_nobody_has_are_told() {
    let text = "[slurm.bounds]\npartitions = [\"debug\", \"gpu*\", \"lnog\"]\nlicenses = [\"matlab@server\"]\n\
        [[when]]\ngroup = \"studnts\"\n[when.jail]\nnested = false\n\
        [[when]]\nuser = \"bob\"\n[when.jail]\nnested = false\n\
        [[when]]\nhost = \"lgoin*\"\n[when.jail]\nnested = false\n\
        [[when]]\npartition = \"gpu\"\n[when.slurm.bounds]\naccounts = [\"proj2\"]\n";
    let found = of("enforced.toml", text, "");
    says(
        &found,
        &[
            &["enforced.toml:2 ", "no partition that `gpu*`"],
            &["enforced.toml:2 ", "no partition `lnog`"],
            &["enforced.toml:3 ", "no license `matlab@server`"],
            &["enforced.toml:4 ", "never in force: group studnts"],
            &["enforced.toml:8 ", "never in force: user bob"],
            &["enforced.toml:12 ", "never in force: host lgoin*"],
            &["enforced.toml:16 ", "never in force: partition gpu"],
            &["enforced.toml:19 ", "no account `proj2`"],
        ],
    );
}

#[test]
fn paths_that_are_not_there_and_entries_that_say_nothing_are_told() {
    let text = "[project]\nparents = [\"/scratch\", \"/gone\"]\n\
        [files]\nhide = [\n\"/data\",\n\"/data/x\",\n\"/gone-*\",\n\"/links/* but ~\"]\n\
        [[when]]\nuser = \"ada\"\n[when.files]\nhide = [\"/data\"]\n";
    says(
        &of("enforced.toml", text, ""),
        &[
            &["enforced.toml:2 ", "`/scratch` itself may be a project"],
            &["enforced.toml:2 ", "project.parents `/gone` does not exist"],
            &[
                "enforced.toml:6 ",
                "`/data/x` is hidden already, by `/data`",
            ],
            &["enforced.toml:7 ", "`/gone-*` matches nothing"],
            &["enforced.toml:8 ", "lead into /vol/1"],
            &["enforced.toml:12 ", "`/data` is hidden already"],
        ],
    );
    let text = "[files]\nhide = [\"/data/x\"]\nunhide = [\"/data/x\", \"/data/y\", \"~/.z\"]\n";
    says(
        &of("defaults.toml", text, ""),
        &[&["`/data/y` cancels no entry"]],
    );
}

#[test]
fn values_that_contradict_each_other_are_told() {
    let text = "[jail]\nmax_processes = 100\nnested = false\n\
        [slurm.bounds]\npartitions = [\"long\"]\n\
        [[when]]\nuser = \"ada\"\n[when.jail]\nmax_processes = 500\n[when.slurm.limits]\njobs = 3\n";
    let defaults = "[jail]\nmax_processes = 200\n[slurm.bounds]\npartitions = [\"debug\"]\n";
    let found = of("enforced.toml", text, defaults);
    says(
        &found,
        &[
            &[
                "defaults.toml:2 ",
                "the default jail.max_processes `200` is not allowed",
                "enforced.toml:2",
            ],
            &[
                "defaults.toml:4 ",
                "the default slurm.bounds.partitions `debug` is not allowed",
            ],
            &[
                "enforced.toml:5 Error",
                "slurm.bounds.partitions: no name is in both long",
            ],
            &[
                "enforced.toml:9 ",
                "jail.max_processes `500` has no effect",
                "enforced.toml:2",
            ],
        ],
    );
}
