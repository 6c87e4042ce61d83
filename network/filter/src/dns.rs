//! The resolver inside: names that are allowed have an address of their own, all others do not exist. It asks nobody.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use agent_sandbox_hosts::Name;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::event::Event;
use crate::pace::PERIOD;
use crate::session::Session;

/// A query with one name and EDNS has less than 300 bytes.
const MOST_OF_QUERY: usize = 1232;
/// Seconds that a program may keep an answer. It holds for the session, so this is for what outlives one.
const TTL_SECONDS: u32 = 60;
/// Connections over TCP at once, and how long one may be silent (RFC 7766 leaves it to the server).
pub(crate) const MOST_TCP: usize = 32;
const IDLE: Duration = Duration::from_secs(10);

/// The answer to a message; none: it is no query.
pub(crate) fn answer(session: &Session, message: &[u8]) -> Option<Vec<u8>> {
    let query = Message::from_vec(message).ok()?;
    if query.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata = Metadata::response_from_request(&query.metadata);
    reply.metadata.recursion_available = true;
    reply.metadata.response_code = match (query.metadata.op_code, &*query.queries) {
        (OpCode::Query, [asked]) if asked.query_class() == DNSClass::IN => {
            reply.add_query(asked.clone());
            let labels: Option<Vec<&str>> = asked.name().iter().map(label).collect();
            let name = labels.and_then(|labels| Name::from_wire(&labels.join(".")).ok());
            match (name, asked.query_type()) {
                (None, _) => ResponseCode::NXDomain,
                (Some(_), RecordType::ANY | RecordType::AXFR | RecordType::IXFR) => {
                    ResponseCode::NotImp
                }
                (Some(name), kind) => match session.rules().judge_lookup(&name) {
                    Err(_) if own(session, &name) => {
                        if kind == RecordType::A {
                            reply.add_answer(address(asked, Ipv4Addr::LOCALHOST));
                        }
                        ResponseCode::NoError
                    }
                    Err(refusal) => {
                        session.events.tell(Event::refused(&refusal));
                        ResponseCode::NXDomain
                    }
                    // Of an address for IPv6, or a key for ECH, there is none.
                    Ok(_) if kind != RecordType::A => ResponseCode::NoError,
                    Ok(_) => {
                        let mut book = session.book.lock().unwrap_or_else(PoisonError::into_inner);
                        match book.address_of(&name) {
                            Some(found) => {
                                reply.add_answer(address(asked, found));
                                ResponseCode::NoError
                            }
                            None => ResponseCode::ServFail,
                        }
                    }
                },
            }
        }
        (OpCode::Query, [_]) => ResponseCode::Refused,
        (OpCode::Query, _) => ResponseCode::FormErr,
        _ => ResponseCode::NotImp,
    };
    if query.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(u16::try_from(MOST_OF_QUERY).unwrap_or(u16::MAX));
        reply.set_edns(edns);
    }
    reply.to_vec().ok()
}

/// Whether a name that no rule gives means the jail itself: `localhost`, or the name that this host has inside as well. Programs
/// look up their own host to meet there.
fn own(session: &Session, name: &Name) -> bool {
    name.is_localhost() || session.outside.is_this_host(name)
}

fn address(asked: &Query, found: Ipv4Addr) -> Record {
    Record::from_rdata(asked.name().clone(), TTL_SECONDS, RData::A(A(found)))
}

/// A label as text. One with a dot in it would be two.
fn label(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('.'))
}

/// Answers datagrams until it is dropped.
pub(crate) async fn serve_udp(session: Arc<Session>, socket: UdpSocket) {
    let mut message = [0; MOST_OF_QUERY];
    loop {
        let (length, from): (usize, SocketAddr) = match socket.recv_from(&mut message).await {
            Ok(received) => received,
            Err(_) => {
                sleep(PERIOD).await;
                continue;
            }
        };
        if let Some(answer) = answer(&session, &message[..length]) {
            // One that cannot be sent is asked for again.
            let _ = socket.send_to(&answer, from).await;
        }
        session.pace.lock().await.step().await;
    }
}

/// Answers connections until it is dropped.
pub(crate) async fn serve_tcp(session: Arc<Session>, listener: TcpListener, room: Arc<Semaphore>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => take(&session, stream, &room),
            Err(_) => sleep(PERIOD).await,
        }
    }
}

/// Answers a connection, if there is room for one more.
pub(crate) fn take(session: &Arc<Session>, stream: TcpStream, room: &Arc<Semaphore>) {
    if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
        let session = Arc::clone(session);
        tokio::spawn(async move {
            let _ = converse(&session, stream).await;
            drop(permit);
        });
    }
}

async fn converse(session: &Session, mut stream: TcpStream) -> std::io::Result<()> {
    let mut message = vec![0; MOST_OF_QUERY];
    loop {
        let asked = async {
            let length = usize::from(stream.read_u16().await?);
            let Some(room) = message.get_mut(..length) else {
                return Ok(None);
            };
            stream.read_exact(room).await?;
            Ok::<_, std::io::Error>(answer(session, room))
        };
        let Some(answer) = timeout(IDLE, asked).await?? else {
            return Ok(());
        };
        let length = u16::try_from(answer.len()).unwrap_or(0).to_be_bytes();
        timeout(IDLE, stream.write_all(&[&length[..], &answer].concat())).await??;
        session.pace.lock().await.step().await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;
    use crate::event::Events;
    use crate::outside::HostNetwork;
    use agent_sandbox_hosts::{HostRules, Rule};
    use proptest::prelude::*;

    fn session() -> Session {
        let allow = vec![Rule {
            rule: "*.a.example".parse().unwrap(),
            set: None,
            origin: String::new(),
        }];
        let rules = HostRules {
            allow,
            ..HostRules::default()
        };
        Session::new(
            rules,
            None,
            Arc::new(HostNetwork::default()),
            Events::new(Box::new(|_| {})),
        )
    }

    /// A query for labels, with these flags, counts and class.
    fn query(flags: [u8; 2], counts: u8, labels: &[&[u8]], class: u8) -> Vec<u8> {
        let mut bytes = vec![0, 9, flags[0], flags[1], 0, counts, 0, 0, 0, 0, 0, 0];
        for _ in 0..counts {
            for label in labels {
                bytes.push(u8::try_from(label.len()).unwrap());
                bytes.extend(*label);
            }
            bytes.extend([0, 0, 1, 0, class]);
        }
        bytes
    }

    #[test]
    fn odd_messages_have_no_addresses() {
        let session = session();
        let code = |bytes: &[u8]| answer(&session, bytes).map(|a| (a[3] & 15, a[7]));
        let good: &[&[u8]] = &[b"x", b"a", b"example"];
        assert_eq!(code(&query([1, 0], 1, good, 1)), Some((0, 1)));
        // A label that holds a dot, a NUL, a line's end, or what is no text.
        for label in [
            &b"x.a.example"[..],
            b"evil.x",
            b"x\0",
            b"x\r\n",
            b"\xff",
            b"x y",
            b"-x",
        ] {
            assert_eq!(
                code(&query([1, 0], 1, &[label, b"a", b"example"], 1)),
                Some((3, 0)),
                "{label:?}"
            );
        }
        assert_eq!(code(&query([1, 0], 1, &[b"a.example"], 1)), Some((3, 0)));
        // Of Chaos, two questions, none, a notification, an update.
        assert_eq!(code(&query([1, 0], 1, good, 3)), Some((5, 0)));
        assert_eq!(code(&query([1, 0], 2, good, 1)), Some((1, 0)));
        assert_eq!(code(&query([1, 0], 0, good, 1)), Some((1, 0)));
        assert_eq!(code(&query([0x21, 0], 1, good, 1)), Some((4, 0)));
        // An answer, and what is cut off: nobody is answered.
        assert_eq!(code(&query([0x81, 0], 1, good, 1)), None);
        let whole = query([1, 0], 1, good, 1);
        assert!((0..whole.len()).all(|end| code(&whole[..end]).is_none()));
    }

    proptest! {
        #[test]
        fn no_message_breaks_it_or_is_answered_at_length(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            labels in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..63), 1..4),
        ) {
            let session = session();
            let labels: Vec<&[u8]> = labels.iter().map(|label| &label[..]).collect();
            for message in [&bytes, &[&[0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], &bytes[..]].concat(), &query([1, 0], 1, &labels, 1)] {
                if let Some(answer) = answer(&session, message) {
                    prop_assert!(answer.len() <= MOST_OF_QUERY);
                }
            }
        }
    }
}
