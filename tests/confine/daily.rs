//! A working day with programs as Debian has them: git with its remotes and worktrees, gh, pagers and an
//! editor at a terminal, modules, MPI. What does not work has to say why.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use agent_sandbox_support::terminal::Terminal;

use crate::backend::{is_landlock, launcher_words};
use crate::world::{Output, World, not_checked};

/// Whether a program is installed; what is missing is said.
fn has(program: &str) -> bool {
    let directories = ["/usr/local/bin", "/usr/bin", "/bin"];
    let found = directories
        .iter()
        .any(|at| Path::new(at).join(program).exists());
    if !found {
        not_checked(program, "it is not installed");
    }
    found
}

/// A shell's script in the project, inside.
fn inside(world: &World, script: &str) -> Output {
    world.jail([]).run(&["sh", "-c", script])
}

/// git outside, as the user runs it.
fn git(world: &World, directory: &Path, words: &[&str]) -> String {
    let words = [&["git"], words].concat();
    let output = world.outside().cwd(directory).run(&words);
    assert_eq!(output.code(), 0, "{words:?}: {output:?}");
    output.stdout
}

/// A repository with a commit.
fn repository(world: &World, directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    git(world, directory, &["init", "-q", "-b", "main"]);
    git(
        world,
        directory,
        &["commit", "-q", "--allow-empty", "-m", "first"],
    );
}

/// What git says of a remote that is reached over ssh.
const REMOTE: &str = "git cannot reach `git@example.invalid` over ssh from inside the jail: the user's ssh keys and \
                      ssh-agent stay outside\n";

#[test]
fn git_says_why_it_reaches_no_remote_over_ssh() {
    let world = World::new();
    for address in [
        "git@example.invalid:a/b.git",
        "ssh://git@example.invalid:2222/a/b.git",
    ] {
        let output = world.jail([]).run(&["git", "ls-remote", address]);
        assert_eq!(output.code(), 128, "{output:?}");
        let said = &output.stderr;
        assert_eq!(said.matches(REMOTE).count(), 1, "{said}");
        assert!(
            said.contains("\nhint: commit here, and let the user push"),
            "{said}"
        );
        assert!(said.contains("--env NAME"), "{said}");
        // Nothing was tried: no name was looked up, and nobody asked for a password.
        assert!(
            !said.contains("resolve") && !said.contains("denied"),
            "{said}"
        );
    }
    let output = inside(&world, "$GIT_SSH -p 22 git@example.invalid git-upload-pack");
    assert_eq!(output.code(), 255, "{output:?}");
    assert!(output.stderr.contains(REMOTE), "{output:?}");
}

/// Whoever says how git is to log in, or gives keys, is not contradicted.
#[test]
fn a_way_of_ones_own_to_a_remote_is_kept() {
    let world = World::new();
    let remote = ["git", "ls-remote", "git@example.invalid:a/b.git"];
    let own = "sh -c 'echo my own way >&2; false'";
    let by_variable = world.jail([]).env("GIT_SSH_COMMAND", own).run(&remote);
    let config = format!("[core]\n\tsshCommand = {own}\n");
    world.put(&world.home(".gitconfig"), &config);
    let by_setting = world.jail([]).run(&remote);
    for output in [by_variable, by_setting] {
        assert!(output.stderr.contains("my own way"), "{output:?}");
        assert!(
            !output.stderr.contains("from inside the jail"),
            "{output:?}"
        );
    }
    let shown = ["sh", "-c", "echo \"[$GIT_SSH]\""];
    let agent = world.jail(["--env", "SSH_AUTH_SOCK"]);
    let output = agent.env("SSH_AUTH_SOCK", "/nonexistent").run(&shown);
    assert_eq!(output.stdout, "[]\n", "{output:?}");
    let keys = world.jail(["--set", "files.unhide=[\"~/.ssh\"]"]);
    let output = keys.run(&shown);
    assert_eq!(output.stdout, "[]\n", "{output:?}");
    let output = world.jail([]).env("GIT_SSH", "/bin/own").run(&shown);
    assert_eq!(output.stdout, "[/bin/own]\n", "{output:?}");
}

/// A key for one repository, as the guide has it. Root's files belong to nobody inside, and ssh refuses them.
#[test]
fn a_key_of_ones_own_is_used_by_git() {
    let world = World::new();
    world.put(&world.home("keys/genomes/id"), "not a key\n");
    fs::set_permissions(
        world.home("keys/genomes/id"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    let guide = include_str!("../../docs/guide/git-ssh.md");
    let (_, recipe) = guide.split_once("GIT_SSH_COMMAND = \"").unwrap();
    let (recipe, _) = recipe.split_once('"').unwrap();
    assert!(recipe.contains("~/keys/genomes/id"), "{recipe}");
    let policy = format!(
        "[home]\nread = [\"~/keys/genomes\"]\n[env]\nset = {{ GIT_SSH_COMMAND = \"{recipe}\" }}\n"
    );
    world.put(&world.home(".config/agent-sandbox/config.toml"), &policy);
    let output = inside(&world, "git ls-remote git@example.invalid:a/b.git");
    assert!(
        output.stderr.contains("resolve hostname") && !output.stderr.contains("Bad owner"),
        "{output:?}"
    );
    let output = inside(&world, "$GIT_SSH_COMMAND -G example.invalid");
    assert!(
        output.stdout.contains("/keys/genomes/known_hosts\n") && output.code() == 0,
        "{output:?}"
    );
}

/// The name under which somebody commits, wherever they keep it.
#[test]
fn commits_carry_the_users_name() {
    let world = World::new();
    fs::remove_file(world.home(".gitconfig")).unwrap();
    repository_without_commit(&world);
    // Under Landlock HOME is another directory, and a condition with `~` is about that one.
    let work = crate::operations::text(&world.outer(""));
    let settings = format!(
        "[user]\n\tname = Ada\n\temail = ada@home\n\
         [includeIf \"gitdir:{work}/\"]\n\tpath = ~/.gitconfig-work\n\
         [include]\n\tpath = aliases\n"
    );
    world.put(&world.home(".config/git/config"), &settings);
    world.put(
        &world.home(".config/git/aliases"),
        "[alias]\n\tnew = commit -q --allow-empty -m new\n",
    );
    world.put(
        &world.home(".gitconfig-work"),
        "[user]\n\temail = ada@work\n",
    );
    let output = inside(&world, "git new");
    assert_eq!(output.code(), 0, "{output:?}");
    let author = git(&world, &world.project(""), &["log", "--format=%an <%ae>"]);
    assert_eq!(author, "Ada <ada@work>\n");
}

fn repository_without_commit(world: &World) {
    git(world, &world.project(""), &["init", "-q", "-b", "main"]);
}

/// A worktree that lies elsewhere looks inside as if somebody had removed it. What git knows of it stays.
#[test]
fn worktrees_elsewhere_are_not_forgotten() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    let elsewhere = world.outer("elsewhere");
    let path = crate::operations::text(&elsewhere);
    git(
        &world,
        &project,
        &["worktree", "add", "-q", "-b", "topic", &path],
    );
    fs::write(elsewhere.join("staged"), "x").unwrap();
    git(&world, &elsewhere, &["add", "staged"]);
    let script = "git worktree prune; git gc -q --prune=now; git worktree list; \
                  for file in HEAD index gitdir commondir; do rm -f .git/worktrees/elsewhere/$file; done";
    inside(&world, script);
    let status = git(&world, &elsewhere, &["status", "--short", "--branch"]);
    assert_eq!(status, "## topic\nA  staged\n");
    // One that is given is worked in from there.
    let given = world.jail(["--write", &path]);
    let script = format!("cd '{path}' && git commit -q -m inside && git switch -q -c another");
    let output = given.run(&["sh", "-c", &script]);
    assert_eq!(output.code(), 0, "{output:?}");
    let status = git(&world, &elsewhere, &["status", "--short", "--branch"]);
    assert_eq!(status, "## another\n");
}

/// Made inside, in the project, and used outside; and a launch in one that was made outside.
#[test]
fn worktrees_are_made_and_used() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    let script = "git worktree add -q -b topic trees/topic && cd trees/topic && echo x > x && git add x && \
                  git commit -q -m inside";
    let output = inside(&world, script);
    assert_eq!(output.code(), 0, "{output:?}");
    let log = git(
        &world,
        &world.project("trees/topic"),
        &["log", "--format=%s"],
    );
    assert_eq!(log, "inside\nfirst\n");
    let linked = world.jail([]).cwd(&world.project("trees/topic"));
    let output = linked.run(&["git", "commit", "-q", "--allow-empty", "-m", "linked"]);
    assert_eq!(output.code(), 0, "{output:?}");
    let log = git(&world, &project, &["log", "-1", "--format=%s", "topic"]);
    assert_eq!(log, "linked\n");
    // What one session made it removes itself; what was there before stays in its place (see the guide).
    let script = "git worktree add -q -b short trees/short && git worktree remove trees/short && \
                  git worktree list | wc -l";
    let output = inside(&world, script);
    assert_eq!(output.stdout, "2\n", "{output:?}");
    git(&world, &project, &["worktree", "remove", "trees/topic"]);
}

/// gh has the token that is passed to it and no other, and says how it gets one.
#[test]
fn gh_has_the_token_that_is_passed() {
    if !has("gh") {
        return;
    }
    let world = World::new();
    let token = ["gh", "auth", "token"];
    let passed = world
        .jail(["--env", "GH_TOKEN"])
        .env("GH_TOKEN", "ghp_passed");
    assert_eq!(passed.run(&token).stdout, "ghp_passed\n");
    let output = world.jail([]).env("GH_TOKEN", "ghp_hidden").run(&token);
    assert_ne!(output.code(), 0, "{output:?}");
    assert!(!output.stdout.contains("ghp_"), "{output:?}");
    let output = world.jail([]).run(&["gh", "api", "user"]);
    assert_eq!(output.code(), 4, "{output:?}");
    assert!(output.stderr.contains("GH_TOKEN"), "{output:?}");
    let output = inside(
        &world,
        "ls ~/.config/gh; agent-sandbox explain --env GH_TOKEN",
    );
    assert!(!output.stdout.contains("hosts.yml"), "{output:?}");
    assert!(output.stdout.contains("GH_TOKEN: "), "{output:?}");
    // And lets git use it for https (gh-auth-setup-git(1)).
    let helper = "url=https://github.com/a/b\n";
    let script = format!(
        "printf '{helper}\\n' | git -c credential.helper='!gh auth git-credential' credential fill"
    );
    let passed = world.jail(["--env", "GH_TOKEN=ghp_passed"]);
    let output = passed.run(&["sh", "-c", &script]);
    assert!(
        output.stdout.contains("password=ghp_passed\n"),
        "{output:?}"
    );
}

/// The jail at a terminal of its own.
fn at_terminal(world: &World, words: &[&str]) -> Terminal {
    let launcher = launcher_words(&["-q", "--"]);
    let mut command = Command::new(&launcher[0]);
    command
        .args(&launcher[1..])
        .args(words)
        .env("HOME", world.home(""))
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("TERM", "xterm-256color")
        .current_dir(world.project(""));
    Terminal::start(&command)
}

#[test]
fn pagers_and_an_editor_work_at_a_terminal() {
    let world = World::new();
    let lines: String = (1..=200).map(|number| format!("line {number}\n")).collect();
    world.put(&world.project("long"), &lines);
    if has("less") {
        let mut terminal = at_terminal(&world, &["less", "long"]);
        terminal.expect("line 23");
        terminal.send("/line 150\r");
        terminal.expect("line 172");
        // A command of less's own, in a shell.
        terminal.send("!echo \"from a she\"ll\r");
        terminal.expect("from a shell");
        terminal.send("\rq");
        assert_eq!(terminal.end(), 0);
    }
    if has("vim") {
        let mut terminal = at_terminal(&world, &["vim", "-N", "-u", "NONE", "written"]);
        terminal.expect("written");
        terminal.send("ifrom vim\x1b:wq\r");
        assert_eq!(terminal.end(), 0);
        let written = fs::read_to_string(world.project("written")).unwrap();
        assert_eq!(written, "from vim\n");
    }
    if has("man") {
        let page = ".TH AGENT 1\n.SH NAME\nagent \\- a page of the project\n";
        world.put(&world.project("man/man1/agent.1"), page);
        let mut terminal = at_terminal(&world, &["man", "-P", "less", "man/man1/agent.1"]);
        terminal.expect("a page of the project");
        terminal.send("q");
        assert_eq!(terminal.end(), 0);
    }
    if has("git") {
        repository_without_commit(&world);
        git(&world, &world.project(""), &["add", "long"]);
        git(&world, &world.project(""), &["commit", "-q", "-m", "paged"]);
        let mut terminal = at_terminal(&world, &["git", "-c", "core.pager=less", "show"]);
        terminal.expect("paged");
        terminal.send("q");
        assert_eq!(terminal.end(), 0);
    }
}

/// `ssh HOST agent-sandbox COMMAND`: no terminal, a pipe as input, little of an environment and what sshd
/// puts into it.
#[test]
fn a_command_without_a_terminal_works() {
    let world = World::new();
    let input = world.project("prompt");
    world.put(&input, "do it\n");
    let run = world.jail([]).stdin(fs::File::open(&input).unwrap());
    let run = run
        .env("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")
        .env("SSH_CLIENT", "192.0.2.1 50000 22")
        .env("SSH_ORIGINAL_COMMAND", "agent-sandbox claude")
        .env("XDG_SESSION_TYPE", "tty")
        .env("TERM", "dumb");
    let script = "cat; env | grep -c ^SSH_; test -t 0 || echo no terminal; tty < /dev/tty || echo none; echo $TERM";
    let output = run.run(&["sh", "-c", script]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert_eq!(
        output.stdout, "do it\n0\nno terminal\nnone\ndumb\n",
        "{output:?}"
    );
}

/// A shell whose `module` is Lmod's, and a tree of modules as Spack makes one in the home.
#[test]
fn modules_are_loaded_inside() {
    let setup = "/usr/share/lmod/lmod/init/bash";
    if !Path::new(setup).exists() {
        return not_checked("module load inside", "Lmod is not installed");
    }
    let world = World::new();
    let tree = "spack/share/spack/lmod/linux/Core";
    let prefix = "spack/opt/spack/linux/zlib-1.3";
    let program = world.home(&format!("{prefix}/bin/minizip"));
    world.put(&program, "#!/bin/sh\necho minizip of zlib\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).unwrap();
    let bin = crate::operations::text(program.parent().unwrap());
    let module = format!("prepend_path(\"PATH\", \"{bin}\")\nsetenv(\"ZLIB\", \"1.3\")\n");
    world.put(&world.home(&format!("{tree}/zlib/1.3.lua")), &module);
    world.secret(&world.home("spack/opt/spack/gpg/secring.gpg"));
    // As in a login shell: the function is exported, and so inside.
    let script = "source /usr/share/lmod/lmod/init/bash; export -f module; exec \"$@\"";
    let modules = world.home(tree);
    let words = launcher_words(&["-q", "--"]);
    let asked = "module load zlib && module -t list 2>&1 && minizip && echo $ZLIB; cat ~/spack/opt/spack/gpg/*; \
                 module unload zlib && echo [$ZLIB]";
    let mut command = vec!["bash".to_owned(), "-c".into(), script.into(), "bash".into()];
    command.extend(words);
    command.extend(["bash", "-c", asked].map(String::from));
    let output = world.outside().env("MODULEPATH", &modules).run(&command);
    assert_eq!(
        output.stdout, "zlib/1.3\nminizip of zlib\n1.3\n[]\n",
        "{output:?}"
    );
    assert!(!output.stderr.contains(&world.marker), "{output:?}");
}

/// MPI on one node, without Slurm.
#[test]
fn mpi_starts_on_one_node() {
    let world = World::new();
    for (program, rank) in [
        ("mpirun.openmpi", "OMPI_COMM_WORLD_RANK"),
        ("mpirun.mpich", "PMI_RANK"),
    ] {
        if !has(program) {
            continue;
        }
        let script = format!("echo rank ${rank}");
        let output = world
            .jail([])
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .run(&[program, "-n", "2", "sh", "-c", &script]);
        assert_eq!(output.code(), 0, "{output:?}");
        let mut ranks: Vec<&str> = output.stdout.lines().collect();
        ranks.sort_unstable();
        assert_eq!(ranks, ["rank 0", "rank 1"], "{output:?}");
    }
}

/// Under Landlock a condition on `~` is about the private home: said in the guide, and so looked at here.
#[test]
fn a_condition_on_the_home_holds_where_the_home_is() {
    let world = World::new();
    repository_without_commit(&world);
    let settings = "[user]\n\tname = Ada\n\temail = ada@home\n\
                    [includeIf \"gitdir:~/work/\"]\n\tpath = ~/.gitconfig-work\n";
    world.put(&world.home(".gitconfig"), settings);
    world.put(
        &world.home(".gitconfig-work"),
        "[user]\n\temail = ada@work\n",
    );
    let output = world.jail([]).run(&["git", "config", "user.email"]);
    let expected = if is_landlock() {
        "ada@home\n"
    } else {
        "ada@work\n"
    };
    assert_eq!(output.stdout, expected, "{output:?}");
}

/// zsh keeps here-documents in files of its own, which have to lie where it may write; agents take it for
/// their shell where it is installed.
#[test]
fn zsh_has_here_documents() {
    if !has("zsh") {
        return;
    }
    let world = World::new();
    let script = "cat <<'END'\nfrom here\nEND";
    let output = world.jail([]).run(&["zsh", "-fc", script]);
    assert_eq!(output.stdout, "from here\n", "{output:?}");
}
