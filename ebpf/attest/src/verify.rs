//! Whether a batch script enters the jail, and who says where it comes from.

use agent_sandbox_events::mark::{Claim, DIGEST, LIFETIME, LINE, Mark};
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, UnparsedPublicKey};
use thiserror::Error;

use crate::keys::{Keys, PUBLIC};

/// A node's clock may be so many seconds ahead of the controller's: munge allows five minutes.
const AHEAD: u64 = 300;

/// What is demanded of a script.
#[derive(Clone, Copy, Debug)]
pub struct Demands<'a> {
    /// Whose signatures count.
    pub keys: &'a Keys,
    /// Programs that make the jail.
    pub launchers: &'a [String],
    /// The cluster.
    pub cluster: &'a str,
    /// As whom the job runs.
    pub uid: u32,
    /// The time, in seconds since 1970; none: how old a mark is does not matter.
    pub now: Option<u64>,
}

/// Why a script is refused. For whoever submitted it, outside of every jail: nothing of the script is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It is started by something else.
    #[error("it is no batch script that agent-sandbox starts in a jail")]
    NoJail,
    /// Nobody marked it.
    #[error("it carries no mark of a login node's tracer")]
    NoMark,
    /// The mark is not written as marks are.
    #[error("its mark is damaged")]
    Damaged,
    /// It is for somewhere else.
    #[error("it was marked for the cluster {theirs}")]
    Cluster {
        /// The cluster.
        theirs: String,
    },
    /// It is somebody else's.
    #[error("it was marked for another user")]
    User,
    /// Its time is over.
    #[error("it was marked {seconds} seconds ago, and a mark can be submitted for {LIFETIME}")]
    Expired {
        /// Its age.
        seconds: u64,
    },
    /// Its time has not come.
    #[error("it was marked {seconds} seconds from now: a clock is wrong")]
    Ahead {
        /// So far ahead.
        seconds: u64,
    },
    /// The site does not know the node.
    #[error("the site has no key of the node {node}")]
    Unknown {
        /// The node.
        node: String,
    },
    /// No key fits: the script is another one, or nobody with a key marked it.
    #[error("its mark is not of this script, or no node of the site's made it")]
    Forged,
}

/// Judges a script. What the mark claims is answered.
///
/// # Errors
/// It is refused.
pub fn verify(script: &[u8], demands: &Demands<'_>) -> Result<Claim, Refused> {
    if !demands.launchers.iter().any(|at| starts(script, at)) {
        return Err(Refused::NoJail);
    }
    let (signed, mark) = split(script).ok_or(Refused::NoMark)?;
    let mark = Mark::parse(mark).ok_or(Refused::Damaged)?;
    let claim = mark.claim;
    if claim.cluster != demands.cluster {
        return Err(Refused::Cluster {
            theirs: claim.cluster,
        });
    }
    if claim.uid != demands.uid {
        return Err(Refused::User);
    }
    if let Some(now) = demands.now {
        let (age, ahead) = (
            now.saturating_sub(claim.time),
            claim.time.saturating_sub(now),
        );
        if age > LIFETIME {
            return Err(Refused::Expired { seconds: age });
        }
        if ahead > AHEAD {
            return Err(Refused::Ahead { seconds: ahead });
        }
    }
    let keys = demands.keys.of(&claim.node);
    if keys.is_empty() {
        return Err(Refused::Unknown { node: claim.node });
    }
    let mut sum = [0; DIGEST];
    sum.copy_from_slice(digest(&SHA256, signed).as_ref());
    let message = claim.signed(&sum);
    let fits = |key: &&[u8; PUBLIC]| {
        let key = UnparsedPublicKey::new(&ED25519, key);
        key.verify(&message, &mark.signature).is_ok()
    };
    if keys.iter().any(fits) {
        Ok(claim)
    } else {
        Err(Refused::Forged)
    }
}

/// Whether the kernel gives the script to this program as `PROGRAM job SCRIPT`: what follows is data to it, whatever
/// it is. Linux takes the rest of the line as one word, so that the line must be this one to the byte.
fn starts(script: &[u8], launcher: &str) -> bool {
    let plain = launcher.starts_with('/')
        && !launcher.contains(|c: char| c.is_ascii_whitespace() || c.is_ascii_control());
    let rest = script.strip_prefix(b"#!");
    let rest = rest.and_then(|rest| rest.strip_prefix(launcher.as_bytes()));
    plain && rest.is_some_and(|rest| rest.starts_with(b" job\n"))
}

/// The script without its last line, and the mark in that. Slurm may end it with one newline more or less.
fn split(script: &[u8]) -> Option<(&[u8], &str)> {
    let script = script.strip_suffix(b"\n").unwrap_or(script);
    let at = script.iter().rposition(|byte| *byte == b'\n')? + 1;
    let (signed, line) = script.split_at(at);
    let mark = line.strip_prefix(LINE.as_bytes())?;
    // A text that is none is a mark that is none.
    Some((signed, std::str::from_utf8(mark).unwrap_or_default()))
}

#[cfg(test)]
mod tests;
