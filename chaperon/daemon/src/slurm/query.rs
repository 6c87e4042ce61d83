//! Questions to Slurm: at a bounded pace, few at a time, and one for all who ask the same.

use std::ffi::OsString;
use std::future::Future;
use std::rc::{Rc, Weak};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use tokio::sync::{Mutex, watch};

use crate::conn::{Conn, Event};
use crate::desk::{Answer, Captured, Flight, Question};
use crate::refusal::Refusal;
use crate::session::Session;
use crate::spawn::{self, Start};
use crate::variables::Variables;

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
    let mut answer = flight.answer.clone();
    let lost = || Refusal::mistake(format!("the question to {command} was given up"));
    match answer.wait_for(Option::is_some).await {
        Ok(answer) => answer.clone().unwrap_or_else(|| Err(lost())),
        Err(_) => Err(lost()),
    }
}

fn depart(session: &Rc<Session>, question: Question) -> Rc<Flight> {
    let (sender, answer) = watch::channel(None);
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
            let answer = fly(&session, question, &line).await;
            let _ = sender.send(Some(answer));
        })
    };
    let flight = Rc::new(Flight {
        answer,
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

async fn fly(session: &Session, question: Question, line: &Mutex<()>) -> Answer {
    let _first = line.lock().await;
    let _room = enter(session).await?;
    session.desk.waiting.borrow_mut().remove(&question);
    run(session, question).await.map(Rc::new)
}

async fn enter(session: &Session) -> Result<tokio::sync::SemaphorePermit<'_>, Refusal> {
    session.limiter.turn().await;
    let closed = |_| Refusal::mistake("the session ends");
    session.desk.room.acquire().await.map_err(closed)
}

async fn run(session: &Session, question: Question) -> Result<Captured, Refusal> {
    let mut start = Start::query(question.command, question.arguments);
    start.environment = question.environment;
    spawn::capture(session, start, &[]).await
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
    run(session, question).await
}
