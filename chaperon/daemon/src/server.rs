//! Accepts connections, checks who calls, bounds how many, and ends with the session.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use agent_sandbox_wire::budget::CALL;
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::frame::UPGRADED;
use agent_sandbox_wire::message::{Call, End, Stream, ToShim};
use agent_sandbox_wire::order::{self, Order};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::Instant;
use tracing::Instrument;

use crate::audit::{Entry, Verdict};
use crate::closing::{self, Received};
use crate::conn::Conn;
use crate::logging;
use crate::session::Session;
use crate::slurm::ask::{Stop, attended};
use crate::slurm::request::{Context, Request};
use crate::slurm::{commands, errand, intents, submitted};
use crate::sys;
use crate::variables::variable;

/// Connections served at the same time; more wait. Each has four descriptors and may have a
/// process.
const MOST_CONNECTIONS: usize = 200;

/// How long to wait for descriptors to come back.
const PAUSE: Duration = Duration::from_millis(50);

/// How long an sbatch may go on when the session is over: as long as one whose shim is gone, and the time
/// in which it ends then. The launcher waits for longer.
const GRACE: Duration = Duration::from_secs(6);

/// The largest order, in bytes. It holds a user's policy.
const LARGEST_ORDER: u64 = 16 << 20;

/// Serves a session until the launcher is gone. The arguments are numbers of inherited
/// descriptors: the order, the session's standard error, the listening socket, and a pipe or socket that ends with the launcher.
///
/// # Errors
/// A descriptor is not what it should be.
pub fn serve(order: i32, errors: i32, listen: i32, life: i32) -> io::Result<()> {
    let [order, errors, listen, life] = [order, errors, listen, life].map(sys::inherited);
    let (order, errors, listen, life) = (order?, errors?, listen?, life?);
    sys::harden()?;
    let order = match read_order(order) {
        Ok(order) => order,
        Err(error) => {
            eprintln!("agent-sandbox-chaperon: error: {error}");
            return refuse(listen, life);
        }
    };
    let runtime = runtime()?;
    let local = LocalSet::new();
    let served = local.block_on(&runtime, async {
        let (listener, mut life) = sockets(listen, life)?;
        let session = Rc::new(Session::new(order).telling(errors));
        logging::start(session.audit.layer());
        let Order {
            snapshot, scope, ..
        } = &session.order;
        tracing::info!(target: "chaperon", session = %snapshot.session, ?scope, "serving");
        // Jobs of a chaperon that was ended while it submitted them.
        if intents::any(&session) {
            let session = Rc::clone(&session);
            tokio::task::spawn_local(async move { submitted::resolve(&session).await });
        }
        let mut byte = [0];
        let served = tokio::select! {
            // Nothing is ever said on it.
            _ = life.read(&mut byte) => Ok(()),
            error = accept(&listener, &session) => Err(error),
        };
        // What is inside is gone; what it has submitted gets its record.
        let deadline = Instant::now() + GRACE;
        while submitted::is_submitting(&session) && Instant::now() < deadline {
            tokio::time::sleep(PAUSE).await;
        }
        session.query_cache.clear();
        session.audit.close();
        tracing::info!(target: "chaperon", "session is over");
        served
    });
    // Tasks end here; each asks its command to end as it goes.
    drop(local);
    // A thread that still writes a file (on a file system that hangs) holds nothing up.
    runtime.shutdown_background();
    served
}

fn read_order(fd: OwnedFd) -> io::Result<Order> {
    let mut text = Vec::new();
    File::from(fd).take(LARGEST_ORDER).read_to_end(&mut text)?;
    order::decode(&text).map_err(io::Error::other)
}

fn runtime() -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().enable_time().build()
}

/// The socket of requests, and that which ends with the session; inside of a runtime.
fn sockets(listen: OwnedFd, life: OwnedFd) -> io::Result<(UnixListener, UnixStream)> {
    let listener = std::os::unix::net::UnixListener::from(listen);
    listener.set_nonblocking(true)?;
    let life = std::os::unix::net::UnixStream::from(life);
    life.set_nonblocking(true)?;
    Ok((
        UnixListener::from_std(listener)?,
        UnixStream::from_std(life)?,
    ))
}

/// Says to whoever calls that this chaperon is not their session's, until the launcher is gone.
fn refuse(listen: OwnedFd, life: OwnedFd) -> io::Result<()> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let (listener, mut life) = sockets(listen, life)?;
        let mut byte = [0];
        loop {
            tokio::select! {
                // Nothing is ever said on it.
                _ = life.read(&mut byte) => return Ok(()),
                caller = listener.accept() => match caller {
                    // Who is gone needs no answer.
                    Ok((mut stream, _)) => { let _ = stream.write_all(&UPGRADED).await; }
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
            }
        }
    })
}

async fn accept(listener: &UnixListener, session: &Rc<Session>) -> io::Error {
    let room = std::sync::Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = std::sync::Arc::clone(&room).acquire_owned().await else {
            return io::ErrorKind::Other.into();
        };
        while closing::is_full() {
            tokio::time::sleep(PAUSE).await;
        }
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of descriptors, for instance: those in use come back.
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let session = Rc::clone(session);
        tokio::task::spawn_local(async move {
            serve_one(&session, stream).await;
            drop(place);
            sys::release_memory();
        });
    }
}

/// Serves one shim. Problems of the conversation end it; there is nobody to tell.
async fn serve_one(session: &Rc<Session>, stream: UnixStream) {
    let Ok(peer) = stream.peer_cred() else { return };
    // The socket exists inside this session's jail alone; this keeps out what a setuid program in
    // it might do.
    if peer.uid() != session.order.uid {
        tracing::warn!(target: "chaperon", uid = peer.uid(), "another user was turned away");
        return;
    }
    let (mut conn, call, streams) = match Conn::open(stream, &session.requests).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::info!(target: "chaperon", %error, "a conversation ended before a request");
            return;
        }
    };
    let begun = Instant::now();
    let mut entry = Entry::new(&call, peer.pid().unwrap_or(0));
    let request =
        tracing::info_span!(target: "slurm", "request", command = entry.name(), pid = entry.pid);
    let answer = answer(session, &mut conn, call, streams, &mut entry);
    let end = answer.instrument(request.clone()).await;
    session.audit.write(&entry);
    request.in_scope(|| {
        let reason = entry.reason.as_ref().map(tracing::field::display);
        tracing::info!(
            target: "slurm", verdict = ?entry.verdict, reason, jobs = entry.jobs.len(), ?end,
            took = ?begun.elapsed(), "answered"
        );
    });
    drop(request);
    let _ = conn.send(&ToShim::End(end)).await;
}

/// `agent-sandbox budget`, inside.
async fn budget(session: &Rc<Session>, conn: &mut Conn, call: &Call, entry: &mut Entry) -> End {
    let json = call.arguments.iter().any(|word| word == b"--json");
    match attended(conn, errand::budget(session, json)).await {
        Ok(text) => {
            let _ = conn.output(Stream::Output, text.as_bytes()).await;
            End::SUCCESS
        }
        Err(Stop::Ended(end)) => end,
        Err(Stop::Refused(refusal)) => {
            entry.verdict = Verdict::Failed;
            entry.reason = Some(refusal.reason);
            let text = format!("agent-sandbox: error: {refusal}\n");
            let _ = conn.output(Stream::Error, text.as_bytes()).await;
            End::FAILURE
        }
    }
}

async fn answer(
    session: &Rc<Session>,
    conn: &mut Conn,
    call: Call,
    streams: [Received; 3],
    entry: &mut Entry,
) -> End {
    let name = String::from_utf8_lossy(&call.command).into_owned();
    if call.command == CALL.as_bytes() {
        return budget(session, conn, &call, entry).await;
    }
    let Some(command) = Command::named(&call.command) else {
        entry.verdict = Verdict::Refused;
        let text = format!(
            "agent-sandbox: `{}` is no command of Slurm's\n",
            name.escape_debug()
        );
        let _ = conn.output(Stream::Error, text.as_bytes()).await;
        return End::Code(127);
    };
    let request = Request {
        command,
        arguments: call
            .arguments
            .iter()
            .map(|word| OsStr::from_bytes(word).to_owned())
            .collect(),
        cwd: PathBuf::from(OsStr::from_bytes(&call.cwd)),
        environment: call
            .environment
            .iter()
            .filter_map(|entry| variable(entry))
            .collect(),
        umask: call.umask & 0o777,
    };
    drop(call);
    let mut context = Context {
        session: Rc::clone(session),
        conn,
        request,
        streams: Some(streams),
        entry,
    };
    match commands::run(&mut context).await {
        Ok(end) => end,
        Err(refusal) => {
            entry.verdict = if refusal.by_rule {
                Verdict::Refused
            } else {
                Verdict::Failed
            };
            entry.reason = Some(refusal.reason);
            let mut text = format!("{command}: error: {}\n", refusal.message);
            for hint in &refusal.hints {
                text.push_str(&format!("{command}: hint: {hint}\n"));
            }
            let _ = conn.output(Stream::Error, text.as_bytes()).await;
            End::Code(refusal.code)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    use agent_sandbox_wire::frame::UPGRADED;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test: nothing forks here")]
    fn a_chaperon_without_its_sessions_order_says_so_to_each_caller() {
        let name = format!("agent-sandbox-chaperon.{}", std::process::id());
        let at = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&at).unwrap();
        let (life, theirs) = UnixStream::pair().unwrap();
        let serving = std::thread::spawn(|| super::refuse(listener.into(), theirs.into()));
        for _ in 0..3 {
            let mut said = Vec::new();
            let mut caller = UnixStream::connect_addr(&at).unwrap();
            caller.read_to_end(&mut said).unwrap();
            assert_eq!(said, UPGRADED);
        }
        drop(life);
        serving.join().unwrap().unwrap();
    }
}
