//! Which hosts a jail may reach: rules as they are written, and their verdict. Launcher and filter judge by this crate
//! alone, so that what `explain` says is what happens. It reads nothing and resolves nothing.

#![forbid(unsafe_code)]

mod address;
mod credential;
mod name;
mod refusal;
mod rule;
mod rules;

pub use address::AddressClass;
pub use credential::{Credential, Secret};
pub use name::{Name, NameFault};
pub use refusal::{Cause, Refusal};
pub use rule::{Host, HostPattern, HostRule, Ports, Rule, RuleError, WEB_PORTS};
pub use rules::{Endpoint, HostRules, MAIL_PORTS, MOST_PORTS, TooManyPorts};
