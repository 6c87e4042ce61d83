//! The site's files as text: what they may hold, and how mistakes in them are shown. Whose files are
//! read at all is tested beside the code that opens them, and in the suite `site`.

use std::fs;
use std::os::unix::fs::symlink;

use agent_sandbox::config::load::parse;
use agent_sandbox::config::site::Site;
use agent_sandbox::config::source::Layer;

use crate::support::{World, said, write};

const FILE: &str = "/etc/agent-sandbox/enforced.toml";

#[track_caller]
fn mistake(text: &str, expected: &str) {
    for layer in [Layer::SiteDefaults, Layer::SiteEnforced] {
        let error = parse(layer, FILE, text).expect_err("is accepted");
        assert_eq!(said(&error), expected.trim_matches('\n'));
    }
}

#[test]
fn mistakes_are_for_administrators() {
    mistake(
        "[jail]\nnestd = false\n",
        r"
unknown key `nestd`
 --> /etc/agent-sandbox/enforced.toml:2:1
  |
2 | nestd = false
  | ^^^^^
hint: ask your administrators: did you mean `nested`?",
    );
    mistake(
        "[jail\n",
        r"
unclosed table, expected `]`
 --> /etc/agent-sandbox/enforced.toml:1:6
  |
1 | [jail
  |      ^
hint: ask your administrators",
    );
    mistake(
        "[projects.\"/x\".jail]\nnested = true\n",
        r#"
`[projects]` has a meaning only in the user's own configuration
 --> /etc/agent-sandbox/enforced.toml:1:2
  |
1 | [projects."/x".jail]
  |  ^^^^^^^^
hint: ask your administrators: move it to `~/.config/agent-sandbox/config.toml`"#,
    );
}

#[test]
fn when_without_a_condition() {
    mistake(
        "[[when]]\n[when.jail]\nnested = false\n",
        r"
`[[when]]` without a condition
 --> /etc/agent-sandbox/enforced.toml:1:1
  |
1 | [[when]]
  | ^^^^^^^^
hint: ask your administrators: add `group`, `host`, `partition`, `account` or `user`; what always holds stands in sections without `[[when]]`",
    );
    // An empty list would never be met, an empty name by nobody.
    for nothing in ["[]", "\"\"", "[\"a\", \"\"]"] {
        let text = format!("[[when]]\nhost = \"x\"\ngroup = {nothing}\n");
        let error = parse(Layer::SiteEnforced, FILE, &text).unwrap_err();
        let place =
            "expected a name; nothing has an empty one\n --> /etc/agent-sandbox/enforced.toml:3:9";
        assert!(said(&error).starts_with(place), "{}", said(&error));
    }
}

/// A section behind it without `when.` in its name would hold for everybody, and the conditions for
/// nothing.
#[test]
fn when_with_nothing_below_it() {
    mistake(
        "[jail]\nnested = false\n[[when]]\ngroup = \"students\"\n\n[slurm.limits]\njobs = 4\n",
        r"
nothing stands below this [[when]]; its sections are written [when.NAME], as [when.slurm.limits]
 --> /etc/agent-sandbox/enforced.toml:3:1
  |
3 | [[when]]
  | ^^^^^^^^
hint: ask your administrators: a section without `when.` in its name holds for everybody; such sections stand above the first `[[when]]`",
    );
    for text in [
        "[[when]]\nhost = \"x\"\n",
        "[[when]]\nhost = \"x\"\n[[when]]\nhost = \"y\"\n[when.jail]\nnested = false\n",
    ] {
        for layer in [Layer::SiteDefaults, Layer::SiteEnforced] {
            let error = said(&parse(layer, FILE, text).unwrap_err());
            assert!(error.contains("nothing stands below"), "{error}");
            assert!(error.contains("enforced.toml:1:1"), "{error}");
        }
    }
}

/// What holds for a session cannot depend on what its jobs will ask for.
#[test]
fn bounds_of_some_jobs_stand_alone_and_in_enforced_files() {
    mistake(
        "[[when]]\naccount = \"x\"\n[when.slurm]\nscope = \"session\"\n[when.slurm.bounds]\nnodes = 1\n",
        r"
under `account` only [when.slurm.bounds] has a meaning
 --> /etc/agent-sandbox/enforced.toml:1:1
  |
1 | [[when]]
  | ^^^^^^^^
hint: ask your administrators: the account is known when a job is submitted, and not when a session starts; `group` and `user` are known then",
    );
    for condition in ["account", "partition"] {
        let text = format!("[[when]]\n{condition} = \"x\"\n[when.slurm.bounds]\nnodes = 1\n");
        assert!(parse(Layer::SiteEnforced, FILE, &text).is_ok());
        let error = said(&parse(Layer::SiteDefaults, FILE, &text).unwrap_err());
        assert!(error.contains("in an enforced file only"), "{error}");
    }
    let text = "[[when]]\ngroup = \"x\"\n[when.slurm.bounds]\nnodes = 1\n";
    assert!(parse(Layer::SiteDefaults, FILE, text).is_ok());
}

#[test]
fn unknown_keys_in_when() {
    mistake(
        "[[when]]\ngrup = \"x\"\n",
        r#"
unknown key `grup`
 --> /etc/agent-sandbox/enforced.toml:2:1
  |
2 | grup = "x"
  | ^^^^
hint: ask your administrators: did you mean `group`?"#,
    );
    mistake(
        "[[when]]\ngroup = \"x\"\nnested = false\n",
        r"
unknown key `nested`
 --> /etc/agent-sandbox/enforced.toml:3:1
  |
3 | nested = false
  | ^^^^^^
hint: ask your administrators: `nested` is a key of `[jail]`: write it below `[when.jail]`",
    );
    mistake(
        "[[when]]\ngroup = \"x\"\n[when.jail]\nnestd = false\n",
        r"
unknown key `nestd`
 --> /etc/agent-sandbox/enforced.toml:4:1
  |
4 | nestd = false
  | ^^^^^
hint: ask your administrators: did you mean `nested`?",
    );
    mistake(
        "[[when]]\ngroup = 5\n",
        r#"
expected a string, found the number 5
 --> /etc/agent-sandbox/enforced.toml:2:9
  |
2 | group = 5
  |         ^
hint: ask your administrators: put it in quotes: `"5"`"#,
    );
    // Inside of another: conditions do not nest.
    let text = "[[when]]\ngroup = \"x\"\n[[when.when]]\nuser = \"y\"\n";
    let error = said(&parse(Layer::SiteEnforced, FILE, text).unwrap_err());
    assert!(error.contains("enforced.toml:3:"), "{error}");
}

#[test]
fn when_is_a_list_of_tables() {
    mistake(
        "[when]\ngroup = \"x\"\n",
        r"
expected a list of tables: `[[when]]`
 --> /etc/agent-sandbox/enforced.toml:1:1
  |
1 | [when]
  | ^^^^^^
hint: ask your administrators: sections under conditions stand below `[[when]]` in one of the site's files",
    );
    let error = parse(Layer::SiteEnforced, FILE, "when = 5\n").unwrap_err();
    assert!(said(&error).contains("expected a list of tables"));
}

#[test]
fn only_the_site_has_conditions() {
    let text = "[jail]\nnested = true\n[[when]]\ngroup = \"x\"\n[when.jail]\nnested = true\n";
    for layer in [Layer::User, Layer::Profile, Layer::BuiltIn] {
        let error = parse(layer, "F", text).unwrap_err();
        let expected = "\
`[[when]]` has a meaning only in the site's files
 --> F:3:1
  |
3 | [[when]]
  | ^^^^^^^^
hint: write the sections without it";
        assert_eq!(said(&error), expected);
    }
    let world = World::new();
    write(&world.config(), text);
    assert!(world.load(|_| ()).is_err());
    write(&world.config(), "[projects.\"/x\"]\nwhen = []\n");
    assert!(world.load(|_| ()).is_err());
    write(&world.config(), "");
    write(&world.profile("p.toml"), text);
    assert!(world.load_with(Some("p"), None, None, &[]).is_err());
    for set in ["when.group=x", "when.jail.nested=true"] {
        let error = world.load_with(None, None, None, &[set]).unwrap_err();
        assert!(said(&error).starts_with("--set when."), "{}", said(&error));
    }
}

#[test]
fn values_under_conditions_have_their_place() {
    let text = "[jail]\nnested = false\n\n[[when]]\nuser = [\"a*\", \"b\"]\n[when.jail]\nkeyctl = false\n\
                [when.slurm.limits]\njobs = 3\n\n[[when]]\nhost = \"x\"\n[when.files]\nhide = []\n";
    let parsed = parse(Layer::SiteEnforced, FILE, text).unwrap();
    assert!(parsed.raw.sections.jail.is_some() && parsed.raw.sections.slurm.is_none());
    assert!(!parsed.raw.when);
    let [first, second] = parsed.when.as_slice() else {
        panic!("{:?}", parsed.when);
    };
    assert_eq!(&text[first.span.clone()], "[[when]]");
    let limits = first.sections.slurm.as_ref().unwrap().limits.as_ref();
    let jobs = limits.unwrap().jobs.as_ref().unwrap();
    assert_eq!(
        parsed.raw.source(jobs.span()).to_string(),
        format!("{FILE}:9")
    );
    assert!(second.sections.jail.is_none());
}

/// What the loader takes for a site's directory has to be root's, also in tests like this one: a
/// user's own directory, and one to which a link of the user's leads.
#[test]
fn a_site_of_the_users_own_is_refused() {
    let mut world = World::new();
    let site = world.locations.home.join("site");
    fs::create_dir(&site).unwrap();
    let link = world.locations.home.join("link");
    symlink("/etc", &link).unwrap();
    for (directory, file) in [(&site, true), (&site, false), (&link, false)] {
        if file {
            write(&site.join("enforced.toml"), "");
        } else {
            let _ = fs::remove_file(site.join("enforced.toml"));
        }
        world.locations.site = Site::in_directory(directory.clone());
        let error = said(&world.load(|_| ()).unwrap_err());
        assert!(error.contains("on the way to it,"), "{error}");
        assert!(
            error.contains("hint: ask your administrators: ch"),
            "{error}"
        );
    }
}
