//! What breaks, breaks with a clear error, and loses nothing.

use std::process::Command;
use std::time::Instant;

use agent_sandbox_support::terminal::Terminal;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::put;
use crate::world::{Side, World, until};

/// Children of a process, and theirs, with their command lines.
pub(crate) fn descendants(of: Pid) -> Vec<(Pid, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((_, fields)) = stat.rsplit_once(") ") else {
            continue;
        };
        let parent = fields
            .split(' ')
            .nth(1)
            .and_then(|field| field.parse::<i32>().ok());
        if parent == Some(of.as_raw()) {
            let name = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            all.push((
                Pid::from_raw(pid),
                String::from_utf8_lossy(&name).replace('\0', " "),
            ));
            all.extend(descendants(Pid::from_raw(pid)));
        }
    }
    all
}

pub(crate) fn chaperon_of(launcher: Pid) -> Option<Pid> {
    let found = descendants(launcher)
        .into_iter()
        .find(|(_, name)| name.starts_with("agent-sandbox-chaperon serve"));
    found.map(|(pid, _)| pid)
}

#[test]
fn a_killed_chaperon_gives_a_clear_error() {
    let Some(world) = World::new() else { return };
    let running = world
        .inside(
            "squeue -h > /dev/null; srun bash -c 'echo step > step.txt; sleep 30' & until [ -e step.txt ]; do sleep 0.1; done; \
             echo ready > ready.txt; until [ -e go.txt ]; do sleep 0.05; done; squeue; echo $?; wait %1; echo $?",
        )
        .start();
    world.until(Side::Inside, "ready.txt", "ready");
    let chaperon = chaperon_of(running.pid()).expect("a chaperon");
    kill(chaperon, Signal::SIGKILL).unwrap();
    let begun = Instant::now();
    world.write("go.txt", "");
    let output = running.end();
    assert!(begun.elapsed().as_secs() < 20, "{output}");
    let codes: Vec<&str> = output.out().leak().lines().collect();
    assert!(
        codes.len() == 2 && codes.iter().all(|code| *code != "0"),
        "{output}"
    );
    assert!(
        output.err().contains("squeue: error: ") && output.err().contains("chaperon"),
        "{output}"
    );
    // The step that it watched ends as well.
    world.settle(Side::Inside);
}

#[test]
fn a_stopped_chaperon_gives_a_clear_error() {
    let Some(world) = World::new() else { return };
    let running = world
        .inside("squeue -h > /dev/null; echo ready > ready.txt; until [ -e go.txt ]; do sleep 0.05; done; squeue; echo $?")
        .start();
    world.until(Side::Inside, "ready.txt", "ready");
    let chaperon = chaperon_of(running.pid()).expect("a chaperon");
    kill(chaperon, Signal::SIGSTOP).unwrap();
    world.write("go.txt", "");
    let output = running.end();
    let _ = kill(chaperon, Signal::SIGKILL);
    assert!(
        output.word() == "1" && output.err().contains("does not answer"),
        "{output}"
    );
}

#[test]
fn the_chaperon_ends_with_its_session_and_jobs_go_on() {
    let Some(world) = World::new() else { return };
    let running = world
        .inside(
            "sbatch -o job.txt --wrap 'sleep 2; echo finished'; echo ready > ready.txt; sleep 60",
        )
        .start();
    world.until(Side::Inside, "ready.txt", "ready");
    let chaperon = chaperon_of(running.pid()).expect("a chaperon");
    kill(running.pid(), Signal::SIGKILL).unwrap();
    running.end();
    until("the end of the chaperon", || kill(chaperon, None).is_err());
    world.until(Side::Inside, "job.txt", "finished");
    world.settle(Side::Inside);
}

#[test]
fn a_session_without_slurm_has_no_chaperon() {
    let Some(world) = World::new() else { return };
    let running = world.inside("echo ready > ready.txt; sleep 3").start();
    world.until(Side::Inside, "ready.txt", "ready");
    assert!(
        chaperon_of(running.pid()).is_none(),
        "{:?}",
        descendants(running.pid())
    );
    let _ = kill(running.pid(), Signal::SIGTERM);
    running.end();
}

/// A configuration whose controller does not answer.
fn without_controller(world: &World) -> String {
    let text = std::fs::read_to_string(&world.cluster.conf).unwrap();
    let text: Vec<String> = text
        .lines()
        .filter(|line| !line.starts_with("SlurmctldPort"))
        .map(|line| line.to_owned())
        .chain(["SlurmctldPort=1".to_owned(), "MessageTimeout=3".to_owned()])
        .collect();
    let directory = world.cluster.conf.parent().unwrap();
    let path = directory.join(format!(
        "dead-{}.conf",
        world
            .place(Side::Inside)
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
    ));
    std::fs::write(&path, text.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn without_a_controller_slurms_own_error_is_shown() {
    let Some(world) = World::new() else { return };
    let conf = without_controller(&world);
    let words = ["bash", "--noprofile", "--norc", "--noediting", "-i"];
    let call = world
        .inside("")
        .words(words)
        .option("--env")
        .option("PS1=(jail) ")
        .variable("SLURM_CONF", &conf);
    let mut terminal = Terminal::start(&call.at_terminal());
    terminal.expect("(jail) ");
    terminal.line("squeue; echo \"code\" $?");
    terminal.expect("Unable to contact slurm controller");
    terminal.expect("code 1");
    terminal.line("sbatch --wrap true; echo \"ended\" $?");
    terminal.interrupt();
    terminal.expect("(jail) ");
    terminal.line("exit");
    terminal.end();
    let _ = std::fs::remove_file(conf);
}

#[test]
fn a_node_without_agent_sandbox_fails_the_job_closed() {
    let Some(world) = World::new() else { return };
    // An installation of its own, which is gone when the job starts.
    let place =
        std::path::Path::new("/var/tmp").join(format!("agent-sandbox-gone.{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    let source = world.cluster.launcher.parent().unwrap();
    for name in [
        "agent-sandbox",
        "agent-sandbox-chaperon",
        "agent-sandbox-shim",
    ] {
        std::fs::copy(source.join(name), place.join(name)).unwrap();
    }
    let launcher = place.join("agent-sandbox");
    let script = "sbatch --parsable -H -o out.txt --wrap 'cat ~/.ssh/id_rsa; echo ran > ran.txt'";
    let launcher_text = launcher.to_str().unwrap();
    let project = world.project();
    let project = project.to_str().unwrap();
    let submitted = world.real(&[
        "env",
        "-C",
        project,
        launcher_text,
        "-q",
        "bash",
        "-c",
        script,
    ]);
    std::fs::remove_dir_all(&place).unwrap();
    let id = submitted.good().word();
    world.real(&["scontrol", "release", &id]).good();
    world.settle(Side::Inside);
    until("the record of its failure", || {
        let state = world
            .real(&["sacct", "-X", "-n", "-P", "-j", &id, "-o", "State"])
            .word();
        ["FAILED", "NODE_FAIL", "CANCELLED"]
            .iter()
            .any(|over| state.starts_with(over))
    });
    assert_eq!(world.read("ran.txt"), "");
    assert_eq!(world.read("out.txt"), "");
    let log = world.launcher(&["log", &id]);
    assert!(log.out().contains("No such file or directory"), "{log}");
}

#[test]
fn a_capsule_of_another_version_fails_the_job_closed() {
    let Some(world) = World::new() else { return };
    let launcher = world.cluster.launcher.display();
    let script = format!("#!{launcher} job\n# agent-sandbox capsule 99 4\nAAAA\n");
    for text in [
        script.clone(),
        script.replace("99", "1"),
        format!("#!{launcher} job\necho x\n"),
    ] {
        put(
            world.user,
            &world.place(Side::Outside).join("capsule.sh"),
            text.as_bytes(),
            0o755,
        );
        let output = world
            .outside("sbatch --ignore-pbs -W -o out.txt capsule.sh; echo $?; cat out.txt")
            .run();
        let said = output.out();
        assert!(
            said.contains("agent-sandbox") && !said.contains("\n0\n"),
            "{output}"
        );
    }
}

#[test]
fn a_full_disk_submits_nothing_that_is_lost() {
    let Some(world) = World::new() else { return };
    // A state directory of its own, on a file system with no room.
    let state = world.home(&format!("state-{}", std::process::id()));
    std::fs::create_dir(&state).unwrap();
    let mounted = Command::new("mount")
        .args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size=64k,uid={},mode=700", world.user.uid),
            "none",
        ])
        .arg(&state)
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        let _ = std::fs::remove_dir(&state);
        crate::cluster::not_checked("cannot mount a file system");
        return;
    }
    let fill = world
        .inside("squeue -h > /dev/null")
        .variable("XDG_STATE_HOME", &state)
        .run();
    let _ = std::fs::write(state.join("fill"), vec![0; 128 << 10]);
    let output = world
        .inside("sbatch -H --wrap true && echo submitted")
        .variable("XDG_STATE_HOME", &state)
        .run();
    let _ = Command::new("umount").arg("-l").arg(&state).status();
    let _ = std::fs::remove_dir(&state);
    assert!(!output.out().contains("submitted"), "{fill}\n{output}");
    assert!(output.err().contains("No space left"), "{output}");
}
