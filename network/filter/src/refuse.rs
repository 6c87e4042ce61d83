//! A connection that leads nowhere is told so in the words of its protocol, at once.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a program may take to say what it speaks, and then to read why it is refused.
const PATIENCE: Duration = Duration::from_secs(1);

/// TLS alerts (RFC 8446, 6.2).
const ACCESS_DENIED: u8 = 49;
const FATAL: u8 = 2;

/// Refuses a connection of which nothing was read.
pub(crate) async fn refuse(stream: TcpStream, line: &str) {
    let mut first = [0; 4];
    let _ = timeout(PATIENCE, stream.peek(&mut first)).await;
    refuse_after(stream, &first, line).await;
}

/// Refuses a connection that began with these bytes.
pub(crate) async fn refuse_after(mut stream: TcpStream, first: &[u8], line: &str) {
    let answer = match first {
        // An alert is a record of its own (RFC 8446, 5.1).
        [0x16, ..] => vec![21, 3, 3, 0, 2, FATAL, ACCESS_DENIED],
        [b'S', b'S', b'H', b'-', ..] => Vec::new(),
        [b'A'..=b'Z', ..] => {
            let length = line.len() + 1;
            let head =
                "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n";
            format!("{head}Content-Length: {length}\r\n\r\n{line}\n").into_bytes()
        }
        _ => Vec::new(),
    };
    if answer.is_empty() {
        return reset(&stream);
    }
    let told = async {
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        // What was sent and not read would reset the connection before the answer is read.
        tokio::io::copy(&mut (&mut stream).take(1 << 20), &mut tokio::io::sink()).await
    };
    let _ = timeout(PATIENCE, told).await;
}

/// Has the connection end with a reset when it is dropped: the program sees an error, not the end of an answer.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
