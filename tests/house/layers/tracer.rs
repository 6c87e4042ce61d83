//! The crates of the tracer, and what they share.

use super::Row;

/// What secrets look like, as data.
pub(super) const SECRETS: &[Row] = &[("keys", &[]), ("names", &[])];

/// The tracer: kernel and trails know nothing of each other, and the service has both.
pub(super) const TRACER: &[Row] = &[
    ("sys", &[]),
    ("cli", &[]),
    ("kernel", &["sys"]),
    ("trail", &["sys"]),
    ("logging", &[]),
    ("service", &["kernel", "logging", "sys", "trail"]),
    (
        "main",
        &["cli", "kernel", "logging", "service", "sys", "trail"],
    ),
];

/// What verifies marks of jobs.
pub(super) const ATTEST: &[Row] = &[
    ("cli", &[]),
    ("keys", &[]),
    ("verify", &["keys"]),
    ("main", &["cli", "keys", "verify"]),
];

/// What shows trails: live, as a report, or of one command.
pub(super) const TRAIL: &[Row] = &[
    ("text", &[]),
    ("clock", &[]),
    ("sensitive", &[]),
    ("fault", &["text"]),
    // The conversation with the tracer.
    ("names", &[]),
    ("link", &["fault", "names", "text"]),
    // What was read so far, counted.
    ("model", &["sensitive"]),
    ("line", &["clock", "model", "text"]),
    (
        "report",
        &["clock", "fault", "link", "model", "sensitive", "text"],
    ),
    (
        "trace",
        &["fault", "line", "link", "model", "report", "text"],
    ),
    (
        "watch",
        &[
            "clock", "fault", "line", "link", "model", "names", "report", "text",
        ],
    ),
    (
        "main",
        &[
            "clock",
            "fault",
            "line",
            "link",
            "model",
            "report",
            "sensitive",
            "text",
            "trace",
            "watch",
        ],
    ),
];
