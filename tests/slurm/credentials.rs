//! Credentials in jobs and steps: read anew on the node, from where the session's policy says, and exchanged there. What is sealed with a job,
//! stored by Slurm and seen inside is the session's placeholder.

use std::fs;
use std::net::ToSocketAddrs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use agent_sandbox_wire::capsule::Capsule;

use crate::call::Call;
use crate::cluster::{not_checked, put};
use crate::world::{Side, World, until};

/// A server by TLS, which notes for each request its path and its key.
const SERVER: &str = r#"
import http.server, os, ssl
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        with open("asked", "a") as file:
            file.write("%s %s\n" % (self.path, self.headers["X-Api-Key"]))
        self.send_response(200)
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"served\n")
    def log_message(self, *_):
        pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Answer)
server.socket = context.wrap_socket(server.socket, server_side=True)
open("port.new", "w").write(str(server.server_address[1]))
os.rename("port.new", "port")
server.serve_forever()
"#;

/// Says what a place gets of the server with each of the three tokens, and shows where they could be seen.
const ASK: &str = r#"#!/bin/bash
for token in ONE TWO THREE; do
    name=${token}_TOKEN
    echo "$1 $token $(curl -sS -m 20 -H "X-Api-Key: ${!name}" https://@HOST@/$1/$token 2>&1 | head -1)"
done
{ env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; find /run /tmp ~ -type f ! -name seen.txt -exec cat {} +; } 2> /dev/null | tr '\0' '\n' | grep -a '_TOKEN=\|@MARK@' >> seen.txt
"#;

/// A world with three credentials, each of which is read in another way.
struct Brokered {
    world: World,
    server: Child,
    place: tempfile::TempDir,
    /// Stands in each value.
    marker: String,
}

impl Drop for Brokered {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Brokered {
    #[track_caller]
    fn new() -> Option<Self> {
        let world = World::new()?;
        let host = nix::unistd::gethostname().unwrap();
        let host = host.into_string().unwrap();
        if !(host.as_str(), 80)
            .to_socket_addrs()
            .is_ok_and(|mut all| all.any(|one| one.is_ipv4()))
        {
            not_checked("this host's name has no address");
            return None;
        }
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        let script = format!(
            "openssl req -x509 {key} -keyout ca.key -out ca.pem -subj '/CN=an authority of a test' -days 2 &&
             openssl req {key} -keyout key.pem -out request -subj /CN=server && echo subjectAltName=DNS:{host} > names &&
             openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem"
        );
        let mut made = Command::new("sh");
        made.args(["-c", &script]).current_dir(place.path());
        if !made.stderr(Stdio::null()).status().unwrap().success() {
            not_checked("there is no openssl here that makes certificates");
            return None;
        }
        let mut server = Command::new("python3");
        server.args(["-c", SERVER]).current_dir(place.path());
        let server = server.spawn().unwrap();
        let random = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
        let this = Self {
            world,
            server,
            place,
            marker: random.trim().to_owned(),
        };
        let port = this.place.path().join("port");
        until("the server", || port.exists());
        this.policy(&format!("{host}:{}", fs::read_to_string(port).unwrap()));
        Some(this)
    }

    /// Writes what the user has, and the scripts.
    fn policy(&self, host: &str) {
        let user = self.world.user;
        let marker = &self.marker;
        let (file, other) = (self.config().join("token"), self.config().join("other"));
        for (at, value) in [(&file, "file"), (&other, "command")] {
            put(user, at, format!("{value}-{marker}\n").as_bytes(), 0o600);
        }
        let credential = |name: &str, from: &str| {
            format!(
                "[[credential]]\nname = \"{name}\"\nhosts = [\"{host}\"]\nenv = \"{name}_TOKEN\"\nfrom = \"{from}\"\n"
            )
        };
        let text = format!(
            "[network]\nmode = \"filtered\"\nprivate = [\"{host}\"]\n{}{}{}",
            credential("ONE", &format!("file:{}", file.display())),
            credential("TWO", &format!("command:cat {}", other.display())),
            credential("THREE", "env:REAL_TOKEN"),
        );
        put(
            user,
            &self.config().join("agent-sandbox/config.toml"),
            text.as_bytes(),
            0o600,
        );
        // A pattern that is not the value, for it stands in a file and on command lines.
        let mark = format!("[{}]{}", &marker[..1], &marker[1..]);
        self.world.write(
            "ask.sh",
            ASK.replace("@HOST@", host).replace("@MARK@", &mark),
        );
    }

    /// The user's configuration: beside the project, out of the jail's reach.
    fn config(&self) -> std::path::PathBuf {
        self.world.project().parent().unwrap().join("config")
    }

    fn inside(&self, script: &str) -> Call<'_> {
        let authority = self.place.path().join("ca.pem");
        let call = self.world.inside(script);
        let call = call.variable("XDG_CONFIG_HOME", self.config());
        call.variable("SSL_CERT_FILE", authority)
            .variable("REAL_TOKEN", format!("env-{}", self.marker))
    }

    /// With what key a place asked by a token.
    #[track_caller]
    fn asked(&self, place: &str, token: &str) -> String {
        let text = fs::read_to_string(self.place.path().join("asked")).unwrap_or_default();
        let begin = format!("/{place}/{token} ");
        let mut found = text.lines().filter_map(|line| line.strip_prefix(&begin));
        found
            .next_back()
            .unwrap_or_else(|| panic!("{place} {token}: {text}"))
            .to_owned()
    }

    /// The server got the values of the first two; the last is a placeholder.
    #[track_caller]
    fn exchanged(&self, place: &str) {
        let marker = &self.marker;
        assert_eq!(self.asked(place, "ONE"), format!("file-{marker}"));
        assert_eq!(self.asked(place, "TWO"), format!("command-{marker}"));
        assert!(
            self.asked(place, "THREE")
                .ends_with("-THREE-agent-sandbox-placeholder")
        );
    }

    /// No process on this host has a value in its environment or its command line, but the session's launcher, which was started with one.
    #[track_caller]
    fn not_in_processes(&self) {
        for entry in fs::read_dir("/proc").unwrap() {
            let at = entry.unwrap().path();
            let all =
                [at.join("cmdline"), at.join("environ")].map(|at| fs::read(at).unwrap_or_default());
            let text = String::from_utf8_lossy(&all.concat()).replace('\0', "\n");
            let started = text.contains(&format!("REAL_TOKEN=env-{}", self.marker));
            let ours = started && !text.contains("\nSLURM_JOB_ID=");
            assert!(
                ours || !text.contains(&self.marker),
                "{}: {text}",
                at.display()
            );
        }
    }

    /// No value is below a directory, but where it was planted.
    #[track_caller]
    fn nowhere_below(&self, at: &Path) {
        let found = Command::new("grep")
            .args(["-rlaF", &self.marker])
            .arg(at)
            .output()
            .unwrap();
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let config = self.config().display().to_string();
        let found: Vec<&str> = found
            .lines()
            .filter(|at| !at.starts_with(&config))
            .collect();
        assert_eq!(found, [""; 0]);
    }
}

/// What a place says that is served each time.
fn served(place: &str) -> String {
    ["ONE", "TWO", "THREE"]
        .map(|token| format!("{place} {token} served\n"))
        .concat()
}

/// The lines of a text that are not the launcher's.
fn without_notes(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("agent-sandbox: "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn credentials_are_exchanged_in_jobs_and_are_not_there() {
    let Some(brokered) = Brokered::new() else {
        return;
    };
    let world = &brokered.world;
    let node = &world.cluster.nodes[0];
    world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N1 -n2 -o job.txt\n./ask.sh batch; srun -Q -n1 ./ask.sh step; touch asked; until [ -e looked ]; do sleep 0.05; done\n",
    );
    // Two steps at once with no batch script: each has a filter, and one made the jail.
    let apart = "srun -Q -n1 --exact bash -c './ask.sh first; touch first.over; until [ -e over ]; do sleep 0.05; done' > first.txt || touch first.over & \
                 until [ -e first.over ]; do sleep 0.05; done; srun -Q -n1 --exact ./ask.sh second > second.txt; touch over; wait";
    let script = format!(
        "./ask.sh session; srun -Q -N1 -n1 ./ask.sh login; sbatch --parsable job.sh > job.id; until [ -e looked ]; do sleep 0.05; done\n\
         while squeue -h -j $(cat job.id) | grep -q .; do sleep 0.1; done\n\
         salloc -Q -N1 -n2 -w {node} bash -c {apart:?}; cat first.txt second.txt; sbatch -Q -W -o of.job.txt --wrap 'srun -Q ./ask.sh deeper; sbatch -Q -W -o deep.txt --wrap \"./ask.sh deepest\"'"
    );
    let running = brokered.inside(&script).start();
    until("a job that has asked", || {
        world.project().join("asked").exists()
    });
    // What Slurm stores, knows and says of a job, and its node beside it.
    let job = world.read("job.id").trim().to_owned();
    let stored = world
        .cluster
        .said("scontrol", ["write", "batch_script", &job, "-"]);
    let shown = world.cluster.said("scontrol", ["show", "-dd", "job", &job]);
    assert!(!shown.contains(&brokered.marker), "{shown}");
    let of_slurm = world.cluster.conf.parent().unwrap().parent().unwrap();
    brokered.nowhere_below(of_slurm);
    brokered.not_in_processes();
    world.write("looked", "");
    let output = running.end().good();

    let expected = ["session", "login", "first", "second"].map(served).concat();
    assert_eq!(output.out(), expected, "{output}");
    let said = world.read("job.txt");
    assert_eq!(
        without_notes(&said),
        ["batch", "step"].map(served).concat(),
        "{said}"
    );
    // What cannot be read there is said, in one line.
    assert_eq!(
        said.matches("credential `THREE`").count(),
        1 + usize::from(crate::chosen::is_landlock()),
        "{said}"
    );
    assert!(
        said.contains(r#""env:REAL_TOKEN" is read where the session is started and does not reach jobs; use "file:PATH""#),
        "{said}"
    );
    assert!(
        !said.contains("credential `ONE`") && !said.contains("credential `TWO`"),
        "{said}"
    );
    assert_eq!(
        brokered.asked("session", "THREE"),
        format!("env-{}", brokered.marker)
    );
    for place in [
        "login", "batch", "step", "first", "second", "deeper", "deepest",
    ] {
        brokered.exchanged(place);
    }
    // Inside: the placeholders of the session, in each job.
    let seen = world.read("seen.txt");
    for token in ["ONE", "TWO", "THREE"] {
        let begin = format!("{token}_TOKEN=");
        let mut all: Vec<&str> = seen
            .lines()
            .filter(|line| line.starts_with(&begin))
            .collect();
        all.sort_unstable();
        all.dedup();
        let [one] = all[..] else { panic!("{all:?}") };
        assert!(
            one.ends_with(&format!("-{token}-agent-sandbox-placeholder")),
            "{one}"
        );
    }
    assert!(
        !format!("{output}{seen}{said}").contains(&brokered.marker),
        "{output}{seen}"
    );
    let capsule = Capsule::from_batch_script(stored.as_bytes()).unwrap();
    let inside: Vec<u8> = [&capsule.environment, &capsule.base_environment]
        .into_iter()
        .flatten()
        .flatten()
        .copied()
        .collect();
    let inside = String::from_utf8_lossy(&inside);
    assert!(
        inside.contains("-ONE-agent-sandbox-placeholder") && !inside.contains(&brokered.marker)
    );
    let names: Vec<&str> = capsule
        .snapshot
        .placeholders
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["ONE", "TWO", "THREE"]);
    assert!(!format!("{:?}", capsule.snapshot).contains(&brokered.marker));
    // Records, logs, Slurm's own state.
    let state = world.home(".local/state/agent-sandbox");
    brokered.nowhere_below(&state);
    brokered.nowhere_below(world.project().parent().unwrap());
    brokered.nowhere_below(of_slurm);
    let found = Command::new("grep")
        .args(["-rhF", "the value of the credential `ONE` was sent"])
        .arg(state.join("audit"))
        .output()
        .unwrap();
    let recorded = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(recorded.contains("\"step\":\"batch\""), "{recorded}");
    world.settle(Side::Inside);
}

/// A job does not fail for want of a credential, and what cannot be read is said.
#[test]
fn a_job_starts_without_what_its_node_cannot_read() {
    let Some(brokered) = Brokered::new() else {
        return;
    };
    let world = &brokered.world;
    let gone = format!("{}/token", brokered.config().display());
    let script = "touch ready; until [ -e gone ]; do sleep 0.05; done; srun -Q -N1 -n1 ./ask.sh step; sbatch -Q -W -o job.txt ask.sh job; cat job.txt";
    let running = brokered.inside(script).start();
    until("the session", || world.project().join("ready").exists());
    fs::remove_file(&gone).unwrap();
    world.write("gone", "");
    let output = running.end().good();
    assert_eq!(
        without_notes(&output.out()),
        format!("{}{}", served("step"), served("job")),
        "{output}"
    );
    let line = "the credential `ONE` (";
    assert_eq!(
        (
            output.err().matches(line).count(),
            output.out().matches(line).count()
        ),
        (1, 1),
        "{output}"
    );
    assert!(
        output.err().contains("stays a placeholder in this job: ")
            && output.err().contains("cannot be found"),
        "{output}"
    );
    for place in ["step", "job"] {
        assert!(
            brokered
                .asked(place, "ONE")
                .ends_with("-ONE-agent-sandbox-placeholder")
        );
        assert_eq!(
            brokered.asked(place, "TWO"),
            format!("command-{}", brokered.marker)
        );
    }
    let said = world.launcher(&["log", "--network"]);
    assert!(
        said.out().contains("stays a placeholder in this job"),
        "{said}"
    );
    world.settle(Side::Inside);
}

/// What is inside can have Slurm signal the process that reads: its core file would stand in the project.
#[test]
fn who_reads_credentials_on_a_node_leaves_no_core_file() {
    let Some(brokered) = Brokered::new() else {
        return;
    };
    let world = &brokered.world;
    let script =
        "touch ready; until [ -e slow ]; do sleep 0.05; done; sbatch -Q -W -o job.txt ask.sh job";
    let running = brokered.inside(script).start();
    until("the session", || world.project().join("ready").exists());
    // The second value comes when it is written; then the first has been read.
    let slow = brokered.config().join("other");
    fs::remove_file(&slow).unwrap();
    nix::unistd::mkfifo(&slow, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o666)).unwrap();
    world.write("slow", "");
    let line = format!("cat\0{}\0", slow.display());
    let mut reader = None;
    until("the command of a credential", || {
        reader = running_as(line.as_bytes());
        reader.is_some()
    });
    let mut reader = parent(reader.unwrap());
    while fs::read_to_string(format!("/proc/{reader}/comm")).unwrap() == "sh\n" {
        reader = parent(reader);
    }
    // The owner of these files where a process is dumped is its user (proc(5)).
    let environ = fs::metadata(format!("/proc/{reader}/environ")).unwrap();
    assert_eq!(environ.uid(), 0);
    fs::write(&slow, format!("command-{}\n", brokered.marker)).unwrap();
    running.end().good();
    brokered.exchanged("job");
    world.settle(Side::Inside);
}

/// A process with this command line.
fn running_as(line: &[u8]) -> Option<u32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let mut numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|read| read == line))
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().parse().unwrap()
}
