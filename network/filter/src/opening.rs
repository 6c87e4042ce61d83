//! What a program says first on a connection: TLS, HTTP or something else.

use agent_sandbox_hosts::Name;
use rustls::server::Acceptor;

/// Bytes before the judgement. A ClientHello has some hundred, with keys for quantum-safe exchange 2,000, and with a ticket
/// for resumption a few thousand more; a line of HTTP has 8,000 at most (RFC 9112, 3).
pub(crate) const MOST_OF_OPENING: usize = 32 * 1024;

/// What the bytes so far are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It takes more of them to tell.
    Unclear,
    /// A ClientHello, and the server's name in it.
    Tls(Option<Name>),
    /// A request of HTTP: whoever parses it says whether it is a good one.
    Http,
    /// Something else.
    Other,
    /// Neither of these, or made so that parsers differ.
    Broken,
}

/// Reads the first bytes as they come.
#[derive(Default)]
pub(crate) struct Reader {
    bytes: Vec<u8>,
    acceptor: Acceptor,
}

impl Reader {
    /// Takes more bytes. `web`: the port is for HTTP and TLS alone, so what is not TLS has to be HTTP.
    pub(crate) fn push(&mut self, more: &[u8], web: bool) -> Opening {
        self.bytes.extend_from_slice(more);
        let opening = match self.bytes.first() {
            None => Opening::Unclear,
            // A record of TLS that holds a message of a handshake (RFC 8446, 5.1).
            Some(0x16) => self.hello(more),
            Some(_) if web => Opening::Http,
            // Records of TLS that no client begins with; a server could skip them.
            Some(0x14 | 0x15 | 0x17) if self.bytes.len() == 1 => Opening::Unclear,
            Some(0x14 | 0x15 | 0x17) if self.bytes[1] == 3 => Opening::Broken,
            Some(_) => self.line(),
        };
        match opening {
            Opening::Unclear if self.bytes.len() >= MOST_OF_OPENING => Opening::Broken,
            opening => opening,
        }
    }

    /// All bytes so far.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn hello(&mut self, mut more: &[u8]) -> Opening {
        while !more.is_empty() {
            if !matches!(self.acceptor.read_tls(&mut more), Ok(1..)) {
                return Opening::Broken;
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Err(_) => return Opening::Broken,
                Ok(Some(accepted)) => {
                    return match accepted.client_hello().server_name() {
                        None => Opening::Tls(None),
                        Some(name) => Name::from_wire(name)
                            .map_or(Opening::Broken, |name| Opening::Tls(Some(name))),
                    };
                }
            }
        }
        Opening::Unclear
    }

    /// A request of HTTP begins with a word of letters and something blank; whether its line speaks of HTTP is seen at the line's
    /// end. Servers differ in what is blank to them and in what may stand before it, and skip empty lines: whatever one of
    /// them could take for a request is judged as one.
    fn line(&self) -> Opening {
        let begin = self.bytes.iter().position(|byte| !is_blank(*byte));
        let text = &self.bytes[begin.unwrap_or(self.bytes.len())..];
        let in_word = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
        let Some(end) = text.iter().position(|byte| !in_word(byte)) else {
            return Opening::Unclear;
        };
        let behind = text[end];
        let ends_word =
            !matches!(behind, b'\r' | b'\n') && (is_blank(behind) || !behind.is_ascii());
        if end == 0 || !ends_word {
            return Opening::Other;
        }
        let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
            return Opening::Unclear;
        };
        let line = text[..end].to_ascii_uppercase();
        match line.windows(5).any(|part| part == b"HTTP/") {
            true => Opening::Http,
            false => Opening::Other,
        }
    }
}

/// What some server takes for a blank: Python's splits at all of these, read as Latin-1.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1c..=0x1f | b' ' | 0x85 | 0xa0)
}

#[cfg(test)]
#[path = "../tests/harness/hello.rs"]
#[allow(clippy::unwrap_used, dead_code)] // a test: the panic is the failure
mod hello;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::hello::{hello, hello_in};
    use super::*;
    use proptest::prelude::*;

    /// What comes of pieces, in order.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, web: bool) -> Opening {
        let mut reader = Reader::default();
        let mut pieces = pieces.into_iter();
        loop {
            match pieces.next().map(|piece| reader.push(piece, web)) {
                Some(Opening::Unclear) => {}
                Some(opening) => return opening,
                None => return Opening::Unclear,
            }
        }
    }

    fn tls(name: &str) -> Opening {
        Opening::Tls(Some(Name::parse(name).unwrap()))
    }

    #[test]
    fn a_client_hello_is_one_wherever_it_is_split() {
        for bytes in [
            hello(Some("a.example")),
            hello_in(Some("a.example"), &[], 1),
            hello_in(Some("a.example"), &[], 5),
        ] {
            for at in 0..bytes.len() {
                let (one, two) = bytes.split_at(at);
                assert_eq!(read([one], true), Opening::Unclear, "{at}");
                assert_eq!(read([one, two], true), tls("a.example"), "{at}");
            }
            assert_eq!(read(bytes.chunks(1), false), tls("a.example"));
        }
    }

    #[test]
    fn names_in_it_are_names() {
        assert_eq!(read([&hello(None)[..]], true), Opening::Tls(None));
        assert_eq!(
            read([&hello(Some("A.EXAMPLE"))[..]], true),
            tls("a.example")
        );
        for name in [
            "a\0b",
            "a b",
            "a\r\nb",
            "",
            ".",
            "a..b",
            "*.example",
            "user@a",
            "a:443",
            "127.1",
            "2130706433",
            &"a.".repeat(130),
        ] {
            let opening = read([&hello(Some(name))[..]], true);
            assert!(
                matches!(opening, Opening::Broken | Opening::Tls(None)),
                "{name:?}: {opening:?}"
            );
        }
        // Two lists of names, and a name that is not where it says it is.
        let twice = hello_in(
            Some("a.example"),
            &[0, 0, 0, 8, 0, 6, 0, 0, 3, b'b', b'.', b'c'],
            9000,
        );
        assert_eq!(read([&twice[..]], true), Opening::Broken);
    }

    #[test]
    fn an_opening_has_an_end() {
        let mut reader = Reader::default();
        let mut opening = Opening::Unclear;
        for _ in 0..MOST_OF_OPENING / 64 {
            assert_eq!(opening, Opening::Unclear);
            opening = reader.push(&[b'a'; 64], false);
        }
        assert_eq!(opening, Opening::Broken);
        // A message that says it is larger than what is taken.
        let mut long = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
        long.resize(16_000, 0);
        assert_eq!(read([&long[..]], true), Opening::Unclear);
    }

    #[test]
    fn lines_of_other_ports() {
        for (bytes, opening) in [
            (&b"GET / HTTP/1.1\r\n"[..], Opening::Http),
            (b"\r\n\n  get / http/1.1\n", Opening::Http),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Opening::Http),
            (b"GET /", Opening::Unclear),
            (b"\r\n\r\n", Opening::Unclear),
            (b"GET /\x80 HTTP/1.1\r\n", Opening::Http),
            (b"GET /\xc3\xa4\0 HTTP/1.1\r\n", Opening::Http),
            (b"\x0b\xa0GET\xa0/\x0bHTTP/1.1\r\n", Opening::Http),
            (b"GET /\rHTTP/1.1\n", Opening::Http),
            (b"EHLO a.example\r\n", Opening::Other),
            (b"PASS\r\nGET / HTTP/1.1\r\n", Opening::Other),
            (b"AMQP\0\0\x09\x01", Opening::Other),
            (b"\x15\x03\x03\0\x02", Opening::Broken),
            (b"\x17x", Opening::Other),
            (b"SSH-2.0-OpenSSH_9.9\r\n", Opening::Other),
            (b"*1\r\n$4\r\nPING\r\n", Opening::Other),
            (b"003egit-upload-pack /x\0host=a", Opening::Other),
            (b"\0", Opening::Other),
        ] {
            assert_eq!(
                read([bytes], false),
                opening,
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
            let bytewise = read(bytes.chunks(1), false);
            assert_eq!(
                bytewise,
                opening,
                "bytewise: {:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    proptest! {
        #[test]
        fn pieces_say_what_the_whole_says(
            name in "[a-z]{1,20}\\.[a-z]{2,9}",
            record in 1_usize..300,
            piece in 1_usize..300,
            spoilt in proptest::option::of((0_usize..200, any::<u8>())),
            web in any::<bool>(),
        ) {
            let mut bytes = hello_in(Some(&name), &[], record);
            if let Some((at, byte)) = spoilt
                && let Some(there) = bytes.get_mut(at)
            {
                *there = byte;
            }
            prop_assert_eq!(read(bytes.chunks(piece), web), read([&bytes[..]], web));
        }

        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..600), web in any::<bool>()) {
            let _ = read([&bytes[..]], web);
            let _ = read([&[&[0x16, 3, 1][..], &bytes].concat()[..]], web);
        }
    }
}
