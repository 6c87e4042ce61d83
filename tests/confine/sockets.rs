//! Services that would act for the agent: by socket files, by abstract sockets, by TCP.

use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;

use crate::backend::{assert_answers, is_as_good, is_landlock};
use crate::op;
use crate::probe::{Attack, name, tell};
use crate::world::{World, landlock_abi, not_checked};

pub(crate) const ATTACKS: &[Attack] = &[("abstract", abstract_sockets), ("tcp", tcp)];

/// Where daemons of a login node listen.
fn usual() -> Vec<PathBuf> {
    let uid = nix::unistd::getuid();
    [
        "/run/dbus/system_bus_socket",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
        "/run/munge/munge.socket.2",
        "/var/run/munge/munge.socket.2",
        "/run/nscd/socket",
        "/run/systemd/private",
        "/run/systemd/journal/socket",
        "/run/systemd/userdb/io.systemd.DynamicUser",
        "/run/slurmctld",
        "/run/lsd",
        "/run/sssd",
        "/var/lib/sss/pipes/nss",
        "/var/spool/slurmd",
        "/run/cups/cups.sock",
        "/tmp/.X11-unix/X0",
    ]
    .map(PathBuf::from)
    .into_iter()
    .chain(
        [
            "bus",
            "systemd/private",
            "gnupg/S.gpg-agent",
            "keyring/ssh",
            "podman/podman.sock",
            "wayland-0",
        ]
        .map(|name| PathBuf::from(format!("/run/user/{uid}/{name}"))),
    )
    .collect()
}

#[test]
fn sockets_of_the_host_are_absent() {
    let world = World::new();
    let shared = tempfile::Builder::new()
        .prefix("confine.")
        .tempdir_in("/tmp")
        .unwrap();
    let planted = [
        shared.path().join("s"),
        world.home("agent.sock"),
        world.home(".gnupg/S.gpg-agent"),
        world.home(".ssh/control"),
    ];
    let _listening: Vec<UnixListener> = planted
        .iter()
        .map(|path| UnixListener::bind(path).unwrap())
        .collect();
    let connects: Vec<String> = planted.iter().map(|path| op!("connect", path)).collect();
    assert_eq!(world.outside().operations(&connects), ["ok"; 4]);
    for mode in ["tmpfs", "read", "write"] {
        let answers = world.jail(["--home", mode]).operations(&connects);
        assert_answers(&answers, &["ENOENT"; 4], mode);
    }
    let usual: Vec<String> = usual().iter().map(|path| op!("connect", path)).collect();
    for (operation, answer) in usual.iter().zip(world.jail([]).operations(&usual)) {
        assert!(is_as_good(&answer, "ENOENT"), "{operation}: {answer}");
    }
    let answers = world.jail([]).operations(&[
        op!("list", "/run"),
        op!("list", "/tmp"),
        op!("readlink", "/var/run"),
    ]);
    if is_landlock() {
        // The host's own, closed.
        return assert_eq!(answers[..2], ["EACCES"; 2]);
    }
    for name in answers[0].trim_start_matches("ok:").split(',') {
        let known = [
            "agent-sandbox",
            "user",
            "systemd",
            "NetworkManager",
            "resolvconf",
            "current-system",
            "opengl-driver",
        ];
        assert!(known.contains(&name), "/run/{name}");
    }
    assert_eq!(answers[1..], ["ok", "ok:../run"]);
}

/// Connects and sends to an abstract address, in both types of sockets.
fn abstract_sockets(words: &[String]) {
    let address = SocketAddr::from_abstract_name(&words[0]).expect("an address");
    let told = |result: std::io::Result<()>| {
        result.map_or_else(|error| name(&error), |()| "ok".to_owned())
    };
    tell("stream", told(UnixStream::connect_addr(&address).map(drop)));
    let datagrams = SocketAddr::from_abstract_name(&words[1]).expect("an address");
    match UnixDatagram::unbound() {
        Ok(socket) => {
            let sent = socket.send_to_addr(b"x", &datagrams).map(drop);
            tell("send", told(sent));
            tell("connect", told(socket.connect_addr(&datagrams)));
        }
        // The mediator judges what is connected, so a socket that needs no connection is not had.
        Err(error) => {
            for what in ["send", "connect"] {
                tell(what, format!("no socket: {}", name(&error)));
            }
        }
    }
    // Its own ones work: programs use them among themselves.
    let own = SocketAddr::from_abstract_name(format!("{}-own", words[0])).expect("an address");
    let _listener = UnixListener::bind_addr(&own).expect("an own socket");
    tell("own", told(UnixStream::connect_addr(&own).map(drop)));
}

#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    let world = World::new();
    let words = [
        format!("confine-{}", world.marker),
        format!("confine-{}-d", world.marker),
    ];
    let address = |name: &String| SocketAddr::from_abstract_name(name).unwrap();
    let _stream = UnixListener::bind_addr(&address(&words[0])).unwrap();
    let _datagrams = UnixDatagram::bind_addr(&address(&words[1])).unwrap();
    let plain = world.outside().attack("abstract", &words);
    assert!(plain.all().all(|(_, answer)| answer == "ok"), "{plain:?}");
    let isolated = world
        .jail(["--set", "network.mode=isolated"])
        .attack("abstract", &words);
    for what in ["stream", "send", "connect"] {
        let none = is_landlock() && isolated.get(what) == "no socket: EPROTONOSUPPORT";
        assert!(
            none || ["ECONNREFUSED", "EPERM"].contains(&isolated.get(what)),
            "{isolated:?}"
        );
    }
    if landlock_abi() < 6 {
        not_checked("abstract sockets with an open network", "no Landlock ABI 6");
        return;
    }
    for nested in ["false", "true"] {
        let report = world
            .jail(["--set", &format!("jail.nested={nested}")])
            .attack("abstract", &words);
        assert_eq!(report.get("stream"), "EPERM");
        for what in ["send", "connect"] {
            let none = is_landlock() && report.get(what) == "no socket: EPROTONOSUPPORT";
            assert!(none || report.get(what) == "EPERM", "{report:?}");
        }
        assert_eq!(report.get("own"), "ok");
    }
}

fn tcp(words: &[String]) {
    let port: u16 = words[0].parse().expect("a port");
    let connected = TcpStream::connect(("127.0.0.1", port));
    tell(
        "loopback",
        connected.map_or_else(|error| name(&error), |_| "ok".to_owned()),
    );
    // An address for documentation (RFC 5737): nobody answers, but a network would try.
    let far =
        std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect("192.0.2.1:9"));
    tell(
        "far",
        far.map_or_else(|error| name(&error), |()| "ok".to_owned()),
    );
    tell(
        "interfaces",
        crate::operations::carry_out(&["read", "/proc/self/net/dev"]),
    );
}

#[test]
fn an_isolated_jail_has_no_network() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let plain = world.outside().attack("tcp", &[&port]);
    assert_eq!(plain.get("loopback"), "ok");
    let options = ["--set", "network.mode=isolated"];
    let report = world.jail(options).attack("tcp", &[&port]);
    assert_ne!(report.get("far"), "ok");
    if world.lacks_with(
        &options,
        "network",
        "the names of the host's network interfaces",
    ) {
        // No socket of any network.
        return assert_eq!(report.get("loopback"), "EAFNOSUPPORT");
    }
    assert_eq!(report.get("loopback"), "ECONNREFUSED");
    let others = report.get("interfaces").matches(": ").count();
    assert!(others <= 1, "{report:?}");
}

/// The user's tmux server would run any command for whoever reaches its socket.
#[test]
fn the_users_tmux_is_out_of_reach_and_ones_own_works() {
    let world = World::new();
    let name = format!("confine-{}", &world.marker[6..]);
    let tmux = |words: &[&str]| {
        let mut all = vec!["tmux", "-L", &name];
        all.extend(words);
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let started = world
        .outside()
        .run(&tmux(&["new-session", "-d", "sleep 60"]));
    assert_eq!(started.code(), 0, "{started:?}");
    let plain = world.outside().run(&tmux(&["ls"]));
    let uid = nix::unistd::getuid();
    let socket = format!("/tmp/tmux-{uid}/{name}");
    let inside = world
        .jail([])
        .env("TMUX", format!("{socket},1,0"))
        .env("TERM", "xterm")
        .run(&tmux(&["ls"]));
    let whole = world.jail([]).run(&["tmux", "-S", &socket, "ls"]);
    let own = world.jail([]).env("TERM", "xterm").run(&[
        "sh",
        "-c",
        "tmux new-session -d 'sleep 5' && tmux ls",
    ]);
    let stopped = world.outside().run(&tmux(&["kill-server"]));
    assert_eq!(plain.code(), 0, "{plain:?}");
    assert_ne!(inside.code(), 0, "{inside:?}");
    assert_ne!(whole.code(), 0, "{whole:?}");
    assert_eq!(own.code(), 0, "{own:?}");
    assert_eq!(stopped.code(), 0, "{stopped:?}");
}
