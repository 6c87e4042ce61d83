//! `agent-sandbox watch`: records as they come, on a terminal.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: the terminal, the clock, signals, and variables that say how to show things"
)]

pub mod app;
pub mod copy;
pub mod screen;
pub mod stream;
pub mod view;

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent_sandbox_events::ask::Ask;
use agent_sandbox_events::client::Unanswered;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::fault::Fault;
use crate::link::{Link, Meant, POLL, Reading};
use crate::report::{Summary, markdown};
use app::{Action, App};
use screen::Screen;

/// Not drawn more often: faster than this nobody reads.
const FRAME: Duration = Duration::from_millis(100);
/// Drawn at least so often, for rates fall when nothing comes.
const IDLE: Duration = Duration::from_millis(500);
/// How long until a tracer that is away is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// Batches of records that are taken before keys are looked at again: some milliseconds' worth.
const BATCHES: usize = 8;

/// Shows records until the user ends it.
///
/// # Errors
/// The tracer cannot be asked, or there is no terminal.
pub fn watch(ask: &Ask, word: Option<&str>) -> Result<u8, Fault> {
    let link = Link::of(ask);
    if ask.json {
        return stream::stream(&link, &link.which(word, None)?, ask.quiet);
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(
            Fault::new("`agent-sandbox watch` needs a terminal for input and output").hint(
                "`agent-sandbox watch --json` streams records, `agent-sandbox report` sums them up",
            ),
        );
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if variable("TERM").is_none_or(|term| term == "dumb") {
        return Err(
            Fault::new("`agent-sandbox watch` needs a terminal that can move its cursor: TERM is not set, or `dumb`")
                .hint("`agent-sandbox report` prints text"),
        );
    }
    // https://no-color.org
    let app = App::new(variable("NO_COLOR").is_none());
    let meant = link.which(word, None)?;
    let reading = link.read_meant(&meant)?;
    let failed = |error: io::Error| Fault::new(format!("cannot use the terminal: {error}"));
    let signals = signals().map_err(|error| failed(error.into()))?;
    let screen = Screen::enter().map_err(failed)?;
    let watched = Watched {
        link,
        meant,
        reading: Some(reading),
        more: true,
        tried: Instant::now(),
        app,
        state: ask.state.as_ref().map(PathBuf::from),
    };
    run(watched, screen, &signals).map_err(failed)
}

/// What ends a view by a signal, and what continues it.
fn signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGCONT,
    ] {
        set.add(signal);
    }
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

struct Watched {
    link: Link,
    meant: Meant,
    reading: Option<Reading>,
    /// Whether there may be more to take.
    more: bool,
    /// When the tracer was asked last.
    tried: Instant,
    app: App,
    state: Option<PathBuf>,
}

fn run(mut watched: Watched, mut screen: Screen, signals: &SignalFd) -> io::Result<u8> {
    let mut drawn: Option<Instant> = None;
    let mut dirty = true;
    loop {
        let since = drawn.map_or(IDLE, |drawn| drawn.elapsed());
        if since >= IDLE || dirty && since >= FRAME {
            let now = now();
            let app = &mut watched.app;
            screen.terminal.draw(|frame| view::draw(frame, app, now))?;
            drawn = Some(Instant::now());
            dirty = false;
        }
        let since = drawn.map_or(Duration::ZERO, |drawn| drawn.elapsed());
        let next = if dirty { FRAME } else { IDLE };
        // What was not taken for the keys' sake is taken at once.
        let longest = match watched.more {
            true => Duration::ZERO,
            false => next.saturating_sub(since).min(POLL),
        };
        let keys = wait(signals, longest)?;
        if let Some(signal) = signalled(signals) {
            match signal {
                Signal::SIGCONT => {
                    screen.return_to()?;
                    drawn = None;
                }
                signal => {
                    drop(screen);
                    return Ok(128 + u8::try_from(signal as i32).unwrap_or(0));
                }
            }
        }
        dirty |= watched.receive();
        watched.reconnect();
        // Resizing wakes by a signal and not by input, so it is always asked.
        if keys || event::poll(Duration::ZERO)? {
            while event::poll(Duration::ZERO)? {
                let action = match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => watched.app.key(key),
                    _ => Action::None,
                };
                match action {
                    Action::None => {}
                    Action::Quit => return Ok(0),
                    Action::Copy => watched.copy(),
                    Action::Suspend => {
                        screen.leave();
                        raise(Signal::SIGTSTP)?;
                        screen.return_to()?;
                    }
                }
            }
            drawn = None;
        }
    }
}

/// Waits for keys and a signal; whether there are keys.
fn wait(signals: &SignalFd, longest: Duration) -> io::Result<bool> {
    let input = io::stdin();
    let mut all = [
        PollFd::new(input.as_fd(), PollFlags::POLLIN),
        PollFd::new(signals.as_fd(), PollFlags::POLLIN),
    ];
    let timeout = PollTimeout::try_from(longest).unwrap_or(PollTimeout::ZERO);
    match poll(&mut all, timeout) {
        // The window was resized.
        Err(Errno::EINTR) => return Ok(false),
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    let events = all[0].revents().unwrap_or(PollFlags::empty());
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    if events.intersects(gone) && !events.contains(PollFlags::POLLIN) {
        return Err(io::Error::other("it is gone"));
    }
    Ok(!events.is_empty())
}

fn signalled(signals: &SignalFd) -> Option<Signal> {
    let info = signals.read_signal().ok().flatten()?;
    Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

impl Watched {
    /// Takes what is there, but not for so long that keys would wait. Whether there was anything.
    fn receive(&mut self) -> bool {
        self.more = false;
        for batch in 0..BATCHES {
            let Some(reading) = &mut self.reading else {
                return batch > 0;
            };
            match reading.follow() {
                Ok(records) if records.is_empty() => return batch > 0,
                Ok(records) => {
                    self.app.live.unreadable = reading.unreadable();
                    for (record, _) in &records {
                        self.app.take(record);
                    }
                    if let Some(fault) = reading.several(&self.meant) {
                        let fault = fault.to_string();
                        let line = fault.lines().next().unwrap_or_default();
                        self.app.live.trouble = Some(line.to_owned());
                    }
                }
                Err(Unanswered::Refused { why, .. }) => {
                    self.away(&format!("the tracer refuses: {why}"));
                }
                Err(_) => self.away("the tracer is away"),
            }
        }
        self.more = true;
        true
    }

    fn away(&mut self, why: &str) {
        self.reading = None;
        self.tried = Instant::now();
        self.app.live.trouble = Some(why.to_owned());
    }

    /// Asks a tracer that was away again, and reads everything once more.
    fn reconnect(&mut self) {
        if self.reading.is_some() || self.tried.elapsed() < AGAIN {
            return;
        }
        self.tried = Instant::now();
        if let Ok(reading) = self.link.read_meant(&self.meant) {
            self.reading = Some(reading);
            self.app.forget();
        }
    }

    fn copy(&mut self) {
        let live = self.app.shown();
        let text = markdown::markdown(&Summary::new(&live.model, live.unreadable));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time since 1970"
        )]
        let second = now() as u64;
        self.app.message = Some(copy::copy(&text, self.state.as_deref(), second));
    }
}
