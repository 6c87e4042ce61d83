//! Scripts for a shell (`sh -c '…'`): what is known of the words of a program ([`Options`]) is known of each
//! command in one, and what is piped into a program that reads a secret is one.
//!
//! It is read as a shell would, but forgivingly: any text is a script here, and what is not closed goes on to
//! its end. Each text is read once for each level in which it stands, of which there are [`DEPTH`].

use super::options::Options;
use super::scan::{quote, word};
use super::{Edit, find};

/// Scripts in scripts are looked into so deep: `sh -c "ssh host 'x $(y)'"`.
pub(super) const DEPTH: u8 = 6;

/// Here documents of one line.
const DOCUMENTS: usize = 4;

/// Words that stand before a program.
const BEFORE: [&str; 22] = [
    "!", "{", "builtin", "command", "do", "doas", "elif", "else", "env", "exec", "if", "nice",
    "nohup", "srun", "stdbuf", "sudo", "then", "time", "timeout", "until", "while", "xargs",
];

/// Programs that say what they are told.
const SAYS: [&str; 4] = ["echo", "printf", "print", "yes"];

/// What `printf` is told first is no secret then.
const FORMATS: [&[u8]; 2] = [b"%s", b"%s\\n"];

/// Programs that read a secret, and a word that makes them; none: they always do.
const READS: &[(&str, &str)] = &[
    ("chpasswd", ""),
    ("cryptsetup", ""),
    ("gh", "secret"),
    ("docker", "secret"),
    ("htpasswd", "-i"),
    ("huggingface-cli", "login"),
    ("kinit", ""),
    ("mysql_config_editor", ""),
    ("openssl", "stdin"),
    ("openssl", "fd:0"),
    ("pass", "insert"),
    ("passwd", ""),
    ("podman", "secret"),
    ("secret-tool", ""),
    ("smbpasswd", ""),
    ("ssh-add", ""),
    ("su", ""),
    ("vault", "login"),
    ("wandb", "login"),
];

/// Options that make any program read a secret.
const READING: [&str; 6] = [
    "--password-stdin",
    "--pass-stdin",
    "--passphrase-fd",
    "--stdin-password",
    "--token-stdin",
    "--with-token",
];

/// Hides what is secret in a script.
pub(super) fn hide(text: &[u8], edit: &mut Edit) {
    if text.iter().any(u8::is_ascii_whitespace) {
        script(text, 0, text.len(), DEPTH, edit);
    }
}

fn script(text: &[u8], from: usize, to: usize, depth: u8, edit: &mut Edit) {
    let text = &text[..to];
    let mut line = Line::default();
    let mut at = from;
    while at < to {
        let next = text.get(at + 1).copied();
        match text[at] {
            b'\\' if next == Some(b'\n') => at += 2,
            b'\n' => {
                line.command_ends(edit);
                at = line.documents(text, at + 1, edit);
                line = Line::default();
            }
            b';' => {
                line.pipeline_ends(edit);
                at += 1;
            }
            b'&' if next != Some(b'>') => {
                line.pipeline_ends(edit);
                at += 1;
            }
            b'|' if next == Some(b'|') => {
                line.pipeline_ends(edit);
                at += 2;
            }
            b'|' | b'(' | b')' => {
                line.command_ends(edit);
                at += 1;
            }
            b'<' | b'>' if next != Some(b'(') => at = line.redirection(text, at),
            b'#' if at == from || text[at - 1].is_ascii_whitespace() => {
                let end = find(&text[at..], b"\n").map_or(to, |length| at + length);
                if depth > 0 {
                    script(text, at + 1, end, depth - 1, edit);
                }
                at = end;
            }
            byte if byte.is_ascii_whitespace() || byte == b'&' => at += 1,
            _ => {
                let end = word(text, at).max(at + 1);
                let (begin, until) = inner(text, at, end);
                line.command
                    .take(text, (at, end), (begin, until), edit, &mut line.said);
                if depth > 0 {
                    parts(text, at, end, depth - 1, edit);
                }
                at = end;
            }
        }
    }
    line.pipeline_ends(edit);
}

/// The word without the quotes around all of it.
fn inner(text: &[u8], begin: usize, end: usize) -> (usize, usize) {
    let dollar = text[begin] == b'$' && end - begin > 1 && quote(text[begin + 1]);
    let first = begin + usize::from(dollar);
    let quoted = quote(text[first]) && end - first > 1 && text[end - 1] == text[first];
    if quoted {
        (first + 1, end - 1)
    } else {
        (begin, end)
    }
}

/// Looks into what a word holds that can be a script itself: quotations with blanks, substitutions.
fn parts(text: &[u8], from: usize, to: usize, depth: u8, edit: &mut Edit) {
    let mut at = from;
    while at < to {
        let opens = match text[at] {
            b'$' | b'<' | b'>' if text.get(at + 1) == Some(&b'(') => 2,
            byte if quote(byte) => 1,
            b'\\' if text.get(at + 1).is_some_and(|byte| quote(*byte)) => 2,
            _ => {
                at += 1;
                continue;
            }
        };
        let end = super::scan::closed(&text[..to], at).max(at + opens);
        let inside = (at + opens).min(end)..end;
        if text[inside.clone()].iter().any(u8::is_ascii_whitespace) {
            script(
                text,
                inside.start,
                (inside.end - 1).max(inside.start),
                depth,
                edit,
            );
        }
        at = end;
    }
}

/// What is known of a line: commands with pipes between them, up to where one does not get what the other says.
#[derive(Default)]
struct Line {
    command: Command,
    /// Words that were said into a pipe.
    said: Vec<(usize, usize)>,
    /// Here documents whose text follows on the next lines: the delimiter, and whether tabs stand before it.
    documents: Vec<(usize, usize)>,
    /// Somebody on this line reads a secret.
    secret: bool,
}

impl Line {
    fn command_ends(&mut self, edit: &mut Edit) {
        let command = std::mem::take(&mut self.command);
        if command.reads_secret {
            self.secret = true;
            for (begin, end) in self.said.drain(..).chain(command.given) {
                edit.hide(begin, end);
            }
        }
    }

    fn pipeline_ends(&mut self, edit: &mut Edit) {
        self.command_ends(edit);
        self.said.clear();
    }

    /// A redirection, with the word that it is to or from. Says where to go on.
    fn redirection(&mut self, text: &[u8], at: usize) -> usize {
        let signs = text[at..]
            .iter()
            .take_while(|byte| b"<>".contains(byte))
            .count();
        let more = text[at + signs..]
            .iter()
            .take_while(|byte| b"&|-".contains(byte));
        let mut from = at + signs + more.count();
        from += text[from..]
            .iter()
            .take_while(|byte| b" \t".contains(byte))
            .count();
        let end = word(text, from);
        match &text[at..at + signs] {
            b"<<<" => self.command.given.push((from, end)),
            b"<<" if from < end && self.documents.len() < DOCUMENTS => {
                self.documents.push(inner(text, from, end));
            }
            _ => {}
        }
        end
    }

    /// The here documents that begin there: hidden, if a secret is read. Says where to go on.
    fn documents(&mut self, text: &[u8], from: usize, edit: &mut Edit) -> usize {
        let mut at = from;
        if !self.secret {
            return at;
        }
        for (begin, end) in std::mem::take(&mut self.documents) {
            let delimiter = &text[begin..end];
            let mut end = at;
            let mut next = at;
            while next < text.len() {
                let length = find(&text[next..], b"\n").unwrap_or(text.len() - next);
                if text[next..next + length].trim_ascii() == delimiter {
                    break;
                }
                end = next + length;
                next = (end + 1).min(text.len());
            }
            edit.hide(at, end);
            at = next;
        }
        at
    }
}

/// What is known of one command.
#[derive(Default)]
struct Command {
    options: Options,
    /// The rows of [`READS`] of which the program was seen, a bit each.
    readers: u32,
    reads_secret: bool,
    /// It is `sudo`.
    sudo: bool,
    stage: Stage,
    /// Here strings.
    given: Vec<(usize, usize)>,
}

/// How far a command was read.
#[derive(Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Before,
    Says,
    Other,
}

impl Command {
    fn take(
        &mut self,
        text: &[u8],
        whole: (usize, usize),
        (begin, end): (usize, usize),
        edit: &mut Edit,
        said: &mut Vec<(usize, usize)>,
    ) {
        let word = &text[begin..end];
        if let Some((from, to)) = self.options.take(word) {
            match (from, to == word.len()) {
                (0, true) => edit.hide(whole.0, whole.1),
                (_, true) => edit.hide(begin + from, end),
                _ => edit.hide(begin + from, begin + to),
            }
        }
        let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or(word);
        let name = std::str::from_utf8(name).unwrap_or_default();
        self.reads(word, name);
        match self.stage {
            Stage::Before if SAYS.contains(&name) => self.stage = Stage::Says,
            Stage::Before => {
                let prefix =
                    BEFORE.contains(&name) || word.starts_with(b"-") || word.contains(&b'=');
                if !prefix {
                    self.stage = Stage::Other;
                }
            }
            Stage::Says => {
                let option = word.starts_with(b"-") && word.len() <= 3;
                if !option && !FORMATS.contains(&word) {
                    said.push(whole);
                }
            }
            Stage::Other => {}
        }
    }

    fn reads(&mut self, word: &[u8], name: &str) {
        let option = word.starts_with(b"-") && !word.starts_with(b"--");
        self.reads_secret |= self.sudo && option && word.contains(&b'S')
            || READING
                .iter()
                .any(|reading| word.starts_with(reading.as_bytes()));
        self.sudo |= name == "sudo";
        for (at, (program, made)) in READS.iter().enumerate() {
            let seen = self.readers >> at & 1 == 1;
            self.reads_secret |= seen && made.as_bytes() == word;
            if *program == name {
                self.readers |= 1 << at;
                self.reads_secret |= made.is_empty() && self.stage == Stage::Before;
            }
        }
    }
}

const _: () = assert!(READS.len() <= 32);
