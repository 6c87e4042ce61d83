//! What Slurm's commands say on standard error with `-v`: handed on line by line, with what the user
//! gave in place of what the chaperon wrote for it, and without what tells about the capsule.
//!
//! A step's own standard error comes the same way. What is not a line of the command's passes as it is.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::{End, Stream};
use bstr::ByteSlice;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;

use super::options::Verdict;
use super::parse::Parsed;
use super::request::Context;
use crate::conn::Conn;
use crate::files;
use crate::spawn::Running;

/// The longest line of a command's own, in bytes. What is longer passes as it is: the commands cut
/// theirs off far below (`LINEBUFSIZE`, `src/common/log.c`).
const LONGEST: usize = 64 << 10;

/// Bytes that are read at a time.
const PART: usize = 8192;

/// How long standard error may stay open behind the end of its command.
const LINGER: Duration = Duration::from_secs(1);

/// The lines around a list of options (`slurm_print_set_options()` in `src/common/slurm_opt.c`).
const BEGINS: &[u8] = b"defined options";
const RULE: &[u8] = b"-------------------- --------------------";
const ENDS: &[u8] = b"end of defined options";

/// What begins a line that reports a failure. It passes: what is wrong has to be read.
const FAILURES: [&[u8]; 4] = [b"error: ", b"fatal: ", b"warning: ", b"hint: "];

/// What slurmstepd's lines begin with, before the node's name (`srun --slurmd-debug`).
const STEPD: &[u8] = b"slurmstepd";

/// Rewrites standard error.
#[derive(Debug, Default)]
pub struct Messages {
    /// What begins the command's own lines: `srun: `.
    own: Vec<u8>,
    /// Options that the chaperon wrote, by name, with what the user gave for each, if anything.
    options: Vec<(&'static str, Option<Vec<u8>>)>,
    /// The words that the script asks with, as sbatch tells them from `-vvv` on.
    found: Vec<Vec<u8>>,
    /// The mask that a line of PBS's sets, which Slurm has no name for.
    umask: Option<u32>,
    /// What is in no line that is handed on.
    hidden: Vec<Vec<u8>>,
    /// The state directory: nothing inside knows it.
    state: Vec<u8>,
    /// Names that the chaperon wrote, and what the user knows each as.
    renames: Vec<(String, String)>,
    /// The options of a list whose end has not come.
    list: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    /// A line that may be the command's own and whose end has not come.
    held: Vec<u8>,
    /// In a line that passes.
    passing: bool,
}

impl Messages {
    /// For a request; `words` is the command line of the real command up to its operands.
    pub fn new(context: &Context<'_>, parsed: &Parsed, words: &[OsString]) -> Self {
        let session = &context.session;
        let mut options = Vec::new();
        for name in added(parsed, words) {
            options.push((name, shown(context, parsed, name)));
        }
        Self {
            own: format!("{}: ", context.request.command).into_bytes(),
            options,
            hidden: vec![
                session.order.agent_sandbox.clone(),
                own_program(),
                b"AGENT_SANDBOX_".to_vec(),
                b"/dev/fd/".to_vec(),
            ],
            state: session.state().as_os_str().as_bytes().to_vec(),
            ..Self::default()
        }
    }

    /// Tells which words the script asks with, and the mask that it sets.
    #[must_use]
    pub fn with_script(mut self, parsed: &Parsed, words: Vec<Vec<u8>>, umask: Option<u32>) -> Self {
        /// `-vvv`
        const TOLD: usize = 3;
        if parsed.all("verbose").count() >= TOLD {
            self.found = words;
        }
        self.umask = umask;
        self
    }

    /// Puts what the user knows in place of names that the chaperon wrote.
    #[must_use]
    pub fn renamed(mut self, renames: Vec<(String, String)>) -> Self {
        self.renames = renames;
        self
    }

    /// What is to be shown of this part.
    pub fn part(&mut self, part: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(part.len());
        let mut rest = part;
        while !rest.is_empty() {
            let end = rest.iter().position(|&byte| byte == b'\n');
            let (line, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            rest = behind;
            if self.passing {
                shown.extend_from_slice(line);
                self.passing = end.is_none();
                continue;
            }
            self.held.extend_from_slice(line);
            if end.is_some() {
                let whole = std::mem::take(&mut self.held);
                self.line(&whole, &mut shown);
            } else if !self.may_be_own() || self.held.len() > LONGEST {
                shown.append(&mut self.held);
                self.passing = true;
            }
        }
        shown
    }

    /// What is left at the end.
    pub fn end(&mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        let whole = std::mem::take(&mut self.held);
        self.line(&whole, &mut shown);
        shown
    }

    /// Whether what is held can become a line of the command's or of slurmstepd's.
    fn may_be_own(&self) -> bool {
        [&self.own[..], STEPD].iter().any(|prefix| {
            let common = prefix.len().min(self.held.len());
            prefix[..common] == self.held[..common]
        })
    }

    fn line(&mut self, line: &[u8], shown: &mut Vec<u8>) {
        let Some(text) = line.strip_prefix(&self.own[..]) else {
            let stepd =
                line.starts_with(STEPD) && !is_failure(line.splitn(2, |&b| b == b' ').nth(1));
            if !(stepd && self.hides(line)) {
                shown.extend_from_slice(line);
            }
            return;
        };
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text == BEGINS && self.list.is_none() {
            for word in &self.found {
                self.say(
                    &[b"debug2: Found in script, argument \"", word, b"\""],
                    shown,
                );
            }
            self.list = Some(Vec::new());
        } else if self.list.is_some() {
            self.listed(text, shown);
        } else if is_failure(Some(text)) || !self.hides(text) {
            let mut line = replaced(line, &self.state, b"<state>");
            for (name, instead) in &self.renames {
                line = replaced(&line, name.as_bytes(), instead.as_bytes());
            }
            shown.extend_from_slice(&line);
        }
    }

    /// A line of the list of options.
    fn listed(&mut self, text: &[u8], shown: &mut Vec<u8>) {
        if text == ENDS {
            let list = self.list.take().unwrap_or_default();
            self.say(&[BEGINS], shown);
            self.say(&[RULE], shown);
            for (name, value) in self.rewritten(list) {
                let name = String::from_utf8_lossy(&name);
                self.say(&[format!("{name:<20}: ").as_bytes(), &value], shown);
            }
            self.say(&[RULE], shown);
            self.say(&[ENDS], shown);
        } else if text != RULE
            && let Some(list) = &mut self.list
            && let Some(at) = text.find(": ")
        {
            let name = text[..at].trim_ascii_end().to_vec();
            list.push((name, text[at + 2..].to_vec()));
        }
    }

    /// The list with what the user gave.
    fn rewritten(&self, mut list: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let ours = |name: &[u8]| {
            let mut all = self.options.iter();
            all.any(|(known, _)| known.as_bytes() == name)
        };
        let mut places: Vec<(Vec<u8>, usize)> = Vec::new();
        for (at, (name, _)) in list.iter().enumerate() {
            if ours(name) {
                places.push((name.clone(), at));
            }
        }
        for (name, value) in &self.options {
            let name = name.as_bytes();
            let place = places.iter().find(|(known, _)| known == name);
            match (place, value) {
                (Some((_, at)), Some(value)) => list[*at].1.clone_from(value),
                (Some((_, at)), None) => list[*at].0.clear(),
                (None, Some(value)) => {
                    // Slurm's order is that of the names.
                    let at = list.iter().position(|(known, _)| &known[..] > name);
                    let at = at.unwrap_or(list.len());
                    list.insert(at, (name.to_vec(), value.clone()));
                    for (_, place) in &mut places {
                        *place += usize::from(*place >= at);
                    }
                }
                (None, None) => {}
            }
        }
        list.retain(|(name, _)| !name.is_empty());
        if let Some(umask) = self.umask {
            let place = list.iter().position(|(name, _)| name == b"verbose");
            let line = (b"(null)".to_vec(), format!("0{umask:o}").into_bytes());
            list.insert(place.map_or(list.len(), |at| at + 1), line);
        }
        list
    }

    fn say(&self, text: &[&[u8]], shown: &mut Vec<u8>) {
        shown.extend_from_slice(&self.own);
        shown.extend(text.iter().copied().flatten());
        shown.push(b'\n');
    }

    fn hides(&self, text: &[u8]) -> bool {
        let mut hidden = self.hidden.iter();
        hidden.any(|word| contains(text, word))
    }
}

/// The names of options that stand on the real command's line and were not, or not so, given by the
/// user; and of those that the user gave and the chaperon carries out.
fn added(parsed: &Parsed, words: &[OsString]) -> BTreeSet<&'static str> {
    let given = |name: &str| parsed.last(name).map(|given| given.option);
    let mut names: BTreeSet<&'static str> = parsed
        .given
        .iter()
        .filter(|given| matches!(given.option.verdict, Verdict::Ours(_)))
        .map(|given| given.option.long)
        // The same number stands on the real command's line, and where it belongs.
        .filter(|name| *name != "jobid")
        .collect();
    for word in words {
        let Some(word) = word.as_bytes().strip_prefix(b"--") else {
            continue;
        };
        let name = word.split(|&byte| byte == b'=').next().unwrap_or_default();
        let known = WRITTEN.iter().find(|known| known.as_bytes() == name);
        if let Some(known) = known
            && given(known)
                .is_none_or(|option| option.verdict != Verdict::Pass || *known == "job-name")
        {
            names.insert(known);
        }
    }
    names
}

/// Options that the chaperon writes of its own.
const WRITTEN: [&str; 17] = [
    "chdir",
    "error",
    "export",
    "ignore-pbs",
    "input",
    "job-name",
    "multi-prog",
    "no-shell",
    "nodes",
    "ntasks",
    "open-mode",
    "output",
    "parsable",
    "preserve-env",
    "quiet",
    "time",
    "wrap",
];

/// An option as Slurm would show it, had it been given what the user gave; `None` if nothing.
fn shown(context: &Context<'_>, parsed: &Parsed, name: &str) -> Option<Vec<u8>> {
    let Some(given) = parsed.last(name) else {
        // In a job the name of the job stands for one, though not for the chaperon.
        let command = context.request.command;
        let named = name == "job-name" && command == Command::Srun;
        let mut variables = context.request.environment.iter();
        let found = variables.find(|(name, _)| named && name == "SLURM_JOB_NAME")?;
        return Some(found.1.as_bytes().to_vec());
    };
    let Some(value) = &given.value else {
        return Some(b"set".to_vec());
    };
    let value = value.as_bytes();
    let cwd = context.request.cwd.as_os_str().as_bytes();
    let below = |directory: &[u8], path: &[u8]| match path.first() {
        Some(b'/') => path.to_vec(),
        _ => [directory, b"/", path].concat(),
    };
    let directory = parsed
        .value("chdir")
        .map_or(cwd.to_vec(), |path| below(cwd, path.as_bytes()));
    Some(match name {
        "error" | "input" | "output" if value.eq_ignore_ascii_case(b"none") => {
            b"/dev/null".to_vec()
        }
        // sbatch says where they will be; srun does not.
        "error" | "input" | "output" if context.request.command == Command::Sbatch => {
            below(&directory, value)
        }
        "chdir" => directory,
        "open-mode" => value[..value.len().min(1)].to_ascii_lowercase(),
        _ => value.to_vec(),
    })
}

/// What `salloc` runs meanwhile.
fn own_program() -> Vec<u8> {
    let path = files::own_program().unwrap_or_default();
    path.into_os_string().into_vec()
}

fn is_failure(text: Option<&[u8]>) -> bool {
    let text = text.unwrap_or_default();
    FAILURES.iter().any(|begin| text.starts_with(begin))
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    !word.is_empty() && text.contains_str(word)
}

/// A text with one word in place of another.
fn replaced(text: &[u8], word: &[u8], instead: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word).filter(|_| !word.is_empty()) {
        all.extend_from_slice(&rest[..at]);
        all.extend_from_slice(instead);
        rest = &rest[at + word.len()..];
    }
    all.extend_from_slice(rest);
    all
}

/// Standard error of a command that runs, as the shim gets it.
#[derive(Debug)]
pub struct Speaker {
    error: Option<ChildStderr>,
    messages: Messages,
}

impl Speaker {
    /// For a command whose standard error is a pipe; one that has it passed says nothing here.
    pub fn new(error: Option<ChildStderr>, messages: Messages) -> Self {
        Self { error, messages }
    }

    /// Whether there is more to come.
    pub fn is_open(&self) -> bool {
        self.error.is_some()
    }

    /// What is said next; it may be empty. Pending where there is no more. Cancel-safe.
    pub async fn next(&mut self) -> Vec<u8> {
        let Some(error) = &mut self.error else {
            return std::future::pending().await;
        };
        let mut part = [0; PART];
        match error.read(&mut part).await {
            Ok(count) if count > 0 => self.messages.part(&part[..count]),
            _ => {
                self.error = None;
                self.messages.end()
            }
        }
    }

    /// Waits for the end of the command as [`Running::attend`], and tells the shim what is said.
    pub async fn attend(&mut self, running: &mut Running, conn: &mut Conn) -> End {
        loop {
            tokio::select! {
                end = running.wait() => {
                    self.finish(conn).await;
                    return end;
                }
                text = self.next() => {
                    // A shim that is gone shows as an event.
                    let _ = conn.output(Stream::Error, &text).await;
                }
                event = conn.event() => {
                    if let Some(end) = running.heed(event, conn).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Hands on what is left, once the command has ended.
    async fn finish(&mut self, conn: &Conn) {
        let rest = async {
            while self.is_open() {
                let text = self.next().await;
                if conn.output(Stream::Error, &text).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

#[cfg(test)]
mod tests;
