//! `[files]`: what is given, hidden, taken out again, and what does not answer.

use crate::host::plain;
use crate::scenario::{Scenario, without_lines};
use crate::tree::Tree;

#[test]
fn an_exception_from_hide() {
    let tree = || {
        plain()
            .file("/home/ada/.condarc", "channels")
            .file("/home/ada/.ssh/config", "")
    };
    Scenario::new(tree())
        .policy("files.unhide = [\"~/.condarc\"]\nhome.read = [\"~/.condarc\", \"~/.ssh\"]")
        .snapshot("unhide");
    // Deeper than the rule: it names no rule, and takes nothing out.
    Scenario::new(tree())
        .policy("files.unhide = [\"~/.ssh/config\"]\nhome.read = [\"~/.ssh/config\"]")
        .snapshot("unhide_deeper");
}

/// An exception above a rule takes nothing out.
#[test]
fn an_exception_above_a_rule() {
    let scenario = Scenario::new(plain())
        .policy("files.unhide = [\"~/.config\"]\nhome.read = [\"~/.config\"]");
    let text = scenario.text();
    assert!(!text.contains("read    /home/ada/.config/gh"), "{text}");
}

#[test]
fn paths_that_begin_with_a_variable() {
    let tree = plain()
        .directory("/scratch/ada/in")
        .directory("/scratch/ada/out");
    Scenario::new(tree)
        .variable("SCRATCH", "/scratch/ada")
        .variable("RELATIVE", "scratch")
        .variable("DOTTED", "/scratch/../home/ada/.ssh")
        .variable("EMPTY", "")
        .policy(
            "[files]\nread = [\"$SCRATCH/in\", \"${RELATIVE}/in\", \"$DOTTED\", \"$EMPTY/x\", \"$UNSET\"]\n\
             write = [\"$SCRATCH/out\"]",
        )
        .snapshot("variables_in_paths");
}

#[test]
fn resolv_conf_leads_into_run() {
    let tree = plain()
        .without("/etc/resolv.conf")
        .link(
            "/etc/resolv.conf",
            "../run/systemd/resolve/stub-resolv.conf",
        )
        .file(
            "/run/systemd/resolve/stub-resolv.conf",
            "nameserver 127.0.0.53\n",
        )
        .socket("/run/systemd/resolve/io.systemd.Resolve");
    Scenario::new(tree).snapshot("resolv_conf_in_run");
    let elsewhere = plain()
        .without("/etc/resolv.conf")
        .link("/etc/resolv.conf", "/run/site/resolv.conf")
        .file("/run/site/resolv.conf", "nameserver 192.0.2.2\n");
    let text = Scenario::new(elsewhere).text();
    assert!(
        text.contains("read    /run/site/resolv.conf  [where a link in /etc leads]"),
        "{text}"
    );
}

/// The wait is bounded by whoever looks; the plan goes on without the path, and says so.
#[test]
fn a_path_that_hangs() {
    Scenario::new(plain().hung("/nfs"))
        .policy("[files]\nread = [\"/nfs/shared\"]\ntimeout_ms = 500")
        .snapshot("hung_read");
    Scenario::new(plain().hung("/nfs"))
        .project("/nfs/work")
        .snapshot("hung_project");
}

/// A hung directory that is hidden may answer again later.
#[test]
fn a_hidden_path_that_hangs() {
    let tree = plain()
        .file("/home/ada/data/open", "")
        .hung("/home/ada/data/keys");
    Scenario::new(tree)
        .policy("home.read = [\"~/data\"]\nfiles.hide = [\"~/data/keys\"]")
        .snapshot("hung_hidden");
}

/// Nobody asks about a directory of which nothing is wanted.
#[test]
fn what_nobody_named_is_never_looked_at() {
    let scenario = Scenario::new(plain().hung("/nfs").hung("/home/bob/nfs"));
    scenario.plan().unwrap();
    for path in ["/nfs", "/home/bob", "/home/bob/nfs", "/home/bob/thesis.tex"] {
        assert!(!scenario.tree.was_asked(path), "{path}");
    }
}

/// Paths that no policy can give.
#[test]
fn refusals() {
    let tree = || {
        plain()
            .link("/home/ada/root", "/")
            .directory("/dev/shm")
            .link("/h", "/home/ada")
    };
    let mut all = String::new();
    for policy in [
        "files.read = [\"/\"]",
        "files.read = [\"~/root\"]",
        "files.read = [\"/proc\"]",
        "files.read = [\"/proc/1\"]",
        "files.read = [\"/dev/shm\"]",
        "files.write = [\"/run\"]",
        "files.read = [\"~\"]",
        "files.read = [\"/h\"]",
        "files.write = [\"/home\"]",
        "home.write = [\"~/.config\"]",
        "home.write = [\"~/.config/agent-sandbox\"]",
        "files.write = [\"/usr/bin\"]",
        "files.write = [\"/usr\"]",
        "files.write = [\"/run/munge/munge.socket.2\"]",
        "files.write = [\"/dev/null\"]",
        "files.read = [\"/home/ada/.ssh/id_rsa\"]",
    ] {
        let scenario = Scenario::new(tree()).policy(policy);
        let text = scenario.text();
        let outcome = match scenario.plan() {
            Err(_) => text,
            Ok(plan) => plan
                .omitted
                .iter()
                .filter(|omitted| omitted.why.to_string().contains("config.toml:"))
                .map(|omitted| format!("left out: {}: {}\n", omitted.path, omitted.reason))
                .collect(),
        };
        all.push_str(&format!("# {policy}\n{outcome}\n"));
    }
    crate::scenario::compare("files_refusals", &without_lines(&all));
}

/// Two lists name one place: the wider wins, and what the outer one gives is not mounted again.
#[test]
fn wishes_that_overlap() {
    let tree = plain().directory("/data/in/deep").directory("/data/out");
    Scenario::new(tree)
        .only_policy(
            "[files]\nread = [\"/usr\", \"/data\", \"/data/in\", \"/data/out\"]\nwrite = [\"/data/out\", \"/data/in/deep\"]",
        )
        .snapshot("overlapping_wishes");
}

#[test]
fn a_pattern_in_the_last_component() {
    let tree = plain()
        .directory("/data/run-1")
        .directory("/data/run-2")
        .directory("/data/other");
    Scenario::new(tree)
        .only_policy("files.read = [\"/usr\", \"/data/run-*\"]")
        .snapshot("pattern");
}

/// What hides or protects needs an answer: behind a link that does not answer, the place may be shown by
/// its real name.
#[test]
fn what_takes_away_does_not_go_on_without_an_answer() {
    let refused = |tree: Tree, policy: &str| {
        let plan = Scenario::new(tree).policy(policy).plan();
        plan.err().map(|error| error.to_string())
    };
    let policy = "files.hide = [\"/stalled/data/secret\", \"/data/secret\"]";
    assert_eq!(refused(plain(), policy), None);
    let error = refused(plain().hung("/stalled"), policy).unwrap();
    assert!(
        error.contains("`/stalled`") && error.contains("does not answer"),
        "{error}"
    );
    let git = |tree: Tree, policy: &str| refused(tree.hung("/home/ada/project/.git"), policy);
    let error = git(plain(), "").unwrap();
    assert!(error.contains("project/.git"), "{error}");
    assert_eq!(git(plain(), "project.git = \"writable\""), None);
    // Only where the jail may write, or the way leads nobody knows where.
    let tools = || {
        plain()
            .file("/home/ada/x/own", "")
            .hung("/home/ada/x/tools")
    };
    let protect = "home.protect = [\"~/x/tools\"]";
    assert_eq!(refused(tools(), protect), None);
    let error = refused(tools(), &format!("{protect}\nhome.write = [\"~/x\"]")).unwrap();
    assert!(error.contains("/home/ada/x/tools"), "{error}");
}
