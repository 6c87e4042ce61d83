//! Other processes: of the host, of another session, the launcher, init.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::backend::{PROCESSES, is_landlock};
use crate::probe::{Attack, address, syscall, tell, tell_call};
use crate::world::{World, landlock_abi, not_checked, probe_path, wait_for};

pub(crate) const ATTACKS: &[Attack] = &[
    ("reach-process", reach_process),
    ("reach-init", reach_init),
    ("signal-groups", signal_groups),
    ("leave-daemons", leave_daemons),
    ("linger", linger),
];

/// For how long something that should have ended is watched.
const WATCHED: Duration = Duration::from_millis(400);

/// Everything that can be done to a process by its number.
fn reach(pid: u64, key: &str) {
    // SAFETY: asks whether the process may be signalled.
    tell_call(
        &format!("{key} kill"),
        unsafe { libc::kill(pid as i32, 0) }.into(),
    );
    let pidfd = syscall(libc::SYS_pidfd_open, &[pid, 0]);
    tell_call(&format!("{key} pidfd"), pidfd);
    if pidfd >= 0 {
        tell_call(
            &format!("{key} pidfd_getfd"),
            syscall(libc::SYS_pidfd_getfd, &[pidfd as u64, 3, 0]),
        );
        tell_call(
            &format!("{key} pidfd_signal"),
            syscall(libc::SYS_pidfd_send_signal, &[pidfd as u64, 0, 0, 0]),
        );
    }
    let mut byte = 0u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // Any mapped address would do; what matters is who is asked first, the process or its memory.
    let remote = libc::iovec {
        iov_base: reach as *const () as *mut libc::c_void,
        iov_len: 1,
    };
    for (name, call) in [
        ("readv", libc::SYS_process_vm_readv),
        ("writev", libc::SYS_process_vm_writev),
    ] {
        let answer = syscall(call, &[pid, address(&local), 1, address(&remote), 1, 0]);
        tell_call(&format!("{key} {name}"), answer);
    }
    const PTRACE_SEIZE: u64 = 0x4206;
    let seized = syscall(libc::SYS_ptrace, &[PTRACE_SEIZE, pid, 0, 0]);
    tell_call(&format!("{key} ptrace"), seized);
    for name in ["mem", "environ", "root", "cwd", "fd", "fd/0", "exe", "maps"] {
        let verb = if name == "fd" { "list" } else { "read" };
        let path = format!("/proc/{pid}/{name}");
        let path = if ["root", "cwd"].contains(&name) {
            path + "/"
        } else {
            path
        };
        let verb = if path.ends_with('/') { "list" } else { verb };
        let answer = crate::operations::carry_out(&[verb, &path]);
        tell(
            &format!("{key} {name}"),
            answer.split(':').next().unwrap_or_default(),
        );
    }
}

fn reach_process(words: &[String]) {
    reach(words[0].parse().expect("a pid"), "it");
    let pids = crate::operations::carry_out(&["list", "/proc"]);
    let pids: Vec<&str> = pids
        .trim_start_matches("ok:")
        .split(',')
        .filter(|name| name.parse::<u32>().is_ok())
        .collect();
    tell("pids", pids.len());
    let named = pids.iter().any(|pid| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|text| String::from_utf8_lossy(&text).contains(&words[1]))
    });
    tell("named", named);
}

/// A process of the host that waits for its end.
struct Victim(Child);

impl Victim {
    fn new(name: &str, group: i32) -> Self {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "while :; do sleep 1; done", name])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.process_group(group);
        Self(command.spawn().expect("a victim"))
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().expect("its state").is_none()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether an attack on a process by its number came to nothing. In a PID namespace it is not there.
/// Without one its number is known, a descriptor of it can be had, and every use is refused.
fn is_out_of_reach(what: &str, answer: &str) -> bool {
    if !is_landlock() {
        // On aarch64 no ptrace(2) is answered (docs/reference/syscalls.md).
        let refused = cfg!(target_arch = "aarch64") && what.ends_with(" ptrace");
        return match refused {
            true => answer == "EPERM",
            false => ["ESRCH", "ENOENT", "EINVAL"].contains(&answer),
        };
    }
    // The numbers of its open files are seen (the launch says so), and none of the files.
    let seen = what.ends_with(" pidfd") || what.ends_with(" fd");
    ["EPERM", "EACCES", "ESRCH"].contains(&answer) || seen && answer == "ok"
}

#[test]
fn processes_of_the_host_are_out_of_reach() {
    let world = World::new();
    let name = format!("victim-{}", &world.marker[6..]);
    let mut victim = Victim::new(&name, 0);
    let words = [
        victim.0.id().to_string(),
        format!("victim-{}", &world.marker[6..]),
    ];
    let plain = world.outside().attack("reach-process", &words);
    assert_eq!(
        (plain.get("it kill"), plain.get("named")),
        ("ok", "true"),
        "{plain:?}"
    );
    if plain.get("it ptrace") != "ok" {
        not_checked(
            "ptrace of host processes as a control",
            "this host forbids it by itself",
        );
    }
    let report = world
        .jail([])
        .attack("reach-process", &[&words[0], "victim-"]);
    for (what, answer) in report.all().filter(|(what, _)| what.starts_with("it ")) {
        assert!(is_out_of_reach(what, answer), "{what}: {answer}");
    }
    assert!(victim.lives());
    if world.lacks(PROCESSES, "command lines of the host's processes") {
        return;
    }
    let report = world.jail([]).attack("reach-process", &words);
    // The attack's own command line is the only one that holds the name.
    let pids: u32 = report.get("pids").parse().unwrap();
    assert!(pids <= 2, "{report:?}");
}

/// The number of a process's parent, which everybody may read (`proc_pid_stat(5)`, field 4).
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_the_name = stat.rsplit_once(") ")?.1;
    after_the_name.split(' ').nth(1)?.parse().ok()
}

/// Attacks what holds the jail: process 1 of its own PID namespace, or (word: `ancestors`) where it
/// has none, the parent, its parent and its parent.
fn reach_init(words: &[String]) {
    assert!(std::env::var_os("AGENT_SANDBOX").is_some());
    let own = i32::try_from(std::process::id()).expect("a pid");
    let holders = match words {
        [] => vec![("init", 1)],
        _ => {
            let attendant = parent(own).expect("the attendant");
            let mediator = parent(attendant).expect("the mediator");
            let launcher = parent(mediator).expect("the launcher");
            vec![
                ("init", attendant),
                ("mediator", mediator),
                ("launcher", launcher),
            ]
        }
    };
    for (name, pid) in &holders {
        assert!(
            *pid != own && (*pid == 1) == words.is_empty(),
            "{holders:?}"
        );
        reach(u64::try_from(*pid).expect("a pid"), name);
        for signal in [libc::SIGKILL, libc::SIGSTOP, libc::SIGTERM, libc::SIGSEGV] {
            // SAFETY: a signal to what holds this jail; the attack runs only there.
            let sent = unsafe { libc::kill(*pid, signal) };
            tell_call(&format!("{name} signal {signal}"), sent.into());
        }
    }
    std::thread::sleep(WATCHED);
    for (name, pid) in holders {
        let lives = Path::new(&format!("/proc/{pid}")).exists();
        tell(&format!("{name} lives"), lives);
    }
}

#[test]
fn init_cannot_be_touched() {
    let world = World::new();
    let (words, holders): (&[&str], &[&str]) = match is_landlock() {
        true => (&["ancestors"], &["init", "mediator", "launcher"]),
        false => (&[], &["init"]),
    };
    let report = world.jail([]).attack("reach-init", words);
    for holder in holders {
        assert_eq!(report.get(&format!("{holder} lives")), "true");
        for what in [
            "readv", "writev", "ptrace", "mem", "environ", "root", "cwd", "fd", "fd/0", "exe",
            "maps",
        ] {
            let what = format!("{holder} {what}");
            let answer = report.get(&what);
            let refused = match *holder {
                "launcher" => is_out_of_reach(&what, answer),
                _ => ["EPERM", "EACCES"].contains(&answer),
            };
            assert!(refused, "{what}: {answer}");
        }
        if report.get(&format!("{holder} pidfd")) == "ok" {
            assert_eq!(report.get(&format!("{holder} pidfd_getfd")), "EPERM");
        }
    }
    // Init of a namespace takes no signal from inside it; other processes must not get any.
    let signals = report.all().filter(|(what, _)| what.contains(" signal "));
    for (what, answer) in signals.filter(|_| is_landlock()) {
        assert_eq!(answer, "EPERM", "{what}");
    }
}

/// Signals everybody that can be addressed at once.
fn signal_groups(words: &[String]) {
    // SAFETY: the attack itself is to survive its own signals.
    unsafe {
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        libc::signal(libc::SIGIO, libc::SIG_IGN);
    }
    let ready = || Path::new(&words[0]).exists().then_some(());
    wait_for("the victim", ready).expect("the victim");
    // SAFETY: the process group is the test's own.
    tell_call("group", unsafe { libc::kill(0, libc::SIGUSR1) }.into());
    // SAFETY: reads own ids.
    let inside = std::env::var_os("AGENT_SANDBOX").is_some() && unsafe { libc::getppid() } <= 1;
    // Asks only: were there somebody outside to be had, a signal to all would reach everybody.
    let pids = crate::operations::carry_out(&["list", "/proc"]);
    let pids = pids.trim_start_matches("ok:").split(',');
    let pids = pids.filter_map(|name| name.parse::<i32>().ok());
    let own = i32::try_from(std::process::id()).expect("a pid");
    // SAFETY: signal 0 is none.
    let reached = pids.filter(|&pid| pid != own && unsafe { libc::kill(pid, 0) } == 0);
    tell("reached", reached.count());
    if inside {
        // SAFETY: everybody in this pid namespace, which is the jail's.
        tell_call("everybody", unsafe { libc::kill(-1, libc::SIGUSR1) }.into());
        for pid in 1..300 {
            if pid != std::process::id() as i32 {
                // SAFETY: the same, by number.
                unsafe { libc::kill(pid, libc::SIGUSR1) };
            }
        }
    }
    // fcntl(2): which signal tells of input; include/uapi/asm-generic/fcntl.h.
    const F_SETSIG: libc::c_int = 10;
    // A signal from the kernel on behalf of a socket: another path to the same victims.
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
    use std::os::fd::AsRawFd;
    // SAFETY: settings of the own socket.
    unsafe {
        let group = -libc::getpgrp();
        let set = libc::fcntl(theirs.as_raw_fd(), libc::F_SETOWN, group);
        tell_call("owner", set.into());
        libc::fcntl(theirs.as_raw_fd(), F_SETSIG, libc::SIGUSR1);
        libc::fcntl(theirs.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC);
    }
    let _ = ours.write_all(b"x");
    std::thread::sleep(WATCHED);
}

#[test]
fn signals_stay_inside() {
    let world = World::new();
    let try_it = |run: crate::world::Run<'_>, name: &str| {
        let ready = world.project(name);
        let running = run.start_attack("signal-groups", &[&ready]);
        let mut victim = Victim::new("victim", running.pid());
        fs::write(&ready, "").unwrap();
        let output = running.wait();
        (output, victim.lives())
    };
    let (_, lives) = try_it(world.outside(), "ready-outside");
    assert!(!lives, "the signal is harmless, so the test shows nothing");
    if landlock_abi() < 6 {
        not_checked(
            "signals to the launcher's process group",
            "no Landlock ABI 6",
        );
        return;
    }
    let (output, lives) = try_it(world.jail([]), "ready-inside");
    assert!(lives, "a process outside got a signal: {output:?}");
    if is_landlock() {
        // The attack is alone in its jail.
        assert_eq!(output.report().get("reached"), "0");
    }
}

/// Writes to a file for as long as it lives.
fn beat(file: &str) {
    loop {
        if let Ok(mut file) = fs::OpenOptions::new().append(true).create(true).open(file) {
            let _ = file.write_all(b"x");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Leaves processes behind that do all they can to stay.
fn start_daemons(file: &str) {
    for _ in 0..3 {
        // SAFETY: a probe has one thread.
        unsafe {
            if libc::fork() == 0 {
                libc::setsid();
                for signal in 1..32 {
                    libc::signal(signal, libc::SIG_IGN);
                }
                libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0);
                if libc::fork() == 0 {
                    for fd in 0..3 {
                        libc::close(fd);
                    }
                    beat(file);
                }
                libc::_exit(0);
            }
        }
    }
    wait_for("the daemons", || {
        fs::metadata(file)
            .is_ok_and(|meta| meta.len() > 3)
            .then_some(())
    })
    .expect("daemons");
}

fn leave_daemons(words: &[String]) {
    start_daemons(&words[0]);
}

fn linger(words: &[String]) {
    start_daemons(&words[0]);
    println!("started");
    beat(&words[0]);
}

fn beats(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |meta| meta.len())
}

#[track_caller]
fn assert_silent(file: &Path) {
    // Each that beats has the file among its words.
    let named = |process: &fs::DirEntry| {
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.any(|word| word == file.as_os_str().as_encoded_bytes())
    };
    let quiet = wait_for("the end of what beats", || {
        let mut processes = fs::read_dir("/proc").expect("/proc").flatten();
        (!processes.any(|process| named(&process))).then_some(())
    });
    // Nothing is written for a while, whatever it is called.
    let last = beats(file);
    std::thread::sleep(WATCHED);
    let quiet = quiet.and((beats(file) == last).then_some(()).ok_or_else(String::new));
    assert!(
        quiet.is_ok(),
        "processes of the jail live on: {}",
        file.display()
    );
}

#[test]
fn background_processes_end_with_the_command() {
    let world = World::new();
    let file = world.project("beats");
    world.jail([]).attack("leave-daemons", &[&file]);
    assert!(beats(&file) > 0);
    assert_silent(&file);
}

fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[test]
fn a_killed_launcher_or_bubblewrap_takes_the_jail_along() {
    let world = World::new();
    // The launcher, what it starts (bubblewrap; the mediator), and the attendant below that.
    let generations = if is_landlock() { 3 } else { 2 };
    for generation in 0..generations {
        let file = world.project(&format!("beats-{generation}"));
        let mut running = world.jail([]).start_attack("linger", &[&file]);
        wait_for("the jail", || (beats(&file) > 20).then_some(())).unwrap();
        let launcher = running.pid();
        let below = children(launcher);
        assert!(!below.is_empty(), "nothing below the launcher");
        let mut holders = vec![launcher, below[0]];
        holders.extend(children(below[0]));
        // SAFETY: a process that this test started.
        unsafe { libc::kill(holders[generation], libc::SIGKILL) };
        let status = wait_for("the launcher's end", || running.child.try_wait().unwrap());
        status.expect("the launcher ends");
        assert_silent(&file);
        for pid in below {
            let gone = wait_for("the end", || {
                (!Path::new(&format!("/proc/{pid}/root")).exists()
                    || fs::read_to_string(format!("/proc/{pid}/stat"))
                        .map_or(true, |stat| stat.contains(") Z ")))
                .then_some(())
            });
            assert!(gone.is_ok(), "what the launcher started lives on");
        }
    }
}

/// Two sessions at once, in the same project.
#[test]
fn sessions_do_not_see_each_other() {
    let world = World::new();
    let file = world.project("beats");
    let first = world.jail([]).start_attack("linger", &[&file]);
    wait_for("the jail", || (beats(&file) > 5).then_some(())).unwrap();
    let pid = first.pid().to_string();
    let report = world
        .jail([])
        .attack("reach-process", &[pid.as_str(), "linger"]);
    for (what, answer) in report.all().filter(|(what, _)| what.starts_with("it ")) {
        assert!(is_out_of_reach(what, answer), "{what}: {answer}");
    }
    if !world.lacks(PROCESSES, "command lines of other sessions") {
        let pids = report.get("pids").parse::<u32>().unwrap();
        assert!(pids <= 2, "{report:?}");
    }
    let private = world
        .jail([])
        .run(&["sh", "-c", "ls -A /tmp /var/tmp /dev/shm /run/user/*"]);
    // Where the probe itself stands in one of these, the way to it does too.
    let own = probe_path();
    let way: Vec<&str> = own.iter().filter_map(|name| name.to_str()).collect();
    for name in private
        .stdout
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('/'))
    {
        assert!(way.contains(&name), "{private:?}");
    }
}
