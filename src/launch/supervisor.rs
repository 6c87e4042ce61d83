//! Stands by a running jail: passes signals and job control on, and says how it ended.
//!
//! The launcher, bubblewrap and the command are in one process group, as a plain command would be
//! in it alone. Keys of the terminal (^C, ^\, ^Z, hang-up) reach the command from the kernel; the
//! launcher ignores these, and stops itself only when init says that the command has stopped, until
//! something is due.
//! Signals that other processes send to the launcher are handed to the command. In a job every
//! signal is: Slurm sends those that the user asks for.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, Shutdown, shutdown};
use nix::sys::timer::Timer;

use super::activity::{self, Signs};
use super::announcements::Announcements;
use super::cgroup::Group;
pub use super::company::Company;
use super::deadline::Due;
use super::finish;
pub use super::jail::Jail;
use super::on_call::OnCall;
use crate::backend::bubblewrap::mediator::Standby;
use crate::failure::{self, Failure};
use crate::handoff::{End, LONGEST_DATAGRAM, Report, Request, Service};
use crate::init::gone;
use crate::logging;
use crate::sys::{memory, passing, process};
use stopped::STOPPING;
use writer::Writer;

mod group;
mod refusals;
mod stopped;
mod writer;

/// Signals that end a process or mean something to it: handed on when a process sent them.
const HANDED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
];
/// When Slurm's words are looked for once more after a signal: it says some of them just behind it.
const LISTEN_AGAIN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(200)];
/// A command that has run for so long runs for longer: the launcher, which waits from then on, gives back memory that planning took.
/// No launch waits for that.
const SETTLING: Duration = Duration::from_millis(100);

/// How a launch went.
#[derive(Debug)]
pub enum Outcome {
    /// The command ran and ended.
    Ended(End),
    /// The command could not be executed: an `errno` of `execve(2)`.
    NotExecuted(i32),
    /// A file for a standard stream could not be opened.
    NoStream {
        /// 0, 1 or 2.
        stream: i32,
        /// The path that was asked for.
        path: Vec<u8>,
        /// An `errno` of `open(2)`.
        errno: i32,
    },
    /// Init found the jail not to be as planned.
    Refused(String),
    /// bubblewrap did not get as far as init; its own words.
    NoJail(String),
    /// The policy demands what could not be had (to be traced, a network that is filtered); nothing was started.
    Withheld(Failure),
}

/// Holds back the signals that [`supervise`] handles. Programs started from here on ignore those
/// that the terminal sends, so that bubblewrap outlives ^C as long as the command does; in a job
/// (`by_slurm`) they ignore every signal, for Slurm may send any to each process of the job.
///
/// # Errors
/// What `sigprocmask(2)` or `sigaction(2)` answer.
pub fn hold_signals(by_slurm: bool) -> io::Result<()> {
    let mut held = held(by_slurm);
    held.remove(Signal::SIGCHLD);
    held.thread_block()?;
    if by_slurm {
        process::ignore_all();
        return Ok(());
    }
    let ignored: Vec<Signal> = HANDED_ON
        .into_iter()
        .filter(|&signal| signal != Signal::SIGCONT)
        .chain(STOPPING)
        .collect();
    process::ignore(&ignored)
}

fn held(by_slurm: bool) -> SigSet {
    if by_slurm {
        return SigSet::all();
    }
    let mut held = SigSet::empty();
    for signal in HANDED_ON
        .into_iter()
        .chain(STOPPING)
        .chain([Signal::SIGCHLD])
    {
        held.add(signal);
    }
    held
}

/// Waits until the jail is over.
///
/// # Errors
/// What `signalfd(2)`, `poll(2)` or `waitpid(2)` answer.
pub fn supervise(mut jail: Jail, control: OwnedFd, company: &mut Company) -> io::Result<Outcome> {
    let by_slurm = company.by_slurm;
    let held = held(by_slurm);
    held.thread_block()?;
    let _terminal = logging::hold();
    let signals = SignalFd::with_flags(
        &stopped::read(held, by_slurm),
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?;
    let mut supervisor = Supervisor {
        control,
        signals,
        company,
        outcome: None,
        started: None,
        lent: None,
        ungrouped: None,
        listen_again: Vec::new(),
        settles: None,
        mediator: None,
        timer: None,
        stops: 0,
        stopping: None,
        stopped: None,
        writer: Writer::new(by_slurm),
    };
    if supervisor.company.deadline.next().is_some() {
        supervisor.timer = Some(stopped::timer()?);
    }
    supervisor.make_group(&jail);
    if let Some(filter) = &mut supervisor.company.network {
        filter.make_ready();
    }
    supervisor.wait(&mut jail)?;
    if let Some(recorder) = &supervisor.company.recorder {
        recorder.borrow_mut().finish();
    }
    supervisor.company.killed = jail.was_killed();
    supervisor.company.measured.spent = jail.spent();
    supervisor.company.measured.taken = supervisor.company.group.as_ref().map(Group::taken);
    supervisor.company.measured.ran = supervisor.started.map(|since| since.elapsed());
    let started = supervisor.started.is_some();
    let outcome = supervisor.outcome.unwrap_or_else(|| {
        if started {
            // Killed with everything in it: by the kernel's out-of-memory killer, or by an administrator.
            Outcome::Ended(End::Signal(Signal::SIGKILL as i32))
        } else {
            Outcome::NoJail(jail.complaint())
        }
    });
    tracing::info!(target: "launch", ?outcome, "jail is over");
    Ok(outcome)
}

struct Supervisor<'a> {
    control: OwnedFd,
    signals: SignalFd,
    company: &'a mut Company,
    outcome: Option<Outcome>,
    /// When init got as far as the command.
    started: Option<Instant>,
    mediator: Option<Standby>,
    /// The jail's mount namespace, until its mounts are finished; its network, until that is filtered.
    lent: Option<OwnedFd>,
    /// Why there is no cgroup.
    ungrouped: Option<io::Error>,
    /// When the announcements is looked at again.
    listen_again: Vec<Instant>,
    /// When memory is given back.
    settles: Option<Instant>,
    /// Continues the launcher when something is due.
    timer: Option<Timer>,
    /// How often the command has stopped.
    stops: u32,
    /// The signal by which the launcher stops once init has said that the command still stands.
    stopping: Option<Signal>,
    /// By which signal the command has stopped, if the launcher goes on only to do what is due.
    stopped: Option<Signal>,
    writer: Writer,
}

impl Supervisor<'_> {
    fn wait(&mut self, jail: &mut Jail) -> io::Result<()> {
        loop {
            // It may have ended before its signal was held back.
            if jail.is_over()? {
                // The command was started, however soon it was over.
                while let Some(report) = self.receive() {
                    self.note(report)?;
                }
                return Ok(());
            }
            self.set_timer()?;
            let called = self.company.chaperon.as_ref().and_then(OnCall::waiting);
            let logs_in = self.company.ssh.as_ref().and_then(OnCall::waiting);
            let parent = self.company.parent.as_ref();
            let watched = self.company.recorder.as_ref();
            let watched = watched.and_then(|recorder| recorder.borrow().waiting());
            let mediated = self.mediator.as_ref().and_then(Standby::waiting);
            let refused = self.company.refused.as_ref();
            let mut ready = [
                PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(called.unwrap_or(self.control.as_fd()), PollFlags::POLLIN),
                PollFd::new(
                    parent.map_or(self.control.as_fd(), AsFd::as_fd),
                    PollFlags::POLLIN,
                ),
                PollFd::new(
                    watched.as_ref().map_or(self.control.as_fd(), AsFd::as_fd),
                    PollFlags::POLLIN,
                ),
                PollFd::new(mediated.unwrap_or(self.control.as_fd()), PollFlags::POLLIN),
                PollFd::new(
                    refused.map_or(self.control.as_fd(), AsFd::as_fd),
                    PollFlags::POLLIN,
                ),
                PollFd::new(logs_in.unwrap_or(self.control.as_fd()), PollFlags::POLLIN),
            ];
            let (calls, has_parent, mediates, refuses, logs_in) = (
                called.is_some(),
                parent.is_some(),
                mediated.is_some(),
                refused.is_some(),
                logs_in.is_some(),
            );
            match poll(&mut ready, self.timeout()) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let [
                reported,
                signalled,
                called,
                orphaned,
                waits,
                handed_over,
                said,
                asked,
            ] = ready.map(|one| one.any().unwrap_or(false));
            if let (true, true, Some(mediator)) = (mediates, handed_over, &mut self.mediator) {
                mediator.begin();
            }
            if let (true, Some(_), Some(recorder)) = (waits, &watched, &self.company.recorder) {
                recorder.borrow_mut().answer();
            }
            if has_parent && orphaned {
                jail.kill();
                self.outcome
                    .get_or_insert(Outcome::Ended(End::Signal(libc::SIGKILL)));
                return jail.wait();
            }
            if signalled {
                self.hand_on()?;
            }
            if refuses && said {
                self.tell_refused();
            }
            if calls && called {
                self.start_on_call(Service::Slurm);
            }
            if logs_in && asked {
                self.start_on_call(Service::SshAgent);
            }
            let now = Instant::now();
            if self.listen_again.iter().any(|at| *at <= now) {
                self.listen_again.retain(|at| *at > now);
                self.tell();
            }
            if self.settles.is_some_and(|at| at <= now) {
                self.settles = None;
                memory::release();
            }
            // A command that has ended needs no help.
            let due = match self.outcome {
                None => self.due(now, jail),
                Some(_) => Due::Nothing,
            };
            match due {
                Due::Nothing | Due::Look => {}
                Due::Warn(line) => {
                    self.writer.say(&line);
                    // That is no sign of anybody's.
                    let signs = self.signs(jail);
                    self.company.deadline.forget(signs);
                }
                Due::Terminate(why) => {
                    self.writer.say(&why);
                    self.request(&Request::Signal(Signal::SIGTERM as i32));
                    // One that is stopped would not see it.
                    self.request(&Request::Signal(Signal::SIGCONT as i32));
                }
                Due::Kill => {
                    jail.kill();
                    self.outcome = Some(Outcome::Ended(End::Signal(libc::SIGKILL)));
                    return jail.wait();
                }
            }
            if let (Some(signal), None) = (self.stopped.take(), self.company.deadline.over()) {
                self.is_about_to_stop(signal)?;
            }
            if reported {
                match self.receive() {
                    Some(Report::Unfinished) => {
                        let (finish, lent) = (self.company.finish.take(), self.lent.take());
                        if let Err(why) = finish::answer(finish, lent, &self.control) {
                            self.outcome = Some(Outcome::Refused(why));
                            shutdown(self.control.as_raw_fd(), Shutdown::Both)?;
                            return jail.wait();
                        }
                    }
                    Some(Report::Held) => {
                        if let Err(failure) = self.let_go_on(jail) {
                            self.outcome = Some(Outcome::Withheld(failure));
                            // Who is held sees that it never goes on, and ends.
                            shutdown(self.control.as_raw_fd(), Shutdown::Both)?;
                            return jail.wait();
                        }
                    }
                    Some(report) => self.note(report)?,
                    None => {
                        // Init is gone; what stands around it follows.
                        if let Some(filter) = &mut self.company.network {
                            filter.leave();
                        }
                        jail.wait()?;
                        return Ok(());
                    }
                }
            }
        }
    }

    /// What is due, after a look if one is.
    fn due(&mut self, now: Instant, jail: &Jail) -> Due {
        match self.company.deadline.due(now) {
            Due::Look => {
                let signs = self.signs(jail);
                self.company.deadline.saw(now, signs)
            }
            due => due,
        }
    }

    fn signs(&self, jail: &Jail) -> Signs {
        let counted = self
            .company
            .group
            .as_ref()
            .and_then(|group| group.taken().cpu);
        let summed = || jail.first().map_or(Duration::ZERO, activity::cpu_of);
        let chaperon = self.company.chaperon.as_ref().and_then(OnCall::process);
        Signs {
            cpu: counted.unwrap_or_else(summed),
            terminals: activity::terminals(),
            asked: chaperon.map_or(Duration::ZERO, activity::cpu_of),
            asks: chaperon.is_some_and(|pid| !activity::children(pid).is_empty()),
        }
    }

    /// Nothing of the jail has run yet. It goes on when it is traced, or when it need not be, and what there is
    /// to say of it was said.
    fn let_go_on(&mut self, jail: &Jail) -> Result<(), Failure> {
        self.enter_group(jail)?;
        if let (Some((tracer, command)), Some(first)) = (self.company.tracer.take(), jail.first()) {
            // What was started since it was made is moved as well.
            let moved = |group: &Group| group.take(first).is_ok();
            self.company.group = self.company.group.take().filter(moved);
            let cgroup = self.company.group.as_ref().map(Group::id);
            let traced = tracer.begin(first, &command, cgroup)?;
            self.company.measured.traced = traced.is_some();
            if let (Some(begun), true) = (self.company.begun.take(), traced.is_some()) {
                begun.hand();
            }
            if let Some(recorder) = &self.company.recorder {
                recorder.borrow_mut().traced = traced;
            }
        }
        let network = self.lent.take();
        let network = network.as_ref().map(AsFd::as_fd);
        if let Some(filter) = &mut self.company.network {
            filter.attach(network)?;
        }
        if let Some(forward) = &mut self.company.forward {
            forward.attach(network)?;
        }
        failure::say(&std::mem::take(&mut self.company.announcement));
        self.request(&Request::Go);
        Ok(())
    }

    fn timeout(&self) -> PollTimeout {
        let deadline = self.company.deadline.next();
        let deadline = deadline.filter(|_| self.outcome.is_none());
        let listens = self.listen_again.iter().copied();
        let Some(next) = listens.chain(self.settles).chain(deadline).min() else {
            return PollTimeout::NONE;
        };
        // Rounded up: at the end of the wait the moment has come.
        let rest = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX)
    }

    fn note(&mut self, report: Report) -> io::Result<()> {
        match report {
            Report::Ready => {
                self.started = Some(Instant::now());
                // What it has in memory, such as the user's variables, is in no core file from here on (core(5)), which would be
                // written into the project. Not by PR_SET_DUMPABLE: where /proc has hidepid, the user's other launchers would
                // take this session for one that has ended.
                let _ = std::fs::write("/proc/self/coredump_filter", "0");
                tracing::info!(target: "launch", "the command starts");
                let before = self
                    .company
                    .announcements
                    .as_ref()
                    .map(Announcements::before);
                self.say(before.unwrap_or_default());
                if let Some(announcements) = &mut self.company.announcements {
                    announcements.skip();
                }
                self.settles = Some(Instant::now() + SETTLING);
            }
            // The descriptors were taken as they came.
            Report::Listening(_) | Report::Namespaces | Report::Watched => {}
            Report::Mediated | Report::Held | Report::Unfinished => {}
            Report::Left { .. } | Report::LeftMore | Report::LeftAll => self.note_left(&report),
            Report::Gone(places) => self.writer.say(&gone::line(&places)),
            Report::Refused(reason) => self.outcome = Some(Outcome::Refused(reason)),
            Report::NotExecuted { errno } => self.outcome = Some(Outcome::NotExecuted(errno)),
            Report::NoStream {
                stream,
                path,
                errno,
            } => {
                self.outcome = Some(Outcome::NoStream {
                    stream,
                    path,
                    errno,
                });
            }
            Report::Stopped(number) => self.command_has_stopped(number)?,
            Report::Stands(stands) => self.stop_like_the_command(stands)?,
            Report::Ended(end) => {
                // The end of a command that was never executed is no end.
                self.outcome.get_or_insert(Outcome::Ended(end));
                if self.company.by_slurm {
                    self.tell();
                    self.tell_what_is_refused_yet();
                    self.request(&Request::Leave);
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Option<Report> {
        let mut buffer = [0; LONGEST_DATAGRAM];
        loop {
            match passing::receive(&self.control, &mut buffer, MsgFlags::MSG_DONTWAIT) {
                // Init ended with a request unread, says the kernel once (unix(7)).
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EINTR)) => {}
                Ok((0, _)) | Err(_) => return None,
                Ok((length, socket)) => {
                    let report = postcard::from_bytes(&buffer[..length]).ok()?;
                    match (&report, socket) {
                        (Report::Listening(service), Some(socket)) => {
                            if let Some(serves) = self.company.serves(*service) {
                                serves.listening(socket);
                            }
                        }
                        (Report::Mediated, Some(listener)) => {
                            let terms = self.company.mediated.take();
                            self.mediator = terms.map(|terms| Standby::new(listener, terms));
                        }
                        (Report::Unfinished | Report::Held, lent) => self.lent = lent,
                        (Report::Watched, Some(listener)) => {
                            if let Some(recorder) = &self.company.recorder {
                                // Without it the command's calls fail, and it does not start.
                                let _ = recorder.borrow_mut().listen(listener);
                            }
                        }
                        _ => {}
                    }
                    return Some(report);
                }
            }
        }
    }

    fn note_left(&mut self, report: &Report) {
        let Some(recorder) = &self.company.recorder else {
            return;
        };
        let seen = &mut recorder.borrow_mut().seen;
        match report {
            Report::Left { path, directory } => {
                seen.note_left(Path::new(OsStr::from_bytes(path)), *directory);
            }
            report => seen.whole = matches!(report, Report::LeftAll),
        }
    }

    fn request(&self, request: &Request) {
        if let Ok(text) = postcard::to_allocvec(request) {
            // A jail that is already over needs nothing.
            let _ = passing::send(&self.control, &text, None);
        }
    }

    /// Somebody inside calls for the first time.
    fn start_on_call(&mut self, service: Service) {
        if let Some(serves) = self.company.serves(service)
            && let Err(error) = serves.start()
        {
            let what = match service {
                Service::Slurm => "the chaperon, so that Slurm cannot be used",
                Service::SshAgent => "the ssh agent, so that nothing can log in by ssh",
            };
            // Closes the socket: calls fail instead of waiting.
            serves.end();
            let line = format!("agent-sandbox: error: cannot start {what}: {error}\n");
            self.writer.say(&line);
        }
    }

    /// Hands Slurm's words on to the job's own output.
    fn tell(&mut self) {
        let news = self.company.announcements.as_mut().map(Announcements::news);
        self.say(news.unwrap_or_default());
    }

    fn say(&self, text: Vec<u8>) {
        if !text.is_empty() {
            self.request(&Request::Say(text));
        }
    }

    /// Hands on what processes sent. What the kernel sent (the terminal's keys) went to the whole
    /// process group, the command included.
    fn hand_on(&mut self) -> io::Result<()> {
        while let Some(info) = self.signals.read_signal()? {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            // But a terminal that is closed tells the session's leader alone, which may be the
            // launcher.
            let from_kernel = match info.ssi_code {
                libc::SI_KERNEL => number != libc::SIGHUP,
                code => code == libc::SI_TIMER,
            };
            let meant = if self.company.by_slurm {
                number != libc::SIGCHLD
            } else {
                HANDED_ON.iter().any(|&signal| signal as i32 == number)
            };
            if !meant || from_kernel {
                continue;
            }
            if self.company.announcements.is_some() {
                // Slurm says first why it signals.
                self.tell();
                let now = Instant::now();
                self.listen_again = LISTEN_AGAIN.map(|after| now + after).to_vec();
            }
            tracing::debug!(target: "launch", number, from = info.ssi_pid, "signal handed on");
            self.request(&match number {
                libc::SIGCONT if !self.company.by_slurm => Request::Continue(self.stops),
                _ => Request::Signal(number),
            });
        }
        Ok(())
    }
}
