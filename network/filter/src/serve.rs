//! One connection from inside, from its first byte to its last.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent_sandbox_hosts::{Host, Ports, Rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::dial::dial;
use crate::event::Event;
use crate::http;
use crate::opening::{Opening, Reader};
use crate::place::Place;
use crate::refuse::{refuse, refuse_after, reset};
use crate::relay::relay;
use crate::session::Session;

/// How long a program may take to say what the judgement needs. Browsers connect before they know what they will ask.
const OPENING: Duration = Duration::from_secs(30);
/// After an accept that failed, for want of descriptors as a rule.
const BREATH: Duration = Duration::from_millis(100);

/// Takes connections until it is dropped. One more than there is room for is reset.
pub(crate) async fn listen(session: Arc<Session>, listener: TcpListener, room: Arc<Semaphore>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            if let Some((host, port)) = target(&session, &stream) {
                let _ = session.refuse(
                    &host,
                    port,
                    "this session has as many connections as it may have",
                );
            }
            reset(&stream);
            continue;
        };
        let session = Arc::clone(&session);
        tokio::spawn(async move {
            // An error here is a connection that broke, which both ends see.
            let _ = serve(session, stream, &Arc::new(Place::new(permit))).await;
        });
    }
}

/// Whom a connection is for: what its address inside stands for.
fn target(session: &Session, stream: &TcpStream) -> Option<(Host, u16)> {
    let local = stream.local_addr().ok()?;
    Some((session.host_at(local.ip(), local.port())?, local.port()))
}

async fn serve(session: Arc<Session>, stream: TcpStream, place: &Arc<Place>) -> io::Result<()> {
    let Some((host, port)) = target(&session, &stream) else {
        reset(&stream);
        return Ok(());
    };
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
            session.events.tell(event.clone());
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
    let web = by.rule.ports == Ports::Unnamed;
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
            let proxy = http::Proxy::new(session, place, (host, port), by, outside);
            return http::serve(proxy, stream, first).await;
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
