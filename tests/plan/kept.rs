//! What the jail keeps of its own: `home.keep`, and the state of agents.

mod explained;
mod places;
mod state;
