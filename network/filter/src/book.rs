//! Names and the addresses that stand for them inside.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use agent_sandbox_hosts::Name;

/// The range for benchmarks (RFC 2544): no host of a network has such an address, so none is hidden by it.
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// Names for one session, for the memory that they take: half a hundred bytes each and the name, 5 MB at most. A
/// browser comes to some hundred in a day.
const MOST_NAMES: usize = 16_384;

/// Which address stands for which name. An address is given once in a session.
#[derive(Debug, Default)]
pub(crate) struct Book {
    numbers: HashMap<Name, u32>,
    names: Vec<Name>,
}

impl Book {
    /// The address for a name; none if it would be one too many.
    pub(crate) fn address_of(&mut self, name: &Name) -> Option<Ipv4Addr> {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.names.len() < MOST_NAMES => {
                let number = u32::try_from(self.names.len()).ok()?;
                self.numbers.insert(name.clone(), number);
                self.names.push(name.clone());
                number
            }
            None => return None,
        };
        Some(Ipv4Addr::from_bits(FIRST.to_bits() + number))
    }

    /// The address that a name was given.
    pub(crate) fn known(&self, name: &Name) -> Option<Ipv4Addr> {
        let number = self.numbers.get(name)?;
        Some(Ipv4Addr::from_bits(FIRST.to_bits() + number))
    }

    /// The name that was given an address.
    pub(crate) fn name_at(&self, address: IpAddr) -> Option<&Name> {
        let IpAddr::V4(address) = address else {
            return None;
        };
        let number = address.to_bits().checked_sub(FIRST.to_bits())?;
        self.names.get(usize::try_from(number).ok()?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_no_other_gets_it() {
        let mut book = Book::default();
        let name = |i| Name::parse(&format!("a{i}.example")).unwrap();
        let addresses: Vec<_> = (0..MOST_NAMES)
            .map(|i| book.address_of(&name(i)).unwrap())
            .collect();
        assert_eq!(book.address_of(&name(MOST_NAMES)), None, "one too many");
        assert_eq!(book.known(&name(MOST_NAMES)), None);
        for (i, address) in addresses.iter().enumerate() {
            assert_eq!(book.address_of(&name(i)), Some(*address));
            assert_eq!(book.name_at((*address).into()), Some(&name(i)));
            assert_eq!(book.known(&name(i)), Some(*address));
            assert!(address.octets()[0] == 198 && matches!(address.octets()[1], 18 | 19));
        }
        for odd in [
            "198.18.0.0",
            "198.17.255.255",
            "198.19.0.1",
            "255.255.255.255",
            "0.0.0.0",
            "::c612:1",
        ] {
            assert_eq!(book.name_at(odd.parse().unwrap()), None, "{odd}");
        }
    }
}
