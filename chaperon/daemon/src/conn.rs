//! A connection with a shim: messages both ways, descriptors, and signals that arrive at any time.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use agent_sandbox_wire::frame::{self, FrameError, LONGEST, PART, PREFACE};
use agent_sandbox_wire::message::{Call, End, FromShim, How, Source, Stream, ToShim};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::budget::{Account, Budget};
use crate::closing::Received;
use crate::refusal::Refusal;
use crate::sys;

/// How long a shim may take to say what it wants. It does so at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Words and variables that a call may have. No shell has nearly as many, and each takes much more
/// memory here than on the way.
const MOST_ARGUMENTS: usize = 65_536;
const MOST_VARIABLES: usize = 16_384;

/// What each of them takes beside its bytes, about, in bytes.
const ENTRY: usize = 64;

/// How often a script is held while it becomes a capsule: as it came, within the capsule, and as
/// the text that is submitted.
const COPIES: usize = 3;

/// The longest message behind the call, in bytes: a part of a file and what stands around it.
const LONGEST_ANSWER: usize = PART + 64;

/// Signals that end who waits for an answer.
const DEADLY: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Signals that are kept while nobody asks for them. There are no more kinds.
const MOST_SIGNALS: usize = 64;

/// What can arrive while a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The shim got this signal.
    Signal(i32),
    /// The shim is gone.
    Gone,
}

/// Why a question to the shim has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It could not: an `errno`.
    Failed(i32),
    /// More than was asked for, or than there is memory for.
    TooLong,
    /// This signal came first.
    Interrupted(i32),
    /// The shim is gone, or talks nonsense.
    Gone,
}

impl Unanswered {
    /// How a command ends that gets no answer: by the signal that came first, or as one whose shim is gone. An
    /// `errno` is the caller's to explain.
    pub fn end(self) -> End {
        match self {
            Self::Interrupted(signal) => End::Signal(signal),
            Self::Failed(_) | Self::TooLong | Self::Gone => End::Signal(libc::SIGHUP),
        }
    }
}

type Arrival = (FromShim, Vec<Received>);

/// A connection.
pub struct Conn {
    stream: Rc<UnixStream>,
    inbox: mpsc::Receiver<Arrival>,
    /// What came while something else was waited for.
    early: Option<Arrival>,
    signals: VecDeque<i32>,
    /// What this request holds.
    account: Account,
}

impl Conn {
    /// Opens the conversation: prefaces, then the call with its three streams.
    ///
    /// # Errors
    /// Another version, nonsense, or silence; a call that is too large, of which the shim is told.
    pub async fn open(
        stream: UnixStream,
        budget: &Budget,
    ) -> Result<(Self, Call, [Received; 3]), FrameError> {
        let stream = Rc::new(stream);
        let mut account = budget.account();
        write_all(&stream, &PREFACE).await?;
        let mut fds = Vec::new();
        let opening = async {
            let mut preface = [0; 4];
            read_exact(&stream, &mut preface, &mut fds).await?;
            frame::check_preface(preface)?;
            let mut header = [0; 4];
            read_exact(&stream, &mut header, &mut fds).await?;
            frame::body_length(header)
        };
        let length = in_time(opening).await?;
        if let Err(refusal) = account.more(length).await {
            return Err(turned_away(&stream, &refusal).await);
        }
        let body = in_time(body(&stream, length, &mut fds)).await?;
        let FromShim::Call(call) = frame::decode(&body)? else {
            return Err(FrameError::Malformed);
        };
        drop(body);
        let entries = match counted(&call) {
            Ok(entries) => entries,
            Err(refusal) => {
                drop(call);
                return Err(turned_away(&stream, &refusal).await);
            }
        };
        if let Err(refusal) = account.more(length + entries * ENTRY).await {
            drop(call);
            return Err(turned_away(&stream, &refusal).await);
        }
        let streams: [Received; 3] = fds.try_into().map_err(|_| FrameError::Malformed)?;
        // Few: a shim that sends more than it is asked for waits.
        let (sender, inbox) = mpsc::channel(1);
        let reader = Rc::clone(&stream);
        tokio::task::spawn_local(async move {
            loop {
                let mut fds = Vec::new();
                let arrival = tokio::select! {
                    arrival = receive(&reader, &mut fds) => arrival,
                    () = sender.closed() => return,
                };
                let Ok(arrival) = arrival else { return };
                if sender.send(arrival).await.is_err() {
                    return;
                }
            }
        });
        let conn = Self {
            stream,
            inbox,
            early: None,
            signals: VecDeque::new(),
            account,
        };
        Ok((conn, call, streams))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The shim is gone.
    pub async fn send(&self, message: &ToShim) -> Result<(), FrameError> {
        write_all(&self.stream, &frame::encode(message)?).await?;
        Ok(())
    }

    /// Writes to a standard stream of the shim.
    ///
    /// # Errors
    /// The shim is gone.
    pub async fn output(&self, stream: Stream, bytes: &[u8]) -> Result<(), FrameError> {
        for part in bytes.chunks(PART) {
            let bytes = part.to_vec();
            self.send(&ToShim::Output { stream, bytes }).await?;
        }
        Ok(())
    }

    /// The next event. Cancel-safe.
    pub async fn event(&mut self) -> Event {
        if let Some(signal) = self.signals.pop_front() {
            return Event::Signal(signal);
        }
        match self.next().await {
            Some((FromShim::Signal(signal), _)) => Event::Signal(signal),
            // An answer that nobody asked for.
            Some(_) | None => Event::Gone,
        }
    }

    /// What came next. Cancel-safe.
    async fn next(&mut self) -> Option<Arrival> {
        match self.early.take() {
            None => self.inbox.recv().await,
            early => early,
        }
    }

    /// Keeps a signal for [`Self::event`]; of each kind the last counts.
    fn keep(&mut self, signal: i32) {
        self.signals.retain(|&kept| kept != signal);
        self.signals.push_back(signal);
        if self.signals.len() > MOST_SIGNALS {
            self.signals.pop_front();
        }
    }

    /// Makes room for a part of a file, however long that takes.
    async fn room(&mut self, bytes: usize) -> Result<(), Unanswered> {
        let Self {
            account,
            inbox,
            early,
            signals: _,
            stream: _,
        } = self;
        let mut ended = None;
        let made = {
            let room = account.more(bytes);
            tokio::pin!(room);
            loop {
                tokio::select! {
                    biased;
                    made = &mut room => break made,
                    came = inbox.recv(), if early.is_none() => match came {
                        Some((FromShim::Signal(signal), _)) if DEADLY.contains(&signal) => {
                            ended = Some(Unanswered::Interrupted(signal));
                            break Ok(());
                        }
                        Some(other) => *early = Some(other),
                        None => {
                            ended = Some(Unanswered::Gone);
                            break Ok(());
                        }
                    },
                }
            }
        };
        match (ended, made) {
            (Some(ended), _) => Err(ended),
            (None, Ok(())) => Ok(()),
            (None, Err(_)) => Err(Unanswered::TooLong),
        }
    }

    /// The next answer; signals that end a process and come first end the waiting.
    async fn answer(&mut self) -> Result<Arrival, Unanswered> {
        loop {
            match self.next().await {
                Some((FromShim::Signal(signal), _)) if DEADLY.contains(&signal) => {
                    return Err(Unanswered::Interrupted(signal));
                }
                Some((FromShim::Signal(signal), _)) => self.keep(signal),
                Some((FromShim::Failed(errno), _)) => return Err(Unanswered::Failed(errno)),
                Some(arrival) => return Ok(arrival),
                None => return Err(Unanswered::Gone),
            }
        }
    }

    /// Has the shim read something inside the jail, at most `most` bytes.
    ///
    /// # Errors
    /// See [`Unanswered`].
    pub async fn fetch(&mut self, source: Source, most: usize) -> Result<Vec<u8>, Unanswered> {
        let wish = ToShim::Fetch {
            source,
            most: most as u64,
        };
        self.send(&wish).await.map_err(|_| Unanswered::Gone)?;
        let mut content = Vec::new();
        loop {
            match self.answer().await? {
                (FromShim::Content(part), _) => {
                    self.room(part.len() * COPIES).await?;
                    content.extend_from_slice(&part);
                }
                (FromShim::ContentEnds, _) => break,
                _ => return Err(Unanswered::Gone),
            }
            if content.len() > most {
                return Err(Unanswered::TooLong);
            }
        }
        Ok(content)
    }

    /// Has the shim open a file inside the jail.
    ///
    /// # Errors
    /// See [`Unanswered`].
    pub async fn open_inside(&mut self, path: &[u8], how: How) -> Result<Received, Unanswered> {
        let wish = ToShim::Open {
            path: path.to_vec(),
            how,
        };
        self.send(&wish).await.map_err(|_| Unanswered::Gone)?;
        match self.answer().await? {
            (FromShim::Opened, mut fds) if fds.len() == 1 => fds.pop().ok_or(Unanswered::Gone),
            _ => Err(Unanswered::Gone),
        }
    }

    /// Has the shim look whether a file could be written inside the jail: its directory as far as it exists, the
    /// next name, which does not, and the `errno` of a write there.
    ///
    /// # Errors
    /// See [`Unanswered`].
    pub async fn look_inside(
        &mut self,
        directory: &[u8],
        file: Option<&[u8]>,
    ) -> Result<(Vec<u8>, Vec<u8>, i32), Unanswered> {
        let wish = ToShim::Look {
            directory: directory.to_vec(),
            file: file.map(<[u8]>::to_vec),
        };
        self.send(&wish).await.map_err(|_| Unanswered::Gone)?;
        match self.answer().await? {
            (
                FromShim::Looked {
                    directory,
                    missing,
                    refused,
                },
                _,
            ) => Ok((directory, missing, refused)),
            _ => Err(Unanswered::Gone),
        }
    }

    /// Has the shim start a command inside the jail; an empty `argv` is the user's shell.
    ///
    /// # Errors
    /// The shim is gone.
    pub async fn start_inside(
        &mut self,
        argv: Vec<Vec<u8>>,
        environment: Vec<Vec<u8>>,
    ) -> Result<(), Unanswered> {
        let wish = ToShim::Run { argv, environment };
        self.send(&wish).await.map_err(|_| Unanswered::Gone)
    }

    /// Waits for the end of that command. Cancel-safe. A signal that ends a process is given as
    /// [`Unanswered::Interrupted`]; the command runs on, and this can be called again.
    ///
    /// # Errors
    /// See [`Unanswered`].
    pub async fn ended_inside(&mut self) -> Result<End, Unanswered> {
        match self.answer().await? {
            (FromShim::RunEnded(end), _) => Ok(end),
            _ => Err(Unanswered::Gone),
        }
    }
}

async fn write_all(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `buffer`, and collects descriptors that come with its bytes.
async fn read_exact(
    stream: &UnixStream,
    buffer: &mut [u8],
    fds: &mut Vec<Received>,
) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        stream.readable().await?;
        let rest = &mut buffer[filled..];
        match stream.try_io(Interest::READABLE, || sys::receive(stream, rest, fds)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The next message behind the call. Nothing that is asked for is long.
async fn receive(stream: &UnixStream, fds: &mut Vec<Received>) -> Result<Arrival, FrameError> {
    let mut header = [0; 4];
    read_exact(stream, &mut header, fds).await?;
    let length = frame::body_length(header)?;
    if length > LONGEST_ANSWER {
        return Err(FrameError::TooLong(length));
    }
    let body = body(stream, length, fds).await?;
    Ok((frame::decode(&body)?, std::mem::take(fds)))
}

/// A message as it came. Memory for it is taken as it arrives.
async fn body(
    stream: &UnixStream,
    length: usize,
    fds: &mut Vec<Received>,
) -> Result<Vec<u8>, FrameError> {
    let mut body = Vec::new();
    while body.len() < length {
        let from = body.len();
        body.resize(length.min(from + PART), 0);
        read_exact(stream, &mut body[from..], fds).await?;
    }
    Ok(body)
}

/// Does not wait for a shim for ever.
async fn in_time<T>(work: impl Future<Output = Result<T, FrameError>>) -> Result<T, FrameError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

/// How many words and variables a call has.
fn counted(call: &Call) -> Result<usize, Refusal> {
    let (words, variables) = (call.arguments.len(), call.environment.len());
    if words > MOST_ARGUMENTS {
        return Err(Refusal::mistake(format!(
            "{words} arguments; {MOST_ARGUMENTS} may be given"
        )));
    }
    if variables > MOST_VARIABLES {
        return Err(Refusal::mistake(format!(
            "{variables} variables; {MOST_VARIABLES} may be set"
        ))
        .hint("start it with fewer, as with env --ignore-environment"));
    }
    Ok(words + variables)
}

/// Tells the shim why its call is not read. It does not wait for one that does not listen: the
/// message has room in an empty socket.
async fn turned_away(stream: &UnixStream, refusal: &Refusal) -> FrameError {
    let mut text = format!("agent-sandbox: error: {}\n", refusal.message);
    for hint in &refusal.hints {
        text.push_str(&format!("agent-sandbox: hint: {hint}\n"));
    }
    let output = ToShim::Output {
        stream: Stream::Error,
        bytes: text.into_bytes(),
    };
    for message in [output, ToShim::End(End::FAILURE)] {
        let Ok(frame) = frame::encode(&message) else {
            break;
        };
        if write_all(stream, &frame).await.is_err() {
            break;
        }
    }
    FrameError::TooLong(LONGEST)
}
