//! The node's tracer: whether one answers, and what it says of itself.

use super::super::facts::{Answer, Tracer, Trouble};
use crate::launch::Prepared;
use crate::launch::tracer;
use crate::launch::tracer::TracerState;
use crate::policy::values::Stricter;

pub(super) fn look(prepared: &mut Prepared) -> Tracer {
    let trace = &prepared.policy.trace;
    let mode = &trace.mode;
    let layer = match (trace.enforce.value, trace.audit.value) {
        (true, _) => Some(format!("trace.enforce ({})", trace.enforce.source)),
        (false, true) => Some(format!("trace.audit ({})", trace.audit.source)),
        (false, false) => None,
    };
    let unfit = |trouble: tracer::Trouble| {
        Answer::Unfit(Trouble {
            message: trouble.what,
            hints: trouble.hint.into_iter().collect(),
        })
    };
    let answer = match &prepared.tracer {
        TracerState::Unwanted => Answer::Unwanted,
        TracerState::Nothing => Answer::Nothing,
        TracerState::Unfit(trouble) => unfit(trouble.clone()),
        TracerState::Listens(connection) => match tracer::status(connection) {
            Err(trouble) => unfit(trouble),
            Ok(status) => Answer::Answers {
                status: Box::new(status),
                uid: connection.peer().ok(),
            },
        },
    };
    // It is not needed any more, and the tracer has room for a few of a user's.
    prepared.tracer = TracerState::Unwanted;
    Tracer {
        mode: mode.value,
        rule: format!("trace.mode `{}` ({})", mode.value.shown(), mode.source),
        layer,
        socket: trace.socket.value.clone(),
        answer,
    }
}
