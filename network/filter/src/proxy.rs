//! A proxy on the way out: a host is reached through it by `CONNECT` (RFC 9110, 9.3.6).

use std::io;

use agent_sandbox_hosts::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The head of an answer, in bytes, and its headers. Ours is a line or two.
const MOST_OF_HEAD: usize = 16 * 1024;
const MOST_HEADERS: usize = 64;

/// A proxy, and what it wants to be told.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The value of `Proxy-Authorization`. There is a password in it.
    pub authorization: Option<String>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

impl Proxy {
    /// A connection to a host, by this proxy. What the name means is the proxy's to say.
    pub(crate) async fn connect(&self, host: &Host, port: u16) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let authorization = self.authorization.as_ref();
        let authorization = authorization.map(|value| format!("Proxy-Authorization: {value}\r\n"));
        let head = format!(
            "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{}\r\n",
            authorization.unwrap_or_default()
        );
        stream.write_all(head.as_bytes()).await?;
        // What follows the head is the host's, and stays in the socket.
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() == MOST_OF_HEAD {
                return Err(io::Error::other("the site's proxy answers at length"));
            }
            answer.push(stream.read_u8().await?);
        }
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Response::new(&mut headers);
        match parsed.parse(&answer).map(|_| parsed.code) {
            Ok(Some(200..=299)) => Ok(stream),
            Ok(Some(code)) => Err(io::Error::other(format!("the site's proxy answers {code}"))),
            Ok(None) | Err(_) => Err(io::Error::other("the site's proxy does not speak HTTP")),
        }
    }
}
