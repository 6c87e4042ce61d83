//! Ways out that have worked somewhere: addresses in every form, names that lead elsewhere, redirects, other sockets.
//! A server stands at each address and port that could be reached, so what leads astray is served.

use agent_sandbox_support::not_checked;
use agent_sandbox_support::waiting::until;
use serde_json::{Value, json};

use crate::chosen::is_landlock;
use crate::outside::outside;

const ASK: &str = "ask() { curl -g -sS -m 30 \"$@\" 2>&1; }\n";

#[test]
fn no_form_of_an_address_leads_out() {
    let zone = json!({ "a.example": { "A": [["9.9.9.1"]] } });
    outside("attacks::no_form_of_an_address_leads_out", &zone, |net| {
        let forms = [
            "127.0.0.1",
            "127.1",
            "0",
            "0.0.0.0",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.0.0.01",
            "localhost",
            "localhost.",
            "x.localhost",
            "10.0.0.5",
            "10.77.0.2",
            "169.254.169.254",
            "100.64.0.1",
            "192.168.0.1",
            "203.0.113.5",
            "9.9.9.1",
            "198.18.0.9",
            "224.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[::127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:10.0.0.5]",
            "[64:ff9b::127.0.0.1]",
            "[64:ff9b::9.9.9.1]",
            "[2002:7f00:1::]",
            "[fd77::2]",
            "[fe80::1%25lo]",
            "[fd00:ec2::254]",
            "[2001:db8::5]",
            "[2620:fe::1]",
            "[ff02::1]",
            "a.example%00.evil.example",
            "a.example@10.0.0.5",
            "10.0.0.5#@a.example",
            "a.example.evil.example",
            "evila.example",
        ];
        let urls = forms.map(|form| format!("'http://{form}/' 'http://{form}:8000/'"));
        let script = format!("{ASK}ask {} http://a.example/", urls.join(" "));
        let said = net.says(&["a.example", "*:8000", "*.example"], &script);
        let served: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("served"))
            .collect();
        assert_eq!(served, ["served a.example at 9.9.9.1"], "{said}");
        assert!(
            said.matches("agent-sandbox: ").count() > forms.len(),
            "{said}"
        );
    });
}

/// Names that lead elsewhere, each with the words with which it is refused.
fn leading_elsewhere() -> (Value, Vec<(&'static str, &'static str)>) {
    let mut zone = json!({ "b.example": { "A": [["9.9.9.1"], ["127.0.0.1"]] } });
    let mut refused = Vec::new();
    let mut name = |name, records: Value, why| {
        zone[name] = records;
        refused.push((name, why));
    };
    let four = |address| json!({ "A": [[address]] });
    let six = |address| json!({ "AAAA": [[address]] });
    name(
        "zero.example",
        four("0.0.0.0"),
        "0.0.0.0 is no address of any host",
    );
    name(
        "loop.example",
        four("127.0.0.1"),
        "127.0.0.1 is this host's loopback",
    );
    name(
        "private.example",
        four("10.0.0.5"),
        "10.0.0.5 is a private address",
    );
    name("shared.example", four("100.64.0.1"), "100.64.0.1 is ");
    name("link.example", four("169.254.1.1"), "169.254.1.1 is ");
    name(
        "meta.example",
        four("169.254.169.254"),
        "169.254.169.254 is a cloud's metadata service",
    );
    name("many.example", four("224.0.0.1"), "224.0.0.1 is ");
    name("bench.example", four("198.18.0.1"), "198.18.0.1 is ");
    name(
        "doc.example",
        four("203.0.113.5"),
        "203.0.113.5 is an address for examples",
    );
    name("six.example", six("::1"), "::1 is this host's loopback");
    name(
        "mapped.example",
        six("::ffff:127.0.0.1"),
        "127.0.0.1 is this host's loopback",
    );
    name(
        "nat.example",
        six("64:ff9b::7f00:1"),
        "127.0.0.1 is this host's loopback",
    );
    name("local.example", six("fd77::9"), "fd77::9");
    name("meta6.example", six("fd00:ec2::254"), "metadata service");
    name(
        "doc6.example",
        six("2001:db8::5"),
        "is an address for examples",
    );
    // One of several is enough.
    name(
        "mixed.example",
        json!({ "A": [["9.9.9.1", "10.0.0.5"]] }),
        "10.0.0.5 is a private address",
    );
    name(
        "both.example",
        json!({ "A": [["9.9.9.1"]], "AAAA": [["::1"]] }),
        "is this host's loopback",
    );
    name(
        "alias.example",
        json!({ "A": ["private.example"] }),
        "10.0.0.5 is a private address",
    );
    name(
        "chain.example",
        json!({ "A": ["chain1.example"]}),
        "127.0.0.1 is this host's loopback",
    );
    zone["chain1.example"] = json!({ "A": ["chain2.example"] });
    zone["chain2.example"] = json!({ "A": ["loop.example"] });
    (zone, refused)
}

#[test]
fn a_name_leads_to_public_addresses_alone() {
    let (mut zone, refused) = leading_elsewhere();
    // More than a datagram has room for, so that it is asked for again by TCP; the last is not public.
    let mut large: Vec<String> = (0..1400)
        .map(|i| format!("9.9.9.{}", 1 + i % 250))
        .collect();
    large.push("10.0.0.5".to_owned());
    zone["large.example"] = json!({ "A": [large] });
    outside(
        "attacks::a_name_leads_to_public_addresses_alone",
        &zone,
        |net| {
            let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
            let script = format!(
                "{ASK}for name in b.example b.example large.example {}; do echo \"$name: $(ask http://$name/)\"; done",
                names.join(" ")
            );
            let said = net.says(&["*.example"], &script);
            let line = |at: usize| said.lines().nth(at).unwrap();
            assert_eq!(line(0), "b.example: served b.example at 9.9.9.1");
            assert!(
                line(1).contains("127.0.0.1 is this host's loopback"),
                "{said}"
            );
            // A resolver may cut an answer of 1,400 addresses, but what it gives is judged.
            assert!(!line(2).contains("at 10."), "{said}");
            for (at, (name, why)) in refused.iter().enumerate() {
                let line = line(3 + at);
                assert!(
                    line.starts_with(&format!("{name}: agent-sandbox: ")),
                    "{line}"
                );
                assert!(
                    line.contains(why) && line.contains("is not reached"),
                    "{line}"
                );
            }
            // What `private` names is reached there, and nothing else is.
            let private = [
                "--set",
                "network.private=[\"doc.example\", \"doc6.example\"]",
            ];
            let script =
                format!("{ASK}for name in doc doc6 private; do ask http://$name.example/; done");
            let said = net.says_with(&["*.example"], &private, &script);
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!(lines[0], "served doc.example at 203.0.113.5");
            assert_eq!(lines[1], "served doc6.example at 2001:db8::5");
            assert!(lines[2].contains("10.0.0.5 is a private address"), "{said}");
        },
    );
}

#[test]
fn a_redirect_leads_no_further_than_a_request() {
    let zone = json!({ "a.example": { "A": [["9.9.9.1"]] }, "b.example": { "A": [["9.9.9.1"]] }, "evil.example": { "A": [["9.9.9.1"]] } });
    outside(
        "attacks::a_redirect_leads_no_further_than_a_request",
        &zone,
        |net| {
            let script = format!(
            "{ASK}for to in http://b.example/ http://evil.example/ https://evil.example/ http://10.0.0.5/ \
                http://169.254.169.254/ http://127.0.0.1:8000/ http://b.example:8000/; do
                case $(ask -L \"http://a.example/to?$to\") in *served*) echo \"$to\" ;; esac
            done"
        );
            assert_eq!(
                net.says(&["a.example", "b.example"], &script),
                "http://b.example/\n"
            );
        },
    );
}

/// At 25, 465 and 587 a rule has to name the port by itself: a range is no wish to send mail.
#[test]
fn mail_is_closed_but_where_a_rule_names_its_port() {
    let zone = json!({ "a.example": { "A": [["9.9.9.1"]] } });
    outside(
        "attacks::mail_is_closed_but_where_a_rule_names_its_port",
        &zone,
        |net| {
            let script = format!(
                "{ASK}for at in a.example:25 a.example:465 a.example:587 localhost:25 10.77.0.2:25; do
                case $(ask http://$at/) in *served*) echo \"$at\" ;; esac
            done; echo end"
            );
            for (allow, reached) in [
                (&["a.example", "*"][..], ""),
                (&["a.example:20-600", "*:400-600"], ""),
                (&["a.example:587"], "a.example:587\n"),
                (&["*:25"], "a.example:25\n"),
            ] {
                assert_eq!(
                    net.says(allow, &script),
                    format!("{reached}end\n"),
                    "{allow:?}"
                );
            }
        },
    );
}

/// Sockets of every kind; what works prints a line.
const SOCKETS: &str = r#"
import ctypes, os, socket, struct
def tries(what, action):
    try:
        print(what, action())
    except OSError:
        pass
def send(kind, to):
    one = socket.socket(*kind)
    one.settimeout(3)
    one.connect(to)
    one.send(b"x" * 64)
    return one.recv(100)
tries("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
tries("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
tries("udp", lambda: send((socket.AF_INET, socket.SOCK_DGRAM), ("9.9.9.1", 53)))
tries("quic", lambda: send((socket.AF_INET, socket.SOCK_DGRAM), ("198.18.0.1", 443)))
tries("quic6", lambda: send((socket.AF_INET6, socket.SOCK_DGRAM), ("2620:fe::1", 443)))
tries("sctp", lambda: send((socket.AF_INET, socket.SOCK_STREAM, 132), ("9.9.9.1", 443)))
tries("vsock", lambda: send((socket.AF_VSOCK, socket.SOCK_STREAM), (2, 80)))
tries("abstract", lambda: send((socket.AF_UNIX, socket.SOCK_STREAM), "\0of-the-host"))
for number in (425, 426, 427):
    said = ctypes.CDLL(None, use_errno=True).syscall(number, 8, ctypes.create_string_buffer(120))
    if said >= 0:
        print("io_uring", number)
# The route that leads all to the filter: RTM_DELROUTE of what is local.
def route():
    one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    body = struct.pack("BBBBBBBBI", 2, 0, 0, 0, 255, 0, 254, 2, 0)
    one.send(struct.pack("IHHII", 16 + len(body), 25, 5, 1, 0) + body)
    error = struct.unpack("i", one.recv(100)[16:20])[0]
    if error:
        raise OSError(-error, "")
    return "deleted"
tries("route", route)
for table in ("tcp", "tcp6", "udp", "unix"):
    text = open(f"/proc/net/{table}").read()
    # Port 8000, at which servers outside listen, and their socket without a file.
    if ":1F40 " in text or "of-the-host" in text:
        print(table, "shows what is outside")
print("done")
"#;

#[test]
fn no_other_socket_leads_out() {
    let zone = json!({ "a.example": { "A": [["9.9.9.1"]] } });
    outside("attacks::no_other_socket_leads_out", &zone, |net| {
        let listener = "import socket, sys
one = socket.socket(socket.AF_UNIX); one.bind('\\0of-the-host'); one.listen(); print(flush=True); sys.stdin.read()";
        let mut outer = net.command(&["python3", "-c", listener]);
        let mut outer = outer.stdin(std::process::Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(outer.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        net.put("sockets.py", SOCKETS);
        let said = net.says(&["*"], "getent hosts a.example > found; python3 sockets.py");
        let _ = outer.kill();
        let _ = outer.wait();
        // Where Landlock makes the jail `/proc/net` is the host's (the row `connections`).
        let shown = |line: &&str| is_landlock() && line.ends_with(" shows what is outside");
        let led_out: Vec<&str> = said.lines().filter(|line| !shown(line)).collect();
        assert_eq!(led_out, ["done"]);
    });
}

/// A server in one session, which is reached inside it, and by no other: neither at the loopback, nor at the host's addresses, nor
/// by the port that both may use outside.
#[test]
fn sessions_do_not_reach_each_others_listeners() {
    if is_landlock() {
        return not_checked(
            "servers in filtered sessions",
            "where Landlock makes the jail nobody can listen, as mediate::nobody_listens_where_others_could_connect shows",
        );
    }
    let zone = json!({ "a.example": { "A": [["9.9.9.1"]] } });
    outside(
        "attacks::sessions_do_not_reach_each_others_listeners",
        &zone,
        |net| {
            let server = "
            mkdir -p inside; echo inside > inside/index.html
            python3 -m http.server -b 0.0.0.0 -d inside 8888 2> log & python3 -m http.server -b :: -d inside 8889 2> log6 &
            until curl -sS http://localhost:8888/ > one 2> /dev/null && curl -sS http://[::1]:8889/ > two 2> /dev/null; do sleep 0.05; done
            cat one two; touch serves; until [ -e asked ]; do sleep 0.05; done";
            let first = net.start(&["a.example"], &[], server);
            until("the server inside", || net.project("serves").exists());
            let hosts = [
                "127.0.0.1",
                "localhost",
                "10.77.0.2",
                "9.9.9.1",
                "a.example",
                "[::1]",
                "[fd77::2]",
            ];
            let urls = hosts.map(|host| format!("http://{host}:8888/ http://{host}:8889/"));
            let script = format!("{ASK}ask {} http://a.example/; true", urls.join(" "));
            let served = |said: &str| {
                assert!(
                    said.contains("served a.example at ") && !said.contains("inside"),
                    "{said}"
                );
            };
            for options in [
                &[][..],
                &["--set", "network.private=[\"localhost:8888-8889\"]"],
            ] {
                served(&net.says_with(&["a.example", "*:8888-8889"], options, &script));
            }
            // Nor does anybody outside.
            let mut outer = net.command(&["bash", "-c", &script]);
            served(&crate::outside::start(&mut outer).wait().stdout);
            net.put("asked", "");
            assert_eq!(first.wait().stdout, "inside\ninside\n");
        },
    );
}
