//! The node's tracer, against what the policy asks of it.

use agent_sandbox_events::protocol::Status as Says;

use super::super::facts::{Answer, Facts, Tracer};
use super::super::line::{Finding, Status};
use super::{ask, ways_out};
use crate::policy::TraceMode;

/// The object that sees less, as the tracer calls it.
const WEAKER: &str = "tracepoints";

pub(super) fn tracer(facts: &Facts) -> Option<Finding> {
    let tracer = facts.tracer.as_ref()?;
    let socket = tracer.socket.display();
    Some(match &tracer.answer {
        Answer::Unwanted => Finding::ok(format!("sessions are not traced: {}", tracer.rule)),
        Answer::Nothing => {
            let none = match facts.kernel.no_tracer {
                None => format!("none runs on this node (nobody listens at {socket})"),
                Some(why) => format!("none can run on this node ({why})"),
            };
            match (tracer.is_required(), facts.kernel.no_tracer) {
                (false, _) => Finding::ok(format!("{none}: sessions are not traced")),
                (true, None) => Finding::broken(
                    format!("{none}, and {} demands one", tracer.rule),
                    ask("systemctl enable --now agent-sandbox-tracer"),
                ),
                (true, Some(_)) => Finding::broken(
                    format!("{none}, and {} demands one", tracer.rule),
                    ask("use Linux 5.13 or newer with CONFIG_DEBUG_INFO_BTF"),
                ),
            }
        }
        Answer::Unfit(trouble) => {
            Finding::new(tracer.without(), &trouble.message, ways_out(trouble))
        }
        Answer::Answers { status, uid } => {
            let by = match uid {
                Some(0) => "root's".to_owned(),
                Some(uid) => format!("of uid {uid}"),
                None => "of an unknown user".to_owned(),
            };
            let found = format!(
                "agent-sandbox-tracer {}, {by}, at {socket}: {} on Linux {}; records in {}",
                status.version, status.object, status.kernel, status.records
            );
            match status.object == WEAKER {
                false => Finding::ok(found),
                true => Finding::degraded(
                    found,
                    ask(
                        "use a kernel that takes fentry and LSM programs (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS, \
                         CONFIG_BPF_LSM): these records are weaker",
                    ),
                ),
            }
        }
    })
}

/// What cannot be seen here.
pub(super) fn blind(facts: &Facts) -> Option<Finding> {
    let status = says(facts)?;
    (!status.blind.is_empty()).then(|| Finding::ok(status.blind.join("; ")))
}

/// Whether the second layer can be had, if the policy asks for one.
pub(super) fn layer(facts: &Facts) -> Option<Finding> {
    let tracer = facts.tracer.as_ref()?;
    let rule = tracer.layer.as_ref()?;
    let enforces = match &tracer.answer {
        Answer::Unwanted => return None,
        Answer::Answers { status, .. } => status.enforces,
        Answer::Nothing | Answer::Unfit(_) => false,
    };
    if enforces {
        return Some(Finding::ok(format!(
            "holds here, which was tried; {rule} asks for it"
        )));
    }
    Some(Finding::new(
        tracer.without(),
        format!("cannot be had here; {rule} asks for it"),
        ask(
            "run agent-sandbox-tracer on a kernel that takes LSM programs (CONFIG_BPF_LSM, `bpf` in lsm= of its command line)",
        ),
    ))
}

/// What was lost, and what goes wrong.
pub(super) fn losses(facts: &Facts) -> Option<Finding> {
    let status = says(facts)?;
    let mut found = status.trouble.clone();
    if status.lost > 0 {
        found.push(format!(
            "{} of {} events since it started were lost for lack of room",
            status.lost,
            status.lost.saturating_add(status.events)
        ));
    }
    (!found.is_empty()).then(|| {
        Finding::degraded(
            found.join("; "),
            ask(
                "see ring_bytes and the directory of the records in /etc/agent-sandbox/tracer.toml",
            ),
        )
    })
}

/// Why nothing starts, if the policy demands what cannot be had.
pub(super) fn in_the_way(facts: &Facts) -> Option<String> {
    let demanded = facts.tracer.as_ref().filter(|tracer| tracer.is_required());
    let broken = |finding: Finding| (finding.status == Status::Broken).then_some(finding.found);
    demanded?;
    let lines = [tracer(facts), layer(facts)];
    lines.into_iter().flatten().find_map(broken)
}

fn says(facts: &Facts) -> Option<&Says> {
    match &facts.tracer.as_ref()?.answer {
        Answer::Answers { status, .. } => Some(status),
        _ => None,
    }
}

impl Tracer {
    fn is_required(&self) -> bool {
        self.mode == TraceMode::Required
    }

    /// How it stands that it is of no use.
    fn without(&self) -> Status {
        match self.is_required() {
            true => Status::Broken,
            false => Status::Degraded,
        }
    }
}
