//! Bytes both ways, until both ends have said that they are done.

use std::cell::RefCell;
use std::io;

use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::consume_budget;

/// Bytes that are moved at once: as many as a socket's buffer usually has at a time. One buffer serves all connections, since
/// none waits while it holds it; so a connection on which nothing moves has none.
const MOST_AT_ONCE: usize = 256 * 1024;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MOST_AT_ONCE]);
}

/// Moves bytes until both directions have ended. The end of one is passed on, and the other goes on.
pub(crate) async fn relay(inside: TcpStream, outside: TcpStream) -> io::Result<()> {
    let _ = (inside.set_nodelay(true), outside.set_nodelay(true));
    let (from_inside, to_inside) = inside.into_split();
    let (from_outside, to_outside) = outside.into_split();
    tokio::try_join!(
        one_way(from_inside, to_outside),
        one_way(from_outside, to_inside)
    )
    .map(|_| ())
}

/// What [`step`] found.
enum Step {
    Moved(Vec<u8>),
    End,
}

/// Its end closes the half that is written to.
async fn one_way(from: OwnedReadHalf, to: OwnedWriteHalf) -> io::Result<()> {
    loop {
        from.readable().await?;
        let rest = match step(&from, &to) {
            Ok(Step::Moved(rest)) => rest,
            Ok(Step::End) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return broken(to, e),
        };
        if let Err(e) = send(&to, &rest).await {
            return broken(to, e);
        }
        consume_budget().await;
    }
}

/// Has the other end see a reset as well: after an end it would take what has come for all.
fn broken(to: OwnedWriteHalf, error: io::Error) -> io::Result<()> {
    let _ = to.as_ref().set_zero_linger();
    to.forget();
    Err(error)
}

/// Reads what there is, and writes as much of it as fits: gives the rest.
fn step(from: &OwnedReadHalf, to: &OwnedWriteHalf) -> io::Result<Step> {
    BUFFER.with_borrow_mut(|buffer| {
        let read = from.try_read(buffer)?;
        if read == 0 {
            return Ok(Step::End);
        }
        let written = match to.try_write(&buffer[..read]) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            written => written?,
        };
        Ok(Step::Moved(buffer[written..read].to_vec()))
    })
}

async fn send(to: &OwnedWriteHalf, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        to.writable().await?;
        match to.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
