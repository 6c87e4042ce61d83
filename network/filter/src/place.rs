//! What a connection from inside takes of a session: one of its places, and the address outside that it leads to.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

/// The place of a connection, and of what it is upgraded to.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    address: Mutex<Option<IpAddr>>,
}

impl Place {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self {
            _permit: permit,
            address: Mutex::default(),
        }
    }

    /// Notes that it leads to an address.
    pub(crate) fn leads_to(&self, address: IpAddr) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    /// Where it leads; none: nobody was dialled yet.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
