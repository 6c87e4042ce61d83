//! A filtered network: whom it leads to, and whom not. Servers of the test's own stand at every address of this host, and are
//! reached by the host's name; `private` allows that, for such an address is not public.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, ToSocketAddrs};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gethostname};

use crate::backend::is_landlock;
use crate::world::{World, launcher, not_checked, wait_for};

/// A server that answers each connection, in this process; its port.
pub(crate) fn server() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nserved\n");
        }
    });
    port
}

/// The name of this host, and an address that it has.
pub(crate) fn this_host() -> Option<(String, String)> {
    let name = gethostname().unwrap().into_string().unwrap();
    let found = (name.as_str(), 80).to_socket_addrs().ok();
    let address = found.and_then(|mut all| all.find(|one| one.is_ipv4()));
    if address.is_none() {
        not_checked("a filtered network", "this host's name has no address");
    }
    address.map(|address| (name, address.ip().to_string()))
}

const FUNCTIONS: &str = r#"
ask() { name=$1; shift; echo "$name: $(curl -sS -m 20 "$@" 2>&1 | tr '\n' ' ')"; }
"#;

#[test]
fn a_filtered_network_leads_to_what_is_allowed_and_nowhere_else() {
    let world = World::new();
    let landlock = is_landlock();
    let Some((host, address)) = this_host() else {
        return;
    };
    let (open, unnamed, public) = (server(), server(), server());
    let private = format!("network.private=[\"{host}:{open}\"]");
    let allow = format!("network.allow=[\"{host}:{public}\"]");
    let options = [
        "--set",
        "network.mode=filtered",
        "--set",
        &private,
        "--set",
        &allow,
    ];
    let script = format!(
        r#"{FUNCTIONS}
ask allowed http://{host}:{open}/
ask port http://{host}:{unnamed}/
ask private http://{host}:{public}/
ask name http://refused.example/
ask again http://refused.example/
ask address http://{address}:{open}/
ask mapped "http://[::ffff:{address}]:{open}/"
ask loopback http://127.0.0.1:{open}/
ask elsewhere http://127.0.0.1:{unnamed}/
python3 - <<END
import socket
try:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.settimeout(5)
    one.connect(("9.9.9.9", 443))
    one.send(b"x"); one.recv(1); print("udp: answered")
except OSError as error:
    print("udp:", error.strerror)
for name in ["{host}", "refused.example"]:
    try:
        print("dns:", name, socket.gethostbyname(name).split(".")[0])
    except OSError as error:
        print("dns:", name, "none")
END
python3 - <<END
import socket
for family in [socket.AF_INET, socket.AF_UNSPEC]:
    found = socket.getaddrinfo("{host}", {open}, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    print("configured:", int(family), found[0][4][0].split(".")[0])
END
ask own http://198.19.255.254:{open}/
agent-sandbox explain --host refused.example:80 | head -1
agent-sandbox explain --host {host}:{open} | head -1
"#
    );
    let output = world.loud(options).run(&["bash", "-c", &script]);
    let said = format!("{}{}", output.stdout, output.stderr);
    // Landlock leaves the host's own /etc/hosts in sight, in which this host's name may stand; who connects to what stands there
    // means the name.
    let hosts = match landlock {
        true => fs::read_to_string("/etc/hosts").unwrap_or_default(),
        false => String::new(),
    };
    let in_hosts = hosts.split_whitespace().any(|word| word == host);
    let first = match in_hosts {
        true => address.split('.').next().unwrap(),
        false => "198",
    };
    let udp = match landlock {
        true => "Protocol not supported",
        false => "Connection refused",
    };
    for line in [
        "allowed: served",
        &format!("udp: {udp}"),
        &format!("dns: {host} {first}"),
        "dns: refused.example none",
        &format!("configured: 2 {first}"),
        &format!("configured: 0 {first}"),
        "refused.example:80: cannot be connected to from inside",
        &format!("{host}:{open}: can be connected to from inside"),
        "network filtered (agent-sandbox allow ",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    for refused in [
        "port",
        "private",
        "name",
        "again",
        "address",
        "mapped",
        "loopback",
        "elsewhere",
        "own",
    ] {
        if in_hosts && ["address", "mapped"].contains(&refused) {
            continue;
        }
        let begins = format!("{refused}: ");
        let line = said.lines().find(|line| line.starts_with(&begins));
        let closed = line.is_some_and(|line| !line.contains("served"));
        assert!(closed, "{refused}: {line:?}\n{said}");
    }
    // Once a host, however often it is asked for.
    let told = said.matches("agent-sandbox: refused.example is not reached");
    assert_eq!(told.count(), 1, "{said}");
    let record = fs::read_dir(world.home(".local/state/agent-sandbox/audit")).unwrap();
    let record: String = record
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    // With the address by which it is known inside, for whoever reads a trail.
    let known =
        format!("\"kind\":\"network\",\"name\":\"{host}\",\"port\":{open},\"inside\":\"198.18.0.");
    let is_it = |line: &str| line.contains(&known) && line.contains("\"verdict\":\"allowed\"");
    // A host that stands in the host's own file is connected to by its real one.
    assert!(in_hosts || record.lines().any(is_it), "{record}");
    let log = world
        .outside()
        .run(&[launcher().to_str().unwrap(), "log", "--network"]);
    for (verdict, host, reason) in [
        (
            "allowed",
            format!("{host}:{open}"),
            "(--set network.private)",
        ),
        (
            "refused",
            "refused.example".to_owned(),
            "add `refused.example` to network.allow",
        ),
    ] {
        let is_it = |line: &&str| line.contains(verdict) && line.contains(&format!("{host} "));
        let line = log.stdout.lines().find(is_it);
        assert!(
            line.is_some_and(|line| line.contains(reason)),
            "{reason}: {log:?}"
        );
    }
}

/// The processes below one, at any depth.
fn below(process: i32) -> Vec<i32> {
    let children = format!("/proc/{process}/task/{process}/children");
    let text = fs::read_to_string(children).unwrap_or_default();
    let own: Vec<i32> = text
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let deeper: Vec<i32> = own.iter().flat_map(|one| below(*one)).collect();
    [own, deeper].concat()
}

#[test]
fn without_its_filter_nothing_is_reached() {
    let Some((host, _)) = this_host() else {
        return;
    };
    let world = World::new();
    let port = server();
    let private = format!("network.private=[\"{host}:{port}\"]");
    let options = ["--set", "network.mode=filtered", "--set", &private];
    let ask = format!("curl -sS -m 20 http://{host}:{port}/");
    let script = format!(
        "at=$(python3 -c 'import socket; print(socket.gethostbyname(\"{host}\"))'); {ask}; touch asked; \
         until [ -e stopped ]; do sleep 0.05; done; curl -sS -m 2 http://{host}:{port}/ http://$at:{port}/; touch waited; \
         until [ -e goes ]; do sleep 0.05; done; {ask}; touch again; until [ -e killed ]; do sleep 0.05; done; {ask}; curl -sS -m 20 http://$at:{port}/; echo ended"
    );
    let first = world.jail(options).start(&["bash", "-c", &script]);
    wait_for("the first answer", || {
        world.project("asked").exists().then_some(())
    })
    .unwrap();
    // Another session beside it has a filter of its own.
    let other = world.jail(options).run(&["sh", "-c", &ask]);
    assert_eq!(other.stdout, "served\n", "{}", other.stderr);
    let filter = below(first.pid()).into_iter().find(|process| {
        let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        words.starts_with(b"agent-sandbox-filter\0")
    });
    let filter = Pid::from_raw(filter.unwrap());
    // One that is slow lets nothing pass meanwhile, and everything afterwards.
    for (signal, now, then) in [
        (Signal::SIGSTOP, "stopped", "waited"),
        (Signal::SIGCONT, "goes", "again"),
    ] {
        kill(filter, signal).unwrap();
        fs::write(world.project(now), "").unwrap();
        wait_for(then, || world.project(then).exists().then_some(())).unwrap();
    }
    kill(filter, Signal::SIGKILL).unwrap();
    fs::write(world.project("killed"), "").unwrap();
    let output = first.wait();
    assert_eq!(
        output.stdout, "served\nserved\nended\n",
        "{}",
        output.stderr
    );
}

/// Programs that look up their own host meet at the jail's loopback (MPICH's `mpiexec`, for example), without any rule.
#[test]
fn the_hosts_own_name_is_the_jails_loopback() {
    if is_landlock() {
        return not_checked(
            "a name of the jail's own",
            "Landlock makes no network of the jail's own",
        );
    }
    let world = World::new();
    let script = r#"
name=$(cat /proc/sys/kernel/hostname)
echo "ip: $(hostname -i)"
for one in "$name" "${name%%.*}" localhost x.localhost; do echo "$(getent ahostsv4 "$one" | head -1 | cut -d' ' -f1)"; done
python3 -c 'import socket
at = socket.create_server(("127.0.0.1", 0))
name = socket.gethostname()
print("python:", socket.gethostbyname(name))
socket.create_connection((name, at.getsockname()[1]), 5)
at.accept()
print("met")'
getent ahostsv4 "x$name" || echo none
"#;
    let output = world
        .loud(["--set", "network.mode=filtered"])
        .run(&["bash", "-c", script]);
    let expected =
        "ip: 127.0.0.1\n127.0.0.1\n127.0.0.1\n127.0.0.1\n127.0.0.1\npython: 127.0.0.1\nmet\nnone\n";
    assert_eq!(output.stdout, expected, "{output:?}");
    let told = output.stderr.matches(" is not reached: ").count();
    assert_eq!(told, 1, "of the other name alone: {output:?}");
}
