//! HTTP: each request is parsed, judged, and written anew. Of what a program sent, the method, the path, its headers and the body
//! go on; how they are framed, and to whom, is ours. Where credentials are exchanged, it goes on by TLS.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent_sandbox_hosts::{Host, Name, Rule};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::ext::ReasonPhrase;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::dial::{Unreached, dial};
use crate::event::{Event, Verdict};
use crate::exchange::{Exchange, Used};
use crate::place::Place;
use crate::session::Session;

/// How long a head may take, and how large it may be: servers take 8 to 64 KiB.
const HEAD: Duration = Duration::from_secs(30);
const MOST_OF_HEAD: usize = 64 * 1024;
/// What is said of an error is no longer, in bytes, where a credential was sent.
const MOST_OF_ERROR: usize = 64 * 1024;

/// The port that a request over TLS does not name.
const TLS: u16 = 443;

/// Headers about one connection (RFC 9110, 7.6.1): each of ours has its own.
const HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

type Body = Either<Incoming, Full<Bytes>>;

/// A connection that speaks HTTP, and the one that its requests go to.
pub(crate) struct Proxy {
    session: Arc<Session>,
    place: Arc<Place>,
    host: Host,
    port: u16,
    by: Rule,
    dialled: Mutex<Option<TcpStream>>,
    upstream: Mutex<Option<SendRequest<Body>>>,
    /// What is exchanged; then the host is spoken to by TLS.
    exchange: Option<Exchange>,
}

/// A connection and what was read from it already, as one stream.
pub(crate) fn rejoined(
    stream: TcpStream,
    first: Vec<u8>,
) -> impl AsyncRead + AsyncWrite + Unpin + Send {
    let (read, write) = stream.into_split();
    tokio::io::join(io::Cursor::new(first).chain(read), write)
}

/// Serves requests until the connection ends.
pub(crate) async fn serve(
    proxy: Proxy,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let service = service_fn(|request| async { Ok::<_, Infallible>(proxy.answer(request).await) });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MOST_OF_HEAD)
        .preserve_header_case(true)
        .half_close(true)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await
        .map_err(io::Error::other)
}

impl Proxy {
    /// For requests to a host that a rule allows; `dialled` is a connection to it, if there is one.
    pub(crate) fn new(
        session: &Arc<Session>,
        place: &Arc<Place>,
        (host, port): (Host, u16),
        by: &Rule,
        dialled: Option<TcpStream>,
        exchange: Option<Exchange>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            place: Arc::clone(place),
            host,
            port,
            by: by.clone(),
            dialled: Mutex::new(dialled),
            upstream: Mutex::new(None),
            exchange,
        }
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        if let Err(fault) = self.judge(&request) {
            let event = self.session.refuse(&self.host, self.port, &fault);
            return plain(StatusCode::FORBIDDEN, &event.line());
        }
        let websocket = is_websocket(request.headers());
        let inside = websocket.then(|| hyper::upgrade::on(&mut request));
        self.rewrite(&mut request, websocket);
        let used = self.reveal(&mut request);
        let mut answer = match self.send(request).await {
            Ok(answer) => answer,
            Err(line) => return plain(StatusCode::BAD_GATEWAY, &line),
        };
        if let Some(exchange) = &self.exchange {
            exchange.conceal(&used, answer.headers_mut());
            // Words of the server's own, which programs do not go by.
            answer.extensions_mut().remove::<ReasonPhrase>();
            let is_error = answer.status().is_client_error() || answer.status().is_server_error();
            if is_error && !used.is_empty() {
                return self.without_values(exchange, &used, answer).await;
            }
        }
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(inside) = inside else {
                return plain(
                    StatusCode::BAD_GATEWAY,
                    "agent-sandbox: the server changed the protocol unasked",
                );
            };
            let outside = hyper::upgrade::on(&mut answer);
            let (session, place) = (Arc::clone(&self.session), Arc::clone(&self.place));
            let (host, port) = (self.host.clone(), self.port);
            tokio::spawn(async move {
                if let (Ok(inside), Ok(outside)) = (inside.await, outside.await) {
                    let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut inside, &mut outside) => {}
                        () = session.forbidden(&host, port, &place) => {}
                    }
                }
            });
        } else {
            remove_hop(answer.headers_mut());
        }
        answer.map(Either::Left)
    }

    /// What a server says of an error, which may repeat what it was sent.
    async fn without_values(
        &self,
        exchange: &Exchange,
        used: &[Used<'_>],
        answer: Response<Incoming>,
    ) -> Response<Body> {
        let (mut head, body) = answer.into_parts();
        let encoding = head.headers.get(header::CONTENT_ENCODING);
        let plainly = encoding.is_none_or(|name| name == "identity");
        let body = timeout(HEAD, Limited::new(body, MOST_OF_ERROR).collect()).await;
        let (true, Ok(Ok(body))) = (plainly, body) else {
            let line = format!(
                "agent-sandbox: {}:{} answered {}; what it said besides could hold the credential and cannot be looked through",
                self.host, self.port, head.status
            );
            return plain(StatusCode::BAD_GATEWAY, &line);
        };
        let text = body.to_bytes();
        let text = exchange.concealed(used, &text).map_or(text, Bytes::from);
        remove_hop(&mut head.headers);
        head.headers.remove(header::CONTENT_LENGTH);
        Response::from_parts(head, Either::Right(Full::new(text)))
    }

    /// Whether a request is for the host that the connection is for.
    fn judge<B>(&self, request: &Request<B>) -> Result<(), String> {
        if request.method() == Method::CONNECT {
            return Err("CONNECT asks for a proxy, and this is none".to_owned());
        }
        if self.exchange.is_some() && is_echo(request.method()) {
            return Err("what is sent with a credential is not asked back".to_owned());
        }
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err("a request must have one header `Host`".to_owned());
        };
        let host = host.to_str().map_err(|_| "the header `Host` is no host")?;
        self.agree(host)?;
        match request.uri().authority() {
            Some(target) => self.agree(target.as_str()),
            None => Ok(()),
        }
    }

    fn agree(&self, said: &str) -> Result<(), String> {
        let no_host = || "the program asked for something that is no host over HTTP".to_owned();
        let (host, port) = authority(said).ok_or_else(no_host)?;
        if !self.session.agrees(&self.host, self.port, &host)
            || port.is_some_and(|port| port != self.port)
        {
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            return Err(format!("the program asked for {host}{port} over HTTP"));
        }
        Ok(())
    }

    fn rewrite(&self, request: &mut Request<Incoming>, websocket: bool) {
        let path = request
            .uri()
            .path_and_query()
            .cloned()
            .unwrap_or(PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path);
        *request.version_mut() = hyper::Version::HTTP_11;
        remove_hop(request.headers_mut());
        if websocket {
            request
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            request
                .headers_mut()
                .insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
    }

    /// Puts credentials in, and says whom the request is for where it came by another port.
    fn reveal(&self, request: &mut Request<Incoming>) -> Vec<Used<'_>> {
        let Some(exchange) = &self.exchange else {
            return Vec::new();
        };
        // It may have come without TLS, where another port is the usual one.
        let host = match self.port {
            TLS => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        };
        if let Ok(host) = HeaderValue::from_str(&host) {
            request.headers_mut().insert(header::HOST, host);
        }
        let used = exchange.reveal(request.headers_mut());
        if !used.is_empty() {
            // What it says of an error is looked through.
            let plainly = HeaderValue::from_static("identity");
            request
                .headers_mut()
                .insert(header::ACCEPT_ENCODING, plainly);
        }
        for one in &used {
            let verdict = Verdict::Exchanged {
                credential: one.credential.name.clone(),
            };
            self.session.tell(Event {
                host: self.host.to_string(),
                port: Some(self.port),
                inside: None,
                verdict,
            });
        }
        used
    }

    /// Sends a request on the connection there is, or a new one. Where the one that there was has ended meanwhile, a request that
    /// may be sent twice is.
    async fn send(&self, request: Request<Incoming>) -> Result<Response<Incoming>, String> {
        let mut upstream = self.upstream.lock().await;
        let ready = match upstream.take() {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let again = ready.as_ref().and_then(|_| copy_of(&request));
        let request = request.map(Either::Left);
        let sender = match ready {
            Some(sender) => upstream.insert(sender),
            None => upstream.insert(self.connect().await?),
        };
        let answer = match (sender.send_request(request).await, again) {
            (Err(e), Some(again)) if !e.is_parse() => {
                let sender = upstream.insert(self.connect().await?);
                sender.send_request(again).await
            }
            (answer, _) => answer,
        };
        answer.map_err(|e| {
            format!(
                "agent-sandbox: {}:{} gave no good answer: {e}",
                self.host, self.port
            )
        })
    }

    /// A connection for requests, the one that was dialled already or a new one: with credentials by TLS, and to nobody else
    /// than who proves to be the host.
    async fn connect(&self) -> Result<SendRequest<Body>, String> {
        let dialled = match self.dialled.lock().await.take() {
            Some(dialled) => dialled,
            None => dial(
                &self.session,
                &self.place,
                (&self.host, self.port),
                &self.by,
            )
            .await
            .map_err(|unreached| unreached.tell(&self.session, &self.host, self.port).line())?,
        };
        let _ = dialled.set_nodelay(true);
        if self.exchange.is_none() {
            return speak(dialled).await;
        }
        let (Some(broker), Host::Name(name)) = (&self.session.broker, &self.host) else {
            return Err("agent-sandbox: nothing can be exchanged here".to_owned());
        };
        let secured = timeout(HEAD, broker.connect(name, dialled)).await;
        match secured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(secured) => speak(secured).await,
            Err(error) => Err(Unreached::Failed(error)
                .tell(&self.session, &self.host, self.port)
                .line()),
        }
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Body>, String> {
    let (sender, connection) = hyper::client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .max_buf_size(MOST_OF_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| format!("agent-sandbox: {e}"))?;
    tokio::spawn(connection.with_upgrades());
    Ok(sender)
}

/// The same request once more, if whoever gets it twice does what it would do once (RFC 9110, 9.2.2), and it has no body.
fn copy_of(request: &Request<Incoming>) -> Option<Request<Body>> {
    if !request.method().is_idempotent() || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(Either::Right(Full::default()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    // How the names of headers are written.
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// The host and the port of `HOST[:PORT]`.
fn authority(text: &str) -> Option<(Host, Option<u16>)> {
    let authority: Authority = text.parse().ok()?;
    if text.contains('@') {
        return None;
    }
    let host = authority.host();
    let port = match authority.port() {
        Some(port) => Some(port.as_u16()),
        None if text.len() > host.len() => return None,
        None => None,
    };
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse();
    match literal {
        Ok(address) => Some((Host::Address(address), port)),
        Err(_) => Some((Host::Name(Name::from_wire(host).ok()?), port)),
    }
}

/// Whether a server answers with the request itself, headers included (RFC 9110, 9.3.8; IIS has a name of its own for it).
fn is_echo(method: &Method) -> bool {
    let names = ["TRACE", "TRACK"];
    names
        .iter()
        .any(|name| name.eq_ignore_ascii_case(method.as_str()))
}

/// WebSocket alone is let through: what it carries goes to the same host (RFC 6455), while HTTP/2 could name others.
fn is_websocket(headers: &hyper::HeaderMap) -> bool {
    let mut asked = headers.get_all(header::UPGRADE).iter();
    matches!((asked.next(), asked.next()), (Some(to), None) if to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Removes what is about one connection: known names, and those that `Connection` lists.
fn remove_hop(headers: &mut hyper::HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed
        .iter()
        .filter(|name| **name != header::HOST)
        .chain(&HOP)
    {
        headers.remove(name);
    }
}

fn plain(status: StatusCode, line: &str) -> Response<Body> {
    let mut answer = Response::new(Either::Right(Full::new(Bytes::from(format!("{line}\n")))));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn authorities_have_one_meaning_or_none() {
        let shown = |text| authority(text).map(|(host, port)| format!("{host} {port:?}"));
        for (text, means) in [
            ("a.example", "a.example None"),
            ("A.Example.:80", "a.example Some(80)"),
            ("1.2.3.4:1", "1.2.3.4 Some(1)"),
            ("[::1]:1", "[::1] Some(1)"),
            ("[2001:db8::1]", "[2001:db8::1] None"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(means), "{text}");
        }
        for text in [
            "",
            ":80",
            "a:",
            "a:b",
            "a:80:80",
            "a:99999",
            "a@b",
            "a:1@b",
            "a/b",
            "a b",
            "127.1",
            "0x7f.1",
            "[a]",
            "[::1",
            "[::1%25lo]",
            "a\0b",
            "a%2eb",
        ] {
            assert_eq!(shown(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_has_a_meaning_has_it_when_it_is_shown(text in "\\PC{0,20}|[a-z0-9.:@%/-]{0,20}|\\[[0-9a-f:]{0,9}\\](:[0-9]{1,5})?") {
            if let Some((host, port)) = authority(&text) {
                let shown = port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
                prop_assert_eq!(authority(&shown), Some((host, port)), "{}", text);
            }
        }
    }

    #[test]
    fn what_is_about_a_connection_goes() {
        let mut headers = hyper::HeaderMap::new();
        for (name, value) in [
            ("connection", "x-a, Host , te"),
            ("x-a", "1"),
            ("x-b", "2"),
            ("host", "a"),
            ("te", "trailers"),
            ("keep-alive", "9"),
        ] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        remove_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "x-b"]);
    }
}
