//! Launcher to the chaperon's program, outside of a session: what `agent-sandbox budget`, `pending`, `approve` and `deny` ask, on
//! standard input.

use serde::{Deserialize, Serialize};

use crate::order::Order;

/// No errand is longer, in bytes: an order holds a user's policy.
pub const LONGEST_ERRAND: u64 = 16 << 20;

/// What the chaperon's program is asked outside of a session, on standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// What a session here would be told; its id is empty.
    pub order: Order,
    /// What is to be done.
    pub what: What,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Shows the hours that were used, and what is left.
    Budget {
        /// As JSON.
        json: bool,
    },
    /// Lists the requests that wait for approval.
    Pending {
        /// As JSON.
        json: bool,
    },
    /// Answers one of them.
    Decide {
        /// Its id.
        id: String,
        /// Whether it may go.
        approve: bool,
    },
}
