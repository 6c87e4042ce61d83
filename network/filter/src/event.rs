//! What happened, for the audit record and the session's terminal.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};

use agent_sandbox_hosts::{Refusal, Rule};

/// Different events of one session: what is inside chooses the names, and must not fill the disk.
const MOST_EVENTS: usize = 4096;

/// A host that was reached or not. Each is told once a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// The host: a name of plain characters, or an address.
    pub host: String,
    /// The port; none: its name was looked up.
    pub port: Option<u16>,
    /// The address by which programs inside know the name, if it was looked up.
    pub inside: Option<Ipv4Addr>,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of a connection or a lookup.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It was reached.
    Reached {
        /// At this address.
        address: IpAddr,
        /// By this rule, as it is written, with the set that has it.
        rule: String,
        /// Where the rule stands.
        origin: String,
    },
    /// The value of a credential was sent to it.
    Exchanged {
        /// The credential's name.
        credential: String,
    },
    /// It was refused.
    Refused {
        /// Why, in one line that names host, rule and file.
        why: String,
        /// The change that would open it.
        hint: Option<String>,
    },
    /// It was allowed, and could not be reached.
    Failed {
        /// Why, in one line.
        why: String,
    },
    /// There were more different events than are told. This is the last one.
    NoMore,
}

/// Gets each event, on the filter's thread, before who is refused is answered: it must not wait for long.
pub type Sink = Box<dyn Fn(Event) + Send + Sync>;

/// Tells each event once.
pub(crate) struct Events {
    sink: Sink,
    /// What was reached, and all else: a flood of names that are refused takes no room of what was reached.
    told: Mutex<[HashSet<Event>; 2]>,
}

impl Events {
    pub(crate) fn new(sink: Sink) -> Self {
        Self {
            sink,
            told: Mutex::default(),
        }
    }

    pub(crate) fn tell(&self, mut event: Event) {
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = &mut all[usize::from(!matches!(event.verdict, Verdict::Reached { .. }))];
        if told.len() > MOST_EVENTS || told.contains(&event) {
            return;
        }
        if told.len() == MOST_EVENTS {
            event.verdict = Verdict::NoMore;
        }
        told.insert(event.clone());
        drop(all);
        (self.sink)(event);
    }
}

impl Event {
    pub(crate) fn refused(refusal: &Refusal) -> Self {
        Self {
            host: refusal.host.to_string(),
            port: refusal.port,
            inside: None,
            verdict: Verdict::Refused {
                why: refusal.to_string(),
                hint: refusal.hint(),
            },
        }
    }

    pub(crate) fn reached(host: String, port: u16, address: IpAddr, by: &Rule) -> Self {
        let verdict = Verdict::Reached {
            address,
            rule: format!("{}{}", by.rule, by.of_set()),
            origin: by.origin.clone(),
        };
        Self {
            host,
            port: Some(port),
            inside: None,
            verdict,
        }
    }

    /// In one line, for whoever is inside.
    pub(crate) fn line(&self) -> String {
        match &self.verdict {
            Verdict::Refused {
                why,
                hint: Some(hint),
            } => format!("agent-sandbox: {why}; to open it, {hint}"),
            Verdict::Refused { why, hint: None } | Verdict::Failed { why } => {
                format!("agent-sandbox: {why}")
            }
            Verdict::Reached { .. } | Verdict::Exchanged { .. } | Verdict::NoMore => String::new(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn each_is_told_once_and_they_are_bounded() {
        let got = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&got);
        let events = Events::new(Box::new(move |event| sink.lock().unwrap().push(event)));
        for _ in 0..2 {
            for port in 0..u16::try_from(MOST_EVENTS).unwrap() + 10 {
                let verdict = Verdict::Failed {
                    why: "test".to_owned(),
                };
                events.tell(Event {
                    host: "a".to_owned(),
                    port: Some(port),
                    inside: None,
                    verdict,
                });
            }
        }
        let got = got.lock().unwrap();
        assert_eq!(got.len(), MOST_EVENTS + 1);
        assert_eq!(got.last().unwrap().verdict, Verdict::NoMore);
    }
}
