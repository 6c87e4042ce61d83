//! The agent before a real ssh-agent: what is signed, and everything that is not.

#![cfg(feature = "agent")]
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test: the panic is the failure

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use agent_sandbox_ssh::{
    Agent, Event, KeyName, Keys, KnownHost, LONGEST_MESSAGE, MOST_CONNECTIONS, PublicKey, Refusal,
    Rules, Verdict, key_in,
};
use agent_sandbox_support::waiting::until;

mod messages;

use messages::{Host, SESSION, bind, login, sign, string};

const FAILURE: &[u8] = &[5];
const SUCCESS: &[u8] = &[6];

/// A real ssh-agent with keys, and ours before it.
struct World {
    directory: tempfile::TempDir,
    real: Child,
    events: Arc<Mutex<Vec<Event>>>,
    named: Host,
    other: Host,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.real.kill();
        let _ = self.real.wait();
    }
}

impl World {
    /// `git@named.example.org` is named, by its key.
    fn new() -> Self {
        Self::with(|_| Keys::All)
    }

    fn with(keys: impl FnOnce(&Self) -> Keys) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let real = Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(directory.path().join("real"))
            .stdout(Stdio::null())
            .spawn()
            .expect("ssh-agent (openssh-client)");
        let world = Self {
            directory,
            real,
            events: Arc::default(),
            named: Host::new(1),
            other: Host::new(2),
        };
        until("ssh-agent listens", || world.at("real").exists());
        for (name, kind) in [("ed", "ed25519"), ("rsa", "rsa"), ("ec", "ecdsa")] {
            let keygen = Command::new("ssh-keygen")
                .args(["-q", "-N", "", "-C", "", "-t", kind, "-f"])
                .arg(world.at(name))
                .status();
            assert!(keygen.unwrap().success());
            assert!(
                world
                    .tool("ssh-add", "real", &["-q", world.at(name).to_str().unwrap()])
                    .0
            );
        }
        world.serve("ours", "real", keys(&world));
        world
    }

    /// Serves at a socket of this name, before the agent at another.
    fn serve(&self, at: &str, users: &str, keys: Keys) {
        let rules = Rules {
            hosts: vec![KnownHost {
                destination: "git@named.example.org".parse().unwrap(),
                keys: vec![PublicKey::from_bytes(self.named.key())],
            }],
            keys,
        };
        let events = Arc::clone(&self.events);
        let sink = Box::new(move |event| events.lock().unwrap().push(event));
        let agent = Arc::new(Agent::new(rules, self.at(users), sink));
        let listener = UnixListener::bind(self.at(at)).unwrap();
        thread::spawn(move || agent.serve(&listener));
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Whether a tool of OpenSSH's succeeds with one of the agents, and what it says.
    fn tool(&self, tool: &str, agent: &str, arguments: &[&str]) -> (bool, String) {
        let out = Command::new(tool)
            .args(arguments)
            .env("SSH_AUTH_SOCK", self.at(agent))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [out.stdout, out.stderr].concat();
        (
            out.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    fn key(&self, name: &str) -> Vec<u8> {
        let text = std::fs::read(self.at(&format!("{name}.pub"))).unwrap();
        key_in_any(&text)
    }

    fn client(&self) -> Client {
        self.client_at("ours")
    }

    fn client_at(&self, name: &str) -> Client {
        let stream = UnixStream::connect(self.at(name)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Client(stream)
    }

    /// The last thing that was refused.
    fn refused(&self) -> Option<Refusal> {
        let events = self.events.lock().unwrap();
        match &events.last()?.verdict {
            Verdict::Refused(refusal) => Some(refusal.clone()),
            _ => None,
        }
    }

    fn signed(&self) -> usize {
        let events = self.events.lock().unwrap();
        let signed = |event: &&Event| matches!(event.verdict, Verdict::Signed { .. });
        events.iter().filter(signed).count()
    }
}

fn key_in_any(text: &[u8]) -> Vec<u8> {
    key_in(text).unwrap().as_bytes().to_vec()
}

struct Client(UnixStream);

impl Client {
    fn ask(&mut self, message: &[u8]) -> Vec<u8> {
        self.0.write_all(&string(message)).unwrap();
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut answer).unwrap();
        answer
    }

    /// Whether a signature comes back.
    fn signs(&mut self, key: &[u8], data: &[u8], flags: u32) -> bool {
        match self.ask(&sign(key, data, flags)).as_slice() {
            FAILURE => false,
            [14, ..] => true,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_login_to_a_named_host_is_signed_and_told() {
    let world = World::new();
    let mut client = world.client();
    assert_eq!(client.ask(&world.named.bind(&SESSION, false)), SUCCESS);
    let host = world.named.key();
    for (name, algorithm, flags) in [
        ("ed", "ssh-ed25519", 0),
        ("rsa", "rsa-sha2-256", 2),
        ("rsa", "rsa-sha2-512", 4),
        ("ec", "ecdsa-sha2-nistp256", 0),
    ] {
        let key = world.key(name);
        for bound in [None, Some(host.as_slice())] {
            let data = login(&SESSION, "git", algorithm, &key, bound);
            assert!(
                client.signs(&key, &data, flags),
                "{algorithm}: {:?}",
                world.refused()
            );
        }
    }
    assert_eq!(world.signed(), 8);
    let events = world.events.lock().unwrap();
    assert!(events.iter().all(|event| {
        let host = event.host.as_ref().map(ToString::to_string);
        host.as_deref() == Some("git@named.example.org")
    }));
}

#[test]
fn without_a_host_nothing_is_signed() {
    let world = World::new();
    let key = world.key("ed");
    let mut client = world.client();
    assert!(!client.signs(&key, &login(&SESSION, "git", "ssh-ed25519", &key, None), 0));
    assert_eq!(world.refused(), Some(Refusal::Unbound));
    // A host that is not named; what is asked for on that connection is refused from then on.
    assert_eq!(client.ask(&world.other.bind(&SESSION, false)), FAILURE);
    assert!(matches!(world.refused(), Some(Refusal::UnknownHost(_))));
    assert_eq!(client.ask(&world.named.bind(&SESSION, false)), FAILURE);
    assert!(!client.signs(&key, &login(&SESSION, "git", "ssh-ed25519", &key, None), 0));
    assert_eq!(client.ask(&[11]), [12, 0, 0, 0, 0]);
    assert_eq!(world.signed(), 0);
}

#[test]
fn a_bind_that_the_host_did_not_sign_is_none() {
    let world = World::new();
    let (named, other) = (world.named.key(), &world.other);
    let right = world.named.signs(&SESSION);
    let mut flipped = right.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let mut longer = right.clone();
    longer.push(0);
    let by_name = |name: &[u8]| [string(name), string(&[1; 64])].concat();
    for (what, key, session, signature) in [
        (
            "another host's signature",
            &named,
            SESSION,
            other.signs(&SESSION),
        ),
        (
            "the signature of another session",
            &named,
            SESSION,
            world.named.signs(&[8; 32]),
        ),
        ("a replayed signature", &named, [8; 32], right.clone()),
        ("a bit", &named, SESSION, flipped),
        ("something behind it", &named, SESSION, longer),
        ("nothing", &named, SESSION, Vec::new()),
        (
            "another algorithm",
            &named,
            SESSION,
            by_name(b"rsa-sha2-512"),
        ),
        ("SHA-1", &named, SESSION, by_name(b"ssh-rsa")),
        ("no key", &b"x".to_vec(), SESSION, right.clone()),
        (
            "a key with something behind it",
            &[named.clone(), vec![0]].concat(),
            SESSION,
            right.clone(),
        ),
        (
            "a kind that is not known",
            &string(b"ssh-dss"),
            SESSION,
            by_name(b"ssh-dss"),
        ),
    ] {
        let mut client = world.client();
        assert_eq!(
            client.ask(&bind(key, &session, &signature, false)),
            FAILURE,
            "{what}"
        );
        assert_eq!(world.refused(), Some(Refusal::HostSignature), "{what}");
        let key = world.key("ed");
        let data = login(&session, "git", "ssh-ed25519", &key, None);
        assert!(!client.signs(&key, &data, 0), "{what}");
    }
    let mut client = world.client();
    assert_eq!(client.ask(&world.named.bind(&SESSION, true)), FAILURE);
    assert_eq!(world.refused(), Some(Refusal::Forwarded));
    assert_eq!(world.signed(), 0);
}

#[test]
fn a_login_elsewhere_is_not_signed() {
    let world = World::with(|world| {
        Keys::These(vec![KeyName::Key(PublicKey::from_bytes(world.key("ed")))])
    });
    let (key, rsa) = (world.key("ed"), world.key("rsa"));
    let (named, other) = (world.named.key(), world.other.key());
    let mut client = world.client();
    assert_eq!(client.ask(&world.named.bind(&SESSION, false)), SUCCESS);
    let plain = |session: &[u8], user| login(session, user, "ssh-ed25519", &key, None);
    for (what, key, data, flags) in [
        ("another session", &key, plain(&[8; 32], "git"), 0),
        ("a session's id with more", &key, plain(&[7; 33], "git"), 0),
        ("another user", &key, plain(&SESSION, "root"), 0),
        (
            "another host",
            &key,
            login(&SESSION, "git", "ssh-ed25519", &key, Some(&other)),
            0,
        ),
        (
            "another key in it",
            &key,
            login(&SESSION, "git", "ssh-ed25519", &rsa, Some(&named)),
            0,
        ),
        (
            "a key that is not named",
            &rsa,
            login(&SESSION, "git", "rsa-sha2-512", &rsa, None),
            4,
        ),
        (
            "another algorithm",
            &key,
            login(&SESSION, "git", "rsa-sha2-512", &key, None),
            4,
        ),
        ("odd flags", &key, plain(&SESSION, "git"), 1),
    ] {
        assert!(!client.signs(key, &data, flags), "{what}");
        assert!(world.refused().is_some(), "{what}");
    }
    assert!(
        client.signs(&key, &plain(&SESSION, "git"), 0),
        "and the right one"
    );
    // Of the keys one is told.
    let said = world.tool("ssh-add", "ours", &["-l"]).1;
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("ED25519"), "{said}");
}

/// The user's agent, which was not told of the host, would not know for whom it signs.
#[test]
fn nothing_is_signed_when_the_users_agent_was_not_told_of_the_host() {
    let world = World::new();
    let (broken, real) = (
        UnixListener::bind(world.at("broken")).unwrap(),
        world.at("real"),
    );
    // Gone at the first message of its first client, and there again for the next.
    thread::spawn(move || {
        let (mut first, _) = broken.accept().unwrap();
        first.read_exact(&mut [0; 5]).unwrap();
        drop(first);
        while let Ok((client, _)) = broken.accept() {
            let real = UnixStream::connect(&real).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), real.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            let (mut from, mut to) = (real, client);
            thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
    });
    world.serve("late", "broken", Keys::All);
    let key = world.key("ed");
    let data = login(&SESSION, "git", "ssh-ed25519", &key, None);
    let mut client = world.client_at("late");
    let bind = world.named.bind(&SESSION, false);
    for message in [bind.clone(), sign(&key, &data, 0), sign(&key, &data, 0)] {
        let _ = client.0.write_all(&string(&message));
        let mut answer = [0; 5];
        // It has ended, or says no.
        if client.0.read_exact(&mut answer).is_ok() {
            assert_eq!(answer[4..], *FAILURE);
        }
    }
    assert_eq!(world.signed(), 0);
    // The next one is served.
    let mut client = world.client_at("late");
    assert_eq!(client.ask(&bind), SUCCESS);
    assert!(client.signs(&key, &data, 0));
}

#[test]
fn rsa_with_sha1_is_not_signed() {
    let world = World::new();
    let rsa = world.key("rsa");
    let mut client = world.client();
    assert_eq!(client.ask(&world.named.bind(&SESSION, false)), SUCCESS);
    for (algorithm, flags) in [
        ("ssh-rsa", 0),
        ("rsa-sha2-256", 0),
        ("rsa-sha2-512", 2),
        ("rsa-sha2-256", 6),
    ] {
        assert!(!client.signs(&rsa, &login(&SESSION, "git", algorithm, &rsa, None), flags));
        assert!(
            matches!(world.refused(), Some(Refusal::Algorithm(_))),
            "{algorithm}"
        );
    }
}

#[test]
fn what_is_no_login_is_not_signed() {
    let world = World::new();
    let key = world.key("ed");
    std::fs::write(world.at("file"), "text").unwrap();
    let file = world.at("file");
    let public = world.at("ed.pub");
    let sign_file = [
        "-Y",
        "sign",
        "-n",
        "git",
        "-f",
        public.to_str().unwrap(),
        file.to_str().unwrap(),
    ];
    // What git does for a signed commit (gpg.format=ssh).
    let (signed, said) = world.tool("ssh-keygen", "ours", &sign_file);
    assert!(!signed, "{said}");
    assert_eq!(world.refused(), Some(Refusal::NotLogin));
    assert!(
        world.tool("ssh-keygen", "real", &sign_file).0,
        "the real agent does"
    );
    let mut client = world.client();
    assert_eq!(client.ask(&world.named.bind(&SESSION, false)), SUCCESS);
    for data in [
        &b"SSHSIG\0\0\0\x03git"[..],
        b"",
        b"commit",
        &string(&SESSION),
        &[0xff; 64],
    ] {
        assert!(!client.signs(&key, data, 0));
        assert_eq!(world.refused(), Some(Refusal::NotLogin));
    }
    assert_eq!(world.signed(), 0);
}

#[test]
fn nobody_changes_the_users_agent() {
    let world = World::new();
    let keys = world.tool("ssh-add", "real", &["-l"]).1;
    for arguments in [
        vec!["-D"],
        vec!["-d", world.at("ed").to_str().unwrap()],
        vec![world.at("ed").to_str().unwrap()],
        vec!["-X"],
        vec!["-s", "/usr/lib/pkcs11.so"],
        vec!["-e", "/usr/lib/pkcs11.so"],
    ] {
        let (done, said) = world.tool("ssh-add", "ours", &arguments);
        assert!(!done, "{arguments:?}: {said}");
    }
    let mut client = world.client();
    // All other requests, with and without something in them; 22 locks.
    for kind in (0..=255_u8).filter(|kind| ![11, 13, 27].contains(kind)) {
        assert_eq!(client.ask(&[kind]), FAILURE, "{kind}");
        assert_eq!(
            client.ask(&[vec![kind], string(b"password")].concat()),
            FAILURE,
            "{kind}"
        );
        assert_eq!(world.refused(), Some(Refusal::Request(kind)));
    }
    for extension in [
        &b"query"[..],
        b"session-bind@openssh.co",
        b"session-bind@openssh.com\0",
        b"",
    ] {
        assert_eq!(client.ask(&[vec![27], string(extension)].concat()), FAILURE);
    }
    assert_eq!(world.tool("ssh-add", "real", &["-l"]).1, keys);
}

#[test]
fn messages_that_are_none_end_the_connection_or_fail() {
    let world = World::new();
    for broken in [
        vec![],
        vec![13],
        vec![13, 0, 0, 0, 9],
        vec![27],
        [vec![11], vec![0]].concat(),
    ] {
        let mut client = world.client();
        if broken.is_empty() {
            client.0.write_all(&[0; 4]).unwrap();
            assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "closed");
        } else {
            assert_eq!(client.ask(&broken), FAILURE);
        }
    }
    // Too long, by its length alone.
    let mut client = world.client();
    let length = u32::try_from(LONGEST_MESSAGE + 1).unwrap();
    client.0.write_all(&length.to_be_bytes()).unwrap();
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "closed");
    // The longest.
    let mut client = world.client();
    let longest = vec![13; LONGEST_MESSAGE];
    assert_eq!(client.ask(&longest), FAILURE);
    // It does not end: 10 s after its first byte.
    let mut client = world.client();
    client.0.write_all(&[0, 0, 0, 5, 11]).unwrap();
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "closed");
}

#[test]
fn connections_are_bounded_and_others_go_on() {
    let world = World::new();
    let mut first = world.client();
    assert_eq!(first.ask(&world.named.bind(&SESSION, false)), SUCCESS);
    let mut idle: Vec<Client> = (1..MOST_CONNECTIONS).map(|_| world.client()).collect();
    for one in &mut idle {
        assert_eq!(one.ask(&[1]), FAILURE);
    }
    let mut beyond = world.client();
    assert_eq!(beyond.0.read(&mut [0]).unwrap_or(0), 0, "closed at once");
    let key = world.key("ed");
    assert!(first.signs(&key, &login(&SESSION, "git", "ssh-ed25519", &key, None), 0));
    drop(idle);
    until("there is room again", || {
        let mut again = world.client();
        again.0.write_all(&string(&[1])).is_ok()
            && again.0.read(&mut [0]).is_ok_and(|read| read == 1)
    });
}

#[test]
fn an_agent_that_is_gone_is_told_and_found_again() {
    let mut world = World::new();
    world.real.kill().unwrap();
    world.real.wait().unwrap();
    let mut client = world.client();
    assert_eq!(client.ask(&[11]), FAILURE);
    let gone = |event: &Event| matches!(&event.verdict, Verdict::Failed(why) if why.contains("ssh-agent outside"));
    assert!(world.events.lock().unwrap().last().is_some_and(gone));
    let real = world.at("real");
    std::fs::remove_file(&real).unwrap();
    world.real = Command::new("ssh-agent")
        .args(["-D", "-a"])
        .arg(&real)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("ssh-agent listens", || Path::new(&real).exists());
    assert_eq!(client.ask(&[11]), [12, 0, 0, 0, 0]);
}
