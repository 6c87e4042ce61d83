//! The module of wrapper names: `claude` becomes `agent-sandbox claude`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use crate::modules::{GONE, has_lmod, module};
use crate::world::{Done, PATH, TestPrefix, code, wait};

/// Says whether it is in a jail, which PATH it has, and how often it is called by itself.
const AGENT: &str = "#!/bin/sh\n\
    echo \"jail: ${AGENT_SANDBOX:-none} $*\"\n\
    case $AGENT_SANDBOX:$PATH in 1:*wrappers*) echo 'wrappers inside' ;; esac\n\
    if [ \"$1\" = again ]; then shift; exec sh -c 'claude \"$@\"' sh \"$@\"; fi\n";

#[test]
fn a_wrapped_name_starts_in_a_jail_and_once() {
    if !has_lmod("wrapper names by modulefile") {
        return;
    }
    let place = TestPrefix::installed();
    place.program("home/.local/bin/claude", AGENT);
    let script = "cd $HOME/project; export PATH=$HOME/.local/bin:$PATH; unset MANPATH\n\
        module load agent-sandbox-wrappers || exit 1\n\
        claude again again 'a  b' 2>/dev/null; echo \"-- $?\"\n\
        $HOME/.local/bin/claude outside; echo \"-- $?\"\n\
        aider 2>/dev/null; echo \"-- $?\"\n\
        module unload agent-sandbox-wrappers; claude plain; command -v claude;";
    let done = module(&place, &format!("{script} {GONE}")).ok();
    let want = format!(
        "jail: 1 again again a  b\njail: 1 again a  b\njail: 1 a  b\n-- 0\n\
         jail: none outside\n-- 0\n-- 127\n\
         jail: none plain\n{}/.local/bin/claude\ngone\n",
        place.home.display()
    );
    assert_eq!(done.out, want, "{done}");
}

#[test]
fn every_wrapper_is_installed_and_removed() {
    let place = TestPrefix::installed();
    let names = fs::read_to_string(crate::world::root().join("lmod/wrappers/names")).unwrap();
    let wrappers = place.prefix.join("libexec/agent-sandbox/wrappers");
    // Every agent that has a profile. tmux is none: its name is for a tmux outside.
    for entry in fs::read_dir(crate::world::root().join("profiles/agents")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let profile: toml::Table = text.parse().unwrap();
        let commands = profile["profile"]
            .get("commands")
            .and_then(toml::Value::as_array);
        for command in commands
            .into_iter()
            .flatten()
            .filter_map(toml::Value::as_str)
        {
            let known = command == "tmux" || names.lines().any(|name| name == command);
            assert!(known, "no wrapper for {command}");
        }
    }
    for name in names.lines() {
        let text = fs::read_to_string(wrappers.join(name)).unwrap();
        let launcher = format!("'{}/bin/agent-sandbox'", place.prefix.display());
        assert!(text.contains(&launcher), "{name}: {text}");
    }
    place.make("uninstall", &[]).ok();
    assert!(!wrappers.exists());
}

/// `claude` as a shell finds it: how it ended, and what it said. It must end.
#[track_caller]
fn typed(place: &TestPrefix, path: &str, directory: &Path, inside: bool) -> (i32, String) {
    let said = place.path.join("said");
    let mut shell = place.command("/bin/sh");
    shell
        .args(["-c", "claude word"])
        .current_dir(directory)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&said).unwrap())
        .stderr(fs::File::options().append(true).open(&said).unwrap());
    if inside {
        shell.env("AGENT_SANDBOX", "1");
    }
    let status = wait(&mut shell.spawn().unwrap(), path);
    (code(status), fs::read_to_string(said).unwrap())
}

/// Where the wrappers are, and where the real agent is.
fn directories(place: &TestPrefix) -> (String, String) {
    place.program("home/.local/bin/claude", AGENT);
    (
        format!("{}/libexec/agent-sandbox/wrappers", place.prefix.display()),
        format!("{}/.local/bin", place.home.display()),
    )
}

#[test]
fn a_wrapper_starts_nothing_of_the_projects() {
    let place = TestPrefix::installed();
    let (wrappers, real) = directories(&place);
    let project = place.home.join("project");
    // Every program that a script could want. In a jail the mark is another home's.
    let mark = place.home.join("ran-outside");
    let hostile = format!("#!/bin/sh\necho hostile > {}\n", mark.display());
    for name in [
        "dirname",
        "basename",
        "readlink",
        "sed",
        "env",
        "agent-sandbox",
    ] {
        place.program(&format!("home/project/{name}"), &hostile);
    }
    for path in [
        format!("{wrappers}::{real}:{PATH}"),
        format!("{wrappers}:.:{real}:{PATH}"),
        format!(":{wrappers}:{real}:{PATH}"),
        format!("{wrappers}:{}:{real}:{PATH}:", project.display()),
    ] {
        let (code, said) = typed(&place, &path, &project, false);
        assert!(
            code == 0 && said.contains("jail: 1 word\n"),
            "{path}: {said}"
        );
        assert!(!mark.exists(), "{path}: the project's program ran outside");
    }
}

#[test]
fn a_wrapper_never_finds_itself() {
    let place = TestPrefix::installed();
    let (wrappers, real) = directories(&place);
    let project = place.home.join("project");
    let other = place.path.join("other name");
    symlink(&wrappers, &other).unwrap();
    let other = other.display().to_string();
    let nothing = place.path.join("nothing").display().to_string();
    // No dirname and no other program of the system's is in these.
    let with_it = [
        format!("{wrappers}:{real}"),
        format!("{wrappers}/:{other}:{wrappers}/../wrappers:{real}"),
    ];
    for path in &with_it {
        let (code, said) = typed(&place, path, &project, true);
        assert_eq!((code, said.as_str()), (0, "jail: 1 word\n"), "{path}");
        let (code, said) = typed(&place, path, &project, false);
        assert!(
            code == 0 && said.contains("jail: 1 word\n"),
            "{path}: {said}"
        );
    }
    for (path, directory, want) in [
        (format!("{wrappers}:{nothing}"), project.as_path(), 127),
        (format!("{other}:{wrappers}/:{nothing}"), &project, 127),
        (format!(":{nothing}"), Path::new(&wrappers), 127),
        (wrappers.clone(), &project, 125),
    ] {
        let (code, said) = typed(&place, &path, directory, true);
        assert_eq!(code, want, "{path}: {said}");
        assert!(said.contains("claude: "), "{path}: {said}");
    }
    // By its full name, as an editor's settings have it, it needs no place in PATH.
    let mut full = place.command(Path::new(&wrappers).join("claude"));
    full.arg("word")
        .current_dir(&project)
        .env("PATH", format!("{real}:{PATH}"));
    Done::of(full).ok().says("jail: 1 word\n");
}
