//! A translation that is wrong in one place is refused, whatever made it so.

use std::path::Path;

use agent_sandbox::fence::{Reach, Region, Right, Rule, Territory};
use agent_sandbox::plan::grants::check::check;
use agent_sandbox::plan::grants::{Fenced, Staged, Thing};

use super::{STAGE, fenced, with_devices};
use crate::host::plain;
use crate::scenario::Scenario;

/// A project with something protected and something hidden in it.
fn scenario() -> Scenario {
    let tree = with_devices(plain())
        .directory("/home/ada/project/.git/hooks")
        .file("/home/ada/project/.git/config", "")
        .file("/home/ada/project/keys/key", "SECRET")
        .file("/home/ada/project/keys/open", "");
    Scenario::new(tree).policy("files.hide = [\"~/project/keys/key\"]")
}

/// What the checks say about a translation that was changed.
fn said(change: impl FnOnce(&mut Fenced)) -> Result<(), String> {
    let scenario = scenario();
    let mut fenced = fenced(&scenario);
    change(&mut fenced);
    check(&fenced, &scenario.host, &scenario.tree, Path::new(STAGE))
        .map_err(|error| error.to_string())
}

#[track_caller]
fn refused(with: &str, change: impl FnOnce(&mut Fenced)) {
    let error = said(change).unwrap_err();
    assert!(error.contains("unsafe") && error.contains(with), "{error}");
}

fn rule(path: &str, right: Right) -> Rule {
    let staged = path.starts_with(STAGE);
    Rule {
        path: path.into(),
        id: (!staged).then_some((1, 1)),
        right,
    }
}

fn change_regions(fenced: &mut Fenced, change: impl FnOnce(&mut Vec<Region>)) {
    let mut regions = fenced.charge.territory.regions().to_vec();
    change(&mut regions);
    fenced.charge.territory = Territory::new(regions);
}

fn set_reach(fenced: &mut Fenced, path: &str, reach: Reach) {
    change_regions(fenced, |regions| {
        regions.push(Region {
            at: path.into(),
            reach,
            direct: false,
            listed: false,
        });
    });
}

#[test]
fn as_it_comes_it_passes() {
    said(|_| {}).unwrap();
}

#[test]
fn rules_that_give_too_much() {
    for (path, right, with) in [
        ("/", Right::Read, "a rule on `/`"),
        ("/etc/../home", Right::Read, "a rule on"),
        ("/home/ada/.ssh", Right::Read, "no step gives"),
        ("/home/ada", Right::ReadFiles, "no step gives"),
        ("/home/bob/thesis.tex", Right::Read, "no step gives"),
        ("/usr/bin", Right::Write, "no step gives"),
        ("/dev", Right::Read, "no step gives"),
        ("/dev/shm/x", Right::Device, "no step gives"),
        ("/proc", Right::Write, "no step gives"),
        (
            "/tmp/agent-sandbox-1000/other/home",
            Right::Read,
            "no step gives",
        ),
        (
            "/home/ada/project",
            Right::Read,
            "opens `/home/ada/project/keys/key`",
        ),
        (
            "/home/ada/project/.git",
            Right::Write,
            "opens `/home/ada/project/.git/config`",
        ),
        (
            "/home/ada/project/keys",
            Right::ReadFiles,
            "opens `/home/ada/project/keys/key`",
        ),
        ("/home/ada/project/keys/key", Right::Read, "no step gives"),
        ("/tmp/agent-sandbox-1000/s/own", Right::Write, "own"),
    ] {
        refused(with, |fenced| fenced.rules.push(rule(path, right)));
    }
    refused("not about one certain file", |fenced| {
        let mut rule = rule("/usr/bin", Right::Read);
        rule.id = None;
        fenced.rules.push(rule);
    });
    refused("out of order", |fenced| {
        let again = fenced.rules[0].clone();
        fenced.rules.insert(0, again);
    });
    refused("9000 rules", |fenced| {
        let missing = 9000 - fenced.rules.len();
        let rule = rule("/usr/bin", Right::Read);
        fenced.rules.extend(std::iter::repeat_n(rule, missing));
    });
}

#[test]
fn regions_that_do_not_fit() {
    for (path, reach, with) in [
        (
            "/home/ada/project/keys/key",
            Reach::Write,
            "is Write, not None",
        ),
        (
            "/home/ada/project/.git/config",
            Reach::Write,
            "is Write, not Read",
        ),
        ("/usr", Reach::Write, "is Write, not Read"),
        ("/usr/bin", Reach::None, "`/usr/bin` does not fit"),
        ("/home/ada/project/main.c", Reach::Read, "no region gives"),
        (
            "/home/ada/.local/state/agent-sandbox",
            Reach::Write,
            "can be changed",
        ),
        (
            "/dev/shm/agent-sandbox-1000",
            Reach::Own,
            "is where tasks meet",
        ),
        (STAGE, Reach::Write, "is open"),
    ] {
        refused(with, |fenced| set_reach(fenced, path, reach));
    }
    refused("is Write, not None", |fenced| {
        change_regions(fenced, |regions| {
            regions.retain(|region| region.at != b"/home/ada/project/keys/key");
        });
    });
    refused("does not fit", |fenced| {
        fenced
            .rules
            .retain(|rule| rule.path() != Path::new("/home/ada/project/main.c"));
    });
}

#[test]
fn things_without_a_place() {
    for at in ["/etc/x", "../x", "home/a/b", "home"] {
        refused("has no place", |fenced| {
            fenced.staged.push(Staged {
                at: at.into(),
                what: Thing::Directory(0o700),
            });
        });
    }
}
