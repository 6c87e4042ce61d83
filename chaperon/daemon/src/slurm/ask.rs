//! Questions to Slurm: at a bounded pace, few at a time, and one for all who ask the same.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::future::Future;
use std::rc::{Rc, Weak};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use tokio::sync::{Mutex, watch};

use crate::conn::{Conn, Event};
use crate::desk::{Captured, Flight, Over, Question, Told};
use crate::refusal::Refusal;
use crate::session::Session;
use crate::spawn::{self, Start};
use crate::variables::Variables;

/// Signals that end a command that does nothing about them.
const DEADLY: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Why a command goes no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is refused, or cannot be carried out.
    Refused(Refusal),
    /// Its caller has ended, or wants it to end.
    Ended(End),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A command's result, where an end that the caller wished for is an end like any other.
///
/// # Errors
/// The refusal.
pub fn settle(result: Result<End, Stop>) -> Result<End, Refusal> {
    match result {
        Ok(end) | Err(Stop::Ended(end)) => Ok(end),
        Err(Stop::Refused(refusal)) => Err(refusal),
    }
}

/// Waits for something, unless the shim goes away or gets a signal that ends it.
///
/// # Errors
/// The refusal, or the end of the shim.
pub async fn attended<T>(
    conn: &mut Conn,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Stop> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done?),
            event = conn.event() => match event {
                Event::Signal(
                    number @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT | libc::SIGPIPE),
                ) => return Err(Stop::Ended(End::Signal(number))),
                Event::Gone => return Err(Stop::Ended(End::Signal(libc::SIGHUP))),
                Event::Signal(_) => {}
            },
        }
    }
}

/// Does something for a command that makes jobs and that may take long, Slurm being slow to answer, unless the
/// shim goes away or gets a signal that ends such a command. Unlike [`attended`] it heeds no `SIGPIPE`.
///
/// # Errors
/// The end of the shim.
pub async fn patiently<T>(conn: &mut Conn, work: impl Future<Output = T>) -> Result<T, Stop> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            event = conn.event() => match event {
                Event::Signal(signal) if DEADLY.contains(&signal) => {
                    return Err(Stop::Ended(End::Signal(signal)));
                }
                Event::Signal(_) => {}
                Event::Gone => return Err(Stop::Ended(End::Signal(libc::SIGHUP))),
            },
        }
    }
}

/// Asks Slurm. Everybody who asks the same before it is sent gets the same answer.
///
/// # Errors
/// The command cannot be started, or says too much.
pub async fn ask(
    session: &Rc<Session>,
    command: Command,
    arguments: Vec<OsString>,
    environment: Variables,
) -> Result<Rc<Captured>, Refusal> {
    let Hearing { flight, .. } = hear(session, command, arguments, environment);
    let mut told = flight.told.clone();
    let told = told.wait_for(|told| told.over.is_some()).await;
    let told = told.map_err(|_| lost())?;
    let (end, error) = told.over.clone().unwrap_or_else(|| Err(lost()))?;
    let whole = flight.whole.get_or_init(|| {
        Rc::new(Captured {
            end,
            output: told.output.concat(),
            error: error.to_vec(),
            account: told.account.clone(),
        })
    });
    Ok(Rc::clone(whole))
}

/// The same as [`ask`] for who begins with the answer before it is complete.
pub fn hear(
    session: &Rc<Session>,
    command: Command,
    arguments: Vec<OsString>,
    environment: Variables,
) -> Hearing {
    let question = Question {
        command,
        arguments,
        environment,
    };
    let known = session
        .desk
        .waiting
        .borrow()
        .get(&question)
        .and_then(Weak::upgrade);
    let flight = match known {
        Some(flight) => flight,
        None => depart(session, question),
    };
    let told = flight.told.clone();
    Hearing {
        flight,
        told,
        heard: 0,
    }
}

/// An answer that arrives in parts.
pub struct Hearing {
    flight: Rc<Flight>,
    told: watch::Receiver<Told>,
    heard: usize,
}

/// What was said.
pub enum Said {
    /// A part of the standard output.
    Part(Rc<[u8]>),
    /// That was all: how the command ended, and its standard error.
    Over(End, Rc<[u8]>),
}

impl Hearing {
    /// What is said next. Cancel-safe; after [`Said::Over`] it says that again.
    ///
    /// # Errors
    /// The command cannot be started, or says too much.
    pub async fn next(&mut self) -> Result<Said, Refusal> {
        let heard = self.heard;
        let new = |told: &Told| told.output.len() > heard || told.over.is_some();
        let told = self.told.wait_for(new).await.map_err(|_| lost())?;
        match told.output.get(heard) {
            Some(part) => {
                self.heard += 1;
                Ok(Said::Part(Rc::clone(part)))
            }
            None => {
                let (end, error) = told.over.clone().unwrap_or_else(|| Err(lost()))?;
                Ok(Said::Over(end, error))
            }
        }
    }
}

fn lost() -> Refusal {
    Refusal::mistake("the question to Slurm was given up")
}

fn depart(session: &Rc<Session>, question: Question) -> Rc<Flight> {
    let (sender, told) = watch::channel(Told::default());
    let line = session
        .desk
        .lines
        .borrow()
        .get(&question)
        .and_then(Weak::upgrade)
        .unwrap_or_default();
    let task = {
        let (session, question, line) = (Rc::clone(session), question.clone(), Rc::clone(&line));
        tokio::task::spawn_local(async move {
            let over = fly(&session, question, &line, &sender).await;
            sender.send_modify(|told| told.over = Some(over));
        })
    };
    let flight = Rc::new(Flight {
        told,
        whole: OnceCell::new(),
        task: task.abort_handle(),
    });
    let desk = &session.desk;
    let mut lines = desk.lines.borrow_mut();
    lines.retain(|_, line| line.strong_count() > 0);
    lines.insert(question.clone(), Rc::downgrade(&line));
    let mut waiting = desk.waiting.borrow_mut();
    waiting.retain(|_, flight| flight.strong_count() > 0);
    waiting.insert(question, Rc::downgrade(&flight));
    flight
}

async fn fly(
    session: &Session,
    question: Question,
    line: &Mutex<()>,
    to: &watch::Sender<Told>,
) -> Over {
    let _first = line.lock().await;
    let _room = enter(session).await?;
    session.desk.waiting.borrow_mut().remove(&question);
    let tell = |part: &[u8]| to.send_modify(|told| told.output.push(part.into()));
    let (end, error, account) = spawn::relay(session, start(question), &[], tell).await?;
    to.send_modify(|told| told.account = Some(account));
    Ok((end, error.into()))
}

fn start(question: Question) -> Start {
    let mut start = Start::query(question.command, question.arguments);
    start.environment = question.environment;
    start
}

async fn enter(session: &Session) -> Result<tokio::sync::SemaphorePermit<'_>, Refusal> {
    session.limiter.turn().await;
    let closed = |_| Refusal::mistake("the session ends");
    session.desk.room.acquire().await.map_err(closed)
}

/// Has Slurm do something: at the same pace, but once for each who wants it.
///
/// # Errors
/// The command cannot be started, or says too much.
pub async fn act(
    session: &Session,
    command: Command,
    arguments: Vec<OsString>,
    environment: Variables,
) -> Result<Captured, Refusal> {
    let _room = enter(session).await?;
    let question = Question {
        command,
        arguments,
        environment,
    };
    spawn::capture(session, start(question), &[]).await
}
