//! Ports inside that the user reaches from outside: by a socket of the user's own, and nobody else by anything.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use serde_json::Value;

use crate::backend::is_landlock;
use crate::world::{Output, Run, Running, World, launcher, not_checked, wait_for};

/// Whether there is nothing to test, which is said.
pub(crate) fn has_no_network(what: &str) -> bool {
    if is_landlock() {
        not_checked(what, "Landlock makes no network of the jail's own");
    }
    is_landlock()
}

/// A launch that forwards these ports.
fn forwarding<'a>(world: &'a World, mode: &str, ports: &str) -> Run<'a> {
    let mode = format!("network.mode={mode}");
    let forward = format!("network.forward={ports}");
    world.jail(["--set", &mode, "--set", &forward])
}

/// A server inside that shows a directory of the project, until the file `over` stands in it. `up` says that it listens.
fn serve(address: &str, port: u16, directory: &str) -> String {
    format!(
        "echo of {directory} > {directory}/page; python3 -m http.server -b {address} -d {directory} {port} > {directory}/log 2>&1 &
        until [ -e {directory}/over ]; do sleep 0.05; (exec 3<> /dev/tcp/{address}/{port}) 2> /dev/null && touch {directory}/up; done; kill %1"
    )
}

fn started<'a>(world: &'a World, run: Run<'a>, script: &str, directory: &str) -> Running<'a> {
    fs::create_dir_all(world.project(directory)).unwrap();
    let session = run.start(&["bash", "-c", script]);
    wait_for("the server inside", || {
        world.project(directory).join("up").exists().then_some(())
    })
    .unwrap();
    session
}

fn ends(world: &World, session: Running<'_>, directory: &str) -> Output {
    fs::write(world.project(directory).join("over"), "").unwrap();
    session.wait()
}

/// The sockets of a session, by their ports, once it is recorded.
pub(crate) fn sockets(world: &World, session: &Running<'_>) -> Vec<(String, PathBuf)> {
    let launcher = launcher();
    let words = [launcher.to_str().unwrap(), "sessions", "--json"];
    let found = wait_for("the session's record", || {
        let all: Value = serde_json::from_str(&world.outside().run(&words).stdout).unwrap();
        let mut all = all.as_array().unwrap().iter();
        all.find(|one| one["pid"] == session.pid()).cloned()
    });
    let forward = found.unwrap()["forward"].as_object().unwrap().clone();
    let each = forward.into_iter();
    each.map(|(port, at)| (port, at.as_str().unwrap().into()))
        .collect()
}

/// What is got there.
fn get(world: &World, socket: &Path) -> Output {
    let words = [
        "curl",
        "-sS",
        "-m",
        "20",
        "--unix-socket",
        socket.to_str().unwrap(),
    ];
    world
        .outside()
        .run(&[&words[..], &["http://localhost/page"]].concat())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_server_inside_is_reached_by_a_socket_of_the_users_own() {
    if has_no_network("ports that are forwarded") {
        return;
    }
    for network in ["isolated", "filtered"] {
        let world = World::new();
        let start = |directory: &str, address: &str| {
            let run = forwarding(&world, network, "[8123, 9123]");
            started(&world, run, &serve(address, 8123, directory), directory)
        };
        // Two sessions with the same port, on each of the two addresses of a loopback.
        let (one, two) = (start("one", "127.0.0.1"), start("two", "::1"));
        let [(first, of_one), (second, unheard)] = &sockets(&world, &one)[..] else {
            panic!("{network}");
        };
        assert_eq!((first.as_str(), second.as_str()), ("8123", "9123"));
        let of_two = sockets(&world, &two)[0].1.clone();
        assert_eq!(get(&world, of_one).stdout, "of one\n", "{network}");
        assert_eq!(get(&world, &of_two).stdout, "of two\n", "{network}");
        // Nobody listens there, which is an end and no wait.
        let nobody = get(&world, unheard);
        assert!(nobody.code() != 0 && nobody.stdout.is_empty(), "{nobody:?}");
        for socket in [of_one, unheard, &of_two] {
            let directory = socket.parent().unwrap();
            assert!(
                fs::symlink_metadata(socket)
                    .unwrap()
                    .file_type()
                    .is_socket()
            );
            assert_eq!(mode(socket), 0o600, "{}", socket.display());
            for around in [directory, directory.parent().unwrap()] {
                assert_eq!(mode(around), 0o700, "{}", around.display());
            }
        }
        // The port itself is on no loopback of the host's.
        assert!(std::net::TcpStream::connect("127.0.0.1:8123").is_err());
        for (session, directory, socket) in [(one, "one", of_one), (two, "two", &of_two)] {
            let output = ends(&world, session, directory);
            assert_eq!(output.code(), 0, "{output:?}");
            assert!(!socket.parent().unwrap().exists(), "{}", socket.display());
        }
    }
}

#[test]
fn a_launch_says_what_to_type_and_a_port_without_a_network_is_said() {
    let world = World::new();
    let options = [
        "--set",
        "network.mode=isolated",
        "--set",
        "network.forward=[8123]",
    ];
    let said = world.loud(options).run(&["true"]).stderr;
    let line = match is_landlock() {
        true => "nothing to forward: Landlock makes no network of the jail's own",
        false => "agent-sandbox: forwarded from inside: ssh -N -L 8123:/",
    };
    assert!(said.contains(line), "{said}");
    let open = world
        .loud(["--set", "network.forward=[8123]"])
        .run(&["true"])
        .stderr;
    let line = "nothing to forward: with network.mode `open`";
    assert!(open.contains(line) && !open.contains("ssh -N"), "{open}");
}

/// What is inside tries to reach, to replace and to remove the sockets of its own session, where its policy gives it the directory
/// around them.
#[test]
fn the_inside_has_no_hand_in_the_sockets_of_its_ports() {
    if has_no_network("the sockets of ports that are forwarded") {
        return;
    }
    let world = World::new();
    let own = format!("/tmp/agent-sandbox-{}", getuid());
    let attack = format!(
        "ls -A {own} | sed 's/^/listed /'
        for socket in {own}/*/8123 $(cat one/sockets); do
            curl -sS -m 5 --unix-socket $socket http://localhost/page && echo reached
            rm -f $socket && [ ! -e one/sockets ] && echo removed
            mv $socket one/moved && echo moved
        done
        mkdir -p {own}/forward+x/8123 && echo made; rm -rf {own} && echo removed; mv {own} {own}.x && echo moved
        touch one/attacked"
    );
    let script = format!(
        "(until [ -e one/sockets ]; do sleep 0.05; done; {attack}) > one/said 2> one/errors &\n{}",
        serve("127.0.0.1", 8123, "one").replace("kill %1", "kill %2")
    );
    let run = forwarding(&world, "isolated", "[8123]").option("--write", "/tmp");
    let session = started(&world, run, &script, "one");
    let socket = sockets(&world, &session).remove(0).1;
    fs::write(world.project("one/sockets"), socket.to_str().unwrap()).unwrap();
    wait_for("the attack", || {
        world.project("one/attacked").exists().then_some(())
    })
    .unwrap();
    let said = fs::read_to_string(world.project("one/said")).unwrap();
    let errors = fs::read_to_string(world.project("one/errors")).unwrap();
    for word in ["listed", "reached", "moved", "made"] {
        assert!(!said.contains(word), "{word}: {said}{errors}");
    }
    assert!(said.is_empty(), "{said}{errors}");
    // Nor has another session, of either backend, with the host's network and the same directory.
    for backend in ["bwrap", "landlock"] {
        let launcher = launcher();
        let at = socket.display();
        let script = format!(
            "curl -sS -m 5 --unix-socket {at} http://localhost/page; rm -f {at}; mv {at} moved; touch {own}/made && echo made; echo ran"
        );
        let words = [
            launcher.to_str().unwrap(),
            "-q",
            "--backend",
            backend,
            "--write",
            "/tmp",
            "--",
            "bash",
            "-c",
            &script,
        ];
        let other = world.outside().run(&words);
        if backend == "landlock" && other.code() == crate::world::REFUSED {
            not_checked("another session by Landlock", "this kernel has none");
            continue;
        }
        assert_eq!(other.stdout, "ran\n", "{backend}: {other:?}");
    }
    assert_eq!(get(&world, &socket).stdout, "of one\n");
    ends(&world, session, "one");
    assert!(!socket.exists());
}

/// The process that forwards: in the network of the jail and in no other, without any right.
#[test]
fn who_forwards_stands_in_the_jails_network_without_rights() {
    if has_no_network("who forwards") {
        return;
    }
    let world = World::new();
    let run = forwarding(&world, "filtered", "[8123]");
    let session = started(&world, run, &serve("127.0.0.1", 8123, "one"), "one");
    let children = format!("/proc/{0}/task/{0}/children", session.pid());
    let children = fs::read_to_string(children).unwrap();
    let is_it = |pid: &&str| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with(b"agent-sandbox-filter\0forward")
    };
    let who = children.split_whitespace().find(is_it).unwrap();
    let status = fs::read_to_string(format!("/proc/{who}/status")).unwrap();
    for line in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let none = format!("{line}:\t{:016}\n", 0);
        assert!(status.contains(&none), "{line}: {status}");
    }
    assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    // Its network has the listener of the jail's server, and this one has not.
    let listens = |process: &str| {
        let text = fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap();
        text.contains(&format!("0100007F:{:04X} 00000000:0000 0A", 8123))
    };
    assert!(listens(who) && !listens("self"));
    ends(&world, session, "one");
    wait_for("its end", || {
        (!Path::new(&format!("/proc/{who}/exe")).exists()).then_some(())
    })
    .unwrap();
}

#[test]
fn a_killed_launcher_leaves_a_socket_that_leads_nowhere_and_the_next_removes_it() {
    if has_no_network("a launcher that is killed") {
        return;
    }
    let world = World::new();
    let run = forwarding(&world, "isolated", "[8123]");
    let session = started(&world, run, &serve("127.0.0.1", 8123, "one"), "one");
    let socket = sockets(&world, &session).remove(0).1;
    kill(Pid::from_raw(session.pid()), Signal::SIGKILL).unwrap();
    session.wait();
    wait_for("the end of who forwards", || {
        UnixStream::connect(&socket).is_err().then_some(())
    })
    .unwrap();
    // Any launch that forwards removes it, also one of another test's. Others that run keep theirs.
    let run = forwarding(&world, "isolated", "[8123]");
    let beside = started(&world, run, &serve("127.0.0.1", 8123, "two"), "two");
    assert!(!socket.parent().unwrap().exists());
    let other = sockets(&world, &beside).remove(0).1;
    let output = forwarding(&world, "isolated", "[8123]").run(&["true"]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert_eq!(get(&world, &other).stdout, "of two\n");
    ends(&world, beside, "two");
}

/// A host that the user gives later may name a port that is forwarded: the filter would then answer there instead of the server.
#[test]
fn a_filter_takes_no_port_that_is_forwarded() {
    if has_no_network("the ports of a filter") {
        return;
    }
    let world = World::new();
    let refused = forwarding(&world, "filtered", "[8123]")
        .option("--set", "network.allow=[\"a.example:8000-9000\"]")
        .run(&["true"]);
    let why = "port 8123 cannot be forwarded (network.forward (--set network.forward)): the network's filter listens there inside, for \
               `a.example:8000-9000` (--set network.allow)";
    assert!(
        refused.code() == crate::world::REFUSED && refused.stderr.contains(why),
        "{refused:?}"
    );
    let run = forwarding(&world, "filtered", "[8123, 9123]");
    // Of the two ports one has no listener.
    let session = started(&world, run, &serve("127.0.0.1", 8123, "one"), "one");
    let socket = sockets(&world, &session).remove(0).1;
    let name = socket
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let id = name
        .strip_prefix("forward+")
        .and_then(|rest| rest.split('.').next())
        .unwrap();
    for port in [8123, 9123] {
        let launcher = launcher();
        let host = format!("a.example:{port}");
        let words = [launcher.to_str().unwrap(), "allow", id, &host];
        let output = world.outside().run(&words);
        let why = format!("port {port} of this session is forwarded");
        assert!(
            output.code() != 0 && output.stderr.contains(&why),
            "{output:?}"
        );
    }
    assert_eq!(get(&world, &socket).stdout, "of one\n");
    ends(&world, session, "one");
}

/// A server that speaks first, and one that floods, to a user who reads slowly: both ends go on when they are read.
#[test]
fn what_comes_from_inside_is_bytes_for_whoever_connected() {
    if has_no_network("bytes from inside") {
        return;
    }
    let world = World::new();
    let script = "mkdir -p one; python3 - <<'end'
import os, socket, time
at = socket.create_server(('127.0.0.1', 8123)); open('one/up', 'w')
one = at.accept()[0]
for _ in range(20): one.sendall(b'x' * (1 << 20))
one.close()
while not os.path.exists('one/over'): time.sleep(0.1)
end";
    let run = forwarding(&world, "isolated", "[8123]");
    let session = run.start(&["bash", "-c", script]);
    wait_for("the server inside", || {
        world.project("one/up").exists().then_some(())
    })
    .unwrap();
    let socket = sockets(&world, &session).remove(0).1;
    let mut got = Vec::new();
    UnixStream::connect(&socket)
        .unwrap()
        .read_to_end(&mut got)
        .unwrap();
    assert_eq!(got.len(), 20 << 20);
    assert!(got.iter().all(|byte| *byte == b'x'));
    ends(&world, session, "one");
}
