//! The mark of a batch script that enters the jail: what the tracer of a login node signs, as a line of text, which
//! the script carries as its last one. Whoever verifies it (`agent-sandbox-attest`) says the same bytes anew.

use std::fmt;

/// How the line begins.
pub const LINE: &str = "# agent-sandbox mark ";

/// The version of the line.
const VERSION: u32 = 1;

/// What stands before everything that is signed, so that a signature is good for nothing else.
const PURPOSE: &[u8] = b"agent-sandbox mark of a batch script\0";

/// Bytes of a script's digest (SHA-256).
pub const DIGEST: usize = 32;
/// Bytes of a signature (Ed25519).
pub const SIGNATURE: usize = 64;

/// For so long after it was signed a job may be submitted with a mark, in seconds. Between the two the chaperon may
/// wait for its turn (`slurm.limits`).
pub const LIFETIME: u64 = 3600;

/// A name in a mark is no longer, in bytes.
const LONGEST_NAME: usize = 255;
/// A mark is no longer, in bytes.
pub const LONGEST: usize = 2048;

/// What is signed beside the script's digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The cluster that the job is for.
    pub cluster: String,
    /// The user id of whoever asked, as the kernel told it.
    pub uid: u32,
    /// The session, of which there was a trace of this user's.
    pub session: String,
    /// The node on which it was signed.
    pub node: String,
    /// When, in seconds since 1970.
    pub time: u64,
}

/// A claim with its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What is signed.
    pub claim: Claim,
    /// The signature.
    pub signature: [u8; SIGNATURE],
}

/// Whether a text may stand in a mark as a name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= LONGEST_NAME && text.chars().all(plain)
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            uid,
            session,
            node,
            time,
        } = self;
        write!(
            out,
            "{VERSION} cluster={cluster} uid={uid} session={session} node={node} time={time}"
        )
    }
}

impl Claim {
    /// The bytes that are signed.
    #[must_use]
    pub fn signed(&self, script: &[u8; DIGEST]) -> Vec<u8> {
        [PURPOSE, self.to_string().as_bytes(), b"\0", script].concat()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} signature={}", self.claim, hex(&self.signature))
    }
}

impl Mark {
    /// Reads a mark, which must be written as [`Mark`] writes it, to the byte.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut words = text.split(' ').skip(1);
        let mut value = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        let mark = Self {
            claim: Claim {
                cluster: value("cluster")?.to_owned(),
                uid: value("uid")?.parse().ok()?,
                session: value("session")?.to_owned(),
                node: value("node")?.to_owned(),
                time: value("time")?.parse().ok()?,
            },
            signature: unhex(value("signature")?)?,
        };
        let claim = &mark.claim;
        let named = [&claim.cluster, &claim.session, &claim.node];
        (named.into_iter().all(|name| is_name(name)) && mark.to_string() == text).then_some(mark)
    }
}

/// Bytes in hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// So many bytes of as many pairs of hexadecimal digits.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            claim: Claim {
                cluster: "alpha".to_owned(),
                uid: 1000,
                session: "s1a2b3".to_owned(),
                node: "login1".to_owned(),
                time: 1_764_000_000,
            },
            signature: std::array::from_fn(|at| u8::try_from(at).unwrap()),
        }
    }

    #[test]
    fn a_mark_is_read_as_it_is_written() {
        let text = mark().to_string();
        assert!(
            text.starts_with(
                "1 cluster=alpha uid=1000 session=s1a2b3 node=login1 time=1764000000 signature=000102"
            ),
            "{text}"
        );
        assert_eq!(Mark::parse(&text), Some(mark()));
    }

    /// What could be read in two ways is read in none: what is signed is what was written.
    #[test]
    fn a_mark_that_is_written_otherwise_is_none() {
        let text = mark().to_string();
        for (from, to) in [
            ("1 cluster", "2 cluster"),
            ("1 cluster", " cluster"),
            ("uid=1000", "uid=+1000"),
            ("uid=1000", "uid=01000"),
            ("uid=1000", "uid=4294967296"),
            ("uid=1000", "uid=1000 uid=1001"),
            ("cluster=alpha", "cluster="),
            ("cluster=alpha", "cluster=al\u{e4}"),
            ("session=s1a2b3", "session=s1 a"),
            ("session=s1a2b3", "session=s1\n"),
            ("node=login1", "node=login1\0"),
            ("signature=00", "signature=0"),
            (
                "signature=000102030405060708090a",
                "signature=000102030405060708090A",
            ),
            ("signature=00", "signature=+0"),
            ("time=1764000000", "time=-1"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text, "{from}");
            assert_eq!(Mark::parse(&other), None, "{other}");
        }
        assert_eq!(Mark::parse(&format!("{text} ")), None);
        assert_eq!(Mark::parse(&format!("{text}\n")), None);
        assert_eq!(Mark::parse(""), None);
    }

    #[test]
    fn what_is_signed_differs_in_every_field() {
        let script = [7; DIGEST];
        let signed = mark().claim.signed(&script);
        let changed: [fn(&mut Claim); 5] = [
            |claim| claim.cluster.push('x'),
            |claim| claim.uid += 1,
            |claim| claim.session.push('x'),
            |claim| claim.node.push('x'),
            |claim| claim.time += 1,
        ];
        for change in changed {
            let mut claim = mark().claim;
            change(&mut claim);
            assert_ne!(claim.signed(&script), signed, "{claim}");
        }
        assert_ne!(mark().claim.signed(&[8; DIGEST]), signed);
    }
}
