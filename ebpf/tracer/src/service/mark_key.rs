//! The key by which the tracer marks jobs.
#![allow(clippy::disallowed_methods, reason = "effects: the key's file")]

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use agent_sandbox_events::mark::{Claim, DIGEST, Mark, SIGNATURE, hex, unhex};
use anyhow::{Context, Result, anyhow, ensure};
use nix::unistd::geteuid;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};

use super::files::only_ours_above;

/// Bytes of a private key (RFC 8032).
const SEED: usize = 32;

/// What stands before it in its file.
const KIND: &str = "ed25519 ";

/// The file is never longer, in bytes.
const LONGEST: u64 = 4096;

/// A key.
pub struct MarkKey(Ed25519KeyPair);

impl fmt::Debug for MarkKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MarkKey({})", self.public())
    }
}

impl MarkKey {
    /// The key in a file; none where there is no such file.
    ///
    /// # Errors
    /// Others could read or replace it, or it holds no key.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let name = path.display();
        let mut options = std::fs::File::options();
        options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read the key `{name}`"));
            }
        };
        let meta = file.metadata()?;
        let ours = meta.uid() == 0 || meta.uid() == geteuid().as_raw();
        ensure!(
            meta.is_file() && ours && meta.mode() & 0o077 == 0,
            "others than root can use the key `{name}`: it must be a file of root's with mode 0600"
        );
        only_ours_above(path)?;
        let mut text = String::new();
        file.take(LONGEST)
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read the key `{name}`"))?;
        let seed = text.trim_end().strip_prefix(KIND).and_then(unhex::<SEED>);
        let seed = seed.with_context(|| {
            format!("`{name}` holds no key: remove it, and let `agent-sandbox-tracer key` make one")
        })?;
        Self::of(&seed).map(Some)
    }

    /// Makes one, in a file that is not there yet.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn make(path: &Path) -> Result<Self> {
        let mut seed = [0; SEED];
        SystemRandom::new()
            .fill(&mut seed)
            .map_err(|_| anyhow!("the kernel gives no random bytes"))?;
        let write = || -> io::Result<()> {
            let mut file = std::fs::File::options()
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(path)?;
            file.write_all(format!("{KIND}{}\n", hex(&seed)).as_bytes())?;
            file.sync_all()
        };
        only_ours_above(path)?;
        write().with_context(|| format!("cannot make the key `{}`", path.display()))?;
        Self::of(&seed)
    }

    fn of(seed: &[u8; SEED]) -> Result<Self> {
        Ed25519KeyPair::from_seed_unchecked(seed)
            .map(Self)
            .map_err(|error| anyhow!("the key is of no use: {error}"))
    }

    /// The public key, in hexadecimal digits.
    #[must_use]
    pub fn public(&self) -> String {
        hex(self.0.public_key().as_ref())
    }

    /// Signs.
    #[must_use]
    pub fn sign(&self, claim: Claim, script: &[u8; DIGEST]) -> Mark {
        let made = self.0.sign(&claim.signed(script));
        let mut signature = [0; SIGNATURE];
        signature.copy_from_slice(made.as_ref());
        Mark { claim, signature }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_roots_alone() {
        let all = tempfile::tempdir().unwrap();
        let path = all.path().join("mark.key");
        assert!(MarkKey::read(&path).unwrap().is_none(), "there is none");
        let made = MarkKey::make(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            MarkKey::read(&path).unwrap().unwrap().public(),
            made.public()
        );
        assert!(MarkKey::make(&path).is_err(), "none is made over another");
        assert_ne!(
            MarkKey::make(&all.path().join("other")).unwrap().public(),
            made.public()
        );
    }

    #[test]
    fn a_key_that_others_can_use_is_refused() {
        let all = tempfile::tempdir().unwrap();
        let path = all.path().join("mark.key");
        MarkKey::make(&path).unwrap();
        let refused = || MarkKey::read(&path).unwrap_err().to_string();
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(refused().contains("others than root can use"), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let link = all.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(MarkKey::read(&link).is_err(), "links are not followed");
        for text in ["", "ed25519 00", "rsa 00\n", "ed25519"] {
            std::fs::write(&path, text).unwrap();
            assert!(refused().contains("holds no key"), "{text}");
        }
        std::fs::set_permissions(all.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused().contains("can replace"), "{}", refused());
    }
}
