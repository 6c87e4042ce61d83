//! Accounts and partitions for agents alone, by the files of `profiles/site/slurm`: a job that starts in the jail has
//! a mark that Slurm's own part verifies, and any other is refused. The one to hold is the user without a jail.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agent_sandbox_events::mark::{Claim, DIGEST, LIFETIME, LINE, Mark, SIGNATURE};

use crate::call::Output;
use crate::cluster::Cluster;
use crate::own::Own;
use crate::service::Service;
use crate::site::has;
use crate::world::{Side, World, until};

/// The account for agents, of alice's two; and the partition.
const ACCOUNT: &str = "proj2";
const PARTITION: &str = "long";

/// What whoever is refused reads.
const REFUSED: &str = "is for jobs that start in the jail of agent-sandbox";

/// What everything stands on: root's files that the controller and the nodes have.
struct Attested {
    own: Own,
    service: Service,
    place: tempfile::TempDir,
}

impl Attested {
    fn start() -> Option<Self> {
        let place = tempfile::Builder::new()
            .prefix("agent-sandbox-attest.")
            .tempdir_in("/run")
            .unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let conf = format!(
            "JobSubmitPlugins=lua\nProlog={}\nPrologFlags=Alloc\n",
            place.path().join("prolog").display()
        );
        fs::write(place.path().join("prolog"), "#!/bin/sh\nexit 0\n").unwrap();
        fs::set_permissions(
            place.path().join("prolog"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        let extra = [
            ("slurm.conf", conf.as_str()),
            ("job_submit.lua", OPEN_TO_ALL),
        ];
        let own = Own::start("attest", &extra)?;
        let key = place.path().join("mark.key");
        let service = Service::start(&format!("mark_key = {key:?}\n"));
        let attested = Self {
            own,
            service,
            place,
        };
        for directory in [
            attested.own.login(),
            attested.own.node(0),
            attested.own.node(1),
        ] {
            let text = format!("[trace]\nsocket = {:?}\n", attested.service.socket());
            fs::write(directory.join("enforced.toml"), text).unwrap();
        }
        Some(attested)
    }

    fn cluster(&self) -> &'static Cluster {
        self.own.cluster
    }

    fn keys(&self) -> PathBuf {
        self.place.path().join("mark.keys")
    }

    /// Makes the key, if there is none, and distributes it.
    #[track_caller]
    fn distribute(&self) -> String {
        let said = self.service.command("key").output().unwrap();
        assert!(said.status.success(), "{said:?}");
        let line = String::from_utf8(said.stdout).unwrap();
        fs::write(self.keys(), &line).unwrap();
        fs::set_permissions(self.keys(), fs::Permissions::from_mode(0o644)).unwrap();
        line
    }

    fn verifier(&self) -> PathBuf {
        self.cluster()
            .launcher
            .with_file_name("agent-sandbox-attest")
    }

    /// An example, with what a site adapts.
    #[track_caller]
    fn adapted(&self, name: &str, more: &[(&str, String)]) -> String {
        let root = std::env::var_os("AGENT_SANDBOX_ROOT")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let mut text = fs::read_to_string(root.join("profiles/site/slurm").join(name)).unwrap();
        let common = [
            (
                "/usr/local/libexec/agent-sandbox/agent-sandbox-attest",
                self.verifier().display().to_string(),
            ),
            (
                "/etc/agent-sandbox/mark.keys",
                self.keys().display().to_string(),
            ),
            (
                "/usr/local/bin/agent-sandbox",
                self.cluster().launcher.display().to_string(),
            ),
        ];
        for (from, to) in common.iter().chain(more) {
            assert_eq!(text.matches(from).count(), 1, "`{from}` in {name}");
            text = text.replace(from, to);
        }
        text
    }

    /// The rule of the controller, which reads it anew for the next job.
    fn rule(&self, text: &str) {
        let path = self.cluster().conf.with_file_name("job_submit.lua");
        // slurmctld looks at the time, in seconds.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        fs::write(&path, text).unwrap();
    }

    fn for_agents(&self) -> String {
        self.adapted(
            "job_submit.lua",
            &[
                (
                    "accounts = {},",
                    format!("accounts = {{ {ACCOUNT} = true }},"),
                ),
                (
                    "partitions = {},",
                    format!("partitions = {{ {PARTITION} = true }},"),
                ),
                (
                    "CLUSTER = \"cluster\"",
                    format!("CLUSTER = \"{}\"", self.cluster().name),
                ),
            ],
        )
    }

    /// The Prolog of all nodes.
    fn prolog(&self) {
        let text = self.adapted(
            "prolog.sh",
            &[
                ("ACCOUNTS=''", format!("ACCOUNTS='other {ACCOUNT}'")),
                ("PARTITIONS=''", format!("PARTITIONS='{PARTITION}'")),
            ],
        );
        fs::write(self.place.path().join("prolog"), text).unwrap();
    }

    fn script_of(&self, job: &str) -> Vec<u8> {
        let said = self
            .cluster()
            .said("scontrol", ["write", "batch_script", job, "-"]);
        said.into_bytes()
    }

    fn comment(&self, job: &str) -> String {
        let said = self
            .cluster()
            .said("squeue", ["-h", "-j", job, "-O", "admin_comment:80"]);
        said.trim().to_owned()
    }
}

const OPEN_TO_ALL: &str = "function slurm_job_submit() return slurm.SUCCESS end\n\
    function slurm_job_modify() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n";

#[track_caller]
fn refused(said: &Output, why: &str) {
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
    // What would start before the jail.
    for (variable, said) in [
        ("ALL,LD_PRELOAD=/home/x.so", "LD_PRELOAD"),
        ("ALL,LD_AUDIT=/home/x.so", "LD_AUDIT"),
        ("ALL,BASH_ENV=/home/x.sh", "BASH_ENV"),
        ("NONE", "SLURM_GET_USER_ENV"),
        ("ALL,SLURM_GET_USER_ENV=1", "SLURM_GET_USER_ENV"),
    ] {
        let call = alice.outside(&format!("{submit} --export={variable} marked.sh"));
        refused(&call.run(), &format!("its environment has {said}"));
    }
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

/// Marks that somebody made with a key: an older one of the site's own, and one of somebody else's key.
fn made_by_hand(attested: &Attested, alice: &World, body: &str, mark: &str) {
    if !has("openssl") {
        return;
    }
    let mark = Mark::parse(mark.strip_prefix(LINE).unwrap()).unwrap();
    let key = fs::read_to_string(attested.place.path().join("mark.key")).unwrap();
    let site = key.trim().strip_prefix("ed25519 ").unwrap();
    let seconds = |age: u64| Claim {
        time: mark.claim.time - age,
        ..mark.claim.clone()
    };
    let signed = format!("{body}\n");
    let submit = format!("sbatch -H -A {ACCOUNT} -o o.txt made.sh");
    for (claim, seed, why) in [
        (seconds(0), site, None),
        (seconds(LIFETIME + 60), site, Some("seconds ago")),
        (
            seconds(0),
            &"07".repeat(32),
            Some("its mark is not of this script"),
        ),
    ] {
        let made = Mark {
            signature: by_openssl(attested.place.path(), seed, &claim, signed.as_bytes()),
            claim,
        };
        alice.write("made.sh", format!("{signed}{LINE}{made}\n"));
        let said = alice.outside(&submit).run();
        match why {
            Some(why) => refused(&said, why),
            // The forger has signed as the tracer does.
            None => drop(said.good()),
        }
    }
    let job = alice
        .cluster
        .said("squeue", ["-h", "-t", "PD", "-o", "%A", "-n", "made.sh"]);
    alice.real(&["scancel", job.trim()]).good();
}

/// Signs as RFC 8032 says, by another program than ours.
fn by_openssl(place: &Path, seed: &str, claim: &Claim, script: &[u8]) -> [u8; SIGNATURE] {
    let file = |name: &str, content: &[u8]| {
        let path = place.join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let run = |words: &[&str]| {
        let said = Command::new("/usr/bin/openssl")
            .args(words)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(said.status.success(), "{words:?}: {said:?}");
        said.stdout
    };
    let text = file("script", script);
    let digest = run(&["dgst", "-sha256", "-binary", text.to_str().unwrap()]);
    let digest: [u8; DIGEST] = digest.try_into().unwrap();
    let message = file("message", &claim.signed(&digest));
    // RFC 8410: the key as PKCS #8.
    let der: Vec<u8> = format!("302e020100300506032b657004220420{seed}")
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    let key = file("key.der", &der);
    let signature = run(&[
        "pkeyutl",
        "-sign",
        "-rawin",
        "-keyform",
        "DER",
        "-inkey",
        key.to_str().unwrap(),
        "-in",
        message.to_str().unwrap(),
    ]);
    signature.try_into().unwrap()
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
