//! Landlock as the jail: asked for, and in place of a bubblewrap that cannot work.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use agent_sandbox_support::terminal::Terminal;

use crate::refusals::outer;
use crate::world::{Call, World, not_checked, until};

fn world() -> World {
    World::new()
}

fn fenced<'a>(world: &'a World, command: &[&'a str]) -> Call<'a> {
    world.quiet([&["--backend", "landlock"], command].concat())
}

/// The line that names the number of differences; the number.
fn differences(err: &str) -> usize {
    let lines: Vec<&str> = err
        .lines()
        .filter_map(|line| line.strip_prefix("agent-sandbox: weaker jail: Landlock, "))
        .collect();
    let [line] = lines[..] else {
        panic!("not one line: {err}");
    };
    let number = line.strip_suffix(" differences: agent-sandbox explain --backend");
    number.expect(err).parse().expect(err)
}

#[test]
fn asked_for_it_runs_and_says_in_one_line_that_it_is_weaker() {
    let world = world();
    let words = ["--backend", "landlock", "sh", "-c", "echo out; exit 7"];
    let output = world.call(words).run();
    assert_eq!(
        (output.code, output.out().as_str()),
        (7, "out\n"),
        "{output}"
    );
    let err = output.err();
    assert!(err.starts_with("agent-sandbox: jailed in "), "{output}");
    assert_eq!(err.lines().count(), 2, "{output}");
    let named = differences(&err);
    let plan = world
        .call(["--backend", "landlock", "--dry-run", "--json", "true"])
        .run()
        .json();
    assert_eq!(plan["missing"].as_array().unwrap().len(), named, "{output}");
    let quiet = fenced(&world, &["true"]).run();
    assert_eq!((quiet.code, quiet.err().as_str()), (0, ""), "{quiet}");
    let verbose = world
        .call(["--verbose", "--backend", "landlock", "true"])
        .run();
    let each = verbose.err();
    let each = each
        .lines()
        .filter(|line| line.starts_with("agent-sandbox: Landlock: "));
    assert_eq!(each.count(), named, "{verbose}");
}

#[test]
fn what_is_different_is_listed_outside_and_inside() {
    let world = world();
    let all = ["--backend", "landlock", "explain", "--backend"];
    let outside = world.call(all).run();
    assert_eq!(outside.code, 0, "{outside}");
    let listed = |text: &str| text.lines().filter(|line| line.starts_with("  ")).count();
    let launch = world
        .call([
            "--backend",
            "landlock",
            "agent-sandbox",
            "explain",
            "--backend",
        ])
        .run();
    let named = differences(&launch.err());
    assert_eq!(listed(&outside.out()), named, "{outside}");
    assert_eq!(launch.out(), outside.out(), "{launch}");
    let first = format!("Landlock makes the jail\n{named} differences ");
    assert!(outside.out().starts_with(&first), "{outside}");
    let json = world
        .call(["explain", "--backend", "landlock", "--json"])
        .run()
        .json();
    assert_eq!(json["backend"], "landlock");
    assert_eq!(json["missing"].as_array().unwrap().len(), named, "{json:#}");
    let bwrap = world.call(["explain", "--backend"]).run();
    let none = "bubblewrap makes the jail: nothing is missing\n";
    assert_eq!((bwrap.code, bwrap.out().as_str()), (0, none), "{bwrap}");
    let inside = world.quiet(["agent-sandbox", "explain", "--backend"]).run();
    assert_eq!(inside.out(), none, "{inside}");
    let plain = world
        .call(["explain", "--backend", "landlock", "/etc"])
        .run();
    assert!(plain.out().starts_with("/etc: "), "{plain}");
}

/// What a user's own policy says is required of a jail; the same as an option.
#[test]
fn what_the_user_wrote_and_it_cannot_give_is_refused() {
    for (policy, options, key) in [
        ("[jail]\ntmp_size = \"1G\"\n", &[][..], "jail.tmp_size"),
        ("", &["--set", "jail.users=filtered"], "jail.users"),
    ] {
        let world = World::new();
        world.policy(policy);
        let words = [options, &["touch", "ran"]].concat();
        let output = fenced(&world, &words).run();
        assert_eq!((output.code, output.out().as_str()), (125, ""), "{output}");
        let err = output.err();
        assert!(err.starts_with("error: "), "{output}");
        assert!(err.contains(key) && err.contains("=degraded"), "{output}");
        assert!(!world.project.join("ran").exists());
        let asked = world
            .call([options, &["--backend", "landlock", "explain", "--backend"]].concat())
            .run();
        assert_eq!(asked.code, 125, "{asked}");
        assert!(asked.err().contains(key), "{asked}");
        let waived = [
            "--set",
            "landlock.sizes=degraded",
            "--set",
            "landlock.users=degraded",
        ];
        let output = fenced(&world, &[&waived[..], &words].concat()).run();
        assert_eq!(output.code, 0, "{output}");
        assert!(world.project.join("ran").exists());
    }
}

/// Nobody traces it, and its parent is ours: it goes on.
#[test]
fn a_command_that_asks_to_be_traced_and_stops_goes_on() {
    let program = "import ctypes, os, signal\n\
        traced = lambda: ctypes.CDLL(None).ptrace(0, 0, 0, 0)\n\
        assert traced() == 0\n\
        os.kill(os.getpid(), signal.SIGSTOP)\n\
        assert traced() == 0\n\
        open('done', 'a').write('x')\n\
        os.execv('/bin/echo', ['echo', 'on'])\n";
    let orphan = "(setsid sh -c 'exec python3 stops.py' > orphan &); \
        for i in $(seq 100); do [ -s orphan ] && break; sleep 0.1; done; cat orphan";
    for backend in ["bwrap", "landlock"] {
        let world = world();
        fs::write(world.project.join("stops.py"), program).unwrap();
        for command in [&["python3", "stops.py"][..], &["sh", "-c", orphan]] {
            let words = [&["--backend", backend], command].concat();
            let mut child = world.quiet(words).start();
            let status = crate::world::wait(&mut child, "the end of the command");
            let mut out = String::new();
            child
                .stdout
                .take()
                .unwrap()
                .read_to_string(&mut out)
                .unwrap();
            assert_eq!(
                (status.code(), out.as_str()),
                (Some(0), "on\n"),
                "{backend}: {command:?}"
            );
        }
        assert_eq!(
            fs::read_to_string(world.project.join("done")).unwrap(),
            "xx"
        );
    }
}

#[test]
fn a_dry_run_shows_rules_and_access_map_and_leaves_nothing() {
    let world = world();
    let words = ["--backend", "landlock", "--dry-run"];
    let json = world
        .call(words.iter().chain(&["--json", "true"]))
        .run()
        .json();
    assert_eq!(json["backend"], "landlock");
    for key in ["missing", "rules", "access_map", "staged"] {
        let all = json[key].as_array().unwrap();
        assert!(!all.is_empty(), "{key}: {json:#}");
    }
    assert!(json["missing"][0]["id"].is_string(), "{json:#}");
    let project = world.project.to_str().unwrap();
    let entry = json["access_map"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["at"] == project)
        .unwrap_or_else(|| panic!("no entry for the project: {json:#}"));
    assert_eq!(entry["permission"], "Write", "{json:#}");
    let text = world.call(words.iter().chain(&["true"])).run();
    assert_eq!(text.code, 0, "{text}");
    for part in [
        "jail         landlock",
        "\nrules of Landlock",
        "\naccess map",
    ] {
        assert!(text.out().contains(part), "{part}: {text}");
    }
    let bwrap = world.call(["--dry-run", "--json", "true"]).run().json();
    assert_eq!(bwrap["backend"], "bwrap");
}

#[test]
fn the_sessions_directory_goes_with_everything_in_it() {
    let world = world();
    let script = "echo $TMPDIR; cd $TMPDIR && mkdir -p a/b && touch a/b/c && chmod 000 a/b a && ln -s / link";
    let output = fenced(&world, &["sh", "-c", script]).run();
    assert_eq!(output.code, 0, "{output}");
    let tmp = output.out();
    let tmp = Path::new(tmp.trim());
    assert!(tmp.is_absolute(), "{output}");
    assert!(
        fs::symlink_metadata(tmp.parent().unwrap()).is_err(),
        "{output}"
    );
}

#[test]
fn nothing_outlives_the_command() {
    let world = world();
    let script = "setsid sleep 1000 >/dev/null 2>&1 </dev/null & \
        (setsid sh -c 'sleep 1000 & wait' >/dev/null 2>&1 </dev/null &); echo $!";
    let output = fenced(&world, &["sh", "-c", script]).run();
    assert_eq!(output.code, 0, "{output}");
    let pid = output.out().trim().to_owned();
    assert!(!Path::new("/proc").join(&pid).exists(), "{output}");
}

#[test]
fn a_launcher_that_is_killed_takes_its_jail_along_and_the_next_one_cleans_up() {
    let world = world();
    let place = world.project.join("place");
    let script = "echo $$ $TMPDIR > place; exec sleep 1000";
    let mut launcher = fenced(&world, &["sh", "-c", script]).start();
    until("the start", || {
        fs::read_to_string(&place).is_ok_and(|text| text.ends_with('\n'))
    });
    let text = fs::read_to_string(&place).unwrap();
    let (pid, tmp) = text.trim().split_once(' ').unwrap();
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    until("the end of the command", || {
        !Path::new("/proc").join(pid).exists()
    });
    until("the end of what was left", || {
        fenced(&world, &["true"]).run();
        fs::symlink_metadata(Path::new(tmp).parent().unwrap()).is_err()
    });
}

#[test]
fn exit_codes_are_the_same() {
    let world = world();
    for (words, code) in [
        (&["sh", "-c", "exit 3"][..], 3),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["./main.c"], 126),
        (&["no-such-command"], 127),
    ] {
        let output = fenced(&world, words).run();
        assert_eq!(output.code, code, "{words:?}: {output}");
    }
}

#[test]
fn streams_lead_where_they_led() {
    let world = world();
    let script = "cat; echo err >&2";
    let output = fenced(&world, &["sh", "-c", script]).input("in\n").run();
    assert_eq!(output.out(), "in\n", "{output}");
    assert_eq!(output.err(), "err\n", "{output}");
    let input = world.write("home/project/input", "from a file\n");
    let call = fenced(&world, &["cat"]).by([
        "sh".as_ref(),
        "-c".as_ref(),
        "exec \"$@\" < \"$0\"".as_ref(),
        input.as_os_str(),
    ]);
    assert_eq!(call.run().out(), "from a file\n");
}

#[test]
fn a_shell_on_a_terminal_has_its_jobs() {
    let world = world();
    let words = ["bash", "--noprofile", "--norc", "--noediting", "-i"];
    let call = fenced(&world, &words).variable("PS1", "(jail) ");
    let mut terminal = Terminal::start(&call.command());
    terminal.expect("(jail) ");
    terminal.line("sh -c 'echo started; sleep 100; echo over'");
    terminal.expect("\nstarted\r\n");
    terminal.suspend();
    terminal.expect("Stopped");
    terminal.expect("(jail) ");
    terminal.line("jobs | grep -c sleep; fg");
    terminal.expect("\n1\r\n");
    terminal.interrupt();
    terminal.expect("(jail) ");
    terminal.line("exit 4");
    assert_eq!(terminal.end(), 4);
}

/// A node without bubblewrap: root's files are nobody's in there, and a bubblewrap that is not root's is
/// none. So are root's directories, in which the session's would be; one is given.
fn node_without_bubblewrap() -> Vec<String> {
    outer(&["--tmpfs", "/dev/shm"])
}

/// Multiplexers and agents start shells on terminals of their own.
#[test]
fn new_terminals_can_be_had() {
    let world = world();
    let script = "script -qec 'tty && test -t 1 && exit 6' /dev/null";
    let output = fenced(&world, &["sh", "-c", script]).run();
    assert!(output.out().starts_with("/dev/pts/"), "{output}");
    assert_eq!(output.code, 6, "{output}");
}

#[test]
fn it_takes_the_place_of_a_bubblewrap_that_is_not_there() {
    let world = world();
    let call = world.call(["sh", "-c", "echo out; exit 7"]);
    let output = call.by(node_without_bubblewrap()).run();
    assert_eq!(
        (output.code, output.out().as_str()),
        (7, "out\n"),
        "{output}"
    );
    assert!(differences(&output.err()) > 0, "{output}");
    let quiet = world.quiet(["true"]).by(node_without_bubblewrap()).run();
    assert_eq!((quiet.code, quiet.err().as_str()), (0, ""), "{quiet}");
    let why = "Landlock makes the jail, for bubblewrap cannot work here (bubblewrap (bwrap) is not installed: ";
    for words in [
        &["explain", "--backend"][..],
        &["-q", "agent-sandbox", "explain", "--backend"],
    ] {
        let asked = world.call(words).by(node_without_bubblewrap()).run();
        assert!(asked.out().starts_with(why), "{asked}");
    }
    let verbose = world
        .call(["-v", "true"])
        .by(node_without_bubblewrap())
        .run();
    let line = "agent-sandbox: bubblewrap cannot work here (bubblewrap (bwrap) is not installed: ";
    assert!(verbose.err().contains(line), "{verbose}");
}

#[test]
fn the_reasons_against_both_are_said() {
    let world = World::new();
    world.policy("[jail]\nusers = \"filtered\"\n");
    let output = world
        .call(["touch", "ran"])
        .by(node_without_bubblewrap())
        .run();
    assert_eq!((output.code, output.out().as_str()), (125, ""), "{output}");
    let err = output.err();
    let both = "error: bubblewrap cannot work here (bubblewrap (bwrap) is not installed: ";
    assert!(err.contains(both), "{output}");
    let other = "and Landlock cannot make the jail: a jail that Landlock makes cannot give";
    assert!(err.contains(other), "{output}");
    for hint in [
        "hint: admin: install the package `bubblewrap`",
        "landlock.users=degraded",
    ] {
        assert!(err.contains(hint), "{hint}: {output}");
    }
    assert!(!world.project.join("ran").exists());
}

/// A node on which users may make no user namespaces.
#[test]
fn it_takes_the_place_of_a_bubblewrap_that_cannot_work() {
    let world = world();
    let mut command = world.call(["sh", "-c", "echo out; exit 7"]).command();
    without_user_namespaces(&mut command);
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
    assert_eq!(output.stdout, b"out\n", "{err}");
    assert!(differences(&err) > 0, "{err}");
}

/// Has the kernel refuse user namespaces to a command, as container runtimes do.
#[allow(unsafe_code)]
fn without_user_namespaces(command: &mut std::process::Command) {
    const CLONE_NEWUSER: u32 = libc::CLONE_NEWUSER as u32;
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let jump = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let has = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let errno = |number: i32| libc::SECCOMP_RET_ERRNO | number as u32;
    let program = vec![
        // The call's number, then the low half of its first argument (struct seccomp_data).
        statement(load, 0),
        jump(equals, libc::SYS_clone3 as u32, 6, 0),
        jump(equals, libc::SYS_clone as u32, 1, 0),
        jump(equals, libc::SYS_unshare as u32, 0, 3),
        statement(load, 16),
        jump(has, CLONE_NEWUSER, 0, 1),
        statement(answer, errno(libc::EPERM)),
        statement(answer, libc::SECCOMP_RET_ALLOW),
        statement(answer, errno(libc::ENOSYS)),
    ];
    // SAFETY: the closure makes two system calls between fork and exec and allocates nothing; the
    // program that it points to lives in `program`, which it owns.
    unsafe {
        command.pre_exec(move || {
            let filter = libc::sock_fprog {
                len: program.len() as u16,
                filter: program.as_ptr().cast_mut(),
            };
            let installed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0;
            if installed {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
}

/// Rules of Landlock are about objects, wherever they are by now.
#[test]
fn what_the_user_moves_out_of_the_project_is_changed_no_more() {
    let world = world();
    let project = world.project.display().to_string();
    fs::write(world.project.join("tool"), "#!/bin/sh\n").unwrap();
    fs::create_dir_all(world.home.join("out")).unwrap();
    fs::create_dir_all(world.project.join("build")).unwrap();
    let out = world.home.join("out");
    let at = out.display();
    let script = format!(
        "touch ready; until [ -e go ]; do sleep 0.05; done
         echo evil >> {at}/tool && echo written; echo evil >> /proc/self/root{at}/tool && echo by root; echo evil > /proc/self/cwd/../../out/tool && echo by cwd; echo evil > {at}/build/new && echo made; ln {at}/tool again && echo linked
         mv {at}/tool {at}/other && echo renamed; rm -f {at}/tool && [ ! -e {at}/tool ] && echo removed
         mkdir {at}/build/d && echo directory; truncate -s 0 {at}/tool && echo shortened; cd {project} && echo fine > file && cat file"
    );
    let mut child = fenced(&world, &["sh", "-c", &script]).start();
    until("the command", || world.project.join("ready").exists());
    for name in ["tool", "build"] {
        fs::rename(world.project.join(name), out.join(name)).unwrap();
    }
    fs::write(world.project.join("go"), "").unwrap();
    let mut said = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    crate::world::wait(&mut child, "the end");
    assert_eq!(said, "fine\n");
    assert_eq!(fs::read_to_string(out.join("tool")).unwrap(), "#!/bin/sh\n");
    assert_eq!(fs::read_dir(out.join("build")).unwrap().count(), 0);
}

/// A shell that has children may become the launcher.
#[test]
fn what_the_launcher_did_not_start_it_does_not_end() {
    let world = world();
    let script = "sleep 60 > /dev/null 2>&1 & echo $!; exec \"$@\" > /dev/null";
    let output = fenced(&world, &["true"])
        .by(["bash", "-c", script, "bash"])
        .run();
    let number: i32 = output.out().trim().parse().unwrap();
    let killed = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(number),
        nix::sys::signal::Signal::SIGKILL,
    );
    assert_eq!((output.code, killed), (0, Ok(())), "{output}");
}

/// A process that made itself untraceable would be one that the mediator neither judges nor ends.
#[test]
fn a_proc_that_hides_processes_is_refused() {
    let world = World::new();
    let call = world.call(["-q", "--backend", "landlock", "touch", "started"]);
    let plain = call.command();
    let ids = (nix::unistd::getuid(), nix::unistd::getgid());
    let mounts = "mount -o remount,hidepid=2 /proc || exit 90; exec \"$@\"";
    let variables = plain.get_envs();
    let output = Command::new("unshare")
        .args([
            "-Urpf",
            "--mount-proc",
            "sh",
            "-c",
            mounts,
            "sh",
            "unshare",
            "-U",
        ])
        .arg(format!("--map-user={}", ids.0))
        .arg(format!("--map-group={}", ids.1))
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(plain.get_current_dir().unwrap())
        .env_clear()
        .envs(variables.filter_map(|(name, value)| Some((name, value?))))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    if matches!(output.status.code(), Some(1 | 90)) {
        return not_checked("a /proc with hidepid", &err);
    }
    assert_eq!(output.status.code(), Some(125), "{err}");
    assert!(
        err.contains("error: /proc is mounted with hidepid"),
        "{err}"
    );
    assert!(!world.project.join("started").exists());
}
