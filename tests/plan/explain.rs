//! What is answered about paths, devices, hosts and variables, outside and inside.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use agent_sandbox::host::files::{Files, Look};
use agent_sandbox::plan::explain::change::Ways;
use agent_sandbox::plan::explain::hosts::{self, Peer, Reach};
use agent_sandbox::plan::explain::inside::{DOCUMENT, Document, Seen};
use agent_sandbox::plan::explain::{self, Explanation, Visibility};
use agent_sandbox::plan::{Mount, Plan};
use agent_sandbox_landlock::{Thing, translate};
use proptest::prelude::*;

use crate::host::plain;
use crate::random;
use crate::scenario::Scenario;
use crate::tree::What;

/// What no document may hold: every hidden name of the tests has it.
const MARK: &str = "MARKED";

pub(crate) fn asked(scenario: &Scenario, path: &str) -> Explanation {
    let (plan, policy) = (scenario.plan().unwrap(), scenario.merged());
    let ways = Ways {
        policy: &policy,
        config: "config.toml",
        places: Some((&plan.site_bounds, &scenario.tree)),
    };
    explain::path(&plan, &scenario.tree, Path::new(path), &ways)
}

/// What a key decides is not the same in every jail.
#[test]
fn what_is_the_jails_own_by_a_key_is_changed_by_it() {
    let change = |enforced: &str, path: &str| {
        let answer = asked(&Scenario::new(plain()).enforced(enforced), path);
        assert_eq!(answer.verdict, Visibility::Private, "{answer:?}");
        answer.change
    };
    for (path, way) in [
        ("/home/ada", "or --home MODE for one run"),
        ("/etc/passwd", "or --set jail.users=host for one run"),
        ("/tmp", "or --set jail.tmp_size=SIZE for one run"),
    ] {
        let said = change("", path);
        assert!(
            said.possible && said.text.ends_with(way),
            "{path}: {said:?}"
        );
    }
    assert!(!change("", "/proc").possible);
    for (enforced, path, by) in [
        (
            "[jail]\nusers = \"filtered\"\n",
            "/etc/passwd",
            "jail.users (enforced.toml:2)",
        ),
        (
            "[home]\nmode = \"tmpfs\"\n",
            "/home/ada",
            "home.mode (enforced.toml:2)",
        ),
    ] {
        assert_eq!(change(enforced, path).site.as_deref(), Some(by));
    }
}

/// The note names a way only where there is one.
#[test]
fn what_is_left_out_is_excepted_only_where_the_site_lets_it() {
    let reason = |enforced: &str| {
        let scenario = Scenario::new(plain())
            .policy("[home]\nread = [\"~/.ssh\"]\n")
            .enforced(enforced);
        let plan = scenario.plan().unwrap();
        let mut left = plan.omitted.into_iter();
        left.find(|one| one.path == "~/.ssh").unwrap().reason
    };
    assert!(reason("").ends_with("hides it; files.unhide makes an exception"));
    for (enforced, end) in [
        (
            "[files]\nunhide = []\n",
            "; the site's files.unhide (enforced.toml) allows no exception here",
        ),
        (
            "[files]\nhide = [\"~/.ssh\"]\n",
            "; it is the site's, which nobody else makes exceptions from",
        ),
    ] {
        let said = reason(enforced);
        assert!(said.ends_with(end), "{said}");
    }
}

fn with_devices() -> Scenario {
    let mut tree = plain();
    for (at, what) in [
        ("/dev/nvidia0", What::Device),
        ("/dev/mine", What::Device),
        ("/dev/sda", What::Device),
        ("/dev/dri", What::Directory),
    ] {
        assert!(tree.put(at, what));
    }
    Scenario::new(tree)
}

/// Adapters of networks, of which the host has one.
#[test]
fn adapters_are_explained_by_the_network() {
    let with = |policy: &str| {
        let mut tree = plain();
        assert!(tree.put("/dev/cxi0", What::Device));
        Scenario::new(tree).policy(policy)
    };
    let open = with("");
    assert_eq!(asked(&open, "/dev/cxi0").verdict, Visibility::Device);
    for mode in ["isolated", "filtered"] {
        let closed = with(&format!("network.mode = \"{mode}\""));
        for adapter in ["/dev/cxi0", "/dev/infiniband/uverbs0"] {
            let adapter = asked(&closed, adapter);
            assert_eq!(adapter.verdict, Visibility::Absent, "{adapter:?}");
            let change = &adapter.change;
            assert!(
                change.text.contains("where network.mode is open"),
                "{change:?}"
            );
        }
        let named = format!("network.mode = \"{mode}\"\ndevices.allow = [\"/dev/cxi*\"]");
        assert_eq!(
            asked(&with(&named), "/dev/cxi0").verdict,
            Visibility::Device
        );
    }
}

#[test]
fn devices_are_explained_by_rule_node_and_rights() {
    let scenario =
        with_devices().policy("[devices]\nallow = [\"/dev/missing\"]\ndeny = [\"/dev/mine\"]\n");
    let given = asked(&scenario, "/dev/nvidia0");
    assert_eq!(given.verdict, Visibility::Device);
    assert!(
        given
            .why
            .to_string()
            .starts_with("devices.allow `/dev/nvidia*`")
    );
    assert!(
        given.notes[0].starts_with("a device node, mode "),
        "{given:?}"
    );
    assert!(given.change.text.contains("devices.deny in config.toml"));
    let mine = asked(&scenario, "/dev/mine");
    assert_eq!(mine.verdict, Visibility::Hidden);
    assert_eq!(
        mine.change.text,
        "take `/dev/mine` out of devices.deny (config.toml:3)"
    );
    let disk = asked(&scenario, "/dev/sda");
    assert_eq!(disk.verdict, Visibility::Hidden);
    assert!(!disk.change.possible, "{disk:?}");
    let missing = asked(&scenario, "/dev/missing");
    assert_eq!(missing.verdict, Visibility::Absent);
    assert_eq!(
        missing.why.to_string(),
        "devices.allow `/dev/missing` (config.toml:2)"
    );
    assert_eq!(missing.notes, ["it does not exist outside either"]);
    assert!(!missing.exists);
    let unknown = asked(&scenario, "/dev/other");
    assert_eq!(unknown.why.to_string(), "no rule of devices.allow names it");
    assert!(
        unknown
            .change
            .text
            .contains("add `/dev/other` to devices.allow in config.toml")
    );
    let directory = asked(&scenario, "/dev/dri");
    assert!(
        directory.why.to_string().contains("it is a directory"),
        "{directory:?}"
    );
    assert_eq!(asked(&scenario, "/dev/null").verdict, Visibility::Private);
    assert_eq!(asked(&scenario, "/dev/shm/x").verdict, Visibility::Absent);
}

#[test]
fn a_rule_of_the_users_own_is_taken_out_where_it_stands() {
    let policy = "[files]\nhide = [\"~/project/x\"]\n[home]\nprotect = [\"~/project/y\"]\n";
    let tree = plain()
        .file("/home/ada/project/x", "x")
        .file("/home/ada/project/y", "y");
    let scenario = Scenario::new(tree).policy(policy);
    let hidden = asked(&scenario, "/home/ada/project/x");
    assert_eq!(
        hidden.change.text,
        "take `~/project/x` out of files.hide (config.toml:2)"
    );
    let kept = asked(&scenario, "/home/ada/project/y");
    assert_eq!(kept.verdict, Visibility::ReadOnly);
    assert_eq!(
        kept.change.text,
        "take it out of home.protect (config.toml:4)"
    );
}

#[test]
fn names_of_hosts() {
    let kind = |peer| match peer {
        Peer::Path(_) => "path",
        Peer::Abstract => "abstract",
        Peer::Loopback(_) => "loopback",
        Peer::Host(_) => "host",
    };
    for (text, peer) in [
        ("localhost", "loopback"),
        ("LocalHost.:22", "loopback"),
        ("db.localhost", "loopback"),
        ("127.1.2.3:80", "loopback"),
        ("::1", "loopback"),
        ("[::1]:80", "loopback"),
        ("0.0.0.0", "loopback"),
        ("login2", "host"),
        ("example.org:443", "host"),
        ("2001:db8::1", "host"),
        ("[2001:db8::1]", "host"),
        ("@/tmp/.X11-unix/X0", "abstract"),
        ("/run/munge/munge.socket.2", "path"),
    ] {
        assert_eq!(hosts::parse(text).map(kind), Ok(peer), "{text}");
    }
    for (text, part) in [
        ("", "it is empty"),
        (":80", "it is empty"),
        ("a b", "no name of a host has"),
        ("a:0", "a port is"),
        ("a:65536", "a port is"),
        ("a:http", "a port is"),
        ("a:", "a port is"),
        ("https://example.org/", "it is a URL"),
        ("[::1", "the bracket is not closed"),
        ("[::1]80", "behind the bracket"),
        ("[login2]:80", "no IPv6 address"),
        ("@", "abstract socket"),
        ("x\u{1b}[31m", "no name of a host has"),
        (&"a".repeat(254), "longer than"),
    ] {
        let said = hosts::parse(text).unwrap_err();
        assert!(said.contains(part), "{text:?}: {said}");
    }
}

#[test]
fn whom_the_jail_reaches() {
    use Visibility::{Reachable, Unreachable};
    for (isolated, scoped, host, loopback, by_name) in [
        (false, true, Reachable, Reachable, Unreachable),
        (false, false, Reachable, Reachable, Reachable),
        (true, true, Unreachable, Unreachable, Unreachable),
        (true, false, Unreachable, Unreachable, Unreachable),
    ] {
        let reach = Reach {
            isolated,
            scoped,
            rules: None,
        };
        let of = |peer| reach.of(&hosts::parse(peer).unwrap()).0;
        let all = (of("example.org"), of("localhost"), of("@x"));
        assert_eq!(all, (host, loopback, by_name), "{reach:?}");
    }
}

#[test]
fn what_the_filter_refuses_is_explained_with_the_change() {
    let policy = "[network]\nmode = \"filtered\"\nallow = [\"a.org\", \"*.b.org:22\"]\ndeny = [\"x.b.org\"]\n";
    for (name, verdict, part) in [
        ("a.org", Visibility::Reachable, "to close it"),
        (
            "a.org:22",
            Visibility::Unreachable,
            "add `a.org:22` to network.allow",
        ),
        (
            "b.org:22",
            Visibility::Unreachable,
            "network.allow=[\"b.org:22\"]",
        ),
        ("y.b.org:22", Visibility::Reachable, "to close it"),
        (
            "x.b.org:22",
            Visibility::Unreachable,
            "remove `x.b.org` from network.deny (config.toml:4)",
        ),
        (
            "169.254.169.254:80",
            Visibility::Unreachable,
            "network.allow",
        ),
        ("a.org:6817", Visibility::Unreachable, "it cannot be given"),
        ("localhost:8080", Visibility::Unreachable, "network.mode"),
        ("@x", Visibility::Unreachable, "network.mode"),
    ] {
        let explained = host(policy, name);
        assert_eq!(explained.verdict, verdict, "{name}: {explained:?}");
        assert!(
            explained.change.text.contains(part),
            "{name}: {explained:?}"
        );
    }
}

fn host(policy: &str, name: &str) -> Explanation {
    let scenario = Scenario::new(plain()).policy(policy);
    let (plan, policy) = (scenario.plan().unwrap(), scenario.merged());
    let ways = Ways {
        policy: &policy,
        config: "config.toml",
        places: Some((&plan.site_bounds, &scenario.tree)),
    };
    hosts::explain(&plan, name, &hosts::parse(name).unwrap(), &ways)
}

#[test]
fn hosts_name_the_rule_and_the_way() {
    let isolated = host("network.mode = \"isolated\"", "example.org:443");
    assert_eq!(isolated.verdict, Visibility::Unreachable);
    assert_eq!(
        isolated.why.to_string(),
        "network.mode `isolated` (config.toml:1)"
    );
    assert_eq!(
        isolated.change.text,
        "network.mode = \"open\" in config.toml, or --set network.mode=open for one run"
    );
    let open = host("network.mode = \"open\"", "example.org:443");
    assert_eq!(open.verdict, Visibility::Reachable);
    assert!(open.change.text.contains("network.mode = \"isolated\""));
}

/// The document as it stands in the jail.
fn document(plan: &Plan) -> (Vec<u8>, Document) {
    let step = plan
        .steps
        .iter()
        .find(|step| step.at == Path::new(DOCUMENT));
    let Some(Mount::File { content }) = step.map(|step| &step.mount) else {
        panic!("no document");
    };
    (content.clone(), Document::read(content).unwrap())
}

/// What somebody inside sees of a path that the jail shows nothing of.
fn unseen(document: &Document, path: &str) -> String {
    let answer = document.path(Path::new(path), Path::new(path), &Seen::Nothing);
    assert_eq!(answer.verdict, Visibility::NotVisible, "{answer:?}");
    format!("{answer:?}")
}

fn holds(text: &[u8], part: &str) -> bool {
    text.windows(part.len())
        .any(|window| window == part.as_bytes())
}

/// A host on which everything hidden has the mark in its name, and so has each rule that hides.
fn marked() -> Scenario {
    let name = |below: &str| format!("{below}/{MARK}");
    let tree = plain()
        .file(&name("/home/ada/project"), "x")
        .file(&format!("/home/ada/project/sub/{MARK}.key"), "x")
        .file(&format!("/data/open/{MARK}/file"), "x")
        .file("/data/open/file", "x")
        .link(&format!("/home/ada/{MARK}-link"), "/data/open/file")
        .file(&format!("/home/ada/{MARK}-home"), "x");
    let policy = format!(
        "[files]\nread = [\"/data/open\", \"/data/{MARK}-absent\"]\n\
         hide = [\"~/project/{MARK}\", \"~/project/sub/{MARK}*\", \"/data/open/{MARK}\", \"/nowhere/{MARK}\"]\n\
         [home]\nseed = [\"~/{MARK}-seed\"]\n[env]\nhide = [\"{MARK}*\"]\npass = [\"*{MARK}_PASS\"]\n\
         hide_values = [\"{MARK}*\"]\n[devices]\ndeny = [\"/dev/{MARK}\"]\n"
    );
    Scenario::new(tree)
        .policy(&policy)
        .variable(&format!("{MARK}_TOKEN"), "secret")
        .variable("BY_VALUE", &format!("{MARK}-and-a-long-value"))
        .variable("REPEATS", &format!("x{MARK}-and-a-long-value"))
}

#[test]
fn the_document_holds_nothing_that_is_hidden() {
    let scenario = marked();
    let plan = scenario.plan().unwrap();
    let (text, document) = document(&plan);
    for part in [
        MARK,
        "BY_VALUE",
        "REPEATS",
        "files.hide",
        "env.hide",
        "devices.deny",
    ] {
        assert!(!holds(&text, part), "the document holds {part}");
    }
    assert!(holds(&text, "/data/open") && holds(&text, "files.read"));
    let translated = translate(
        plan,
        &scenario.host,
        &scenario.tree,
        Path::new("/tmp/agent-sandbox-1000/s"),
        &[],
    )
    .unwrap();
    let staged = translated
        .staged
        .iter()
        .find(|one| one.at == Path::new("own/explain"));
    let Some(Thing::File(mode, text)) = staged.map(|one| &one.what) else {
        panic!("no document in the session's directory");
    };
    assert_eq!(*mode, 0o400);
    for part in [
        MARK,
        "BY_VALUE",
        "REPEATS",
        "files.hide",
        "env.hide",
        "devices.deny",
    ] {
        assert!(
            !holds(text, part),
            "the document of Landlock's jail holds {part}"
        );
    }
    let translated = Document::read(text).unwrap();
    assert!(translated.landlock && !document.landlock);
    // The project is taken apart there, and still the project.
    let seen = Seen::Something {
        real: "/home/ada/project/main.c".into(),
        readable: true,
        writable: true,
    };
    for document in [&document, &translated] {
        let path = Path::new("/home/ada/project/main.c");
        let answer = document.path(path, path, &seen);
        assert_eq!(answer.verdict, Visibility::Writable, "{answer:?}");
        assert_eq!(answer.why.as_deref(), Some("the project directory"));
    }
}

#[test]
fn what_is_hidden_and_what_does_not_exist_get_the_same_answer() {
    let plan = marked().plan().unwrap();
    let (_, document) = document(&plan);
    for (hidden, absent) in [
        ("/home/ada/project/MARKED", "/home/ada/project/MISSED"),
        ("/home/ada/.ssh/id_rsa", "/home/ada/.shs/id_rsa"),
        ("/data/open/MARKED/file", "/data/open/MISSED/file"),
    ] {
        assert_eq!(
            unseen(&document, hidden).replace(hidden, absent),
            unseen(&document, absent)
        );
    }
    let variable = |name: &str| format!("{:?}", document.variable(OsStr::new(name), false));
    for hidden in ["MARKED_TOKEN", "BY_VALUE", "REPEATS"] {
        assert_eq!(
            variable(hidden).replace(hidden, "NO_SUCH"),
            variable("NO_SUCH")
        );
        assert!(variable(hidden).contains("NotVisible"));
    }
    assert!(variable("HOME").contains("Passes"));
    // What the agent set itself is no news to it.
    let own = document.variable(OsStr::new("MARKED_TOKEN"), true);
    assert_eq!(
        own.why.as_deref(),
        Some("it was set inside, after the launch")
    );
}

/// A document of another version, or none at all, is not taken for one.
#[test]
fn a_document_of_another_form_is_refused() {
    let (text, _) = document(&marked().plan().unwrap());
    let mut other = text.clone();
    other[0] ^= 0x40;
    assert_eq!(Document::read(&other), None);
    assert_eq!(Document::read(&text[..text.len() / 2]), None);
    assert_eq!(Document::read(b""), None);
}

/// Every path that a case plants, and one beside each that nothing plants.
fn candidates(scenario: &Scenario) -> BTreeSet<PathBuf> {
    let plan = scenario.plan().unwrap();
    let mut all: BTreeSet<PathBuf> = plan
        .hidden
        .existing()
        .map(|hidden| hidden.path.clone())
        .collect();
    all.extend(plan.steps.iter().map(|step| step.at.join("no-such-name")));
    all
}

proptest! {
    #![proptest_config(random::config(300))]

    /// On random hosts, what is hidden is not named in the document beside what is visible, and gets
    /// the answer of what does not exist, whatever the process that asks sees of it. (Under Landlock it
    /// can see that it exists.)
    #[test]
    fn hidden_and_absent_are_one(case in random::case()) {
        let scenario = case.scenario();
        let Ok(plan) = scenario.plan() else { return Ok(()) };
        let (_, document) = document(&plan);
        let rules: BTreeSet<String> = plan.steps.iter().map(|step| step.why.to_string()).collect();
        for path in candidates(&scenario) {
            let path = path.to_str().unwrap();
            let there = matches!(scenario.tree.look(Path::new(path)), Look::Found(_));
            let answer = document.path(Path::new(path), Path::new(path), &Seen::Nothing);
            let absent = document.path(Path::new("/no/such"), Path::new("/no/such"), &Seen::Nothing);
            prop_assert_eq!(format!("{answer:?}").replace(path, "/no/such"), format!("{absent:?}"), "{} {}", path, there);
            prop_assert_eq!(answer.why, None);
        }
        // Each rule in it is that of a step which shows something.
        for step in &plan.steps {
            let seen = Seen::Something { real: step.at.clone(), readable: true, writable: true };
            let answer = document.path(&step.at, &step.at, &seen);
            prop_assert!(answer.why.is_none_or(|why| rules.contains(&why) || why == "on the way to what the jail shows"));
            if matches!(step.mount, Mount::HideDirectory | Mount::HideFile) {
                prop_assert!(document.place_around(&step.at) != Some(step.at.as_path()), "{:?}", step.at);
            }
        }
    }
}

/// What is proposed is not what another rule forbids.
#[test]
fn nothing_is_proposed_that_home_protect_forbids() {
    let protected = asked(&Scenario::new(plain()), "/home/ada/.gitconfig");
    assert_eq!(protected.verdict, Visibility::ReadOnly, "{protected:?}");
    assert!(!protected.change.possible, "{protected:?}");
    assert!(
        protected.change.text.contains("home.protect"),
        "{protected:?}"
    );
    let own = "[home]\nread = [\"~/x\"]\nprotect = [\"~/x\"]\n";
    let own = asked(
        &Scenario::new(plain().directory("/home/ada/x")).policy(own),
        "/home/ada/x",
    );
    let way = "take it out of home.protect (config.toml:3)";
    assert_eq!((own.change.possible, own.change.text.as_str()), (true, way));
    // Inside, too.
    let plan = Scenario::new(plain()).plan().unwrap();
    let (_, document) = document(&plan);
    let path = Path::new("/usr/bin/env");
    let seen = |real: &str| Seen::Something {
        real: real.into(),
        readable: true,
        writable: false,
    };
    let answer = document.path(path, path, &seen("/usr/bin/env"));
    assert!(
        answer
            .change
            .contains("`--write /usr/bin/env` makes it writable"),
        "{answer:?}"
    );
    assert!(unseen(&document, "/srv/x").contains("`--read /srv/x` shows it"));
}

#[test]
fn what_does_not_answer_is_not_said_to_be_missing() {
    let answer = asked(&Scenario::new(plain().hung("/nfs")), "/nfs/data");
    assert!(answer.notes[0].contains("does not answer"), "{answer:?}");
    let missing = asked(&Scenario::new(plain()), "/srv/none");
    assert_eq!(missing.notes, ["it does not exist outside either"]);
}
