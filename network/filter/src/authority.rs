#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads the clock, by which certificates hold"
)]
//! A certificate authority for one session: it vouches inside, and inside alone, for the hosts whose credentials are exchanged.
//! Its key is in this process's memory only, and it can vouch for no other host.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_sandbox_hosts::{Name, Secret};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;
use zeroize::Zeroizing;

/// Longer than any session, and less than what some programs refuse (398 days).
const AUTHORITY_HOLDS: Duration = Duration::from_secs(365 * 24 * 3600);
/// A certificate for a host is made anew when half of this is over.
const LEAF_HOLDS: Duration = Duration::from_secs(24 * 3600);
/// The program inside and this one read the same clock, which may be set back.
const BEFORE: Duration = Duration::from_secs(3600);
/// Columns of PEM (RFC 7468, 2).
const COLUMNS: usize = 64;
/// What is spoken behind TLS (RFC 7301): what `http` parses.
pub(crate) const HTTP: &[u8] = b"http/1.1";

/// An authority, and the certificates that it has given.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    provider: Arc<CryptoProvider>,
    given: Mutex<HashMap<Name, (Instant, Arc<ServerConfig>)>>,
}

impl Authority {
    /// One for these hosts, with a key of its own or one that is known.
    pub(crate) fn new(
        hosts: &[Name],
        known: Option<&Secret>,
        provider: Arc<CryptoProvider>,
    ) -> io::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name = called("agent-sandbox: credentials of one session");
        let any = [
            CidrSubnet::from_v4_prefix(Ipv4Addr::UNSPECIFIED.octets(), 0),
            CidrSubnet::from_v6_prefix(Ipv6Addr::UNSPECIFIED.octets(), 0),
        ];
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: hosts
                .iter()
                .map(|host| GeneralSubtree::DnsName(host.to_string()))
                .collect(),
            // A list of names says nothing of addresses (RFC 5280, 4.2.1.10).
            excluded_subtrees: any.map(GeneralSubtree::IpAddress).into(),
        });
        hold(&mut params, AUTHORITY_HOLDS);
        let key = match known {
            Some(known) => {
                let key = BASE64_STANDARD.decode(known.reveal());
                let key = Zeroizing::new(key.map_err(|_| io::ErrorKind::InvalidData)?);
                KeyPair::try_from(key.as_slice())
            }
            None => KeyPair::generate(),
        };
        let key = key.map_err(io::Error::other)?;
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?,
            provider,
            given: Mutex::default(),
        })
    }

    /// Its certificate, as PEM.
    pub(crate) fn certificate(&self) -> String {
        let text = BASE64_STANDARD.encode(self.issuer.der());
        let lines = text.as_bytes().chunks(COLUMNS).map(String::from_utf8_lossy);
        let lines: Vec<_> = lines.collect();
        format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            lines.join("\n")
        )
    }

    /// Its key: PKCS #8, in base64.
    pub(crate) fn key(&self) -> Secret {
        let key = Zeroizing::new(self.issuer.key().serialize_der());
        BASE64_STANDARD.encode(&*key).into()
    }

    /// TLS as this host speaks it inside.
    pub(crate) fn server(&self, host: &Name) -> io::Result<Arc<ServerConfig>> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, config)) = given.get(host)
            && made.elapsed() < LEAF_HOLDS / 2
        {
            return Ok(Arc::clone(config));
        }
        let mut params = CertificateParams::new([host.to_string()]).map_err(io::Error::other)?;
        params.distinguished_name = called("agent-sandbox: a host of one session");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // Some programs look for the key of the authority by it.
        params.use_authority_key_identifier_extension = true;
        hold(&mut params, LEAF_HOLDS);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let leaf = params
            .signed_by(&key, &self.issuer)
            .map_err(io::Error::other)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .and_then(|versions| {
                versions
                    .with_no_client_auth()
                    .with_single_cert(vec![leaf.der().clone()], key)
            })
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![HTTP.to_vec()];
        let config = Arc::new(config);
        given.insert(host.clone(), (Instant::now(), Arc::clone(&config)));
        Ok(config)
    }
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

fn hold(params: &mut CertificateParams, time: Duration) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BEFORE;
    params.not_after = now + time;
}
