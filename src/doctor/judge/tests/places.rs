//! Directories and policies that are not as they should be.

use super::super::super::facts::{DirectoryState, Jail, Project, Trial};
use super::super::super::line::Status;
use super::super::examine;
use super::{expect, place, trouble, whole};

#[test]
fn homes_on_servers_and_behind_links_are_described() {
    let mut facts = whole();
    expect(
        &facts,
        "home",
        Status::Ok,
        "/home/ada, on nfs4 (not of this node alone)",
        "",
    );
    let home = &mut facts.files.home;
    home.real = "/nfs/u1/ada".into();
    home.links = vec![("/home".into(), false)];
    expect(&facts, "home", Status::Ok, "really /nfs/u1/ada", "");
    facts.files.home.links = vec![("/home".into(), false), ("/scratch/home".into(), true)];
    expect(
        &facts,
        "home",
        Status::Degraded,
        "`/scratch/home`",
        "export HOME='/nfs/u1/ada'",
    );
    facts.files.home = place("/home/ada", "ext4", true);
    facts.files.home.state = DirectoryState::Directory {
        own: true,
        mode: 0o770,
        writable: true,
    };
    expect(
        &facts,
        "home",
        Status::Degraded,
        "others may write there (mode 0770)",
        "chmod go-w '/home/ada'",
    );
    facts.files.home.state = DirectoryState::Directory {
        own: false,
        mode: 0o755,
        writable: false,
    };
    expect(&facts, "home", Status::Degraded, "somebody else", "chown");
    facts.files.home.state = DirectoryState::Hung;
    facts.jail.session = Trial::Late { seconds: 20 };
    expect(
        &facts,
        "home",
        Status::Broken,
        "does not answer",
        "ask your administrators",
    );
    expect(&facts, "session", Status::Broken, "within 20 s", "df");
    facts.files.other_home = Some("/u/ada".into());
    facts.files.home = place("/home/ada", "ext4", true);
    expect(
        &facts,
        "home",
        Status::Ok,
        "the user database names /u/ada",
        "",
    );
}

#[test]
fn directories_of_ours_are_judged() {
    let mut facts = whole();
    facts.files.state.state = DirectoryState::Missing;
    expect(
        &facts,
        "state",
        Status::Ok,
        "the first session makes it",
        "",
    );
    for (state, words) in [
        (DirectoryState::Unmakeable, "cannot be made"),
        (DirectoryState::NoDirectory, "is not a directory"),
        (
            DirectoryState::Directory {
                own: false,
                mode: 0o700,
                writable: false,
            },
            "somebody else",
        ),
        (
            DirectoryState::Directory {
                own: true,
                mode: 0o500,
                writable: false,
            },
            "may not write",
        ),
        (
            DirectoryState::Directory {
                own: true,
                mode: 0o777,
                writable: true,
            },
            "mode 0777",
        ),
    ] {
        facts.files.state.state = state;
        expect(&facts, "state", Status::Degraded, words, "agent-sandbox");
    }
    let mut facts = whole();
    facts.files.node_local = Some(place("/tmp/agent-sandbox-1000", "lustre", false));
    expect(
        &facts,
        "node-local",
        Status::Degraded,
        "on lustre",
        "a /tmp of its own",
    );
    facts.files.node_local = None;
    expect(
        &facts,
        "node-local",
        Status::Degraded,
        "neither /tmp",
        "chmod 1777 /tmp",
    );
}

#[test]
fn a_directory_that_can_be_no_project_is_in_the_way_only_if_it_was_named() {
    let mut facts = whole();
    let unfit = trouble(
        "`/home/ada` cannot be the project: it is the home directory",
        &["start in a directory below it"],
    );
    facts.files.project = Some(Project {
        path: "/home/ada".into(),
        given: false,
        trouble: Some(unfit.clone()),
    });
    expect(
        &facts,
        "project",
        Status::Degraded,
        "home directory",
        "start in a directory",
    );
    let elsewhere = examine(&facts, "n".into());
    assert!(
        elsewhere.starts && elsewhere.why.ends_with("this one can be no project"),
        "{}",
        elsewhere.why
    );
    facts.jail.bwrap = Trial::NotTried;
    facts.jail.landlock = Trial::NotTried;
    facts.jail.session = Trial::NotTried;
    expect(&facts, "session", Status::Degraded, "not tried", "-C DIR");
    facts.files.project = Some(Project {
        path: "/home/ada".into(),
        given: true,
        trouble: Some(unfit),
    });
    expect(
        &facts,
        "project",
        Status::Broken,
        "home directory",
        "start in a directory",
    );
    // The fault is the project alone, and said once.
    let named = examine(&facts, "n".into());
    let broken = named
        .checks
        .iter()
        .filter(|line| line.status == Status::Broken);
    let broken: Vec<_> = broken.map(|line| line.name.as_str()).collect();
    assert_eq!(broken, ["project"]);
    // What was not tried is judged by its parts.
    facts.files.project = None;
    facts.jail.bubblewrap.reason = Some(trouble("no", &["admin: x"]));
    assert_eq!(
        examine(&facts, "n".into()).backend.as_deref(),
        Some("landlock")
    );
    facts.kernel.mediation.abi = 0;
    expect(&facts, "landlock", Status::Broken, "no Landlock", "lsm=");
}

#[test]
fn a_policy_that_cannot_be_read_is_in_the_way() {
    let mut facts = whole();
    facts.policy.trouble = Some(trouble(
        "unknown key `a`\n 1 | a = 1",
        &["did you mean `b`?"],
    ));
    facts.files.project = None;
    facts.jail = Jail::default();
    expect(
        &facts,
        "policy",
        Status::Broken,
        "unknown key",
        "did you mean `b`?",
    );
    assert_eq!(examine(&facts, "n".into()).why, "unknown key `a`");
}

#[test]
fn the_sites_files_are_described() {
    let mut facts = whole();
    expect(
        &facts,
        "site-enforced",
        Status::Ok,
        "/etc/agent-sandbox/enforced.toml does not exist",
        "",
    );
    let enforced = &mut facts.policy.site[1];
    enforced.exists = true;
    enforced.keys = 7;
    enforced.sections = (1, 3);
    enforced.digest = Some("abcd".into());
    expect(
        &facts,
        "site-enforced",
        Status::Ok,
        "7 keys; of its [[when]] sections 1 of 3 apply here; digest abcd",
        "",
    );
    let wrong = trouble(
        "/etc/agent-sandbox/enforced.toml belongs to user 1000",
        &["ask your administrators"],
    );
    facts.policy.site[1].trouble = Some(wrong.clone());
    facts.policy.trouble = Some(wrong);
    facts.jail = Jail::default();
    facts.files.project = None;
    expect(
        &facts,
        "site-enforced",
        Status::Broken,
        "belongs to user 1000",
        "ask your administrators",
    );
    let all = examine(&facts, "n".into());
    assert!(
        all.checks.iter().all(|line| line.name != "policy"),
        "said once: {all:?}"
    );
}
