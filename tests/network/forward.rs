//! A server inside, reached as users do from elsewhere: by `ssh -L`, through a real sshd.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use agent_sandbox_support::not_checked;
use agent_sandbox_support::waiting::until;
use serde_json::{Value, json};

use crate::chosen::is_landlock;
use crate::outside::{launcher, outside, start};
use crate::sshd::sshd;

#[test]
fn ssh_leads_to_a_port_that_is_forwarded() {
    let test = "forward::ssh_leads_to_a_port_that_is_forwarded";
    let zone = json!({ "a.example": { "A": [["9.9.9.1"]] } });
    let Some(sshd) = sshd() else {
        return not_checked(test, "no sshd on this machine");
    };
    if is_landlock() {
        return not_checked(test, "where Landlock makes the jail nobody can listen");
    }
    outside(test, &zone, |net| {
        let server = sshd.start(net);
        let script = "mkdir site; echo of the jail > site/page
            python3 -m http.server -b 127.0.0.1 -d site 8123 > log 2>&1 &
            until curl -sSf -o own http://127.0.0.1:8123/page 2> /dev/null; do sleep 0.05; done; curl -sS http://a.example/ > reached
            touch up; until [ -e over ]; do sleep 0.05; done; kill %1";
        let session = net.start(&["a.example"], &["--set", "network.forward=[8123]"], script);
        until("the server inside", || net.project("up").exists());
        let launcher = launcher();
        let sessions = net
            .command(&[launcher.to_str().unwrap(), "sessions", "--json"])
            .output();
        let sessions: Value = serde_json::from_slice(&sessions.unwrap().stdout).unwrap();
        let socket = sessions[0]["forward"]["8123"].as_str().unwrap().to_owned();
        // What the launch says, with what this server needs besides.
        let forward = format!("127.0.0.1:8899:{socket}");
        let ssh = sshd.client(net);
        let words: Vec<&str> = ssh.iter().map(String::as_str).collect();
        let tunnel =
            start(&mut net.command(&[&words[..], &["-N", "-L", &forward, "9.9.9.3"]].concat()));
        until("ssh listens", || {
            TcpStream::connect("127.0.0.1:8899").is_ok()
        });
        let get = |path: &str| {
            let url = format!("http://localhost:8899/{path}");
            let output = net
                .command(&["curl", "-sS", "-m", "20", &url])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        for _ in 0..20 {
            assert_eq!(get("page"), "of the jail\n");
        }
        // The jail's own way out is as it was.
        let reached = fs::read_to_string(net.project("reached")).unwrap();
        assert_eq!(reached, "served a.example at 9.9.9.1\n");
        // No port of this host leads there but ssh's.
        assert!(TcpStream::connect("127.0.0.1:8123").is_err());
        fs::write(net.project("over"), "").unwrap();
        let ran = session.wait();
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(!Path::new(&socket).exists());
        assert_eq!(get("page"), "");
        drop((tunnel, server));
    });
}
