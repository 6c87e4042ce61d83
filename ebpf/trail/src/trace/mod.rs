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
use agent_sandbox_events::record::What;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::fault::{FAILED, Fault};
use crate::link::{Link, Reading};
use crate::model::{Model, TableLimits};
use crate::report::{Summary, text, write};
use crate::text::counted;
use held::Held;
use output::Output;

/// How long the last records may take after the end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a process that is no child still runs, and whether the trail has more.
const LOOK: Duration = Duration::from_millis(200);
/// The same at the end, for which people wait.
const SOON: Duration = Duration::from_millis(20);
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
        .and_then(|id| Ok((id, link.read(Which::Trace(id))?)));
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
        id,
        connection,
        reading,
        gone: false,
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
    id: u32,
    connection: Connection,
    reading: Reading,
    /// The tracer has ended.
    gone: bool,
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
        let mut all = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
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
        while !self.gone {
            match self.reading.follow() {
                Ok(records) if records.is_empty() => break,
                Ok(records) => {
                    for (record, line) in &records {
                        self.ended |= matches!(record.what, What::End(_));
                        self.model.take(record);
                        self.output.record(record, line);
                    }
                }
                Err(_) => {
                    self.gone = true;
                    if !self.ended {
                        self.output
                            .note("the tracer has ended; what follows is not traced");
                    }
                }
            }
        }
        self.output.flush();
    }

    /// Ends the trace, and shows what was not shown yet.
    fn drain(&mut self) {
        // A tracer that is gone has nothing to end.
        let _ = self.connection.ask(&Request::End);
        let deadline = Instant::now() + PATIENCE;
        self.receive();
        while !self.ended && !self.gone && Instant::now() < deadline {
            self.wait(SOON);
            self.receive();
        }
    }

    fn close(&mut self, ask: &Ask) {
        let id = self.id;
        let summary = Summary::new(&self.model, self.reading.unreadable());
        if self.output.report {
            let text = match ask.json {
                true => write::json(&summary),
                false => text::text(&summary),
            };
            self.output.write(&text);
        } else if !ask.quiet && !ask.json {
            let unseen = &summary.unseen;
            let mut line = format!("{} lost", counted(unseen.lost, "event", "events"));
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
