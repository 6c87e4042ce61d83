//! Causes that the machine of the tests does not have, given as facts.

mod places;
mod programs;
mod tracer;

use std::path::PathBuf;

use super::super::facts::{
    Bubblewrap, DirectoryFacts, DirectoryState, FilteredTrial, Jail, Policy, Project, SiteFile,
    Slurm, Tools,
};
use super::super::show;
use super::*;
use crate::host::mediation;
use crate::launch::diagnose;

const STARTED: Trial = Trial::Started { milliseconds: 30 };

fn trouble(message: &str, hints: &[&str]) -> Trouble {
    Trouble {
        message: message.into(),
        hints: hints.iter().map(|&hint| hint.to_owned()).collect(),
    }
}

fn place(path: &str, kind: &str, local: bool) -> DirectoryFacts {
    DirectoryFacts {
        path: path.into(),
        real: path.into(),
        state: DirectoryState::Directory {
            own: true,
            mode: 0o700,
            writable: true,
        },
        kind: Some(kind.into()),
        local,
        links: Vec::new(),
    }
}

/// A node on which everything is as it should be.
fn whole() -> Facts {
    let mut facts = Facts::default();
    facts.user.executable = "/opt/agent-sandbox/bin/agent-sandbox".into();
    facts.kernel.release = "Linux 6.12.0 x86_64".into();
    facts.kernel.namespaces.most_namespaces = Some(1000);
    facts.kernel.mediation = mediation::Findings {
        abi: 6,
        scope: Some(1),
        hides: false,
        refused: None,
    };
    facts.kernel.seccomp = Some("kill_process errno user_notif trace log allow".into());
    facts.kernel.cgroups.second = true;
    facts.jail = Jail {
        bubblewrap: Bubblewrap {
            path: Some("/usr/bin/bwrap".into()),
            version: Some("bubblewrap 0.11.0".into()),
            ..Bubblewrap::default()
        },
        bwrap: STARTED,
        landlock: STARTED,
        session: STARTED,
        filtered: Some(FilteredTrial {
            trial: STARTED,
            reached: Some(Ok(())),
        }),
        ..Jail::default()
    };
    facts.files.home = place("/home/ada", "nfs4", false);
    facts.files.state = place("/home/ada/.local/state/agent-sandbox", "nfs4", false);
    facts.files.node_local = Some(place("/tmp/agent-sandbox-1000", "tmpfs", true));
    facts.files.project = Some(Project {
        path: "/home/ada/p".into(),
        given: false,
        trouble: None,
    });
    let site = |enforced| SiteFile {
        enforced,
        path: PathBuf::from(match enforced {
            true => "/etc/agent-sandbox/enforced.toml",
            false => "/etc/agent-sandbox/defaults.toml",
        }),
        ..SiteFile::default()
    };
    facts.policy = Policy {
        file: "~/.config/agent-sandbox/config.toml".into(),
        digest: Some("00ff".into()),
        site: vec![site(false), site(true)],
        ..Policy::default()
    };
    facts.tools = Tools {
        tmux: Some("/usr/bin/tmux".into()),
        lmod: None,
    };
    facts.slurm = Some(Slurm {
        directory: Some("/usr/bin".into()),
        commands: 18,
        version: Some("slurm 24.11".into()),
        chaperon: Some("/opt/agent-sandbox/libexec/agent-sandbox/agent-sandbox-chaperon".into()),
        shim: Some("/opt/agent-sandbox/libexec/agent-sandbox/agent-sandbox-shim".into()),
        controller: Some(Ok("Slurmctld(primary) at ctl is UP".into())),
        credentials: vec![("/run/munge/munge.socket.2".into(), true)],
        on: Some(true),
        request: Some(Ok(40)),
        ..Slurm::default()
    });
    facts
}

#[track_caller]
fn line(facts: &Facts, name: &str) -> Line {
    let found = examine(facts, "n1".into());
    let line = found.checks.iter().find(|line| line.name == name).cloned();
    line.unwrap_or_else(|| panic!("no line `{name}` in {:?}", found.checks))
}

/// The line, and the verdict beside it.
#[track_caller]
fn expect(facts: &Facts, name: &str, status: Status, found: &str, fix: &str) {
    let line = line(facts, name);
    assert!(
        line.status == status && line.found.contains(found) && line.fix.contains(fix),
        "expected {status:?} `{found}` fix `{fix}`: {line:?}"
    );
    let all = examine(facts, "n1".into());
    let broken = all.checks.iter().any(|line| line.status == Status::Broken);
    assert_eq!(all.starts, !broken, "{all:?}");
    for line in &all.checks {
        assert_eq!(line.fix.is_empty(), line.status == Status::Ok, "{line:?}");
    }
}

#[test]
fn a_node_without_a_fault_has_no_line_with_a_fix() {
    let all = examine(&whole(), "n1".into());
    let wrong: Vec<&Line> = all
        .checks
        .iter()
        .filter(|line| line.status != Status::Ok || !line.fix.is_empty())
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(
        all.starts && all.backend.as_deref() == Some("bwrap"),
        "{all:?}"
    );
    assert_eq!(show::text(&all, true), "");
    let text = show::text(&all, false);
    assert!(text.ends_with("A session would start. bubblewrap makes its jail: it works here, and is the\n    first choice.\n"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(text.contains("\n  network: "), "{text}");
}

#[test]
fn every_name_is_there_once_and_stable() {
    let names: Vec<&str> = names().collect();
    let expected = "user kernel user-namespaces landlock seccomp yama cgroups bubblewrap jail-bwrap jail-landlock \
                    session filtered-network home state node-local project policy site-defaults site-enforced tmux lmod \
                    slurm-commands slurm-programs slurm-controller slurm-credentials slurm-allocation chaperon tracer \
                    tracer-blind tracer-layer tracer-losses";
    assert_eq!(names.join(" "), expected);
}

/// bubblewrap builds nothing for this reason, and Landlock takes its place.
fn without_bwrap(facts: &mut Facts, findings: diagnose::Findings) {
    let cause = diagnose::cause("bwrap: No permissions", &findings);
    facts.kernel.namespaces = findings;
    facts.jail.bubblewrap.reason =
        Some(trouble(&cause.what, &[&format!("admin: {}", cause.admin)]));
    facts.jail.bwrap = Trial::Failed(trouble(&cause.what, &["user: x; ask its administrator"]));
}

#[test]
fn each_cause_for_want_of_user_namespaces_has_its_fix() {
    let errno = Some(libc::EPERM);
    let none = diagnose::Findings::default();
    for (findings, found, fix) in [
        (
            diagnose::Findings {
                most_namespaces: Some(0),
                user_namespace: Some(libc::ENOSPC),
                ..none.clone()
            },
            "user.max_user_namespaces = 0",
            "ask your administrators: sysctl -w user.max_user_namespaces=15000",
        ),
        (
            diagnose::Findings {
                debian_switch: Some(0),
                user_namespace: errno,
                ..none.clone()
            },
            "kernel.unprivileged_userns_clone = 0",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            diagnose::Findings {
                apparmor_switch: Some(1),
                user_namespace: errno,
                ..none.clone()
            },
            "kernel.apparmor_restrict_unprivileged_userns = 1",
            "/etc/apparmor.d/bwrap",
        ),
        (
            diagnose::Findings {
                user_namespace: Some(libc::EACCES),
                apparmor_profile: Some("login".into()),
                ..none.clone()
            },
            "AppArmor's profile `login`",
            "add `userns,` to the profile `login`",
        ),
        (
            diagnose::Findings {
                user_namespace: errno,
                ..none.clone()
            },
            "may not be created here",
            "permit unprivileged user namespaces",
        ),
        (
            diagnose::Findings {
                user_namespace: Some(libc::ENOSYS),
                ..none
            },
            "without user namespaces",
            "CONFIG_USER_NS",
        ),
    ] {
        let mut facts = whole();
        without_bwrap(&mut facts, findings);
        for name in ["user-namespaces", "bubblewrap"] {
            expect(&facts, name, Status::Degraded, found, fix);
        }
        let all = examine(&facts, "n1".into());
        assert_eq!(all.backend.as_deref(), Some("landlock"));
        assert!(all.why.contains(found), "{}", all.why);
        // Nothing takes its place.
        facts.jail.session = Trial::Failed(trouble("no", &[]));
        expect(&facts, "user-namespaces", Status::Broken, found, fix);
        expect(&facts, "bubblewrap", Status::Broken, found, fix);
    }
}

#[test]
fn a_set_user_id_bubblewrap_needs_no_user_namespaces() {
    let mut facts = whole();
    facts.kernel.namespaces.most_namespaces = Some(0);
    facts.kernel.namespaces.user_namespace = Some(libc::ENOSPC);
    facts.jail.bubblewrap.set_id = true;
    expect(&facts, "user-namespaces", Status::Ok, "needs none", "");
}

#[test]
fn what_bubblewrap_alone_may_do_is_in_nobodys_way() {
    let mut facts = whole();
    facts.kernel.namespaces.apparmor_switch = Some(1);
    facts.kernel.namespaces.user_namespace = Some(libc::EPERM);
    let found = "apparmor_restrict_unprivileged_userns = 1); bubblewrap can make them";
    expect(&facts, "user-namespaces", Status::Ok, found, "");
}

#[test]
fn a_mediator_beside_bubblewrap_asks_less_of_the_kernel_than_landlocks() {
    let mut facts = whole();
    facts.kernel.mediation.refused = Some(("seccomp(2)", libc::EINVAL));
    let found = "user notification; Landlock's mediator cannot work";
    expect(&facts, "seccomp", Status::Degraded, found, "5.19");
    facts.kernel.no_mediator = Some("seccomp(2): Invalid argument".into());
    expect(&facts, "seccomp", Status::Degraded, "`chmod g+s`", "5.6");
}

#[test]
fn a_missing_bubblewrap_is_installed() {
    let mut facts = whole();
    let reason = trouble(
        "bubblewrap (bwrap) is not installed",
        &[
            "user: this node; ask its administrator",
            "admin: install the package `bubblewrap`",
        ],
    );
    facts.jail.bubblewrap = Bubblewrap {
        reason: Some(reason.clone()),
        ..Bubblewrap::default()
    };
    facts.jail.bwrap = Trial::Failed(reason.clone());
    let fix = "ask your administrators: install the package `bubblewrap`";
    expect(&facts, "bubblewrap", Status::Degraded, "not installed", fix);
    facts.jail.asked = Backend::Bwrap;
    facts.jail.session = Trial::Failed(reason);
    expect(&facts, "bubblewrap", Status::Broken, "not installed", fix);
    expect(
        &facts,
        "session",
        Status::Broken,
        "--backend bwrap: the same as jail-bwrap",
        "see jail-bwrap",
    );
}

#[test]
fn the_kernels_lacks_are_said() {
    let mut facts = whole();
    facts.kernel.mediation.abi = 0;
    facts.jail.landlock = Trial::Failed(trouble("no Landlock", &[]));
    expect(&facts, "landlock", Status::Degraded, "no Landlock", "lsm=");
    facts.kernel.mediation.abi = 2;
    expect(&facts, "landlock", Status::Degraded, "ABI 2", "6.12");
    facts.kernel.mediation.hides = true;
    expect(&facts, "landlock", Status::Degraded, "hidepid", "gid=");
    for scope in [2, 3] {
        let mut facts = whole();
        facts.kernel.mediation.scope = Some(scope);
        expect(
            &facts,
            "yama",
            Status::Degraded,
            &format!("ptrace_scope is {scope}"),
            "sysctl -w kernel.yama.ptrace_scope=1",
        );
        facts.jail.session = Trial::Failed(trouble("no", &[]));
        expect(&facts, "yama", Status::Broken, "Yama", "sysctl");
    }
    let mut facts = whole();
    facts.kernel.mediation.scope = None;
    expect(&facts, "yama", Status::Ok, "not there", "");
    facts.kernel.mediation.refused = Some(("openat2(2)", libc::ENOSYS));
    expect(&facts, "seccomp", Status::Degraded, "openat2(2)", "5.19");
    facts.kernel.seccomp = Some("kill_process errno allow".into());
    facts.kernel.mediation.refused = None;
    expect(
        &facts,
        "seccomp",
        Status::Degraded,
        "without user notification",
        "5.19",
    );
    facts.kernel.seccomp = None;
    facts.jail.session = Trial::Failed(trouble("no", &[]));
    expect(
        &facts,
        "seccomp",
        Status::Broken,
        "does not say",
        "CONFIG_SECCOMP_FILTER",
    );
}

#[test]
fn cgroups_of_each_kind_are_named() {
    let mut facts = whole();
    for (second, first, words) in [
        (true, false, "v2"),
        (false, true, "v1"),
        (true, true, "v1 and v2"),
        (false, false, "not mounted"),
    ] {
        facts.kernel.cgroups.second = second;
        facts.kernel.cgroups.first = first;
        expect(&facts, "cgroups", Status::Ok, words, "");
    }
    facts.kernel.cgroups.delegated = true;
    expect(&facts, "cgroups", Status::Ok, "delegated to you", "");
}
