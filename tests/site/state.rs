//! The state directory, which the user chooses and in which jails have directories that they write.

use std::fs;

use crate::widening::{SYSTEM, Tried};
use crate::world::{CANARY, Output};

/// Keeps something of the jail's own, and looks for it below a tree. `Err`: the launch was refused.
#[track_caller]
fn planted(t: &Tried, variable: &str, tree: &str) -> (Output, String) {
    let script = format!("mkdir -p ~/.cache && echo {CANARY} > ~/.cache/planted; echo ran");
    let home = fs::metadata(tree).unwrap();
    assert!(home.is_dir());
    let output = t
        .jail(&["--set", "home.keep=[\"~/.cache\"]"], &script)
        .variable(variable, tree)
        .run();
    let found = t
        .world
        .outside(&format!(
            "grep -rls {CANARY} '{tree}/agent-sandbox' '{tree}/.local'; true"
        ))
        .run();
    (output, found.ok().stdout)
}

/// The launch is refused and says this of the site's, and nothing was written below the tree.
#[track_caller]
fn refused(enforced: impl Fn(&Tried) -> String, words: &[&str], tree: impl Fn(&Tried) -> String) {
    for backend in ["bwrap", "landlock"] {
        for variable in ["XDG_STATE_HOME", "HOME"] {
            let control = Tried::new(backend);
            let (output, found) = planted(&control, variable, &tree(&control));
            assert!(
                !found.is_empty(),
                "{backend}, {variable}: without a site's policy this succeeds, or the test shows nothing: {output}"
            );
            let t = Tried::new(backend);
            t.world.enforced(&enforced(&t));
            let (output, found) = planted(&t, variable, &tree(&t));
            assert_eq!(found, "", "{backend}, {variable}: {output}");
            // In a home that is hidden as a whole there is nothing to keep.
            if output.code != 0 || variable != "HOME" {
                let output = output.refused(&["state directory", "enforced.toml:"]);
                output.says(words);
            }
        }
    }
}

#[test]
fn nothing_is_kept_in_what_the_site_hides() {
    let hidden = |t: &Tried| format!("[files]\nhide = [\"{}\"]\n", t.data(""));
    refused(hidden, &["files.hide"], |t| t.data(""));
    // By another name of it.
    refused(hidden, &["files.hide"], |t| {
        t.link(t.data(""), "linked");
        t.world.base().join("home/linked").display().to_string()
    });
    // The default of another home.
    let of_home = |t: &Tried| format!("[files]\nhide = [\"{}\"]\n", t.open(".local"));
    for backend in ["bwrap", "landlock"] {
        let t = Tried::new(backend);
        t.world.enforced(&of_home(&t));
        let (output, found) = planted(&t, "HOME", &t.open(""));
        assert_eq!(found, "", "{backend}: {output}");
        output.refused(&["state directory", "files.hide", "enforced.toml:"]);
    }
    // Or somewhere below it.
    refused(hidden, &["files.hide"], |t| {
        let below = t.data("below");
        fs::create_dir(&below).unwrap();
        t.world.own(below.as_ref(), 0o755);
        below
    });
}

#[test]
fn nothing_is_kept_where_the_site_lets_nothing_be_written() {
    let bounded = |t: &Tried| {
        format!(
            "[files]\nread = [{SYSTEM}, \"{0}\", \"{1}\"]\nwrite = [\"{1}\"]\n",
            t.data(""),
            t.open("")
        )
    };
    refused(bounded, &["files.write"], |t| t.data(""));
}

/// Where it is by default nobody has chosen it, and what the site lets be written holds it.
#[test]
fn the_state_directory_stands_where_it_may() {
    for backend in ["bwrap", "landlock"] {
        let t = Tried::new(backend);
        t.world.enforced(&format!(
            "[files]\nread = [{SYSTEM}]\nwrite = [\"{}\"]\n[home]\nread = [\"~/allowed\"]\nwrite = [\"~/allowed\"]\n",
            t.open("")
        ));
        let script = "mkdir -p ~/.cache && echo kept > ~/.cache/planted; echo ran";
        let options = ["--set", "home.keep=[\"~/.cache\"]"];
        assert_eq!(t.run(&options, script).ok().stdout, "ran\n");
        let (output, found) = planted(&t, "XDG_STATE_HOME", &t.open(""));
        assert_eq!(output.ok().stdout, "ran\n");
        assert!(!found.is_empty(), "{backend}");
    }
}
