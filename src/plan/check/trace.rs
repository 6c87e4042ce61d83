//! That no less is recorded, and denied, than an enforced layer demands.

use crate::config::source::{Layer, Sourced};
use crate::policy::Trace;
use crate::policy::narrowing::Single;
use crate::policy::stated::Stated;
use crate::policy::trace::Recorded;

/// Checks what is asked of a tracer against one enforced layer.
///
/// # Errors
/// The key that is wider than the layer's.
pub(super) fn check(trace: &Trace, layer: &Stated) -> Result<(), String> {
    let on = |asked: &Single<Recorded>| asked.get().is_some_and(|asked| asked.value.0);
    let redacted =
        |one: &Sourced<String>| trace.redact.iter().any(|other| other.value == one.value);
    let (mode, events, every) = (layer.trace.get(), layer.events.get(), layer.every.get());
    let wide = [
        (
            "trace.mode",
            mode.is_some_and(|most| trace.mode.value > most.value),
        ),
        (
            "trace.events",
            events.is_some_and(|least| !least.value.are_in(trace.events.value)),
        ),
        ("trace.missing", on(&layer.missing) && !trace.missing.value),
        (
            "trace.every",
            every.is_some_and(|most| u64::from(trace.every.value) > most.value.0),
        ),
        ("trace.redact", !layer.redact.entries().iter().all(redacted)),
        ("trace.enforce", on(&layer.enforce) && !trace.enforce.value),
        ("trace.audit", on(&layer.audit) && !trace.audit.value),
        (
            "trace.socket",
            layer.socket.get().is_some() && trace.socket.source.layer != Layer::SiteEnforced,
        ),
    ];
    match wide.into_iter().find(|(_, wide)| *wide) {
        None => Ok(()),
        Some((key, _)) => Err(format!("{key} is wider than the site's")),
    }
}
