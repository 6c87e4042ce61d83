//! Two networks of a test's own: outside, with addresses of the documentation ranges, and a jail's, in which every address is
//! local and whose listeners a filter holds.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, dead_code)] // a test: the panic is the failure

pub(crate) mod hello;
pub(crate) mod tls;

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use agent_sandbox_filter::{Addresses, Broker, Event, Filter, Outside, Sockets, Verdict};
use agent_sandbox_hosts::{Endpoint, HostRules, Name, Rule};
use agent_sandbox_support::not_checked;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{RData, RecordType};
use nix::sched::{CloneFlags, unshare};

/// Set where a test runs in its own network already.
const ALONE: &str = "AGENT_SANDBOX_TEST_ALONE";
/// Nothing here takes as long, but on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test in user and network namespaces of its own: the test program once more, for this test.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        alone_here();
        return body();
    }
    let unshare = |command: &mut Command| {
        command.arg("--user").arg("--map-root-user").arg("--net");
        command.env(ALONE, "1").arg("--");
    };
    let mut probe = Command::new("unshare");
    unshare(&mut probe);
    if !probe
        .args(["ip", "link"])
        .output()
        .is_ok_and(|out| out.status.success())
    {
        return not_checked(
            test,
            "no network namespace, or no iproute2, on this machine",
        );
    }
    let mut again = Command::new("unshare");
    unshare(&mut again);
    let again = again
        .arg(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout).into_owned()
        + &String::from_utf8_lossy(&again.stderr);
    assert!(
        again.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

/// Sets this network up: addresses of the documentation ranges.
pub(crate) fn alone_here() {
    ip("link set lo up");
    ip("route add local 203.0.113.0/24 dev lo");
    ip("-6 addr add 2001:db8::1/32 dev lo nodad");
}

fn ip(line: &str) {
    let out = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(
        out.status.success(),
        "ip {line}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// The alert `access_denied`, as a record.
pub(crate) const ALERT: &str = "\u{15}\u{3}\u{3}\0\u{2}\u{2}1";

/// Where servers are.
pub(crate) const AT: &[&[&str]] = &[&["203.0.113.1"]];

/// Rules for names at addresses of the documentation ranges.
pub(crate) fn open(allow: &[&str]) -> HostRules {
    rules(
        allow,
        &["bad.example"],
        &[
            "203.0.113.1",
            "203.0.113.2",
            "2001:db8::1",
            "lo.example:8000",
        ],
    )
}

/// What names mean outside: answers in turn, the last for ever.
#[derive(Default)]
pub(crate) struct Zone {
    answers: Mutex<BTreeMap<String, VecDeque<Vec<IpAddr>>>>,
    own: Mutex<Vec<IpAddr>>,
    pub(crate) asked: Mutex<Vec<String>>,
}

impl Outside for Zone {
    fn resolve<'a>(&'a self, name: &'a Name, _: u16) -> Addresses<'a> {
        assert_ne!(name.as_str(), "panic.example");
        self.asked.lock().unwrap().push(name.to_string());
        let mut answers = self.answers.lock().unwrap();
        let found = answers.get_mut(name.as_str()).map(|turns| {
            let last = turns.len() == 1;
            if last {
                turns[0].clone()
            } else {
                turns.pop_front().unwrap()
            }
        });
        Box::pin(async move { found.ok_or_else(|| std::io::Error::other("no such name")) })
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own.lock().unwrap().contains(&address)
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// A jail's network, its filter and what the filter told.
pub(crate) struct Jail {
    thread: Sender<Task>,
    pub(crate) filter: Option<Filter>,
    pub(crate) zone: Arc<Zone>,
    events: Arc<Mutex<Vec<Event>>>,
}

/// Rules for one session.
pub(crate) fn rules(allow: &[&str], deny: &[&str], private: &[&str]) -> HostRules {
    let list = |texts: &[&str]| {
        let rule = |text: &&str| Rule {
            rule: text.parse().unwrap(),
            set: None,
            origin: "policy:1".to_owned(),
        };
        texts.iter().map(rule).collect()
    };
    let closed = vec![Endpoint {
        address: None,
        ports: (6817, 6817),
        what: "slurmctld".to_owned(),
    }];
    HostRules {
        allow: list(allow),
        deny: list(deny),
        private: list(private),
        closed,
    }
}

impl Jail {
    /// A jail with these rules; outside `names` mean these addresses, one answer after the other.
    pub(crate) fn new(rules: HostRules, names: &[(&str, &[&[&str]])]) -> Self {
        Self::with(rules, None, names)
    }

    /// The same, with credentials that are exchanged.
    pub(crate) fn with(
        rules: HostRules,
        broker: Option<Broker>,
        names: &[(&str, &[&[&str]])],
    ) -> Self {
        let (thread, tasks) = channel::<Task>();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link set lo up");
            ip("route add local 0.0.0.0/0 dev lo");
            ip("-6 route add local ::/0 dev lo");
            tasks.into_iter().for_each(|task| task());
        });
        let zone = Arc::new(Zone::default());
        for (name, turns) in names {
            let address = |text: &&str| text.parse().unwrap();
            let turns = turns
                .iter()
                .map(|turn| turn.iter().map(address).collect())
                .collect();
            zone.answers
                .lock()
                .unwrap()
                .insert((*name).to_owned(), turns);
        }
        let mut jail = Self {
            thread,
            filter: None,
            zone,
            events: Arc::default(),
        };
        let ports = rules.ports().unwrap();
        let sockets = jail.run(move || Sockets {
            tcp: ports
                .iter()
                .map(|port| TcpListener::bind(("::", *port)).unwrap())
                .collect(),
            dns_udp: Some(UdpSocket::bind("127.0.0.1:53").unwrap()),
            dns_tcp: Some(TcpListener::bind("127.0.0.1:53").unwrap()),
        });
        let events = Arc::clone(&jail.events);
        let sink = Box::new(move |event| events.lock().unwrap().push(event));
        let outside: Arc<dyn Outside> = jail.zone.clone();
        jail.filter = Some(Filter::start(rules, broker, sockets, outside, sink).unwrap());
        jail
    }

    /// Does something in the jail's network.
    pub(crate) fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        self.thread
            .send(Box::new(move || done.send(task()).unwrap()))
            .unwrap();
        result.recv_timeout(PATIENCE).unwrap()
    }

    /// Looks a name up.
    pub(crate) fn ask(&self, name: &str, kind: RecordType) -> (ResponseCode, Vec<IpAddr>) {
        let mut query = Message::new(77, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(
            hickory_proto::rr::Name::from_ascii(name).unwrap(),
            kind,
        ));
        let query = query.to_vec().unwrap();
        let answer = self.run(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(&query, "127.0.0.1:53").unwrap();
            let mut answer = [0; 1500];
            let length = socket.recv(&mut answer).unwrap();
            Message::from_vec(&answer[..length]).unwrap()
        });
        assert_eq!(answer.metadata.id, 77);
        let address = |record: &hickory_proto::rr::Record| match record.data {
            RData::A(a) => IpAddr::V4(a.0),
            ref other => panic!("{other:?}"),
        };
        (
            answer.metadata.response_code,
            answer.answers.iter().map(address).collect(),
        )
    }

    /// Connects to a name, or to an address.
    pub(crate) fn connect(&self, host: &str, port: u16) -> TcpStream {
        self.try_connect(host, port).unwrap()
    }

    fn try_connect(&self, host: &str, port: u16) -> std::io::Result<TcpStream> {
        let address = host
            .parse()
            .unwrap_or_else(|_| self.ask(&format!("{host}."), RecordType::A).1[0]);
        let at = SocketAddr::new(address, port);
        let stream = self.run(move || TcpStream::connect_timeout(&at, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Sends bytes to a host and gives all that comes back, or `reset`: that may come before `connect(2)` is seen to be done.
    pub(crate) fn say(&self, host: &str, port: u16, bytes: &[u8]) -> String {
        match self.try_connect(host, port) {
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => "reset".to_owned(),
            stream => {
                let mut stream = stream.unwrap();
                if stream.write_all(bytes).is_err() {
                    return "reset".to_owned();
                }
                said(&mut stream)
            }
        }
    }

    /// The same, with the end of what is sent behind it.
    pub(crate) fn say_and_end(&self, host: &str, port: u16, bytes: &[u8]) -> String {
        let mut stream = self.connect(host, port);
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        said(&mut stream)
    }

    /// All that was told.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// Why hosts were refused or not reached, in order.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let why = |event: &Event| match &event.verdict {
            Verdict::Refused { why, .. } | Verdict::Failed { why } => Some(why.clone()),
            _ => None,
        };
        self.events.lock().unwrap().iter().filter_map(why).collect()
    }

    /// Hosts that were reached.
    pub(crate) fn reached(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let reached = events
            .iter()
            .filter(|event| matches!(event.verdict, Verdict::Reached { .. }));
        reached
            .map(|event| format!("{}:{}", event.host, event.port.unwrap()))
            .collect()
    }

    /// Makes an address one of the host's own.
    pub(crate) fn own(&self, address: &str) {
        self.zone.own.lock().unwrap().push(address.parse().unwrap());
    }
}

/// All that comes until the end.
pub(crate) fn said(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes.iter().map(|b| char::from(*b)).collect(),
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => "reset".to_owned(),
        Err(e) => panic!("{e} after {bytes:?}"),
    }
}

/// A server outside, and what it got: each connection is handled alone.
pub(crate) fn server(at: &str, serve: impl Fn(TcpStream) + Send + Sync + 'static) {
    let listener = TcpListener::bind(at).unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
}

/// A server that sends back all it gets, after a greeting.
pub(crate) fn echo(at: &str) {
    server(at, |mut stream| {
        stream.write_all(b"got ").unwrap();
        let mut copy = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut copy);
        let _ = copy.shutdown(std::net::Shutdown::Write);
    });
}
