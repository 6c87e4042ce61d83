//! A connection with a shim: messages both ways, descriptors, and signals that arrive at any time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use agent_sandbox_wire::frame::{self, FrameError, PART, PREFACE};
use agent_sandbox_wire::message::{Call, End, FromShim, How, Source, Stream, ToShim};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::sys;

/// How long a shim may take to say what it wants. It does so at once.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// More than was asked for.
    TooLong,
    /// This signal came first.
    Interrupted(i32),
    /// The shim is gone, or talks nonsense.
    Gone,
}

type Arrival = (FromShim, Vec<OwnedFd>);

/// A connection.
pub struct Conn {
    stream: Rc<UnixStream>,
    inbox: mpsc::Receiver<Arrival>,
    signals: VecDeque<i32>,
}

impl Conn {
    /// Opens the conversation: prefaces, then the call with its three streams.
    ///
    /// # Errors
    /// Another version, nonsense, or silence.
    pub async fn open(stream: UnixStream) -> Result<(Self, Call, [OwnedFd; 3]), FrameError> {
        let stream = Rc::new(stream);
        write_all(&stream, &PREFACE).await?;
        let opening = async {
            let mut fds = Vec::new();
            let mut preface = [0; 4];
            read_exact(&stream, &mut preface, &mut fds).await?;
            frame::check_preface(preface)?;
            receive(&stream, &mut fds).await
        };
        let (first, fds) = tokio::time::timeout(PATIENCE, opening)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let FromShim::Call(call) = first else {
            return Err(FrameError::Malformed);
        };
        let streams: [OwnedFd; 3] = fds.try_into().map_err(|_| FrameError::Malformed)?;
        // Few: a shim that sends more than it is asked for waits.
        let (sender, inbox) = mpsc::channel(4);
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
            signals: VecDeque::new(),
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
        match self.inbox.recv().await {
            Some((FromShim::Signal(signal), _)) => Event::Signal(signal),
            // An answer that nobody asked for.
            Some(_) | None => Event::Gone,
        }
    }

    /// The next answer; signals that end a process and come first end the waiting.
    async fn answer(&mut self) -> Result<Arrival, Unanswered> {
        loop {
            match self.inbox.recv().await {
                Some((FromShim::Signal(signal), _)) => match signal {
                    libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                        return Err(Unanswered::Interrupted(signal));
                    }
                    _ => self.signals.push_back(signal),
                },
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
                (FromShim::Content(part), _) => content.extend_from_slice(&part),
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
    pub async fn open_inside(&mut self, path: &[u8], how: How) -> Result<OwnedFd, Unanswered> {
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
    fds: &mut Vec<OwnedFd>,
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

/// The next message. Memory for it is taken as it arrives.
async fn receive(stream: &UnixStream, fds: &mut Vec<OwnedFd>) -> Result<Arrival, FrameError> {
    let mut header = [0; 4];
    read_exact(stream, &mut header, fds).await?;
    let length = frame::body_length(header)?;
    let mut body = Vec::new();
    while body.len() < length {
        let from = body.len();
        body.resize(length.min(from + PART), 0);
        read_exact(stream, &mut body[from..], fds).await?;
    }
    Ok((frame::decode(&body)?, std::mem::take(fds)))
}
