//! The work goes on: compilers, interpreters, modules, names of hosts and users.

use std::fs;
use std::time::{Duration, Instant};

use crate::world::{World, has, not_checked};

#[test]
fn compile_and_run_c() {
    if !has("gcc") {
        return not_checked("a compiler inside", "gcc is not installed");
    }
    let world = World::new();
    world.write(
        "home/project/hello.c",
        "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n",
    );
    world
        .sh("gcc -Wall -o hello hello.c && ./hello")
        .run()
        .expect(0, "hello\n", "");
}

#[test]
fn run_python() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return not_checked("python inside", "/usr/bin/python3 is not there");
    }
    let world = World::new();
    let script = "import os, subprocess, tempfile\nwith tempfile.TemporaryDirectory() as d: print(os.path.isdir(d))\nprint(subprocess.run(['echo', 'x'], capture_output=True).stdout)";
    world
        .quiet(["/usr/bin/python3", "-c", script])
        .run()
        .expect(0, "True\nb'x\\n'\n", "");
}

#[test]
fn git_works() {
    if !has("git") {
        return not_checked("git inside", "git is not installed");
    }
    let world = World::new();
    let script = "git init -q . && git add main.c && git -c user.email=a@b commit -qm first && git log --format='%an %s'";
    world.sh(script).run().expect(0, "Ada first\n", "");
    // The next session finds hooks and configuration, and may not change them.
    let script = "git -c user.email=a@b commit -q --allow-empty -m second && git log --format=%s | head -n 1; \
        git config x.y z 2> /dev/null || echo config kept; (echo x > .git/hooks/post-checkout) 2> /dev/null || echo hooks kept";
    world
        .sh(script)
        .run()
        .expect(0, "second\nconfig kept\nhooks kept\n", "");
}

#[test]
fn a_git_worktree_works() {
    if !has("git") {
        return not_checked("git worktrees inside", "git is not installed");
    }
    let world = World::new();
    let setup = "cd ~ && git init -q repo && cd repo && git -c user.email=a@b commit -q --allow-empty -m first && git worktree add -q ../tree";
    let mut command = world.sh("true").by(["true"]).command();
    drop(command.output());
    let made = std::process::Command::new("sh")
        .args(["-c", setup])
        .envs(world.environment())
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let script = "git -c user.email=a@b commit -q --allow-empty -m second && git log --format=%s && git -C ~/repo status 2> /dev/null || echo no other tree";
    let output = world.sh(script).cwd(world.home.join("tree")).run();
    assert!(output.out().starts_with("second\nfirst\n"), "{output}");
}

#[test]
fn names_of_hosts_and_users() {
    let world = World::new();
    let user = nix::unistd::User::from_uid(nix::unistd::getuid())
        .unwrap()
        .unwrap();
    let output = world
        .sh("id -un; id -gn; getent passwd | cut -d: -f1,3")
        .run();
    assert_eq!(output.code, 0, "{output}");
    let text = output.out();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(user.name.as_str()));
    for line in lines.skip(1) {
        let (name, id) = line.split_once(':').unwrap();
        let id: u32 = id.parse().unwrap();
        assert!(
            name == user.name || id < 1000 || id == 65534,
            "another user: {line}"
        );
    }
    let hosts = world.sh("getent hosts localhost").run();
    assert!(
        hosts.code == 0 && hosts.out().contains("localhost"),
        "{hosts}"
    );
}

const LMOD: [&str; 2] = [
    "/usr/share/lmod/lmod/libexec/lmod",
    "/opt/apps/lmod/lmod/libexec/lmod",
];

#[test]
fn modules_are_loaded() {
    if !LMOD.iter().any(|path| std::path::Path::new(path).exists()) {
        return not_checked("modules.load", "Lmod is not installed");
    }
    let world = World::new();
    world.write(
        "modules/demo/1.0.lua",
        "setenv(\"DEMO_ROOT\", \"/opt/demo\")\nprepend_path(\"PATH\", \"/usr/lib/demo/bin\")\nsetenv(\"DEMO_TOKEN\", \"x\")\n",
    );
    world.write(
        "modules/broken/1.0.lua",
        "error(\"this module is broken\")\n",
    );
    let modules = world.place.join("modules");
    let load = |names: &str, script: &str| {
        let set = format!("modules.load=[{names}]");
        world
            .call(["-q", "--set", &set, "sh", "-c", script])
            .variable("MODULEPATH", &modules)
            .run()
    };
    load(
        "\"demo/1.0\"",
        "echo $DEMO_ROOT; echo $PATH; echo ${DEMO_TOKEN-hidden}; echo $LOADEDMODULES",
    )
    .expect(
        0,
        "/opt/demo\n/usr/lib/demo/bin:/usr/local/bin:/usr/bin:/bin:/run/agent-sandbox/bin\nhidden\ndemo/1.0\n",
        "",
    );
    load("\"demo\"", "echo $DEMO_ROOT").expect(0, "/opt/demo\n", "");
    load("\"demo\", \"nonsense/9\"", "true").expect(
        125,
        "",
        "error: module `nonsense/9` (--set modules.load) could not be loaded: [..]nonsense/9[..]\n",
    );
    load("\"broken\"", "true").expect(
        125,
        "",
        "error: module `broken` (--set modules.load) could not be loaded: [..]\n",
    );
    load("\"x; id\"", "true").expect(
        125,
        "",
        "error: --set modules.load: `x; id` is not a module name\n...\n",
    );
}

/// A path that does not answer costs a bounded wait, and is named. It is a FUSE file system that
/// nobody serves, in namespaces of its own.
#[test]
fn a_file_system_that_hangs() {
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        return not_checked(
            "a file system that hangs",
            "/dev/fuse cannot be opened by this user",
        );
    }
    let world = World::new();
    fs::create_dir(world.place.join("hung")).unwrap();
    let mount = "exec 9<> /dev/fuse && mount -i -t fuse -o fd=9,rootmode=40000,user_id=$(id -u),group_id=$(id -g) none \"$0\" || exit 99; exec setpriv --inh-caps=-all --ambient-caps=-all -- \"$@\"";
    let hung = world.place.join("hung");
    let by = [
        "unshare",
        "--user",
        "--map-current-user",
        "--keep-caps",
        "--mount",
        "bash",
        "-c",
        mount,
        hung.to_str().unwrap(),
    ];
    let begin = Instant::now();
    let output = world
        .call([
            // There is no directory of root's in there for a session of Landlock's.
            "--backend",
            "bwrap",
            "--set",
            "files.timeout_ms=300",
            "--read",
            hung.to_str().unwrap(),
            "--dry-run",
            "true",
        ])
        .by(by)
        .run();
    if output.code == 99 {
        return not_checked(
            "a file system that hangs",
            &format!("no FUSE mount in a user namespace: {}", output.err().trim()),
        );
    }
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
    assert!(
        output
            .out()
            .contains("/hung: it did not answer within 300 ms"),
        "{output}"
    );
}

/// Big enough for real work, and limited.
#[test]
fn limits_hold() {
    let world = World::new();
    let output = world
        .call([
            "-q",
            "--set",
            "jail.tmp_size=1M",
            "sh",
            "-c",
            "dd if=/dev/zero of=/tmp/x bs=1M count=2 2>&1 | grep -c 'No space'",
        ])
        .run();
    output.expect(0, "1\n", "");
    let output = world
        .call([
            "-q",
            "--set",
            "jail.max_processes=77",
            "sh",
            "-c",
            "ulimit -u",
        ])
        .by(["bash", "-c", "exec \"$@\"", "bash"])
        .run();
    if output.code == 0 {
        output.expect(0, "77\n", "");
    } else {
        // dash knows no `ulimit -u`.
        let output = world
            .call([
                "-q",
                "--set",
                "jail.max_processes=77",
                "bash",
                "-c",
                "ulimit -u",
            ])
            .run();
        output.expect(0, "77\n", "");
    }
}

#[test]
fn an_isolated_network_has_a_loopback_alone() {
    let world = World::new();
    let output = world
        .call([
            "-q",
            "--set",
            "network.mode=isolated",
            "sh",
            "-c",
            "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '",
        ])
        .run();
    output.expect(0, "lo\n", "");
}
