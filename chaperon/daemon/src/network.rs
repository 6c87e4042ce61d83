//! The filter of a session's network: a process of its own, outside the jail, with sockets that were made inside of the jail's
//! network namespace. It is there before anything runs inside, and ends with the launcher; what is inside reaches nobody without it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_sandbox_filter::{Broker, Event, Filter, ProxiedNetwork, Sockets, Verdict};
use agent_sandbox_hosts::HostRules;
use agent_sandbox_wire::led;

use agent_sandbox_wire::network::{
    AUTHORITY, CERTIFICATE, COMPLETE, KeptCredential, LONGEST_WORDS, NetworkOrder, READY, RULES,
    SiteProxies, SocketOf, UNCHANGED,
};
use nix::sys::socket::{MsgFlags, send};
use serde::de::DeserializeOwned;

use zeroize::Zeroizing;

use crate::audit::{self, Audit, Connection};
use crate::closing::Received;
use crate::terminal::say;
use crate::{logging, sys};

/// The largest order, in bytes. It holds the rules.
const LARGEST_ORDER: u64 = 4 << 20;
/// No message of the launcher's is longer: its first byte, and words.
const LONGEST_MESSAGE: usize = 1 + LONGEST_WORDS;
/// What stands in the place of a host in a record about the rules.
const OF_RULES: &str = "(rules)";
/// The same of credentials.
const OF_CREDENTIALS: &str = "(credentials)";
/// Hosts that the session is told of: what is inside chooses them.
const MOST_TOLD: usize = 50;
/// So long an answer waits until its session is told why: its standard error may be read by nobody.
const SAYING: Duration = Duration::from_millis(200);

/// What is to be done.
enum News {
    /// Something happened; who waits until the session has been told of it.
    Of(Event, Option<mpsc::SyncSender<()>>),
    /// There are other rules, or there are not; in words.
    Rules(audit::Verdict, String),
    /// The launcher is gone.
    Over,
}

/// Filters until the launcher is gone. The arguments are numbers of inherited descriptors: the order, the session's standard
/// error, and the socket on which the launcher passes the others.
///
/// # Errors
/// A descriptor is not what it should be. The launcher is told why nothing is filtered.
pub fn filter(order: i32, errors: i32, life: i32) -> io::Result<()> {
    let (order, errors, life) = (
        sys::inherited(order)?,
        sys::inherited(errors)?,
        sys::inherited(life)?,
    );
    sys::harden()?;
    let (tell, news) = mpsc::channel();
    let events = Mutex::new(tell.clone());
    let waits = AtomicUsize::new(MOST_TOLD);
    let sink = Box::new(move |event: Event| {
        let refused = matches!(event.verdict, Verdict::Refused { .. });
        let fewer = |left: usize| left.checked_sub(1);
        let waits = refused
            && waits
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
                .is_ok();
        let (said, heard) = mpsc::sync_channel(1);
        let news = News::Of(event, waits.then_some(said));
        // Without a receiver the process is about to end.
        let _ = events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(news);
        if waits {
            let _ = heard.recv_timeout(SAYING);
        }
    });
    let begun = read_order::<NetworkOrder>(order).and_then(|mut order| {
        let broker = broker(&mut order, &life)?;
        let rules = order.rules.clone();
        // First, for the launcher waits until they are taken.
        let (sockets, led) = receive(&life)?;
        let SiteProxies {
            http,
            https,
            all,
            none,
        } = &order.proxies;
        let outside = ProxiedNetwork::new([http, https, all], none).map_err(io::Error::other)?;
        let filter = Filter::start(rules, broker, sockets, Arc::new(outside), sink)?;
        let filter = Arc::new(filter);
        if let Some(mediator) = led {
            let filter = Arc::clone(&filter);
            // Without it nobody inside connects to anything.
            std::thread::Builder::new().spawn(move || lead(&mediator, &filter))?;
        }
        Ok((order, filter))
    });
    let said = match &begun {
        Ok(_) => vec![READY],
        Err(error) => error.to_string().into_bytes(),
    };
    send(life.as_raw_fd(), &said, MsgFlags::MSG_NOSIGNAL)?;
    let (order, filter) = begun?;
    let obeying = Arc::clone(&filter);
    std::thread::Builder::new().spawn(move || {
        // Who speaks out of turn is no launcher of this version.
        let _ = obey(&life, &obeying, &tell);
        let _ = tell.send(News::Over);
    })?;
    note(order, &errors, &news);
    drop(filter);
    Ok(())
}

/// Takes other rules, and sockets for them, until the launcher is gone.
fn obey(life: &OwnedFd, filter: &Filter, tell: &mpsc::Sender<News>) -> io::Result<()> {
    loop {
        let (mut message, mut fds) = ([0; LONGEST_MESSAGE], Vec::new());
        let length = match sys::receive(life, &mut message, &mut fds) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            length => length?,
        };
        let fd = fds.pop().map(|fd| OwnedFd::from(Received::into_file(fd)));
        let words = || String::from_utf8_lossy(&message[1..length]).into_owned();
        let news = match (message[..length].first(), fd) {
            (Some(&RULES), Some(fd)) => {
                let rules: HostRules = read_sealed(fd)?;
                filter.replace_rules(rules);
                send(life.as_raw_fd(), &[READY], MsgFlags::MSG_NOSIGNAL)?;
                News::Rules(audit::Verdict::Allowed, words())
            }
            (Some(&UNCHANGED), None) => News::Rules(audit::Verdict::Failed, words()),
            (Some(_), Some(fd))
                if SocketOf::read(&message[..length]) == Some(SocketOf::Connections) =>
            {
                filter.listen(TcpListener::from(fd))?;
                continue;
            }
            _ => return Ok(()),
        };
        // Without a receiver the process is about to end.
        let _ = tell.send(news);
    }
}

/// Answers a mediator, and takes the connections that it leads here, until it is gone.
///
/// # Errors
/// What `recvmsg(2)` answers; the mediator is gone, or speaks out of turn.
fn lead(mediator: &OwnedFd, filter: &Filter) -> io::Result<()> {
    loop {
        let (mut message, mut fds) = ([0; led::LONGEST], Vec::new());
        let length = match sys::receive(mediator, &mut message, &mut fds) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            length => length?,
        };
        let fd = fds.pop().map(|fd| OwnedFd::from(Received::into_file(fd)));
        let to = led::address(&message[..length]).ok_or(io::ErrorKind::InvalidData)?;
        match fd {
            // One that cannot be waited for is reset, which its program sees.
            Some(fd) => drop(filter.lead(TcpStream::from(fd), to)),
            None => {
                let answer = match filter.listens_at(to) {
                    true => led::LISTENS,
                    false => led::NOBODY,
                };
                send(mediator.as_raw_fd(), answer, MsgFlags::MSG_NOSIGNAL)?;
            }
        }
    }
}

/// Records what happens, and tells the session of hosts that were refused, each once.
fn note(order: NetworkOrder, errors: &OwnedFd, news: &mpsc::Receiver<News>) {
    let state = std::path::PathBuf::from(std::ffi::OsString::from_vec(order.state));
    let audit = Audit::new(state.join("audit"), order.session).handed_to(order.tracer.as_deref());
    logging::start(audit.layer());
    for KeptCredential { why, told } in order.kept {
        if told {
            say(errors, &why, None);
        }
        let at = (OF_CREDENTIALS, None);
        let (step, verdict) = (order.step.as_ref(), audit::Verdict::Failed);
        audit.note(&Connection::new(at, step, verdict, why));
    }
    let mut told = BTreeSet::new();
    loop {
        let (event, said) = match news.recv() {
            Ok(News::Of(event, said)) => (event, said),
            Ok(News::Rules(verdict, words)) => {
                audit.note(&Connection::new(
                    (OF_RULES, None),
                    order.step.as_ref(),
                    verdict,
                    words,
                ));
                continue;
            }
            Ok(News::Over) | Err(_) => return,
        };
        tracing::info!(target: "network", host = event.host, port = event.port, verdict = ?event.verdict, "judged");
        // Whoever was refused may end at once, and its job and this process with it: it hears first.
        if let Verdict::Refused { why, hint } = &event.verdict
            && order.tells
            && told.len() < MOST_TOLD
            && told.insert(event.host.clone())
        {
            say(errors, why, hint.as_deref());
        }
        if let Some(said) = said {
            let _ = said.send(());
        }
        audit.note(&connection(&event, order.step.as_ref()));
    }
}

fn connection<'a>(event: &'a Event, step: Option<&'a (u32, String)>) -> Connection<'a> {
    use audit::Verdict as Recorded;
    let (verdict, reason) = match &event.verdict {
        Verdict::Reached { rule, origin, .. } => (Recorded::Allowed, format!("{rule} ({origin})")),
        Verdict::Exchanged { credential } => (
            Recorded::Allowed,
            format!("the value of the credential `{credential}` was sent"),
        ),
        Verdict::Refused { why, .. } => (Recorded::Refused, why.clone()),
        Verdict::Failed { why } => (Recorded::Failed, why.clone()),
        Verdict::NoMore => (
            Recorded::Refused,
            "further hosts are not recorded".to_owned(),
        ),
    };
    let change = match &event.verdict {
        Verdict::Refused { hint, .. } => hint.as_deref(),
        _ => None,
    };
    Connection::new((&event.host, event.port), step, verdict, reason)
        .known_as(event.inside)
        .changed_by(change)
}

/// What exchanges the session's credentials, if it has any. The launcher is told the certificate by which programs inside know it.
fn broker(order: &mut NetworkOrder, launcher: &OwnedFd) -> io::Result<Option<Broker>> {
    let credentials = std::mem::take(&mut order.credentials);
    if credentials.is_empty() {
        return Ok(None);
    }
    let trusted = std::mem::take(&mut order.trusted);
    let known = order.authority.take();
    let broker = Broker::new(credentials, &order.vouches, &trusted, known.as_ref())?;
    let certificate = [&[CERTIFICATE], broker.certificate().as_bytes()].concat();
    send(launcher.as_raw_fd(), &certificate, MsgFlags::MSG_NOSIGNAL)?;
    if order.step.is_some() {
        let key = broker.authority();
        let mut said = Zeroizing::new(Vec::with_capacity(1 + key.reveal().len()));
        said.push(AUTHORITY);
        said.extend(key.reveal().as_bytes());
        send(launcher.as_raw_fd(), &said, MsgFlags::MSG_NOSIGNAL)?;
    }
    Ok(Some(broker))
}

/// What stands in a file that the launcher has sealed.
pub(crate) fn read_sealed<T: DeserializeOwned>(fd: OwnedFd) -> io::Result<T> {
    postcard::from_bytes(&read(fd)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// An order of the launcher's.
pub(crate) fn read_order<T: DeserializeOwned>(fd: OwnedFd) -> io::Result<T> {
    agent_sandbox_wire::order::decode(&read(fd)?).map_err(io::Error::other)
}

fn read(fd: OwnedFd) -> io::Result<Zeroizing<Vec<u8>>> {
    // It may hold values of credentials. With room for all of it from the start no copy is left behind.
    let mut text = Zeroizing::new(Vec::new());
    let mut file = File::from(fd);
    let length = file.metadata()?.len().min(LARGEST_ORDER);
    text.reserve_exact(usize::try_from(length + 1).unwrap_or(0));
    (&mut file).take(LARGEST_ORDER).read_to_end(&mut text)?;
    Ok(text)
}

/// The sockets inside, which the launcher passes one by one, or the one to a mediator.
fn receive(launcher: &OwnedFd) -> io::Result<(Sockets, Option<OwnedFd>)> {
    let (mut sockets, mut led) = (Sockets::default(), None);
    loop {
        let (mut message, mut fds) = ([0; LONGEST_MESSAGE], Vec::new());
        let length = sys::receive(launcher, &mut message, &mut fds)?;
        let message = &message[..length];
        if message == [COMPLETE] {
            break;
        }
        let fd = fds.pop().map(|fd| OwnedFd::from(Received::into_file(fd)));
        match (SocketOf::read(message), fd) {
            (Some(SocketOf::Names), Some(fd)) => sockets.dns_udp = Some(UdpSocket::from(fd)),
            (Some(SocketOf::NamesByStream), Some(fd)) => {
                sockets.dns_tcp = Some(TcpListener::from(fd));
            }
            (Some(SocketOf::Connections), Some(fd)) => sockets.tcp.push(TcpListener::from(fd)),
            (Some(SocketOf::Led), Some(fd)) => led = Some(fd),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    let inside = sockets.dns_udp.is_some() && sockets.dns_tcp.is_some();
    match inside || led.is_some() {
        true => Ok((sockets, led)),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}
