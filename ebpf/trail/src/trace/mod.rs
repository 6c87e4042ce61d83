//! `agent-sandbox trace`: any process tree without a jail, as `strace -f` shows it.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: the clock, signals, and the file that was asked for"
)]

pub mod held;
mod output;
pub mod target;

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use agent_sandbox_events::ask::{Ask, Target, Trace};
use agent_sandbox_events::client::Connection;
use agent_sandbox_events::protocol::{
    Enforce, Lifetime, Register, Request, Response, Scope, VERSION, Which,
};
use agent_sandbox_events::record::{Record, What};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::fault::{FAILED, Fault};
use crate::link::{Came, Link, Reading};
use crate::model::{Model, TableLimits};
use crate::report::{Summary, text, write};
use crate::text::counted;
use held::Held;
use output::Output;

/// How long the last records may take after the end, before the trail is read again instead.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long until records that were missed are read again: each time the whole trail, so twice as long each time.
const BEHIND: Duration = Duration::from_millis(500);
/// Not longer than this.
const LONGEST_BEHIND: Duration = Duration::from_secs(60);
/// How often it is looked whether a process that is no child still runs.
const LOOK: Duration = Duration::from_millis(200);
/// Signals that another process sends to this one, and that are meant for the command.
const FORWARDED: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
];

/// Traces, and shows it; the exit code is the command's.
///
/// # Errors
/// Nothing was traced.
pub fn trace(ask: &Ask, trace: &Trace, words: &[OsString]) -> Result<u8, Fault> {
    let link = Link::new(&ask.socket);
    let program = match (&trace.target, words.first()) {
        (Target::Command, Some(name)) => Some(target::program(name)?),
        (Target::Command, None) => return Err(Fault::new("`agent-sandbox trace` needs a command")),
        _ => None,
    };
    // Before anything is started: without a tracer nothing is.
    let connection = link.connect()?;
    let output = Output::new(trace, ask)?;
    let held = program
        .map(|program| Held::new(&program, words))
        .transpose()
        .map_err(|error| Fault::new(format!("cannot start a process: {error}")))?;
    // Not before: what is blocked here would be blocked in the command.
    let signals = signals().map_err(|error| Fault::new(format!("cannot take signals: {error}")))?;
    let begun = scope(trace, held.as_ref())
        .and_then(|scope| begin(&link, &connection, trace, scope, words))
        .and_then(|id| Ok((id, link.read(Which::Trace(id), true)?)));
    let (id, reading) = match begun {
        Ok(begun) => begun,
        Err(fault) => {
            if let Some(held) = held {
                held.give_up();
            }
            return Err(fault);
        }
    };
    let child = held
        .map(Held::go)
        .transpose()
        .map_err(|error| Fault::new(format!("cannot start the command: {error}")))?;
    let watched = match (child, &trace.target) {
        (Some(child), _) => Watched::Child(child),
        (None, Target::Process(pid)) => Watched::Process(*pid),
        (None, _) => Watched::UntilSignal,
    };
    let mut run = Run {
        link,
        id,
        connection: Some(connection),
        reading: Some(reading),
        next: 1,
        behind: BEHIND,
        again: None,
        gone: false,
        unreadable: 0,
        signals,
        output,
        model: Model::new(match trace.report {
            true => TableLimits::REPORT,
            false => TableLimits::WATCH,
        }),
        ended: false,
    };
    let code = run.follow(watched);
    run.drain();
    run.close(ask);
    Ok(code)
}

fn scope(trace: &Trace, held: Option<&Held>) -> Result<Scope, Fault> {
    match &trace.target {
        Target::Command => Ok(Scope {
            process: held.map(|held| held.child.id()),
            descendants: false,
            cgroup: None,
        }),
        Target::Process(pid) => target::process(*pid),
        Target::Cgroup(path) => target::cgroup(Path::new(path)),
        Target::Job(number) => target::job(*number),
    }
}

/// Registers and begins; the trace's id.
fn begin(
    link: &Link,
    connection: &Connection,
    trace: &Trace,
    scope: Scope,
    words: &[OsString],
) -> Result<u32, Fault> {
    let register = Register {
        version: VERSION,
        session: None,
        job: match trace.target {
            Target::Job(number) => Some(number),
            _ => None,
        },
        step: None,
        command: words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        scope,
        events: trace.events.clone(),
        every: 1,
        missing: trace.missing,
        hidden: Vec::new(),
        redact: Vec::new(),
        enforce: Enforce::Off,
        no_internet: false,
        no_user_namespace: false,
        lifetime: Lifetime::Connection,
    };
    let ask = |request: &Request| connection.ask(request).map_err(|error| link.fault(error));
    let strange = || link.fault(agent_sandbox_events::client::Unanswered::Strange);
    let Response::Registered { trace: id, .. } = ask(&Request::Register(Box::new(register)))?
    else {
        return Err(strange());
    };
    match ask(&Request::Begin)? {
        Response::Done => Ok(id),
        _ => Err(strange()),
    }
}

/// All that may be meant for the command, and that its end sends.
fn signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    FORWARDED
        .into_iter()
        .chain([Signal::SIGCHLD])
        .for_each(|signal| set.add(signal));
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// Whose end ends the trace.
enum Watched {
    Child(Child),
    Process(u32),
    UntilSignal,
}

/// The end of a command, as shells tell it.
fn code(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => i32::from(FAILED),
    };
    u8::try_from(code).unwrap_or(FAILED)
}

struct Run {
    link: Link,
    id: u32,
    connection: Option<Connection>,
    reading: Option<Reading>,
    /// The number of the next record.
    next: u64,
    /// How long until missed records are read again, the next time.
    behind: Duration,
    /// When they are.
    again: Option<Instant>,
    /// The tracer has ended.
    gone: bool,
    /// Lines that were no records.
    unreadable: u64,
    signals: SignalFd,
    output: Output,
    model: Model,
    /// The record of the trace's end has come.
    ended: bool,
}

impl Run {
    /// Shows what happens until what is watched has ended; the exit code.
    fn follow(&mut self, mut watched: Watched) -> u8 {
        loop {
            self.wait(LOOK);
            self.receive();
            let told = self.signals_for(&watched);
            match &mut watched {
                Watched::Child(child) => match child.try_wait() {
                    Ok(None) => {}
                    Ok(Some(status)) => return code(status),
                    Err(_) => return FAILED,
                },
                Watched::Process(pid) if !told && !self.ended && target::runs(*pid) => {}
                Watched::UntilSignal if !told && !self.ended => {}
                Watched::Process(_) | Watched::UntilSignal => return 0,
            }
            if self.gone && !matches!(watched, Watched::Child(_)) {
                return FAILED;
            }
        }
    }

    fn wait(&self, longest: Duration) {
        let mut all = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        all.extend(
            self.reading
                .as_ref()
                .map(|reading| PollFd::new(reading.as_fd(), PollFlags::POLLIN)),
        );
        let timeout = PollTimeout::try_from(longest).unwrap_or(PollTimeout::ZERO);
        // An error is noticed by whoever reads.
        let _: Result<i32, Errno> = poll(&mut all, timeout);
    }

    /// Hands signals on; whether one came that ends a trace without a command.
    fn signals_for(&self, watched: &Watched) -> bool {
        let mut told = false;
        while let Ok(Some(info)) = self.signals.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            let Ok(signal) = Signal::try_from(number) else {
                continue;
            };
            if signal == Signal::SIGCHLD {
                continue;
            }
            told = true;
            let Watched::Child(child) = watched else {
                continue;
            };
            // What the terminal sends, it sends to the command as well (si_code SI_KERNEL, sigaction(2));
            // and what the command sends is not meant for itself.
            if info.ssi_code > 0 || info.ssi_pid == child.id() {
                continue;
            }
            if let Ok(pid) = i32::try_from(child.id()) {
                // It is waited for by nobody else, so the number is still its own.
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
        told
    }

    /// Takes and shows what is there.
    fn receive(&mut self) {
        if self.again.is_some_and(|again| again <= Instant::now()) {
            self.again = None;
            self.reading = self.link.read(Which::Trace(self.id), true).ok();
            self.gone = self.reading.is_none();
        }
        while let Some(reading) = &mut self.reading {
            if !reading.ready() {
                break;
            }
            match reading.take() {
                Ok(Came::Records(records)) => self.show(&records, false),
                // The next record shows that some are missing.
                Ok(Came::Dropped(_)) => {}
                Ok(Came::Done) | Err(_) => {
                    self.reading = None;
                    if !self.ended {
                        self.gone = true;
                        self.output
                            .note("the tracer has ended; what follows is not traced");
                    }
                }
            }
        }
        self.output.flush();
    }

    /// Shows records that were not shown yet. Where some are missing in front of them, the tracer had no room
    /// to keep them for this reader. They are in the trail, from which all is read again a little later: so
    /// nothing is left out, and nothing stands in the wrong place. `all`: there are no others.
    fn show(&mut self, records: &[(Record, String)], all: bool) {
        for (record, line) in records {
            if record.seq < self.next {
                continue;
            }
            if record.seq > self.next && !all {
                self.reading = None;
                self.again = Some(Instant::now() + self.behind);
                self.behind = (self.behind * 2).min(LONGEST_BEHIND);
                return;
            }
            self.next = record.seq.saturating_add(1);
            self.ended |= matches!(record.what, What::End(_));
            self.model.take(record);
            self.output.record(record, line);
        }
    }

    /// Ends the trace, and shows what was not shown yet.
    fn drain(&mut self) {
        if let Some(connection) = self.connection.take() {
            // A tracer that is gone has nothing to end.
            let _ = connection.ask(&Request::End);
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.ended && self.reading.is_some() && Instant::now() < deadline {
            self.wait(LOOK);
            self.receive();
        }
        if !self.ended
            && let Ok(mut trail) = self.link.read(Which::Trace(self.id), false)
        {
            while let Ok(Came::Records(records)) = trail.take() {
                self.show(&records, true);
            }
            self.unreadable = trail.unreadable;
        }
    }

    fn close(&mut self, ask: &Ask) {
        let id = self.id;
        let summary = Summary::new(&self.model, self.unreadable);
        if self.output.report {
            let text = match ask.json {
                true => write::json(&summary),
                false => text::text(&summary),
            };
            self.output.write(&text);
        } else if !ask.quiet && !ask.json {
            let unseen = &summary.unseen;
            let mut line = format!("{} lost", counted(unseen.lost, "event", "events"));
            if unseen.missed > 0 {
                line.push_str(&format!(
                    ", {} missed by this reader, which was too slow",
                    counted(unseen.missed, "record", "records")
                ));
            }
            if !unseen.blind.is_empty() {
                line.push_str(&format!(
                    "; what cannot be seen here: `agent-sandbox report trace:{id}`"
                ));
            }
            self.output.note(&line);
        }
        self.output.flush();
    }
}
