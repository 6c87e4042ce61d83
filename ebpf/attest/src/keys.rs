//! The public keys of the nodes on which jobs are marked.

use agent_sandbox_events::mark::{is_name, unhex};
use thiserror::Error;

/// Bytes of a public key (RFC 8032).
pub const PUBLIC: usize = 32;

/// Stands for every node.
const ANY: &str = "*";

/// The keys. A node may have several, so that one can be replaced while scripts with the old one are on their way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(Vec<(String, [u8; PUBLIC])>);

/// A line that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: no `NODE ed25519 KEY`, as `agent-sandbox-tracer key` prints it")]
pub struct NoKey {
    /// Its number, from 1.
    pub line: usize,
}

impl Keys {
    /// Reads them: a key on each line, but on those that are empty or begin with `#`.
    ///
    /// # Errors
    /// A line holds no key: of a file that is not understood nothing counts.
    pub fn parse(text: &str) -> Result<Self, NoKey> {
        let mut keys = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words.as_slice() {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                [node, "ed25519", key] if *node == ANY || is_name(node) => {
                    let key = unhex(key).ok_or(NoKey { line: at + 1 })?;
                    keys.push(((*node).to_owned(), key));
                }
                _ => return Err(NoKey { line: at + 1 }),
            }
        }
        Ok(Self(keys))
    }

    /// Those by which a node may sign.
    #[must_use]
    pub fn of(&self, node: &str) -> Vec<&[u8; PUBLIC]> {
        let all = self.0.iter();
        all.filter(|(name, _)| name == node || name == ANY)
            .map(|(_, key)| key)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_have_several_keys() {
        let (one, two, all) = ("11".repeat(32), "22".repeat(32), "33".repeat(32));
        let text = format!(
            "# the site's\n\nlogin1 ed25519 {one}\nlogin2\ted25519 {two}\nlogin1 ed25519 {two}\n* ed25519 {all}\n"
        );
        let keys = Keys::parse(&text).unwrap();
        let of = |node| keys.of(node).iter().map(|key| key[0]).collect::<Vec<_>>();
        assert_eq!(of("login1"), [0x11, 0x22, 0x33]);
        assert_eq!(of("login2"), [0x22, 0x33]);
        assert_eq!(of("login3"), [0x33]);
    }

    #[test]
    fn a_line_that_is_no_key_is_refused_with_its_number() {
        let good = "11".repeat(32);
        for bad in [
            "login1".to_owned(),
            format!("login1 {good}"),
            format!("login1 rsa {good}"),
            format!("login1 ed25519 {good} more"),
            format!("login1 ed25519 {}", &good[2..]),
            format!("log*n1 ed25519 {good}"),
            "login1 ed25519 zz".to_owned(),
        ] {
            let refused = Keys::parse(&format!("* ed25519 {good}\n{bad}\n"));
            assert_eq!(refused, Err(NoKey { line: 2 }), "{bad}");
        }
    }
}
