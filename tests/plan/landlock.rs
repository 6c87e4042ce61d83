//! Plans translated for Landlock: which rules, which access map, what the session's directory holds.

mod check;
mod judge;

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agent_sandbox::host::files::{Entry, Files, Look};
use agent_sandbox::host::mount_table::Alias;
use agent_sandbox::plan::PlanError;
use agent_sandbox_landlock::access::{Permission, Right, Rule};
use agent_sandbox_landlock::{Thing, Translated, translate};

use crate::host::plain;
use crate::scenario::{Scenario, compare};
use crate::tree::{Tree, What};

const STAGE: &str = "/tmp/agent-sandbox-1000/s";

fn translated_with(scenario: &Scenario, terminals: &[OsString]) -> Result<Translated, PlanError> {
    let plan = scenario.plan().unwrap();
    translate(
        plan,
        &scenario.host,
        &scenario.tree,
        Path::new(STAGE),
        terminals,
    )
}

fn translated(scenario: &Scenario) -> Translated {
    translated_with(scenario, &[]).unwrap()
}

/// A translation, short: one line for each rule and entry.
fn text(translated: &Translated) -> String {
    let mut all = String::new();
    let mut line = |text: String| writeln!(all, "{text}").unwrap();
    let rule_line = |rule: &Rule| {
        let right = match rule.right {
            Right::Read => "read  ",
            Right::ReadFiles => "files ",
            Right::Write => "write ",
            Right::Device => "device",
        };
        let id = if rule.id.is_none() {
            "  (made here)"
        } else {
            ""
        };
        format!("  {right}  {}{id}", rule.path().display())
    };
    line("rules".into());
    for rule in &translated.rules {
        line(rule_line(rule));
    }
    line("\nof the mediator besides".into());
    for rule in &translated.config.rules {
        if !translated.rules.contains(rule) {
            line(rule_line(rule));
        }
    }
    line("\naccess map".into());
    for entry in translated.config.access_map.entries() {
        let permission = format!("{:?}", entry.permission).to_lowercase();
        let direct = if entry.direct { ", direct" } else { "" };
        let listed = if entry.listed && !entry.direct {
            ", listed"
        } else {
            ""
        };
        line(format!(
            "  {permission:5}  {}{direct}{listed}",
            entry.path().display()
        ));
    }
    line(format!("\n{:?}", translated.handed_over));
    line("\nin the session's directory".into());
    for staged in &translated.staged {
        let at = staged.at.display();
        line(match &staged.what {
            Thing::Directory(mode) => format!("  {at}/ ({mode:o})"),
            Thing::Link(target) => format!("  {at} -> {}", target.display()),
            Thing::Program(from) => format!("  {at} = {}", from.display()),
            // Its length changes with every line of the built-in policy.
            Thing::File(mode, _) if staged.at.ends_with("explain") => format!("  {at} ({mode:o})"),
            Thing::File(mode, content) => format!("  {at} ({mode:o}, {} bytes)", content.len()),
        });
    }
    if let Some(socket) = &translated.socket {
        line(format!("  socket: {}", socket.display()));
    }
    line("\nvariables".into());
    for variable in &translated.plan.variables {
        let (name, value) = (variable.name.display(), variable.value.display());
        line(format!("  {name}={value}"));
    }
    let command: Vec<String> = translated
        .plan
        .command
        .iter()
        .map(|word| word.display().to_string())
        .collect();
    line(format!("\ncommand {}", command.join(" ")));
    all
}

fn snapshot(scenario: &Scenario, name: &str) {
    compare(&format!("landlock_{name}"), &text(&translated(scenario)));
}

/// Ada's host with what Linux has in `/dev`.
fn with_devices(tree: Tree) -> Tree {
    tree.device("/dev/tty")
        .device("/dev/pts/ptmx")
        .link("/dev/ptmx", "pts/ptmx")
        .device("/dev/pts/3")
        .device("/dev/pts/4")
        .device("/dev/sda")
        .directory("/dev/shm")
}

fn repository() -> Tree {
    with_devices(plain())
        .directory("/home/ada/project/.git/hooks")
        .directory("/home/ada/project/.git/objects")
        .directory("/home/ada/project/.git/refs")
        .file("/home/ada/project/.git/config", "")
        .file("/home/ada/project/.git/HEAD", "")
        .link("/home/ada/project/link", "/etc")
}

#[test]
fn a_project_with_git() {
    let scenario = Scenario::new(repository()).variable("TMP", "/tmp/x");
    let translated = translated_with(&scenario, &["/dev/pts/3".into()]).unwrap();
    compare("landlock_git", &text(&translated));
}

/// In namespaces Landlock's checks on paths could be got round.
#[test]
fn namespaces_are_refused_whatever_the_policy_says() {
    let scenario = Scenario::new(repository()).policy("[jail]\nnested = true\n");
    let translated = translated(&scenario);
    let names: Vec<_> = translated
        .plan
        .syscalls
        .iter()
        .map(|rule| rule.name)
        .collect();
    for name in ["clone", "clone3", "unshare", "setns", "mount", "shmget"] {
        assert!(names.contains(&name), "{name}");
    }
}

/// A mount point cannot be moved; what stands beside it in a guarded directory can.
#[test]
fn what_is_closed_is_pinned_and_nothing_else() {
    let translated = translated(&Scenario::new(repository()));
    let access_map = &translated.config.access_map;
    for (path, pinned) in [
        ("/home/ada/project", true),
        ("/home/ada/project/.git", true),
        ("/home/ada/project/.git/hooks", true),
        ("/home/ada/project/.git/config", true),
        ("/home/ada/project/.git/HEAD", false),
        ("/home/ada/project/.git/objects", false),
        ("/home/ada/project/main.c", false),
        ("/home/ada/project/new", false),
    ] {
        assert_eq!(access_map.is_pinned(Path::new(path)), pinned, "{path}");
    }
    let main = Path::new("/home/ada/project/main.c");
    assert!(translated.config.planned(main).is_some());
}

#[test]
fn an_agent_with_its_profile() {
    let tree = with_devices(plain())
        .file("/home/ada/.claude.json", "{}")
        .file("/home/ada/.claude/.credentials.json", "{}")
        .file("/home/ada/.claude/settings.json", "{}")
        .file("/home/ada/.claude/hooks/start", "")
        .file("/home/ada/.claude/ide/1234.lock", "{}")
        .file("/home/ada/.claude/projects/x.jsonl", "")
        .socket("/home/ada/.claude/socket");
    let claude = include_str!("../../profiles/agents/claude.toml");
    snapshot(
        &Scenario::new(tree)
            .profile("claude.toml", claude)
            .variable("XDG_CACHE_HOME", "/home/ada/.cache")
            .variable("MINE", "/home/ada/.claude/x"),
        "claude",
    );
}

#[test]
fn a_readable_home() {
    let tree = plain()
        .file("/home/ada/work/token", "SECRET")
        .file("/home/ada/work/open", "")
        .file("/home/ada/work/in/deep", "")
        .link("/home/ada/latest", "work/in")
        .link("/home/ada/bob", "../bob/thesis.tex");
    snapshot(
        &Scenario::new(tree).policy("home.mode = \"read\"\nfiles.hide = [\"~/work/token\"]"),
        "home_read",
    );
}

/// Reading what appears there later, and listing it, is for the mediator to do.
#[test]
fn a_hidden_file_in_the_project() {
    let tree = plain()
        .file("/home/ada/project/.env", "SECRET")
        .file("/home/ada/project/src/deep/key", "SECRET")
        .file("/home/ada/project/src/deep/open", "")
        .file("/home/ada/project/src/a.c", "");
    snapshot(
        &Scenario::new(tree)
            .policy("files.hide = [\"~/project/.env\", \"~/project/src/deep/key\"]"),
        "hidden",
    );
}

/// A directory that the plan takes apart outside the home can be listed, and read in no other way.
#[test]
fn a_readable_directory_that_is_taken_apart() {
    let tree = plain()
        .file("/data/open/x", "")
        .file("/data/keys/x", "SECRET");
    let scenario =
        Scenario::new(tree).policy("files.read = [\"/data\"]\nfiles.hide = [\"/data/keys\"]");
    let translated = translated(&scenario);
    let access_map = &translated.config.access_map;
    let data = access_map.entry(Path::new("/data")).unwrap();
    assert!(data.listed && !data.direct && data.permission == Permission::None);
    assert_eq!(
        access_map.permission(Path::new("/data/open/x")),
        Permission::Read
    );
    assert_eq!(
        access_map.permission(Path::new("/data/keys")),
        Permission::None
    );
    assert!(translated.handed_over.listings && !translated.handed_over.opens);
    let right = |rules: &[Rule], path: &str| {
        let rule = rules.iter().find(|rule| rule.path() == Path::new(path));
        rule.map(|rule| rule.right)
    };
    assert_eq!(right(&translated.rules, "/data"), None);
    assert_eq!(right(&translated.rules, "/data/open"), Some(Right::Read));
    assert_eq!(right(&translated.config.rules, "/data"), Some(Right::Read));
    // Directories that only lead to something are not listed.
    for path in ["/home", "/home/ada", "/var"] {
        let entry = access_map.entry(Path::new(path));
        assert!(entry.is_none_or(|entry| !entry.listed), "{path}");
    }
}

#[test]
fn private_copies() {
    let tree = plain()
        .file("/home/ada/.config/matplotlib/style", "x")
        .link("/home/ada/.config/matplotlib/link", "style")
        .file("/data/rc", "abc")
        .link("/home/ada/.toolrc", "/data/rc");
    let scenario =
        Scenario::new(tree).policy("home.seed = [\"~/.config/matplotlib\", \"~/.toolrc\"]");
    let translated = translated(&scenario);
    let at = |path: &str| {
        let staged = translated
            .staged
            .iter()
            .find(|one| one.at == Path::new(path));
        staged.map(|one| one.what.clone())
    };
    assert_eq!(
        at("home/.config/matplotlib/style"),
        Some(Thing::File(0o600, b"x".to_vec()))
    );
    assert_eq!(
        at("home/.config/matplotlib/link"),
        Some(Thing::Link("style".into()))
    );
    assert_eq!(at("home/.config/matplotlib"), Some(Thing::Directory(0o700)));
    // Said, since it cannot be given.
    let omitted = |path: &str| {
        let mut all = translated.plan.omitted.iter();
        all.any(|omitted| omitted.path == path && omitted.loud)
    };
    assert!(omitted("/data/rc"));
    let access_map = &translated.config.access_map;
    assert_eq!(
        access_map.permission(Path::new("/data/rc")),
        Permission::None
    );
}

/// The environment that a job brings may come from a session with a directory of its own.
#[test]
fn a_job_with_a_script() {
    let script = "/var/spool/slurmd/job00007/slurm_script";
    let other = "/dev/shm/agent-sandbox-1000/other";
    let path = format!("{other}/own/slurm:/run/agent-sandbox/bin:/usr/bin:/bin");
    let tree = with_devices(plain())
        .file("/usr/bin/squeue", "ELF")
        .owned_by("/usr/bin", 0)
        .owned_by("/usr/bin/squeue", 0)
        .file("/usr/libexec/agent-sandbox/agent-sandbox-shim", "ELF")
        .file("/usr/libexec/agent-sandbox/agent-sandbox-chaperon", "ELF");
    let mut scenario = Scenario::new(tree)
        .job(&[
            ("HOME", &format!("{other}/home")),
            ("TMPDIR", "/tmp"),
            ("XDG_RUNTIME_DIR", "/run/user/7"),
            ("AGENT_SANDBOX_CHAPERON", &format!("{other}/own/chaperon")),
            ("PATH", &path),
            ("CACHE", &format!("{other}/home/.cache")),
            ("OTHER", "/dev/shm/agent-sandbox-1000/other"),
            ("EMPTY", ""),
        ])
        .script(script)
        .command(&[script, "argument"]);
    let merged = scenario.merged();
    scenario.host.find_slurm(&merged, &scenario.tree);
    snapshot(&scenario, "job");
    let places = translated(&scenario).places;
    for (inside, real) in [
        (script, format!("{STAGE}/own/slurm_script")),
        ("/tmp", format!("{STAGE}/tmp")),
        ("/tmp/out", format!("{STAGE}/tmp/out")),
        ("/var/tmp/out", format!("{STAGE}/tmp/out")),
        ("/run/user/1000/x", format!("{STAGE}/run/x")),
        ("/home/ada/out", format!("{STAGE}/home/out")),
        ("/home/ada/project/out", "/home/ada/project/out".into()),
        ("/usr/bin", "/usr/bin".into()),
        ("/nowhere", "/nowhere".into()),
    ] {
        assert_eq!(places.real(Path::new(inside)), Path::new(&real), "{inside}");
    }
}

/// What the policy sets is set, wherever it leads.
#[test]
fn variables_that_the_policy_sets() {
    let scenario = Scenario::new(plain().directory("/scratch/ada")).policy(
        "files.write = [\"/scratch/ada\"]\n[env]\nset = { TMPDIR = \"/scratch/ada\", HOME = \"/home/ada/x\" }",
    );
    let plan = translated(&scenario).plan;
    let value = |name: &str| {
        let variable = plan.variables.iter().find(|one| one.name == name).unwrap();
        variable.value.to_string_lossy().into_owned()
    };
    assert_eq!(value("TMPDIR"), "/scratch/ada");
    assert_eq!(value("HOME"), format!("{STAGE}/home/x"));
}

#[test]
fn standard_input_can_be_opened_anew() {
    let tree = plain().file("/data/input", "");
    let mut scenario = Scenario::new(tree);
    let Look::Found(found) = scenario.tree.look(Path::new("/data/input")) else {
        panic!("it is there");
    };
    scenario.host.input = Some(found);
    let translated = translated(&scenario);
    let rule = translated
        .rules
        .iter()
        .find(|rule| rule.path() == Path::new("/data/input"));
    assert_eq!(rule.unwrap().right, Right::ReadFiles);
}

/// The host's `/tmp`, with the places of other sessions in it.
#[test]
fn a_policy_that_gives_all_of_tmp() {
    let tree = plain()
        .file("/tmp/agent-sandbox-1000/other/home/x", "")
        .file("/tmp/build/x", "");
    let translated = translated(&Scenario::new(tree).policy("files.write = [\"/tmp\"]"));
    let access_map = &translated.config.access_map;
    for (path, permission) in [
        ("/tmp", Permission::Write),
        ("/tmp/build/x", Permission::Write),
        ("/tmp/new", Permission::Write),
        ("/tmp/agent-sandbox-1000", Permission::None),
        ("/tmp/agent-sandbox-1000/other/home", Permission::None),
        ("/tmp/agent-sandbox-1000/s/home", Permission::Write),
        ("/dev/shm/agent-sandbox-1000", Permission::None),
    ] {
        assert_eq!(access_map.permission(Path::new(path)), permission, "{path}");
    }
    let rule = |path: &str| {
        translated
            .rules
            .iter()
            .any(|rule| rule.path() == Path::new(path))
    };
    assert!(rule("/tmp/build") && !rule("/tmp"));
}

/// A network is filtered where Landlock has rights about it, also of a job; nothing is started elsewhere.
#[test]
fn a_filtered_network() {
    let on = |abi, job: bool| {
        let scenario = Scenario::new(plain())
            .policy("[network]\nmode = \"filtered\"\n")
            .facts(|facts| facts.landlock_abi = abi);
        let scenario = match job {
            true => scenario.job(&[]),
            false => scenario,
        };
        translated_with(&scenario, &[])
    };
    for job in [false, true] {
        for abi in [2, 3] {
            let error = on(abi, job).unwrap_err();
            let said = error.to_string();
            assert!(
                said.contains("the network cannot be filtered") && said.contains("Linux 6.7"),
                "{said}"
            );
            assert!(error.hint_text().unwrap().contains("--backend bwrap"));
        }
        let translated = on(4, job).unwrap();
        assert!(translated.handed_over.listens);
        let plan = translated.plan;
        assert!(plan.syscalls.iter().any(|rule| rule.name == "setsockopt"));
        let names = plan.variables.iter().find(|one| one.name == "RES_OPTIONS");
        assert!(
            names
                .unwrap()
                .value
                .to_string_lossy()
                .split(' ')
                .any(|option| option == "use-vc")
        );
    }
    let open = translated(&Scenario::new(plain()));
    assert!(!open.handed_over.listens);
    let mut variables = open.plan.variables.iter();
    assert!(!variables.any(|one| one.name == "RES_OPTIONS"));
}

/// A kernel decides what is handed over; one without Landlock is refused.
#[test]
fn kernels() {
    let on = |abi| {
        let scenario = Scenario::new(plain()).facts(|facts| facts.landlock_abi = abi);
        translated_with(&scenario, &[]).map(|translated| translated.handed_over)
    };
    for (abi, signals, truncations) in [(2, true, true), (3, true, false), (6, false, false)] {
        let handed_over = on(abi).unwrap();
        assert_eq!(handed_over.signals, signals, "ABI {abi}");
        assert_eq!(handed_over.truncations, truncations, "ABI {abi}");
        // Nothing is guarded, and there is no shared memory.
        assert!(!handed_over.changes && !handed_over.listings && !handed_over.opens);
    }
    for abi in [0, 1] {
        let error = on(abi).unwrap_err();
        assert!(error.to_string().contains("Landlock"), "{error}");
        assert!(error.hint_text().unwrap().contains("--backend bwrap"));
    }
}

#[test]
fn too_many_entries_to_give_one_by_one() {
    let many = |most| {
        (0..most).fold(
            plain().file("/home/ada/project/.env", "SECRET"),
            |mut tree, number| {
                assert!(tree.put(format!("/home/ada/project/{number}"), What::Directory));
                tree
            },
        )
    };
    let scenario = |most| Scenario::new(many(most)).policy("files.hide = [\"~/project/.env\"]");
    assert!(translated_with(&scenario(8000), &[]).is_ok());
    for most in [8191, 9000] {
        let error = translated_with(&scenario(most), &[]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("`/home/ada/project` has"), "{text}");
        assert!(
            text.contains("`/home/ada/project/.env` gets less"),
            "{text}"
        );
        assert!(error.hint_text().is_some());
    }
}

/// A file system on which the last name of a path may be spelled in either case.
struct IgnoresCase(Tree);

impl Files for IgnoresCase {
    fn prefetch(&self, paths: &[PathBuf]) {
        self.0.prefetch(paths);
    }

    fn look(&self, path: &Path) -> Look {
        let swap = |letter: char| match letter.is_ascii_lowercase() {
            true => letter.to_ascii_uppercase(),
            false => letter.to_ascii_lowercase(),
        };
        match (
            self.0.look(path),
            path.file_name().and_then(|name| name.to_str()),
        ) {
            (Look::Missing, Some(name)) => {
                let other: String = name.chars().map(swap).collect();
                self.0.look(&path.with_file_name(other))
            }
            (found, _) => found,
        }
    }

    fn entries(&self, directory: &Path) -> Option<Rc<[Entry]>> {
        self.0.entries(directory)
    }

    fn small_file(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        self.0.small_file(path, most)
    }

    fn mounted_elsewhere(&self, real: &Path, besides: &[PathBuf]) -> Vec<Alias> {
        self.0.mounted_elsewhere(real, besides)
    }
}

#[test]
fn another_spelling_of_what_is_closed_is_not_given() {
    for scenario in [
        Scenario::new(repository()),
        Scenario::new(plain().file("/home/ada/project/.env", "SECRET"))
            .policy("files.hide = [\"~/project/.env\"]"),
    ] {
        let plan = || scenario.plan().unwrap();
        let files = IgnoresCase(scenario.tree.clone());
        let error = translate(plan(), &scenario.host, &files, Path::new(STAGE), &[]).unwrap_err();
        assert!(error.to_string().contains("ignores case"), "{error}");
        assert!(translated_with(&scenario, &[]).is_ok());
    }
}

#[test]
fn a_guarded_directory_that_cannot_be_listed() {
    let tree = plain()
        .file("/home/ada/project/in/key", "SECRET")
        .file("/home/ada/project/in/open", "");
    let scenario = Scenario::new(tree).policy("files.hide = [\"~/project/in/key\"]");
    let plan = scenario.plan().unwrap();
    let closed = scenario.tree.clone().unreadable("/home/ada/project/in");
    let error = translate(plan, &scenario.host, &closed, Path::new(STAGE), &[]).unwrap_err();
    assert!(
        error.to_string().contains("/home/ada/project/in"),
        "{error}"
    );
}
