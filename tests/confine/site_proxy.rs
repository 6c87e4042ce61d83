//! A filtered network behind the proxy of a site.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use crate::world::{World, launcher};

/// A proxy that connects to nobody and answers for everybody: its port, and the heads that it got.
fn proxy() -> (u16, Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, heads) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let head = |reader: &mut BufReader<_>| -> Vec<String> {
                let lines = reader.lines().map_while(Result::ok);
                lines.take_while(|line| !line.is_empty()).collect()
            };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut stream = stream;
            let connect = head(&mut reader);
            let forbidden = connect
                .first()
                .is_some_and(|line| line.contains("forbidden"));
            let _ = tell.send(connect);
            if forbidden {
                let _ = stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
                continue;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 Established\r\n\r\n");
            let _ = head(&mut reader);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nserved\n");
        }
    });
    (port, heads)
}

#[test]
fn the_sites_proxy_is_used_outside_and_its_password_stays_there() {
    let world = World::new();
    let (port, heads) = proxy();
    let url = format!("http://ada:PASSWORD@127.0.0.1:{port}");
    let allow = "network.allow=[\"a.example:8000\", \"forbidden.example:8000\"]";
    let script = "for name in a forbidden other; do echo \"$name: $(curl -sS -m 20 http://$name.example:8000/ 2>&1)\"; done; \
                  env | grep -ic -e proxy -e password; \
                  grep -l 'PASS[W]ORD' /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; echo end";
    let output = world
        .loud(["--set", "network.mode=filtered", "--set", allow])
        .env("https_proxy", &url)
        .env("HTTP_PROXY", &url)
        .env("no_proxy", "near.example")
        .run(&["bash", "-c", script]);
    assert!(
        output.stdout.starts_with("a: served\nforbidden: "),
        "{output:?}"
    );
    assert!(
        output.stdout.contains("the site's proxy answers 407"),
        "{output:?}"
    );
    assert!(output.stdout.ends_with("\n0\nend\n"), "{output:?}");
    let heads: Vec<Vec<String>> = heads.try_iter().collect();
    assert_eq!(heads.len(), 2, "{heads:?}");
    assert_eq!(heads[0][0], "CONNECT a.example:8000 HTTP/1.1");
    let authorization = "Proxy-Authorization: Basic YWRhOlBBU1NXT1JE";
    assert!(heads[0].contains(&authorization.to_owned()), "{heads:?}");
    let log = world
        .outside()
        .run(&[launcher().to_str().unwrap(), "log", "--network"]);
    assert!(log.stdout.contains("a.example:8000"), "{log:?}");
    for text in [&log.stdout, &output.stdout, &output.stderr] {
        assert!(
            !text.contains("PASSWORD") && !text.contains("YWRhOl"),
            "{text}"
        );
    }
    // What the filter cannot use is not gone around.
    let refused = world
        .loud(["--set", "network.mode=filtered"])
        .env("all_proxy", "socks5://ada:PASSWORD@127.0.0.1:1")
        .run(&["true"]);
    refused.refused("`all_proxy` names no proxy that a filter can use");
    assert!(!refused.stderr.contains("PASSWORD"), "{refused:?}");
}
