//! Questions to Slurm: at a bounded pace, few at a time, and one for all who ask the same.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::rc::{Rc, Weak};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use tokio::sync::{Mutex, watch};

use crate::conn::{Conn, Event};
use crate::query_cache::{Found, QueryCache};
use crate::query_queue::{Captured, Outcome, Progress, Query, RunningQuery};
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

/// Asks Slurm, to decide by the answer. Everybody who asks the same before it is sent gets the same answer.
///
/// # Errors
/// The command cannot be started, or says too much.
pub async fn ask(
    session: &Rc<Session>,
    command: Command,
    arguments: Vec<OsString>,
    environment: Variables,
) -> Result<Rc<Captured>, Refusal> {
    let query = Query {
        command,
        arguments,
        environment,
        shared: false,
    };
    whole(follow(session, query)).await
}

/// The same for an answer that is only shown: one that another session of the user's just had will do
/// ([`crate::query_cache`]).
///
/// # Errors
/// The command cannot be started, or says too much.
pub async fn look_up(
    session: &Rc<Session>,
    command: Command,
    arguments: Vec<OsString>,
    environment: Variables,
) -> Result<Rc<Captured>, Refusal> {
    whole(subscribe(session, command, arguments, environment)).await
}

async fn whole(answer: AnswerStream) -> Result<Rc<Captured>, Refusal> {
    let AnswerStream { running, .. } = answer;
    let mut progress = running.progress.clone();
    let progress = progress.wait_for(|progress| progress.over.is_some()).await;
    let progress = progress.map_err(|_| lost())?;
    let (end, error) = progress.over.clone().unwrap_or_else(|| Err(lost()))?;
    let whole = running.whole.get_or_init(|| {
        Rc::new(Captured {
            end,
            output: progress.output.concat(),
            error: error.to_vec(),
            account: progress.account.clone(),
        })
    });
    Ok(Rc::clone(whole))
}

/// The same as [`look_up`] for who begins with the answer before it is complete.
pub fn subscribe(
    session: &Rc<Session>,
    command: Command,
    arguments: Vec<OsString>,
    environment: Variables,
) -> AnswerStream {
    let query = Query {
        command,
        arguments,
        environment,
        shared: true,
    };
    follow(session, query)
}

fn follow(session: &Rc<Session>, query: Query) -> AnswerStream {
    let known = session
        .queries
        .waiting
        .borrow()
        .get(&query)
        .and_then(Weak::upgrade);
    let running = match known {
        Some(running) => running,
        None => start_query(session, query),
    };
    let progress = running.progress.clone();
    AnswerStream {
        running,
        progress,
        heard: 0,
    }
}

/// An answer that arrives in parts.
pub struct AnswerStream {
    running: Rc<RunningQuery>,
    progress: watch::Receiver<Progress>,
    heard: usize,
}

/// What was said.
pub enum AnswerPart {
    /// A part of the standard output.
    Part(Rc<[u8]>),
    /// That was all: how the command ended, and its standard error.
    Done(End, Rc<[u8]>),
}

impl AnswerStream {
    /// What is said next. Cancel-safe; after [`AnswerPart::Done`] it says that again.
    ///
    /// # Errors
    /// The command cannot be started, or says too much.
    pub async fn next(&mut self) -> Result<AnswerPart, Refusal> {
        let heard = self.heard;
        let new = |progress: &Progress| progress.output.len() > heard || progress.over.is_some();
        let progress = self.progress.wait_for(new).await.map_err(|_| lost())?;
        match progress.output.get(heard) {
            Some(part) => {
                self.heard += 1;
                Ok(AnswerPart::Part(Rc::clone(part)))
            }
            None => {
                let (end, error) = progress.over.clone().unwrap_or_else(|| Err(lost()))?;
                Ok(AnswerPart::Done(end, error))
            }
        }
    }
}

fn lost() -> Refusal {
    Refusal::mistake("the query to Slurm was given up")
}

fn start_query(session: &Rc<Session>, query: Query) -> Rc<RunningQuery> {
    let (sender, progress) = watch::channel(Progress::default());
    let line = session
        .queries
        .lines
        .borrow()
        .get(&query)
        .and_then(Weak::upgrade)
        .unwrap_or_default();
    let task = {
        let (session, query, line) = (Rc::clone(session), query.clone(), Rc::clone(&line));
        tokio::task::spawn_local(async move {
            let over = run_query(&session, query, &line, &sender).await;
            sender.send_modify(|progress| progress.over = Some(over));
        })
    };
    let running = Rc::new(RunningQuery {
        progress,
        whole: OnceCell::new(),
        task: task.abort_handle(),
    });
    let queries = &session.queries;
    let mut lines = queries.lines.borrow_mut();
    lines.retain(|_, line| line.strong_count() > 0);
    lines.insert(query.clone(), Rc::downgrade(&line));
    let mut waiting = queries.waiting.borrow_mut();
    waiting.retain(|_, running| running.strong_count() > 0);
    waiting.insert(query, Rc::downgrade(&running));
    running
}

async fn run_query(
    session: &Session,
    query: Query,
    line: &Mutex<()>,
    to: &watch::Sender<Progress>,
) -> Outcome {
    let _first = line.lock().await;
    session.limiter.turn().await;
    let found = match query.shared {
        true => find(session, &query).await,
        false => Found::Nothing(None),
    };
    let mut place = match found {
        Found::Nothing(place) => place,
        Found::Answer(answer) => {
            // It is as old as it is: who asks from now on may want another.
            session.queries.waiting.borrow_mut().remove(&query);
            let mut account = session.answers.account();
            account
                .more(answer.output.len() + answer.error.len())
                .await?;
            to.send_modify(|progress| {
                progress.output.push(answer.output.into());
                progress.account = Some(Rc::new(account));
            });
            return Ok((answer.end, answer.error.into()));
        }
    };
    let _room = match session.queries.room.try_acquire() {
        Ok(room) => room,
        // Other sessions do not wait for this one's own line.
        Err(_) => {
            place = None;
            room(session).await?
        }
    };
    session.queries.waiting.borrow_mut().remove(&query);
    if let Some(place) = &mut place {
        session.query_cache.asked(place);
    }
    let mut start = Start::query(query.command, query.arguments);
    start.environment = query.environment;
    let mut length = 0;
    let tell = |part: &[u8]| {
        to.send_modify(|progress| progress.output.push(part.into()));
        length += part.len();
        // Nobody has to wait for what is not shared.
        place.take_if(|_| !QueryCache::takes(length));
    };
    let (end, error, account) = spawn::relay(session, start, &[], tell).await?;
    if let Some(place) = place {
        let output = to.borrow().output.concat();
        session.query_cache.keep(place, end, output, error.clone());
    }
    to.send_modify(|progress| progress.account = Some(account));
    Ok((end, error.into()))
}

async fn find(session: &Session, query: &Query) -> Found {
    let Some(path) = session.command(query.command) else {
        return Found::Nothing(None);
    };
    let own = query.environment.iter();
    let own = own.map(|(name, value)| (name.as_os_str(), value.as_os_str()));
    let environment = session.environment().chain(own);
    let cache = &session.query_cache;
    cache
        .find(OsStr::from_bytes(path), &query.arguments, environment)
        .await
}

async fn room(session: &Session) -> Result<tokio::sync::SemaphorePermit<'_>, Refusal> {
    let closed = |_| Refusal::mistake("the session ends");
    session.queries.room.acquire().await.map_err(closed)
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
    session.limiter.turn().await;
    act_now(session, command, arguments, environment).await
}

/// The same for who waited for the pace before.
///
/// # Errors
/// See [`act`].
pub async fn act_now(
    session: &Session,
    command: Command,
    arguments: Vec<OsString>,
    environment: Variables,
) -> Result<Captured, Refusal> {
    let _room = room(session).await?;
    let mut start = Start::change(command, arguments);
    start.environment = environment;
    spawn::capture(session, start, &[]).await
}
