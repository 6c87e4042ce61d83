//! `agent-sandbox explain` asked from inside: it tells what is visible, and nothing of what is hidden.

use std::path::{Path, PathBuf};

use crate::backend::is_landlock;
use crate::op;
use crate::operations::text;
use crate::world::{Output, World, launcher};

/// In the name of everything that is hidden, and of the rules that hide it.
const MARK: &str = "mArKeD";

/// What is ours inside, as a shell finds it.
const OURS: &str =
    "ours=/run/agent-sandbox; [ -e $ours/explain ] || ours=$(dirname \"$AGENT_SANDBOX_EXPLAIN\"); ";

fn inside(world: &World, script: &str) -> Output {
    world
        .jail([])
        .run(&["bash", "-c", &format!("{OURS}{script}")])
}

/// A world with marked names, hidden in every way, and a neighbour of each that does not exist.
fn marked() -> (World, Vec<(PathBuf, PathBuf)>) {
    let world = World::new();
    let mut pairs = Vec::new();
    for below in ["", "sub/", "sub/deep/"] {
        let hidden = world.project(&format!("{below}{MARK}.key"));
        world.secret(&hidden);
        pairs.push((hidden, world.project(&format!("{below}misSed.key"))));
    }
    let directory = world.project(&format!("{MARK}-dir"));
    world.secret(&directory.join("file"));
    pairs.push((directory.join("file"), world.project("misSed-dir/file")));
    pairs.push((directory, world.project("misSed-dir")));
    for name in [format!("notes/{MARK}"), format!(".{MARK}"), MARK.to_owned()] {
        world.secret(&world.home(&name));
        pairs.push((world.home(&name), world.home(&name.replace(MARK, "misSed"))));
    }
    for name in [
        ".ssh/id_rsa",
        ".aws/credentials",
        ".netrc",
        ".config/gh/hosts.yml",
    ] {
        let absent = name.replacen(|c: char| c.is_ascii_alphabetic(), "Q", 1);
        pairs.push((world.home(name), world.home(&absent)));
    }
    let link = world.project("to-hidden");
    std::os::unix::fs::symlink(world.home(".ssh/id_rsa"), &link).expect("a link");
    let dangling = world.project("to-missed");
    std::os::unix::fs::symlink(world.home("misSed-target"), &dangling).expect("a link");
    pairs.push((link, dangling));
    let policy = format!(
        "[home]\nread = [\"~/notes\", \"~/{MARK}-absent\"]\nseed = [\"~/{MARK}-seed\"]\n\
         [files]\nhide = [\"{project}/{MARK}*\", \"{project}/sub/{MARK}*\", \"{project}/sub/deep/{MARK}*\", \
         \"~/notes/{MARK}\", \"~/.{MARK}\", \"/nowhere/{MARK}\"]\n\
         [env]\nhide = [\"{MARK}*\"]\nhide_values = [\"{MARK}*\"]\n[devices]\ndeny = [\"/dev/{MARK}\"]\n",
        project = text(&world.project("")),
    );
    world.put(&world.home(".config/agent-sandbox/config.toml"), &policy);
    (world, pairs)
}

#[test]
fn what_is_hidden_and_what_does_not_exist_get_the_same_answer() {
    let (world, pairs) = marked();
    for (hidden, absent) in pairs {
        let ask = |path: &Path, json: &str| {
            let words = ["agent-sandbox", "explain", &text(path), json];
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            let output = world.jail([]).run(&words);
            assert_eq!(output.code(), 0, "{output:?}");
            output.stdout.replace(&text(path), "PATH")
        };
        for json in ["", "--json"] {
            let (one, other) = (ask(&hidden, json), ask(&absent, json));
            assert_eq!(one, other, "{} and {}", hidden.display(), absent.display());
            let said = match json {
                "" => "PATH: not visible here: it does not exist, or the policy hides it\n",
                _ => "\"verdict\": \"not-visible\"",
            };
            assert!(one.contains(said), "{one}");
        }
    }
    let run = world
        .jail([])
        .env(&format!("{MARK}_TOKEN"), "1")
        .env("BY_VALUE", format!("{MARK}-of-some-length"));
    let ask = "for name in mArKeD_TOKEN BY_VALUE NO_SUCH; do agent-sandbox explain --env $name | sed s/$name/NAME/g; done";
    let output = run.run(&["bash", "-c", ask]);
    let lines: Vec<&str> = output.stdout.lines().collect();
    let [.., one, two] = lines[..] else {
        panic!("{output:?}")
    };
    assert_eq!(lines, [one, two, one, two, one, two], "{output:?}");
    assert!(one.starts_with("NAME: not visible here"), "{one}");
}

/// Nothing of ours that can be read inside holds a hidden name: not what `explain` answers from, not the
/// programs' surroundings, not the environment. (`/proc/self/mountinfo` is the kernel's: there the
/// covers of hidden files stand, by their paths.)
#[test]
fn nothing_of_ours_holds_a_hidden_name() {
    let (world, _) = marked();
    let look = format!(
        "find $ours; find $ours -type f -size -1024k ! -name init ! -name shim ! -name chaperon -exec cat -v {{}} +; \
         env; tr '\\0' '\\n' < /proc/self/environ; tr '\\0' '\\n' < /proc/self/cmdline; \
         agent-sandbox explain --slurm ''; agent-sandbox explain --slurm squeue; \
         agent-sandbox policy 2>&1; echo end # {}",
        "no name of a hidden file stands in this script"
    );
    let run = world
        .jail([])
        .env(&format!("{MARK}_TOKEN"), "1")
        .env("BY_VALUE", format!("{MARK}-of-some-length"));
    let output = run.run(&["bash", "-c", &format!("{OURS}{look}")]);
    assert!(output.stdout.contains("/explain\n"), "{output:?}");
    // It looked where the answers are.
    assert!(
        output.stdout.contains("the project directory"),
        "{output:?}"
    );
    assert!(output.stdout.ends_with("end\n"), "{output:?}");
    for word in [
        MARK,
        "BY_VALUE",
        "files.hide",
        "env.hide",
        "devices.deny",
        "id_rsa",
    ] {
        assert!(
            !output.stdout.contains(word),
            "{word} in\n{}",
            output.stdout
        );
    }
}

/// What it says of visible paths is what the jail does.
#[test]
fn it_tells_the_truth_about_what_is_visible() {
    let (world, _) = marked();
    let paths = [
        world.project("README"),
        world.project(""),
        world.home("notes/today.txt"),
        "/usr/bin/env".into(),
        "/etc/hostname".into(),
    ];
    for path in paths {
        let path = text(&path);
        let test = format!(
            "agent-sandbox explain {path} | head -n 1; if [ -w {path} ] && ({{ [ -d {path} ] || : >> {path}; }} 2> /dev/null); then \
             echo writable; elif cat {path} > /dev/null 2>&1 || ls {path} > /dev/null 2>&1; then echo readable; else echo none; fi"
        );
        let output = inside(&world, &test);
        let (said, is) = output.stdout.trim().split_once('\n').expect("two lines");
        let expected = match is {
            "writable" => "writable inside",
            "readable" => "readable inside, not writable",
            _ => "not visible here: it does not exist, or the policy hides it",
        };
        assert_eq!(said, format!("{path}: {expected}"), "{output:?}");
        assert_ne!(is, "none", "{output:?}");
    }
    let output = inside(
        &world,
        "agent-sandbox explain --env HOME; agent-sandbox explain --host @x",
    );
    assert!(
        output.stdout.starts_with("HOME: passes into the jail\n"),
        "{output:?}"
    );
    assert!(output.stdout.contains("@x: can"), "{output:?}");
    // What the agent sets or makes itself is told as such.
    let output = inside(
        &world,
        "OWN=1 agent-sandbox explain --env OWN; touch made; agent-sandbox explain made",
    );
    assert!(
        output.stdout.contains("rule: it was set inside"),
        "{output:?}"
    );
    assert!(
        output.stdout.contains("/made: writable inside"),
        "{output:?}"
    );
}

/// Who misleads it reads another text, and no more than it can read anyway.
#[test]
fn misled_it_reveals_nothing() {
    let (world, pairs) = marked();
    let (hidden, _) = &pairs[0];
    let hidden = text(hidden);
    let own = text(&launcher());
    let lies = [
        format!("env -u AGENT_SANDBOX -u AGENT_SANDBOX_EXPLAIN agent-sandbox explain {hidden}"),
        format!("env -i HOME=$HOME {own} explain {hidden}"),
        format!("env -i HOME=$HOME XDG_CONFIG_HOME=$PWD {own} explain {hidden}"),
        format!(
            "head -c 4096 /dev/zero > forged; AGENT_SANDBOX_EXPLAIN=$PWD/forged {own} explain {hidden}"
        ),
        format!("mkfifo fifo; AGENT_SANDBOX_EXPLAIN=$PWD/fifo timeout 10 {own} explain {hidden}"),
        format!("AGENT_SANDBOX_EXPLAIN={hidden} {own} explain {hidden}"),
        format!("env -i HOME=$HOME {own} policy"),
        format!("env -i HOME=$HOME {own} profile list"),
        format!("env -i HOME=$HOME {own} -- true"),
    ];
    for lie in lies {
        // Its own question is no news.
        let output = inside(
            &world,
            &format!("{{ {lie}; }} 2>&1 | sed 's#{hidden}#PATH#g'; true"),
        );
        assert_eq!(output.code(), 0, "{lie}: {output:?}");
        assert!(!output.stdout.contains(MARK), "{lie}: {output:?}");
        assert!(!output.stdout.contains(&world.marker), "{lie}: {output:?}");
    }
}

#[test]
fn what_it_answers_from_cannot_be_changed() {
    let (world, _) = marked();
    let find = inside(&world, "echo $ours/explain");
    assert!(find.stdout.ends_with("/explain\n"), "{find:?}");
    let change = "f=$ours/explain; { : >> $f; } 2>&1; { : > $f; } 2>&1; rm -f $f 2>&1; mv $f $f.x 2>&1; \
                  ln -sf /tmp/x $ours/bin/agent-sandbox 2>&1; cmp $f <(cat $f) && agent-sandbox explain README";
    let output = inside(&world, change);
    assert!(
        output.stdout.contains("README: writable inside"),
        "{output:?}"
    );
    if !is_landlock() {
        let place = "/run/agent-sandbox/explain";
        let operations = [
            op!("append", place, "x"),
            op!("truncate", place),
            op!("unlink", place),
            op!("rename", place, "/run/agent-sandbox/other"),
        ];
        let answers = world.jail([]).operations(&operations);
        for answer in answers {
            let refused = ["EROFS", "EBUSY", "EACCES"].contains(&answer.as_str());
            assert!(refused, "{answer}");
        }
    }
}

#[test]
fn other_subcommands_say_what_works() {
    let world = World::new();
    for (words, part) in [
        (
            "policy",
            "the policy, its profiles and the records of sessions are outside",
        ),
        ("sessions", "the records of sessions are outside"),
        ("log", "the records of sessions are outside"),
        ("profile list", "its profiles"),
        ("-- true", "this is already the inside of a jail"),
        ("--dry-run true", "this is already the inside of a jail"),
        (
            "--home read explain /usr",
            "of the options, --json alone has a meaning",
        ),
        ("explain --host 'a b'", "names no host"),
    ] {
        let output = inside(&world, &format!("agent-sandbox {words}"));
        assert_eq!(output.code(), 125, "{words}: {output:?}");
        assert!(output.stderr.contains(part), "{words}: {output:?}");
        assert!(output.stdout.is_empty(), "{words}: {output:?}");
    }
    let output = inside(
        &world,
        "agent-sandbox --version && agent-sandbox explain --help | head -n 1",
    );
    assert_eq!(output.code(), 0, "{output:?}");
}
