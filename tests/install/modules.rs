//! The modulefile, loaded by real Lmod.

use std::collections::BTreeMap;
use std::fs;

use crate::world::{Done, TestPrefix, not_checked, version};

/// Says `gone` if no program of the prefix is in the search path. A node may have one of its own.
pub(crate) const GONE: &str =
    "case $(command -v agent-sandbox) in \"$PREFIX\"/*) echo still there ;; *) echo gone ;; esac";

/// Where Debian's Lmod has the shells' ways in.
pub(crate) const INIT: &str = "/usr/share/lmod/lmod/init";
/// What Lmod keeps for itself.
const BOOKKEEPING: [&str; 6] = [
    "_ModuleTable",
    "__LMOD_REF_COUNT_",
    "LOADEDMODULES",
    "_LMFILES_",
    "LMOD_",
    "_=",
];

pub(crate) fn has_lmod(what: &str) -> bool {
    let there = std::path::Path::new(INIT).join("bash").exists();
    if !there {
        not_checked(what, "Lmod is not installed");
    }
    there
}

/// A script for bash with Lmod and the modulefiles of the prefix.
pub(crate) fn module(place: &TestPrefix, script: &str) -> Done {
    let script =
        format!(". {INIT}/bash; module use $PREFIX/share/agent-sandbox/modulefiles\n{script}");
    place.shell(&["bash", "--noprofile", "--norc"], &script)
}

/// The environment that a script prints between two lines, less Lmod's own.
fn environments(out: &str) -> Vec<BTreeMap<String, String>> {
    out.split("== env\n")
        .skip(1)
        .map(|block| {
            let lines = block.lines().take_while(|line| *line != "== end");
            lines
                .filter(|line| !BOOKKEEPING.iter().any(|own| line.starts_with(own)))
                .filter_map(|line| line.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect()
        })
        .collect()
}

const ENV: &str = "echo '== env'; env | grep -v '^BASH_FUNC' | sort; echo '== end'";

#[test]
fn loading_adds_two_directories_and_unloading_takes_them_away() {
    if !has_lmod("the modulefile") {
        return;
    }
    let place = TestPrefix::installed();
    let prefix = place.prefix.display().to_string();
    for before in [None, Some("/opt/man"), Some(":/opt/man")] {
        let manpath = match before {
            None => "unset MANPATH".to_owned(),
            Some(value) => format!("export MANPATH={value}"),
        };
        let script = format!(
            "{manpath}; {ENV}; module load agent-sandbox || exit 1\n{ENV}\n\
             command -v agent-sandbox; agent-sandbox --version; man -w agent-sandbox; man -w ls || echo no ls\n\
             module unload agent-sandbox; {ENV}; {GONE}"
        );
        let done = module(&place, &script).ok();
        let [first, loaded, last] = environments(&done.out).try_into().unwrap();
        assert_eq!(first, last, "{done}");
        assert_eq!(first.get("MANPATH").map(String::as_str), before);
        let changed: Vec<&str> = loaded
            .iter()
            .filter(|(name, value)| first.get(*name) != Some(value))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(changed, ["MANPATH", "PATH"], "{done}");
        let path = &first["PATH"];
        assert_eq!(loaded["PATH"], format!("{prefix}/bin:{path}"));
        // An empty entry stands for the system's pages.
        let want = format!("{prefix}/share/man:{}", before.unwrap_or(":"));
        assert_eq!(loaded["MANPATH"], want);
        let out = &done.out;
        assert!(
            out.contains(&format!(
                "\n{prefix}/bin/agent-sandbox\nagent-sandbox {}\n",
                version()
            )),
            "{done}"
        );
        assert!(
            out.contains(&format!("\n{prefix}/share/man/man1/agent-sandbox.1\n")),
            "{done}"
        );
        assert!(out.ends_with("gone\n"), "{done}");
        // Whoever leaves the system's pages out on purpose does so still.
        assert_eq!(out.contains("no ls"), before == Some("/opt/man"), "{done}");
    }
}

#[test]
fn it_says_what_it_is() {
    if !has_lmod("module help, whatis and spider") {
        return;
    }
    let place = TestPrefix::installed();
    // Lmod talks on standard error.
    let ask = |words: &str| module(&place, &format!("module --redirect {words}")).ok();
    ask("help agent-sandbox")
        .says("in a jail that hides your credentials")
        .says(version());
    ask("whatis agent-sandbox").says("Description: runs AI coding agents");
    ask("spider agent-sandbox").says(version());
    ask("-t avail agent-sandbox").says(&format!("agent-sandbox/{}", version()));
}

#[test]
fn two_versions_are_never_loaded_at_once() {
    if !has_lmod("two versions of the module") {
        return;
    }
    let place = TestPrefix::installed();
    let directory = place
        .prefix
        .join("share/agent-sandbox/modulefiles/agent-sandbox");
    let own = fs::read_to_string(directory.join(format!("{}.lua", version()))).unwrap();
    let prefix = place.prefix.display().to_string();
    let other = own
        .replace(&prefix, "/opt/other")
        .replace(version(), "99.0");
    fs::write(directory.join("99.0.lua"), other).unwrap();
    let load = format!(
        "module load agent-sandbox/{}; module load agent-sandbox/99.0",
        version()
    );
    let shown = "; echo \"PATH=$PATH\"; module --redirect -t list";
    // As sites have it by default: the second takes the place of the first.
    let done = module(&place, &format!("{load}{shown}")).ok();
    assert!(done.out.contains("PATH=/opt/other/bin:"), "{done}");
    assert!(!done.out.contains(&format!("{prefix}/bin")), "{done}");
    // And where that is switched off, the second is refused.
    let done = module(
        &place,
        &format!("export LMOD_DISABLE_SAME_NAME_AUTOSWAP=yes; {load}{shown}"),
    );
    assert!(done.out.contains(&format!("PATH={prefix}/bin:")), "{done}");
    assert!(!done.out.contains("/opt/other/bin"), "{done}");
    assert!(done.err.contains("agent-sandbox"), "{done}");
}

#[test]
fn every_shell_can_load_it() {
    if !has_lmod("the modulefile in other shells") {
        return;
    }
    let place = TestPrefix::installed();
    let shells: [(&str, &[&str]); 4] = [
        ("bash", &["bash", "--noprofile", "--norc"]),
        ("sh", &["sh"]),
        ("zsh", &["zsh", "-f"]),
        ("fish", &["fish", "--no-config"]),
    ];
    for (init, words) in shells {
        let there = crate::world::has(words[0], &format!("the modulefile in {}", words[0]));
        if !there {
            continue;
        }
        let source = if init == "fish" { "source" } else { "." };
        let script = format!(
            "{source} {INIT}/{init}; module use $PREFIX/share/agent-sandbox/modulefiles\n\
             module load agent-sandbox; command -v agent-sandbox; agent-sandbox --version\n\
             module unload agent-sandbox; echo end"
        );
        let done = place.shell(words, &script);
        let want = format!(
            "{}/bin/agent-sandbox\nagent-sandbox {}\nend\n",
            place.prefix.display(),
            version()
        );
        assert_eq!(done.out, want, "{done}");
        assert_eq!(done.err, "", "{done}");
    }
}

#[test]
fn completions_come_and_go_with_it() {
    if !has_lmod("completions by the modulefile") {
        return;
    }
    let place = TestPrefix::installed();
    let script = format!(
        ". {INIT}/bash; module use $PREFIX/share/agent-sandbox/modulefiles\n\
         module load agent-sandbox; complete -p agent-sandbox; module unload agent-sandbox\n\
         complete -p agent-sandbox 2> /dev/null || echo none"
    );
    let done = place.shell(&["bash", "--noprofile", "--norc", "-i"], &script);
    assert!(
        done.out
            .contains("-F _agent_sandbox_front agent-sandbox\nnone\n"),
        "{done}"
    );
    if crate::world::has("zsh", "completions in zsh by the modulefile") {
        let script = format!(
            "autoload -U compinit; compinit -D -u; . {INIT}/zsh\n\
             module use $PREFIX/share/agent-sandbox/modulefiles; module load agent-sandbox\n\
             echo \"with ${{_comps[agent-sandbox]}}\"; module unload agent-sandbox\n\
             echo \"without ${{_comps[agent-sandbox]}}\"; echo \"$fpath\" | grep -c $PREFIX"
        );
        let done = place.shell(&["zsh", "-f", "-i"], &script);
        assert!(
            done.out.contains("with _agent-sandbox\nwithout \n0\n"),
            "{done}"
        );
    }
    if crate::world::has("fish", "completions in fish by the modulefile") {
        let script = format!(
            "source {INIT}/fish; module use $PREFIX/share/agent-sandbox/modulefiles\n\
             module load agent-sandbox; complete -C 'agent-sandbox explain --sl'\n\
             module unload agent-sandbox; complete -c agent-sandbox | count"
        );
        let done = place.shell(&["fish", "--no-config", "-i"], &script);
        assert!(done.out.contains("--slurm"), "{done}");
        assert!(done.out.trim_end().ends_with('0'), "{done}");
    }
}
