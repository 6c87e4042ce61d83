//! The rooms of the network: who may be reached, and what leads there.

use super::Row;

/// Which hosts are reached: rules and their verdict.
pub(super) const HOSTS: &[Row] = &[
    ("address", &[]),
    ("name", &[]),
    ("credential", &["name"]),
    ("rule", &["name"]),
    ("refusal", &["address", "rule"]),
    ("rules", &["address", "name", "refusal", "rule"]),
];

/// What leads connections out of a jail: what each shares, what one is, where it goes, how it ends.
pub(super) const FILTER: &[Row] = &[
    ("book", &[]),
    ("event", &[]),
    ("opening", &[]),
    ("proxy", &[]),
    ("outside", &["proxy"]),
    ("proxied", &["outside", "proxy"]),
    ("pace", &[]),
    ("place", &[]),
    ("refuse", &[]),
    ("relay", &[]),
    // Credentials: where they stand in a request, who vouches for their hosts inside, and both for a session.
    ("exchange", &[]),
    ("authority", &[]),
    ("broker", &["authority", "exchange"]),
    (
        "session",
        &["book", "broker", "event", "outside", "pace", "place"],
    ),
    ("dns", &["event", "pace", "session"]),
    ("dial", &["event", "place", "proxy", "session"]),
    ("http", &["dial", "event", "exchange", "place", "session"]),
    ("terminate", &["http", "session"]),
    (
        "serve",
        &[
            "dial",
            "event",
            "exchange",
            "http",
            "opening",
            "place",
            "refuse",
            "relay",
            "session",
            "terminate",
        ],
    ),
    // The other way: the user to servers inside.
    ("forward", &["relay", "serve"]),
    (
        "start",
        &["broker", "dns", "event", "outside", "serve", "session"],
    ),
];

/// The agent that has the user's own sign logins: what is asked, for whom, and whether it is signed.
pub(super) const SSH: &[Row] = &[
    ("destination", &[]),
    ("known_hosts", &[]),
    ("rules", &["destination", "known_hosts"]),
    ("encoding", &[]),
    ("request", &["encoding"]),
    ("login", &["encoding"]),
    ("host_key", &["encoding", "rules"]),
    ("refusal", &["destination", "rules"]),
    (
        "connection",
        &[
            "destination",
            "encoding",
            "host_key",
            "login",
            "refusal",
            "rules",
        ],
    ),
    ("message", &[]),
    ("pace", &[]),
    ("users_agent", &["encoding", "message", "request"]),
    (
        "agent",
        &[
            "connection",
            "destination",
            "encoding",
            "message",
            "pace",
            "refusal",
            "request",
            "rules",
            "users_agent",
        ],
    ),
];
