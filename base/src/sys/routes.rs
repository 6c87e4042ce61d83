//! The loopback of this process's network namespace, its addresses and routes by it (`rtnetlink(7)`).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// The loopback device is the first of every network namespace (`LOOPBACK_IFINDEX`,
/// include/net/net_namespace.h).
const LOOPBACK: u32 = 1;
/// Bytes of a header (`struct nlmsghdr`).
const HEADER: usize = 16;
/// Bytes of an answer: two headers and an error number (`struct nlmsgerr`).
const ANSWER: usize = 2 * HEADER + 4;

/// Makes every address of a family one of this namespace's own: a route of type `RTN_LOCAL` for all of them, by the
/// loopback device. What listens at any address is then reached by a connection to every address.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over the namespace, `ENETDOWN` if its loopback is down, `EAFNOSUPPORT` or `EOPNOTSUPP` if the
/// kernel lacks the family.
pub fn make_all_local(family: AddressFamily) -> io::Result<()> {
    carry_out(&new_route(family))
}

/// Starts the namespace's loopback, which gets its addresses by that. In a new namespace it is down.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over the namespace.
pub fn start_loopback() -> io::Result<()> {
    carry_out(&up())
}

/// Gives the loopback device an address.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over the namespace, `EEXIST` if it has it.
pub fn add_address(address: Ipv4Addr) -> io::Result<()> {
    carry_out(&new_address(address))
}

/// Sends a message that the kernel answers with a number.
fn carry_out(message: &[u8]) -> io::Result<()> {
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let number = netlink.as_raw_fd();
    send(number, message, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(number, &mut answer, MsgFlags::empty())?;
    let (kind, error) = (word(&answer[4..]), &answer[HEADER..HEADER + 4]);
    if length < ANSWER || i32::from(kind) != libc::NLMSG_ERROR {
        return Err(io::ErrorKind::InvalidData.into());
    }
    match i32::from_ne_bytes([error[0], error[1], error[2], error[3]]) {
        0 => Ok(()),
        negative => Err(io::Error::from_raw_os_error(-negative)),
    }
}

fn word(bytes: &[u8]) -> u16 {
    u16::from_ne_bytes([bytes[0], bytes[1]])
}

/// A header (`struct nlmsghdr`), and what stands behind it.
fn message(kind: u16, flags: libc::c_int, rest: &[u8]) -> Vec<u8> {
    let length = (HEADER + rest.len()) as u32;
    // include/uapi/linux/netlink.h; libc has them as types of several widths.
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
    let mut text = length.to_ne_bytes().to_vec();
    text.extend_from_slice(&kind.to_ne_bytes());
    text.extend_from_slice(&flags.to_ne_bytes());
    // One message, to the kernel, from nobody in particular.
    text.extend_from_slice(&1u32.to_ne_bytes());
    text.extend_from_slice(&0u32.to_ne_bytes());
    text.extend_from_slice(rest);
    text
}

/// `struct ifinfomsg`: of any family and type, the device, and of its flags the one that is set.
fn up() -> Vec<u8> {
    let up = (libc::IFF_UP as u32).to_ne_bytes();
    let rest = [[0; 4], LOOPBACK.to_ne_bytes(), up, up].concat();
    message(libc::RTM_NEWLINK, 0, &rest)
}

/// `struct rtmsg`, and one attribute, the device.
fn new_route(family: AddressFamily) -> Vec<u8> {
    let route = [
        family as i32 as u8,
        // Lengths of destination and source: none, so all of them. No type of service.
        0,
        0,
        0,
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ];
    let device = attribute(libc::RTA_OIF, LOOPBACK.to_ne_bytes());
    let rest = [&route[..], &0u32.to_ne_bytes(), &device].concat();
    message(libc::RTM_NEWROUTE, libc::NLM_F_CREATE, &rest)
}

/// `struct ifaddrmsg`, and the address twice: the device's own, and that of the other end, which is the same.
fn new_address(address: Ipv4Addr) -> Vec<u8> {
    // include/uapi/linux/if_addr.h: family, length of the prefix, flags, scope, and the device.
    let about = [AddressFamily::Inet as i32 as u8, 32, 0, libc::RT_SCOPE_HOST];
    let own = attribute(libc::IFA_LOCAL, address.octets());
    let other = attribute(libc::IFA_ADDRESS, address.octets());
    let rest = [&about[..], &LOOPBACK.to_ne_bytes(), &own, &other].concat();
    message(libc::RTM_NEWADDR, libc::NLM_F_CREATE, &rest)
}

/// An attribute of four bytes (`struct rtattr`).
fn attribute(kind: u16, value: [u8; 4]) -> Vec<u8> {
    [&8u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat()
}
