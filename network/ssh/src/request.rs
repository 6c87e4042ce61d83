//! What a client asks of an agent (draft-ietf-sshm-ssh-agent, and OpenSSH's PROTOCOL.agent).

use crate::encoding::{Malformed, Reader, Writer};

/// `SSH_AGENT_FAILURE`
pub(crate) const FAILURE: u8 = 5;
/// `SSH_AGENT_SUCCESS`
pub(crate) const SUCCESS: u8 = 6;
/// `SSH_AGENTC_REQUEST_IDENTITIES`
pub(crate) const IDENTITIES: u8 = 11;
/// `SSH_AGENT_IDENTITIES_ANSWER`
pub(crate) const IDENTITIES_ANSWER: u8 = 12;
/// `SSH_AGENTC_SIGN_REQUEST`
pub(crate) const SIGN: u8 = 13;
/// `SSH_AGENT_SIGN_RESPONSE`
pub(crate) const SIGN_ANSWER: u8 = 14;
/// `SSH_AGENTC_EXTENSION`
pub(crate) const EXTENSION: u8 = 27;
/// The extension that binds a connection to a host.
const BIND: &[u8] = b"session-bind@openssh.com";

/// The longest id of a session, in bytes: the hash of its key exchange.
const LONGEST_SESSION: usize = 64;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Which keys there are.
    Identities,
    /// A signature.
    Sign {
        /// By this key.
        key: &'a [u8],
        /// Of this.
        data: &'a [u8],
        /// With this hash, of RSA keys (RFC 8332).
        flags: u32,
    },
    /// From here on the connection is for one session with one host.
    Bind {
        /// The host's key.
        host_key: &'a [u8],
        /// The session's id.
        session: &'a [u8],
        /// The host's signature of that.
        signature: &'a [u8],
        /// Whether whoever asks is on the host.
        forwarding: bool,
    },
    /// Whatever else there is: to add keys, remove, lock, and other extensions.
    Other(u8),
}

impl<'a> Request<'a> {
    /// Reads one, without the length before it.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Reader::new(message);
        let request = match rest.byte()? {
            IDENTITIES => Self::Identities,
            SIGN => Self::Sign {
                key: rest.string()?,
                data: rest.string()?,
                flags: rest.number()?,
            },
            EXTENSION if rest.string()? == BIND => Self::Bind {
                host_key: rest.string()?,
                session: match rest.string()? {
                    session if (1..=LONGEST_SESSION).contains(&session.len()) => session,
                    _ => return Err(Malformed),
                },
                signature: rest.string()?,
                forwarding: rest.boolean()?,
            },
            other => return Ok(Self::Other(other)),
        };
        rest.end()?;
        Ok(request)
    }

    /// As it is written.
    pub(crate) fn written(&self) -> Vec<u8> {
        match *self {
            Self::Identities => Writer::of(IDENTITIES).done(),
            Self::Sign { key, data, flags } => {
                let message = Writer::of(SIGN).string(key).string(data);
                message.number(flags).done()
            }
            Self::Bind {
                host_key,
                session,
                signature,
                forwarding,
            } => {
                let message = Writer::of(EXTENSION).string(BIND).string(host_key);
                let message = message.string(session).string(signature);
                message.boolean(forwarding).done()
            }
            Self::Other(kind) => Writer::of(kind).done(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is written anew is what was read: no two requests look like one.
        #[test]
        fn a_request_is_read_in_one_way(
            kind in prop_oneof![Just(IDENTITIES), Just(SIGN), Just(EXTENSION), any::<u8>()],
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..5),
            tail in proptest::collection::vec(any::<u8>(), 0..6),
            named in any::<bool>(),
        ) {
            let mut message = Writer::of(kind);
            if named {
                message = message.string(BIND);
            }
            for part in &parts {
                message = message.string(part);
            }
            let message = [message.done(), tail].concat();
            match Request::parse(&message) {
                Ok(Request::Other(other)) => prop_assert_eq!(other, kind),
                Ok(request) => prop_assert_eq!(request.written(), message),
                Err(Malformed) => {}
            }
        }

        #[test]
        fn any_bytes_are_a_request_or_none(message in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = Request::parse(&message) {
                prop_assert!(matches!(request, Request::Other(_)) || request.written() == message);
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_goes_on_is_none() {
        let whole = Request::Bind {
            host_key: b"key",
            session: &[7; 32],
            signature: b"signature",
            forwarding: false,
        }
        .written();
        assert!(matches!(Request::parse(&whole), Ok(Request::Bind { .. })));
        for cut in 1..whole.len() {
            let request = Request::parse(&whole[..cut]);
            assert!(!matches!(request, Ok(Request::Bind { .. })), "{cut}");
        }
        assert_eq!(Request::parse(&[&whole[..], &[0]].concat()), Err(Malformed));
        // A truth that is neither 0 nor 1, and a session's id of any length.
        let odd = [&whole[..whole.len() - 1], &[2]].concat();
        assert_eq!(Request::parse(&odd), Err(Malformed));
        for length in [0, LONGEST_SESSION + 1] {
            let session = vec![1; length];
            let long = Request::Bind {
                host_key: b"",
                session: &session,
                signature: b"",
                forwarding: false,
            };
            assert_eq!(Request::parse(&long.written()), Err(Malformed));
        }
        assert_eq!(Request::parse(&[]), Err(Malformed));
    }
}
