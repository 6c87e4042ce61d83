#![allow(clippy::disallowed_methods)]

use std::process::Command;

use super::*;

/// What git itself writes, with what users and extensions add.
const USERS: &str = "# mine\n[core]\n\trepositoryformatversion = 0\n\thooksPath = /opt/hooks ; kept\n[alias]\n\tst = \"!f() { \\\n\
                     git status; }; f\"\n[remote \"origin\"]\n\turl = git@github.com:samtools/samtools.git\n\
                     \tfetch = +refs/heads/*:refs/remotes/origin/*\n\n[branch \"main\"] ; where I work\n\
                     \tremote = origin\n\tmerge = refs/heads/main\n[remote \"disk\"]\n\turl = /scratch/ada/copy.git\n";

fn wanted(more: &str) -> Result<String, Refusal> {
    let new = format!("{USERS}{more}");
    rewrite(USERS.as_bytes(), new.as_bytes())
}

#[test]
fn what_git_notes_of_branches_and_remotes_is_written_and_the_users_text_stays() {
    let same = rewrite(USERS.as_bytes(), USERS.as_bytes());
    assert_eq!(same.as_deref(), Ok(USERS));
    for more in [
        "[branch \"topic\"]\n\tremote = origin\n\tmerge = refs/heads/topic\n",
        "[branch \"topic\"]\n\tremote = .\n\tmerge = refs/heads/main\n",
        "[branch \"a.b/c\"]\n\tdescription = \"First.\\n\\nSecond; \\\"third\\\"\\n\"\n",
        "[branch \"topic\"]\n\tremote = https://github.com/ada/samtools.git\n",
        "[remote \"up\"]\n\turl = https://github.com/ada/x\n\tfetch = +refs/heads/*:refs/remotes/up/*\n",
        "[remote \"up\"]\n\turl = ada@host.example:/srv/x.git\n",
        "[remote \"up\"]\n\turl = ssh://git@host.example:2222/~ada/x.git\n\ttagOpt = --no-tags\n",
        "[remote]\n\tpushDefault = disk\n",
        "[user]\n\tname = \"Ada Lovelace\"\n\temail = ada@example.org\n",
        // The user's own values, under another name.
        "[remote \"copy\"]\n\turl = /scratch/ada/copy.git\n",
    ] {
        assert_eq!(wanted(more), Ok(format!("{USERS}{more}")), "{more}");
    }
    // Written anew, as git would; what is said between the entries is not the user's.
    let odd = "[BRANCH   \"x\"] MERGE=refs/heads/\"x\"   # evil\n; evil\n";
    let plain = "[branch \"x\"] MERGE = refs/heads/x\n\n";
    assert_eq!(wanted(odd), Ok(format!("{USERS}{plain}")));
    // What is free may go, but for a remote: its name would be a path then.
    let more = format!("{USERS}[branch \"x\"]\n\tdescription = y\n");
    assert_eq!(
        rewrite(more.as_bytes(), USERS.as_bytes()).as_deref(),
        Ok(USERS)
    );
    let (first, _) = USERS.split_once("[remote \"disk\"]").unwrap();
    let gone = rewrite(USERS.as_bytes(), first.as_bytes());
    assert_eq!(gone, Err(Refusal::Key("remote.disk.url".to_owned())));
}

#[test]
fn what_runs_programs_or_leads_elsewhere_is_not_written() {
    for (more, why) in [
        ("[core]\n\tfsmonitor = ./evil\n", "core.fsmonitor"),
        ("[CORE] FSMonitor=./evil", "core.fsmonitor"),
        ("[core]\n\tsshCommand = evil\n", "core.sshcommand"),
        ("[core]\n\tbare = true\n", "core.bare"),
        (
            "[extensions]\n\tworktreeConfig = true\n",
            "extensions.worktreeconfig",
        ),
        ("[alias]\n\tx = !evil\n", "alias.x"),
        ("[filter \"x\"]\n\tclean = evil\n", "filter.x.clean"),
        ("[filter.x]\n\tclean = evil\n", "filter.x.clean"),
        ("[include]\n\tpath = evil\n", "include.path"),
        (
            "[includeIf \"gitdir:/\"]\n\tpath = evil\n",
            "includeif.gitdir:/.path",
        ),
        ("[credential]\n\thelper = !evil\n", "credential.helper"),
        (
            "[url \"ext::sh -c evil %s\"]\n\tinsteadOf = git@\n",
            "url.ext::sh -c evil %s.insteadof",
        ),
        ("[remote \"x\"]\n\tvcs = evil\n", "remote.x.vcs"),
        (
            "[remote \"x\"]\n\tuploadpack = evil\n",
            "remote.x.uploadpack",
        ),
        (
            "[remote \"x\"]\n\treceivepack = evil\n",
            "remote.x.receivepack",
        ),
        ("[remote \"x\"]\n\tproxy = evil\n", "remote.x.proxy"),
        (
            "[branch \"x\"]\n\tmergeOptions = -s evil\n",
            "branch.x.mergeoptions",
        ),
        (
            "[submodule \"x\"]\n\tupdate = !evil\n",
            "submodule.x.update",
        ),
        ("[diff \"x\"]\n\ttextconv = evil\n", "diff.x.textconv"),
        ("[branch]\n\tremote = origin\n", "branch.remote"),
        ("[core \"x\"]\n\tfsmonitor = evil\n", "core.x.fsmonitor"),
    ] {
        assert_eq!(wanted(more), Err(Refusal::Key(why.into())), "{more}");
    }
    for value in [
        "ext::sh -c evil",
        "\"ext:\":sh",
        "fd::3",
        "-oProxyCommand=evil:x",
        "ssh://-oProxyCommand=evil/x",
        "ssh://git@-oProxyCommand=evil/x",
        "git@host:-x",
        "file:///tmp/evil.git",
        "file:/tmp/evil.git//x::y",
        "/tmp/evil.git",
        "evil.git",
        "./evil:x",
        "https://",
        "\"https://example.org/a b\"",
        "\"https://example.org/\\n[core]\"",
        "\"\"",
    ] {
        for (section, key) in [
            ("remote \"x\"", "url"),
            ("remote \"origin\"", "pushurl"),
            ("branch \"x\"", "remote"),
            ("branch \"main\"", "pushRemote"),
            ("remote", "pushDefault"),
            ("submodule \"x\"", "url"),
        ] {
            let more = format!("[{section}]\n\t{key} = {value}\n");
            let refused = wanted(&more);
            assert!(
                matches!(refused, Err(Refusal::Value(_))),
                "{more}: {refused:?}"
            );
        }
    }
    for more in [
        "[remote \"x\"]\n\turl\n",
        "[remote \"-x\"]\n\turl = https://example.org/x\n",
        "[remote \"\"]\n\turl = https://example.org/x\n",
        // Where the name begins with a slash, git sees a path and no remote.
        "[remote \"/tmp/e.git\"]\n\turl = https://example.org/x\n[branch \"x\"]\n\tremote = /tmp/e.git\n",
        "[remote \"x\"]\n\tfetch = +refs/*:refs/*\n",
        "[remote \"x\"]\n\tfetch = +refs/heads/*:refs/heads/*\n",
        "[remote \"x\"]\n\ttagOpt = --upload-pack=evil\n",
        "[branch \"x\"]\n\tmerge = --evil\n",
        "[branch \"x\"]\n\tremote = nobody\n",
        "[user]\n\tname = \"A\\nB\"\n",
    ] {
        let refused = wanted(more);
        assert!(
            matches!(refused, Err(Refusal::Value(_))),
            "{more}: {refused:?}"
        );
    }
}

#[test]
fn what_the_user_wrote_of_other_keys_stays_as_and_where_it_is() {
    let hooks = "\thooksPath = /opt/hooks ; kept\n";
    for (from, to) in [
        (hooks, ""),
        (hooks, "\thooksPath = /opt/hooks\n"),
        (hooks, "\thooksPath = evil\n"),
        (hooks, "\thooksPath = /opt/hooks ; kept\n\thooksPath =\n"),
        ("[alias]\n", ""),
        ("!f()", "!g()"),
        ("[core]\n", "[core \"x\"]\n"),
    ] {
        let new = USERS.replacen(from, to, 1);
        let refused = rewrite(USERS.as_bytes(), new.as_bytes());
        assert!(
            matches!(refused, Err(Refusal::Key(_))),
            "{new}: {refused:?}"
        );
    }
    let (core, rest) = USERS.split_once("[alias]").unwrap();
    let moved = format!("[alias]{rest}{core}");
    assert!(matches!(
        rewrite(USERS.as_bytes(), moved.as_bytes()),
        Err(Refusal::Key(_))
    ));
    // A helper of the user's own gets no other remote.
    let old = "[remote \"x\"]\n\turl = ext::mine\n";
    let new = format!("{old}[remote \"origin\"]\n\turl = ext::mine\n");
    let refused = rewrite(old.as_bytes(), new.as_bytes());
    assert_eq!(refused, Err(Refusal::Value("remote.origin.url".into())));
    assert_eq!(rewrite(old.as_bytes(), old.as_bytes()).as_deref(), Ok(old));
}

#[test]
fn what_is_no_plain_configuration_is_not_written() {
    let mut texts: Vec<Vec<u8>> = [
        "\u{feff}[core]\n",
        "x = 1\n",
        "[core]\r\n\tx = 1\n",
        "[core]\n\tx = a\0b\n",
        "[core\n]",
        "[core \"x]\n",
        "[core \"x\"\n",
        "[core \"x\" ]\n",
        "[co_re]\n",
        "[branch \"a\\\"]\n[core]\"]\n[core]\n\tpager = evil\n",
        "[]\n",
        "[core]\n\tx = \"a\n\"\n",
        "[core]\n\tx = \\q\n",
        "[core]\n\tx = a\\",
        "[core]\n\tx y\n",
        "[core]\n\t1x = y\n",
        "[core]\n\t\u{e9} = y\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    texts.push(b"[user]\n\tname = \xff\n".to_vec());
    for text in texts {
        assert_eq!(entries(&text), None, "{text:?}");
        assert_eq!(rewrite(b"", &text), Err(Refusal::Unusual), "{text:?}");
        assert_eq!(rewrite(&text, b""), Err(Refusal::Unusual), "{text:?}");
    }
}

/// What `git config --list` says of a text; `None` if it says that it is none.
fn by_git(directory: &std::path::Path, text: &str) -> Option<Vec<Entry>> {
    let file = directory.join("config");
    std::fs::write(&file, text).unwrap();
    let mut git = Command::new("git");
    git.args(["config", "--no-includes", "--list", "-z", "--file"])
        .arg(&file);
    let output = git.current_dir(directory).output().expect("git");
    let list = String::from_utf8(output.stdout).unwrap();
    let entry = |one: &str| match one.split_once('\n') {
        Some((name, value)) => Entry {
            name: name.into(),
            value: Some(value.into()),
        },
        None => Entry {
            name: one.into(),
            value: None,
        },
    };
    let entries = list.split_terminator('\0').map(entry).collect();
    output.status.success().then_some(entries)
}

/// Texts of pieces that matter to git, by chance.
#[test]
fn git_reads_every_text_as_it_is_read_here() {
    const PIECES: &[&str] = &[
        "[branch \"x\"]",
        "[remote \"a.b\"]",
        "[core]",
        "[Remote.X]",
        "[branch \"\\\"\\\\\"]",
        "[user]",
        "[a.b \"C\"]",
        "[",
        "]",
        "\"",
        "\\",
        "\\\n",
        "\\n",
        "\\\"",
        "\n",
        "\n",
        "\n\t",
        " ",
        "\t",
        "=",
        " = ",
        "#",
        ";",
        " # c",
        "merge",
        "url = https://x.org/y",
        "fetch = refs/heads/x",
        "remote = .",
        "name = A B",
        "Key-1",
        "fsmonitor = evil",
        "value",
        "\u{e9}",
        "'",
        "- ",
        "a=\"b ; c\"",
        "pager=\"x",
        "!",
        "email",
        "::",
        "x.y",
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let (mut read, mut written) = (0, 0);
    let mut old = USERS.to_owned();
    for _ in 0..2000 {
        let count = 2 + next(9);
        let mut new = match next(3) {
            0 => String::new(),
            1 => "[branch \"x\"]\n".to_owned(),
            _ => USERS.to_owned(),
        };
        for _ in 0..count {
            new.push_str(PIECES[next(PIECES.len())]);
        }
        let Some(here) = entries(new.as_bytes()) else {
            continue;
        };
        read += 1;
        assert_eq!(
            by_git(directory.path(), &new).as_ref(),
            Some(&here),
            "{new:?}"
        );
        if let Ok(text) = rewrite(old.as_bytes(), new.as_bytes()) {
            written += 1;
            assert_eq!(
                by_git(directory.path(), &text),
                Some(here),
                "{new:?} as {text:?}"
            );
            let held = |text: &str| {
                let all = by_git(directory.path(), text).unwrap();
                all.into_iter()
                    .filter(|one| !one.is_free())
                    .collect::<Vec<_>>()
            };
            assert_eq!(held(&text), held(&old), "{new:?}");
        }
        old = if next(4) == 0 { USERS.to_owned() } else { new };
    }
    assert!(read > 300 && written > 30, "{read} read, {written} written");
}
