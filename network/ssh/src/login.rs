//! What is signed when somebody logs in with a key (RFC 4252, section 7, and `publickey-hostbound-v00@openssh.com` of OpenSSH's
//! PROTOCOL).

use crate::encoding::{Malformed, Reader, Writer};

/// `SSH_MSG_USERAUTH_REQUEST`
const USERAUTH_REQUEST: u8 = 50;
/// What follows a login.
const SERVICE: &[u8] = b"ssh-connection";
const PLAIN: &[u8] = b"publickey";
const HOST_BOUND: &[u8] = b"publickey-hostbound-v00@openssh.com";
/// Longer names of users are none, in bytes.
const LONGEST_USER: usize = 256;

/// A login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Login<'a> {
    /// In this session.
    pub(crate) session: &'a [u8],
    /// Of this user on the host.
    pub(crate) user: &'a [u8],
    /// With signatures of this kind.
    pub(crate) algorithm: &'a [u8],
    /// By this key.
    pub(crate) key: &'a [u8],
    /// To the host with this key, where the client says it.
    pub(crate) host_key: Option<&'a [u8]>,
}

impl<'a> Login<'a> {
    /// Reads one. What git and ssh-keygen sign begins with `SSHSIG`, which is no length of a session's id.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Reader::new(data);
        let session = rest.string()?;
        if rest.byte()? != USERAUTH_REQUEST {
            return Err(Malformed);
        }
        let user = rest.string()?;
        let service = rest.string()?;
        let method = rest.string()?;
        let signs = rest.boolean()?;
        let (algorithm, key) = (rest.string()?, rest.string()?);
        let host_key = match method {
            PLAIN => None,
            HOST_BOUND => Some(rest.string()?),
            _ => return Err(Malformed),
        };
        rest.end()?;
        if service != SERVICE || !signs || user.is_empty() || user.len() > LONGEST_USER {
            return Err(Malformed);
        }
        Ok(Self {
            session,
            user,
            algorithm,
            key,
            host_key,
        })
    }

    /// As it is written.
    pub(crate) fn written(&self) -> Vec<u8> {
        let message = Writer::default().string(self.session);
        let message = message.byte(USERAUTH_REQUEST).string(self.user);
        let message = message.string(SERVICE);
        let message = message.string(match self.host_key {
            None => PLAIN,
            Some(_) => HOST_BOUND,
        });
        let message = message.boolean(true);
        let message = message.string(self.algorithm).string(self.key);
        match self.host_key {
            None => message.done(),
            Some(host_key) => message.string(host_key).done(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn login() -> Login<'static> {
        Login {
            session: &[7; 32],
            user: b"git",
            algorithm: b"ssh-ed25519",
            key: b"key",
            host_key: Some(b"host"),
        }
    }

    #[test]
    fn a_login_is_read_in_one_way() {
        let whole = login().written();
        assert_eq!(Login::parse(&whole), Ok(login()));
        for cut in 0..whole.len() {
            assert_eq!(Login::parse(&whole[..cut]), Err(Malformed), "{cut}");
        }
        assert_eq!(Login::parse(&[&whole[..], &[0]].concat()), Err(Malformed));
    }

    #[test]
    fn what_is_no_login_is_none() {
        // What git has signed, and sshsig (PROTOCOL.sshsig): no length stands before it.
        let signed = Writer::default()
            .string(b"git")
            .string(b"")
            .string(b"sha512");
        let signed = [b"SSHSIG".to_vec(), signed.string(&[1; 64]).done()].concat();
        assert_eq!(Login::parse(&signed), Err(Malformed));
        let of = |kind, user: &[u8], service: &[u8], method: &[u8], signs| {
            let message = Writer::default().string(&[7; 32]).byte(kind).string(user);
            let message = message.string(service).string(method).boolean(signs);
            message.string(b"ssh-ed25519").string(b"key").done()
        };
        assert!(Login::parse(&of(50, b"git", SERVICE, PLAIN, true)).is_ok());
        for odd in [
            of(51, b"git", SERVICE, PLAIN, true),
            of(50, b"", SERVICE, PLAIN, true),
            of(50, &[b'a'; 300], SERVICE, PLAIN, true),
            of(50, b"git", b"ssh-userauth", PLAIN, true),
            of(50, b"git", SERVICE, b"hostbased", true),
            of(50, b"git", SERVICE, HOST_BOUND, true),
            of(50, b"git", SERVICE, PLAIN, false),
        ] {
            assert_eq!(Login::parse(&odd), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_login_or_none(
            mut data in proptest::collection::vec(any::<u8>(), 0..40),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            if let Ok(login) = Login::parse(&data) {
                prop_assert_eq!(login.written(), data.clone());
            }
            // One that differs from a login in one place.
            data = login().written();
            let at = at.index(data.len());
            data[at] = byte;
            if let Ok(login) = Login::parse(&data) {
                prop_assert_eq!(login.written(), data);
            }
        }
    }
}
