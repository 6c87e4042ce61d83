//! Programs that are missing, or not as they should be.

use super::super::super::facts::{FilteredTrial, Jail, Slurm, Trial};
use super::super::super::line::Status;
use super::super::examine;
use super::{STARTED, expect, trouble, whole};

#[test]
fn tools_are_missed_as_far_as_they_are_needed() {
    let mut facts = whole();
    facts.tools.tmux = None;
    expect(
        &facts,
        "tmux",
        Status::Degraded,
        "not found",
        "install the package `tmux`",
    );
    expect(&facts, "lmod", Status::Ok, "not needed", "");
    facts.policy.trouble = Some(trouble(
        "modules.load needs Lmod, and Lmod was not found",
        &[],
    ));
    facts.jail = Jail::default();
    facts.files.project = None;
    expect(&facts, "lmod", Status::Broken, "names modules", "`module`");
}

#[test]
fn what_is_wrong_with_slurm_leaves_sessions_alone() {
    let mut facts = whole();
    facts.slurm = None;
    expect(
        &facts,
        "slurm-commands",
        Status::Ok,
        "jails have no Slurm",
        "",
    );
    let mut facts = whole();
    let with = |change: &dyn Fn(&mut Slurm), name, found, fix| {
        let mut facts = whole();
        facts.slurm.as_mut().into_iter().for_each(change);
        expect(&facts, name, Status::Degraded, found, fix);
    };
    with(
        &|slurm| slurm.directory = None,
        "slurm-commands",
        "none can be trusted",
        "root's",
    );
    with(
        &|slurm| slurm.distrusted = vec![("/usr/bin/sbatch".into(), "belongs to you".into())],
        "slurm-commands",
        "/usr/bin/sbatch belongs to you",
        "/usr/bin/sbatch has to be root's",
    );
    with(
        &|slurm| slurm.controller = Some(Err("slurmctld is DOWN".into())),
        "slurm-controller",
        "DOWN",
        "scontrol ping",
    );
    with(
        &|slurm| {
            slurm.credentials = vec![("/run/munge/munge.socket.2".into(), false)];
            slurm.controller = Some(Err("munge".into()));
        },
        "slurm-credentials",
        "/run/munge/munge.socket.2",
        "systemctl status munge (or sackd)",
    );
    // Nobody is asked with a configuration that cannot be trusted.
    if let Some(slurm) = &mut facts.slurm {
        slurm.conf = Some("SLURM_CONF is /x, which does not exist".into());
        slurm.credentials.clear();
        slurm.controller = None;
    }
    let all = examine(&facts, "n".into()).checks;
    assert!(
        all.iter().all(|line| line.name != "slurm-credentials"),
        "{all:?}"
    );
    let mut facts = whole();
    with(
        &|slurm| slurm.request = Some(Err("no answer".into())),
        "chaperon",
        "no answer",
        "chaperon.log",
    );
    if let Some(slurm) = &mut facts.slurm {
        slurm.credentials[0].1 = false;
    }
    expect(
        &facts,
        "slurm-credentials",
        Status::Ok,
        "answers without it",
        "",
    );
    if let Some(slurm) = &mut facts.slurm {
        slurm.on = Some(false);
    }
    expect(&facts, "chaperon", Status::Ok, "slurm.mode is `off`", "");
    let all = examine(&facts, "n".into());
    assert!(
        all.checks
            .iter()
            .all(|line| line.name != "slurm-credentials"),
        "nobody asks for it: {all:?}"
    );
    // But a program of ours that is missing stops every session.
    let missing = trouble(
        "`agent-sandbox-shim` is installed neither",
        &["install agent-sandbox again"],
    );
    facts.jail.session = Trial::Failed(missing.clone());
    if let Some(slurm) = &mut facts.slurm {
        slurm.shim = None;
    }
    expect(
        &facts,
        "slurm-programs",
        Status::Broken,
        "not installed: agent-sandbox-shim",
        "side by side",
    );
}

#[test]
fn root_is_told_how_to_ask_for_a_user() {
    let mut facts = whole();
    facts.user.root = true;
    facts.jail.bwrap = Trial::NotTried;
    facts.jail.landlock = Trial::NotTried;
    facts.jail.session = Trial::NotTried;
    expect(
        &facts,
        "user",
        Status::Broken,
        "root",
        "runuser -u USER -- /opt/agent-sandbox/bin/agent-sandbox doctor",
    );
    let all = examine(&facts, "n".into());
    assert!(
        all.checks.iter().all(|line| line.name != "session"),
        "{all:?}"
    );
    // What root may do, users may not.
    facts.kernel.namespaces.apparmor_switch = Some(1);
    expect(
        &facts,
        "user-namespaces",
        Status::Broken,
        "AppArmor",
        "/etc/apparmor.d/bwrap",
    );
}

#[test]
fn a_filtered_network_that_does_not_work_is_in_nobodys_way() {
    let mut facts = whole();
    let mut tried = |trial, reached, status, found, fix| {
        facts.jail.filtered = Some(FilteredTrial { trial, reached });
        expect(&facts, "filtered-network", status, found, fix);
        assert!(examine(&facts, "n1".into()).starts);
    };
    let no = trouble("there is no network of its own", &["user: --backend bwrap"]);
    let (ok, weaker) = (Status::Ok, Status::Degraded);
    tried(STARTED, Some(Ok(())), ok, "reached what it may reach", "");
    tried(STARTED, None, ok, "connections were not tried", "");
    let refused = Some(Err("bash: connect: Connection refused".to_owned()));
    tried(
        STARTED,
        refused,
        weaker,
        "Connection refused",
        "log --network",
    );
    tried(
        Trial::Failed(no),
        None,
        weaker,
        "no network of its own",
        "--backend bwrap",
    );
    tried(
        Trial::Late { seconds: 20 },
        None,
        weaker,
        "within 20 s",
        "try again",
    );
    facts.jail.filtered = None;
    let all = examine(&facts, "n1".into());
    assert!(
        all.checks
            .iter()
            .all(|line| line.name != "filtered-network")
    );
}
