//! Leads connections out of a jail to the hosts that its rules allow, and nowhere else. The sockets were made inside the
//! jail's network, where every address is local, and are held here, outside: nothing of ours runs inside. A name that is
//! allowed is answered with an address of its own, which tells the name when somebody connects to it.
//!
//! The other way, [`forward()`] leads the user's own connections to servers inside, in a process of its own.
//!
//! If this process ends, so do the sockets, and what is inside is refused by its own kernel.

#![forbid(unsafe_code)]

mod authority;
mod book;
mod broker;
mod dial;
mod dns;
mod event;
mod exchange;
mod forward;
mod http;
mod opening;
mod outside;
mod pace;
mod place;
mod proxied;
mod proxy;
mod refuse;
mod relay;
mod serve;
mod session;
mod start;
mod terminate;

pub use broker::Broker;
pub use event::{Event, Sink, Verdict};
pub use forward::{MOST_FORWARDED, forward};
pub use outside::{Addresses, HostNetwork, Outside};
pub use proxied::ProxiedNetwork;
pub use proxy::Proxy;
pub use start::{Filter, MOST_CONNECTIONS, Sockets};
