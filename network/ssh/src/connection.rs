//! One connection of a client's: what it is bound to, and what is signed by that.

use crate::destination::Destination;
use crate::host_key::{fingerprint, has_signed};
use crate::login::Login;
use crate::refusal::Refusal;
use crate::rules::{Fingerprint, KeyName, Keys, Rules};

/// RSA with SHA-256, as a client asks for it (RFC 8332), by a key and by a certificate (PROTOCOL.certkeys).
const RSA_SHA2_256: u32 = 2;
/// The same with SHA-512.
const RSA_SHA2_512: u32 = 4;

/// A connection.
#[derive(Debug)]
pub struct Connection<'a> {
    rules: &'a Rules,
    bound: Bound,
}

#[derive(Debug, PartialEq, Eq)]
enum Bound {
    /// To nothing yet.
    Not,
    /// To this session with the host that has this key.
    To { session: Vec<u8>, host_key: Vec<u8> },
    /// To nothing, for good.
    Refused,
}

/// What may be signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// For whom.
    pub destination: Destination,
    /// As whom the user logs in, in plain characters.
    pub user: String,
    /// With which key.
    pub key: Fingerprint,
    /// What is signed, written anew.
    pub data: Vec<u8>,
}

impl<'a> Connection<'a> {
    /// A new one.
    #[must_use]
    pub fn new(rules: &'a Rules) -> Self {
        Self {
            rules,
            bound: Bound::Not,
        }
    }

    /// Binds it to a session with a host. After a refusal nothing is signed on it.
    ///
    /// # Errors
    /// Why not.
    pub fn bind(
        &mut self,
        host_key: &[u8],
        session: &[u8],
        signature: &[u8],
        forwarding: bool,
    ) -> Result<(), Refusal> {
        let before = std::mem::replace(&mut self.bound, Bound::Refused);
        if before != Bound::Not {
            return Err(Refusal::BoundOnce);
        }
        if forwarding {
            return Err(Refusal::Forwarded);
        }
        if !has_signed(host_key, session, signature).unwrap_or(false) {
            return Err(Refusal::HostSignature);
        }
        if self.hosts(host_key).next().is_none() {
            return Err(Refusal::UnknownHost(fingerprint(host_key)));
        }
        self.bound = Bound::To {
            session: session.to_vec(),
            host_key: host_key.to_vec(),
        };
        Ok(())
    }

    /// Judges what is to be signed.
    ///
    /// # Errors
    /// Why it is not.
    pub fn judge(&self, key: &[u8], data: &[u8], flags: u32) -> Result<Permit, Refusal> {
        let login = Login::parse(data).map_err(|_| Refusal::NotLogin)?;
        let (session, host_key) = match &self.bound {
            Bound::To { session, host_key } => (session, host_key),
            Bound::Not => return Err(Refusal::Unbound),
            Bound::Refused => return Err(Refusal::BoundOnce),
        };
        let mut hosts = self.hosts(host_key).peekable();
        let Some(&first) = hosts.peek() else {
            return Err(Refusal::UnknownHost(fingerprint(host_key)));
        };
        let to_host = login.host_key.is_none_or(|key| key == host_key);
        if login.session != session || !to_host || login.key != key {
            return Err(Refusal::OtherSession(first.clone()));
        }
        let shown = fingerprint(key);
        if !self.names(key) {
            return Err(Refusal::Key(first.clone(), shown));
        }
        if !fits(login.algorithm, key, flags) {
            return Err(Refusal::Algorithm(first.clone()));
        }
        let user = login.user.escape_ascii().to_string();
        let Some(destination) = hosts.find(|host| host.is_for_user(login.user)) else {
            return Err(Refusal::User(first.clone(), user));
        };
        Ok(Permit {
            destination: destination.clone(),
            user,
            key: shown,
            data: login.written(),
        })
    }

    /// Whether a key of the user's is shown on it.
    #[must_use]
    pub fn shows(&self, key: &[u8]) -> bool {
        self.bound != Bound::Refused && self.names(key)
    }

    /// The hosts with a key.
    fn hosts(&self, key: &[u8]) -> impl Iterator<Item = &'a Destination> {
        let has = move |known: &[u8]| known == key;
        let hosts = self.rules.hosts.iter();
        let hosts = hosts.filter(move |host| host.keys.iter().any(|known| has(known.as_bytes())));
        hosts.map(|host| &host.destination)
    }

    fn names(&self, key: &[u8]) -> bool {
        match &self.rules.keys {
            Keys::All => true,
            Keys::These(all) => all.iter().any(|one| match one {
                KeyName::Fingerprint(named) => *named == fingerprint(key),
                KeyName::Key(named) => named.as_bytes() == key,
            }),
        }
    }
}

/// Whether a signature of this kind is one of the key's own. RSA has two; that with SHA-1 is none of them.
fn fits(algorithm: &[u8], key: &[u8], flags: u32) -> bool {
    let Some(kind) = crate::encoding::Reader::new(key).string().ok() else {
        return false;
    };
    match kind {
        b"ssh-rsa" => {
            (algorithm, flags) == (b"rsa-sha2-256", RSA_SHA2_256)
                || (algorithm, flags) == (b"rsa-sha2-512", RSA_SHA2_512)
        }
        b"ssh-rsa-cert-v01@openssh.com" => {
            (algorithm, flags) == (b"rsa-sha2-256-cert-v01@openssh.com", RSA_SHA2_256)
                || (algorithm, flags) == (b"rsa-sha2-512-cert-v01@openssh.com", RSA_SHA2_512)
        }
        kind => algorithm == kind && flags == 0,
    }
}
