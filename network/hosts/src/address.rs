//! What kind of address one is: public, or of a range that no session reaches unless `private` names it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses with one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressClass {
    /// Anybody's on the internet.
    Public,
    /// What a cloud tells its machines, keys included.
    Metadata,
    /// The host itself.
    Loopback,
    /// "This network"; Linux connects `0.0.0.0` and `::` to the host itself.
    Unspecified,
    /// RFC 1918.
    Private,
    /// A provider's own, RFC 6598 (CGNAT).
    Shared,
    /// Of the wire alone.
    LinkLocal,
    /// RFC 4193, and the site-local range before it.
    UniqueLocal,
    /// Many hosts at once, or all.
    Multicast,
    /// RFC 2544; the filter's own addresses inside are of this range.
    Benchmark,
    /// Of examples.
    Documentation,
    /// Carries another address that some gateway or tunnel goes to (6to4, Teredo, IPv4-compatible, local NAT64).
    Translated,
    /// Set apart by IANA for other ends.
    Reserved,
    /// An address of this host that others reach, too: its servers may trust who comes from there.
    OwnHost,
}

use AddressClass as C;

/// IANA's registry of special-purpose IPv4 addresses, and the addresses at which clouds serve metadata although their
/// range says nothing of it (Azure, Alibaba, Oracle). The first that holds an address tells its class.
const V4: &[([u8; 4], u32, C)] = &[
    ([169, 254, 169, 254], 32, C::Metadata),
    ([168, 63, 129, 16], 32, C::Metadata),
    ([100, 100, 100, 200], 32, C::Metadata),
    ([192, 0, 0, 192], 32, C::Metadata),
    ([0, 0, 0, 0], 8, C::Unspecified),
    ([10, 0, 0, 0], 8, C::Private),
    ([100, 64, 0, 0], 10, C::Shared),
    ([127, 0, 0, 0], 8, C::Loopback),
    ([169, 254, 0, 0], 16, C::LinkLocal),
    ([172, 16, 0, 0], 12, C::Private),
    ([192, 0, 0, 0], 24, C::Reserved),
    ([192, 0, 2, 0], 24, C::Documentation),
    ([192, 88, 99, 0], 24, C::Reserved),
    ([192, 168, 0, 0], 16, C::Private),
    ([198, 18, 0, 0], 15, C::Benchmark),
    ([198, 51, 100, 0], 24, C::Documentation),
    ([203, 0, 113, 0], 24, C::Documentation),
    ([224, 0, 0, 0], 4, C::Multicast),
    ([255, 255, 255, 255], 32, C::Multicast),
    ([240, 0, 0, 0], 4, C::Reserved),
];

/// The same for IPv6. What stands in no row is public within 2000::/3 alone, the only range that IANA gives out (RFC 4291, 2.4).
const V6: &[([u16; 8], u32, C)] = &[
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, C::Metadata),
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, C::Metadata),
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, C::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, C::Loopback),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, C::Translated),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, C::Translated),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, C::Translated),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, C::Reserved),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, C::Documentation),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, C::Translated),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, C::Documentation),
    ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, C::Public),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, C::UniqueLocal),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, C::UniqueLocal),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, C::LinkLocal),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, C::Multicast),
];

/// The prefix of NAT64 that all share (RFC 6052): behind it is the IPv4 address in the last 32 bits.
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// The address at which a host itself arrives: of one that carries an IPv4 address (IPv4-mapped, NAT64) that one.
pub(crate) fn carried(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.segments().starts_with(&NAT64) => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        other => other,
    }
}

impl AddressClass {
    /// The class of an address. One that carries an IPv4 address which the host itself would go to (IPv4-mapped, NAT64)
    /// has that one's.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match carried(address) {
            IpAddr::V4(v4) => {
                let bits = v4.to_bits();
                V4.iter()
                    .find(|(net, length, _)| {
                        (bits ^ Ipv4Addr::from(*net).to_bits()) >> (32 - length) == 0
                    })
                    .map_or(Self::Public, |row| row.2)
            }
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                V6.iter()
                    .find(|(net, length, _)| {
                        (bits ^ Ipv6Addr::from(*net).to_bits()) >> (128 - length) == 0
                    })
                    .map_or(Self::Reserved, |row| row.2)
            }
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Metadata => "a cloud's metadata service",
            Self::Loopback => "this host's loopback",
            Self::Unspecified => "no address of any host",
            Self::Private => "a private address",
            Self::Shared => "a provider's private address",
            Self::LinkLocal => "a link-local address",
            Self::UniqueLocal => "a private IPv6 address",
            Self::Multicast => "a multicast address",
            Self::Benchmark => "an address for benchmarks",
            Self::Documentation => "an address for examples",
            Self::Translated => "an address that a gateway translates",
            Self::Reserved => "a reserved address",
            Self::OwnHost => "an address of this host",
        })
    }
}
