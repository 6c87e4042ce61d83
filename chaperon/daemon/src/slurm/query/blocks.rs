//! The blocks of `NAME=VALUE` that `scontrol show` prints. Values are what users chose: nothing but
//! the beginning of a block is trusted to be what it looks like, and what stands in a block decides
//! nothing outside of it.

use crate::slurm::ids;
use crate::slurm::query::shown::{JobPath, NO_TASK, Named, Who, shown, unwrapped};
use crate::slurm::records::Record;
use bstr::ByteSlice;

/// One job or step.
#[derive(Debug)]
pub(super) struct Block<'a> {
    /// All of it, with the blank line behind it.
    pub(super) text: &'a [u8],
    /// The job's number, of an array the array's; `None`: it is no block but a message.
    pub(super) job: Option<u32>,
    /// Whose it is.
    pub(super) uid: Option<u32>,
    id: u32,
    task: Option<u32>,
    name: &'a [u8],
}

/// The keys of what the capsule took the place of.
const RECORDED: [(&str, JobPath); 5] = [
    ("Command=", JobPath::Command),
    ("WorkDir=", JobPath::Directory),
    ("StdErr=", JobPath::Error),
    ("StdIn=", JobPath::Input),
    ("StdOut=", JobPath::Output),
];

impl<'a> Block<'a> {
    /// Takes an answer apart.
    pub(super) fn all(answer: &'a [u8], steps: bool, oneliner: bool) -> Vec<Self> {
        let key: &[u8] = if steps { b"StepId=" } else { b"JobId=" };
        let mut starts: Vec<usize> = Vec::new();
        let mut at = 0;
        let mut blank = true;
        for line in answer.split_inclusive(|&byte| byte == b'\n') {
            // Only behind a blank line a block of several lines begins.
            if line.starts_with(key) && (blank || oneliner || steps) {
                starts.push(at);
            }
            blank = line.trim_ascii().is_empty();
            at += line.len();
        }
        if starts.first() != Some(&0) {
            starts.insert(0, 0);
        }
        let ends = starts.iter().skip(1).copied().chain([answer.len()]);
        starts
            .iter()
            .zip(ends)
            .map(|(&start, end)| Self::new(&answer[start..end], key, steps))
            .filter(|block| !block.text.is_empty())
            .collect()
    }

    fn new(text: &'a [u8], key: &[u8], steps: bool) -> Self {
        let mut block = Self {
            text,
            job: None,
            uid: None,
            id: 0,
            task: None,
            name: b"",
        };
        let Some(rest) = text.strip_prefix(key) else {
            return block;
        };
        block.job = ids::leading(rest);
        block.id = block.job.unwrap_or(0);
        // Numbers stand before the name, which is the first that a user chose.
        let mut words = rest.split(|&byte| byte == b' ');
        words.next();
        if !steps {
            for word in words {
                if let Some(array) = word.strip_prefix(b"ArrayJobId=") {
                    block.job = ids::leading(array);
                } else if let Some(task) = word.strip_prefix(b"ArrayTaskId=") {
                    let whole = task.iter().all(u8::is_ascii_digit);
                    block.task = Some(ids::leading(task).filter(|_| whole).unwrap_or(NO_TASK));
                } else if !word.starts_with(b"HetJob") {
                    break;
                }
            }
            let start = text.find("JobName=").map_or(0, |at| at + 8);
            let name = &text[start..];
            let end = name.find("\n   UserId=").or_else(|| name.find(" UserId="));
            block.name = &name[..end.unwrap_or(0)];
        }
        block.uid = text.find("UserId=").and_then(|at| user_id(&text[at + 7..]));
        block
    }

    /// The block of a job in the scope, with what was asked for in place of the capsule's.
    pub(super) fn rewritten(
        &self,
        record: Option<&Record>,
        who: Who<'_>,
        oneliner: bool,
    ) -> Vec<u8> {
        let text = self.script_unwrapped();
        let Some(record) = record else { return text };
        let named = Named {
            id: self.id,
            array: self.task.and_then(|task| Some((self.job?, task))),
            name: self.name,
        };
        let value = |place| shown(record, place, &named, who);
        if oneliner {
            one_line(text, value)
        } else {
            lines(&text, value)
        }
    }

    /// `scontrol show job -dd` prints the batch script.
    fn script_unwrapped(&self) -> Vec<u8> {
        let key = b"BatchScript=\n";
        let Some(at) = self.text.find(key).map(|at| at + key.len()) else {
            return self.text.to_vec();
        };
        match unwrapped(&self.text[at..]) {
            Some(script) => [&self.text[..at], &script[..], b"\n\n"].concat(),
            None => self.text.to_vec(),
        }
    }
}

/// `alice(2001)`, or `2001`, which is what steps have.
fn user_id(text: &[u8]) -> Option<u32> {
    let end = text
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(text.len());
    let text = &text[..end];
    match text.iter().rposition(|&byte| byte == b'(') {
        Some(open) => ids::leading(&text[open + 1..]),
        None => ids::leading(text),
    }
}

fn lines(text: &[u8], value: impl Fn(JobPath) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut output = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let Some(entry) = line.strip_prefix(b"   ") else {
            output.extend_from_slice(line);
            continue;
        };
        // The command line of sbatch, since 24.05: it is the chaperon's, not the user's.
        if entry.starts_with(b"SubmitLine=") {
            continue;
        }
        let known = RECORDED
            .iter()
            .find(|(key, _)| entry.starts_with(key.as_bytes()));
        match known.and_then(|(key, place)| Some((key, value(*place)?))) {
            Some((key, value)) => {
                output.extend_from_slice(b"   ");
                output.extend_from_slice(key.as_bytes());
                output.extend_from_slice(&value);
                output.push(b'\n');
            }
            None => output.extend_from_slice(line),
        }
    }
    output
}

/// A key, what can follow its value, and what is shown there (nothing: it is left out).
type Entry = (&'static [u8], &'static [&'static [u8]], Option<JobPath>);

/// On one line, the last of each key is Slurm's: behind these a user chooses nothing with blanks.
fn one_line(text: Vec<u8>, value: impl Fn(JobPath) -> Option<Vec<u8>>) -> Vec<u8> {
    let keys: [Entry; 6] = [
        (
            b" StdOut=",
            &[b" Power=", b" TresPer", b" MailUser=", b" NtasksPer", b" "],
            Some(JobPath::Output),
        ),
        (b" StdIn=", &[b" StdOut="], Some(JobPath::Input)),
        (b" StdErr=", &[b" StdIn="], Some(JobPath::Error)),
        (b" SubmitLine=", &[b" WorkDir=", b" StdErr="], None),
        (
            b" WorkDir=",
            &[
                b" AdminComment=",
                b" SystemComment=",
                b" Comment=",
                b" StdErr=",
            ],
            Some(JobPath::Directory),
        ),
        (
            b" Command=",
            &[b" SubmitLine=", b" WorkDir="],
            Some(JobPath::Command),
        ),
    ];
    let mut text = text;
    // From the back: what is before is not moved.
    let mut end = text.len();
    for (key, nexts, place) in keys {
        let part = &text[..end];
        let Some(at) = part.rfind(key) else {
            continue;
        };
        end = at;
        let start = at + key.len();
        let rest = &text[start..];
        let stop = nexts
            .iter()
            .filter_map(|next| rest.find(next))
            .min()
            .unwrap_or(0);
        match place {
            None => drop(text.splice(at..start + stop, [])),
            Some(place) => {
                if let Some(value) = value(place) {
                    drop(text.splice(start..start + stop, value));
                }
            }
        }
    }
    text
}

/// Keys whose values are names of users, accounts and groups.
const NAMES: [&[u8]; 9] = [
    b"Users=",
    b"Accounts=",
    b"Groups=",
    b"Owner=",
    b"UserId=",
    b"AllowAccounts=",
    b"AllowGroups=",
    b"DenyAccounts=",
    b"Comment=",
];

/// Values that are nobody's name.
const NOBODY: [&[u8]; 4] = [b"", b"(null)", b"N/A", b"ALL"];

/// Nodes, partitions and reservations without the names of users, other than the user's own.
pub(super) fn nameless(text: &[u8], user: &str) -> Vec<u8> {
    let mut output = Vec::with_capacity(text.len());
    // Within a text of several words that is left out.
    let mut within = false;
    for word in text.split_inclusive(u8::is_ascii_whitespace) {
        let end = word.last().filter(|last| last.is_ascii_whitespace());
        let key = NAMES.iter().find(|key| word.starts_with(key));
        let begins = word.first().is_some_and(u8::is_ascii_uppercase) && word.contains(&b'=');
        let value = key.map(|key| word[key.len()..].trim_ascii());
        if begins {
            within = false;
        }
        match (key, value) {
            (Some(key), Some(value))
                if *key == b"Comment=" && !value.is_empty() && value != b"(null)"
                    || !NOBODY.contains(&value) && value != user.as_bytes() =>
            {
                within = *key == b"Comment=";
                output.extend_from_slice(key);
                output.push(b'-');
                output.extend(end);
            }
            // What ends the line stays.
            _ if within && !begins => output.extend(end.filter(|&&end| end == b'\n')),
            // Who gave the reason, and when.
            _ if word.starts_with(b"[") && word.contains(&b'@') => {
                let at = word.iter().position(|&byte| byte == b'@').unwrap_or(0);
                output.extend_from_slice(b"[-");
                output.extend_from_slice(&word[at..]);
            }
            _ => output.extend_from_slice(word),
        }
        within &= end != Some(&b'\n');
    }
    output
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
