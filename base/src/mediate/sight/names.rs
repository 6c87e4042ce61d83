//! Addresses, and names of hosts in questions to a name server (RFC 1035), as a caller has them in its
//! memory. Pure; whatever is not exactly as it should be is nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name of a host (RFC 1035, section 2.3.4).
const LONGEST_NAME: usize = 253;
/// The header of a message (RFC 1035, section 4.1.1), in bytes.
const HEADER: usize = 12;

/// An address that something is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host and a port.
    Host(IpAddr, u16),
    /// The path of a local socket.
    Path(Vec<u8>),
}

/// The address in a `struct sockaddr` (`ip(7)`, `ipv6(7)`, `unix(7)`).
#[must_use]
pub fn peer(bytes: &[u8]) -> Option<Peer> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let (port, rest) = rest.split_first_chunk::<2>()?;
            let (address, _) = rest.split_first_chunk::<4>()?;
            let address = IpAddr::V4(Ipv4Addr::from(*address));
            Some(Peer::Host(address, u16::from_be_bytes(*port)))
        }
        libc::AF_INET6 => {
            let (port, rest) = rest.split_first_chunk::<2>()?;
            let (_flow, rest) = rest.split_first_chunk::<4>()?;
            let (address, _) = rest.split_first_chunk::<16>()?;
            let address = Ipv6Addr::from(*address).to_canonical();
            Some(Peer::Host(address, u16::from_be_bytes(*port)))
        }
        libc::AF_UNIX => {
            // A name that begins with 0 is abstract.
            let path = rest.split(|&byte| byte == 0).next()?;
            (!path.is_empty()).then(|| Peer::Path(path.to_vec()))
        }
        _ => None,
    }
}

/// The name that a message asks a name server about.
#[must_use]
pub fn asked(message: &[u8]) -> Option<String> {
    let (header, mut rest) = message.split_first_chunk::<HEADER>()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    // A question of the ordinary kind, with nothing but one question in it and at most what EDNS adds
    // (RFC 6891); recursion and checking may be asked for.
    let is_question = word(2) & !0x0130 == 0 && word(4) == 1 && word(6) == 0 && word(8) == 0;
    if !is_question || word(10) > 1 {
        return None;
    }
    let mut name = String::new();
    loop {
        let (&length, behind) = rest.split_first()?;
        if length == 0 {
            rest = behind;
            break;
        }
        let (label, behind) = behind.split_at_checked(usize::from(length))?;
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        if length > 63 || !label.iter().all(plain) {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| byte.to_ascii_lowercase() as char));
        rest = behind;
    }
    let (kind, class) = (rest.get(..2)?, rest.get(2..4)?);
    // A, AAAA, HTTPS of the internet.
    let is_address = matches!(kind, [0, 1] | [0, 28] | [0, 65]) && class == [0, 1];
    (is_address && name.contains('.') && name.len() <= LONGEST_NAME).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(labels: &[&[u8]]) -> Vec<u8> {
        let mut all = vec![9, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            all.push(label.len() as u8);
            all.extend_from_slice(label);
        }
        all.extend([0, 0, 1, 0, 1]);
        all
    }

    #[test]
    fn names_are_read_from_questions_alone() {
        let plain = question(&[b"API", b"example", b"org"]);
        assert_eq!(asked(&plain).as_deref(), Some("api.example.org"));
        for at in 0..plain.len() {
            assert_eq!(asked(&plain[..at]), None, "cut off at {at}");
        }
        let mut answer = plain.clone();
        answer[2] = 0x81;
        let mut transfer = plain.clone();
        let end = transfer.len();
        transfer[end - 3] = 252;
        for bad in [
            answer,
            transfer,
            question(&[b"a\nb", b"org"]),
            question(&[b"a\"]", b"org"]),
            question(&[b"localhost"]),
            question(&[]),
            question(&[
                b"abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123",
                b"org",
            ]),
            question(&vec![&b"abcdefghijklmnop"[..]; 20]),
        ] {
            assert_eq!(asked(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn addresses_are_read_as_the_kernel_has_them() {
        let family = |number: i32| (number as u16).to_ne_bytes();
        let four = [&family(libc::AF_INET)[..], &[1, 187, 192, 0, 2, 1], &[0; 8]].concat();
        let host = |text: &str| Peer::Host(text.parse().expect("an address"), 443);
        assert_eq!(peer(&four), Some(host("192.0.2.1")));
        let mapped = [
            &family(libc::AF_INET6)[..],
            &[1, 187, 0, 0, 0, 0],
            &[0; 10],
            &[255, 255, 192, 0, 2, 1],
            &[0; 4],
        ]
        .concat();
        assert_eq!(peer(&mapped), Some(host("192.0.2.1")));
        let local = [&family(libc::AF_UNIX)[..], b"/run/x\0junk"].concat();
        assert_eq!(peer(&local), Some(Peer::Path(b"/run/x".to_vec())));
        let hidden = [&family(libc::AF_UNIX)[..], b"\0x"].concat();
        for bad in [&hidden[..], &four[..6], &mapped[..12], &[], &[1]] {
            assert_eq!(peer(bad), None, "{bad:?}");
        }
    }
}
