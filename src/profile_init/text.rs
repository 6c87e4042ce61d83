//! The text of the new profile. Pure. Whatever the run chose (names of files and hosts, the command's own
//! words) stands in it as TOML strings, in which every character that could end one, or that nobody sees,
//! is an escape: also in comments, so that no name begins a line.

use std::ffi::OsString;

use super::sort::{Entry, Listed, Sorted};
use crate::failure::{one_line, visible};
use crate::observe::seen::Seen;
use crate::observe::seen::TrailSummary;
use crate::policy::hosts::is_host;

/// The most names of hosts, and of addresses, in the file.
const MOST_HOSTS: usize = 40;
/// The most words of the command in the file, and the most characters of each.
const MOST_WORDS: usize = 12;
const LONGEST_WORD: usize = 120;
/// The port of name servers (RFC 1035, section 4.2).
const NAME_SERVER: u16 = 53;

/// A run, as the file speaks of it.
pub struct Run<'a> {
    /// The profile's name.
    pub name: &'a str,
    /// The command and its arguments.
    pub command: &'a [OsString],
    /// How it ended, as a shell shows it.
    pub code: u8,
    /// The command's name, by which the profile is chosen; else why it is not.
    pub commands: Result<String, String>,
    /// What was seen.
    pub seen: &'a Seen,
}

/// How the run ended, as a phrase.
#[must_use]
pub fn ended(code: u8) -> String {
    match code {
        0..=128 => format!("the run ended with exit code {code}"),
        code => format!("the run ended with exit code {code}: signal {}", code - 128),
    }
}

fn times(count: u64) -> String {
    match count {
        0 | 1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// A TOML string on one line (TOML 1.0, "String"), with an escape for each character that is not seen.
#[must_use]
pub fn string(text: &str) -> String {
    let mut all = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => all.extend(['\\', c]),
            '\n' | '\t' => all.push_str(&format!("\\u{:04X}", u32::from(c))),
            _ if *visible(c.encode_utf8(&mut [0; 4])) == *c.encode_utf8(&mut [0; 4]) => all.push(c),
            _ => all.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    all.push('"');
    all
}

/// The whole file.
#[must_use]
pub fn compose(run: &Run<'_>, sorted: &Sorted) -> String {
    let mut out = Lines::default();
    head(&mut out, run, sorted);
    profile(&mut out, run);
    state(&mut out, sorted);
    home(&mut out, sorted);
    out.line("");
    out.line("[env]");
    out.remark("Which variables it looks for cannot be observed. One that holds a key is hidden unless it is named:");
    out.remark("pass = [\"ITS_API_KEY\"]");
    rest(&mut out, run, sorted);
    out.0
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, text: &str) {
        self.0.push_str(text.trim_end());
        self.0.push('\n');
    }

    fn remark(&mut self, text: &str) {
        self.line(&format!("# {text}"));
    }

    /// `key = […]`, an entry a line; as a comment with `prefix`.
    fn list(&mut self, prefix: &str, key: &str, listed: &Listed) {
        self.line(&format!("{prefix}{key} = ["));
        for entry in &listed.all {
            self.line(&format!("{prefix}    {}", with_note(entry, ",")));
        }
        self.left_out(prefix, listed.left_out);
        self.line(&format!("{prefix}]"));
    }

    /// Entries that are given nowhere.
    fn told(&mut self, heading: &str, listed: &Listed) {
        if listed.is_empty() {
            return;
        }
        self.line("");
        self.remark(heading);
        for entry in &listed.all {
            self.line(&format!("#   {}", with_note(entry, "")));
        }
        self.left_out("", listed.left_out);
    }

    fn left_out(&mut self, prefix: &str, count: u64) {
        if count > 0 {
            self.line(&format!("{prefix}#   and {count} more, which are left out"));
        }
    }
}

fn with_note(entry: &Entry, behind: &str) -> String {
    let path = string(&entry.path);
    match entry.note.is_empty() {
        true => format!("{path}{behind}"),
        // A rule of the policy's is text of the site's or ours; it stays in its line all the same.
        false => format!("{path}{behind}  # {}", one_line(&entry.note)),
    }
}

fn head(out: &mut Lines, run: &Run<'_>, sorted: &Sorted) {
    let seen = run.seen;
    out.remark(&format!(
        "The profile `{}`, from one run that agent-sandbox {} watched. Read it before you use it: a program shows",
        run.name,
        env!("CARGO_PKG_VERSION")
    ));
    out.remark("what it wants to show, and nobody has judged what it is for. Nothing here unhides anything.");
    out.remark("");
    let words = run.command.iter().take(MOST_WORDS).map(|word| {
        let text = word.to_string_lossy();
        let cut: String = text.chars().take(LONGEST_WORD).collect();
        string(&cut)
    });
    let words: Vec<String> = words.collect();
    let more = if run.command.len() > MOST_WORDS {
        " …"
    } else {
        ""
    };
    out.remark(&format!("command:   {}{more}", words.join(" ")));
    out.remark(&format!("end:       {}", ended(run.code)));
    observers(out, seen);
    out.remark("not seen:  names of environment variables; what it does with files of yours, for its home was empty;");
    out.remark("           what it does when it is logged in, unless it was");
    if seen.unread > 0 {
        out.remark(&format!(
            "           {} calls, whose arguments could not be read",
            seen.unread
        ));
    }
    if let Some(told) = &seen.told {
        blind(out, told);
    }
    if !seen.whole {
        out.remark(
            "           all of what was left at the end: it was too much, or the jail was killed",
        );
    }
    let left_out = sorted.left_out();
    if left_out > 0 {
        out.remark(&format!(
            "left out:  {left_out} of what was seen; each list says of itself how many"
        ));
    }
}

fn observers(out: &mut Lines, seen: &Seen) {
    let told = seen.told.as_ref().filter(|told| !told.object.is_empty());
    let tracer = told.map(|told| {
        let (object, kernel) = (&told.object, &told.kernel);
        one_line(&format!("the node's tracer ({object}, Linux {kernel})"))
    });
    let left = "what was left in its private home at the end";
    match (seen.calls, tracer) {
        (true, tracer) => {
            out.remark("observer:  its system calls, by seccomp user notification, which it can mislead; and what was");
            out.remark("           left in its private home at the end");
            if let Some(tracer) = tracer {
                out.remark(&format!("           {tracer}, whose trail has been added"));
            }
        }
        (false, Some(tracer)) => {
            out.remark(&format!("observer:  {tracer}; and {left}."));
            out.remark("           What it only looked for with stat(2), and the names of hosts, were not seen");
        }
        (false, None) => {
            out.remark(&format!(
                "observer:  {left}, and nothing else: what it only read,"
            ));
            out.remark("           and where it connected to, was not seen");
        }
    }
}

/// What the tracer says that it cannot see, and what is missing of this trail.
fn blind(out: &mut Lines, told: &TrailSummary) {
    for gap in told.gaps() {
        let gap = one_line(&gap);
        out.remark(&format!("           NOT COMPLETE, of the tracer's: {gap}"));
    }
    if told.unplaced > 0 {
        out.remark(&format!(
            "           {} paths of the tracer's that are relative, cut off, or hold a secret",
            told.unplaced
        ));
    }
    for sentence in &told.blind {
        out.remark(&format!("           by the tracer: {}", one_line(sentence)));
    }
}

fn profile(out: &mut Lines, run: &Run<'_>) {
    out.line("");
    out.line("[profile]");
    out.line(&format!(
        "description = {}",
        string(&format!("{}, from an observed run", run.name))
    ));
    match &run.commands {
        Ok(name) => out.line(&format!("commands = [{}]", string(name))),
        Err(why) => {
            out.remark(&format!("{}; so:", one_line(why)));
            out.remark(&format!("agent-sandbox -p {} COMMAND", run.name));
            out.line("commands = []");
        }
    }
    out.remark("seen = \"its version\"");
    out.remark("login = \"what a user does to log in\"");
    if !run.seen.names.is_empty() {
        out.remark("Names that it asked a name server about. With network.mode = \"filtered\" it reaches them: take out what it need not.");
        let names: Vec<String> = run
            .seen
            .names
            .iter()
            .filter(|name| is_host(name))
            .take(MOST_HOSTS)
            .map(|name| string(name))
            .collect();
        out.line(&format!("hosts = [{}]", names.join(", ")));
        out.left_out("", (run.seen.names.len() - names.len()) as u64);
    }
}

fn state(out: &mut Lines, sorted: &Sorted) {
    let state = [
        ("directories", &sorted.directories),
        ("files", &sorted.files),
    ];
    out.line("");
    out.remark("What it wrote: its state. With agents.state = \"project\", the default, each project has its own.");
    out.line("[profile.state]");
    for (key, listed) in state {
        match listed.is_empty() {
            true => out.line(&format!("{key} = []")),
            false => out.list("", key, listed),
        }
    }
    if !sorted.logins.is_empty() {
        out.remark("Files that may hold a login. Those that stand here are your own, with the credentials in them:");
        out.list("# ", "login", &sorted.logins);
    }
    if !sorted.settings.is_empty() {
        out.remark("Settings of yours that it would read; shown read-only:");
        out.list("# ", "settings", &sorted.settings);
    }
}

fn home(out: &mut Lines, sorted: &Sorted) {
    out.line("");
    out.line("[home]");
    match sorted.read.is_empty() {
        true => out.line("read = []"),
        false => {
            out.remark("Files that it opened and that you have. It has not seen what is in them.");
            out.list("", "read", &sorted.read);
        }
    }
}

fn rest(out: &mut Lines, run: &Run<'_>, sorted: &Sorted) {
    out.told(
        "The policy hides these, for they hold credentials or lead to some. They stay hidden; if one is this agent's\n\
         # own login, it goes into `login` of [profile.state]:",
        &sorted.hidden,
    );
    out.told(
        "The policy keeps these from being written, or shown by itself. They stay so:",
        &sorted.protected,
    );
    out.told("Written, but not given:", &sorted.unsure);
    if sorted.gone > 0 {
        out.line("");
        out.remark(&format!(
            "Files and directories of its own that were gone at the end: {}",
            sorted.gone
        ));
    }
    out.told(
        "Caches. What is below ~/.cache needs no profile:",
        &sorted.caches,
    );
    out.told(
        "It tried to write what the jail shows read-only:",
        &sorted.refused,
    );
    out.told(
        "You have these, and it looked for them. home.read would give them:",
        &sorted.there,
    );
    out.told("It looked for these, and you have none:", &sorted.missing);
    out.told(
        "By the tracer, these were denied, or are hidden. Nothing of it is given:",
        &sorted.denied,
    );
    out.told("No entry of a policy can name these:", &sorted.unnamed);
    if let Some(told) = run
        .seen
        .told
        .as_ref()
        .filter(|told| !told.operations.is_empty())
    {
        out.line("");
        out.remark("By the tracer, it also did or tried these:");
        for ((operation, how), count) in &told.operations {
            let what = one_line(&format!("{operation}: {how}"));
            out.remark(&format!("  {what}, {}", times(*count)));
        }
    }
    let peers = &run.seen.peers;
    if !peers.is_empty() {
        out.line("");
        out.remark("Addresses that it connected to, or tried to:");
        for (host, port) in peers.iter().take(MOST_HOSTS) {
            let note = if *port == NAME_SERVER {
                "  (name server)"
            } else {
                ""
            };
            let address = std::net::SocketAddr::new(*host, *port);
            out.line(&format!("#   {address}{note}"));
        }
        out.left_out("", peers.len().saturating_sub(MOST_HOSTS) as u64);
    }
}
