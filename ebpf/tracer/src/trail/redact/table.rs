//! The shapes of secrets in command lines, as regular expressions: what introduces a secret, and what is hidden then.
//!
//! Between two arguments stands a zero, between two words of a script a blank. Words in braces stand for the expressions in
//! [`PARTS`]. An expression consumes what it looks at, so that a text takes time in proportion to its length.

use std::sync::LazyLock;

use agent_sandbox_secrets::keys;
use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

/// What is hidden behind an introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// What the group `secret` holds.
    Group,
    /// The next word, or the rest of the argument.
    Word,
    /// The same, unless it is a setting or a URL.
    Bare,
    /// The same, if there is a `=` in it; else it is a file.
    Cookie,
    /// The same, behind its first `:` or `%`, unless all of it is the number of a user and a group.
    User,
    /// The same, behind its first `,`.
    Comma,
    /// The same, up to its last `@`.
    Slashed,
    /// A string in quotes.
    Quoted,
    /// The lines up to the word in the group `end`.
    Document,
}

use Takes::{Bare, Comma, Cookie, Document, Group, Quoted, Slashed, User, Word};

/// What introduces a secret. If there is a group `name`, that must be the name of a secret.
const SHAPES: &[(&str, Takes)] = &[
    // RFC 3986, 3.2.1: `://user:SECRET@host`; one that has a slash, if it is no port; a long token as the user.
    (r"://[^{URL}/?#]*?:(?P<secret>[^{URL}/?#]*)@", Group),
    (
        r"://[^{URL}:/?#]*:(?P<secret>[0-9]*[^{URL}/?#0-9][^{URL}/?#]*[/?#][^{URL}]*)@",
        Group,
    ),
    (r"://(?P<secret>[^{URL}:/?#@]{20,})@", Group),
    // RFC 6750: a token that nothing else names.
    (
        r"(?i)\bbearer[ \t]+(?P<secret>[a-z0-9._~+/-]{16,}=*)",
        Group,
    ),
    // RFC 7468: a private key, of whatever kind.
    (
        r"PRIVATE KEY-----(?P<secret>[^\x00]*?)(?:-----END|\x00|\z)",
        Group,
    ),
    // .netrc of curl(1): a machine, and pairs of words in any order.
    (
        r"(?:\bmachine{B}{N}|\bdefault{B}login{B}{N})(?:{B}(?:login|account){B}{N})*{B}password{B}(?P<secret>{N})",
        Group,
    ),
    // XML.
    (
        r"<(?P<name>[\w.-]+)(?:\s[^<>\x00]*)?>(?P<secret>[^<\x00]*)</",
        Group,
    ),
    // Calls in Python, PHP, JavaScript, Rust: `putenv('NAME', 'SECRET')`.
    (
        r#"(?:putenv|setdefault|setenv|set_var|setItem)\(\s*\\*["'](?P<name>[\w.-]+)\\*["']\s*,\s*"#,
        Quoted,
    ),
    // A setting and its value: of programs, of shells as the first word, of jq(1).
    (
        r#"(?:{W}(?:configure|config|set-environment|setenv|--arg|--argjson)|(?:{FIRST}|\x00)set)(?:{S}[^\s\x00;|&]+){0,5}?{S}(?:[^\s\x00;|&]*[^\w.\s\x00;|&-])?(?P<name>{NAME}){S}"#,
        Word,
    ),
    // sshpass(1); what is behind its own options is another program's.
    (
        r"{W}sshpass(?:{S}-[a-oq-zA-Z][^\s\x00]*)*{S}-p[\s\x00]*",
        Word,
    ),
    // Commands that are told a secret, without an option.
    (
        r"{W}(?:wandb|vault|cargo){REST}{S}login(?:{S}-[^\s\x00]*)*{S}",
        Bare,
    ),
    (
        r"{W}(?:rclone{REST}{S}obscure|ngrok{REST}{S}(?:add-)?authtoken|snyk{REST}{S}auth)(?:{S}-[^\s\x00]*)*{S}",
        Bare,
    ),
    // Oracle: `sqlplus user/SECRET@database`; names that are other words, too, as the first of a command.
    (
        r#"{W}(?:sqlplus|sqlldr|expdp|impdp){REST}{S}(?:userid=)?["']?[\w$#-]+/"#,
        Slashed,
    ),
    (
        r#"(?:{FIRST}(?:[^\s\x00;|&'"`(]*/)?(?:exp|imp|rman)[\s\x00]|\x00(?:[^\s\x00;|&]*/)?(?:exp|imp|rman)\s)[\s\x00]*(?:userid=)?["']?[\w$#-]+/"#,
        Slashed,
    ),
    // What is said into a pipe to a program that reads a secret.
    (
        r#"{W}(?:echo|printf|print|yes)(?:[ \t]+-[A-Za-z]{1,2}|[ \t]+["']?%s(?:\\+n)?["']?)*[ \t]+(?P<secret>(?:{SQ}|{DQ}|\\[^\x00]|[^;\n\x00'"\\])+?)[ \t]*\|(?:{READS}|{TOLD})"#,
        Group,
    ),
    // Its here string, its here document.
    (
        r"(?:(?:{FIRST}|\x00){READS}|{TOLD})[^;\n\x00]*?<<<[ \t]*",
        Word,
    ),
    (
        r#"(?:(?:{FIRST}|\x00){READS}|{TOLD})[^\n\x00]*?[^<\n\x00]<<-?[ \t]*\\?["']?(?P<end>[\w.-]+)[^\n\x00]*"#,
        Document,
    ),
    (
        r#"[^<\n\x00]<<-?[ \t]*\\?["']?(?P<end>[\w.-]+)[^\n\x00]*\|(?:{READS}|{TOLD})[^\n\x00]*"#,
        Document,
    ),
];

/// Programs with an option of theirs, and what it takes.
const PROGRAMS: &[(&str, &str, Takes)] = &[
    // mysql(1): in the same word alone.
    (
        r"(?:mysql(?:dump|admin|import|show|check|binlog)?|mariadb(?:-dump|-admin)?)",
        r"-p",
        Word,
    ),
    (r"(?:7z[arz]?|rar|unrar)", r"-h?p", Word),
    // Whose `login` takes it; of others that can be a host or a file.
    (
        r"(?:apptainer|auth|az|buildah|cf|crane|docker|helm|nerdctl|oc|oras|podman|registry|singularity|skopeo){REST}{S}login",
        r"-p[\s\x00]*",
        Word,
    ),
    (r"redis-cli", r"-a[\s\x00]*", Word),
    (
        r"ldap(?:search|add|modify|delete|passwd|whoami)",
        r"-w[\s\x00]*",
        Word,
    ),
    (
        r"(?:zip|unzip|sqlcmd|bcp|ipmitool|mosquitto_pub|mosquitto_sub)",
        r"-P[\s\x00]*",
        Word,
    ),
    (
        r"(?:mongo|mongosh|mongodump|mongorestore|rdesktop|useradd|usermod)",
        r"-p[\s\x00]*",
        Word,
    ),
    // openssl-enc(1): longer ones are other options.
    (r"openssl", r"-[kK][\s\x00]+", Word),
    (r"curl", r"-b[\s\x00]*", Cookie),
    (
        r"(?:curl|sclient|smbclient|rpcclient)",
        r"-[A-Za-z]*?[uU][\s\x00]*",
        User,
    ),
    (r"(?:https?|xh)", r"-a[\s\x00]*", User),
    (r"lftp", r"-u[\s\x00]*", Comma),
    (
        r"gh{REST}{S}secret",
        r"(?:--body[=\s\x00]|-b[\s\x00]*)",
        Word,
    ),
];

/// The expressions that stand in braces. Each may hold those behind it.
const PARTS: &[(&str, &str)] = &[
    // The way to an option of a program: through all arguments, or through the words of one command in a script.
    (
        "{TO}",
        r#"(?:(?:\x00[^\x00]*)*?\x00|(?:\s+(?:{EQ}|{SQ}|{DQ}|\\[^\x00]|[^\s\x00;|&)'"\\])+)*?\s+)"#,
    ),
    // The beginning of a word.
    ("{W}", r#"(?:\A|[\s\x00/"'`(=;|&{])"#),
    // What stands before the first word of a command in a script.
    ("{FIRST}", r#"(?:\A|[;|&(){\n#"'`]\s*)"#),
    // What can be the name of a secret.
    (
        "{NAME}",
        r"[0-9A-Za-z_.-]*(?i:pass|pw|secret|cred|key|auth|bearer|cookie|tok|jwt|otp|psk|pat|sig)[0-9A-Za-z_.-]*",
    ),
    // What parts two words; words in between, as few as possible.
    ("{S}", r"[\s\x00]+"),
    ("{REST}", r"(?:[\s\x00]+[^\s\x00;|&]+)*?"),
    // What no URL holds.
    ("{URL}", r#"\s"'`<>|\x00"#),
    // In .netrc: what parts two words, also as a string writes it; a word.
    ("{B}", r#"(?:[\s\x00"'`]|\\[nt"'])+"#),
    ("{N}", r#"[^\s\x00"'`\\]+"#),
    // Programs that read a secret, as the first word of a command; any that are told so.
    (
        "{READS}",
        r"[ \t]*(?:(?:!|\{|builtin|command|do|doas|elif|else|env|exec|if|nice|nohup|srun|stdbuf|sudo|then|time|timeout|until|while|xargs|-[^\s;|&\x00]*|[\w.]+=[^\s;|&\x00]*)[ \t]+)*(?:[^\s;|&\x00]*/)?(?:chpasswd|cryptsetup|kinit|mysql_config_editor|passwd|secret-tool|smbpasswd|ssh-add|su)\b",
    ),
    (
        "{TOLD}",
        r"[^;|&\n\x00]*(?:\bsudo\b[^;|&\n\x00]*[ \t]-[A-Za-z]*S|\b(?:gh|docker|podman)\b[^;|&\n\x00]*[ \t]secret|\bhtpasswd\b[^;|&\n\x00]*[ \t]-i|\bopenssl\b[^;|&\n\x00]*[ \t:](?:stdin|fd:0)|\bpass[ \t]+insert|\b(?:vault|wandb|huggingface-cli)\b[^;|&\n\x00]*[ \t]login|--(?:password-stdin|pass-stdin|passphrase-fd|stdin-password|token-stdin|with-token))",
    ),
    // What is nested in a word, `$(…)`, so many levels deep; the innermost goes on to the argument's end.
    (
        "{P3}",
        r#"[({](?:{DQ}|{SQ}|{BQ}|{P2}|\\[^\x00]|[^(){}"'`\\\x00])*[)}]?"#,
    ),
    // Strings: with backslashes before the quotes, in double quotes, in single ones, in backticks. What is not closed goes on.
    (
        "{EQ}",
        r#"(?:\\{2,}["'][^\x00]*|\\"(?:\\{2,}[^\\\x00]|\\[^\\"\x00]|[^"\\\x00])*(?:\\?")?|\\'(?:\\{2,}[^\\\x00]|\\[^\\'\x00]|[^'\\\x00])*(?:\\?')?)"#,
    ),
    ("{DQ}", r#""(?:\$(?:{P2})?|\\[^\x00]|[^"\\$\x00])*"?"#),
    ("{SQ}", r"'[^'\x00]*'?"),
    ("{BQ}", r"`[^`\x00]*`?"),
    (
        "{P2}",
        r#"[({](?:"[^"\x00]*"?|{P1}|\\[^\x00]|[^(){}"\\\x00])*[)}]?"#,
    ),
    (
        "{P1}",
        r"[({](?:[({][^\x00]*|\\[^\x00]|[^(){}\\\x00])*[)}]?",
    ),
];

/// A row of the table.
pub(super) struct Shape {
    pub(super) introduces: Regex,
    /// Introduces another secret of the same program behind the first.
    pub(super) again: Option<Regex>,
    pub(super) takes: Takes,
}

/// All rows, and a set that says which of them a text holds.
pub(super) static ROWS: LazyLock<(Vec<Shape>, RegexSet)> = LazyLock::new(|| {
    let shapes = SHAPES.iter().map(|row| (row.0.to_string(), None, row.1));
    let programs = PROGRAMS.iter().map(|(program, option, takes)| {
        let again = Some(format!(r"\A{{TO}}{option}"));
        (format!("{{W}}{program}{{TO}}{option}"), again, *takes)
    });
    let rows: Vec<_> = shapes.chain(programs).collect();
    let set = RegexSetBuilder::new(rows.iter().map(|row| expanded(&row.0)));
    let shape = |(introduces, again, takes): (String, Option<String>, Takes)| Shape {
        introduces: regex(&introduces),
        again: again.map(|again| regex(&again)),
        takes,
    };
    let set = { set }
        .unicode(false)
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    (rows.into_iter().map(shape).collect(), set)
});

/// A name, and what makes the text behind it its value: `NAME=`, `"NAME": `, `X["NAME"] =`, `NAME\u003d` in JSON, `NAME%3D` in URLs.
pub(super) static ASSIGNED: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?P<name>{NAME})(?P<quote>\\*["'`])?(?P<element>\s*[\]}])?(?P<space>\s*)(?P<sign>\\u003d|%3d|\+?=[=:>]*|:[=:>]*)"#,
    )
});

/// An option whose value is the next word.
pub(super) static OPTION: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?P<name>-(?:{NAME}|u|-user|-proxy-user|U))(?:\x00|\s+)"));

/// A key by its length and letters, for names that only then are a secret's.
pub(super) static LIKE_KEY: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"\A\s*(?:[fFbBrRuU]{0,2}\\*["'`])?(\[redacted\]|[0-9A-Za-z_+=][0-9A-Za-z_+=-]{15,})(?:[^0-9A-Za-z_+=/.-]|\z)"#,
    )
});

/// A word as a shell reads it, with all that is nested in it.
pub(super) static WORD: LazyLock<Regex> = LazyLock::new(|| {
    regex(r#"\A(?:{EQ}|{DQ}|{SQ}|{BQ}|[$<>]{P3}|\\[^\x00]|[^\s\x00;&|<>()'"`\\])+"#)
});

/// A string, as programs write one.
pub(super) static QUOTED: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\A(?:[fFbBrRuU]{0,2}(?:{EQ}|{DQ}|{SQ}|{BQ}))"));

/// A value in YAML: indented lines behind `|` or `>`, what is left of the line, or the next line if it is no name itself.
pub(super) static BLOCK: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"\A(?:[|>][^\n\x00]{0,2}(?:\n[ \t]+[^\n\x00]*)+|[^\n\x00]+|\n +(?:[^:\n\x00]|:[^ \n\x00])+)",
    )
});

/// Values in the names of files that were made of URLs: what `curl -O` and `wget` make of signed ones. Some write another
/// sign for the question mark.
pub(super) static QUERIES: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    [
        regex(r"[?@&](?P<name>[\w.-]+)=(?P<secret>[^&/]*)"),
        regex(r"(?:\A|/)(?P<name>[\w.-]+)=(?P<secret>[^&/]*)&"),
    ]
});

/// How keys begin.
pub(super) static BEGINS: LazyLock<Vec<(&[u8], &keys::Key)>> = LazyLock::new(|| {
    let begins = |key: &'static keys::Key| key.begins().map(move |text| (text.as_bytes(), key));
    keys::KEYS.iter().flat_map(begins).collect()
});

/// How any key begins.
pub(super) static KEYS: LazyLock<Regex> = LazyLock::new(|| {
    let begins = keys::KEYS.iter().flat_map(keys::Key::begins);
    regex(&begins.map(regex::escape).collect::<Vec<String>>().join("|"))
});

/// An expression with what its words in braces stand for.
fn expanded(text: &str) -> String {
    let part = |text: String, (name, part): &(&str, &str)| text.replace(name, part);
    PARTS.iter().fold(text.to_string(), part)
}

/// Compiles an expression.
///
/// # Panics
/// It is none: the table is wrong. A test compiles all of it.
fn regex(text: &str) -> Regex {
    let built = RegexBuilder::new(&expanded(text)).unicode(false).build();
    built.unwrap_or_else(|error| panic!("{error}"))
}
