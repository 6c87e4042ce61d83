//! `agent-sandbox profile init`: a new profile from a run that is watched.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use agent_sandbox::seccomp::watched;
use agent_sandbox::sys::privileges;
use agent_sandbox_support::terminal::Terminal;

use crate::world::{CANARY, Output, World, has, not_checked};

/// Writes its state, reads what is none of its business, and asks for more.
const AGENT: &str = r#"#!/bin/sh
mkdir -p ~/.fakeagent ~/.config/fake ~/.cache/fake ~/results
echo run >> ~/.fakeagent/state
cat ~/.fakeagent/settings
echo x > ~/.config/fake/settings
echo x > ~/.cache/fake/x
echo x > ~/results/x
echo x > ~/.bashrc
echo x > ~/.fake.tmp && mv ~/.fake.tmp ~/.fake.json
cat ~/.ssh/id_rsa ~/.fakerc ~/.api_token
wc -l < ~/.fakeagent/state
"#;

fn world() -> World {
    let world = World::new();
    world.program("home/bin/fakeagent", AGENT);
    world.write("home/.fakerc", "x\n");
    world.write("home/.api_token", CANARY);
    world.write("home/.bashrc", "x\n");
    world
}

fn file(world: &World, name: &str) -> PathBuf {
    let profiles = world.home.join(".config/agent-sandbox/profiles");
    profiles.join(format!("{name}.toml"))
}

/// Watches a command; `before` are options.
fn init(world: &World, before: &[&str], name: &str, command: &[&str]) -> Output {
    let words = [before, &["profile", "init", name, "--"], command].concat();
    let path = format!("{}/bin:/usr/local/bin:/usr/bin:/bin", world.home.display());
    world.call(words).variable("PATH", path).run()
}

fn read(world: &World, name: &str) -> (String, toml::Table) {
    let text = fs::read_to_string(file(world, name)).unwrap();
    let table = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    (text, table)
}

/// A list of the file; empty if it is not there.
fn list(table: &toml::Table, keys: &[&str]) -> Vec<String> {
    let mut value = toml::Value::Table(table.clone());
    for key in keys {
        match value.get(key) {
            Some(inner) => value = inner.clone(),
            None => return Vec::new(),
        }
    }
    let all = value.as_array().unwrap().iter();
    all.map(|one| one.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_run_becomes_a_profile() {
    let world = world();
    let output = init(&world, &[], "fake", &["fakeagent", "it's", "a\n\"word\""]);
    let said = "\
agent-sandbox: watched for a new profile: the home is private and empty, nothing written there stays
agent-sandbox: jailed in [PLACE]/home/project (writable), network open (--set network.mode=filtered), session [..]
...
agent-sandbox: wrote ~/.config/agent-sandbox/profiles/fake.toml (the run ended with exit code 0)
agent-sandbox: seen: 3 state, 1 read, 1 hidden, 0 host entries; 0 left out of the file
agent-sandbox: read it, change it, then: agent-sandbox fakeagent
";
    let output = output.expect(0, "1\n", said);
    let (text, table) = read(&world, "fake");
    assert_eq!(list(&table, &["profile", "commands"]), ["fakeagent"]);
    let state = |key| list(&table, &["profile", "state", key]);
    assert_eq!(state("directories"), ["~/.config/fake", "~/.fakeagent"]);
    assert_eq!(state("files"), ["~/.fake.json"]);
    assert_eq!(list(&table, &["home", "read"]), ["~/.fakerc"]);
    for line in [
        "# command:   \"fakeagent\" \"it's\" \"a\\u000A\\\"word\\\"\"\n",
        "# observer:  its system calls, by seccomp user notification",
        "#   \"~/.ssh/id_rsa\"  # opened; files.hide has ~/.ssh\n",
        "#   \"~/.bashrc\"  # written; home.protect has ~/.bashrc\n",
        "#   \"~/.cache/fake\"  # written",
        "#   \"~/results\"  # without a dot",
        "#   \"~/.api_token\"  # opened; by its name it may be a secret\n",
        "were gone at the end: 1\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    for key in ["files", "slurm", "network", "jail"] {
        assert!(!table.contains_key(key), "{key}\n{text}");
    }
    assert!(!text.contains(CANARY) && !output.err().contains(CANARY));
    let mode = fs::metadata(file(&world, "fake")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    // Nothing of the run stays, neither in the home nor beside the file.
    for gone in [
        ".fakeagent",
        ".config/fake",
        ".fake.json",
        "results",
        ".cache/fake",
    ] {
        assert!(!world.home.join(gone).exists(), "{gone}");
    }
    let profiles = fs::read_dir(file(&world, "fake").parent().unwrap()).unwrap();
    assert_eq!(profiles.count(), 1);
    assert_eq!(fs::read(world.home.join(".bashrc")).unwrap(), b"x\n");
}

#[test]
fn the_new_profile_is_chosen_and_works() {
    let world = world();
    let output = init(&world, &["-q"], "fake", &["fakeagent"]);
    assert_eq!((output.code, output.out().as_str()), (0, "1\n"), "{output}");
    assert!(!output.err().contains("agent-sandbox"), "{output}");
    let path = format!("{}/bin:/usr/bin:/bin", world.home.display());
    let call = |words: &[&str]| world.quiet(words).variable("PATH", path.as_str()).run();
    let shown = call(&["profile", "list"]);
    assert!(
        shown.out().contains("fake, from an observed run"),
        "{shown}"
    );
    let used = call(&["fakeagent"]);
    assert_eq!(used.code, 0, "{used}");
    // What was in the home of the watched run is not in this one.
    assert_eq!(used.out(), "x\n1\n", "{used}");
    assert!(!used.err().contains("error:"), "{used}");
}

#[test]
fn what_the_users_policy_gives_is_not_given_to_a_watched_run() {
    let world = world();
    world.write("home/mine/notes", CANARY);
    world.write("home/.gitignore", CANARY);
    world.policy(
        "[home]\nmode = \"write\"\nwrite = [\"~/mine\"]\n[files]\nwrite = [\"~/mine\"]\nunhide = [\"~/.ssh\"]\n\
         hide = [\"~/.gitignore\"]\n[env]\npass = [\"GITHUB_TOKEN\"]\nset = { GIVEN = \"1\" }\n[slurm]\nmode = \"auto\"\n",
    );
    world.write(
        "home/.config/agent-sandbox/profiles/other.toml",
        "[profile]\ncommands = [\"sh\"]\n[home]\nwrite = [\"~/mine\"]\n",
    );
    let script = "cat ~/mine/notes ~/.ssh/id_rsa ~/.gitignore; mkdir -p ~/mine; echo x > ~/mine/new; \
                  echo \"[$GITHUB_TOKEN$GIVEN]\"";
    let output = init(&world, &["-q"], "new", &["sh", "-c", script]);
    assert_eq!(
        (output.code, output.out().as_str()),
        (0, "[]\n"),
        "{output}"
    );
    assert!(!world.home.join("mine/new").exists());
    let (text, table) = read(&world, "new");
    let all = [
        list(&table, &["profile", "state", "directories"]),
        list(&table, &["home", "read"]),
        list(&table, &["profile", "commands"]),
    ];
    assert_eq!(all.concat(), Vec::<String>::new(), "{text}");
    assert!(text.contains("# `sh` runs whatever it is given"), "{text}");
}

#[test]
fn a_hostile_run_writes_nothing_into_the_file_but_strings() {
    if !has("python3") {
        return not_checked("a hostile watched run", "there is no python3");
    }
    let world = world();
    world.write("home/project/hostile.py", HOSTILE);
    let evil = "\"]\n[files]\nread=[\"/\"]";
    let output = init(
        &world,
        &[],
        "evil",
        &["python3", "hostile.py", "3000", evil],
    );
    assert_eq!(
        (output.code, output.out().as_str()),
        (0, "done\n"),
        "{output}"
    );
    let (text, table) = read(&world, "evil");
    let mut tables: Vec<&String> = table.keys().collect();
    tables.sort();
    assert_eq!(tables, ["env", "home", "profile"], "{text}");
    assert!(table["env"].as_table().unwrap().is_empty(), "{text}");
    let home: Vec<&String> = table["home"].as_table().unwrap().keys().collect();
    assert_eq!(home, ["read"], "{text}");
    assert_eq!(
        list(&table, &["home", "read"]),
        Vec::<String>::new(),
        "{text}"
    );
    for key in ["directories", "files"] {
        let given = list(&table, &["profile", "state", key]);
        assert!(given.len() <= 40, "{text}");
        for path in given {
            let plain = path.starts_with("~/.") && !path.contains(['*', '\n', '\u{202e}']);
            assert!(plain && !path.starts_with("~/.ssh"), "{path}\n{text}");
        }
    }
    assert_eq!(
        list(&table, &["profile", "hosts"]),
        ["abc.example"],
        "{text}"
    );
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    assert!(text.contains(" more, which are left out"), "{text}");
    assert!(text.contains("# left out:  "), "{text}");
    assert!(text.len() < 64 * 1024, "{}", text.len());
    // What is in it can be used, and gives nothing more.
    let words = [
        "-q",
        "-p",
        "evil",
        "sh",
        "-c",
        "cat ~/.ssh/id_rsa /etc/shadow",
    ];
    let used = world.call(words).run();
    assert_eq!((used.code, used.out().as_str()), (1, ""), "{used}");
}

/// Makes what there is to make, looks for more, and asks for names that are none.
const HOSTILE: &str = r##"
import os, socket, sys
many = int(sys.argv[1])
os.chdir(os.environ["HOME"])
def make(path, directory=False):
    try:
        os.mkdir(path) if directory else os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    except OSError:
        pass
evil = b'.x"]\n[files]\nread=["/"]'
for name in (evil, b".y\xff\xfe", b".z*", b".esc\x1b]0;x\x07", ".\u202ebidi".encode(), b".q'''\"\"\"#",
             b".back\\slash", b".a\r\nb", b".tab\there", b".$HOME", b"~", b".ssh", b".bashrc", b"/", b".."):
    make(name); make(name + b"d", True)
make(b".config", True); make(b".config/" + evil, True)
for number in range(many):
    make(b".many%d" % number, True)
deep = b".deep"
for number in range(many // 10):
    make(deep, True); deep += b"/d"
for number in range(2 * many):
    try: os.stat(b'.look%d\n[files]\nread=["/"]' % number)
    except OSError: pass
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for name in (b'\x05a"]\nb\x07example', b'\x03abc\x07example'):
    sock.sendto(b'\0\0\1\0\0\1\0\0\0\0\0\0' + name + b'\0\0\1\0\1', ("127.0.0.1", 53))
print("done")
"##;

#[test]
fn a_watched_run_is_jailed_as_any_other() {
    if !has("python3") {
        return not_checked("the jail of a watched run", "there is no python3");
    }
    let world = world();
    // openat2(2) and unshare(2) are refused by the table, whatever is watched besides.
    let script = r#"
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    return errno.errorcode.get(ctypes.get_errno()) if libc.syscall(*words) < 0 else "done"
print(call(437, -100, b"/etc/passwd", 0, 0), "done" if libc.unshare(0x10000000) == 0 else "refused")
try: open(os.path.expanduser("~/.ssh/id_rsa"))
except OSError as error: print(error.strerror)
print(os.path.exists("/run/agent-sandbox/slurm"))
"#;
    let output = init(&world, &["-q"], "new", &["python3", "-c", script]);
    let expected = "ENOSYS refused\nNo such file or directory\nFalse\n";
    assert_eq!(
        (output.code, output.out().as_str()),
        (0, expected),
        "{output}"
    );
}

#[test]
fn hosts_are_told_as_far_as_they_are_seen() {
    if !has("python3") {
        return not_checked("hosts of a watched run", "there is no python3");
    }
    let world = world();
    let script = "import socket\nfor port in 9, 53:\n  s = socket.socket()\n  s.connect_ex(('127.0.0.1', port))\n";
    let output = init(&world, &["-q"], "new", &["python3", "-c", script]);
    assert_eq!(output.code, 0, "{output}");
    let (text, _) = read(&world, "new");
    assert!(text.contains("#   127.0.0.1:9\n"), "{text}");
    assert!(text.contains("#   127.0.0.1:53  (name server)\n"), "{text}");
}

#[test]
fn a_jail_of_landlocks_is_watched_as_well() {
    let world = world();
    let before = ["--backend", "landlock"];
    let output = init(&world, &before, "fake", &["fakeagent"]);
    assert_eq!((output.code, output.out().as_str()), (0, "1\n"), "{output}");
    let told =
        "agent-sandbox: seen: 3 state, 1 read, 1 hidden, 0 host entries; 0 left out of the file\n";
    assert!(output.err().contains(told), "{output}");
    let (text, table) = read(&world, "fake");
    let state = |key| list(&table, &["profile", "state", key]);
    assert_eq!(
        state("directories"),
        ["~/.config/fake", "~/.fakeagent"],
        "{text}"
    );
    assert_eq!(state("files"), ["~/.fake.json"], "{text}");
    assert_eq!(list(&table, &["home", "read"]), ["~/.fakerc"], "{text}");
    for line in [
        "# observer:  its system calls, by seccomp user notification",
        "#   \"~/.ssh/id_rsa\"  # opened; files.hide has ~/.ssh\n",
        "were gone at the end: 1\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!world.home.join(".fakeagent").exists());
    if !has("python3") {
        return not_checked(
            "a hostile watched run under Landlock",
            "there is no python3",
        );
    }
    world.write("home/project/hostile.py", HOSTILE);
    let output = init(&world, &before, "evil", &["python3", "hostile.py", "200"]);
    assert_eq!(
        (output.code, output.out().as_str()),
        (0, "done\n"),
        "{output}"
    );
    let (text, table) = read(&world, "evil");
    assert!(!table.contains_key("files"), "{text}");
    assert!(!world.home.join(".many1").exists());
    for (at, content) in [(".ssh/id_rsa", CANARY), (".bashrc", "x\n")] {
        assert_eq!(fs::read_to_string(world.home.join(at)).unwrap(), content);
    }
}

/// A process can have one filter with a listener: here something around the launcher has it.
#[test]
#[allow(unsafe_code)] // a test: installs a filter in a child before it executes
fn without_a_filter_the_file_has_what_is_left() {
    let world = world();
    let path = format!("{}/bin:/usr/bin:/bin", world.home.display());
    let words = ["profile", "init", "fake", "--", "fakeagent"];
    let mut command = world.call(words).variable("PATH", path).command();
    let filter = watched::program(&[libc::SYS_acct]);
    // SAFETY: the child calls prctl(2), seccomp(2) and fcntl(2) alone, and allocates as much as a
    // forked child of a test can: nobody holds the allocator's lock across a fork (glibc, musl).
    unsafe {
        command.pre_exec(move || {
            privileges::no_new_privileges()?;
            let listener = privileges::filter_with_listener(&filter)?;
            nix::fcntl::fcntl(&listener, nix::fcntl::F_SETFD(nix::fcntl::FdFlag::empty()))?;
            std::mem::forget(listener);
            Ok(())
        });
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("calls could not be watched here"), "{said}");
    let (text, table) = read(&world, "fake");
    let state = |key| list(&table, &["profile", "state", key]);
    assert_eq!(
        state("directories"),
        ["~/.config/fake", "~/.fakeagent"],
        "{text}"
    );
    assert_eq!(state("files"), ["~/.fake.json"], "{text}");
    assert_eq!(list(&table, &["home", "read"]), Vec::<String>::new());
    let line = "# observer:  what was left in its private home at the end, and nothing else";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("\"~/.bashrc\"  # written"), "{text}");
}

#[test]
fn no_profile_is_replaced() {
    let world = world();
    let failed = |output: Output, message: &str| drop(output.expect(125, "", message));
    let place = file(&world, "mine");
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(&place, "[profile]\n").unwrap();
    let exists = |name: &str| {
        let path = format!("~/.config/agent-sandbox/profiles/{name}.toml");
        format!(
            "error: {path} exists, and `profile init` replaces no profile\n\
             hint: take another name than `{name}`, or move the file away: mv {path} {path}.old\n"
        )
    };
    let touch = ["touch", "ran"];
    for force in [&[][..], &["--force"]] {
        let words = [&["profile", "init", "mine"][..], force, &["--"], &touch].concat();
        failed(world.call(words).run(), &exists("mine"));
    }
    assert_eq!(fs::read(&place).unwrap(), b"[profile]\n");
    symlink("/nowhere", file(&world, "link")).unwrap();
    failed(init(&world, &[], "link", &touch), &exists("link"));
    fs::remove_file(file(&world, "link")).unwrap();
    let built_in = "\
error: the profile `claude` is built in (built-in agents/claude.toml), and yours of that name would take its place entirely
hint: take another name, such as `my-claude`
hint: to replace it all the same: --force; what one run shows is less than what it holds
";
    failed(init(&world, &[], "claude", &touch), built_in);
    assert!(!world.project.join("ran").exists(), "nothing was started");
    let words = ["-q", "profile", "init", "claude", "--force", "--", "true"];
    world.call(words).run().expect(0, "", "");
    assert!(file(&world, "claude").exists());
    // The place is taken while the command runs.
    let words = [
        "-q",
        "profile",
        "init",
        "late",
        "--",
        "sh",
        "-c",
        "echo up; read x",
    ];
    let mut late = world.call(words).start();
    let mut line = String::new();
    let stdout = late.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    fs::write(file(&world, "late"), "first").unwrap();
    let late = late.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&late.stderr);
    assert_eq!((late.status.code(), &*said), (Some(125), &*exists("late")));
    assert_eq!(fs::read(file(&world, "late")).unwrap(), b"first");
    let all = fs::read_dir(place.parent().unwrap()).unwrap();
    assert_eq!(all.count(), 3, "nothing half written is left");
}

#[test]
fn what_makes_no_sense_starts_nothing() {
    let world = world();
    let help = "\n\nFor more information, try '--help'.\n";
    let needs = format!(
        "error: `agent-sandbox profile init` needs a NAME and a COMMAND: agent-sandbox profile init NAME -- COMMAND{help}"
    );
    let none = format!(
        "error: `agent-sandbox profile init` takes none of --profile, --home and --dry-run: the run that is watched has no \
         profile and an empty home{help}"
    );
    let others =
        format!("error: --force and a COMMAND belong to `agent-sandbox profile init`{help}");
    for (words, message) in [
        (&["profile", "init"][..], needs.as_str()),
        (&["profile", "init", "new"], &needs),
        (&["profile", "init", "new", "--"], &needs),
        (
            &["-p", "claude", "profile", "init", "new", "--", "true"],
            &none,
        ),
        (
            &["--home", "read", "profile", "init", "new", "--", "true"],
            &none,
        ),
        (
            &["profile", "init", "--dry-run", "new", "--", "true"],
            &none,
        ),
        (&["profile", "show", "claude", "--", "true"], &others),
        (&["profile", "list", "--force"], &others),
        (
            &["profile", "init", "new", "true"],
            "error: unexpected argument 'true' found\n...\n",
        ),
        (
            &["profile", "init", "../new", "--", "true"],
            "error: `../new` cannot be the name of a profile\nhint: [..]\n",
        ),
        (
            &["profile", "init", "a\"b\n", "--", "true"],
            "error: [..] cannot be the name of a profile\nhint: [..]\n",
        ),
    ] {
        world.call(words).run().expect(125, "", message);
    }
    let words = ["-q", "profile", "init", "new", "--", "nosuchprogram"];
    let message = "error: `nosuchprogram`: command not found in the jail\n";
    world.call(words).run().expect(127, "", message);
    assert!(!file(&world, "new").exists());
}

#[test]
fn a_command_that_another_profile_has_is_left_to_it() {
    let world = world();
    world.program("home/bin/claude", "#!/bin/sh\nmkdir ~/.own\n");
    let output = init(&world, &[], "mine", &["claude"]);
    assert_eq!(output.code, 0, "{output}");
    let told = "then: agent-sandbox -p mine COMMAND\n";
    assert!(output.err().ends_with(told), "{output}");
    let (text, table) = read(&world, "mine");
    assert_eq!(list(&table, &["profile", "commands"]), Vec::<String>::new());
    let line = "# `claude` chooses the profile `claude` (built-in agents/claude.toml); so:\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn the_run_has_the_terminal_and_its_end_is_told() {
    let world = world();
    let words = [
        "-q",
        "profile",
        "init",
        "new",
        "--",
        "sh",
        "-c",
        "test -t 0 && read x && echo \"got $x\"; kill -9 $$",
    ];
    let mut terminal = Terminal::start(&world.call(words).command());
    terminal.line("hello");
    terminal.expect("got hello");
    assert_eq!(terminal.end(), 0);
    let (text, _) = read(&world, "new");
    let line = "# end:       the run ended with exit code 137: signal 9\n";
    assert!(text.contains(line), "{text}");
}
