//! What the exchange of credentials needs: the values, the authority that vouches inside, and whom this host trusts outside.

use std::io;
use std::sync::Arc;

use agent_sandbox_hosts::{Credential, Host, Name, Secret};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::authority::{Authority, HTTP};
use crate::exchange::Exchange;

/// Exchanges credentials.
pub struct Broker {
    credentials: Vec<Credential>,
    authority: Authority,
    client: Arc<ClientConfig>,
}

impl Broker {
    /// For these credentials. `trusted` are the certificates, as PEM, by which hosts outside are known. Inside it vouches for the hosts of
    /// the credentials and for those in `vouches`, by a new key or by the one of [`Self::authority`] that is known there.
    ///
    /// # Errors
    /// None of the certificates can be read; no key can be made, or the one that is given is none.
    pub fn new(
        credentials: Vec<Credential>,
        vouches: &[Name],
        trusted: &[u8],
        known: Option<&Secret>,
    ) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        // One that cannot be read vouches for nobody.
        let (read, _) =
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(trusted).flatten());
        if read == 0 {
            return Err(io::Error::other(
                "there are no certificates by which hosts outside could be known",
            ));
        }
        if credentials.iter().any(|one| one.value.reveal().is_empty()) {
            return Err(io::Error::other("the value of a credential is empty"));
        }
        let each = credentials.iter().flat_map(|one| &one.hosts);
        let each = each.map(|(name, _)| name).chain(vouches);
        let mut hosts: Vec<Name> = each.cloned().collect();
        hosts.sort();
        hosts.dedup();
        let authority = Authority::new(&hosts, known, Arc::clone(&provider))?;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![HTTP.to_vec()];
        Ok(Self {
            credentials,
            authority,
            client: Arc::new(client),
        })
    }

    /// The certificate of the authority, as PEM: programs inside have to know it.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.authority.certificate()
    }

    /// Its key: another filter that has it is known by the same certificate.
    #[must_use]
    pub fn authority(&self) -> Secret {
        self.authority.key()
    }

    /// What is exchanged on connections to a host at a port.
    pub(crate) fn exchange(&self, host: &Host, port: u16) -> Option<Exchange> {
        match host {
            Host::Name(name) => Exchange::of(&self.credentials, name, port),
            Host::Address(_) => None,
        }
    }

    /// TLS as this host speaks it inside.
    pub(crate) fn server(&self, host: &Name) -> io::Result<Arc<ServerConfig>> {
        self.authority.server(host)
    }

    /// Speaks TLS with a host outside, which must prove that it is the one.
    pub(crate) async fn connect(
        &self,
        host: &Name,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.client))
            .connect(name, stream)
            .await
    }
}
