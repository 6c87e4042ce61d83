//! Files in which ssh keeps the keys of hosts (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha1::Sha1;

/// Types of keys whose signatures are verified. Others are passed over: a server that has one of these as well uses it.
const TYPES: [&str; 4] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ssh-rsa",
];
/// The longest key, in bytes: RSA of 16384 bits.
const LONGEST_KEY: usize = 4 << 10;
/// The most names in one line, and the longest of them: a longer line is passed over.
const LONGEST_NAMES: usize = 16 << 10;

/// A public key as ssh writes it (RFC 4253, section 6.6): a string with its type, and the rest.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// Of a key that is not read any further here.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// As it stands in messages.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Of a type and a text as files have them.
    fn parse(kind: &str, text: &str) -> Option<Self> {
        let blob = STANDARD.decode(text).ok()?;
        let length = u32::try_from(kind.len()).ok()?.to_be_bytes();
        let begins = [&length, kind.as_bytes()].concat();
        (blob.len() <= LONGEST_KEY && blob.starts_with(&begins)).then_some(Self(blob))
    }

    fn kind(&self) -> Option<&str> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        std::str::from_utf8(rest.get(..length)?).ok()
    }

    /// As a file of known hosts has it, behind a name.
    #[must_use]
    pub fn line(&self, name: &str) -> String {
        let kind = self.kind().unwrap_or_default();
        format!("{name} {kind} {}\n", STANDARD.encode(&self.0))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({})", self.line("").trim())
    }
}

/// The key in a file `….pub` of the user's (ssh-keygen(1)): of any type.
#[must_use]
pub fn key_in(text: &[u8]) -> Option<PublicKey> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.lines().next()?.split_ascii_whitespace();
    PublicKey::parse(words.next()?, words.next()?)
}

/// What several files know.
#[derive(Debug, Default)]
pub struct KnownHosts(Vec<Line>);

#[derive(Debug)]
struct Line {
    revoked: bool,
    names: Names,
    key: PublicKey,
}

#[derive(Debug)]
enum Names {
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
    Patterns(Vec<Pattern>),
}

#[derive(Debug)]
struct Pattern {
    except: bool,
    text: String,
}

impl KnownHosts {
    /// Adds what stands in a file. A line that cannot be read is passed over, as ssh does; so are certificate authorities.
    pub fn add(&mut self, text: &[u8]) {
        let lines = text.split(|byte| *byte == b'\n');
        let lines = lines.filter_map(|line| std::str::from_utf8(line).ok());
        self.0.extend(lines.filter_map(Line::parse));
    }

    /// The keys of a host, each once, by the name that [`crate::Destination::known_name`] gives. One that is revoked for it is
    /// none of them.
    #[must_use]
    pub fn keys_of(&self, name: &str) -> Vec<PublicKey> {
        let named: Vec<&Line> = self.0.iter().filter(|line| line.names.mean(name)).collect();
        let mut keys: Vec<PublicKey> = Vec::new();
        for line in named.iter().filter(|line| !line.revoked) {
            let revoked = named
                .iter()
                .any(|other| other.revoked && other.key == line.key);
            if !revoked && !keys.contains(&line.key) {
                keys.push(line.key.clone());
            }
        }
        keys
    }
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut first = words.next()?;
        let revoked = match first {
            "@revoked" => true,
            _ if first.starts_with(['@', '#']) => return None,
            _ => false,
        };
        if revoked {
            first = words.next()?;
        }
        let kind = words.next()?;
        if !TYPES.contains(&kind) {
            return None;
        }
        Some(Self {
            revoked,
            names: Names::parse(first)?,
            key: PublicKey::parse(kind, words.next()?)?,
        })
    }
}

impl Names {
    fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST_NAMES {
            return None;
        }
        if let Some(hashed) = text.strip_prefix("|1|") {
            let (salt, hash) = hashed.split_once('|')?;
            let [salt, hash] = [salt, hash].map(|part| STANDARD.decode(part).ok());
            return Some(Self::Hashed {
                salt: salt?,
                hash: hash?,
            });
        }
        let patterns = text.split(',').map(|part| {
            let (except, part) = match part.strip_prefix('!') {
                Some(part) => (true, part),
                None => (false, part),
            };
            Pattern {
                except,
                text: part.to_ascii_lowercase(),
            }
        });
        Some(Self::Patterns(patterns.collect()))
    }

    fn mean(&self, name: &str) -> bool {
        match self {
            Self::Hashed { salt, hash } => {
                Hmac::<Sha1>::new_from_slice(salt).is_ok_and(|mut mac| {
                    mac.update(name.as_bytes());
                    mac.verify_slice(hash).is_ok()
                })
            }
            Self::Patterns(all) => {
                let fits = |one: &&Pattern| matches(one.text.as_bytes(), name.as_bytes());
                let mut fitting = all.iter().filter(fits).peekable();
                fitting.peek().is_some() && fitting.all(|one| !one.except)
            }
        }
    }
}

/// `*` and `?`, in time that is at most the product of both lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where the last star stands, and how far it reaches.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[read] => {
                at += 1;
                read += 1;
            }
            _ => match &mut star {
                Some((place, reached)) => {
                    *reached += 1;
                    (at, read) = (*place + 1, *reached);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    const ONE: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
    const TWO: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIAEBAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    fn known(text: &str, name: &str) -> Vec<String> {
        let mut hosts = KnownHosts::default();
        hosts.add(text.as_bytes());
        let keys = hosts.keys_of(name);
        keys.iter()
            .map(|key| STANDARD.encode(key.as_bytes()))
            .collect()
    }

    #[test]
    fn names_patterns_and_ports() {
        let text = format!(
            "# a comment\n\na.org,b.org ssh-ed25519 {ONE} comment\n[a.org]:2222 ssh-ed25519 {TWO}\n\
             *.c.org,!x.c.org ssh-ed25519 {ONE}\nno ssh-ed25519 not-base64\nno ssh-rsa {ONE}\nno x {ONE}\n"
        );
        assert_eq!(known(&text, "a.org"), [ONE]);
        assert_eq!(known(&text, "b.org"), [ONE]);
        assert_eq!(known(&text, "[a.org]:2222"), [TWO]);
        assert_eq!(known(&text, "y.c.org"), [ONE]);
        for name in [
            "x.c.org",
            "c.org",
            "[b.org]:2222",
            "org",
            "no",
            "a.org,b.org",
            "aXorg",
        ] {
            assert!(known(&text, name).is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_revoked_is_no_key_of_the_host() {
        let text = format!(
            "a.org ssh-ed25519 {ONE}\na.org ssh-ed25519 {TWO}\n@revoked * ssh-ed25519 {ONE}\n"
        );
        assert_eq!(known(&text, "a.org"), [TWO]);
        let text = format!("a.org ssh-ed25519 {ONE}\n@revoked b.org ssh-ed25519 {ONE}\n");
        assert_eq!(known(&text, "a.org"), [ONE]);
        assert!(known(&text, "b.org").is_empty());
        let text =
            format!("@cert-authority a.org ssh-ed25519 {ONE}\n@else a.org ssh-ed25519 {ONE}\n");
        assert!(known(&text, "a.org").is_empty());
    }

    /// The hash is of the example in ssh_config(5) style: `ssh-keygen -H` made it of `github.com`.
    #[test]
    fn names_are_hashed() {
        let mut mac = Hmac::<Sha1>::new_from_slice(b"01234567890123456789").unwrap();
        mac.update(b"github.com");
        let hash = STANDARD.encode(mac.finalize().into_bytes());
        let salt = STANDARD.encode(b"01234567890123456789");
        let text = format!(
            "|1|{salt}|{hash} ssh-ed25519 {ONE}\n|1|{salt} ssh-ed25519 {ONE}\n|1|| ssh-ed25519 {ONE}\n"
        );
        assert_eq!(known(&text, "github.com"), [ONE]);
        assert!(known(&text, "gitlab.com").is_empty());
    }

    #[test]
    fn a_pattern_of_stars_takes_no_time() {
        let pattern = "*a".repeat(4000);
        assert!(!matches(pattern.as_bytes(), "a".repeat(253).as_bytes()));
        assert!(matches(b"*", b"") && matches(b"a*c", b"abbc") && !matches(b"a?c", b"ac"));
    }

    #[test]
    fn a_key_of_the_users_is_read_from_its_file() {
        let key = key_in(format!("ssh-ed25519 {ONE} ada@laptop\n").as_bytes()).unwrap();
        assert_eq!(key.line("a.org"), format!("a.org ssh-ed25519 {ONE}\n"));
        for text in [
            "",
            "ssh-ed25519",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n",
        ] {
            assert_eq!(key_in(text.as_bytes()), None);
        }
    }
}
