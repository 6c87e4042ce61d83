//! A network of a test's own, with servers in it: mount and network namespaces around the whole test, in which the launcher and
//! its filter are as on any host. Names are those of the test's own DNS.
//!
//! Addresses are on the loopback, but routes say that they are reached from another one, so that none is this host's own.
//! No range is both public and nobody's: these are Quad9's, and what is sent to them stays in the test's network.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::chosen;
use agent_sandbox_support::not_checked;
use agent_sandbox_support::process::{Drained, code, drain, wait};
use nix::unistd::{Uid, User};
use serde_json::Value;

/// Set where a test runs in its own network already.
const ALONE: &str = "AGENT_SANDBOX_TEST_ALONE";
/// Whoever starts sessions; `tests/run` makes it.
const USER: &str = "agentsandbox-test";

/// As root of the namespaces: addresses, ports for everybody, the host's resolver. Then as the test user.
const SETUP: &str = r#"
set -e
ip link set lo up
ip address add 10.77.0.2/32 dev lo
ip -6 address add fd77::2/128 dev lo nodad
for range in 9.9.9.0/24 203.0.113.0/24 10.0.0.0/24 169.254.169.254/32; do ip route add local $range dev lo src 10.77.0.2; done
for range in 2620:fe::/48 2001:db8::/32; do ip -6 route add local $range dev lo src fd77::2; done
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
files=$(mktemp -d)
mount -t tmpfs -o mode=755 none "$files"
echo 'nameserver 127.0.0.1' > "$files/resolv.conf"
echo 'hosts: files dns' > "$files/nsswitch.conf"
echo '127.0.0.1 localhost' > "$files/hosts"
for name in resolv.conf nsswitch.conf hosts; do mount --bind "$files/$name" "$(readlink -f /etc/$name)"; done
umount -l "$files"
rmdir "$files"
exec "$@"
"#;

/// The network, its servers, and a home.
pub(crate) struct Outside {
    base: tempfile::TempDir,
    servers: Child,
}

/// Runs a test where the names of `zone` have addresses, and servers are at each of them; `zone` gives a name's answers in turn,
/// as `servers.py` says.
pub(crate) fn outside(test: &str, zone: &Value, body: impl FnOnce(&Outside)) {
    if std::env::var_os(ALONE).is_some() {
        return body(&Outside::new(zone));
    }
    if !Uid::effective().is_root() {
        return not_checked(test, "only root makes such a network: run by tests/run");
    }
    let user = User::from_name(USER).unwrap().expect(USER);
    let mut again = Command::new("unshare");
    again.args(["--net", "--mount", "--propagation", "private"]);
    again.args(["sh", "-c", SETUP, "sh", "setpriv", "--init-groups"]);
    again.args([
        format!("--reuid={}", user.uid),
        format!("--regid={}", user.gid),
    ]);
    again.args(["--inh-caps=-all", "--"]);
    again.arg(std::env::current_exe().unwrap());
    again.args(["--exact", "--nocapture", test]);
    again
        .env("HOME", &user.dir)
        .env("USER", USER)
        .env("LOGNAME", USER);
    let again = again.env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    said.lines()
        .filter(|line| line.starts_with("not checked: "))
        .for_each(|line| println!("{line}"));
    let passed = again.status.success() && said.contains("1 passed");
    // Set off, so that whoever reads the outer run's results does not take these for its own.
    let all = format!("{said}{}", String::from_utf8_lossy(&again.stderr));
    assert!(passed, "| {}", all.replace('\n', "\n| "));
}

impl Outside {
    fn new(zone: &Value) -> Self {
        let home = std::env::var_os("HOME").unwrap();
        let base = tempfile::Builder::new()
            .prefix("network.")
            .tempdir_in(home)
            .unwrap();
        let at = base.path();
        fs::create_dir_all(at.join("home/project")).unwrap();
        fs::create_dir(at.join("outside")).unwrap();
        fs::write(
            at.join("home/.gitconfig"),
            "[user]\n\tname = A\n\temail = a@b\n",
        )
        .unwrap();
        fs::write(at.join("outside/zone.json"), zone.to_string()).unwrap();
        let names = zone.as_object().unwrap().keys();
        let names: Vec<String> = names.map(|name| format!("DNS:{name}")).collect();
        let script = format!(
            "set -e; umask 022
            new='req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9'
            openssl $new -keyout ca.key -out ca.pem -subj /CN=test -addext keyUsage=critical,keyCertSign
            openssl $new -CA ca.pem -CAkey ca.key -keyout leaf.key -out leaf.pem -subj /CN=leaf \
                -addext basicConstraints=critical,CA:FALSE -addext keyUsage=critical,digitalSignature \
                -addext extendedKeyUsage=serverAuth -addext subjectAltName={}
            cp ca.pem ../home/project/",
            names.join(",")
        );
        let mut openssl = Command::new("sh");
        openssl
            .args(["-c", &script])
            .current_dir(at.join("outside"));
        let made = openssl.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut servers = Command::new("/usr/bin/python3")
            .args(["-c", include_str!("servers.py")])
            .arg(at.join("outside"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(servers.stdout.as_mut().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { base, servers }
    }

    /// A place in the directory of the servers.
    pub(crate) fn served(&self, name: &str) -> PathBuf {
        self.base.path().join("outside").join(name)
    }

    /// A place in the project.
    pub(crate) fn project(&self, name: &str) -> PathBuf {
        self.base.path().join("home/project").join(name)
    }

    /// Writes a file of the project.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let at = self.project(name);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }

    /// Does something outside, in the directory of the servers.
    #[track_caller]
    pub(crate) fn prepare(&self, script: &str) {
        let mut run = self.command(&["bash", "-ec", script]);
        let ran = start(run.current_dir(self.served(""))).wait();
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    /// A command outside.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let (program, arguments) = words.split_first().expect("a program");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.base.path().join("home"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .current_dir(self.project(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    /// Starts a script in a session that reaches what `allow` names, with more options.
    pub(crate) fn start(&self, allow: &[&str], options: &[&str], script: &str) -> Running {
        let allow = format!("network.allow={allow:?}");
        let launcher = launcher();
        let mut words = vec![
            launcher.to_str().unwrap(),
            "-q",
            "--set",
            "network.mode=filtered",
        ];
        words.extend(chosen::options());
        words.extend(["--set", &allow]);
        words.extend(options);
        words.extend(["--", "bash", "-c", script]);
        start(&mut self.command(&words))
    }

    /// What a script prints in such a session.
    #[track_caller]
    pub(crate) fn says(&self, allow: &[&str], script: &str) -> String {
        self.says_with(allow, &[], script)
    }

    /// The same with more options.
    #[track_caller]
    pub(crate) fn says_with(&self, allow: &[&str], options: &[&str], script: &str) -> String {
        let ran = self.start(allow, options, script).wait();
        println!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, 0);
        ran.stdout
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.servers.kill();
        let _ = self.servers.wait();
    }
}

/// The launcher under test.
pub(crate) fn launcher() -> PathBuf {
    let staged = std::env::var_os("AGENT_SANDBOX_BIN");
    staged.map_or_else(
        || Path::new(env!("CARGO_BIN_EXE_agent-sandbox")).into(),
        PathBuf::from,
    )
}

/// A command that runs; it ends with this.
pub(crate) struct Running {
    child: Child,
    stdout: Drained,
    stderr: Drained,
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn start(command: &mut Command) -> Running {
    let mut child = command.spawn().unwrap();
    Running {
        stdout: drain(child.stdout.take().unwrap()),
        stderr: drain(child.stderr.take().unwrap()),
        child,
    }
}

impl Running {
    /// Its number.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn wait(mut self) -> Ran {
        let status = wait(&mut self.child, "the command");
        let text = |pipe: &Drained| String::from_utf8_lossy(&pipe.all()).into_owned();
        Ran {
            code: code(status),
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let group = nix::unistd::Pid::from_raw(-self.pid());
            let _ = nix::sys::signal::kill(group, nix::sys::signal::Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}
