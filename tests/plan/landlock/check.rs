//! A translation that is wrong in one place is refused, whatever made it so.

use std::path::Path;

use agent_sandbox::plan::Mount;
use agent_sandbox_landlock::access::{AccessMap, MapEntry, Permission, Right, Rule};
use agent_sandbox_landlock::check::check;
use agent_sandbox_landlock::{Staged, Thing, Translated};

use super::{STAGE, judge, translated, with_devices};
use crate::host::plain;
use crate::scenario::Scenario;

const PROJECT: &str = "/home/ada/project";
const KEYS: &str = "/home/ada/project/keys";
const KEY: &str = "/home/ada/project/keys/key";
/// Another session's directory.
const OTHERS: &str = "/tmp/agent-sandbox-1000/other/home";

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
fn said(change: impl FnOnce(&mut Translated)) -> Result<(), String> {
    let scenario = scenario();
    let mut translated = translated(&scenario);
    change(&mut translated);
    let given = (translated.rules.as_slice(), &translated.config.access_map);
    check(&translated.plan, given, &scenario.host, Path::new(STAGE))
        .map_err(|error| error.to_string())
}

#[track_caller]
fn refused(with: &str, change: impl FnOnce(&mut Translated)) {
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

fn change_regions(translated: &mut Translated, change: impl FnOnce(&mut Vec<MapEntry>)) {
    let mut entries = translated.config.access_map.entries().to_vec();
    change(&mut entries);
    translated.config.access_map = AccessMap::new(entries);
}

fn set_reach(translated: &mut Translated, path: &str, permission: Permission) {
    change_regions(translated, |entries| {
        entries.push(MapEntry {
            at: path.into(),
            permission,
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
    for (path, right, opened) in [
        ("/home/ada/.ssh", Right::Read, "/home/ada/.ssh"),
        ("/home/ada", Right::ReadFiles, "/home/ada"),
        ("/home/bob/thesis.tex", Right::Read, "/home/bob/thesis.tex"),
        ("/usr/bin", Right::Write, "/usr/bin/agent-sandbox"),
        ("/dev", Right::Read, "/dev"),
        ("/dev/shm", Right::Read, "/dev/shm"),
        ("/dev/shm/x", Right::Device, "/dev/shm/x"),
        ("/proc", Right::Write, "/proc"),
        (OTHERS, Right::Read, OTHERS),
        (KEYS, Right::Read, KEY),
        (KEYS, Right::ReadFiles, KEY),
        (PROJECT, Right::Read, KEY),
        (KEY, Right::Read, KEY),
        (
            "/home/ada/project/.git",
            Right::Write,
            "/home/ada/project/.git/config",
        ),
        (
            "/tmp/agent-sandbox-1000/s/own",
            Right::Write,
            "/tmp/agent-sandbox-1000/s/own",
        ),
    ] {
        let with = format!("a rule opens `{opened}`");
        refused(&with, |translated| translated.rules.push(rule(path, right)));
    }
    for path in ["/", "/etc/../home"] {
        refused("a rule on", |translated| {
            translated.rules.push(rule(path, Right::Read))
        });
    }
    refused("not about one certain file", |translated| {
        let mut rule = rule("/usr/bin", Right::Read);
        rule.id = None;
        translated.rules.push(rule);
    });
}

#[test]
fn a_territory_that_is_too_wide() {
    for (path, permission, with) in [
        (KEY, Permission::Write, "is Write, not None"),
        (KEY, Permission::Read, "is Read, not None"),
        (
            "/home/ada/project/.git/config",
            Permission::Write,
            "is Write, not Read",
        ),
        ("/usr", Permission::Write, "is Write, not Read"),
        ("/home/ada/project/main.c", Permission::Read, "a rule opens"),
        (
            "/home/ada/.local/state/agent-sandbox",
            Permission::Write,
            "is Write, not None",
        ),
        (
            "/dev/shm/agent-sandbox-1000",
            Permission::Own,
            "is Own, not None",
        ),
        ("/dev/sda", Permission::Write, "is Write, not None"),
        (OTHERS, Permission::Read, "is Read, not None"),
        (STAGE, Permission::Write, "is Write, not None"),
    ] {
        refused(with, |translated| set_reach(translated, path, permission));
    }
    refused("is Write, not None", |translated| {
        change_regions(translated, |entries| {
            entries.retain(|entry| entry.at != KEY.as_bytes());
        });
    });
    // One whose step the translation never saw.
    refused("is Write, not None", |translated| {
        let step = translated.plan.steps.iter_mut();
        let mut main = step.filter(|step| step.at == Path::new(PROJECT));
        main.next().unwrap().mount = Mount::HideDirectory;
    });
}

/// What gives no more and yet does not work is found by the judge of these tests.
#[test]
fn the_judge_finds_what_does_not_fit() {
    let found = |with: &str, change: &dyn Fn(&mut Translated)| {
        let scenario = scenario();
        let mut translated = translated(&scenario);
        assert_eq!(judge::complaints(&translated, &scenario), [""; 0]);
        change(&mut translated);
        let all = judge::complaints(&translated, &scenario).join("\n");
        assert!(all.contains(with), "{with}: {all}");
    };
    for at in ["/etc/x", "../x", "home/a/b", "home"] {
        found("has no place", &|translated| {
            translated.staged.push(Staged {
                at: at.into(),
                what: Thing::Directory(0o700),
            });
        });
    }
    found("out of order", &|translated| {
        translated.rules.insert(0, translated.rules[0].clone())
    });
    found("no rule gives", &|translated| {
        let main = Path::new("/home/ada/project/main.c");
        translated.rules.retain(|rule| rule.path() != main);
    });
    found("direct", &|translated| {
        change_regions(translated, |entries| {
            let mut git = entries.iter_mut();
            let git = git.find(|entry| entry.at == b"/home/ada/project/.git");
            let git = git.unwrap();
            git.direct = !git.direct;
        });
    });
    found("is None and should be Read", &|translated| {
        set_reach(translated, "/usr/bin", Permission::None)
    });
}
