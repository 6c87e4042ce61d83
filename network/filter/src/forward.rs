//! Ports of servers inside, for the user outside: whoever connects to a listener here is led to a port inside. This runs in a process
//! that stands in the jail's network itself, so that it reaches nothing but what listens there. The listeners come from outside;
//! what is inside cannot connect to them, it can only answer.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::relay::relay;
use crate::serve::BREATH;

/// Connections at once, over all ports: a page opens six of them, and a terminal in it one more.
pub const MOST_FORWARDED: usize = 256;
/// How long a program inside that listens may take to be connected to. It is on the loopback: one that takes longer has let its
/// queue fill up.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long a connection may go on inside after the user's end of it is gone: what was sent is still taken.
const LEFT: Duration = Duration::from_secs(10);

/// Leads whoever connects to one of these listeners to its port inside, until `life` says something or ends.
///
/// # Errors
/// A listener cannot be waited for.
pub fn forward(listeners: Vec<(u16, UnixListener)>, life: OwnedFd) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let room = Arc::new(Semaphore::new(MOST_FORWARDED));
        for (port, listener) in listeners {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::UnixListener::from_std(listener)?;
            tokio::spawn(listen(port, listener, Arc::clone(&room)));
        }
        let life = std::os::unix::net::UnixStream::from(life);
        life.set_nonblocking(true)?;
        UnixStream::from_std(life)?.readable().await
    })
}

/// Takes connections until it is dropped. One more than there is room for ends at once.
async fn listen(port: u16, listener: tokio::net::UnixListener, room: Arc<Semaphore>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            continue;
        };
        tokio::spawn(async move {
            // An error here is a connection that broke, which both ends see.
            let _ = lead(client, port).await;
            drop(permit);
        });
    }
}

/// Leads a client to a port inside, if somebody listens there.
async fn lead(client: UnixStream, port: u16) -> io::Result<()> {
    let inside = timeout(CONNECTING, connect(port)).await??;
    let client = client.into_std()?;
    let gone = gone(client.as_fd().try_clone_to_owned()?)?;
    // Both are streams, and the calls are the same.
    let client = TcpStream::from_std(OwnedFd::from(client).into())?;
    tokio::select! {
        led = relay(inside, client) => led,
        () = async { gone.await; sleep(LEFT).await } => Ok(()),
    }
}

/// A connection to a port of the loopback.
async fn connect(port: u16) -> io::Result<TcpStream> {
    let addresses = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ];
    let stream = TcpStream::connect(&addresses[..]).await?;
    // A port that nobody has may be given to the end that connects, which is then connected to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// What ends when the other end of a local socket is closed, and not only done with writing.
fn gone(socket: OwnedFd) -> io::Result<impl Future<Output = ()>> {
    // With events of its own: they come once, and the other descriptor's are the relay's.
    let socket = UnixStream::from_std(socket.into())?;
    Ok(async move {
        while let Ok(ready) = socket.ready(Interest::WRITABLE).await {
            if ready.is_write_closed() {
                return;
            }
            // Waits for the next event.
            let again = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = socket.try_io(Interest::WRITABLE, again);
        }
    })
}
