//! Stands by a running jail: passes signals and job control on, and says how it ended.
//!
//! The launcher, bubblewrap and the command are in one process group, as a plain command would be
//! in it alone. Keys of the terminal (^C, ^\, ^Z, hang-up) reach the command from the kernel; the
//! launcher ignores these, and stops itself only when init says that the command has stopped.
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
use nix::sys::signal::{SigHandler, SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, Shutdown, shutdown};

use super::announcements::Announcements;
use super::cgroup::Group;
use super::finish::{self, Finish};
pub use super::jail::Jail;
use super::network::Filter;
use super::on_call::OnCall;
use super::traced::Tracer;
use crate::backend::bubblewrap::mediator::{Standby, Terms};
use crate::failure::{self, Failure};
use crate::handoff::{End, LONGEST_DATAGRAM, Report, Request, Run, Service};
use crate::init::gone;
use crate::logging;
use crate::observe::recorder;
use crate::sys::{passing, process};

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
/// Signals that stop a process; which of them stops the command, the command decides.
const STOPPING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
/// When Slurm's words are looked for once more after a signal: it says some of them just behind it.
const LISTEN_AGAIN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(200)];

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

/// What stands by besides the supervisor.
#[derive(Default)]
pub struct Company {
    /// The way to Slurm.
    pub chaperon: Option<OnCall>,
    /// The ssh agent.
    pub ssh: Option<OnCall>,
    /// The filter of a network that is filtered.
    pub network: Option<Filter>,
    /// What Slurm says about the job.
    pub announcements: Option<Announcements>,
    /// Whether Slurm started the launcher.
    pub by_slurm: bool,
    /// The process without which the command must not go on: it becomes readable when that ends.
    pub parent: Option<OwnedFd>,
    /// What is left of building the jail.
    pub finish: Option<Finish>,
    /// What watches the command.
    pub recorder: Option<recorder::Shared>,
    /// What is said when the jail is there, right before the command starts.
    pub announcement: String,
    /// What the mediator beside the jail keeps to; `None`: there is none.
    pub mediated: Option<Terms>,
    /// The node's tracer, with the command for its trail, of a jail that is held until it is traced.
    pub tracer: Option<(Tracer, Vec<Vec<u8>>)>,
    /// The session's cgroup, which goes with this.
    pub group: Option<Group>,
    /// Says, when [`supervise`] has returned, whether the process below the launcher was killed.
    pub killed: bool,
}

impl Company {
    /// What serves calls from inside.
    fn serves(&mut self, service: Service) -> Option<&mut OnCall> {
        match service {
            Service::Slurm => self.chaperon.as_mut(),
            Service::SshAgent => self.ssh.as_mut(),
        }
    }

    /// Has a command held until the tracer traces it and its network is filtered, if they are, and the announcement is made.
    pub fn hold(&mut self, run: &mut Run, tracer: Option<Tracer>) {
        run.lends_network = self.network.is_some();
        run.held = tracer.is_some() || run.lends_network || !self.announcement.is_empty();
        self.tracer = tracer.map(|tracer| (tracer, run.argv.clone()));
    }
}

/// Waits until the jail is over.
///
/// # Errors
/// What `signalfd(2)`, `poll(2)` or `waitpid(2)` answer.
pub fn supervise(mut jail: Jail, control: OwnedFd, company: &mut Company) -> io::Result<Outcome> {
    let held = held(company.by_slurm);
    held.thread_block()?;
    let _terminal = logging::hold();
    let signals = SignalFd::with_flags(&held, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut supervisor = Supervisor {
        control,
        signals,
        company,
        outcome: None,
        started: false,
        lent: None,
        listen_again: Vec::new(),
        mediator: None,
    };
    supervisor.make_group(&jail);
    supervisor.wait(&mut jail)?;
    if let Some(recorder) = &supervisor.company.recorder {
        recorder.borrow_mut().finish();
    }
    supervisor.company.killed = matches!(jail, Jail::Over { killed: true });
    let started = supervisor.started;
    let outcome = supervisor.outcome.unwrap_or_else(|| {
        if started {
            // Killed with everything in it: by the kernel's out-of-memory killer, or by an
            // administrator.
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
    /// Whether init got as far as the command.
    started: bool,
    mediator: Option<Standby>,
    /// The jail's mount namespace, until its mounts are finished; its network, until that is filtered.
    lent: Option<OwnedFd>,
    /// When the announcements is looked at again.
    listen_again: Vec<Instant>,
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
            let called = self.company.chaperon.as_ref().and_then(OnCall::waiting);
            let logs_in = self.company.ssh.as_ref().and_then(OnCall::waiting);
            let parent = self.company.parent.as_ref();
            let watched = self.company.recorder.as_ref();
            let watched = watched.and_then(|recorder| recorder.borrow().waiting());
            let mediated = self.mediator.as_ref().and_then(Standby::waiting);
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
                PollFd::new(logs_in.unwrap_or(self.control.as_fd()), PollFlags::POLLIN),
            ];
            let (calls, logs_in) = (called.is_some(), logs_in.is_some());
            let (has_parent, mediates) = (parent.is_some(), mediated.is_some());
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
                        jail.wait()?;
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Makes the session's cgroup while the jail is built, for it may take as long. Without one it does as well.
    fn make_group(&mut self, jail: &Jail) {
        let session = self
            .company
            .tracer
            .as_ref()
            .and_then(|(tracer, _)| tracer.session());
        if let (Some(session), Some(first)) = (session, jail.first()) {
            self.company.group = Group::of_session(session, first).ok();
        }
    }

    /// Nothing of the jail has run yet. It goes on when it is traced, or when it need not be, and what there is
    /// to say of it was said.
    fn let_go_on(&mut self, jail: &Jail) -> Result<(), Failure> {
        if let (Some((tracer, command)), Some(first)) = (self.company.tracer.take(), jail.first()) {
            // What was started since it was made is moved as well.
            let moved = |group: &Group| group.take(first).is_ok();
            self.company.group = self.company.group.take().filter(moved);
            let cgroup = self.company.group.as_ref().map(Group::id);
            let traced = tracer.begin(first, &command, cgroup)?;
            if let Some(recorder) = &self.company.recorder {
                recorder.borrow_mut().traced = traced;
            }
        }
        if let Some(filter) = &mut self.company.network {
            filter.attach(self.lent.take().as_ref().map(AsFd::as_fd))?;
        }
        failure::say(&std::mem::take(&mut self.company.announcement));
        self.request(&Request::Go);
        Ok(())
    }

    fn timeout(&self) -> PollTimeout {
        let Some(next) = self.listen_again.iter().min() else {
            return PollTimeout::NONE;
        };
        // Rounded up: at the end of the wait the moment has come.
        let rest = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX)
    }

    fn note(&mut self, report: Report) -> io::Result<()> {
        match report {
            Report::Ready => {
                self.started = true;
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
            }
            // The descriptors were taken as they came.
            Report::Listening(_) | Report::Namespaces | Report::Watched => {}
            Report::Mediated | Report::Held | Report::Unfinished => {}
            Report::Left { .. } | Report::LeftMore | Report::LeftAll => self.note_left(&report),
            Report::Gone(places) => failure::say(&gone::line(&places)),
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
            // Nobody waits for a job to stop, and what goes on is told to go on.
            Report::Stopped(_) if self.company.by_slurm => {}
            Report::Stopped(signal) => self.stop_like_the_command(signal)?,
            Report::Ended(end) => {
                // The end of a command that was never executed is no end.
                self.outcome.get_or_insert(Outcome::Ended(end));
                if self.company.by_slurm {
                    self.tell();
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
            failure::say(&format!(
                "agent-sandbox: error: cannot start {what}: {error}\n"
            ));
            // Closes the socket: calls fail instead of waiting.
            serves.end();
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
            let from_kernel = info.ssi_code == libc::SI_KERNEL && number != libc::SIGHUP;
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
            self.request(&Request::Signal(number));
        }
        Ok(())
    }

    /// The command has stopped: so does the launcher, by the same signal, and the shell sees it.
    /// What continues the launcher continues the command.
    fn stop_like_the_command(&mut self, signal: i32) -> io::Result<()> {
        let signal = Signal::try_from(signal).unwrap_or(Signal::SIGSTOP);
        tracing::debug!(target: "launch", %signal, "stopped like the command");
        let mut one = SigSet::empty();
        one.add(signal);
        if signal != Signal::SIGSTOP {
            process::handle(signal, SigHandler::SigDfl)?;
            // One that is pending would stop the launcher a second time.
            self.hand_on()?;
            raise(signal)?;
            one.thread_unblock()?;
            one.thread_block()?;
            process::handle(signal, SigHandler::SigIgn)?;
        } else {
            raise(signal)?;
        }
        self.request(&Request::Signal(Signal::SIGCONT as i32));
        Ok(())
    }
}
