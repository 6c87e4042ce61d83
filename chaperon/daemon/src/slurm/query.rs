//! Questions to Slurm: at a bounded pace, few at a time, and one for all who ask the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::{Rc, Weak};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::AbortHandle;

use crate::conn::{Conn, Event};
use crate::refusal::Refusal;
use crate::session::{Session, Variables};
use crate::spawn::{self, Captured, Start};

/// Real commands that ask at the same time.
const MOST_AT_ONCE: usize = 8;

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

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    command: Command,
    arguments: Vec<OsString>,
    environment: Variables,
}

type Answer = Result<Rc<Captured>, Refusal>;

/// A question that is asked for everybody who holds it; forgotten with the last of them.
struct Flight {
    answer: watch::Receiver<Option<Answer>>,
    task: AbortHandle,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The questions of a session.
pub struct Desk {
    /// Stands between what Slurm prints: nobody who names a job knows it.
    pub mark: String,
    /// The arrays of tasks, by the numbers that tasks have of their own, as far as sacct was asked.
    pub arrays: RefCell<BTreeMap<u32, u32>>,
    /// Those that have not reached Slurm yet. Who asks the same later must not get an answer that
    /// is older than the question: `sbatch job && squeue` shows the job.
    waiting: RefCell<BTreeMap<Question, Weak<Flight>>>,
    /// The same question is asked once at a time.
    lines: RefCell<BTreeMap<Question, Weak<Mutex<()>>>>,
    room: Semaphore,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            mark: mark(),
            arrays: RefCell::default(),
            waiting: RefCell::default(),
            lines: RefCell::default(),
            room: Semaphore::new(MOST_AT_ONCE),
        }
    }
}

/// A record separator and five random letters: short, for it is printed behind every column.
fn mark() -> String {
    let mut random = RandomState::new().build_hasher().finish();
    let mut mark = String::from("\x1e");
    for _ in 0..5 {
        // One of 64 characters from `0` on, without `%`, `,` and `:`, which formats are made of.
        let low = (random & 0x3f) as u8;
        mark.push(char::from(if low == 10 { b'p' } else { b'0' + low }));
        random >>= 6;
    }
    mark
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
