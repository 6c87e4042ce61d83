//! Logins by ssh from inside, with a real ssh-agent and real sshds outside: to the host that is named, and nowhere else.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::world::{Output, World, not_checked, wait_for};

/// sshd, which must be started by its whole path (sshd(8)): where Debian and others have it, or where `tests/confine/install` has
/// unpacked one; with what stands in the configuration of that.
fn sshd() -> Option<(PathBuf, String)> {
    let installed = PathBuf::from("/usr/sbin/sshd");
    if installed.exists() {
        return Some((installed, String::new()));
    }
    let own = PathBuf::from(std::env::var_os("AGENT_SANDBOX_TEST_PYTHON")?).join("sshd");
    let more = fs::read_to_string(own.join("more")).unwrap_or_default();
    let root = own.join("root").display().to_string();
    let program = own.join("sshd");
    program
        .exists()
        .then(|| (program, more.replace("ROOT", &root)))
}

/// ssh as a person inside would call it, with the keys of hosts that the session has; git calls it by itself.
const SSH: &str = "ssh -F none -o BatchMode=yes -o UserKnownHostsFile=$AGENT_SANDBOX_KNOWN_HOSTS";
/// Asks the session's agent for what it must not do, by its socket.
const ATTACKS: &str = r#"
import os, socket, struct, subprocess
def string(b): return struct.pack(">I", len(b)) + b
def ask(*messages):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(os.environ["SSH_AUTH_SOCK"])
        for m in messages:
            s.sendall(string(m))
            length, = struct.unpack(">I", s.recv(4, socket.MSG_WAITALL))
            answer = s.recv(length, socket.MSG_WAITALL)
    return answer
keys = ask(b"\x0b")
assert keys[0] == 12, keys
length, = struct.unpack(">I", keys[5:9])
key = keys[9:9 + length]
login = string(b"s" * 32) + b"\x32" + string(b"root") + string(b"ssh-connection") + string(b"publickey") \
    + b"\x01" + string(b"ssh-ed25519") + string(key)
def sign(data): return b"\x0d" + string(key) + string(data) + struct.pack(">I", 0)
host = b"".join(string(p) for p in (b"ssh-ed25519", b"k" * 32))
bind = b"\x1b" + string(b"session-bind@openssh.com") + string(host) + string(b"s" * 32) \
    + string(string(b"ssh-ed25519") + string(b"x" * 64)) + b"\x00"
for what, answer in [
    ("a login without a host", ask(sign(login))),
    ("a text", ask(sign(b"text"))),
    ("a forged host", ask(bind, sign(login))),
    ("to remove all keys", ask(b"\x13")),
    ("to lock", ask(b"\x16" + string(b"password"))),
    ("an extension", ask(b"\x1b" + string(b"query"))),
]:
    print(what, "refused" if answer == b"\x05" else answer)
"#;

/// A process of the test's own outside.
struct Outside(Child);

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A world with a key in a real ssh-agent, two hosts (sshds at two ports) that the user knows, and repositories.
struct Hosts {
    world: World,
    named: u16,
    other: u16,
    _processes: Vec<Outside>,
}

impl Hosts {
    /// The named one has a key of this kind, the other one ed25519.
    fn new(kind: &[&str]) -> Option<Self> {
        let Some((program, more)) = sshd() else {
            not_checked("logins by ssh", "no sshd on this machine");
            return None;
        };
        let world = World::new();
        let at = world.base("ssh");
        fs::create_dir(&at).unwrap();
        let shell = |line: &str| {
            let mut command = Command::new("sh");
            command.args(["-ec", line]).current_dir(&at);
            let out = command.output().unwrap();
            assert!(out.status.success(), "{line}: {out:?}");
        };
        shell(&format!(
            "ssh-keygen -q -N '' -t ed25519 -C a-key -f id
             ssh-keygen -q -N '' -t rsa -C another-key -f id2
             ssh-keygen -q -N '' -t {} -f named && ssh-keygen -q -N '' -t ed25519 -f other
             git init -q --bare -b main repo.git",
            kind.join(" ")
        ));
        let agent = Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(at.join("agent"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut processes = vec![Outside(agent)];
        // Its socket is there before it listens.
        wait_for("ssh-agent", || UnixStream::connect(at.join("agent")).ok()).unwrap();
        shell("SSH_AUTH_SOCK=$PWD/agent ssh-add -q id id2");
        let mut known = String::new();
        let mut ports = Vec::new();
        for name in ["named", "other"] {
            let port = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = port.local_addr().unwrap().port();
            let here = at.display();
            let config = format!(
                "ListenAddress 127.0.0.1:{port}\nHostKey {here}/{name}\nAuthorizedKeysFile {here}/id.pub\nUsePAM no\n\
                 StrictModes no\nPidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n{more}"
            );
            world.put(&at.join(format!("{name}.conf")), &config);
            let sshd = Command::new(&program)
                .args(["-D", "-E"])
                .arg(at.join(format!("{name}.log")))
                .arg("-f")
                .arg(at.join(format!("{name}.conf")))
                .spawn()
                .unwrap();
            processes.push(Outside(sshd));
            let there = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
            wait_for("sshd", there).unwrap();
            let key = fs::read_to_string(at.join(format!("{name}.pub"))).unwrap();
            known += &format!("[127.0.0.1]:{port} {key}");
            ports.push(port);
        }
        world.put(&world.home(".ssh/known_hosts"), &known);
        // As Debian has them.
        let hashed = Command::new("ssh-keygen")
            .args(["-H", "-f"])
            .arg(world.home(".ssh/known_hosts"))
            .output();
        assert!(hashed.unwrap().status.success());
        let known = fs::read_to_string(world.home(".ssh/known_hosts")).unwrap();
        assert!(known.starts_with("|1|"), "{known}");
        let hosts = Self {
            world,
            named: ports[0],
            other: ports[1],
            _processes: processes,
        };
        hosts.policy("");
        Some(hosts)
    }

    /// The user's policy, in which one host is named.
    fn policy(&self, more: &str) {
        let policy = format!("[ssh]\nhosts = [\"127.0.0.1:{}\"]\n{more}", self.named);
        let at = self.world.home(".config/agent-sandbox/config.toml");
        self.world.put(&at, &policy);
    }

    /// A line of shell inside, with a launcher that says what it has to say.
    fn inside(&self, line: &str) -> Output {
        let run = self.world.loud([]);
        let run = run.env("SSH_AUTH_SOCK", self.world.base("ssh/agent"));
        run.run(&["sh", "-c", line])
    }

    fn log(&self) -> String {
        let mut command = Command::new(crate::world::launcher());
        let out = command
            .args(["log", "--network"])
            .env_clear()
            .env("HOME", self.world.home(""))
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn keys(&self) -> String {
        let mut command = Command::new("ssh-add");
        let list = command
            .arg("-l")
            .env("SSH_AUTH_SOCK", self.world.base("ssh/agent"));
        String::from_utf8_lossy(&list.output().unwrap().stdout).into_owned()
    }
}

#[test]
fn git_pushes_to_a_named_host_with_the_users_agent() {
    let Some(hosts) = Hosts::new(&["ed25519"]) else {
        return;
    };
    let (world, port) = (&hosts.world, hosts.named);
    let repository = world.base("ssh/repo.git");
    let said = hosts.inside(&format!(
        "git init -q -b main . && git commit -q --allow-empty -m first &&
         git push -q ssh://127.0.0.1:{port}{} main && ssh-add -l && {SSH} -p {port} 127.0.0.1 echo over ssh
         ls ~/.ssh/id_rsa; cat ~/.ssh/* | head -n 1",
        repository.display()
    ));
    assert!(said.stdout.contains("over ssh\n"), "{said:?}");
    assert!(said.stdout.contains("a-key (ED25519)"), "{said:?}");
    assert!(!said.stderr.contains("signs nothing"), "{said:?}");
    let pushed = Command::new("git")
        .arg("--git-dir")
        .arg(&repository)
        .args(["log", "--format=%s", "main"])
        .output()
        .unwrap();
    assert_eq!(pushed.stdout, b"first\n");
    let log = hosts.log();
    let signed = log
        .lines()
        .filter(|line| line.contains("signed a login of"));
    assert_eq!(signed.count(), 2, "{log}");
    assert!(log.contains(&format!("127.0.0.1:{port}")), "{log}");
}

/// ECDSA and RSA as hosts have them; the keys of the user's are of other kinds.
#[test]
fn hosts_are_known_by_keys_of_each_kind() {
    for kind in [
        &["ecdsa"][..],
        &["ecdsa", "-b", "384"],
        &["rsa", "-b", "3072"],
    ] {
        let Some(hosts) = Hosts::new(kind) else {
            return;
        };
        let said = hosts.inside(&format!("{SSH} -p {} 127.0.0.1 echo over ssh", hosts.named));
        assert!(said.stdout.contains("over ssh\n"), "{kind:?}: {said:?}");
    }
}

#[test]
fn a_host_that_is_not_named_gets_no_login() {
    let Some(hosts) = Hosts::new(&["ed25519"]) else {
        return;
    };
    let (world, port) = (&hosts.world, hosts.other);
    let here = world.base("ssh");
    let url = format!("ssh://127.0.0.1:{port}{}/repo.git", here.display());
    // Whoever is inside says which keys hosts have; that does not make a host one that is named.
    let known = fs::read_to_string(here.join("other.pub")).unwrap();
    let named = format!("[127.0.0.1]:{port},[127.0.0.1]:{} {known}", hosts.named);
    world.put(&world.project("known_hosts"), &named);
    let ssh = "ssh -F none -o BatchMode=yes -o UserKnownHostsFile=known_hosts";
    let said = hosts.inside(&format!(
        "git ls-remote {url}; {ssh} -p {port} 127.0.0.1 echo over ssh; {ssh} -p {port} 127.0.0.1 echo over ssh"
    ));
    assert!(!said.stdout.contains("over ssh"), "{said:?}");
    assert!(
        said.stderr
            .contains("ssh.hosts of the policy does not name it"),
        "{said:?}"
    );
    assert!(said.stderr.contains("Permission denied"), "{said:?}");
    let reason = "which is no key of a host in ssh.hosts";
    assert_eq!(
        said.stderr.matches(reason).count(),
        1,
        "said once: {said:?}"
    );
    assert!(hosts.log().contains(reason), "{}", hosts.log());
    // The user outside is let in, so that the refusals above are not the host's.
    let outside = format!(
        "ssh -F none -o BatchMode=yes -o UserKnownHostsFile=known_hosts -p {port} 127.0.0.1 echo over ssh"
    );
    let run = world.outside().env("SSH_AUTH_SOCK", here.join("agent"));
    assert_eq!(run.run(&["sh", "-c", &outside]).stdout, "over ssh\n");
}

#[test]
fn the_agent_signs_no_commits_and_takes_no_orders() {
    let Some(hosts) = Hosts::new(&["ed25519"]) else {
        return;
    };
    let (world, before) = (&hosts.world, hosts.keys());
    world.put(&world.project("attacks.py"), ATTACKS);
    let public = fs::read_to_string(world.base("ssh/id.pub")).unwrap();
    world.put(&world.project("id.pub"), &public);
    let said = hosts.inside(
        "/usr/bin/python3 attacks.py; git init -q .
         git -c gpg.format=ssh -c user.signingkey=$PWD/id.pub commit -q --allow-empty -S -m signed && echo signed
         ssh-add -D; ssh-keygen -q -N '' -f mine; ssh-add mine; ssh-add -x < /dev/null; ssh-add -l",
    );
    assert_eq!(said.stdout.matches(" refused\n").count(), 6, "{said:?}");
    assert!(!said.stdout.contains("signed\n"), "{said:?}");
    assert!(
        said.stderr.contains("was asked to sign something else"),
        "{said:?}"
    );
    assert!(
        said.stderr.contains("does not say to which host"),
        "{said:?}"
    );
    assert_eq!(hosts.keys(), before, "the user's agent is as it was");
    let log = hosts.log();
    assert!(
        log.contains("refused") && !log.contains("signed a login"),
        "{log}"
    );
}

#[test]
fn the_agent_is_of_no_use_on_the_host_to_which_it_is_forwarded() {
    let Some(hosts) = Hosts::new(&["ed25519"]) else {
        return;
    };
    let (port, here) = (hosts.named, hosts.world.base("ssh"));
    let there = format!(
        "ssh-add -l; ssh -F none -o BatchMode=yes -o UserKnownHostsFile={0}/known -p {port} 127.0.0.1 echo from there",
        here.display()
    );
    let known = fs::read_to_string(here.join("named.pub")).unwrap();
    hosts
        .world
        .put(&here.join("known"), &format!("[127.0.0.1]:{port} {known}"));
    let said = hosts.inside(&format!(
        "{SSH} -A -p {port} 127.0.0.1 'echo arrived; {there}'"
    ));
    assert!(said.stdout.contains("arrived\n"), "{said:?}");
    assert!(
        said.stdout.contains("The agent has no identities"),
        "{said:?}"
    );
    assert!(!said.stdout.contains("from there"), "{said:?}");
    assert!(said.stderr.contains("to which it is forwarded"), "{said:?}");
}

#[test]
fn a_session_without_an_agent_or_a_known_host_says_so() {
    let Some(hosts) = Hosts::new(&["ed25519"]) else {
        return;
    };
    let world = &hosts.world;
    let run = |agent: &str| {
        let run = world.loud([]).env("SSH_AUTH_SOCK", world.base(agent));
        run.run(&[
            "sh",
            "-c",
            "echo ${SSH_AUTH_SOCK:-none}; git ls-remote git@github.com:a/b",
        ])
    };
    for agent in ["ssh/nowhere", "ssh/id"] {
        let said = run(agent);
        assert_eq!(said.stdout, "none\n", "{said:?}");
        assert!(said.stderr.contains("there is no ssh-agent at"), "{said:?}");
        assert!(
            said.stderr.contains("ssh keys and ssh-agent stay outside"),
            "{said:?}"
        );
    }
    world.put(&world.home(".ssh/known_hosts"), "# nobody\n");
    let said = run("ssh/agent");
    assert_eq!(said.stdout, "none\n", "{said:?}");
    assert!(
        said.stderr.contains("connect to it once outside"),
        "{said:?}"
    );
}

#[test]
fn only_keys_that_the_policy_names_log_in() {
    let Some(hosts) = Hosts::new(&["ed25519"]) else {
        return;
    };
    let here = hosts.world.base("ssh");
    let line = format!(
        "ssh-add -l; {SSH} -p {} 127.0.0.1 echo over ssh",
        hosts.named
    );
    // The host takes `id` alone.
    hosts.policy(&format!("keys = [\"{}/id2.pub\"]\n", here.display()));
    let said = hosts.inside(&line);
    assert!(said.stdout.contains("another-key (RSA)"), "{said:?}");
    assert!(
        !said.stdout.contains("a-key (") && !said.stdout.contains("over ssh"),
        "{said:?}"
    );
    let fingerprint = hosts.keys();
    let fingerprint = fingerprint.lines().find(|line| line.contains("ED25519"));
    let fingerprint = fingerprint.unwrap().split(' ').nth(1).unwrap().to_owned();
    hosts.policy(&format!("keys = [\"{fingerprint}\"]\n"));
    let said = hosts.inside(&line);
    assert!(
        said.stdout.contains("over ssh") && !said.stdout.contains("(RSA)"),
        "{said:?}"
    );
    hosts.policy("keys = []\n");
    let said = hosts.inside("echo ${SSH_AUTH_SOCK:-none}");
    assert_eq!(said.stdout, "none\n", "{said:?}");
}

#[test]
fn what_decides_for_whom_is_signed_is_not_writable_inside() {
    let Some(hosts) = Hosts::new(&["ed25519"]) else {
        return;
    };
    let world = &hosts.world;
    let start = || {
        let run = world.jail([]).env("SSH_AUTH_SOCK", world.base("ssh/agent"));
        run.run(&["true"])
    };
    // The file of known hosts is a link into the project.
    let known = fs::read_to_string(world.home(".ssh/known_hosts")).unwrap();
    world.put(&world.project("known_hosts"), &known);
    fs::remove_file(world.home(".ssh/known_hosts")).unwrap();
    std::os::unix::fs::symlink(world.project("known_hosts"), world.home(".ssh/known_hosts"))
        .unwrap();
    start().refused("decides for whom the ssh agent signs");
    fs::remove_file(world.home(".ssh/known_hosts")).unwrap();
    world.put(&world.home(".ssh/known_hosts"), &known);
    assert_eq!(start().code(), 0);
    // The user's own agent is within reach.
    let show = format!("[files]\nread = [\"{}\"]\n", world.base("ssh").display());
    hosts.policy(&show);
    start().refused("can be reached inside");
    // So is the file that names a key.
    let public = fs::read_to_string(world.base("ssh/id.pub")).unwrap();
    world.put(&world.project("id.pub"), &public);
    hosts.policy(&format!(
        "keys = [\"{}\"]\n",
        world.project("id.pub").display()
    ));
    start().refused("decides for whom the ssh agent signs");
}
