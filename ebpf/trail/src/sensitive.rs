//! Which paths hold keys, tokens and credentials: one table of patterns. It marks what is shown and decides
//! nothing; what is hidden in a jail is the policy's.

/// What somebody who reads such a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A private key.
    Key,
    /// A token: whoever has it is let in.
    Token,
    /// A password, a login, a file of credentials.
    Credential,
    /// What was typed before, secrets among it.
    History,
    /// Memory or state of the system by which one becomes another.
    System,
}

impl Kind {
    /// The word by which it is marked.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Key => "key",
            Kind::Token => "token",
            Kind::Credential => "credential",
            Kind::History => "history",
            Kind::System => "system",
        }
    }
}

/// Patterns over whole paths: `*` stands for any text, slashes included. The first that fits counts.
/// They are in lower case; a path in upper case fits as well.
const TABLE: &[(Kind, &[&str])] = &[
    (
        Kind::Key,
        &[
            "*/.ssh/*",
            "*/.ssh",
            "*/id_rsa*",
            "*/id_ed25519*",
            "*/id_ecdsa*",
            "*/ssh_host_*_key",
            "*/.gnupg*",
            "*.pem",
            "*.p12",
            "*.pfx",
            "*.keytab",
            "*/private/*.key",
            "*/private-keys*",
            "*/munge.key",
            "*/.age*",
            "*/.config/sops/*",
            "*/.globus*",
            "*/.putty/*",
            "*/grid-security/hostkey*",
            "*/slurm/jwt*.key",
            "*/jwt_hs256.key",
            "*/wireguard/*",
        ],
    ),
    (
        Kind::Token,
        &[
            "*/.aws/sso/*",
            "*/.config/gh/*",
            "*/.config/glab*",
            "*/.config/hub",
            "*/.config/gcloud/*",
            "*/.azure/*",
            "*/.kube/*",
            "*/.docker/config.json",
            "*/containers/auth.json",
            "*/.huggingface/*",
            "*/huggingface/token*",
            "*/.vault-token",
            "*/.terraform.d/credentials*",
            "*/krb5cc*",
            "*/.oidc-agent*",
            "*/x509up_u*",
            "*/.slurm_token*",
            "*token.json",
            "*/token",
            "*_token",
            "*/.npmrc",
            "*/.pypirc",
            "*/.cargo/credentials*",
            "*/.gem/credentials",
            "*/.claude/.credentials*",
            "*/.claude.json",
            "*/.codex/auth*",
            "*/.gemini/oauth*",
            "*/.wandb*",
        ],
    ),
    (
        Kind::Credential,
        &[
            "*/.aws",
            "*/.aws/*",
            "*/.netrc",
            "*/_netrc",
            "*/.git-credentials",
            "*/.pgpass",
            "*/.my.cnf",
            "*/.mylogin.cnf",
            "*/.s3cfg",
            "*/rclone.conf",
            "*/.env",
            "*/.env.*",
            "*/.envrc",
            "*/.password-store*",
            "*/.local/share/keyrings*",
            "*.kdbx",
            "*/.mozilla/*",
            "*/.config/chromium/*",
            "*/.config/google-chrome*",
            "*/.irods*",
            "*/.htpasswd",
            "*credential*",
            "*secret*",
            "*password*",
            "*/slurmdbd.conf",
        ],
    ),
    (
        Kind::History,
        &[
            "*_history",
            "*/.histfile",
            "*/.history",
            "*/.lesshst",
            "*/.viminfo",
        ],
    ),
    (
        Kind::System,
        &[
            "/etc/shadow*",
            "/etc/gshadow*",
            "/etc/sudoers*",
            "/proc/*/mem",
            "/proc/*/environ",
            "/proc/kcore",
            "/dev/mem",
            "/dev/kmem",
            "/sys/kernel/debug/*",
            "*/docker.sock",
            "*/podman.sock",
            "*/munge.socket*",
            "/run/dbus/system_bus_socket",
            "*/ssh-*/agent.*",
            "*/s.gpg-agent*",
        ],
    ),
];

/// What a path holds, if the table knows it.
#[must_use]
pub fn kind(path: &str) -> Option<Kind> {
    let path = path.to_ascii_lowercase();
    // A public half opens nothing.
    if path.ends_with(".pub") {
        return None;
    }
    TABLE.iter().find_map(|(kind, patterns)| {
        patterns
            .iter()
            .any(|pattern| fits(pattern, &path))
            .then_some(*kind)
    })
}

/// Whether a text in lower case fits a pattern.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tokens_and_credentials_are_known() {
        for (path, expected) in [
            ("/home/ada/.ssh/id_rsa", Some(Kind::Key)),
            ("/home/ada/.SSH/config", Some(Kind::Key)),
            ("/etc/munge/munge.key", Some(Kind::Key)),
            ("/home/ada/.config/gh/hosts.yml", Some(Kind::Token)),
            ("/tmp/krb5cc_1000", Some(Kind::Token)),
            ("/home/ada/.aws/credentials", Some(Kind::Credential)),
            ("/work/.env", Some(Kind::Credential)),
            ("/home/ada/.bash_history", Some(Kind::History)),
            ("/etc/shadow", Some(Kind::System)),
            ("/proc/17/environ", Some(Kind::System)),
            ("/home/ada/.ssh/id_rsa.pub", None),
            ("/usr/lib/libc.so.6", None),
            ("/work/tokenizer.py", None),
            ("/work/environ", None),
            ("", None),
        ] {
            assert_eq!(kind(path), expected, "{path}");
        }
    }

    #[test]
    fn patterns_fit_whole_paths() {
        assert!(fits("/a/*/c", "/a/b/b/c"));
        assert!(!fits("/a/*/c", "/a/c"));
        assert!(!fits("/a", "/a/b"));
        assert!(fits("*", ""));
        assert!(!fits("*x", ""));
        assert!(!fits("ab*ba", "aba"));
    }

    #[test]
    fn patterns_are_in_lower_case_and_none_is_there_twice() {
        let mut all: Vec<&str> = TABLE
            .iter()
            .flat_map(|(_, patterns)| *patterns)
            .copied()
            .collect();
        let number = all.len();
        assert!(all.iter().all(|pattern| pattern.to_lowercase() == *pattern));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), number);
    }
}
