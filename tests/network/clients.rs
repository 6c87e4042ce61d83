//! Programs as people have them, in a session whose network is filtered: they reach what is allowed with nothing set for them.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use agent_sandbox_support::not_checked;
use agent_sandbox_support::waiting::until;
use serde_json::{Value, json};

use crate::outside::{Outside, launcher, outside, start};
use crate::sshd::sshd;

/// A name for each server.
fn zone() -> Value {
    let both = json!({ "A": [["9.9.9.1"]], "AAAA": [["2620:fe::1"]] });
    json!({
        "a.example": both,
        "h2.example": { "A": [["9.9.9.2"]] },
        "six.example": { "AAAA": [["2620:fe::6"]] },
        "git.example": both,
        "ssh.example": { "A": [["9.9.9.3"]] },
        "pip.example": both,
        "npm.example": both,
        "crates.example": both,
        "gh.example": both,
        "other.example": both,
    })
}

/// The first of these programs.
pub(crate) fn found(names: &[&str]) -> Option<PathBuf> {
    let is_there = |name: &&&str| Path::new(name).exists();
    names.iter().find(is_there).map(PathBuf::from)
}

/// What a script prints, line by line, is this.
#[track_caller]
fn prints(net: &Outside, allow: &[&str], script: &str, expected: &str) {
    assert_eq!(net.says(allow, script), expected);
}

#[test]
fn curl_reaches_servers_by_each_protocol() {
    outside(
        "clients::curl_reaches_servers_by_each_protocol",
        &zone(),
        |net| {
            let script = "
            ask() { curl -sS -m 30 --cacert ca.pem \"$@\" 2>&1; }
            ask http://six.example/
            ask https://six.example/
            ask --http1.1 https://h2.example/
            ask --http2 -w '%{http_version}\\n' https://h2.example/
            ask http://a.example/ https://a.example/ | grep -c 'served a.example'
            for url in https://other.example/ http://other.example/ https://9.9.9.1/; do ask $url > /dev/null || echo refused; done
        ";
            let allow = ["a.example", "six.example", "h2.example"];
            let said = net.says(&allow, script);
            assert_eq!(
                said,
                "served six.example at 2620:fe::6\nserved six.example at 2620:fe::6\n\
             served h2.example at 9.9.9.2\nserved by HTTP/2\n2\n2\nrefused\nrefused\nrefused\n"
            );
        },
    );
}

#[test]
fn git_clones_and_pushes_over_https() {
    outside(
        "clients::git_clones_and_pushes_over_https",
        &zone(),
        |net| {
            net.prepare(REPOSITORY);
            let script = "set -e
            git clone -q https://git.example/git/small.git
            cd small; cat file; echo more >> file; git commit -qam more; git push -q; cd ..
            git clone -q https://git.example/git/small.git again; cat again/file
            ! git ls-remote -q https://other.example/git/small.git";
            let script = format!("export GIT_SSL_CAINFO=$PWD/ca.pem; {script}");
            prints(net, &["git.example"], &script, "text\ntext\nmore\n");
        },
    );
}

/// A repository with one file that everybody may push to.
pub(crate) const REPOSITORY: &str = "
    git init -q --bare -b main git/small.git; git -C git/small.git config http.receivepack true
    git init -q -b main work; cd work; echo text > file; git add file
    git -c user.name=a -c user.email=a@b commit -qm one; git push -q ../git/small.git main";

/// The user's agent signs, outside: no key is inside, and the port is open because the host is named.
#[test]
fn git_and_ssh_log_in_with_the_users_agent() {
    let test = "clients::git_and_ssh_log_in_with_the_users_agent";
    let Some(sshd) = sshd() else {
        return not_checked(test, "no sshd on this machine");
    };
    outside(test, &zone(), |net| {
        net.prepare(REPOSITORY);
        let at = net.served("").display().to_string();
        let server = sshd.start(net);
        let socket = net.served("agent");
        let agent = ["ssh-agent", "-D", "-a", socket.to_str().unwrap()];
        let agent = start(&mut net.command(&agent));
        until("ssh-agent listens", || UnixStream::connect(&socket).is_ok());
        net.prepare(&format!(
            "SSH_AUTH_SOCK={at}/agent ssh-add -q user; mkdir -p ~/.ssh
            sed 's/^/ssh.example,a.example /' host.pub > ~/.ssh/known_hosts"
        ));
        let script = format!(
            "me=$(id -un)
            git clone -q ssh://$me@ssh.example{at}/git/small.git && cd small && cat file
            echo more >> file; git commit -qam more && git push -q && echo pushed
            ssh -o BatchMode=yes $me@ssh.example echo plain ssh
            ssh -o BatchMode=yes $me@a.example echo elsewhere
            ssh -o BatchMode=yes -p 443 $me@ssh.example echo elsewhere
            true"
        );
        let launcher = launcher();
        let mut words = vec![launcher.to_str().unwrap(), "-q"];
        words.extend([
            "--set",
            "network.mode=filtered",
            "--set",
            "network.allow=[]",
        ]);
        words.extend(["--set", "ssh.hosts=[\"ssh.example\"]"]);
        words.extend(["--", "bash", "-c", &script]);
        let ran = start(net.command(&words).env("SSH_AUTH_SOCK", &socket)).wait();
        assert_eq!(ran.stdout, "text\npushed\nplain ssh\n", "{ran:?}");
        drop((server, agent));
    });
}

#[test]
fn git_and_ssh_reach_a_server_at_the_port_that_is_named() {
    let test = "clients::git_and_ssh_reach_a_server_at_the_port_that_is_named";
    let Some(sshd) = sshd() else {
        return not_checked(test, "no sshd on this machine");
    };
    outside(test, &zone(), |net| {
        net.prepare(REPOSITORY);
        let at = net.served("").display().to_string();
        let server = sshd.start(net);
        fs::copy(net.served("user"), net.project("key")).unwrap();
        let script = format!(
            "export GIT_SSH_COMMAND='ssh -F none -i key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=known'
            me=$(id -un)
            $GIT_SSH_COMMAND $me@ssh.example echo over ssh
            git clone -q ssh://$me@ssh.example{at}/git/small.git && cat small/file
            head -c 3000000 /dev/zero | $GIT_SSH_COMMAND $me@ssh.example wc -c
            $GIT_SSH_COMMAND $me@a.example echo elsewhere
            $GIT_SSH_COMMAND -p 443 $me@ssh.example echo elsewhere
            true"
        );
        prints(
            net,
            &["ssh.example:22", "a.example"],
            &script,
            "over ssh\ntext\n3000000\n",
        );
        drop(server);
    });
}

/// A package of Python's, with the index in which it stands.
pub(crate) const WHEEL: &str = r#"python3 - <<'end'
import pathlib, zipfile
at = pathlib.Path("www/pip.example/simple/small"); at.mkdir(parents=True)
meta = "small-1.0.dist-info/"
files = {
    "small.py": "print('small', 6 * 7)\n",
    meta + "METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
    meta + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
with zipfile.ZipFile(at / "small-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
    wheel.writestr(meta + "RECORD", "".join(f"{n},,\n" for n in [*files, meta + "RECORD"]))
(at / "index.html").write_text('<a href="small-1.0-py3-none-any.whl">small-1.0-py3-none-any.whl</a>')
end"#;

#[test]
fn pip_installs_from_an_index() {
    outside("clients::pip_installs_from_an_index", &zone(), |net| {
        net.prepare(WHEEL);
        let script = "set -e
            pip() { /usr/bin/python3 -m pip -q --disable-pip-version-check --no-input --retries 0 --cert ca.pem \"$@\"; }
            pip install -t installed -i https://pip.example/simple small
            PYTHONPATH=installed /usr/bin/python3 -m small
            ! pip download -i https://other.example/simple small 2> refused
            grep -o 'No matching distribution' refused";
        prints(
            net,
            &["pip.example"],
            script,
            "small 42\nNo matching distribution\n",
        );
    });
}

#[test]
fn pythons_libraries_reach_servers() {
    outside("clients::pythons_libraries_reach_servers", &zone(), |net| {
        let tools = std::env::var("AGENT_SANDBOX_TEST_PYTHON").ok();
        if tools.is_none() {
            not_checked(
                "requests and httpx",
                "tests/confine/install did not succeed",
            );
        }
        let with = tools.as_ref().map_or("/usr/bin/python3".to_owned(), |at| {
            format!("{at}/bin/python")
        });
        let script = format!(
            "export SSL_CERT_FILE=$PWD/ca.pem REQUESTS_CA_BUNDLE=$PWD/ca.pem; {with} - <<'end'
import urllib.request
ways = [lambda url: urllib.request.urlopen(url).read().decode()]
try:
    import requests, httpx
    ways += [lambda url: requests.get(url).text, lambda url: httpx.get(url).text]
except ImportError:
    pass
for way in ways:
    for url in ['https://six.example/', 'http://six.example/', 'https://other.example/']:
        try:
            print(way(url), end='')
        except Exception as error:
            print('refused')
end"
        );
        let options = tools.as_ref().map(|at| ["--read", at]);
        let options = options.as_ref().map_or(&[][..], |options| &options[..]);
        let said = net.says_with(&["six.example"], options, &script);
        let each = "served six.example at 2620:fe::6\n".repeat(2) + "refused\n";
        let ways = if tools.is_some() { 3 } else { 1 };
        assert_eq!(said, each.repeat(ways));
    });
}

#[test]
fn node_fetches_and_npm_installs() {
    let test = "clients::node_fetches_and_npm_installs";
    let has = |name| {
        found(&[
            &format!("/usr/bin/{name}"),
            &format!("/usr/local/bin/{name}"),
        ])
    };
    let (Some(_), Some(_)) = (has("node"), has("npm")) else {
        return not_checked(test, "no node and npm on this machine");
    };
    outside(test, &zone(), |net| {
        net.prepare(
            r#"mkdir -p package www/npm.example/small/-
            echo '{ "name": "small", "version": "1.0.0", "main": "x.js" }' > package/package.json
            echo 'console.log("small", 6 * 7)' > package/x.js
            tar -czf www/npm.example/small/-/small-1.0.0.tgz package
            sum=$(sha1sum www/npm.example/small/-/small-1.0.0.tgz | cut -d' ' -f1)
            cat > www/npm.example/small/index.html <<end
{ "name": "small", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": { "name": "small", "version": "1.0.0",
  "dist": { "tarball": "https://npm.example/small/-/small-1.0.0.tgz", "shasum": "$sum" } } } }
end"#,
        );
        let script = r#"set -e
            export NODE_EXTRA_CA_CERTS=$PWD/ca.pem
            node -e '(async () => { for (const url of ["https://six.example/", "http://six.example/", "https://other.example/"])
                await fetch(url).then(r => r.text()).then(t => process.stdout.write(t), e => console.log(e.cause.code)) })()'
            npm install --cafile ca.pem --no-audit --no-fund --fetch-retries 0 --registry https://npm.example/ small > npm.log 2>&1 || { cat npm.log; false; }
            node -e 'require("small")'"#;
        let served = "served six.example at 2620:fe::6\n".repeat(2);
        prints(
            net,
            &["six.example", "npm.example"],
            script,
            &format!("{served}ENOTFOUND\nsmall 42\n"),
        );
    });
}

#[test]
fn cargo_fetches_from_an_index() {
    let test = "clients::cargo_fetches_from_an_index";
    let beside = launcher().with_file_name("cargo");
    let Some(cargo) = found(&[&beside.display().to_string(), "/usr/bin/cargo"]) else {
        return not_checked(test, "no cargo that the test user can read");
    };
    outside(test, &zone(), |net| {
        net.prepare(
            r#"mkdir -p small-1.0.0/src www/crates.example/index/sm/al www/crates.example/dl/small
            printf '[package]\nname = "small"\nversion = "1.0.0"\nedition = "2021"\n' > small-1.0.0/Cargo.toml
            echo 'pub fn f() {}' > small-1.0.0/src/lib.rs
            tar -czf www/crates.example/dl/small/1.0.0 small-1.0.0
            sum=$(sha256sum www/crates.example/dl/small/1.0.0 | cut -d' ' -f1)
            echo '{"dl":"https://crates.example/dl/{crate}/{version}"}' > www/crates.example/index/config.json
            echo "{\"name\":\"small\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"$sum\",\"features\":{},\"yanked\":false}" \
                > www/crates.example/index/sm/al/small"#,
        );
        net.put("app/Cargo.toml",
            "[package]\nname = \"app\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\nsmall = \"1\"\n",
        );
        net.put("app/src/lib.rs", "");
        net.put("app/cargo/config.toml",
            "[source.crates-io]\nreplace-with = \"own\"\n[source.own]\nregistry = \"sparse+https://crates.example/index/\"\n",
        );
        let script = format!(
            "cd app; export CARGO_HTTP_CAINFO=$PWD/../ca.pem CARGO_HOME=$PWD/cargo
            {} vendor -q --respect-source-config > /dev/null; cat vendor/small/src/lib.rs",
            cargo.display()
        );
        let options = ["--read", cargo.to_str().unwrap()];
        let said = net.says_with(&["crates.example"], &options, &script);
        assert_eq!(said, "pub fn f() {}\n");
    });
}

/// GitHub's client is one of Go's programs: its own resolver, its own TLS.
#[test]
fn a_program_of_gos_reaches_a_server() {
    let test = "clients::a_program_of_gos_reaches_a_server";
    if found(&["/usr/bin/gh"]).is_none() {
        return not_checked(test, "no gh on this machine");
    }
    outside(test, &zone(), |net| {
        net.prepare("mkdir -p www/gh.example/api/v3; echo served > www/gh.example/api/v3/x");
        let script = "export SSL_CERT_FILE=$PWD/ca.pem GH_ENTERPRISE_TOKEN=none
            GH_HOST=gh.example gh api x; GH_HOST=other.example gh api x; true";
        prints(net, &["gh.example"], script, "served\n");
    });
}

#[test]
fn java_reaches_a_server() {
    let test = "clients::java_reaches_a_server";
    if found(&["/usr/bin/java"]).is_none() {
        return not_checked(test, "no Java on this machine");
    }
    outside(test, &zone(), |net| {
        net.put("Ask.java",
            r#"
import java.net.*;
import java.net.http.*;

class Ask {
    public static void main(String[] urls) throws Exception {
        for (String url : urls) {
            try {
                HttpRequest request = HttpRequest.newBuilder(URI.create(url)).version(HttpClient.Version.HTTP_1_1).build();
                System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
            } catch (java.io.IOException error) {
                System.out.println("refused");
            }
        }
    }
}
"#,
        );
        let script = "
            keytool -importcert -noprompt -alias test -file ca.pem -keystore store -storepass secret 2> /dev/null
            java -Djavax.net.ssl.trustStore=store -Djavax.net.ssl.trustStorePassword=secret -Xshare:auto -XX:TieredStopAtLevel=1 Ask.java \
                https://six.example/ http://six.example/ https://other.example/";
        let output = net.start(&["six.example"], &[], script).wait();
        if output.stderr.contains("compiler") {
            return not_checked(test, "this Java compiles nothing");
        }
        let served = "served six.example at 2620:fe::6\n".repeat(2);
        assert_eq!(output.stdout, format!("{served}refused\n"), "{output:?}");
    });
}
