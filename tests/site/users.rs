//! What root is shown of all users' sessions and records, which the users write.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{CANARY, Call, Output, USER, World, mode};

/// Another user, whom only the launches' user database knows.
pub(crate) const OTHER: &str = "agentsandbox-other";
/// Nobody's on any node.
pub(crate) const UID: u32 = 48_151;
/// The state directory below a home.
const STATE: &str = ".local/state/agent-sandbox";

/// A process that is ended with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A world with two users.
pub(crate) struct Two {
    pub(crate) world: World,
    passwd: PathBuf,
}

impl Two {
    pub(crate) fn new() -> Self {
        let world = World::new();
        let home = world.base().join("other");
        let passwd = world.base().join("passwd");
        // Without the users of suites that run beside this one, whose sessions would be shown.
        let all = fs::read_to_string("/etc/passwd").unwrap();
        let beside = |line: &&str| {
            line.starts_with("agentsandbox-") && !line.starts_with(&format!("{USER}:"))
        };
        let mut text: String = all
            .lines()
            .filter(|line| !beside(line))
            .map(|line| format!("{line}\n"))
            .collect();
        text.push_str(&format!(
            "{OTHER}:x:{UID}:{UID}::{}:/bin/sh\n",
            home.display()
        ));
        fs::write(&passwd, text).unwrap();
        mode(&passwd, 0o644);
        let two = Self { world, passwd };
        for name in ["", "sessions", "audit", "slurm/logs"] {
            fs::create_dir_all(two.state().join(name)).unwrap();
        }
        two.give(&home);
        mode(&home, 0o700);
        two
    }

    /// The other user's state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.world.base().join("other").join(STATE)
    }

    /// Gives everything in a directory to the other user.
    pub(crate) fn give(&self, directory: &Path) {
        let all = Command::new("chown")
            .arg("-hR")
            .arg(format!("{UID}:{UID}"))
            .arg(directory)
            .status();
        assert!(all.unwrap().success());
    }

    /// Writes a file of the other user's state.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.state().join(name);
        fs::write(&path, text).unwrap();
        chown(&path, Some(UID), Some(UID)).unwrap();
        path
    }

    pub(crate) fn call(&self, words: &[&str]) -> Call<'_> {
        self.world.call(words).bind(&self.passwd, "/etc/passwd")
    }

    /// Root's call, whose environment holds a secret.
    pub(crate) fn root(&self, words: &[&str]) -> Output {
        self.call(words).root().variable("SECRET", CANARY).run()
    }

    /// A process of the other user's.
    pub(crate) fn other(&self, script: &str) -> Process {
        let child = Command::new("setpriv")
            .args([format!("--reuid={UID}"), format!("--regid={UID}")])
            .args([
                "--clear-groups",
                "--inh-caps=-all",
                "--",
                "sh",
                "-c",
                script,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Process(child)
    }

    /// What the test user asked of Slurm, once.
    pub(crate) fn honest(&self) {
        let line = request("h0nest11", "sbatch").to_string() + "\n";
        self.world.write(&format!("{STATE}/audit/n1.jsonl"), line);
    }
}

fn request(session: &str, command: &str) -> Value {
    json!({"time": 1_735_689_599.5, "session": session, "host": "n1", "pid": 7, "command": command,
           "verdict": "allowed", "jobs": [12]})
}

/// A record of a session of that process.
pub(crate) fn record(id: &str, pid: u32, project: &str) -> Value {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let ticks: u64 = rest.split_whitespace().nth(19).unwrap().parse().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    json!({"id": id, "pid": pid, "start_ticks": ticks, "boot": boot.trim(), "host": "n1",
           "started": 1_735_689_599, "project": project, "command": "sleep", "user": "root"})
}

/// Lines in which all of these words stand.
pub(crate) fn lines(output: &Output, words: &[&str]) -> usize {
    let all = output.stdout.lines();
    all.filter(|line| words.iter().all(|word| line.contains(word)))
        .count()
}

pub(crate) fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
}

#[test]
fn root_sees_the_sessions_of_all_users() {
    let two = Two::new();
    let session = Process(two.call(&["-q", "--", "sleep", "25"]).start());
    let process = two.other("sleep 60");
    two.write(
        "sessions/other000.json",
        record("other000", process.0.id(), "/o").to_string(),
    );
    let begun = Instant::now();
    let all = loop {
        let all = two.root(&["sessions"]).ok();
        if lines(&all, &[USER, "sleep", "/project"]) == 1 {
            break all;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{all}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(all.stdout.starts_with("USER "), "{all}");
    assert_eq!(lines(&all, &[OTHER, "other000", "/o"]), 1, "{all}");
    for name in [OTHER, &UID.to_string()] {
        let one = two.root(&["sessions", "--json", "--user", name]).json();
        assert_eq!(one.as_array().map(Vec::len), Some(1), "{one}");
        assert_eq!(
            (&one[0]["user"], &one[0]["id"]),
            (&OTHER.into(), &"other000".into())
        );
    }
    let none = two.root(&["sessions", "--user", "root"]).ok();
    assert_eq!(none.stdout, "no session runs on this node\n");
    two.root(&["sessions", "--user", "nobody-here"])
        .refused(&["no user `nobody-here`"]);
    // Others see their own, whomever they name.
    let own = two.call(&["sessions", "--user", USER]).run().ok();
    assert!(
        own.stdout.starts_with("SESSION ") && lines(&own, &["sleep"]) == 1,
        "{own}"
    );
    for words in [["sessions", "--user", OTHER], ["log", "--user", OTHER]] {
        two.call(&words)
            .run()
            .refused(&["only root sees other users"]);
    }
    drop(session);
}

#[test]
fn root_sees_what_all_users_asked_of_slurm() {
    let two = Two::new();
    two.honest();
    two.write("audit/n2.jsonl", request("other000", "scancel").to_string());
    two.write("slurm/logs/other000-12.out", "slurmstepd: error: no jail\n");
    let all = two.root(&["log"]).ok();
    assert_eq!(lines(&all, &[USER, "h0nest11", "sbatch"]), 1, "{all}");
    assert_eq!(lines(&all, &[OTHER, "other000", "scancel"]), 1, "{all}");
    assert_eq!(lines(&all, &[OTHER, "other000-12.out"]), 1, "{all}");
    let one = two.root(&["log", "--json", "--session", "other000"]).json();
    assert_eq!(one["requests"].as_array().map(Vec::len), Some(1), "{one}");
    assert_eq!(one["requests"][0]["user"], OTHER);
    assert_eq!(one["messages"][0]["user"], OTHER);
    let own = two.root(&["log", "--user", USER]).ok();
    assert!(
        lines(&own, &["h0nest11"]) == 1 && lines(&own, &["other000"]) == 0,
        "{own}"
    );
    let job = two.root(&["log", "12"]).ok();
    assert_eq!(job.stdout, format!("{OTHER}: slurmstepd: error: no jail\n"));
    two.root(&["log", "13"])
        .refused(&["said nothing about job 13"]);
}

/// Links to what only root may read, FIFOs, endless files, records of others' sessions and processes, and text that would speak to root's
/// terminal or begin lines of ours.
#[test]
fn what_a_user_plants_for_root_is_that_users_own() {
    let two = Two::new();
    two.honest();
    let secret = two.world.base().join("secret");
    fs::write(&secret, request(CANARY, CANARY).to_string() + "\n").unwrap();
    mode(&secret, 0o600);
    let process = two.other("sleep 60");
    let odd = "/o\u{1b}[2J\n\u{9b}forged";
    for (name, text) in [
        (
            "sessions/mine0000.json",
            record("mine0000", process.0.id(), odd),
        ),
        (
            "sessions/roots000.json",
            record("roots000", std::process::id(), "/r"),
        ),
    ] {
        two.write(name, text.to_string());
    }
    let mut forged = request("odd\u{1b}[2J\nx", odd);
    forged["user"] = USER.into();
    two.write("audit/odd.jsonl", forged.to_string() + "\n[[[[\n\"\n");
    two.write(
        "slurm/logs/x-12.out",
        format!("\u{1b}[2Jx\n{USER}: forged\n"),
    );
    for (directory, end) in [
        ("sessions", "json"),
        ("audit", "jsonl"),
        ("slurm/logs", "out"),
    ] {
        let at = |name: &str| two.state().join(directory).join(format!("{name}-12.{end}"));
        symlink(&secret, at("link")).unwrap();
        symlink("/etc/shadow", at("shadow")).unwrap();
        fifo(&at("fifo"));
        let huge = fs::File::create(at("huge")).unwrap();
        huge.set_len(8 << 30).unwrap();
    }
    two.give(&two.state());
    for words in [
        &["sessions"][..],
        &["log"],
        &["log", "12"],
        &["log", "--json"],
        &["sessions", "--json"],
    ] {
        let begun = Instant::now();
        let output = two.root(words).ok();
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{words:?}: {output}"
        );
        let text = format!("{output}");
        for bad in [CANARY, "\u{1b}", "\u{9b}", "root:"] {
            assert!(!text.contains(bad), "{bad:?} of {words:?} in {output}");
        }
        assert_eq!(
            output
                .stdout
                .lines()
                .filter(|line| line.starts_with("forged"))
                .count(),
            0
        );
    }
    let sessions = two.root(&["sessions"]).ok();
    assert_eq!(lines(&sessions, &[OTHER, "mine0000"]), 1, "{sessions}");
    assert_eq!(lines(&sessions, &["roots000"]), 0, "{sessions}");
    let log = two.root(&["log"]).ok();
    assert_eq!(lines(&log, &[OTHER, "forged"]), 1, "{log}");
    assert_eq!(
        (
            lines(&log, &[USER, "h0nest11"]),
            lines(&log, &[USER, "forged"])
        ),
        (1, 0),
        "{log}"
    );
    let job = two.root(&["log", "12"]).ok();
    assert!(
        job.stdout
            .lines()
            .all(|line| line.starts_with(&format!("{OTHER}: "))),
        "{job}"
    );
    // A directory that is a link to one of root's: the user may not look there, and root's call does not either.
    let roots = two.world.base().join("roots");
    fs::create_dir_all(roots.join("logs")).unwrap();
    fs::write(roots.join("logs/x-12.out"), CANARY).unwrap();
    mode(&roots, 0o700);
    fs::remove_dir_all(two.state().join("slurm")).unwrap();
    symlink(&roots, two.state().join("slurm")).unwrap();
    let all = two.root(&["log"]).ok();
    all.clone().says(&[
        &format!("agent-sandbox: {OTHER}: cannot read"),
        "Permission denied",
    ]);
    assert_eq!(lines(&all, &[USER, "h0nest11"]), 1, "{all}");
    for words in [["log", "--json"], ["log", "12"]] {
        let output = two.root(&words);
        assert!(!format!("{output}").contains(CANARY), "{output}");
    }
}

/// One whose files take for ever to be read is named, and all others are shown. While root waits, that user finds a process that
/// is the user's by its number and root's by its memory and its descriptors.
#[test]
fn a_user_who_keeps_root_waiting_gains_nothing() {
    let two = Two::new();
    two.honest();
    let mut file = fs::File::create(two.state().join("audit/a.jsonl")).unwrap();
    file.write_all(&vec![b'\n'; 60 << 20]).unwrap();
    for number in 0..60 {
        fs::hard_link(
            two.state().join("audit/a.jsonl"),
            two.state().join(format!("audit/{number}.jsonl")),
        )
        .unwrap();
    }
    two.give(&two.state());
    let mut thief = two.other(&format!(
        "for i in $(seq 200); do for p in /proc/[0-9]*; do
            [ \"$(cat $p/comm)\" = agent-sandbox ] && grep -q '^Uid:.{UID}' $p/status || continue
            echo met; grep -q . $p/environ && echo environ; grep -q . $p/maps && echo maps
            head -c 1 $p/mem && echo mem; ls $p/fd && echo fd; exit
        done; sleep 0.05; done 2>/dev/null"
    ));
    let begun = Instant::now();
    let all = two.root(&["log"]).ok();
    assert!(begun.elapsed() < Duration::from_secs(15), "{all}");
    assert_eq!(lines(&all, &[USER, "h0nest11"]), 1, "{all}");
    let said = all
        .stderr
        .lines()
        .filter(|line| line.starts_with(&format!("agent-sandbox: {OTHER}: ")));
    assert_eq!(said.count(), 1, "{all}");
    two.root(&["log", "--user", OTHER])
        .refused(&[&format!("user `{OTHER}`")]);
    let _ = thief.0.wait();
    let stolen = std::io::read_to_string(thief.0.stdout.take().unwrap()).unwrap();
    assert_eq!(stolen, "met\n");
}
