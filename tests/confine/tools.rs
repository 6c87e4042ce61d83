//! The tools of a working day, in the jail as without it: each script runs to its end in a directory
//! outside and in the project inside. What a jail breaks, nobody uses.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use agent_sandbox_support::terminal::Terminal;

use crate::backend::launcher_words;
use crate::world::{World, not_checked};

/// The last word of a script that ran to its end.
const DONE: &str = "all of it works";

/// Whether the commands are there; what is missing is said.
fn has(world: &World, what: &str, commands: &[&str]) -> bool {
    let missing = commands.iter().find(|command| {
        let found = world
            .outside()
            .run(&["sh", "-c", &format!("command -v {command}")]);
        found.code() != 0
    });
    if let Some(missing) = missing {
        not_checked(what, &format!("there is no {missing}"));
    }
    missing.is_none()
}

/// Runs a script outside, in a directory of its own, and then in the project inside.
fn works(world: &World, what: &str, commands: &[&str], script: &str) {
    if !has(world, what, commands) {
        return;
    }
    let script = format!("set -eu; {script}\necho {DONE}");
    let outside = world.outer("outside");
    fs::create_dir_all(&outside).unwrap();
    let plain = world.outside().cwd(&outside).run(&["bash", "-c", &script]);
    assert_eq!(plain.code(), 0, "outside: {plain:?}");
    let output = world.jail([]).run(&["bash", "-c", &script]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(output.stdout.contains(DONE), "{output:?}");
}

/// A history, in the directory `$1` or here.
const GIT: &str = r#"
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    [ -d .git ] || git init -q -b main
    git symbolic-ref HEAD refs/heads/main
    echo one > file; git add file; git commit -q -m one
    git checkout -q -b topic; echo two >> file; mkdir -p sub/deep; echo new > sub/deep/new
    git add -A; git commit -q -m two
    git checkout -q main; echo other > other; git add other; git commit -q -m three
    git merge -q --no-edit topic
    git checkout -q -b rebased HEAD~1; echo more > more; git add more; git commit -q -m four
    git rebase -q main
    echo dirty >> file; git stash -q; git stash pop -q; git checkout -q -- file
    git mv more moved; git commit -q -m five
    git rm -q moved; git commit -q -m six
    git tag v1; git branch -q renamed; git branch -q -D renamed
    git gc -q --prune=now; git repack -q -a -d
    git worktree add -q wt main~0 --detach; git -C wt status --short; (cd wt; echo x > x; git add x; git commit -q -m seven)
    git worktree remove --force wt
    git clone -q . copy; git -C copy log --oneline | grep -q six; git fetch -q ./copy
    rm -rf copy; git reset -q --hard HEAD~1; git clean -qfd
    git fsck --strict; test -z "$(git status --short)"
"#;

#[test]
fn git_works_in_a_new_repository() {
    works(&World::new(), "git", &["git"], GIT);
}

/// A repository that was there before: its configuration and hooks are closed, all else is work.
#[test]
fn git_works_in_a_repository_whose_hooks_stay() {
    let world = World::new();
    let git = |words: &[&str]| {
        let output = world.outside().run(&[&["git"], words].concat());
        assert_eq!(output.code(), 0, "{output:?}");
    };
    git(&["init", "-q", "-b", "main"]);
    let hook = world.project(".git/hooks/post-commit");
    world.put(&hook, "#!/bin/sh\necho hook >> .git/hooks.log\n");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(world.project("README")).unwrap();
    let before = fs::read_to_string(world.project(".git/config")).unwrap();
    works(&world, "git", &["git"], GIT);
    assert_eq!(
        fs::read_to_string(world.project(".git/config")).unwrap(),
        before
    );
    let refused = world
        .jail([])
        .run(&["sh", "-c", "echo evil >> .git/hooks/post-commit"]);
    assert_ne!(refused.code(), 0, "{refused:?}");
    git(&["fsck", "--strict"]);
}

/// A build directory that did not exist when the jail began, beside the sources.
const BUILD: &str = r#"
    mkdir -p src; printf 'int seven(void);\nint main(void) { return seven() * 6 - 42; }\n' > src/main.c
    printf 'int seven(void) { return 7; }\n' > src/seven.c
    printf '%s\n' 'all: build/program' 'build/%.o: src/%.c | build' '\tcc -g -c -o $@ $<' \
        'build:' '\tmkdir -p $@' 'build/libseven.a: build/seven.o' '\tar rcs $@ $^' \
        'build/program: build/main.o build/libseven.a' '\tcc -o $@ $^' \
        'install: all' '\tinstall -d prefix/bin; install -m 755 build/program prefix/bin/' |
        sed 's/^\\t/\t/' > Makefile
    make -s; ./build/program
    sleep 0.01; touch src/main.c; make -s; make -s -j2 install; ./prefix/bin/program
    test "$(stat -c %a prefix/bin/program)" = 755
    cc -pipe -shared -fPIC -o libx.so src/seven.c; cc -o direct src/main.c -L. -lx -Wl,-rpath,. && ./direct
    mkdir out; cp -a prefix out/; tar cf out.tar out; rm -r out; tar xpf out.tar; test -x out/prefix/bin/program
    mv out out2; ln -s out2 link; ln src/main.c hard.c; rm -r link/prefix; sed -i s/42/42/ src/main.c
    chmod 700 out2; chmod +x hard.c; touch -d 2001-02-03 hard.c; test "$(stat -c %y hard.c | cut -c1-10)" = 2001-02-03
"#;

#[test]
fn a_compiler_and_make_work_in_a_new_directory() {
    works(&World::new(), "gcc and make", &["cc", "make"], BUILD);
}

/// The same where the project has something closed in it.
#[test]
fn a_compiler_and_make_work_beside_a_repository() {
    let world = World::new();
    let made = world.outside().run(&["git", "init", "-q"]);
    assert_eq!(made.code(), 0, "{made:?}");
    works(&world, "gcc and make", &["cc", "make"], BUILD);
}

/// An environment of Python's, and a package that is installed into it from a file. With the host's
/// pip: to install another one takes longer than all else here.
const PYTHON: &str = r#"
    python3 -m venv --without-pip --system-site-packages env
    python3 - <<'end'
import zipfile
meta = "small-1.0.dist-info/"
files = {
    "small.py": "def main():\n    print('small', 6 * 7)\n",
    meta + "METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
    meta + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    meta + "entry_points.txt": "[console_scripts]\nsmall = small:main\n",
}
with zipfile.ZipFile("small-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
    wheel.writestr(meta + "RECORD", "".join(f"{n},,\n" for n in [*files, meta + "RECORD"]))
end
    . env/bin/activate
    python -m pip install -q --no-index --disable-pip-version-check ./small-1.0-py3-none-any.whl
    test "$(small)" = "small 42"
    python -m pip uninstall -q -y small; python -m compileall -q env/lib > /dev/null; rm -r env
"#;

#[test]
fn a_python_environment_and_pip_work() {
    let world = World::new();
    if has(&world, "venv and pip", &["python3"]) {
        let found = world.outside().run(&["python3", "-c", "import venv, pip"]);
        if found.code() != 0 {
            return not_checked("venv and pip", "this python3 has no pip");
        }
        works(&world, "venv and pip", &[], PYTHON);
    }
}

/// Processes that talk by pipes, shared memory, semaphores and sockets, by each way to start them.
const PROCESSES: &str = r#"
    cat > work.py <<'end'
import multiprocessing as mp, os, tempfile
from multiprocessing import shared_memory
def square(x):
    return x * x
def add(lock, value, queue):
    with lock:
        value.value += 1
    queue.put(os.getpid())
def main():
    for way in ["fork", "spawn", "forkserver"]:
        context = mp.get_context(way)
        with context.Pool(2) as pool:
            assert pool.map(square, range(20)) == [x * x for x in range(20)]
        lock, value, queue = context.Lock(), context.Value("i", 0), context.Queue()
        many = [context.Process(target=add, args=(lock, value, queue)) for _ in range(3)]
        [p.start() for p in many]; [queue.get() for _ in many]; [p.join() for p in many]
        assert value.value == 3
        with context.Manager() as manager:
            shared = manager.dict(); shared["a"] = 1
            assert dict(shared) == {"a": 1}
    block = shared_memory.SharedMemory(create=True, size=4096)
    again = shared_memory.SharedMemory(name=block.name)
    block.buf[0] = 42
    assert again.buf[0] == 42
    again.close(); block.close(); block.unlink()
    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as directory:
        assert os.path.dirname(file.name) == os.path.dirname(directory) == tempfile.gettempdir()
if __name__ == "__main__":
    main()
end
    python3 work.py
"#;

#[test]
fn pythons_processes_work_together() {
    let what = "multiprocessing";
    works(&World::new(), what, &["python3"], PROCESSES);
}

/// A package from a directory, with a program of its own.
const NODE: &str = r#"
    export npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
    mkdir -p dep; printf '{"name":"dep","version":"1.0.0","bin":{"dep":"cli.js"}}' > dep/package.json
    printf '#!/usr/bin/env node\nconsole.log("dep", 6 * 7)\n' > dep/cli.js
    printf '{"name":"app","version":"1.0.0","scripts":{"go":"dep"}}' > package.json
    npm install --offline --silent --install-links ./dep
    test "$(npm run --silent go)" = "dep 42"
    node -e 'const fs = require("fs"), os = require("os"); const d = fs.mkdtempSync(os.tmpdir() + "/x");
        const net = require("net"); const s = net.createServer(c => c.end("hi")).listen(d + "/s", () =>
        net.connect(d + "/s").on("data", b => { console.log(String(b)); s.close(); fs.rmSync(d, {recursive: true}); }))' |
        grep -qx hi
    rm -rf node_modules
"#;

#[test]
fn node_and_npm_work() {
    works(&World::new(), "node and npm", &["node", "npm"], NODE);
}

/// What scripts do all the time.
const SHELL: &str = r#"
    file=$(mktemp); echo x > "$file"; rm "$file"; dir=$(mktemp -d); mkfifo "$dir/fifo"
    (echo through > "$dir/fifo" &); test "$(cat "$dir/fifo")" = through; rm -r "$dir"
    here=$(cat <<'end'
text
end
    ); test "$here" = text; test "$(cat <(echo a) <(echo b) | tr -d '\n')" = ab
    echo x > /dev/null; head -c 10 /dev/urandom | wc -c | grep -qx 10; : > /dev/shm/tool.$$; rm /dev/shm/tool.$$
    (umask 077; echo x > private); test "$(stat -c %a private)" = 600; (umask 002; mkdir open); test "$(stat -c %a open)" = 775
    exec 9> lock; flock -n 9; flock -n lock true && exit 1; exec 9>&-
    (trap 'echo ended > ended; exit' TERM; echo > ready; while :; do sleep 0.01; done) &
    until test -e ready; do sleep 0.01; done; kill -TERM $!; wait || :; test -s ended
    sleep 30 & kill -KILL %1; sort -S 1M -T "${TMPDIR:-/tmp}" < /dev/null; touch ~/mine; rm ~/mine; timeout 5 true; nohup true 2>/dev/null
    find . -newer private > list; xargs -0 -r ls < /dev/null; truncate -s 1M big; dd if=/dev/zero of=big bs=4k count=4 conv=notrunc status=none
    fallocate -l 1M fell; cp --reflink=auto --preserve=all big big2; cmp big big2; rm -rf private open lock big* fell ended ready list
"#;

#[test]
fn a_shells_script_works() {
    works(&World::new(), "a script", &["bash"], SHELL);
}

/// The same where the project has something closed in it.
#[test]
fn a_shells_script_works_beside_a_repository() {
    let world = World::new();
    let made = world.outside().run(&["git", "init", "-q"]);
    assert_eq!(made.code(), 0, "{made:?}");
    works(&world, "a script", &["bash"], SHELL);
}

/// A shell with job control inside the jail: ^C ends a command and not the shell, ^Z stops it, `fg`
/// and `bg` go on with it.
#[test]
fn a_shell_has_job_control() {
    let world = World::new();
    let words = launcher_words(&["-q", "--env", "PS1=(inner) ", "--"]);
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(["bash", "--noprofile", "--norc", "--noediting", "-i"])
        .env("HOME", world.home(""))
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("TERM", "xterm")
        .current_dir(world.project(""));
    let mut terminal = Terminal::start(&command);
    terminal.expect("(inner) ");
    terminal.line("sleep 60; echo \"after\" $?");
    terminal.interrupt();
    terminal.line("echo \"still\" here");
    terminal.expect("still here");
    terminal.line("sleep 60");
    terminal.suspend();
    terminal.expect("Stopped");
    terminal.line("jobs -l | grep -c \"Stop\"ped");
    terminal.expect("1");
    terminal.line("bg; jobs");
    terminal.expect("Running");
    terminal.line("fg");
    terminal.expect("sleep 60");
    terminal.interrupt();
    terminal.line("echo \"code\" $?");
    terminal.expect("code 130");
    terminal.resize(31, 97);
    terminal.line("stty size; tty > /dev/null && echo \"a tt\"y; cat /dev/tty & wait; kill %%");
    terminal.expect("31 97");
    terminal.expect("a tty");
    terminal.line("exit 7");
    terminal.line("exit 7");
    assert_eq!(terminal.end(), 7);
}
