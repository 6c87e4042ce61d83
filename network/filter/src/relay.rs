//! Bytes both ways, until both ends have said that they are done.

use std::cell::RefCell;
use std::io;

use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::consume_budget;

/// Bytes that are moved at once: as many as a socket's buffer usually has at a time.
const MOST_AT_ONCE: usize = 256 * 1024;
/// Buffers of that size for all connections, 16 MiB: those whose reader is slow hold one each. A connection on which nothing moves
/// has none.
const MOST_BUFFERS: usize = 64;
/// Bytes that are moved at once where there are no more of them. With both directions of every connection they are 8 MiB.
const LEAST_AT_ONCE: usize = 4096;
/// Buffers that are kept for the next connection.
const MOST_FREE: usize = 2;

/// The buffers of this thread, which serves all connections.
#[derive(Default)]
struct Pool {
    free: Vec<Box<[u8]>>,
    given: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// A buffer of the pool's, which gets it back.
struct Buffer(Box<[u8]>);

impl Buffer {
    fn take() -> Self {
        POOL.with_borrow_mut(|pool| {
            if pool.given >= MOST_BUFFERS {
                return Self(vec![0; LEAST_AT_ONCE].into());
            }
            pool.given += 1;
            let free = pool.free.pop();
            Self(free.unwrap_or_else(|| vec![0; MOST_AT_ONCE].into()))
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.len() == MOST_AT_ONCE {
            POOL.with_borrow_mut(|pool| {
                pool.given -= 1;
                if pool.free.len() < MOST_FREE {
                    pool.free.push(std::mem::take(&mut self.0));
                }
            });
        }
    }
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

/// Its end closes the half that is written to.
async fn one_way(from: OwnedReadHalf, to: OwnedWriteHalf) -> io::Result<()> {
    loop {
        from.readable().await?;
        match what_there_is(&from, &to).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(e) => return broken(to, e),
        }
    }
}

/// Has the other end see a reset as well: after an end it would take what has come for all.
fn broken(to: OwnedWriteHalf, error: io::Error) -> io::Result<()> {
    let _ = to.as_ref().set_zero_linger();
    to.forget();
    Err(error)
}

/// Moves what has come until no more is there; whether more may come. It reads only when all that it has read is written, so
/// whoever reads slowly keeps the other end waiting.
async fn what_there_is(from: &OwnedReadHalf, to: &OwnedWriteHalf) -> io::Result<bool> {
    let mut buffer = Buffer::take();
    loop {
        let read = match from.try_read(&mut buffer.0) {
            Ok(0) => return Ok(false),
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(e) => return Err(e),
        };
        send(to, &buffer.0[..read]).await?;
        consume_budget().await;
    }
}

async fn send(to: &OwnedWriteHalf, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match to.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
