//! Accounts and partitions for agents alone, by the files of `profiles/site/slurm`: a job that starts in the jail has
//! a mark that Slurm's own part verifies, and any other is refused. The one to hold is the user without a jail.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use agent_sandbox_events::mark::LINE;

use crate::attested::{ACCOUNT, Attested, OPEN_TO_ALL, PARTITION};
use crate::call::Output;
use crate::forged::made_by_hand;
use crate::world::{Side, World, until};

/// What whoever is refused reads.
const REFUSED: &str = "is for jobs that start in the jail of agent-sandbox";

#[track_caller]
pub(crate) fn refused(said: &Output, why: &str) {
    assert!(
        said.code != 0 && said.err().contains(REFUSED) && said.err().contains(why),
        "`{why}`: {said}"
    );
}

#[test]
fn accounts_and_partitions_of_agents_take_jobs_of_the_jail_alone() {
    let Some(attested) = Attested::start() else {
        return;
    };
    let alice = World::of(attested.cluster(), &attested.cluster().alice);
    without_a_key_nothing_is_marked(&attested, &alice);
    let line = attested.distribute();
    assert_eq!(line.split(' ').count(), 3, "{line}");
    // As `systemctl reload`: until then jobs are not marked.
    nix::sys::signal::kill(attested.service.pid(), nix::sys::signal::Signal::SIGHUP).unwrap();
    attested.rule(&attested.for_agents());
    attested.prolog();
    let script = jobs_of_the_jail_pass_and_show_it(&attested, &alice);
    jobs_without_it_are_refused(&alice);
    a_marked_script_is_good_for_itself_alone(&attested, &alice, &script);
    jobs_are_not_moved_in(&attested, &alice);
    a_list_without_names_is_the_default(&attested, &alice);
    what_cannot_be_verified_is_refused_to_these_accounts_alone(&attested, &alice);
    the_prolog_stops_what_came_past_the_controller(&attested, &alice);
}

fn without_a_key_nothing_is_marked(attested: &Attested, alice: &World) {
    let said = alice
        .inside("sbatch --parsable -H -o o.txt --wrap true")
        .run()
        .good();
    let script = attested.script_of(&said.word());
    assert!(!String::from_utf8_lossy(&script).contains(LINE.trim()));
    alice.real(&["scancel", &said.word()]).good();
}

/// The script of one that waits.
fn jobs_of_the_jail_pass_and_show_it(attested: &Attested, alice: &World) -> Vec<u8> {
    let session = "echo ran in ${AGENT_SANDBOX:-no} jail";
    alice.write("job.sh", format!("#!/bin/sh\n#SBATCH -o ran.txt\n{session}\nsrun sh -c 'echo step in ${{AGENT_SANDBOX:-no}} jail'\n"));
    let over = alice
        .inside(&format!("sbatch -W --parsable -A {ACCOUNT} job.sh"))
        .run()
        .good()
        .word();
    until("the mark in the accounting", || {
        let words = ["-nPX", "-j", &over, "--format=AdminComment%80"];
        let said = attested.cluster().said("sacct", words);
        said.starts_with("agent-sandbox session=")
    });
    assert_eq!(alice.read("ran.txt"), "ran in 1 jail\nstep in 1 jail\n");
    // An array's tasks, and two nodes: the Prolog finds the one script of all.
    let wide = format!("sbatch -W -p {PARTITION} -N2 --array=1-2 -o a%a.txt --wrap '{session}'");
    alice.inside(&wide).run().good();
    for name in ["a1.txt", "a2.txt"] {
        assert_eq!(alice.read(name), "ran in 1 jail\n");
    }
    // A job that a job submits is marked by the tracer of its node.
    let inner = format!("sbatch -W -A {ACCOUNT} -o inner.txt --wrap '{session}'");
    alice.write("outer.sh", format!("#!/bin/sh\n{inner}\n"));
    alice
        .inside(&format!("sbatch -W -A {ACCOUNT} -o o.txt outer.sh"))
        .run()
        .good();
    assert_eq!(alice.read("inner.txt"), "ran in 1 jail\n");
    // The mark is seen by everybody, names the session and the node, and stays.
    let said = alice
        .inside(&format!(
            "echo $AGENT_SANDBOX_SESSION; sbatch --parsable -H -A {ACCOUNT} -o ran.txt --wrap '{session}'"
        ))
        .run()
        .good();
    let text = said.out();
    let (session, job) = text.trim().split_once('\n').unwrap();
    let comment = attested.comment(job);
    assert!(
        comment.starts_with(&format!("agent-sandbox session={session} node=")),
        "{comment}: {}",
        attested.cluster().said("scontrol", ["show", "job", job])
    );
    for by_hand in ["AdminComment=none", "AdminComment="] {
        let said = alice.real(&["scontrol", "update", &format!("JobId={job}"), by_hand]);
        assert_ne!(said.code, 0, "{said}");
    }
    assert_eq!(attested.comment(job), comment);
    // What is no batch script says nothing of what it will run.
    for command in ["srun", "salloc"] {
        let said = alice.inside(&format!("{command} -A {ACCOUNT} true")).run();
        refused(&said, "only a batch script can be verified");
    }
    let script = attested.script_of(job);
    alice.real(&["scancel", job]).good();
    script
}

fn jobs_without_it_are_refused(alice: &World) {
    alice.write("own.sh", "#!/bin/sh\ntouch unjailed\n");
    for job in [
        format!("-A {ACCOUNT}"),
        format!("-A {}", ACCOUNT.to_uppercase()),
        format!("-p {PARTITION}"),
        format!("-p debug,{PARTITION}"),
    ] {
        for command in ["sbatch", "srun", "salloc"] {
            let what = if command == "sbatch" {
                "own.sh"
            } else {
                "./own.sh"
            };
            let said = alice.outside(&format!("{command} {job} {what}")).run();
            let srun = "only a batch script can be verified";
            let sbatch = "it carries no mark of a login node's tracer";
            refused(&said, if command == "sbatch" { sbatch } else { srun });
            assert!(said.err().contains("hint: submit it with sbatch"), "{said}");
        }
    }
    let call = alice.outside("sbatch own.sh");
    refused(&call.variable("SBATCH_ACCOUNT", ACCOUNT).run(), "no mark");
    let call = alice.outside("sbatch own.sh");
    refused(
        &call.variable("SBATCH_PARTITION", PARTITION).run(),
        "no mark",
    );
    // Others are untouched.
    alice
        .outside("sbatch -W -A proj1 -o o.txt --wrap true && srun -A proj1 true && salloc -Q -A proj1 true")
        .run()
        .good();
    assert!(!alice.place(Side::Outside).join("unjailed").exists());
}

fn a_marked_script_is_good_for_itself_alone(attested: &Attested, alice: &World, script: &[u8]) {
    let submit = format!("sbatch -W -A {ACCOUNT} -o o.txt");
    // Whoever submits it, it starts in the jail.
    alice.write("marked.sh", script);
    fs::remove_file(alice.project().join("ran.txt")).unwrap();
    alice.outside(&format!("{submit} marked.sh")).run().good();
    assert_eq!(alice.read("ran.txt"), "ran in 1 jail\n");
    // What would start before the jail: it does, where nobody verifies.
    let (library, left) = preloaded(attested, alice);
    let preload = format!("ALL,LD_PRELOAD={library}");
    alice
        .outside(&format!(
            "sbatch -W -A proj1 -o o.txt --export={preload} marked.sh"
        ))
        .run()
        .good();
    fs::remove_file(&left).unwrap();
    for (variable, said) in [
        (preload.as_str(), "LD_PRELOAD"),
        ("ALL,LD_AUDIT=/home/x.so", "LD_AUDIT"),
        ("ALL,BASH_ENV=/home/x.sh", "BASH_ENV"),
        ("NONE", "SLURM_GET_USER_ENV"),
        ("ALL,SLURM_GET_USER_ENV=1", "SLURM_GET_USER_ENV"),
    ] {
        let call = alice.outside(&format!("{submit} --export={variable} marked.sh"));
        refused(&call.run(), &format!("its environment has {said}"));
    }
    let image = "_SLURM_SPANK_OPTION_pyxis_container_image";
    let call = alice.outside(&format!("{submit} marked.sh"));
    refused(
        &call.variable(image, "mine").run(),
        &format!("its environment has {image}"),
    );
    assert!(!left.exists());
    // Another script under the same mark.
    let text = String::from_utf8(script.to_vec()).unwrap();
    let launcher = attested.cluster().launcher.display().to_string();
    let body = text.trim_end().rsplit_once('\n').unwrap().0;
    let mark = text.trim_end().rsplit_once('\n').unwrap().1;
    let middle = body.len() / 2;
    let changed = format!("{}A{}", &text[..middle], &text[middle + 1..]);
    let other = if &text[middle..=middle] == "A" {
        format!("{}B{}", &text[..middle], &text[middle + 1..])
    } else {
        changed
    };
    let forged = "its mark is not of this script, or no node of the site's made it";
    let no_jail = "no batch script that agent-sandbox starts";
    for (name, content, why) in [
        ("changed", other, forged),
        (
            "shell",
            text.replacen(&format!("#!{launcher} job"), "#!/bin/sh", 1),
            no_jail,
        ),
        (
            "own-program",
            text.replacen(&launcher, "/tmp/agent-sandbox", 1),
            no_jail,
        ),
        (
            "user",
            format!("#!/bin/sh\ntouch unjailed\nexit\n{mark}\n"),
            no_jail,
        ),
        ("cut", format!("{body}\n"), "it carries no mark"),
        (
            "longer",
            format!("{body}\n{mark}\n# more\n"),
            "it carries no mark",
        ),
        (
            "signature",
            text.replacen(" signature=", " signature=00", 1),
            "its mark is damaged",
        ),
        (
            "cluster",
            text.replacen("1 cluster=", "1 cluster=x", 1),
            "it was marked for the cluster x",
        ),
        (
            "node",
            text.replacen(" node=", " node=x", 1),
            "no key of the node x",
        ),
    ] {
        assert_ne!(content, text, "{name}");
        let file = format!("{name}.sh");
        alice.write(&file, content);
        refused(&alice.outside(&format!("{submit} {file}")).run(), why);
    }
    assert!(!alice.place(Side::Outside).join("unjailed").exists());
    // Another user, who has the account as well.
    let bob = World::of(attested.cluster(), &attested.cluster().bob);
    bob.write("marked.sh", script);
    let said = bob
        .outside(&format!("sbatch -p {PARTITION} -o o.txt marked.sh"))
        .run();
    refused(&said, "it was marked for another user");
    made_by_hand(attested, alice, body, mark);
}

/// A library that leaves a file when a program loads it, and the file.
fn preloaded(attested: &Attested, alice: &World) -> (String, PathBuf) {
    let left = alice.place(Side::Outside).join("preloaded");
    let (source, library) = ["pre.c", "pre.so"]
        .map(|name| attested.place.path().join(name))
        .into();
    let text = format!(
        "#include <fcntl.h>\n__attribute__((constructor)) static void load(void) {{ open({left:?}, O_CREAT | O_WRONLY, 0644); }}\n"
    );
    fs::write(&source, text).unwrap();
    let made = Command::new("/usr/bin/gcc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status()
        .unwrap();
    assert!(made.success());
    (library.display().to_string(), left)
}

fn jobs_are_not_moved_in(attested: &Attested, alice: &World) {
    let reserve = [
        "create",
        "reservation",
        "ReservationName=agents",
        "Users=root,agentsandbox-alice",
        "StartTime=now+10days",
        "Duration=60",
        "Nodes=ALL",
        "Flags=PART_NODES",
        &format!("PartitionName={PARTITION}"),
    ];
    let _ = attested.cluster().said("scontrol", reserve);
    let said = alice
        .outside("sbatch --reservation=agents -o o.txt --wrap true")
        .run();
    refused(&said, "no mark");
    let said = alice
        .outside("sbatch --parsable -H -A proj1 -p debug -o o.txt --wrap true")
        .run()
        .good();
    let job = format!("JobId={}", said.word());
    for to in [
        format!("Account={ACCOUNT}"),
        format!("Account={}", ACCOUNT.to_uppercase()),
        format!("Partition={PARTITION}"),
        format!("Partition=debug,{PARTITION}"),
    ] {
        let moved = alice.real(&["scontrol", "update", &job, &to]);
        // scontrol does not show what a plug-in says.
        assert_ne!(moved.code, 0, "{to}: {moved}");
        let now = attested
            .cluster()
            .said("scontrol", ["show", "job", &said.word()]);
        let there = now.contains("Account=proj1 ") && now.contains("Partition=debug ");
        assert!(there, "{to}: {now}");
    }
    // All else of it can be changed, and another user's job of the jail moved.
    alice
        .real(&["scontrol", "update", &job, "TimeLimit=2"])
        .good();
    alice.real(&["scancel", &said.word()]).good();
    let said = alice
        .inside("sbatch --parsable -H -A proj1 -o o.txt --wrap true")
        .run()
        .good();
    let job = format!("JobId={}", said.word());
    let to = format!("Account={ACCOUNT}");
    alice.real(&["scontrol", "update", &job, &to]).good();
    alice.real(&["scancel", &said.word()]).good();
}

/// The default partition is for agents.
fn a_list_without_names_is_the_default(attested: &Attested, alice: &World) {
    let (from, to) = (format!("{PARTITION} = true"), "debug = true");
    let text = attested.for_agents();
    assert_eq!(text.matches(&from).count(), 1);
    attested.rule(&text.replace(&from, to));
    for list in ["", "-p ''", "-p ,"] {
        let said = alice
            .outside(&format!("sbatch -A proj1 {list} -o o.txt --wrap true"))
            .run();
        // Some versions of Slurm refuse a comma themselves, before they ask.
        let theirs = list == "-p ," && said.err().contains("nvalid partition");
        if !theirs {
            refused(&said, "no mark");
        }
        assert_ne!(said.code, 0, "{list}: {said}");
    }
    let said = alice
        .outside(&format!(
            "sbatch --parsable -H -A proj1 -p {PARTITION} -o o.txt --wrap true"
        ))
        .run()
        .good();
    let job = said.word();
    for to in ["Partition=", "Partition=,", "Account=", "Account=,"] {
        let moved = alice.real(&["scontrol", "update", &format!("JobId={job}"), to]);
        let now = attested.cluster().said("scontrol", ["show", "job", &job]);
        let there =
            now.contains("Account=proj1 ") && now.contains(&format!("Partition={PARTITION} "));
        assert!(there && moved.code != 0, "{to}: {moved} {now}");
    }
    alice.real(&["scancel", &job]).good();
    attested.rule(&text);
}

fn what_cannot_be_verified_is_refused_to_these_accounts_alone(attested: &Attested, alice: &World) {
    let inside = format!("sbatch -H --parsable -A {ACCOUNT} -o o.txt --wrap true");
    let others = "sbatch -W -A proj1 -o o.txt --wrap true";
    let tried = |why: &str| {
        refused(&alice.inside(&inside).run(), why);
        alice.inside(others).run().good();
        alice.outside(others).run().good();
    };
    let keys = fs::read_to_string(attested.keys()).unwrap();
    fs::remove_file(attested.keys()).unwrap();
    tried("it cannot be verified: cannot read the keys");
    fs::write(attested.keys(), "nonsense\n").unwrap();
    tried("it cannot be verified");
    fs::write(attested.keys(), "# none\n").unwrap();
    tried("the site has no key of the node");
    // Slurm's controller waits meanwhile.
    fs::remove_file(attested.keys()).unwrap();
    nix::unistd::mkfifo(&attested.keys(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    // For the controller, which is not root.
    fs::set_permissions(attested.keys(), fs::Permissions::from_mode(0o644)).unwrap();
    let asked = Instant::now();
    tried("no answer within 2 seconds");
    assert!(asked.elapsed() < Duration::from_secs(60));
    fs::remove_file(attested.keys()).unwrap();
    // A key is replaced while scripts with the old one are on their way.
    let (node, _) = keys.split_once(' ').unwrap();
    fs::write(
        attested.keys(),
        format!("{node} ed25519 {}\n{keys}", "11".repeat(32)),
    )
    .unwrap();
    let said = alice.inside(&inside).run().good();
    alice.real(&["scancel", &said.word()]).good();
    fs::write(attested.keys(), &keys).unwrap();
    let verifier = attested.verifier().display().to_string();
    attested.rule(
        &attested
            .for_agents()
            .replace(&verifier, "/nonexistent/verify"),
    );
    tried("the controller cannot verify it");
    // A rule that fails.
    let broken = "local function verified(script, uid)\n    error(\"broken\")\n";
    let text = attested.for_agents();
    let failing = text.replacen("local function verified(script, uid)\n", broken, 1);
    assert_ne!(failing, text);
    attested.rule(&failing);
    tried("the controller cannot verify it");
    attested.rule(&text);
}

fn the_prolog_stops_what_came_past_the_controller(attested: &Attested, alice: &World) {
    attested.rule(OPEN_TO_ALL);
    let outside = alice.place(Side::Outside).join("unjailed");
    let state = |job: &str| {
        let words = ["-nPX", "-j", job, "--format=State"];
        attested.cluster().said("sacct", words).trim().to_owned()
    };
    for job in [format!("-A {ACCOUNT}"), format!("-p {PARTITION}")] {
        let said = alice
            .outside(&format!("sbatch --parsable {job} -o o.txt own.sh"))
            .run()
            .good();
        until("the job is cancelled", || {
            state(&said.word()).starts_with("CANCELLED")
        });
        for command in ["srun", "salloc -Q"] {
            let said = alice.outside(&format!("{command} {job} ./own.sh")).run();
            assert_ne!(said.code, 0, "{said}");
        }
    }
    until("the nodes are idle again", || {
        let all = attested.cluster().said("sinfo", ["-h", "-N", "-o", "%T"]);
        all.lines().all(|state| state == "idle")
    });
    assert!(!outside.exists(), "the Prolog did not stop it");
    // The same script runs where it may, and those of the jail run here.
    alice
        .outside("sbatch -W -A proj1 -o o.txt own.sh")
        .run()
        .good();
    assert!(outside.exists());
    alice
        .inside(&format!("sbatch -W -A {ACCOUNT} -o o.txt --wrap true"))
        .run()
        .good();
}
