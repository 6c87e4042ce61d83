//! A mediator to the filter of a network, on a socket of messages that nobody else has: where connections lead out of a jail that has
//! no network of its own.
//!
//! A message is an address that a program inside connects to. Alone it is a question: whether anybody would listen there. With a socket
//! it is the connection.

use std::net::SocketAddr;

/// The answer to a question: somebody listens. Any other message: nobody does.
pub const LISTENS: &[u8] = b"y";
/// The answer to a question: nobody listens.
pub const NOBODY: &[u8] = b"n";
/// No message is longer, in bytes.
pub const LONGEST: usize = 64;

/// The message with an address.
///
/// # Errors
/// Nothing keeps an address from being written.
pub fn message(to: &SocketAddr) -> postcard::Result<Vec<u8>> {
    postcard::to_allocvec(to)
}

/// The address in a message.
#[must_use]
pub fn address(message: &[u8]) -> Option<SocketAddr> {
    match postcard::take_from_bytes(message) {
        Ok((to, [])) => Some(to),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_address() {
        for text in ["198.18.0.1:443", "[2001:db8::1]:65535", "0.0.0.0:0"] {
            let to = text.parse().unwrap();
            let mut said = message(&to).unwrap();
            assert!(said.len() <= LONGEST);
            assert_eq!(address(&said), Some(to));
            said.push(0);
            assert_eq!(address(&said), None);
            assert_eq!(address(&said[..3]), None);
        }
    }
}
