//! Programs as people have them, at hosts of a credential: with nothing set for them they take the filter for these hosts, and send a
//! placeholder, in whose place the server gets the value.

use std::fs;
use std::path::Path;

use agent_sandbox_support::not_checked;
use serde_json::{Value, json};

use crate::clients::{REPOSITORY, WHEEL, found};
use crate::outside::{Outside, Ran, launcher, outside, start};

/// What `servers.py` looks for.
const VALUE: &str = "the-real-value-of-a-credential";

fn zone() -> Value {
    let at = json!({ "A": [["9.9.9.1"]] });
    let names = ["a", "git", "pip", "npm", "crates", "gh", "other"];
    let names = names.map(|name| (format!("{name}.example"), at.clone()));
    Value::Object(names.into_iter().collect())
}

/// Runs a script in a session with a credential for these hosts, and that is all of it that is set.
#[track_caller]
fn run(net: &Outside, hosts: &[&str], options: &[&str], script: &str) -> Ran {
    run_with(net, hosts, options, &[], script)
}

/// The same with more variables outside.
#[track_caller]
fn run_with(
    net: &Outside,
    hosts: &[&str],
    options: &[&str],
    variables: &[(&str, &Path)],
    script: &str,
) -> Ran {
    let home = net.project("").parent().unwrap().to_owned();
    let config = home.join(".config/agent-sandbox");
    fs::create_dir_all(&config).unwrap();
    fs::write(home.join(".real"), VALUE).unwrap();
    let policy = format!(
        "[network]\nmode = \"filtered\"\nallow = [\"other.example\"]\n[[credential]]\nname = \"one\"\nhosts = {hosts:?}\n\
         env = \"ONE_TOKEN\"\nfrom = \"file:~/.real\"\n"
    );
    fs::write(config.join("config.toml"), policy).unwrap();
    // Outside the servers are known by it.
    let authority = net.served("ca.pem");
    let launcher = launcher();
    let mut words = vec![launcher.to_str().unwrap(), "-q"];
    words.extend(options);
    words.extend(["--", "bash", "-c", script]);
    let mut command = net.command(&words);
    command.env("SSL_CERT_FILE", authority);
    command.envs(variables.iter().copied());
    let ran = start(&mut command).wait();
    println!("{}{}", ran.stdout, ran.stderr);
    let inside = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!inside.contains(VALUE), "{inside}");
    ran
}

/// What servers got: each host with how it was asked, in order and without what is said twice.
fn asked(net: &Outside) -> Vec<String> {
    let text = fs::read_to_string(net.served("asked")).unwrap_or_default();
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let (host, _, had) = (words.next(), words.next(), words.next());
        let line = format!("{}: {}", host.unwrap(), had.unwrap());
        if !all.contains(&line) {
            all.push(line);
        }
    }
    all
}

#[test]
fn clients_of_every_kind_take_the_filter_for_a_host() {
    let test = "brokered::clients_of_every_kind_take_the_filter_for_a_host";
    outside(test, &zone(), |net| {
        net.prepare(REPOSITORY);
        net.prepare("mkdir -p www/gh.example/api/v3; echo served > www/gh.example/api/v3/x");
        let mut script = "set -e
            curl -sSf -H \"Authorization: Bearer $ONE_TOKEN\" https://a.example/
            wget -qO- --header=\"X-Api-Key: $ONE_TOKEN\" https://a.example/
            /usr/bin/python3 -c 'import os, urllib.request as u
print(u.urlopen(u.Request(\"https://a.example/\", headers={\"X-Api-Key\": os.environ[\"ONE_TOKEN\"]})).read().decode(), end=\"\")'
            git -c credential.helper= -c http.extraHeader=\"Authorization: Bearer $ONE_TOKEN\" clone -q https://git.example/git/small.git
            cat small/file\n"
            .to_owned();
        let mut expected = "served a.example at 9.9.9.1\n".repeat(3) + "text\n";
        let mut at_servers = vec!["a.example: the value", "git.example: the value"];
        if found(&["/usr/bin/gh"]).is_some() {
            // One of Go's programs.
            script += "GH_ENTERPRISE_TOKEN=$ONE_TOKEN GH_HOST=gh.example gh api x\n";
            expected += "served\n";
            at_servers.push("gh.example: the value");
        } else {
            not_checked(
                "a program of Go's with a credential",
                "no gh on this machine",
            );
        }
        // At another host it stays what it is.
        script += "curl -sSf -H \"Authorization: Bearer $ONE_TOKEN\" https://other.example/\n";
        expected += "served other.example at 9.9.9.1\n";
        at_servers.push("other.example: a placeholder");
        let ran = run(
            net,
            &["a.example", "git.example", "gh.example"],
            &[],
            &script,
        );
        assert_eq!(ran.stdout, expected, "{ran:?}");
        assert_eq!(asked(net), at_servers);
    });
}

/// What git can be told inside about credentials and hosts: it hands out a placeholder, and sends one.
#[test]
fn git_sends_nothing_but_a_placeholder_to_another_host() {
    let test = "brokered::git_sends_nothing_but_a_placeholder_to_another_host";
    outside(test, &zone(), |net| {
        net.prepare(REPOSITORY);
        let script = r#"
            export GIT_CONFIG_GLOBAL=$PWD/gitconfig
            git config --global credential.helper '!f() { echo username=u; echo "password=$ONE_TOKEN"; }; f'
            git config --global http.proactiveAuth basic
            printf 'protocol=https\nhost=git.example\n\n' | git credential fill | grep -c -- -placeholder
            git clone -q https://git.example/git/small.git first && cat first/file
            header="http.https://git.example/.extraHeader=Authorization: Bearer $ONE_TOKEN"
            git -c url.https://other.example/.insteadOf=https://git.example/ clone -q https://git.example/git/small.git second && cat second/file
            git -c http.extraHeader="Authorization: Bearer $ONE_TOKEN" -c url.https://other.example/.insteadOf=https://git.example/ clone -q https://git.example/git/small.git third
            git -c http.followRedirects=true -c "$header" ls-remote "https://git.example/to?https://other.example/git/small.git" > /dev/null
            git -c http.followRedirects=true -c http.extraHeader="Authorization: Bearer $ONE_TOKEN" ls-remote "https://git.example/to?https://other.example/git/small.git" > /dev/null
            other=$(getent ahostsv4 other.example | cut -d' ' -f1 | head -1)
            git -c "http.curloptResolve=git.example:443:$other" ls-remote https://git.example/git/small.git > /dev/null
            git -c http.sslVerify=false -c http.extraHeader='Host: other.example' -c "$header" ls-remote https://git.example/git/small.git > /dev/null
            git -c http.sslVerify=false -c http.proxy=http://other.example:80 ls-remote https://git.example/git/small.git > /dev/null
            true"#;
        let ran = run(net, &["git.example"], &[], script);
        assert_eq!(ran.stdout, "1\ntext\ntext\n", "{ran:?}");
        let asked = asked(net);
        for line in ["git.example: the value", "other.example: a placeholder"] {
            assert!(asked.iter().any(|one| one == line), "{line}: {asked:?}");
        }
        let elsewhere = asked.iter().filter(|one| !one.starts_with("git.example: "));
        assert!(
            elsewhere.clone().all(|one| !one.contains("the value")),
            "{asked:?}"
        );
    });
}

#[test]
fn clients_of_registries_take_the_filter_for_a_host() {
    let test = "brokered::clients_of_registries_take_the_filter_for_a_host";
    outside(test, &zone(), |net| {
        net.prepare(WHEEL);
        net.prepare("mkdir -p www/crates.example/index; echo '{\"dl\":\"https://crates.example/dl\"}' > www/crates.example/index/config.json");
        let mut script = "set -e
            /usr/bin/python3 -m pip -q --disable-pip-version-check --no-input --retries 0 install -t installed -i https://u:$ONE_TOKEN@pip.example/simple small
            PYTHONPATH=installed /usr/bin/python3 -m small\n"
            .to_owned();
        let mut expected = "small 42\n".to_owned();
        let mut at_servers = vec!["pip.example: the value"];
        let mut options = Vec::new();
        let tools = std::env::var("AGENT_SANDBOX_TEST_PYTHON").ok();
        if let Some(tools) = &tools {
            script += &format!(
                "{tools}/bin/uv -q --no-config --cache-dir cache pip install --target by-uv --index-url https://u:$ONE_TOKEN@pip.example/simple small
                PYTHONPATH=by-uv {tools}/bin/python -m small
                {tools}/bin/python -c 'import httpx, os, requests
for way in requests, httpx:
    print(way.get(\"https://a.example/\", headers={{\"X-Api-Key\": os.environ[\"ONE_TOKEN\"]}}).text, end=\"\")'\n"
            );
            expected += "small 42\nserved a.example at 9.9.9.1\nserved a.example at 9.9.9.1\n";
            at_servers.push("a.example: the value");
            options.extend(["--read", tools]);
        } else {
            not_checked(
                "uv, requests and httpx with a credential",
                "tests/confine/install did not succeed",
            );
        }
        if found(&["/usr/bin/node", "/usr/local/bin/node"]).is_some() {
            script += "node -e 'fetch(\"https://a.example/\", { headers: { authorization: \"Bearer \" + process.env.ONE_TOKEN } }).then(r => r.text()).then(t => process.stdout.write(t))'
                echo '//npm.example/:_authToken=${ONE_TOKEN}' > .npmrc
                npm view --registry https://npm.example/ --fetch-retries 0 none > npm.log 2>&1 || true\n";
            expected += "served a.example at 9.9.9.1\n";
            at_servers.extend(["a.example: the value", "npm.example: the value"]);
        } else {
            not_checked("node with a credential", "no node on this machine");
        }
        if let Some(deno) = found(&["/usr/bin/deno", "/usr/local/bin/deno"]) {
            script += &format!(
                "{} eval --quiet 'await fetch(\"https://a.example/\", {{ headers: {{ \"x-api-key\": Deno.env.get(\"ONE_TOKEN\") }} }})'\n",
                deno.display()
            );
        } else {
            not_checked("deno with a credential", "no deno on this machine");
        }
        let beside = launcher().with_file_name("cargo").display().to_string();
        if let Some(cargo) = found(&[&beside, "/usr/bin/cargo"]) {
            script += &format!(
                "mkdir -p app/src cargo; touch app/src/lib.rs; export CARGO_HOME=$PWD/cargo
                printf '[source.crates-io]\\nreplace-with = \"own\"\\n[source.own]\\nregistry = \"sparse+https://crates.example/index/\"\\n' > cargo/config.toml
                printf '[package]\\nname = \"app\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\n[dependencies]\\nsmall = \"1\"\\n' > app/Cargo.toml
                cd app; {} fetch > ../cargo.log 2>&1 || true; grep -o 'no matching package\\|SSL.*' ../cargo.log\n",
                cargo.display()
            );
            expected += "no matching package\n";
            at_servers.push("crates.example: nothing");
            if cargo == Path::new(&beside) {
                options.extend(["--read", &beside]);
            }
        } else {
            not_checked(
                "cargo with a credential",
                "no cargo that the test user can read",
            );
        }
        let hosts = ["a.example", "pip.example", "npm.example", "crates.example"];
        let ran = run(net, &hosts, &options, &script);
        assert_eq!(ran.stdout, expected, "{ran:?}");
        let asked = asked(net);
        // A registry's client may ask first without its token.
        for line in at_servers {
            assert!(asked.contains(&line.to_owned()), "{line}: {asked:?}");
        }
        assert!(
            !asked.iter().any(|line| line.contains("placeholder")),
            "{asked:?}"
        );
    });
}

#[test]
fn java_takes_the_filter_for_a_host() {
    let test = "brokered::java_takes_the_filter_for_a_host";
    if found(&["/usr/bin/java"]).is_none() {
        return not_checked(test, "no Java on this machine");
    }
    outside(test, &zone(), |net| {
        net.put(
            "Ask.java",
            r#"
import java.net.URI;
import java.net.http.*;

class Ask {
    public static void main(String[] words) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(words[0])).header("X-Api-Key", System.getenv("ONE_TOKEN")).build();
        System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"#,
        );
        // A Java of one's own, of a kind that comes with PKCS #12.
        net.prepare("mkdir -p jdk/lib/security; keytool -importcert -noprompt -alias a -file ca.pem -storetype PKCS12 -keystore jdk/lib/security/cacerts -storepass changeit 2> /dev/null");
        let own = net.served("jdk").display().to_string();
        // With the password Java looks at the sum.
        let script = "for java in /usr/bin/java /usr/lib/jvm/*/bin/java; do
                [ -x $java ] && $java -XX:TieredStopAtLevel=1 Ask.java https://a.example/ || echo failed
            done | sort -u
            list() { keytool -list -keystore \"$1\" -storepass changeit 2>&1 | grep -c \"$2\"; }
            list /etc/ssl/certs/java/cacerts '^agent-sandbox, '; list $JAVA_HOME/lib/security/cacerts '^agent-sandbox, \\|^system-0, '";
        let home = net.served("jdk");
        let variables = [("JAVA_HOME", home.as_path())];
        let launch = run_with(net, &["a.example"], &["--read", &own], &variables, script);
        if launch.stderr.contains("compiler") {
            return not_checked(test, "this Java compiles nothing");
        }
        assert_eq!(
            launch.stdout, "served a.example at 9.9.9.1\n1\n2\n",
            "{launch:?}"
        );
        // No word on standard error, which programs read.
        assert!(!launch.stderr.contains("Picked up"), "{launch:?}");
        assert_eq!(asked(net), ["a.example: the value"]);
    });
}
