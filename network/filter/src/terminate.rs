//! TLS from inside that ends here, because a credential is exchanged in it.

use std::io;
use std::time::Duration;

use agent_sandbox_hosts::Host;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::http::{self, Proxy};
use crate::session::Session;

/// How long a program may take to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Speaks TLS as the host, and serves the requests in it.
pub(crate) async fn terminate(
    session: &Session,
    (host, port): (Host, u16),
    proxy: Proxy,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (Some(broker), Host::Name(name)) = (&session.broker, &host) else {
        return Ok(());
    };
    let acceptor = TlsAcceptor::from(broker.server(name)?);
    match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => http::serve(proxy, stream).await,
        // It speaks another TLS, or looks for certificates where the session's is not. Anything else is a connection that broke.
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            let why = format!(
                "a credential is exchanged there, and the program does not take the filter for it ({error})"
            );
            let _ = session.refuse(&host, port, &why);
            Err(error)
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
