//! One connection from inside, from its first byte to its last.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent_sandbox_hosts::{Host, Rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::dial::dial;
use crate::event::Event;
use crate::exchange::Exchange;
use crate::http;
use crate::opening::{Opening, Reader};
use crate::place::Place;
use crate::refuse::{refuse, refuse_after, reset};
use crate::relay::relay;
use crate::session::Session;
use crate::terminate::terminate;

/// How long a program may take to say what the judgement needs. Browsers connect before they know what they will ask.
const OPENING: Duration = Duration::from_secs(30);
/// After an accept that failed, for want of descriptors as a rule.
pub(crate) const BREATH: Duration = Duration::from_millis(100);

/// Takes connections until it is dropped.
pub(crate) async fn listen(session: Arc<Session>, listener: TcpListener, room: Arc<Semaphore>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        // What its address inside stands for.
        let to = stream.local_addr().ok();
        let to = to.and_then(|to| Some((session.host_at(to.ip(), to.port())?, to.port())));
        take(&session, stream, to, &room);
    }
}

/// Takes a connection to a host. One to nobody is reset, and one more than there is room for.
pub(crate) fn take(
    session: &Arc<Session>,
    stream: TcpStream,
    to: Option<(Host, u16)>,
    room: &Arc<Semaphore>,
) {
    let Some((host, port)) = to else {
        return reset(&stream);
    };
    let Ok(permit) = Arc::clone(room).try_acquire_owned() else {
        let _ = session.refuse(
            &host,
            port,
            "this session has as many connections as it may have",
        );
        return reset(&stream);
    };
    let session = Arc::clone(session);
    tokio::spawn(async move {
        // An error here is a connection that broke, which both ends see.
        let _ = serve(session, stream, (host, port), &Arc::new(Place::new(permit))).await;
    });
}

async fn serve(
    session: Arc<Session>,
    stream: TcpStream,
    (host, port): (Host, u16),
    place: &Arc<Place>,
) -> io::Result<()> {
    let rules = session.rules();
    match rules.judge(&host, port) {
        Ok(by) => {
            let forbidden = session.forbidden(&host, port, place);
            tokio::select! {
                led = lead(&session, stream, place, (host.clone(), port), by) => led,
                () = forbidden => Ok(()),
            }
        }
        Err(refusal) => {
            let event = Event::refused(&refusal);
            session.tell(event.clone());
            refuse(stream, &event.line()).await;
            Ok(())
        }
    }
}

/// Leads a connection to a host that a rule allows. A rule that names the port lets pass any protocol there; one that does not
/// is for HTTP and TLS.
async fn lead(
    session: &Arc<Session>,
    mut stream: TcpStream,
    place: &Arc<Place>,
    (host, port): (Host, u16),
    by: &Rule,
) -> io::Result<()> {
    let exchange = session
        .broker
        .as_ref()
        .and_then(|broker| broker.exchange(&host, port));
    let web = exchange.is_some() || by.rule.ports.web_alone();
    let mut outside = None;
    if !web {
        let dialled = match dial(session, place, (&host, port), by).await {
            Ok(dialled) => dialled,
            Err(unreached) => {
                let event = unreached.tell(session, &host, port);
                refuse(stream, &event.line()).await;
                return Ok(());
            }
        };
        // In some protocols the server speaks first; TLS and HTTP are none of them.
        let (mut here, mut there) = ([0], [0]);
        let server_first = tokio::select! {
            biased;
            said = stream.peek(&mut here) => { said?; false }
            said = dialled.peek(&mut there) => { said?; true }
        };
        if server_first {
            return relay(stream, dialled).await;
        }
        outside = Some(dialled);
    }
    let mut reader = Reader::default();
    let opening = timeout(OPENING, open(&mut stream, &mut reader, web))
        .await
        .unwrap_or(Ok(Opening::Broken))?;
    let first = reader.into_bytes();
    let fault = match opening {
        Opening::Http => {
            let exchange = exchange.and_then(Exchange::without_tls);
            let proxy = http::Proxy::new(session, place, (host, port), by, outside, exchange);
            return http::serve(proxy, http::rejoined(stream, first)).await;
        }
        Opening::Tls(Some(name)) => {
            let said = Host::Name(name);
            (!session.agrees(&host, port, &said))
                .then(|| format!("the program asked for {said} in TLS"))
        }
        Opening::Tls(None) => {
            let needed = web && matches!(&host, Host::Name(name) if !name.is_localhost());
            needed.then(|| "the program named no server in TLS".to_owned())
        }
        Opening::Other => None,
        // It ended without a word.
        Opening::Unclear if first.is_empty() => return Ok(()),
        Opening::Unclear | Opening::Broken => {
            Some("what the program sent is neither TLS nor HTTP".to_owned())
        }
    };
    if let Some(fault) = fault {
        let event = session.refuse(&host, port, &fault);
        refuse_after(stream, &first, &event.line()).await;
        return Ok(());
    }
    if let Some(exchange) = exchange {
        let to = (host, port);
        let proxy = http::Proxy::new(session, place, to.clone(), by, None, Some(exchange));
        let stream = http::rejoined(stream, first);
        return terminate(session, to, proxy, stream).await;
    }
    let mut outside = match outside {
        Some(outside) => outside,
        None => match dial(session, place, (&host, port), by).await {
            Ok(outside) => outside,
            Err(unreached) => {
                let event = unreached.tell(session, &host, port);
                refuse_after(stream, &first, &event.line()).await;
                return Ok(());
            }
        },
    };
    outside.write_all(&first).await?;
    relay(stream, outside).await
}

/// Reads until it is clear what is spoken, or nothing more comes.
async fn open(stream: &mut TcpStream, reader: &mut Reader, web: bool) -> io::Result<Opening> {
    let mut bytes = [0; 4096];
    loop {
        let length = stream.read(&mut bytes).await?;
        match reader.push(&bytes[..length], web) {
            Opening::Unclear if length > 0 => {}
            opening => return Ok(opening),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;
    use crate::event::Events;
    use crate::outside::{Addresses, Outside};
    use agent_sandbox_hosts::{HostRules, Name};
    use std::net::{IpAddr, Ipv4Addr};
    use tokio::time::Instant;

    /// Every name is this host's.
    struct Here;

    impl Outside for Here {
        fn resolve<'a>(&'a self, _: &'a Name, _: u16) -> Addresses<'a> {
            Box::pin(async { Ok(vec![Ipv4Addr::LOCALHOST.into()]) })
        }

        fn is_own(&self, _: IpAddr) -> bool {
            true
        }
    }

    fn rule(text: &str) -> Rule {
        Rule {
            rule: text.parse().unwrap(),
            set: None,
            origin: String::new(),
        }
    }

    /// A connection to `a.example` at a port, led by a rule.
    async fn led(text: &str, port: u16) -> TcpStream {
        let rules = HostRules {
            allow: vec![rule(text)],
            private: vec![rule(text)],
            ..HostRules::default()
        };
        let events = Events::new(Box::new(|_| {}));
        let session = Arc::new(Session::new(rules, None, Arc::new(Here), events));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let inside = TcpStream::connect(listener.local_addr().unwrap());
        let (inside, accepted) = tokio::join!(inside, listener.accept());
        let by = rule(text);
        tokio::spawn(async move {
            let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
            let host = Host::Name(Name::parse("a.example").unwrap());
            let _ = lead(
                &session,
                accepted.unwrap().0,
                &Arc::new(Place::new(permit)),
                (host, port),
                &by,
            )
            .await;
        });
        inside.unwrap()
    }

    /// The clock is wound forward whenever all wait.
    #[tokio::test(start_paused = true)]
    async fn whoever_begins_and_does_not_go_on_is_refused_in_time() {
        for begun in [
            &b""[..],
            b"\x16\x03\x01\x02",
            b"GET / HTTP/1.1\r\nHost: a.exa",
        ] {
            let mut stream = led("a.example", 443).await;
            stream.write_all(begun).await.unwrap();
            let start = Instant::now();
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said).await;
            let waited = start.elapsed();
            assert!(
                waited >= OPENING && waited < OPENING * 2,
                "{begun:?}: {waited:?}"
            );
        }
    }

    /// At a port that a rule names nobody has to speak in time: neither a server that speaks first, nor a client.
    #[tokio::test(start_paused = true)]
    async fn silence_is_no_fault_where_a_rule_names_the_port() {
        for server_first in [true, false] {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = server.local_addr().unwrap().port();
            let mut inside = led(&format!("a.example:{port}"), port).await;
            let mut outside = server.accept().await.unwrap().0;
            sleep(OPENING * 10).await;
            let mut said = [0; 2];
            for turn in [server_first, !server_first] {
                let (one, other) = match turn {
                    true => (&mut outside, &mut inside),
                    false => (&mut inside, &mut outside),
                };
                one.write_all(b"\x01\n").await.unwrap();
                other.read_exact(&mut said).await.unwrap();
                sleep(OPENING * 10).await;
            }
        }
    }
}
