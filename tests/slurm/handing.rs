//! What reaches a room by other ways than its own: descriptors of the launcher's that a path may
//! lead through, descriptors that another room hands over, mounts of the host, another's terminal.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_sandbox_support::terminal::Terminal;

use crate::call::Output;
use crate::cluster::{not_checked, put};
use crate::joining::{end_listener, listener};
use crate::steps::{built, mark, with_ranks};
use crate::world::{Side, World, until};

/// A path through the descriptor `%NUMBER` of whoever opens it, up to the root and down again.
fn through(number: &str, path: &Path) -> String {
    format!(
        "/proc/self/fd/{number}{}{}",
        "/..".repeat(24),
        path.display()
    )
}

/// What the inside does not see: the names in a directory of the user's, with their sizes. Other tests write there at the same
/// time, as a control.
fn hidden(world: &World) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(world.home(".ssh")).unwrap().flatten();
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    entries
        .filter(|entry| !name(entry).starts_with("written-by-"))
        .map(|entry| (name(&entry), entry.metadata().unwrap().len()))
        .collect()
}

/// Before a stream is opened the descriptors are those of the launcher's process. Whatever a path
/// leads to through one of them, it is not the host's root.
#[test]
fn no_stream_leads_through_a_descriptor() {
    let Some(world) = World::new() else { return };
    let name = mark(&world, "through");
    let (key, new) = (
        world.home(".ssh/id_rsa"),
        world.home(&format!(".ssh/{name}")),
    );
    let before = hidden(&world);
    // Slurm names tasks and elements of an array: one call tries all numbers.
    let [(task_in, task_out), (array_in, array_out)] =
        ["%t", "%a"].map(|number| (through(number, &key), through(number, &new)));
    let script = format!(
        "srun='srun -Q -N1 -n21 -O -k'; array='sbatch -a 3-20 --parsable'
         $srun --input={task_in} cat > in.txt 2> in.err
         for open in append truncate; do
             $srun --open-mode=$open --output={task_out}.o echo written > o.txt 2> o.err
             $srun --open-mode=$open --error={task_out}.e bash -c 'echo written >&2' > e.txt 2> e.err
         done
         $array --input={array_in} -o batch-in.%a.txt --wrap 'cat; echo ran'
         $array --output={array_out}.bo --wrap 'echo written'"
    );
    let said = world.inside(&script).run();
    world.settle(Side::Inside);
    world.check(&said);
    assert_eq!(hidden(&world), before, "{said}");
    // Where the jail has the host's /proc, the second one is refused: the job could not write there.
    let refused = said.err().contains("the job could not write --output");
    assert_eq!(
        said.out().lines().count(),
        2 - usize::from(refused),
        "{said}"
    );
    // Each was tried, and each of them in vain.
    for (file, stream) in [
        ("in.err", "stdin"),
        ("o.err", "stdout"),
        ("e.err", "stderr"),
    ] {
        let text = world.read(file);
        let refused = text
            .matches(&format!("Could not open {stream} file "))
            .count();
        assert_eq!(refused, 21, "{file}: {text}");
    }
    assert!(!world.read("in.txt").contains("secret"));
}

#[test]
fn no_working_directory_leads_through_a_descriptor() {
    let Some(world) = World::new() else { return };
    let name = mark(&world, "through");
    let before = hidden(&world);
    let (key, new) = (
        world.home(".ssh/id_rsa"),
        world.home(&format!(".ssh/{name}")),
    );
    // Relative, from wherever it is.
    let (key, new) = (key.display(), new.display());
    world.write(
        "look.sh",
        format!("#!/bin/bash\necho here $(ls -a); cat .{key}; cat ../{key}; echo written > .{new}-$1\ntrue\n"),
    );
    let project = world.project();
    let project = project.display();
    let up = through("$fd", Path::new("/"));
    let script = format!(
        "for fd in {{3..20}}; do
             sbatch --parsable -D {up} -o {project}/b.$fd.txt {project}/look.sh $fd
         done > ids.txt 2> sbatch.err
         salloc -Q -N1 -n2 bash -c 'for fd in {{3..20}}; do srun -Q -n1 -D {up} {project}/look.sh $fd; srun -Q -n2 -D {up} {project}/look.sh $fd; done'"
    );
    let said = world.inside(&script).run();
    world.settle(Side::Inside);
    world.check(&said);
    assert_eq!(hidden(&world), before, "{said}");
    let tried = world.read("ids.txt").lines().count() + world.read("sbatch.err").lines().count();
    assert!(tried >= 18, "{said}");
}

const PROGRAMS: [&str; 3] = [
    "agent-sandbox",
    "agent-sandbox-chaperon",
    "agent-sandbox-shim",
];

/// Programs that the user has installed, and so may write.
fn installed(world: &World) -> PathBuf {
    let installed = world.project().parent().unwrap().join("installed");
    let beside = world.cluster.launcher.parent().unwrap();
    for name in PROGRAMS {
        let bytes = fs::read(beside.join(name)).unwrap();
        put(world.user, &installed.join(name), &bytes, 0o755);
    }
    installed
}

/// Runs a script in a jail of these programs.
fn by(world: &World, installed: &Path, script: &str) -> Output {
    let (launcher, project) = (installed.join(PROGRAMS[0]), world.project());
    let words = ["/usr/bin/env", "-C", project.to_str().unwrap()]
        .into_iter()
        .chain([
            launcher.to_str().unwrap(),
            "-q",
            "--",
            "/bin/bash",
            "-c",
            script,
        ]);
    world.outside("").words(words).run()
}

/// The process that becomes a task's command runs the launcher until then, and again if that is the
/// command.
#[test]
fn no_task_changes_the_program_that_it_comes_from() {
    let Some(world) = World::new() else { return };
    let installed = installed(&world);
    world.write("reach.c", include_str!("steps/reach.c"));
    let said = by(
        &world,
        &installed,
        "gcc -shared -fPIC -o reach.so reach.c
         for n in 1 2; do LD_PRELOAD=$PWD/reach.so srun -Q -N1 -n$n /proc/self/exe --version 2>> reached.txt; done
         LD_PRELOAD=$PWD/reach.so sbatch -Q -W -o job.txt --wrap 'exec /proc/self/exe --version'",
    );
    world.settle(Side::Inside);
    let reached = world.read("reached.txt");
    assert_eq!(reached, "mode kept, attribute kept\n".repeat(3), "{said}");
    // Outside the program is the user's.
    let launcher = installed.join(PROGRAMS[0]);
    let library = world.project().join("reach.so");
    let outside = world
        .outside(&format!(
            "LD_PRELOAD={} {} --version",
            library.display(),
            launcher.display()
        ))
        .run();
    assert!(outside.to_string().contains("mode CHANGED"), "{outside}");
}

/// The program of the process that opens it: in a job a file of the host's.
#[test]
fn the_launcher_is_not_written_as_a_stream() {
    let Some(world) = World::new() else { return };
    let installed = installed(&world);
    let content = || PROGRAMS.map(|name| fs::read(installed.join(name)).unwrap());
    let before = content();
    let script = "for open in append truncate; do for file in exe fd/3 task/self/exe; do
             srun -Q -N1 -n2 --open-mode=$open --output=/proc/self/$file echo written
             srun -Q -N1 -n1 --open-mode=$open --error=/proc/self/$file bash -c 'echo written >&2'
             sbatch -W --parsable --open-mode=$open --output=/proc/self/$file --wrap 'echo written'; echo ended $?
         done; done";
    let said = by(&world, &installed, script);
    world.settle(Side::Inside);
    assert!(content() == before, "{said}");
    let out = said.out();
    let ended = out.lines().filter_map(|line| line.strip_prefix("ended "));
    let ended: Vec<&str> = ended.collect();
    assert!(ended.len() == 6 && !ended.contains(&"0"), "{said}");
}

/// What `hand` is given by a batch script and by a step for one task, and what the two ranks to whom
/// it is handed can do with it.
fn handed(world: &World, side: Side, name: &str, directory: &str, before: &str) -> Output {
    world.write("hand", built("hand"));
    // The host's /tmp where there is no jail: the name is nobody else's.
    let at = format!("/tmp/{name}");
    world.write(
        "hand.sh",
        format!(
            "#!/bin/bash\n#SBATCH -N1 -n4 -o hand.txt\n{before}\n./hand give {at}.batch {directory} 2 &\n\
             srun -n1 --overlap ./hand give {at}.step {directory} 2 &\n\
             for from in batch step; do srun -n2 --overlap -o $from.%t.txt ./hand take {at}.$from {name}; done\nwait\n"
        ),
    );
    let node = &world.cluster.nodes[0];
    let output = world
        .on(side, &format!("sbatch -W -w {node} hand.sh; cat hand.txt; tail -n 9 batch.[01].txt step.[01].txt; rm -f {at}.*"))
        .option("--read")
        .option(world.project().parent().unwrap().join("read"))
        .run();
    world.settle(side);
    output
}

/// What was said of one kind of descriptor by the four who got one.
#[track_caller]
fn answers(output: &Output, kind: &str) -> Vec<i32> {
    let out = output.out();
    let all = out.lines().filter_map(|line| line.strip_prefix(kind));
    let all: Vec<i32> = all
        .filter_map(|number| number.trim().parse().ok())
        .collect();
    assert_eq!(all.len(), 4, "{kind}: {output}");
    all
}

/// Names that have no path belong to the network namespace in which a socket was made.
#[test]
fn a_socket_that_is_handed_over_does_not_lead_outside() {
    let Some(world) = with_ranks() else { return };
    let read = world.project().parent().unwrap().join("read");
    put(world.user, &read.join("file"), b"", 0o644);
    let name = mark(&world, "handed");
    let outside = listener(&world, &name);
    let control = handed(&world, Side::Outside, &name, "/tmp", "");
    let inside = handed(&world, Side::Inside, &name, "/tmp", "");
    end_listener(&world, outside);
    // ECONNREFUSED: nobody has that name. EPERM: Landlock.
    for kind in ["stream", "seqpacket", "dgram"] {
        assert_eq!(answers(&control, kind), [0; 4], "{control}");
        let all = answers(&inside, kind);
        assert!(all.iter().all(|errno| [1, 111].contains(errno)), "{inside}");
    }
    // And they were handed: the jail's /tmp is the same for both.
    assert_eq!(answers(&inside, "directory"), [0; 4], "{inside}");
}

/// As UCX does, which processes of one node talk by, within a batch script as well.
#[test]
fn abstract_sockets_of_a_room_are_its_own() {
    let Some(world) = with_ranks() else { return };
    let name = mark(&world, "own");
    world.write(
        "own.sh",
        format!(
            "#!/bin/bash\n./probe listen {name}-$1 over.$1 & until [ -e over.$1.up ]; do sleep 0.05; done\n\
             ./probe connect {name}-$1; touch over.$1; wait\n"
        ),
    );
    let output = world
        .inside(
            "sbatch -Q -W -N1 -n2 -o o.txt --wrap './own.sh b; srun -n1 ./own.sh s' > /dev/null; cat o.txt
             srun -Q -n1 ./own.sh f; srun -Q -n2 bash -c './own.sh $SLURM_PROCID; true' 2> /dev/null | sort -u | head -n 1",
        )
        .run();
    assert_eq!(output.out(), "connect 0\n".repeat(4), "{output}");
}

/// A file system that root mounts on the node, which goes with this.
struct Mounts {
    slurmd: String,
    at: PathBuf,
}

impl Mounts {
    /// At a directory, as most of a host's are: what is mounted below it arrives wherever it is bound.
    fn shared(node: &str, at: &Path) -> Option<Self> {
        let slurmd = fs::read_dir("/proc").unwrap().flatten().find(|process| {
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let words = words.split(|byte| *byte == 0);
            let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
            words.first().is_some_and(|word| word.ends_with("slurmd"))
                && words.iter().any(|word| word == node)
        })?;
        let mounts = Self {
            slurmd: slurmd.file_name().into_string().unwrap(),
            at: at.to_owned(),
        };
        let made = mounts.tmpfs(at) && mounts.run(&["mount", "--make-shared"], at);
        made.then_some(mounts)
    }

    fn tmpfs(&self, at: &Path) -> bool {
        self.run(
            &["mount", "-t", "tmpfs", "-o", "mode=1777,size=1M", "tmpfs"],
            at,
        )
    }

    fn run(&self, words: &[&str], at: &Path) -> bool {
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.slurmd, "-m", "--"])
            .args(words)
            .arg(at);
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        self.run(&["umount", "-R", "-l"], &self.at);
    }
}

#[test]
fn what_the_host_mounts_during_a_job_is_not_handed_over() {
    let Some(world) = with_ranks() else { return };
    let read = world.project().parent().unwrap().join("read");
    put(world.user, &read.join("file"), b"", 0o644);
    let Some(mounts) = Mounts::shared(&world.cluster.nodes[0], &read) else {
        return not_checked("nothing can be mounted where slurmd runs");
    };
    // Before the job's jail is made one stands there already, which the jail shows.
    let (early, late) = (read.join("early"), read.join("late"));
    for place in [&early, &late] {
        assert!(mounts.run(&["mkdir"], place));
    }
    assert!(mounts.tmpfs(&early) && mounts.run(&["touch"], &early.join("mounted")));
    let name = mark(&world, "mounted");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("the script", || world.project().join("up").exists());
            assert!(mounts.tmpfs(&late) && mounts.run(&["touch"], &late.join("mounted")));
            put(world.user, &world.project().join("mounted"), b"", 0o644);
        });
        let wait = format!(
            "touch up; until [ -e mounted ]; do sleep 0.05; done; ls {0} {1}; touch {0}/batch {1}/batch; srun -n2 --overlap bash -c 'ls {0} {1}; touch {0}/rank {1}/rank'",
            early.display(),
            late.display()
        );
        let output = handed(&world, Side::Inside, &name, late.to_str().unwrap(), &wait);
        for kind in ["directory", "place"] {
            assert!(
                answers(&output, kind).iter().all(|errno| *errno != 0),
                "{output}"
            );
        }
        // The early one, to the script and two ranks.
        assert_eq!(output.out().matches("\nmounted\n").count(), 3, "{output}");
        assert_eq!(
            output.out().matches("touch: cannot touch").count(),
            6,
            "{output}"
        );
    });
    let names = |place: &Path| {
        let seen = Path::new("/proc").join(&mounts.slurmd).join("root");
        let entries = fs::read_dir(seen.join(place.strip_prefix("/").unwrap())).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    for place in [early, late] {
        assert_eq!(names(&place), ["mounted"], "{}", place.display());
    }
}

#[test]
fn a_room_does_not_show_the_terminal_of_another() {
    let Some(world) = World::steps() else {
        return;
    };
    world.write(
        "console.sh",
        "#!/bin/bash\nstat -c 'console %t:%T' /dev/console 2>&1\nprintf 'intru%s\\n' der > /dev/console\n\
         timeout 1 head -c 1 /dev/console | wc -c; ls -l /proc/self/fd | grep /dev/pts\necho done\n",
    );
    let words = ["bash", "--noprofile", "--norc", "--noediting", "-i"];
    let call = world.inside("").words(words);
    let call = call.option("--env").option("PS1=(outer) ");
    let mut terminal = Terminal::start(&call.at_terminal());
    terminal.expect("(outer) ");
    terminal.line("srun -N1 -n1 -c3 --pty env PS1='(inner) ' bash --noprofile --norc --noediting");
    terminal.expect("\n(inner) ");
    // The control: it is this room's.
    terminal.line("printf 'ow%s\\n' ner > /dev/console");
    terminal.expect("owner");
    for tasks in [1, 2] {
        terminal.line(&format!("srun --overlap -O -c1 -n{tasks} --input=none -o {tasks}.%t.txt -e {tasks}.err ./console.sh; echo \"en\"ded{tasks}"));
        terminal.expect(&format!("ended{tasks}"));
    }
    terminal.line("exit");
    terminal.expect("(outer) ");
    terminal.line("exit");
    let screen = terminal.screen();
    terminal.end();
    world.settle(Side::Inside);
    assert!(!screen.contains("intruder"), "{screen}");
    for file in ["1.0", "2.0", "2.1"] {
        let text = world.read(&format!("{file}.txt"));
        assert!(text.ends_with("\n0\ndone\n"), "{file}: {text}");
        // None, or /dev/null.
        let null = text.contains("console 1:3\n");
        assert!(null || text.contains("No such file"), "{file}: {text}");
    }
}

/// Programs of the launcher's in the jail are started with rights that the inside does not have.
#[test]
fn the_launchers_directory_cannot_be_changed() {
    let Some(world) = World::new() else { return };
    let tries = [
        "mv $at $at.old",
        "rmdir $at",
        "ln -sfn /tmp $at",
        "mkdir $at/x",
        "touch $at/x",
        "cp /bin/true $at/x",
        "cp -f /bin/true $at/init",
        "mv $at/init $at/x",
        "mv -f /tmp/true $at/init",
        "rm -f $at/init",
        "ln -f /tmp/true $at/init",
        "ln -sf /tmp/true $at/init",
        "chmod 777 $at/init",
        "touch $at/init",
        "mv $at/slurm $at/x",
        "mv /run /run.old",
        "ln -sfn $at/init /run/agent-sandbox-x && mv -Tf /run/agent-sandbox-x $at",
    ];
    let tries: String = tries
        .iter()
        .map(|what| format!("{{ {what}; }} 2> /dev/null && echo changed '{what}'\n"))
        .collect();
    let mut script = format!(
        "#!/bin/bash\nat=/run/agent-sandbox; cp /bin/true /tmp/true\n{tries}[ -x $at/init ] && echo looked\ntrue\n"
    );
    if crate::chosen::is_landlock() {
        // What stands there then: the socket and the stand-ins of Slurm's commands.
        let own = "at=${AGENT_SANDBOX_CHAPERON%/*}";
        script = script.replace("at=/run/agent-sandbox", own);
        script = script.replace("$at/init", "$at/slurm/sbatch");
        script = script.replace("/tmp/true", "$TMPDIR/true");
    }
    world.write("change.sh", script);
    let output = world
        .inside(
            "./change.sh; sbatch -W -Q -n2 -N1 -o o.txt --wrap './change.sh; srun -n1 ./change.sh; srun -n2 ./change.sh; ./change.sh' > /dev/null; cat o.txt
             srun -Q -N1 -n1 ./change.sh; srun -Q -N1 -n2 ./change.sh",
        )
        .run();
    assert_eq!(output.out(), "looked\n".repeat(9), "{output}");
}
