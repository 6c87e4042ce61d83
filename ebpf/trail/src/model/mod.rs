//! What is known of trails from their records: pure, the same records always give the same. Both the live
//! view and the report are drawn from it.

mod counts;
pub mod rates;
pub mod table;
pub mod trails;

use agent_sandbox_events::record::{Exec, Open, Operation, Peer, Record, Verdict, What};

use crate::sensitive::{self, Kind};
pub use counts::{Counts, Way};

use rates::Rates;
use table::{Bounds, Key, Row, Table};
use trails::Trails;

/// How much is held.
#[derive(Clone, Copy, Debug)]
pub struct TableLimits {
    /// Of each table.
    pub table: Bounds,
    /// Trails: a session's jobs and steps, on all nodes.
    pub trails: usize,
}

impl TableLimits {
    /// Of what runs beside somebody's work for days: some 20 MB at most, in eight tables.
    pub const WATCH: TableLimits = TableLimits {
        table: Bounds {
            rows: 2000,
            bytes: 2 << 20,
        },
        trails: 2000,
    };
    /// Of what runs once and should name everything.
    pub const REPORT: TableLimits = TableLimits {
        table: Bounds {
            rows: 100_000,
            bytes: 64 << 20,
        },
        trails: 20_000,
    };
}

/// A program with arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// The program.
    pub path: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Key for Call {
    fn bytes(&self) -> usize {
        // A vector's element is three words beside its text.
        let arguments = self.arguments.iter().map(|word| word.len() + 24);
        self.path.len() + arguments.sum::<usize>()
    }
}

/// A file that was opened, or was tried.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Opens that were let through, by what they may do.
    pub read: u64,
    /// Write, create, truncate, append.
    pub written: u64,
    /// As a directory.
    pub listed: u64,
    /// For nothing of these: execute, or its path alone.
    pub touched: u64,
    /// All opens.
    pub counts: Counts,
}

impl Row for File {
    fn weight(&self) -> u64 {
        self.counts.all()
    }
}

/// What was denied or would be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// `open`, `exec`, `connect`, `listen` or an operation's name.
    pub what: String,
    /// The path, the address, or what the operation was about.
    pub on: String,
    /// Who denied.
    pub by: Option<String>,
    /// The error.
    pub error: Option<String>,
    /// It was let through, and would be denied.
    pub would: bool,
    /// The policy hides it.
    pub hidden: bool,
}

impl Key for Refused {
    fn bytes(&self) -> usize {
        self.what.len() + self.on.len() + 64
    }
}

/// How often it was.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    /// So often.
    pub count: u64,
    /// What the path holds.
    pub sensitive: Option<Kind>,
    /// The policy hides it.
    pub hidden: bool,
    /// The thread that tried last.
    pub comm: String,
}

impl Row for Refusals {
    /// What somebody wanted with a key, or with what is hidden, is kept whatever else happens.
    fn weight(&self) -> u64 {
        const SENSITIVE: u64 = 1 << 48;
        let more = if self.sensitive.is_some() || self.hidden {
            SENSITIVE
        } else {
            0
        };
        self.count.min(SENSITIVE - 1) + more
    }
}

/// An address, of the other side or of one's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// `inet`, `unix` …
    pub family: String,
    /// `stream`, `dgram` …
    pub kind: String,
    /// `127.0.0.1:80`.
    pub address: String,
    /// The host for which it stands in a filtered network.
    pub host: Option<String>,
}

impl Key for Address {
    fn bytes(&self) -> usize {
        let host = self.host.as_ref().map_or(0, String::len);
        self.family.len() + self.kind.len() + self.address.len() + host + 72
    }
}

/// An operation that matters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Act {
    /// Its name.
    pub operation: String,
    /// What it was about.
    pub about: String,
}

impl Key for Act {
    fn bytes(&self) -> usize {
        self.operation.len() + self.about.len() + 48
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Model {
    /// How everything went.
    pub counts: Counts,
    /// The same of the last seconds.
    pub rates: Rates,
    /// Records of each kind: fork, exec, exit, open, connect, listen, operation.
    pub kinds: [u64; 7],
    /// Trails, with what they cannot see and have lost.
    pub trails: Trails,
    /// Programs that were started, or not.
    pub programs: Table<Call, Counts>,
    /// Files.
    pub files: Table<String, File>,
    /// What was denied or would be.
    pub refused: Table<Refused, Refusals>,
    /// Connections.
    pub connections: Table<Address, Counts>,
    /// Where somebody listens.
    pub listens: Table<Address, Counts>,
    /// Operations.
    pub operations: Table<Act, Counts>,
    /// Events whose record is weaker than others, by the word for it.
    pub weak: Table<String, Counts>,
    /// Events that a kernel worker did for its process.
    pub workers: u64,
}

impl Model {
    /// Of no record.
    #[must_use]
    pub fn new(limits: TableLimits) -> Self {
        Self {
            counts: Counts::default(),
            rates: Rates::default(),
            kinds: [0; 7],
            trails: Trails::new(limits.trails),
            programs: Table::new(limits.table),
            files: Table::new(limits.table),
            refused: Table::new(limits.table),
            connections: Table::new(limits.table),
            listens: Table::new(limits.table),
            operations: Table::new(limits.table),
            weak: Table::new(limits.table),
            workers: 0,
        }
    }

    /// Takes a record.
    pub fn take(&mut self, record: &Record) {
        self.trails.take(record);
        let count = verdict(&record.what).map_or(1, |verdict| verdict.count);
        if let Some(kind) = kind(&record.what) {
            self.kinds[kind] = self.kinds[kind].saturating_add(count);
        }
        match &record.what {
            What::Exec(exec) => self.exec(exec),
            What::Open(open) => self.open(open),
            What::Connect(peer) => self.peer("connect", peer),
            What::Listen(peer) => self.peer("listen", peer),
            What::Operation(operation) => self.operation(operation),
            _ => {}
        }
        if let Some(verdict) = verdict(&record.what) {
            self.counts.add(verdict);
            self.rates.add(record.time, verdict);
            for word in &verdict.weak {
                self.weak.with(word.clone(), |row| row.add(verdict));
            }
        }
        if worker(&record.what) {
            self.workers = self.workers.saturating_add(count);
        }
    }

    fn exec(&mut self, exec: &Exec) {
        let call = Call {
            path: exec.path.clone(),
            arguments: exec.arguments.clone(),
        };
        self.programs.with(call, |row| row.add(&exec.verdict));
        self.refuse("exec", &exec.path, &exec.actor.comm, &exec.verdict, false);
    }

    fn open(&mut self, open: &Open) {
        let has = |names: &[&str]| {
            open.access
                .iter()
                .any(|word| names.contains(&word.as_str()))
        };
        let verdict = &open.verdict;
        let through = matches!(Way::of(verdict), Way::Allowed | Way::WouldDeny);
        self.files.with(open.path.clone(), |row| {
            row.counts.add(verdict);
            if !through {
                return;
            }
            let mut add = |field: fn(&mut File) -> &mut u64| {
                let field = field(row);
                *field = field.saturating_add(verdict.count);
            };
            let written = has(&["write", "create", "truncate", "append"]);
            let listed = has(&["directory"]);
            let read = has(&["read"]) && !listed;
            if written {
                add(|row| &mut row.written);
            }
            if listed {
                add(|row| &mut row.listed);
            }
            if read {
                add(|row| &mut row.read);
            }
            if !written && !listed && !read {
                add(|row| &mut row.touched);
            }
        });
        self.refuse("open", &open.path, &open.actor.comm, verdict, open.hidden);
    }

    fn peer(&mut self, what: &str, peer: &Peer) {
        let address = Address {
            family: peer.family.clone(),
            kind: peer.kind.clone(),
            address: peer.address.clone(),
            host: peer.host.clone(),
        };
        let table = match what {
            "listen" => &mut self.listens,
            _ => &mut self.connections,
        };
        table.with(address, |row| row.add(&peer.verdict));
        let place = place(&peer.address, peer.host.as_deref());
        self.refuse(what, &place, &peer.actor.comm, &peer.verdict, false);
    }

    fn operation(&mut self, operation: &Operation) {
        let act = Act {
            operation: operation.operation.clone(),
            about: about(operation),
        };
        let on = match &operation.path {
            Some(path) if operation.detail.is_empty() && operation.other.is_none() => path.clone(),
            _ => act.about.clone(),
        };
        self.operations.with(act, |row| row.add(&operation.verdict));
        self.refuse(
            &operation.operation,
            &on,
            &operation.actor.comm,
            &operation.verdict,
            false,
        );
    }

    /// What is hidden does not exist inside: an attempt on it fails, and nobody denies it.
    fn refuse(&mut self, what: &str, on: &str, comm: &str, verdict: &Verdict, hidden: bool) {
        let would = match Way::of(verdict) {
            Way::Denied => false,
            Way::Failed if hidden => false,
            Way::WouldDeny => true,
            Way::Allowed | Way::Failed | Way::NotRun => return,
        };
        let key = Refused {
            what: what.to_owned(),
            on: on.to_owned(),
            by: verdict.by.clone(),
            error: verdict.error.clone(),
            would,
            hidden,
        };
        self.refused.with(key, |row| {
            if row.count == 0 {
                row.sensitive = sensitive::kind(on);
                row.hidden = hidden;
            }
            row.count = row.count.saturating_add(verdict.count);
            comm.clone_into(&mut row.comm);
        });
    }
}

/// An address, behind the host for which it stands if that is known.
#[must_use]
pub fn place(address: &str, host: Option<&str>) -> String {
    match host {
        Some(host) => format!("{host} = {address}"),
        None => address.to_owned(),
    }
}

/// What an operation was about, in one text.
#[must_use]
pub fn about(operation: &Operation) -> String {
    let mut parts: Vec<&str> = Vec::new();
    parts.extend(operation.path.as_deref());
    if operation.other.is_some() {
        parts.push("->");
        parts.extend(operation.other.as_deref());
    }
    if !operation.detail.is_empty() {
        parts.push(&operation.detail);
    }
    parts.join(" ")
}

/// How a record's event went, if it is one that goes some way.
#[must_use]
pub fn verdict(what: &What) -> Option<&Verdict> {
    match what {
        What::Exec(exec) => Some(&exec.verdict),
        What::Open(open) => Some(&open.verdict),
        What::Connect(peer) | What::Listen(peer) => Some(&peer.verdict),
        What::Operation(operation) => Some(&operation.verdict),
        _ => None,
    }
}

/// The index of a record's kind, as `raw::Kind` numbers it.
fn kind(what: &What) -> Option<usize> {
    match what {
        What::Fork(_) => Some(0),
        What::Exec(_) => Some(1),
        What::Exit(_) => Some(2),
        What::Open(_) => Some(3),
        What::Connect(_) => Some(4),
        What::Listen(_) => Some(5),
        What::Operation(_) => Some(6),
        _ => None,
    }
}

/// Whether a kernel worker did it for its process.
fn worker(what: &What) -> bool {
    match what {
        What::Fork(actor) => actor.worker,
        What::Exec(exec) => exec.actor.worker,
        What::Exit(exit) => exit.actor.worker,
        What::Open(open) => open.actor.worker,
        What::Connect(peer) | What::Listen(peer) => peer.actor.worker,
        What::Operation(operation) => operation.actor.worker,
        _ => false,
    }
}
