//! A report: what is known of trails, put in order, with what could not be seen. Pure; [`text`] and
//! [`markdown`] write it for people, and [`Summary`] is what `--json` prints.

pub mod directories;
pub mod markdown;
pub mod text;
pub mod write;

use agent_sandbox_events::ask::Untraced;
use agent_sandbox_events::raw::Kind;
use serde::Serialize;

use crate::model::table::Table;
use crate::model::trails::Seen;
use crate::model::{Address, Counts, Model, Refusals, Refused};
use crate::sensitive;

/// The version of the report's JSON: fields are added, never renamed or removed, within one.
pub const VERSION: u32 = 1;

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// [`VERSION`].
    pub version: u32,
    /// The trails that it is about: a session's, its jobs', their steps', on all their nodes.
    pub trails: Vec<OneTrail>,
    /// The time of the first record, in seconds since 1970.
    pub began: Option<f64>,
    /// The time of the last record.
    pub last: Option<f64>,
    /// Whether one of them goes on.
    pub live: bool,
    /// How everything went.
    pub verdicts: Ways,
    /// Events of each kind.
    pub events: Vec<Number>,
    /// Programs with arguments.
    pub programs: Vec<Program>,
    /// Files that were read.
    pub read: Vec<Named>,
    /// Files that were written, made or cut.
    pub written: Vec<Named>,
    /// Directories that were listed.
    pub listed: Vec<Named>,
    /// What was denied, and attempts on what is hidden, the most often first; what holds keys and the like and what is
    /// hidden before everything else.
    pub denied: Vec<Denied>,
    /// What would be denied if the trace enforced.
    pub would_be_denied: Vec<Denied>,
    /// Connections and messages to addresses.
    pub connections: Vec<Endpoint>,
    /// Where somebody listened.
    pub listens: Vec<Endpoint>,
    /// Operations that matter.
    pub operations: Vec<Operation>,
    /// What could not be seen.
    pub unseen: Unseen,
}

/// One trail.
#[derive(Clone, Debug, Serialize)]
pub struct OneTrail {
    /// The node.
    pub node: String,
    /// Real user id.
    pub uid: u32,
    /// The session.
    pub session: Option<String>,
    /// The job.
    pub job: Option<u32>,
    /// The step.
    pub step: Option<String>,
    /// The trace's id on that node.
    pub trace: u32,
    /// The time of its first record.
    pub began: f64,
    /// The time of its last record.
    pub last: f64,
    /// Records.
    pub records: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Why it ended; none: it goes on.
    pub ended: Option<String>,
    /// `trampolines` or `tracepoints`.
    pub object: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// `off`, `audit` or `on`.
    pub enforce: Option<String>,
    /// The command.
    pub command: Vec<String>,
}

/// How often something went which way.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ways {
    /// Allowed.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Failed for another reason.
    pub failed: u64,
    /// Allowed, and would be denied.
    pub would_deny: u64,
    /// Not run: somebody else than the kernel answered.
    pub not_run: u64,
}

impl From<&Counts> for Ways {
    fn from(counts: &Counts) -> Self {
        Ways {
            allowed: counts.allowed,
            denied: counts.denied,
            failed: counts.failed,
            would_deny: counts.would_deny,
            not_run: counts.not_run,
        }
    }
}

/// A name with a number.
#[derive(Clone, Debug, Serialize)]
pub struct Number {
    /// The name.
    pub name: String,
    /// So many.
    pub count: u64,
}

/// A program with arguments.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// The program.
    pub path: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How often.
    #[serde(flatten)]
    pub ways: Ways,
}

/// A path with a number.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    /// The path.
    pub path: String,
    /// So often.
    pub count: u64,
    /// What it holds: `key`, `token`, `credential`, `history`, `system`.
    pub sensitive: Option<&'static str>,
}

/// What was denied or would be.
#[derive(Clone, Debug, Serialize)]
pub struct Denied {
    /// `open`, `exec`, `connect`, `listen` or an operation's name.
    pub what: String,
    /// On what.
    pub on: String,
    /// Who denied.
    pub by: Option<String>,
    /// The error.
    pub error: Option<String>,
    /// So often.
    pub count: u64,
    /// What it holds.
    pub sensitive: Option<&'static str>,
    /// Whether the policy hides it: inside it does not exist, or is empty.
    pub hidden: bool,
    /// The name of the thread that tried last.
    pub comm: String,
}

/// The address of connections or listens, and how often they were made.
#[derive(Clone, Debug, Serialize)]
pub struct Endpoint {
    /// The address.
    pub address: String,
    /// The host for which it stands in a filtered network.
    pub host: Option<String>,
    /// Its family.
    pub family: String,
    /// The socket's type.
    pub socket: String,
    /// How often.
    #[serde(flatten)]
    pub ways: Ways,
}

/// An operation.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// Its name.
    pub operation: String,
    /// What it was about.
    pub about: String,
    /// How often.
    #[serde(flatten)]
    pub ways: Ways,
}

/// What could not be seen.
#[derive(Clone, Debug, Serialize)]
pub struct Unseen {
    /// Events that the kernel's side or the tracer lost.
    pub lost: u64,
    /// Why, and how many.
    pub reasons: Vec<Number>,
    /// Seconds for which tracers were away.
    pub away: f64,
    /// Steps that no tracer took.
    pub untraced: Vec<Untraced>,
    /// Records of more trails than there was room for.
    pub missed: u64,
    /// Lines that were no records.
    pub unreadable: u64,
    /// Records that were removed before, for lack of room.
    pub removed: u64,
    /// Every Nth of the allowed opens is recorded, if that is not each.
    pub every: Option<u32>,
    /// Opens that were left out for that.
    pub skipped: u64,
    /// Kinds of events that are not recorded.
    pub not_recorded: Vec<String>,
    /// Opens of what does not exist are not recorded.
    pub missing_left_out: bool,
    /// Events whose record is weaker than others, by the word for it.
    pub weak: Vec<Number>,
    /// Rows that there was no room for, in all tables.
    pub unnamed: u64,
    /// What a kernel cannot show, a sentence each.
    pub blind: Vec<Blind>,
}

/// A sentence about what cannot be seen.
#[derive(Clone, Debug, Serialize)]
pub struct Blind {
    /// The sentence.
    pub sentence: String,
    /// The nodes of which it holds; none: all.
    pub nodes: Vec<String>,
}

impl Summary {
    /// Of what is known. `unreadable` lines were no records.
    #[must_use]
    pub fn new(model: &Model, unreadable: u64) -> Self {
        let span = model.trails.span();
        let mut files = [Vec::new(), Vec::new(), Vec::new()];
        for (path, file) in model.files.iter() {
            for (list, count) in files.iter_mut().zip([file.read, file.written, file.listed]) {
                if count > 0 {
                    list.push(Named {
                        path: path.clone(),
                        count,
                        sensitive: sensitive::kind(path).map(sensitive::Kind::word),
                    });
                }
            }
        }
        let [read, written, listed] = files;
        let (would, denied): (Vec<_>, Vec<_>) = model
            .refused
            .heaviest()
            .into_iter()
            .partition(|(refused, _)| refused.would);
        Summary {
            version: VERSION,
            trails: model.trails.iter().map(one_trail).collect(),
            began: span.map(|(first, _)| first),
            last: span.map(|(_, last)| last),
            live: !model.trails.ended(),
            verdicts: Ways::from(&model.counts),
            events: Kind::ALL
                .into_iter()
                .zip(model.kinds)
                .map(|(kind, count)| number(kind.name(), count))
                .collect(),
            programs: programs(model),
            read,
            written,
            listed,
            denied: denied.into_iter().map(one_denied).collect(),
            would_be_denied: would.into_iter().map(one_denied).collect(),
            connections: endpoints(&model.connections),
            listens: endpoints(&model.listens),
            operations: model
                .operations
                .heaviest()
                .into_iter()
                .map(|(act, counts)| Operation {
                    operation: act.operation.clone(),
                    about: act.about.clone(),
                    ways: Ways::from(counts),
                })
                .collect(),
            unseen: Unseen::new(model, unreadable),
        }
    }
}

fn number(name: &str, count: u64) -> Number {
    Number {
        name: name.to_owned(),
        count,
    }
}

/// A trail as a report has it.
#[must_use]
pub fn one_trail(seen: &Seen) -> OneTrail {
    let header = seen.header.as_ref();
    OneTrail {
        node: seen.trail.node.clone(),
        uid: seen.trail.uid,
        session: seen.trail.session.clone(),
        job: seen.trail.job,
        step: seen.trail.step.clone(),
        trace: seen.trail.trace,
        began: seen.first,
        last: seen.last,
        records: seen.records,
        lost: seen.lost,
        ended: seen.ended.clone(),
        object: header.map(|header| header.object.clone()),
        kernel: header.map(|header| header.kernel.clone()),
        enforce: header.map(|header| header.enforce.clone()),
        command: header.map_or_else(Vec::new, |header| header.command.clone()),
    }
}

/// By program, the one that was started most often first; within it by arguments.
fn programs(model: &Model) -> Vec<Program> {
    let rows = model.programs.heaviest().into_iter();
    rows.map(|(call, counts)| Program {
        path: call.path.clone(),
        arguments: call.arguments.clone(),
        ways: Ways::from(counts),
    })
    .collect()
}

/// A denial as a report has it.
#[must_use]
pub fn one_denied((refused, row): (&Refused, &Refusals)) -> Denied {
    Denied {
        what: refused.what.clone(),
        on: refused.on.clone(),
        by: refused.by.clone(),
        error: refused.error.clone(),
        count: row.count,
        sensitive: row.sensitive.map(sensitive::Kind::word),
        hidden: refused.hidden,
        comm: row.comm.clone(),
    }
}

fn endpoints(table: &Table<Address, Counts>) -> Vec<Endpoint> {
    let rows = table.heaviest().into_iter();
    rows.map(|(address, counts)| Endpoint {
        address: address.address.clone(),
        host: address.host.clone(),
        family: address.family.clone(),
        socket: address.kind.clone(),
        ways: Ways::from(counts),
    })
    .collect()
}

impl Unseen {
    /// Of what is known.
    #[must_use]
    pub fn new(model: &Model, unreadable: u64) -> Self {
        let headers = || model.trails.iter().filter_map(|seen| seen.header.as_ref());
        let recorded = |kind: Kind| {
            headers().all(|header| header.events.iter().any(|name| name == kind.name()))
        };
        Unseen {
            lost: model.trails.lost(),
            reasons: model
                .trails
                .reasons()
                .into_iter()
                .map(|(why, count)| number(why, count))
                .collect(),
            away: model.trails.away(),
            untraced: Vec::new(),
            missed: model.trails.beyond,
            unreadable,
            removed: model.trails.gone(),
            every: headers()
                .map(|header| header.every)
                .max()
                .filter(|every| *every > 1),
            skipped: model.trails.skipped(),
            not_recorded: Kind::ALL
                .into_iter()
                .filter(|kind| !recorded(*kind))
                .map(|kind| kind.name().to_owned())
                .collect(),
            missing_left_out: headers().any(|header| !header.missing),
            weak: model
                .weak
                .heaviest()
                .into_iter()
                .map(|(word, counts)| number(word, counts.all()))
                .collect(),
            unnamed: [
                model.programs.forgotten,
                model.files.forgotten,
                model.refused.forgotten,
                model.connections.forgotten,
                model.listens.forgotten,
                model.operations.forgotten,
            ]
            .into_iter()
            .fold(0, u64::saturating_add),
            blind: model
                .trails
                .blind()
                .into_iter()
                .map(|(sentence, nodes)| Blind { sentence, nodes })
                .collect(),
        }
    }
}
