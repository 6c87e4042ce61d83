//! `.git/config`: git notes its branches and remotes there from inside, and nobody gets anything else into it.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::op;
use crate::operations::{carry_out, text};
use crate::probe::{Attack, c, outcome, syscall, tell};
use crate::world::World;

pub(crate) const ATTACKS: &[Attack] = &[("git-config-races", races)];

/// No race takes longer.
const LONGEST: Duration = Duration::from_secs(3);
/// What the user has in every configuration here: a comment, and a program of the user's own.
const USERS: &str = "# mine\n[alias]\n\tst = \"!git \\\n\tstatus\"\n";
const HARMLESS: &str = "[branch \"x\"]\n\tdescription = yes\n";

/// What people do that git notes in its configuration.
const DAILY: &[&str] = &[
    "git push -q -u origin main",
    "git checkout -q --track origin/side",
    "git checkout -q -b topic && git push -q -u origin topic",
    "git checkout -q --track -b local main",
    "git branch -m topic renamed",
    "git branch --set-upstream-to=origin/main renamed",
    "git branch --unset-upstream side",
    "git checkout -q main && git branch -D -q local",
    "git remote add up https://example.org/x.git",
    "git remote set-branches up main",
    "git remote add --no-tags other ada@example.org:x.git",
    "git config branch.renamed.description 'First \"line\"\n\n# Second; line\\'",
    "git config user.email agent@example.org",
    "git config --unset user.email",
    "git config push.autoSetupRemote true",
];

/// A repository with the user's text in its configuration, and one that it is pushed to.
fn repository(world: &World, directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    let script = "git init -q -b main && git commit -q --allow-empty -m first && git branch side && git init -q --bare hub.git \
                  && git remote add origin \"$PWD/hub.git\" && git push -q origin side && git branch -D -q side";
    let output = world.outside().cwd(directory).run(&["sh", "-ec", script]);
    assert_eq!(output.code(), 0, "{output:?}");
    let config = directory.join(".git/config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(config, format!("{USERS}{text}")).unwrap();
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn git_notes_its_branches_and_remotes_as_outside() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    let twin = world.base("twin");
    let copied = world
        .outside()
        .run(&["cp", "-a", &text(&project), &text(&twin)]);
    assert_eq!(copied.code(), 0, "{copied:?}");
    let config = project.join(".git/config");
    let was = inode(&config);
    let shown = "git config --file .git/config --list; cat .git/config";
    for one in DAILY {
        let script = format!("{one}\n{shown}");
        let inside = world.jail([]).run(&["bash", "-c", &script]);
        let outside = world.outside().cwd(&twin).run(&["bash", "-c", &script]);
        let said = |text: &str| {
            // The user's alias is there, so that the launcher names the file at the end.
            let lines = text.lines();
            let gits = lines.filter(|line| !line.starts_with("agent-sandbox: left in the project"));
            gits.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(
            (inside.code(), &inside.stdout, said(&inside.stderr)),
            (outside.code(), &outside.stdout, said(&outside.stderr)),
            "{one}"
        );
        assert_eq!(inside.code(), 0, "{one}: {inside:?}");
        assert_eq!(
            fs::read_to_string(&config).unwrap(),
            fs::read_to_string(twin.join(".git/config")).unwrap()
        );
    }
    assert!(fs::read_to_string(&config).unwrap().starts_with(USERS));
    assert_eq!(inode(&config), was, "written in its place");
    assert!(!project.join(".git/config.lock").exists());
}

#[test]
fn a_worktree_notes_its_branches_in_the_repository() {
    let world = World::new();
    let (repo, tree) = (world.base("repo"), world.project("tree"));
    repository(&world, &repo);
    let add = ["git", "worktree", "add", "-q", "-b", "topic", &text(&tree)];
    let output = world.outside().cwd(&repo).run(&add);
    assert_eq!(output.code(), 0, "{output:?}");
    let words = ["git", "branch", "--set-upstream-to=origin/side"];
    let output = world.jail([]).cwd(&tree).run(&words);
    assert_eq!(output.code(), 0, "{output:?}");
    let config = fs::read_to_string(repo.join(".git/config")).unwrap();
    assert!(
        config.contains("[branch \"topic\"]\n\tremote = origin\n\tmerge = refs/heads/side\n"),
        "{config}"
    );
}

#[test]
fn what_runs_programs_is_refused_before_anything_changes_and_said() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    let config = project.join(".git/config");
    let was = fs::read_to_string(&config).unwrap();
    for (words, key) in [
        (
            "config core.fsmonitor ./evil",
            "`core.fsmonitor` may only be changed outside",
        ),
        (
            "config core.sshCommand ./evil",
            "`core.sshcommand` may only be changed outside",
        ),
        (
            "config alias.st '!evil'",
            "`alias.st` may only be changed outside",
        ),
        (
            "config --unset alias.st",
            "`alias.st` may only be changed outside",
        ),
        (
            "config filter.x.clean ./evil",
            "`filter.x.clean` may only be changed outside",
        ),
        (
            "config include.path ../evil",
            "`include.path` may only be changed outside",
        ),
        (
            "config credential.helper '!evil'",
            "`credential.helper` may only be changed outside",
        ),
        (
            "config url.ext::sh.insteadOf git@",
            "`url.ext::sh.insteadof` may only be changed outside",
        ),
        (
            "config extensions.worktreeConfig true",
            "`extensions.worktreeconfig` may only be changed outside",
        ),
        (
            "remote rename origin up",
            "`remote.origin.url` may only be changed outside",
        ),
        (
            "config --remove-section remote.origin",
            "`remote.origin.url` may only be changed outside",
        ),
        (
            "remote add x 'ext::sh -c evil'",
            "`remote.x.url` may get such a value only outside",
        ),
        (
            "remote add x ./hub.git",
            "`remote.x.url` may get such a value only outside",
        ),
        (
            "remote set-url origin ssh://-oProxyCommand=evil/x",
            "`remote.origin.url` may get such a value only outside",
        ),
        (
            "config branch.main.remote ./hub.git",
            "`branch.main.remote` may get such a value only outside",
        ),
        (
            "remote add --mirror=fetch x https://example.org/x",
            "`remote.x.fetch` may get such a value only outside",
        ),
    ] {
        let output = world.jail([]).run(&["sh", "-c", &format!("git {words}")]);
        assert_ne!(output.code(), 0, "{words}: {output:?}");
        let line = format!("agent-sandbox: .git/config stays as it is: {key}");
        assert!(output.stderr.contains(&line), "{words}: {output:?}");
        let is = fs::read_to_string(&config).unwrap();
        // The address came first.
        let is = is.replace("[remote \"x\"]\n\turl = https://example.org/x\n", "");
        assert_eq!(is, was, "{words}");
    }
}

#[test]
fn nothing_but_gits_own_lock_gets_into_its_configuration() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    let at = |name: &str| project.join(".git").join(name);
    let (config, lock) = (at("config"), at("config.lock"));
    let was = fs::read_to_string(&config).unwrap();
    let good = format!("{was}{HARMLESS}");
    fs::write(project.join("good"), &good).unwrap();
    fs::write(at("other.lock"), &good).unwrap();
    fs::write(project.join("config.lock"), &good).unwrap();
    let tries: &[(&str, &dyn Fn())] = &[
        ("a link", &|| symlink(project.join("good"), &lock).unwrap()),
        ("a second name", &|| {
            fs::hard_link(project.join("good"), &lock).unwrap()
        }),
        ("a FIFO", &|| {
            nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap()
        }),
        ("a directory", &|| fs::create_dir(&lock).unwrap()),
        ("too large", &|| {
            fs::write(&lock, good.clone() + &"\n".repeat(256 * 1024)).unwrap()
        }),
        ("zeros", &|| fs::write(&lock, good.clone() + "\0").unwrap()),
        ("carriage returns", &|| {
            fs::write(&lock, good.replace('\n', "\r\n")).unwrap()
        }),
        ("a mark", &|| {
            fs::write(&lock, format!("\u{feff}{good}")).unwrap()
        }),
        ("no text", &|| {
            fs::write(&lock, [good.as_bytes(), b"\xff"].concat()).unwrap()
        }),
        ("half a line", &|| {
            fs::write(&lock, format!("{good}[core]\n\tpager = \"evil")).unwrap()
        }),
        ("nothing", &|| fs::write(&lock, "").unwrap()),
    ];
    for (what, plant) in tries {
        plant();
        let answer = world.jail([]).operation(op!("rename", &lock, &config));
        assert!(!answer.starts_with("ok"), "{what}: {answer}");
        assert_eq!(fs::read_to_string(&config).unwrap(), was, "{what}");
        let _ = fs::remove_file(&lock).or_else(|_| fs::remove_dir(&lock));
    }
    fs::write(&lock, &good).unwrap();
    let answers = world.jail([]).operations(&[
        op!("rename", at("other.lock"), &config),
        op!("rename", project.join("config.lock"), &config),
        op!("exchange", &lock, &config),
        op!("rename", &lock, at("config/")),
        op!("rename", at("missing"), &config),
    ]);
    assert!(
        answers.iter().all(|answer| !answer.starts_with("ok")),
        "{answers:?}"
    );
    assert_eq!(fs::read_to_string(&config).unwrap(), was);
    // Somebody outside has given the file a second name, or another file the name.
    fs::hard_link(&config, at("second")).unwrap();
    let answer = world.jail([]).operation(op!("rename", &lock, &config));
    assert!(!answer.starts_with("ok"), "{answer}");
    fs::remove_file(at("second")).unwrap();
    assert_eq!(fs::read_to_string(&config).unwrap(), was);
    let answer = world.jail([]).operation(op!("rename", &lock, &config));
    assert_eq!((answer.as_str(), lock.exists()), ("ok", false));
    assert_eq!(fs::read_to_string(&config).unwrap(), good);
}

/// Words: git's directory. What is renamed, its content and the names in memory change all the time.
fn races(words: &[String]) {
    let [git] = words else { panic!("a directory") };
    let [config, lock, evil, link] =
        ["config", "config.lock", "evil", "link"].map(|name| format!("{git}/{name}"));
    let users = fs::read_to_string(&config).unwrap();
    let bad = format!("{users}[core]\n\tfsmonitor = evil\n");
    fs::write(&evil, &bad).unwrap();
    symlink(&evil, &link).unwrap();
    // Lengths that change, so that ends of one text would stand behind another.
    let long = format!("\n[core]\n\tfsmonitor = evil{}", " evil".repeat(2000));
    let quoted: String = long.chars().flat_map(char::escape_default).collect();
    let goods = [
        format!("{users}[branch \"x\"]\n\tdescription = \"{quoted}\"\n"),
        format!("{users}{HARMLESS}"),
        users,
    ];
    let stop = AtomicBool::new(false);
    let goes_on = || !stop.load(Ordering::Relaxed);
    let name: Vec<AtomicU8> = c(&config)
        .as_bytes_with_nul()
        .iter()
        .map(|&byte| byte.into())
        .collect();
    let (mut done, mut tries) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in (0..4).cycle().take_while(|_| goes_on()) {
                let _ = fs::write(&lock, goods.get(at).unwrap_or(&bad));
            }
        });
        scope.spawn(|| {
            while goes_on() {
                for other in [&evil, &link] {
                    carry_out(&["exchange", &lock, other]);
                    carry_out(&["exchange", &lock, other]);
                }
                let _ = fs::write(&evil, &bad);
            }
        });
        scope.spawn(|| {
            let last = &name[name.len() - 2];
            while goes_on() {
                last.store(b'x', Ordering::Relaxed);
                last.store(b'g', Ordering::Relaxed);
            }
        });
        let (begun, from) = (Instant::now(), c(&lock));
        let here = u64::from(libc::AT_FDCWD.cast_unsigned());
        while begun.elapsed() < LONGEST {
            let arguments = [here, from.as_ptr() as u64, here, name.as_ptr() as u64];
            let answer = outcome(syscall(libc::SYS_renameat, &arguments));
            done += u32::from(answer == "ok");
            tries += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    tell("done", done);
    tell("tries", tries);
}

#[test]
fn nothing_that_changes_meanwhile_gets_into_gits_configuration() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    let config = project.join(".git/config");
    let users = fs::read_to_string(&config).unwrap();
    let running = world
        .jail([])
        .start_attack("git-config-races", &[text(&project.join(".git"))]);
    let begun = Instant::now();
    // Such a text is a description or nothing.
    let evil = |line: &str| line.contains("evil") && !line.starts_with("\tdescription = \"");
    while begun.elapsed() < LONGEST {
        let text = String::from_utf8(fs::read(&config).unwrap()).unwrap();
        assert!(!text.lines().any(evil), "{text}");
    }
    let report = running.wait().report();
    let is = fs::read_to_string(&config).unwrap();
    assert!(is.starts_with(&users) && !is.lines().any(evil), "{is}");
    assert_ne!(report.get("done"), "0", "{report:?}");
}

/// Git's older files of remotes count where the configuration has none of that name.
#[test]
fn a_removed_remote_does_not_come_back_as_a_file() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    let script = "! git remote remove origin; cd .git; mkdir -p remotes branches; echo URL: /tmp/evil.git > remotes/origin; \
                  echo /tmp/evil.git > branches/x; \
                  cp branches/x branches/y.sample";
    let output = world.jail([]).run(&["sh", "-ec", script]);
    assert_eq!(output.code(), 0, "{output:?}");
    for name in [
        ".git/remotes/origin",
        ".git/branches/x",
        ".git/branches/y.sample",
    ] {
        let line = format!("left in the project: `{name}`, which git obeys outside: set aside");
        assert!(output.stderr.contains(&line), "{output:?}");
        assert!(!project.join(name).exists(), "{output:?}");
    }
}
