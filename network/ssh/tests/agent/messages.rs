//! What clients say to an agent, and hosts that sign.

use ring::signature::{Ed25519KeyPair, KeyPair};

/// The id of a session.
pub(crate) const SESSION: [u8; 32] = [7; 32];

/// A host of the test's own: it signs what it is asked to.
pub(crate) struct Host(Ed25519KeyPair);

impl Host {
    pub(crate) fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    pub(crate) fn key(&self) -> Vec<u8> {
        [string(b"ssh-ed25519"), string(self.0.public_key().as_ref())].concat()
    }

    pub(crate) fn signs(&self, session: &[u8]) -> Vec<u8> {
        let signed = self.0.sign(session);
        [string(b"ssh-ed25519"), string(signed.as_ref())].concat()
    }

    pub(crate) fn bind(&self, session: &[u8], forwarding: bool) -> Vec<u8> {
        bind(&self.key(), session, &self.signs(session), forwarding)
    }
}

pub(crate) fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes(), bytes].concat()
}

pub(crate) fn bind(key: &[u8], session: &[u8], signature: &[u8], forwarding: bool) -> Vec<u8> {
    let parts = [
        string(b"session-bind@openssh.com"),
        string(key),
        string(session),
        string(signature),
    ];
    [vec![27], parts.concat(), vec![u8::from(forwarding)]].concat()
}

pub(crate) fn sign(key: &[u8], data: &[u8], flags: u32) -> Vec<u8> {
    [
        vec![13],
        string(key),
        string(data),
        flags.to_be_bytes().to_vec(),
    ]
    .concat()
}

pub(crate) fn login(
    session: &[u8],
    user: &str,
    algorithm: &str,
    key: &[u8],
    host: Option<&[u8]>,
) -> Vec<u8> {
    let method: &[u8] = match host {
        None => b"publickey",
        Some(_) => b"publickey-hostbound-v00@openssh.com",
    };
    [
        string(session),
        vec![50],
        string(user.as_bytes()),
        string(b"ssh-connection"),
        string(method),
        vec![1],
        string(algorithm.as_bytes()),
        string(key),
        host.map(string).unwrap_or_default(),
    ]
    .concat()
}
