//! Jails of bubblewrap's, whose start and whose tasks the second layer denies something: what the plan hides is closed
//! from inside by whatever way it comes, and what the jail needs is not.

use crate::attempts::recorded;
use crate::trail::Trail;
use crate::{ended, on_each_with, reports, unless};

/// What comes of the probe's attempts in a session that enforces nothing, and in one that does.
const ATTEMPTS: &[(&str, &str, &str)] = &[
    ("in-open", "ok", "ok"),
    // Something else is mounted there.
    ("hidden", "ENOENT", "ENOENT"),
    // A process outside hands it over: no jail's mounts are asked.
    ("passed", "ok", "EACCES"),
    ("passed-reopen", "ok", "EACCES"),
];

#[test]
fn what_a_session_hides_is_denied_to_a_jail_of_bubblewraps_too() {
    on_each_with("bubblewrap", "sessions of bubblewrap's", |_, said| {
        let mut wrong = Vec::new();
        for (stage, enforced) in [("jail-open", false), ("jail-enforced", true)] {
            wrong.extend(ended(said, stage, 0, &["the end"]));
            let (results, complaints) = reports(said, stage);
            wrong.extend(complaints);
            for (name, open, closed) in ATTEMPTS {
                let wanted = if enforced { closed } else { open };
                let got = results.get(name).copied().unwrap_or("nothing");
                wrong.extend(unless(got == *wanted, || {
                    format!("{stage}: {name}: {got}, wanted {wanted}")
                }));
            }
            let (trail, complaints) = Trail::whole(said, &format!("{stage}-trail"));
            wrong.extend(complaints);
            let denied = recorded(&trail, "passed", "denied");
            wrong.extend(unless(denied == enforced, || {
                trail.lacks("passed", "denied")
            }));
        }
        wrong
    });
}

#[test]
fn what_bubblewrap_binds_elsewhere_is_denied() {
    on_each_with("bubblewrap", "bind mounts of bubblewrap's", |_, said| {
        // The exit code of the probe is the error: EPERM.
        let mut wrong = ended(said, "bound-audit", 0, &["trace: "]);
        wrong.extend(ended(said, "bound-enforce", 1, &["trace: "]));
        for (session, verdict) in [("bound-audit", "would_deny"), ("bound-enforce", "denied")] {
            let (trail, complaints) = Trail::of(said, session);
            wrong.extend(complaints);
            let found = recorded(&trail, "probe", verdict);
            wrong.extend(unless(found, || trail.lacks("probe", verdict)));
        }
        wrong
    });
}
