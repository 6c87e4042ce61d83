//! Slurm: what stands over its commands, what must not be trusted, what is missing.

use std::path::{Path, PathBuf};

use agent_sandbox::host::slurm::{Conf, Question, Slurm, find};
use agent_sandbox::plan::Mount;
use agent_sandbox::plan::model::slurm::Use;
use agent_sandbox_wire::command::Command;

use crate::host::plain;
use crate::scenario::Scenario;
use crate::tree::{OWNER, Tree};

const ROOT: u32 = 0;

/// A host on which root installed Slurm's commands and agent-sandbox with all of its programs.
fn with_slurm() -> Tree {
    programs(slurm_in(plain(), "/usr/bin"))
        .owned_by("/usr/bin", ROOT)
        .owned_by("/usr/bin/squeue", ROOT)
        .owned_by("/usr/bin/sbatch", ROOT)
}

fn slurm_in(tree: Tree, directory: &str) -> Tree {
    tree.file(&format!("{directory}/squeue"), "ELF")
        .file(&format!("{directory}/sbatch"), "ELF")
}

fn programs(tree: Tree) -> Tree {
    tree.file("/usr/libexec/agent-sandbox/agent-sandbox-shim", "ELF")
        .file("/usr/libexec/agent-sandbox/agent-sandbox-chaperon", "ELF")
}

fn root_owns(mut tree: Tree, paths: &[&str]) -> Tree {
    for path in paths {
        tree = tree.owned_by(path, ROOT);
    }
    tree
}

/// What is found in some directories.
fn found(tree: &Tree, directories: &[&str], search: &str, conf: Option<&str>) -> Option<Slurm> {
    let directories: Vec<PathBuf> = directories.iter().map(PathBuf::from).collect();
    let question = Question {
        allowed: &|_| true,
        by_site: &|_| true,
        directories: &directories,
        search: Some(search.as_ref()),
        conf: conf.map(AsRef::as_ref),
        executable: "/usr/bin/agent-sandbox".as_ref(),
        uid: OWNER,
    };
    find(&question, tree)
}

fn commands(tree: &Tree, directories: &[&str]) -> Vec<String> {
    let slurm = found(tree, directories, "/usr/bin", None);
    let commands = slurm.into_iter().flat_map(|slurm| slurm.commands);
    commands
        .map(|(_, path)| path.display().to_string())
        .collect()
}

/// The scenario's own facts, with what is found on its tree.
fn scenario(tree: Tree) -> Scenario {
    scenario_with(tree, "")
}

fn scenario_with(tree: Tree, policy: &str) -> Scenario {
    let mut scenario = Scenario::new(tree).policy(policy);
    let merged = scenario.merged();
    scenario.host.find_slurm(&merged, &scenario.tree);
    scenario
}

/// A host that has Slurm, with the user's policy.
pub(crate) fn on_a_host_with_slurm(policy: &str) -> Scenario {
    scenario_with(with_slurm(), policy)
}

#[test]
fn shims_stand_over_slurms_commands() {
    scenario(with_slurm()).snapshot("slurm");
}

#[test]
fn switched_off_the_commands_say_so() {
    let scenario = scenario_with(with_slurm(), "slurm.mode = \"off\"");
    let plan = scenario.plan().unwrap();
    assert!(!plan.wants_chaperon());
    let covered = |at: &str| plan.steps.iter().any(|step| step.at == Path::new(at));
    assert!(covered("/usr/bin/sbatch") && covered("/run/agent-sandbox/bin/sbatch"));
    assert!(!covered("/run/agent-sandbox/slurm"));
    scenario.text();
}

#[test]
fn a_host_without_slurm_has_nothing_of_it() {
    let scenario = scenario(programs(plain()));
    let plan = scenario.plan().unwrap();
    assert_eq!(plan.slurm.value, Use::Absent);
    for name in ["bin/sbatch", "shim", "chaperon", "slurm"] {
        assert!(
            !scenario
                .text()
                .contains(&format!("/run/agent-sandbox/{name}"))
        );
    }
}

#[test]
fn refusals() {
    let no_shim = || with_slurm().without("/usr/libexec/agent-sandbox/agent-sandbox-shim");
    let no_chaperon = || with_slurm().without("/usr/libexec/agent-sandbox/agent-sandbox-chaperon");
    let mut all = String::new();
    let mut case = |name: &str, scenario: Scenario| {
        all.push_str(&format!("# {name}\n{}\n", scenario.text()));
    };
    case("no shim", scenario(no_shim()));
    case("no chaperon", scenario(no_chaperon()));
    let conf = |value: &str, tree: Tree| {
        let mut scenario = Scenario::new(tree).variable("SLURM_CONF", value);
        let merged = scenario.merged();
        scenario.host.find_slurm(&merged, &scenario.tree);
        scenario
    };
    case(
        "the user's own SLURM_CONF",
        conf(
            "/home/ada/slurm.conf",
            with_slurm().file("/home/ada/slurm.conf", ""),
        ),
    );
    case(
        "a SLURM_CONF that is missing",
        conf("/etc/slurm-b/slurm.conf", with_slurm()),
    );
    case("a relative SLURM_CONF", conf("slurm.conf", with_slurm()));
    let shared = root_owns(
        with_slurm().file("/shared/conf/slurm.conf", ""),
        &["/shared/conf", "/shared/conf/slurm.conf"],
    );
    let mut scenario = Scenario::new(shared)
        .variable("SLURM_CONF", "/shared/conf/slurm.conf")
        .policy("files.write = [\"/shared\"]");
    let merged = scenario.merged();
    scenario.host.find_slurm(&merged, &scenario.tree);
    case("a SLURM_CONF that is writable inside", scenario);
    case(
        "off, though the shim is missing",
        scenario_with(no_shim(), "slurm.mode = \"off\""),
    );
    // That one is a plan, of which the first lines tell enough.
    let end = all.find("\nfiles\n").unwrap_or(all.len());
    all.truncate(end);
    crate::scenario::compare("slurm_refusals", &all);
}

#[test]
fn commands_that_the_user_could_have_put_there_are_not_used() {
    let good = with_slurm();
    assert_eq!(
        commands(&good, &["/usr/bin"]),
        ["/usr/bin/sbatch", "/usr/bin/squeue"]
    );
    // A command of the user's own, one that others can write, one that is no program.
    for tree in [
        good.clone().owned_by("/usr/bin/sbatch", OWNER),
        good.clone().with_mode("/usr/bin/sbatch", 0o775),
        good.clone().with_mode("/usr/bin/sbatch", 0o757),
        good.clone().with_mode("/usr/bin/sbatch", 0o644),
    ] {
        assert_eq!(commands(&tree, &["/usr/bin"]), ["/usr/bin/squeue"]);
    }
    // A directory above them that can be changed.
    for tree in [
        good.clone().owned_by("/usr/bin", OWNER),
        good.clone().with_mode("/usr/bin", 0o775),
        good.clone().with_mode("/usr", 0o777),
    ] {
        assert_eq!(commands(&tree, &["/usr/bin"]), Vec::<String>::new());
    }
    // In a sticky directory nobody replaces what is another's.
    let sticky = good.with_mode("/usr", 0o1777);
    assert_eq!(commands(&sticky, &["/usr/bin"]).len(), 2);
}

/// A directory whose owner is in league with the user, or is a subordinate UID of the user's own.
#[test]
fn commands_of_an_accomplice_are_not_used() {
    const ACCOMPLICE: u32 = 2000;
    const SERVICE: u32 = 3000;
    let shared = |owner: u32| {
        let tree = slurm_in(with_slurm(), "/shared/x").owned_by("/usr/bin/agent-sandbox", ROOT);
        ["/shared/x", "/shared/x/squeue", "/shared/x/sbatch"]
            .iter()
            .fold(tree.owned_by("/shared", ROOT), |tree, path| {
                tree.owned_by(path, owner)
            })
    };
    let names = "slurm.directories = [\"/shared/x\"]";
    let used = |mut scenario: Scenario| {
        scenario.host.environment.retain(|(name, _)| name != "PATH");
        let mut scenario = scenario.variable("PATH", "/shared/x:/usr/bin");
        let merged = scenario.merged();
        scenario.host.find_slurm(&merged, &scenario.tree);
        let slurm = scenario.host.slurm.unwrap();
        (slurm.commands[0].1.clone(), slurm.distrusted)
    };
    let real = Path::new("/usr/bin/sbatch");
    let theirs = Path::new("/shared/x/sbatch");
    let of = |owner: u32| Scenario::new(shared(owner)).policy(names);
    let (command, distrusted) = used(of(ACCOMPLICE));
    assert_eq!(command, real);
    let why = "belongs to the user 2000, who is neither root nor the owner of agent-sandbox";
    let [(path, said), _] = distrusted.as_slice() else {
        panic!("{distrusted:?}");
    };
    assert!(path.starts_with("/shared/x") && said == why, "{said}");
    // Root's command in a directory in which the accomplice can exchange it.
    let mut above = shared(ROOT).owned_by("/shared/x", ACCOMPLICE);
    let (command, distrusted) = used(Scenario::new(above).policy(names));
    assert_eq!(command, real);
    assert_eq!(distrusted[0].1, format!("lies in `/shared/x`, which {why}"));
    // What a job brings along is nothing that the site says, whatever it is called.
    for scenario in [
        Scenario::new(shared(ACCOMPLICE)).profile("built-in default.toml", names),
        Scenario::new(shared(ACCOMPLICE))
            .policy(names)
            .enforced("slurm.directories = [\"/usr\", \"/shared\"]"),
    ] {
        assert_eq!(used(scenario).0, real);
    }
    // A variable in what the site says is the user's.
    let variable = Scenario::new(shared(ACCOMPLICE))
        .defaults("slurm.directories = [\"$SOFTWARE/x\"]")
        .variable("SOFTWARE", "/shared");
    assert_eq!(used(variable).0, real);
    // Root's own; what the site names in full; what belongs to who installed agent-sandbox, if that is not root.
    assert_eq!(used(of(ROOT)).0, theirs);
    let site = Scenario::new(shared(SERVICE)).defaults(names);
    assert_eq!(used(site).0, theirs);
    above = shared(SERVICE).owned_by("/usr/bin/agent-sandbox", SERVICE);
    assert_eq!(used(Scenario::new(above).policy(names)).0, theirs);
    above = shared(ACCOMPLICE).owned_by("/usr/bin/agent-sandbox", SERVICE);
    assert_eq!(used(Scenario::new(above).policy(names)).0, real);
    // A launcher of the user's own trusts as the user says, but for what an agent can have changed.
    above = shared(SERVICE).owned_by("/usr/bin/agent-sandbox", OWNER);
    assert_eq!(used(Scenario::new(above).policy(names)).0, theirs);
    above = shared(OWNER).owned_by("/usr/bin/agent-sandbox", OWNER);
    assert_eq!(used(Scenario::new(above).policy(names)).0, real);
}

#[test]
fn links_count_as_the_directories_that_they_stand_in() {
    let versions = || {
        root_owns(
            slurm_in(plain(), "/opt/slurm/23.11/bin"),
            &[
                "/opt/slurm",
                "/opt/slurm/23.11",
                "/opt/slurm/23.11/bin",
                "/opt/slurm/23.11/bin/squeue",
                "/opt/slurm/23.11/bin/sbatch",
            ],
        )
    };
    let tree = versions().link("/opt/slurm/current", "23.11");
    assert_eq!(
        commands(&tree, &["/opt/slurm/current/bin"]),
        [
            "/opt/slurm/current/bin/sbatch",
            "/opt/slurm/current/bin/squeue"
        ]
    );
    let slurm = found(&tree, &["/opt/slurm/current/bin"], "", None).unwrap();
    let real: Vec<_> = ["sbatch", "squeue"]
        .map(|name| PathBuf::from("/opt/slurm/23.11/bin").join(name))
        .into();
    assert_eq!(slurm.covers, real);
    // A link that the user could turn elsewhere, and one through a directory that is unknown.
    let tree = versions()
        .directory("/data/ada")
        .link("/data/ada/slurm", "/opt/slurm/23.11/bin");
    assert_eq!(commands(&tree, &["/data/ada/slurm"]), Vec::<String>::new());
    let tree = versions()
        .directory("/data/ada/x")
        .link("/opt/slurm/odd", "/data/ada/../../opt/slurm/23.11");
    assert_eq!(
        commands(&tree, &["/opt/slurm/odd/bin"]),
        Vec::<String>::new()
    );
}

#[test]
fn the_directory_that_the_user_knows_wins() {
    let tree = root_owns(
        slurm_in(with_slurm(), "/opt/slurm/bin"),
        &[
            "/opt/slurm",
            "/opt/slurm/bin",
            "/opt/slurm/bin/squeue",
            "/opt/slurm/bin/sbatch",
        ],
    );
    let directories = ["/usr/bin", "/opt/slurm/bin"];
    let used = |search: &str| {
        let slurm = found(&tree, &directories, search, None).unwrap();
        assert_eq!(slurm.covers.len(), 4);
        let sbatch = slurm.commands.iter().find(|(c, _)| *c == Command::Sbatch);
        sbatch.unwrap().1.display().to_string()
    };
    assert_eq!(used(""), "/usr/bin/sbatch");
    assert_eq!(used("/opt/slurm/bin:/usr/bin"), "/opt/slurm/bin/sbatch");
    assert_eq!(used("/home/ada/bin:/usr/bin"), "/usr/bin/sbatch");
}

#[test]
fn the_configuration_of_the_real_commands() {
    let tree = root_owns(
        with_slurm().file("/etc/slurm-b/slurm.conf", ""),
        &["/etc/slurm-b", "/etc/slurm-b/slurm.conf"],
    );
    let conf = |value| found(&tree, &["/usr/bin"], "", value).unwrap().conf;
    assert_eq!(conf(None), Conf::BuiltIn);
    assert_eq!(conf(Some("")), Conf::BuiltIn);
    assert_eq!(
        conf(Some("/etc/slurm-b/slurm.conf")),
        Conf::At("/etc/slurm-b/slurm.conf".into())
    );
    for other in ["slurm.conf", "/etc/x/../slurm.conf", "/home/ada/notes.txt"] {
        assert!(
            matches!(conf(Some(other)), Conf::Distrusted { .. }),
            "{other}"
        );
    }
}

/// What is ours comes last in the search path, so that every other name means what it meant.
#[test]
fn the_search_path_ends_with_what_is_ours() {
    let path = |path: &str, tree: Tree, policy: &str| {
        let mut scenario = scenario_with(tree, policy);
        scenario.host.environment.retain(|(name, _)| name != "PATH");
        let plan = scenario.variable("PATH", path).plan().unwrap();
        let found = plan
            .variables
            .iter()
            .find(|variable| variable.name == "PATH");
        found.unwrap().value.to_str().unwrap().to_owned()
    };
    let longer = |path: &str| format!("{path}:/run/agent-sandbox/bin");
    for given in ["/home/ada/bin:/usr/bin:/bin:", "/opt/bin", "/usr/bin"] {
        assert_eq!(path(given, with_slurm(), ""), longer(given));
        assert_eq!(
            path(given, with_slurm(), "slurm.mode = \"off\""),
            longer(given)
        );
        assert_eq!(path(given, programs(plain()), ""), longer(given));
    }
    let there = "/run/agent-sandbox/bin:/usr/bin";
    assert_eq!(path(there, with_slurm(), ""), there);
}

#[test]
fn sockets_that_slurms_configuration_names_are_hidden() {
    let conf = "AuthType=auth/munge\nAuthInfo=socket=/opt/munge/../munge/a.socket\n";
    let tree = with_slurm()
        .file("/etc/slurm/slurm.conf", conf)
        .socket("/opt/munge/a.socket")
        .socket("/opt/munge/b.socket");
    let scenario = scenario_with(tree, "files.read = [\"/opt\"]");
    let plan = scenario.plan().unwrap();
    let rule = |path: &str| plan.hidden.rule_for(Path::new(path));
    let source = rule("/opt/munge/a.socket").unwrap().source.to_string();
    assert_eq!(source, "/etc/slurm/slurm.conf:2");
    let asked = "/opt/munge/a.socket";
    let told = crate::explain::asked(&scenario, asked);
    assert!(
        told.change.text.starts_with("it cannot be given"),
        "{told:?}"
    );
    assert!(rule("/opt/munge/b.socket").is_none());
    assert!(scenario.text().contains("/opt/munge/a.socket"));
}

/// A host whose `slurm.conf` says this, with what a node's daemon keeps.
fn with_spool(directory: &str, spool: &str) -> Tree {
    with_slurm()
        .file(
            "/etc/slurm/slurm.conf",
            format!("ClusterName=c\nSlurmdSpoolDir={directory}\n"),
        )
        .socket(&format!("{spool}/n1_7.0"))
        .file(&format!("{spool}/job00007/slurm_script"), "#!/bin/sh")
        .file("/srv/data/table", "1")
        .file("/srv/spool-of-mail/ada", "hello")
}

#[test]
fn the_directory_of_slurms_daemon_is_hidden() {
    let unhide = "files.unhide = [\"/srv/spool\"]";
    for (directory, spool, hidden) in [
        ("/srv/spool", "/srv/spool", "/srv/spool"),
        // An entry for each node is all that stands there.
        ("/srv/spool/%n", "/srv/spool/n1", "/srv/spool"),
        ("/srv/spool/../spool/%h/", "/srv/spool/n1", "/srv/spool"),
        ("/srv/slurmd.%n", "/srv/slurmd.n1", "/srv/slurmd.n1"),
        ("/srv/%h-spool", "/srv/n1-spool", "/srv/n1-spool"),
        ("/srv/%n/slurmd", "/srv/n1/slurmd", "/srv/n1/slurmd"),
        ("/srv/d-%h/s-%n", "/srv/d-n1/s-n1", "/srv/d-n1/s-n1"),
    ] {
        for list in ["read", "write"] {
            let policy = format!("files.{list} = [\"/srv\"]\n{unhide}");
            let scenario = scenario_with(with_spool(directory, spool), &policy);
            // Judges, too.
            scenario.text();
            let plan = scenario.plan().unwrap();
            let rule = |path: &str| plan.hidden.rule_for(Path::new(path));
            assert!(rule(hidden).is_some(), "{directory}");
            let at = format!("{spool}/n1_7.0");
            let source = rule(&at).unwrap().source.to_string();
            assert_eq!(source, "/etc/slurm/slurm.conf:2");
            let told = crate::explain::asked(&scenario, &at);
            assert!(
                told.change.text.starts_with("it cannot be given"),
                "{told:?}"
            );
            let why = told.why.to_string();
            assert!(why.starts_with("the directory of Slurm's daemon"), "{why}");
            for other in ["/srv", "/srv/data/table", "/srv/spool-of-mail/ada"] {
                assert!(rule(other).is_none(), "{directory} hides {other}");
            }
        }
    }
}

#[test]
fn without_a_directory_of_the_daemon_its_usual_one_is_hidden() {
    let tree = with_slurm()
        .file("/etc/slurm/slurm.conf", "ClusterName=c\n")
        .socket("/var/spool/slurmd/n1_7.0");
    let scenario = scenario_with(tree, "files.read = [\"/var/spool\"]");
    let plan = scenario.plan().unwrap();
    scenario.text();
    let at = Path::new("/var/spool/slurmd/n1_7.0");
    assert!(plan.hidden.rule_for(at).is_some());
}

/// A name of the node's that stands for the root would hide everything.
#[test]
fn a_directory_of_the_daemon_never_hides_the_root() {
    for directory in ["/%n", "/", "%n", "/%n%h"] {
        let scenario = scenario_with(with_spool(directory, "/srv/s"), "");
        assert!(scenario.plan().is_ok(), "{directory}");
    }
}

#[test]
fn the_batch_script_stands_in_the_directory_of_the_daemon() {
    for policy in ["", "files.read = [\"/srv\"]", "files.write = [\"/srv\"]"] {
        for (directory, spool) in [("/srv/slurmd", "/srv/slurmd"), ("/srv/s/%n", "/srv/s/n1")] {
            let at = format!("{spool}/job00007/slurm_script");
            let scenario = scenario_with(with_spool(directory, spool), policy);
            let scenario = scenario.job(&[]).script(&at);
            // Judges that nothing stands below a cover, which would be closed already.
            scenario.text();
            let plan = scenario.plan().unwrap();
            let step = plan.steps.iter().find(|step| step.at == Path::new(&at));
            assert!(matches!(step.unwrap().mount, Mount::Program { .. }));
            let socket = PathBuf::from(format!("{spool}/n1_7.0"));
            let over = plan.steps.iter().rev().find(|s| socket.starts_with(&s.at));
            let shown = matches!(over.map(|step| &step.mount), Some(Mount::Bind { .. }));
            assert!(!shown, "{policy} {directory}");
        }
    }
}

/// What a job's jail has for temporary files, by place.
fn temporary(scenario: &Scenario) -> Vec<String> {
    scenario.text();
    let plan = scenario.plan().unwrap();
    let mounted = plan.steps.iter().filter(|step| {
        let tmpfs = matches!(step.mount, Mount::Tmpfs { mode: 0o1777, .. });
        tmpfs && step.why.to_string().contains("slurm/")
    });
    mounted.map(|step| step.at.display().to_string()).collect()
}

#[test]
fn a_job_has_slurms_directories_for_temporary_files() {
    let tree = |value: &str| {
        with_slurm()
            .file("/etc/slurm/slurm.conf", format!("TmpFS={value}\n"))
            .file("/etc/slurm/mpi.conf", "PMIxCliTmpDirBase=/local/pmix\n")
            .file("/scratch/others", "")
            .file("/local/pmix/spmix_appdir_1_2.3/x", "")
            .link("/fast", "/scratch")
    };
    let job = |value: &str, policy: &str| scenario_with(tree(value), policy).job(&[]);
    assert_eq!(temporary(&job("/scratch", "")), ["/local/pmix", "/scratch"]);
    assert_eq!(temporary(&scenario_with(tree("/scratch"), "")), [""; 0]);
    // By the name of a link, which leads there inside, too.
    let linked = job("/fast", "");
    assert_eq!(temporary(&linked), ["/local/pmix", "/scratch"]);
    let steps = linked.plan().unwrap().steps;
    let link = steps.iter().find(|step| step.at == Path::new("/fast"));
    assert!(matches!(link.unwrap().mount, Mount::Link { .. }));
    // What the jail shows, hides or has of its own stays as it is.
    for policy in [
        "files.read = [\"/scratch\"]",
        "files.write = [\"/scratch\"]",
        "files.hide = [\"/scratch\"]",
    ] {
        assert_eq!(temporary(&job("/scratch", policy)), ["/local/pmix"]);
    }
    for value in [
        "/tmp",
        "/var/tmp",
        "/",
        "/dev/shm/x",
        "/proc/x",
        "/run/agent-sandbox/x",
        "/home/ada/.ssh",
        "/usr/tmp",
        "/srv/../scratch",
        "/local-%n",
        "relative",
    ] {
        assert_eq!(temporary(&job(value, "")), ["/local/pmix"], "{value}");
    }
    // A project in it stays.
    let below = job("/home", "");
    assert_eq!(temporary(&below), ["/home", "/local/pmix"]);
    let steps = below.plan().unwrap().steps;
    let project = Path::new("/home/ada/project");
    let project = steps.iter().find(|step| step.at == project).unwrap();
    assert!(matches!(project.mount, Mount::Bind { .. }));
}

/// Where there is no Slurm hardly anything is asked.
#[test]
fn a_directory_without_queue_is_looked_at_once() {
    let tree = plain();
    assert_eq!(
        found(&tree, &["/usr/bin", "/opt/slurm/bin"], "", None),
        None
    );
    assert!(!tree.was_asked("/usr/bin/sbatch"));
    assert!(!tree.was_asked("/opt/slurm/bin/sbatch"));
    assert!(!tree.was_asked("/etc/slurm/slurm.conf"));
}

/// What stands between Slurm and the jail is not writable inside.
#[test]
fn a_project_around_the_chaperon_is_refused() {
    let tree = slurm_in(plain(), "/usr/bin")
        .file("/home/ada/project/libexec/x", "")
        .owned_by("/usr/bin", ROOT)
        .owned_by("/usr/bin/squeue", ROOT)
        .owned_by("/usr/bin/sbatch", ROOT);
    let scenario = Scenario::new(tree).facts(|host| {
        host.slurm = Some(Slurm {
            shim: Some("/home/ada/project/libexec/x".into()),
            chaperon: Some("/usr/bin/cc".into()),
            ..Slurm::default()
        });
    });
    let text = scenario.text();
    assert!(
        text.contains("agent-sandbox itself is installed in it"),
        "{text}"
    );
}

/// Nor is what runs outside where there is no Slurm.
#[test]
fn a_project_around_the_filter_is_refused() {
    let tree = plain().file("/home/ada/project/libexec/x", "");
    let scenario = Scenario::new(tree)
        .facts(|host| host.companions = vec!["/home/ada/project/libexec/x".into()]);
    let text = scenario.text();
    assert!(
        text.contains("agent-sandbox itself is installed in it"),
        "{text}"
    );
}
