//! Programs that take secrets without a telling name: by short options (`mysql -pVALUE`), by words at a
//! certain place (`wandb login VALUE`, `sqlplus user/VALUE@db`), behind a name (`aws configure set NAME VALUE`).

use super::names;

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// A secret, in the same argument.
    Joined,
    /// A secret, in the same argument or the next.
    Either,
    /// A secret, in the next argument; what is longer is another option.
    Behind,
    /// A user and a password, in the same argument or the next.
    User,
    /// The same, with a comma between them.
    Comma,
    /// Cookies, if there is a `=`; else the name of a file.
    Cookie,
}

/// Programs, an option of each of them, and what it takes. No more than there are bits in [`Options::rows`].
const PROGRAMS: &[(&[&str], &str, Takes)] = &[
    (
        &[
            "mysql",
            "mysqldump",
            "mysqladmin",
            "mysqlimport",
            "mysqlshow",
            "mysqlcheck",
            "mysqlbinlog",
            "mariadb",
            "mariadb-dump",
            "mariadb-admin",
        ],
        "-p",
        Takes::Joined,
    ),
    (
        &["7z", "7za", "7zr", "7zz", "rar", "unrar"],
        "-p",
        Takes::Joined,
    ),
    (&["rar", "unrar"], "-hp", Takes::Joined),
    (&["sshpass"], "-p", Takes::Either),
    // Of [`REGISTRIES`].
    (&["login"], "-p", Takes::Either),
    (&["redis-cli"], "-a", Takes::Either),
    (
        &[
            "ldapsearch",
            "ldapadd",
            "ldapmodify",
            "ldapdelete",
            "ldappasswd",
            "ldapwhoami",
        ],
        "-w",
        Takes::Either,
    ),
    (
        &[
            "zip",
            "unzip",
            "sqlcmd",
            "bcp",
            "ipmitool",
            "mosquitto_pub",
            "mosquitto_sub",
        ],
        "-P",
        Takes::Either,
    ),
    (
        &[
            "mongo",
            "mongosh",
            "mongodump",
            "mongorestore",
            "rdesktop",
            "useradd",
            "usermod",
        ],
        "-p",
        Takes::Either,
    ),
    (&["openssl"], "-k", Takes::Behind),
    (&["openssl"], "-K", Takes::Behind),
    (&["curl"], "-b", Takes::Cookie),
    (&["curl", "sclient"], "-u", Takes::User),
    (&["curl", "smbclient", "rpcclient"], "-U", Takes::User),
    (&["http", "https", "xh"], "-a", Takes::User),
    (&["lftp"], "-u", Takes::Comma),
    (&[GH_SECRET], "--body", Takes::Either),
    (&[GH_SECRET], "-b", Takes::Either),
];

/// Stands for `gh` with its word `secret`.
const GH_SECRET: &str = "gh secret";

/// Commands behind which a word that is no option is a secret.
const WORDS: &[(&str, &str)] = &[
    ("wandb", "login"),
    ("vault", "login"),
    ("cargo", "login"),
    ("rclone", "obscure"),
    ("ngrok", "authtoken"),
    ("ngrok", "add-authtoken"),
    ("snyk", "auth"),
];

/// Programs that are told `user/password@database`.
const SLASHED: [&str; 4] = ["sqlplus", "sqlldr", "expdp", "impdp"];

/// The same, of which the names are other words, too: only as the first word of a command.
const SLASHED_FIRST: [&str; 3] = ["exp", "imp", "rman"];

/// Words that stand before a name of a setting and its value.
const SETS: [&str; 4] = ["config", "configure", "set-environment", "setenv"];

/// The same, as the first word of a command (`fish(1)`).
const SETS_FIRST: &str = "set";

/// Options behind which a name and its value stand (`jq(1)`).
const NAMES: [&[u8]; 2] = [b"--arg", b"--argjson"];

/// Programs whose `login` takes `-p`; of others it can be a host or a file.
const REGISTRIES: [&str; 15] = [
    "apptainer",
    "auth",
    "az",
    "buildah",
    "cf",
    "crane",
    "docker",
    "helm",
    "nerdctl",
    "oc",
    "oras",
    "podman",
    "registry",
    "singularity",
    "skopeo",
];

/// Programs that go to another host: options behind are theirs.
const REMOTE: [&str; 6] = ["ssh", "scp", "sftp", "rsync", "mosh", "autossh"];

/// What the next word is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Anything,
    Value(Takes),
    /// The name of a setting.
    Name,
    /// The value of a setting that is named like a secret.
    Setting,
}

/// What is known of a command by its words so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// The rows of [`PROGRAMS`] that hold, a bit each.
    rows: u32,
    /// The rows of [`WORDS`] of which the program was seen.
    words: u32,
    next: Next,
    /// The next word that is no option is a secret.
    word: bool,
    slashed: bool,
    sets: bool,
    /// There is a program whose `login` is known.
    registry: bool,
    /// There is `gh`.
    gh: bool,
    /// A word that is no option was taken.
    begun: bool,
}

impl Options {
    /// Takes the next word of the command, and says what is secret in it: where that begins and ends.
    pub(super) fn take(&mut self, word: &[u8]) -> Option<(usize, usize)> {
        let next = std::mem::take(&mut self.next);
        let hides = match next {
            Next::Value(takes) => value(takes, word, 0),
            Next::Setting if !word.starts_with(b"-") => Some((0, word.len())),
            Next::Setting | Next::Name | Next::Anything => {
                self.joined(word).or_else(|| self.placed(word))
            }
        };
        if word.starts_with(b"-") {
            self.option(word);
        } else {
            let program = word.rsplit(|byte| *byte == b'/').next();
            if let Some(program) = program.and_then(|program| std::str::from_utf8(program).ok()) {
                self.program(program);
            }
            if (self.sets || next == Next::Name) && setting(word) {
                self.next = Next::Setting;
            }
        }
        hides
    }

    fn rows(
        &self,
    ) -> impl Iterator<Item = &'static (&'static [&'static str], &'static str, Takes)> {
        let rows = self.rows;
        let known = PROGRAMS.iter().enumerate();
        known
            .filter(move |(at, _)| rows >> at & 1 == 1)
            .map(|(_, row)| row)
    }

    /// A short option with its value in the same word.
    fn joined(&self, word: &[u8]) -> Option<(usize, usize)> {
        if !word.starts_with(b"-") {
            return None;
        }
        let mut fitting = self
            .rows()
            .filter(|row| row.2 != Takes::Behind)
            .filter(|row| word.len() > row.1.len() && word.starts_with(row.1.as_bytes()));
        let row = fitting.next()?;
        let long = row.1.starts_with("--") && word[row.1.len()] == b'=';
        value(row.2, word, row.1.len() + usize::from(long))
    }

    /// A word that is a secret by its place.
    fn placed(&mut self, word: &[u8]) -> Option<(usize, usize)> {
        if word.starts_with(b"-") {
            return None;
        }
        if self.word && !word.contains(&b'=') && super::find(word, b"://").is_none() {
            self.word = false;
            return Some((0, word.len()));
        }
        if !self.slashed {
            return None;
        }
        let user = word.strip_prefix(b"userid=").unwrap_or(word);
        let from = word.len() - user.len();
        let slash = user.iter().position(|byte| *byte == b'/')?;
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$#-".contains(byte);
        if slash == 0 || !user[..slash].iter().all(plain) {
            return None;
        }
        let end = user
            .iter()
            .rposition(|byte| *byte == b'@')
            .filter(|at| *at > slash);
        Some((from + slash + 1, from + end.unwrap_or(user.len())))
    }

    /// An option: what the next word is.
    fn option(&mut self, word: &[u8]) {
        if NAMES.contains(&word) {
            self.next = Next::Name;
            return;
        }
        // The last letter of several counts: `curl -sSu user:VALUE`.
        let several = word.len() > 2 && word[1..].iter().all(u8::is_ascii_alphabetic);
        let last = word.last().copied();
        let found = self.rows().find(|(_, option, takes)| {
            let option = option.as_bytes();
            word == option
                || several
                    && *takes == Takes::User
                    && option.len() == 2
                    && last == option.last().copied()
        });
        match found {
            None | Some((_, _, Takes::Joined)) => {}
            Some((_, _, takes)) => self.next = Next::Value(*takes),
        }
    }

    fn program(&mut self, name: &str) {
        let name = match name {
            "secret" if self.gh => GH_SECRET,
            name => name,
        };
        let host = name == "login" && self.begun && !self.registry;
        let remote = REMOTE.contains(&name);
        for (at, (programs, _, _)) in PROGRAMS.iter().enumerate() {
            if !host && programs.contains(&name) {
                self.rows |= 1 << at;
            }
            if remote && programs.contains(&"sshpass") {
                self.rows &= !(1 << at);
            }
        }
        for (at, (program, word)) in WORDS.iter().enumerate() {
            if *word == name && self.words >> at & 1 == 1 {
                self.word = true;
            }
            if *program == name {
                self.words |= 1 << at;
            }
        }
        let first = !self.begun;
        self.slashed |= SLASHED.contains(&name) || first && SLASHED_FIRST.contains(&name);
        self.sets |= SETS.contains(&name) || first && name == SETS_FIRST;
        self.gh |= name == "gh";
        self.registry |= REGISTRIES.contains(&name);
        self.begun = true;
    }
}

/// Whether the word is a setting's name that is one of a secret: the part behind the last sign that no name has.
fn setting(word: &[u8]) -> bool {
    let length = word
        .iter()
        .rev()
        .take_while(|byte| names::letter(**byte))
        .count();
    names::secret(&word[word.len() - length..])
}

/// What is secret in the value that begins there.
fn value(takes: Takes, word: &[u8], from: usize) -> Option<(usize, usize)> {
    let part = word.get(from..)?;
    let place = |sign: u8| part.iter().position(|byte| *byte == sign);
    let begin = match takes {
        Takes::Joined | Takes::Either | Takes::Behind => from,
        Takes::User => from + 1 + place(b':').or_else(|| place(b'%'))?,
        Takes::Comma => from + 1 + place(b',')?,
        Takes::Cookie => place(b'=').map(|_| from)?,
    };
    Some((begin, word.len()))
}

const _: () = assert!(PROGRAMS.len() <= 32 && WORDS.len() <= 32);
