//! Credentials that stay outside: inside there is a placeholder, and the server gets the value. Each value holds the marker, so that
//! no output of a jail may have it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::network::this_host;
use crate::world::{REFUSED, World, not_checked, wait_for};

/// A server by TLS, which writes each request's head to a file and sends back, in a header, what it was sent in some.
const SERVER: &str = r#"
import http.server, ssl, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        with open("asked", "a") as file:
            file.write(self.requestline + "\n" + str(self.headers))
        self.send_response(200)
        self.send_header("X-Echo", "%s %s" % (self.headers["Authorization"], self.headers["X-Api-Key"]))
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
import os; os.rename("port.new", "port")
server.serve_forever()
"#;

/// A server of the test's own, and its authority's certificate.
struct Server(Child, String);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts one for this host's name in a directory outside; `None` without openssl(1).
fn server(world: &World, host: &str) -> Option<Server> {
    let at = world.base("server");
    world.put(&at.join("names"), &format!("subjectAltName=DNS:{host}\n"));
    world.put(&at.join("server.py"), SERVER);
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let script = format!(
        "openssl req -x509 {key} -keyout ca.key -out ca.pem -subj '/CN=an authority of a test' -days 2 &&
         openssl req {key} -keyout key.pem -out request -subj /CN=server &&
         openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem"
    );
    let made = Command::new("sh")
        .arg("-c")
        .arg(script)
        .current_dir(&at)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    if !made.success() {
        not_checked(
            "credentials",
            "there is no openssl here that makes certificates",
        );
        return None;
    }
    let server = Command::new("python3")
        .arg("server.py")
        .current_dir(&at)
        .spawn()
        .unwrap();
    let server = Server(server, at.join("ca.pem").to_str().unwrap().to_owned());
    wait_for("the server", || at.join("port").exists().then_some(())).unwrap();
    Some(server)
}

fn read(at: &Path) -> String {
    fs::read_to_string(at).unwrap()
}

/// All text below a directory.
fn all_below(at: &Path) -> String {
    let found = Command::new("grep")
        .args(["-rhaF", ""])
        .arg(at)
        .output()
        .unwrap();
    String::from_utf8_lossy(&found.stdout).into_owned()
}

#[test]
fn a_credential_is_used_inside_and_is_not_there() {
    let (Some((host, _)), world) = (this_host(), World::new()) else {
        return;
    };
    let Some(Server(_, authority)) = &server(&world, &host) else {
        return;
    };
    let port = read(&world.base("server/port"));
    let marker = &world.marker;
    world.put(&world.home(".token"), &format!("file-{marker}\n"));
    world.put(&world.home(".other"), &format!("command-{marker}\n"));
    // Whoever is inside could put a program there.
    world.put(
        &world.project("bin/cat"),
        "#!/bin/sh\necho planted-by-an-agent\n",
    );
    Command::new("chmod")
        .arg("+x")
        .arg(world.project("bin/cat"))
        .status()
        .unwrap();
    let credential = |name: &str, from: &str| {
        format!(
            "[[credential]]\nname = \"{name}\"\nhosts = [\"{host}:{port}\"]\nenv = \"{name}_TOKEN\"\nfrom = \"{from}\"\n"
        )
    };
    let policy = format!(
        "[network]\nmode = \"filtered\"\nprivate = [\"{host}:{port}\"]\n{}{}{}base_url = {{ THREE_URL = \"/v1\" }}\n",
        credential("ONE", "file:~/.token"),
        credential("TWO", "command:cat ~/.other"),
        credential("THREE", "env:REAL_TOKEN"),
    );
    world.put(&world.home(".config/agent-sandbox/config.toml"), &policy);
    let jail = || {
        let path = format!(
            "{}:/usr/local/bin:/usr/bin:/bin",
            world.project("bin").display()
        );
        let run = world
            .jail([])
            .env("SSL_CERT_FILE", authority)
            .env("PATH", path);
        run.env("REAL_TOKEN", format!("env-{marker}"))
            .env("A_COPY", format!("x=env-{marker}"))
    };
    let script = format!(
        r#"PATH=/usr/bin:/bin
ask() {{ curl -sS -m 20 -D - "$@" 2>&1 | tr -d '\r' | grep -i -e served -e x-echo -e curl; }}
ask -H "Authorization: Bearer $ONE_TOKEN" https://{host}:{port}/one
ask --user "git:$TWO_TOKEN" https://{host}:{port}/two
ask -H "X-Api-Key: $THREE_TOKEN" $THREE_URL/three
ask "https://{host}:{port}/four?t=$ONE_TOKEN"
python3 -c 'import os, urllib.request as u
print(u.urlopen(u.Request("https://{host}:{port}/five", headers={{"X-Api-Key": os.environ["ONE_TOKEN"]}})).read())' 2>&1 | tail -1
echo "placeholder: $ONE_TOKEN"; echo "copy: $A_COPY $REAL_TOKEN"
cat ~/.token /proc/*/environ /proc/*/cmdline 2>&1 | tr '\0' '\n' | grep -a MARKER
find /run -type f -exec cat {{}} + 2>/dev/null | grep -a MARKER
own=/run/agent-sandbox/bin; [ -e $own ] || own=$(dirname $AGENT_SANDBOX_EXPLAIN)/slurm
$own/agent-sandbox explain --env ONE_TOKEN; echo ended"#
    );
    let output = jail().run(&["bash", "-c", &script]);
    let basic = Command::new("base64")
        .arg("-w0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            use std::io::Write;
            child
                .stdin
                .take()
                .unwrap()
                .write_all(format!("git:command-{marker}").as_bytes())?;
            child.wait_with_output()
        });
    let basic = String::from_utf8(basic.unwrap().stdout).unwrap();
    let said = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(said.matches("served").count(), 5, "{said}");
    for line in [
        "-agent-sandbox-placeholder\n",
        "\ncopy:  \n",
        "rule: credential `ONE`",
        "ended",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(said.to_lowercase().contains("x-echo: bearer "), "{said}");
    assert!(
        !said.contains(&basic),
        "what comes back encoded is the value, too: {said}"
    );
    let asked = read(&world.base("server/asked"));
    for sent in [
        &format!("Authorization: Bearer file-{marker}\n"),
        &format!("Authorization: Basic {basic}\n"),
        &format!("GET /v1/three HTTP/1.1\nHost: {host}:{port}\n"),
        &format!("X-Api-Key: env-{marker}\n"),
    ] {
        assert!(
            asked.to_lowercase().contains(&sent.to_lowercase()),
            "{sent}: {asked}"
        );
    }
    let fourth = asked.lines().find(|line| line.contains("/four")).unwrap();
    assert!(
        !fourth.contains(marker) && fourth.contains("-placeholder"),
        "{fourth}"
    );
    // What is kept of the session.
    let kept = all_below(&world.home(".local/state"));
    assert!(
        kept.contains("the value of the credential `ONE` was sent"),
        "{kept}"
    );
    assert!(!kept.contains(marker), "{kept}");
    let plan = jail().option("--dry-run", "--json").run(&["true"]);
    assert!(
        plan.stdout.contains("file:~/.token"),
        "{}{}",
        plan.stdout,
        plan.stderr
    );
}

#[test]
fn a_credential_that_cannot_be_kept_outside_starts_nothing() {
    let world = World::new();
    world.put(
        &world.project("token"),
        &format!("value-{}\n", world.marker),
    );
    std::os::unix::fs::symlink(world.home(".ssh/id_rsa"), world.project("link")).unwrap();
    std::os::unix::fs::symlink(world.project("link"), world.home(".steady")).unwrap();
    for (mode, from, said) in [
        ("open", "env:HOME", "needs network.mode = \"filtered\""),
        ("filtered", "command:exit 3", "its command failed"),
        ("filtered", "command:echo two words", "several words"),
        ("filtered", "command:echo", "it is empty"),
        ("filtered", "file:~/.none", "cannot be found"),
        (
            "filtered",
            "file:~/work/project/token",
            "stands where the jail can write",
        ),
        // An agent of an earlier session chose where it leads.
        (
            "filtered",
            "file:~/.steady",
            "leads through the symbolic link",
        ),
        // The last one is asked for once more, without credentials.
        ("filtered", "env:NOT_SET", "the variable NOT_SET is not set"),
    ] {
        let policy = format!(
            "[network]\nmode = \"{mode}\"\n[[credential]]\nname = \"one\"\nhosts = [\"a.example\"]\nenv = \"ONE_TOKEN\"\nfrom = \"{from}\"\n"
        );
        world.put(&world.home(".config/agent-sandbox/config.toml"), &policy);
        let output = world.jail([]).run(&["touch", "started"]);
        assert_eq!(
            output.status.code(),
            Some(REFUSED),
            "{from}: {}",
            output.stderr
        );
        assert!(output.stderr.contains(said), "{from}: {}", output.stderr);
        assert!(
            output.stderr.contains("config.toml:3"),
            "{from}: {}",
            output.stderr
        );
        assert!(!world.project("started").exists());
    }
    let without = world.jail(["--set", "network.credentials=off"]).run(&[
        "sh",
        "-c",
        "echo \"[$ONE_TOKEN]\"",
    ]);
    assert_eq!(without.stdout, "[]\n", "{}", without.stderr);
}
