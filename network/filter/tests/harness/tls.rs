//! TLS of a test's own: authorities, servers that say what they were sent, and clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::{PATIENCE, server};

/// An authority outside.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its certificate.
    pub(crate) fn pem(&self) -> String {
        use base64::Engine;
        let text = base64::prelude::BASE64_STANDARD.encode(self.0.der());
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }

    /// What a server with a certificate for this name needs; `days` says when it ends.
    pub(crate) fn server(&self, name: &str, days: i64) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        let now = time::OffsetDateTime::now_utc();
        params.not_before = now - time::Duration::days(9);
        params.not_after = now + time::Duration::days(days);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_no_client_auth();
        Arc::new(
            builder
                .with_single_cert(vec![leaf.der().clone()], key)
                .unwrap(),
        )
    }
}

/// A server that answers each request with `answer`; what it was sent.
pub(crate) fn tls_server(
    at: &str,
    config: Arc<ServerConfig>,
    answer: &'static str,
) -> Receiver<String> {
    tls_server_that(at, config, move |_| answer.to_owned())
}

/// The same, which answers what it is asked.
pub(crate) fn tls_server_that(
    at: &str,
    config: Arc<ServerConfig>,
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> Receiver<String> {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    server(at, move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        // Who does not trust the certificate sends nothing.
        let Ok(request) = request(&mut stream) else {
            return;
        };
        let answer = answer(&request);
        tell.lock().unwrap().send(request).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
    told
}

/// One request, with a body as long as it says.
pub(crate) fn request(stream: &mut impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        text.push(char::from(byte[0]));
    }
    let length = text
        .to_lowercase()
        .lines()
        .find_map(|line| Some(line.strip_prefix("content-length: ")?.parse().unwrap()));
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok(text + &String::from_utf8(body).unwrap())
}

/// Speaks TLS as a program does that trusts these, and asks for `name`.
pub(crate) fn tls_client(
    trusted: &str,
    name: &str,
    stream: TcpStream,
) -> StreamOwned<ClientConnection, TcpStream> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(trusted.as_bytes()).flatten());
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::new(config), name).unwrap(),
        stream,
    )
}

/// Sends a request, and gives the answer or why there is none.
pub(crate) fn asked(mut stream: impl Read + Write, request: &str) -> Result<String, String> {
    let mut answer = Vec::new();
    stream
        .write_all(request.as_bytes())
        .map_err(|error| error.to_string())?;
    stream
        .read_to_end(&mut answer)
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8(answer).unwrap())
}
