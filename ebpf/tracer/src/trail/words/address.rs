//! Addresses of sockets in words. The layouts are those of the kernel's `struct sockaddr_*`; one that is
//! shorter than its own is given as its bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use agent_sandbox_events::text;

use super::{flags, named};

/// `AF_UNIX` and so on, in words (`address_families(7)`).
pub(in crate::trail) fn family(family: u16) -> String {
    let name = match libc::c_int::from(family) {
        libc::AF_UNSPEC => "unspecified",
        libc::AF_UNIX => "unix",
        libc::AF_INET => "inet",
        libc::AF_INET6 => "inet6",
        libc::AF_NETLINK => "netlink",
        libc::AF_PACKET => "packet",
        libc::AF_RDS => "rds",
        libc::AF_CAN => "can",
        libc::AF_TIPC => "tipc",
        libc::AF_BLUETOOTH => "bluetooth",
        libc::AF_ALG => "alg",
        libc::AF_VSOCK => "vsock",
        libc::AF_XDP => "xdp",
        // AF_IB and AF_SMC: InfiniBand's own, and shared memory over it.
        27 => "infiniband",
        43 => "smc",
        other => return other.to_string(),
    };
    name.to_string()
}

/// `SOCK_STREAM` and so on, in words (`socket(2)`), without the flags that `socket` takes with it.
pub(in crate::trail) fn kind(kind: u16) -> String {
    match libc::c_int::from(kind) & 0xf {
        libc::SOCK_STREAM => "stream".to_string(),
        libc::SOCK_DGRAM => "dgram".to_string(),
        libc::SOCK_RAW => "raw".to_string(),
        libc::SOCK_RDM => "rdm".to_string(),
        libc::SOCK_SEQPACKET => "seqpacket".to_string(),
        libc::SOCK_DCCP => "dccp".to_string(),
        other => other.to_string(),
    }
}

/// Protocols of netlink (`netlink(7)`), by number.
const NETLINK: [&str; 23] = [
    "route",
    "unused",
    "usersock",
    "firewall",
    "sock_diag",
    "nflog",
    "xfrm",
    "selinux",
    "iscsi",
    "audit",
    "fib_lookup",
    "connector",
    "netfilter",
    "ip6_fw",
    "dnrtmsg",
    "kobject_uevent",
    "generic",
    "dm",
    "scsitransport",
    "ecryptfs",
    "rdma",
    "crypto",
    "smc",
];

/// An address. Empty if there is none.
pub(in crate::trail) fn address(family: u16, protocol: u32, bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    let behind = bytes.get(2..).unwrap_or_default();
    let said = match libc::c_int::from(family) {
        libc::AF_INET => inet(behind),
        libc::AF_INET6 => inet6(behind),
        libc::AF_UNIX => Some(unix(behind)),
        libc::AF_NETLINK => netlink(protocol, behind),
        libc::AF_PACKET => packet(behind),
        libc::AF_VSOCK => vsock(behind),
        libc::AF_ALG => alg(behind),
        // It takes a datagram socket's peer away: there is nothing more to it.
        libc::AF_UNSPEC => Some(String::new()),
        _ => None,
    };
    said.unwrap_or_else(|| {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("0x{digits}")
    })
}

/// Some bytes of an address.
fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// `struct sockaddr_in`: port, address.
fn inet(bytes: &[u8]) -> Option<String> {
    let port = u16::from_be_bytes(part(bytes, 0)?);
    let address = Ipv4Addr::from(part::<4>(bytes, 2)?);
    Some(format!("{address}:{port}"))
}

/// `struct sockaddr_in6`: port, flow, address, scope (which old programs leave out).
fn inet6(bytes: &[u8]) -> Option<String> {
    let port = u16::from_be_bytes(part(bytes, 0)?);
    let address = Ipv6Addr::from(part::<16>(bytes, 6)?);
    match part(bytes, 22).map_or(0, u32::from_ne_bytes) {
        0 => Some(format!("[{address}]:{port}")),
        scope => Some(format!("[{address}%{scope}]:{port}")),
    }
}

/// `struct sockaddr_un` (`unix(7)`): a path up to a zero, or a zero and an abstract name of any bytes. A
/// relative path that begins as abstract names are shown gets `./` before it.
fn unix(bytes: &[u8]) -> String {
    match bytes {
        [] => String::new(),
        [0, name @ ..] => format!("@{}", text::escape(name)),
        path => {
            let end = path.iter().position(|byte| *byte == 0);
            let path = &path[..end.unwrap_or(path.len())];
            let here = if path.starts_with(b"@") { "./" } else { "" };
            format!("{here}{}", text::escape(path))
        }
    }
}

/// `struct sockaddr_nl`: padding, port, groups.
fn netlink(protocol: u32, bytes: &[u8]) -> Option<String> {
    let port = u32::from_ne_bytes(part(bytes, 2)?);
    let groups = u32::from_ne_bytes(part(bytes, 6)?);
    let name = named(&NETLINK, protocol.into(), "protocol");
    Some(match groups {
        0 => format!("{name}, port {port}"),
        _ => format!("{name}, port {port}, groups {}", flags(groups.into(), &[])),
    })
}

/// `struct sockaddr_ll` (`packet(7)`): protocol, interface.
fn packet(bytes: &[u8]) -> Option<String> {
    let protocol = u16::from_be_bytes(part(bytes, 0)?);
    let interface = i32::from_ne_bytes(part(bytes, 2)?);
    Some(format!("interface {interface}, protocol 0x{protocol:04x}"))
}

/// `struct sockaddr_vm` (`vsock(7)`): reserved, port, context. `cid:port`.
fn vsock(bytes: &[u8]) -> Option<String> {
    let port = u32::from_ne_bytes(part(bytes, 2)?);
    let context = u32::from_ne_bytes(part(bytes, 6)?);
    Some(format!("{context}:{port}"))
}

/// `struct sockaddr_alg`: type, features, mask, name. `type:name`.
fn alg(bytes: &[u8]) -> Option<String> {
    let until_zero = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0);
        text::escape(&bytes[..end.unwrap_or(bytes.len())])
    };
    let kind = part::<14>(bytes, 0)?;
    let name = bytes.get(22..)?;
    Some(format!("{}:{}", until_zero(&kind), until_zero(name)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn family_number(family: libc::c_int) -> u16 {
        u16::try_from(family).unwrap()
    }

    fn shown(family: libc::c_int, protocol: u32, parts: &[&[u8]]) -> String {
        let family = family_number(family);
        let mut bytes = family.to_ne_bytes().to_vec();
        for part in parts {
            bytes.extend_from_slice(part);
        }
        address(family, protocol, &bytes)
    }

    #[test]
    fn addresses_of_the_internet() {
        let port = 443_u16.to_be_bytes();
        assert_eq!(
            shown(libc::AF_INET, 6, &[&port, &[127, 0, 0, 1], &[0; 8]]),
            "127.0.0.1:443"
        );
        let one = Ipv6Addr::LOCALHOST.octets();
        assert_eq!(
            shown(libc::AF_INET6, 6, &[&port, &[0; 4], &one, &[0; 4]]),
            "[::1]:443"
        );
        let local: Ipv6Addr = "fe80::1".parse().unwrap();
        let scope = 3_u32.to_ne_bytes();
        assert_eq!(
            shown(
                libc::AF_INET6,
                6,
                &[&port, &[0; 4], &local.octets(), &scope]
            ),
            "[fe80::1%3]:443"
        );
    }

    #[test]
    fn addresses_of_unix_sockets_are_not_mistaken_for_one_another() {
        let unix = |name: &[u8]| shown(libc::AF_UNIX, 0, &[name]);
        assert_eq!(unix(b"/run/x.sock\0"), "/run/x.sock");
        assert_eq!(unix(b"/run/x.sock\0rubbish"), "/run/x.sock");
        assert_eq!(unix(b"\0name"), "@name");
        assert_eq!(unix(b"\0na\0me"), "@na\\x00me");
        assert_eq!(unix(b"@name"), "./@name");
        assert_eq!(unix(b""), "");
        assert_eq!(unix(b"/a\x1b\xff"), "/a\\x1b\\xff");
    }

    #[test]
    fn others() {
        let zero = 0_u32.to_ne_bytes();
        assert_eq!(
            shown(libc::AF_NETLINK, 0, &[&[0; 2], &zero, &zero]),
            "route, port 0"
        );
        assert_eq!(
            shown(
                libc::AF_NETLINK,
                99,
                &[&[0; 2], &7_u32.to_ne_bytes(), &1_u32.to_ne_bytes()]
            ),
            "protocol 99, port 7, groups 0x1"
        );
        assert_eq!(
            shown(
                libc::AF_VSOCK,
                0,
                &[&[0; 2], &22_u32.to_ne_bytes(), &2_u32.to_ne_bytes()]
            ),
            "2:22"
        );
        assert_eq!(
            shown(
                libc::AF_PACKET,
                3,
                &[&3_u16.to_be_bytes(), &2_i32.to_ne_bytes()]
            ),
            "interface 2, protocol 0x0003"
        );
        let mut alg = [0; 86];
        alg[..4].copy_from_slice(b"hash");
        alg[22..28].copy_from_slice(b"sha256");
        assert_eq!(shown(libc::AF_ALG, 0, &[&alg]), "hash:sha256");
        assert_eq!(shown(libc::AF_UNSPEC, 0, &[&[0; 14]]), "");
        assert_eq!(shown(libc::AF_INET, 0, &[&[0; 3]]), "0x0200000000");
        assert_eq!(address(99, 0, &[99, 0, 255]), "0x6300ff");
        assert_eq!(family(99), "99");
        assert_eq!(family(family_number(libc::AF_INET6)), "inet6");
        assert_eq!(kind(family_number(libc::SOCK_RAW)), "raw");
        assert_eq!(kind(9), "9");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            family in 0_u16..46,
            protocol in any::<u32>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..130),
        ) {
            let shown = address(family, protocol, &bytes);
            prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}
