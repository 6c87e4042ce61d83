//! What the jail keeps of its own: `home.keep`, and the state of agents.

mod explained;
pub(crate) mod judge;
mod places;
mod state;
