//! Speaks to a tracer by hand: what the tests of other kernels ask it with (`tests/ebpf`), and an example of
//! the client.
//!
//! ```text
//! ask status                       how the tracer is, as JSON
//! ask list                         the trails that there are, a line each
//! ask read WHICH [SECONDS]         their records; until the last one, but no longer than so many seconds
//! ask sum WHICH SECONDS [PATH]     how many events they are about, by kind and verdict; opens of PATH alone
//! ask register OPTION… [-- COMMAND…]
//! ```
//!
//! WHICH is `all`, `newest`, `session:ID`, `job:N` or `trace:N`. `register` registers itself, and becomes the
//! command; without one it says which trace it is and ends. A refusal has the exit code 3.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: opens paths, starts commands"
)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::protocol::{
    Enforce, EventKind, Lifetime, Register, Request, Response, SOCKET, Scope, VERSION, Which,
};
use agent_sandbox_events::record::{Record, What};
use agent_sandbox_events::trails::{self, Reader};

/// One answer takes no longer, unless the machine hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// `open(2)`: a descriptor that only names a file.
const O_PATH: i32 = 0o10_000_000;
const REFUSED: u8 = 3;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble::Usage(what)) => {
            eprintln!("not understood: {what}");
            ExitCode::from(USAGE)
        }
        Err(Trouble::Unanswered(Unanswered::Refused { why, hint })) => {
            println!("refused: {why}");
            if let Some(hint) = hint {
                println!("hint: {hint}");
            }
            ExitCode::from(REFUSED)
        }
        Err(Trouble::Unanswered(why)) => {
            println!("unanswered: {why}: {:?}", std::error::Error::source(&why));
            ExitCode::FAILURE
        }
        Err(Trouble::System(why)) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

enum Trouble {
    Usage(String),
    Unanswered(Unanswered),
    System(String),
}

impl From<Unanswered> for Trouble {
    fn from(why: Unanswered) -> Self {
        Self::Unanswered(why)
    }
}

fn system<T>(what: &str, result: std::io::Result<T>) -> Result<T, Trouble> {
    result.map_err(|error| Trouble::System(format!("{what}: {error}")))
}

fn run(words: &[&str]) -> Result<(), Trouble> {
    let (socket, words) = match words {
        ["--socket", path, rest @ ..] => (PathBuf::from(path), rest),
        _ => (PathBuf::from(SOCKET), words),
    };
    match words {
        ["status"] => status(&socket),
        ["list"] => list(&socket),
        ["read", which] => read(&socket, which, None, &mut show),
        ["read", which, seconds] => read(&socket, which, Some(parsed(seconds)?), &mut show),
        ["sum", which, seconds, path @ ..] if path.len() < 2 => {
            let mut sum = Sum::new(path.first().copied());
            read(&socket, which, Some(parsed(seconds)?), &mut |record, _| {
                sum.add(record)
            })?;
            sum.show();
            Ok(())
        }
        ["register", rest @ ..] => register(&socket, rest),
        other => Err(Trouble::Usage(other.join(" "))),
    }
}

fn parsed<T: std::str::FromStr>(word: &str) -> Result<T, Trouble> {
    word.parse()
        .map_err(|_| Trouble::Usage(format!("`{word}`")))
}

fn status(socket: &Path) -> Result<(), Trouble> {
    let connection = Connection::open(socket, PATIENCE)?;
    match connection.ask(&Request::Status { version: VERSION })? {
        Response::Status(status) => {
            println!("{}", serde_json::to_string(&*status).unwrap_or_default());
            Ok(())
        }
        other => Err(strange(&other)),
    }
}

fn list(socket: &Path) -> Result<(), Trouble> {
    for one in trails::list(&Connection::open(socket, PATIENCE)?)?.0 {
        let (trail, began, live) = (one.trail, one.began, one.live);
        let line = serde_json::json!({ "trail": trail, "began": began, "live": live });
        println!("{line}");
    }
    Ok(())
}

fn strange(response: &Response) -> Trouble {
    Trouble::System(format!("an answer to something else: {response:?}"))
}

/// Of several users' sessions of one name, that of whoever asks.
fn which(socket: &Path, word: &str) -> Result<Which, Trouble> {
    Ok(match word.split_once(':') {
        None if word == "all" => Which::All,
        None if word == "newest" => {
            let (all, _) = trails::list(&Connection::open(socket, PATIENCE)?)?;
            let newest = all.into_iter().find_map(|one| one.trail.session);
            let why = "nothing of yours has been recorded here".to_owned();
            Which::Session(newest.ok_or(Unanswered::Refused { why, hint: None })?)
        }
        Some(("session", id)) => Which::Session(id.to_owned()),
        Some(("job", number)) => Which::Job(parsed(number)?),
        Some(("trace", number)) => Which::Trace(parsed(number)?),
        _ => return Err(Trouble::Usage(format!("`{word}`"))),
    })
}

/// Writes a line as it comes. Whether it is the last one.
fn show(record: &Record, line: &str) -> bool {
    println!("{line}");
    matches!(record.what, What::End(_))
}

/// Hands records on until there are no more, the last one has come, or the time is over.
fn read(
    socket: &Path,
    word: &str,
    follow: Option<u64>,
    take: &mut dyn FnMut(&Record, &str) -> bool,
) -> Result<(), Trouble> {
    let begin = Instant::now();
    let limit = Duration::from_secs(follow.unwrap_or(PATIENCE.as_secs()));
    let which = which(socket, word)?;
    let connection = Connection::open(socket, limit.max(Duration::from_secs(1)))?;
    let mut reader = Reader::new(connection, which)?;
    loop {
        let records = reader.follow()?;
        let mut last = false;
        for (record, line) in &records {
            last |= take(record, line);
        }
        if records.is_empty() && follow.is_none()
            || follow.is_some() && (last || begin.elapsed() > limit)
        {
            return Ok(());
        }
        if records.is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// How many events the records of a trail are about.
struct Sum<'a> {
    path: Option<&'a str>,
    events: BTreeMap<String, u64>,
    lost: u64,
    ended: bool,
}

impl<'a> Sum<'a> {
    fn new(path: Option<&'a str>) -> Self {
        Self {
            path,
            events: BTreeMap::new(),
            lost: 0,
            ended: false,
        }
    }

    fn add(&mut self, record: &Record) -> bool {
        self.lost = self.lost.max(record.lost);
        let (name, count) = match &record.what {
            What::Open(open) if self.path.is_none_or(|path| path == open.path) => {
                (format!("open-{}", open.verdict.verdict), open.verdict.count)
            }
            What::Open(open) => ("open-other".to_owned(), open.verdict.count),
            What::Fork(_) => ("fork".to_owned(), 1),
            What::Exit(_) => ("exit".to_owned(), 1),
            What::End(_) => {
                self.ended = true;
                return true;
            }
            _ => ("other".to_owned(), 1),
        };
        *self.events.entry(name).or_default() += count;
        false
    }

    fn show(&self) {
        for (name, count) in &self.events {
            println!("{name} {count}");
        }
        println!("lost {}", self.lost);
        println!("ended {}", self.ended);
    }
}

/// What `register` is asked for, with what it forbids and the command.
struct Asked {
    register: Register,
    forbidden: Vec<String>,
    command: Vec<OsString>,
    /// Say that it goes on, and wait for the end of standard input: for traces that end with the connection.
    stay: bool,
}

fn asked(words: &[&str]) -> Result<Asked, Trouble> {
    let mut asked = Asked {
        register: Register {
            version: VERSION,
            session: None,
            job: None,
            step: None,
            command: Vec::new(),
            scope: Scope {
                process: None,
                descendants: false,
                cgroup: None,
            },
            events: EVENTS.map(|(_, kind)| kind).to_vec(),
            every: 1,
            missing: false,
            hidden: Vec::new(),
            redact: Vec::new(),
            enforce: Enforce::Off,
            no_internet: false,
            no_user_namespace: false,
            lifetime: Lifetime::Tasks,
        },
        forbidden: Vec::new(),
        command: Vec::new(),
        stay: false,
    };
    let register = &mut asked.register;
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .ok_or_else(|| Trouble::Usage(format!("`{word}` without a value")))
        };
        match word {
            "--session" => register.session = Some(value()?.to_owned()),
            "--job" => register.job = Some(parsed(value()?)?),
            "--step" => register.step = Some(value()?.to_owned()),
            "--process" => register.scope.process = Some(parsed(value()?)?),
            "--descendants" => register.scope.descendants = true,
            "--cgroup" => {
                let directory = value()?;
                let found = system(directory, std::fs::metadata(directory))?;
                register.scope.cgroup = Some(found.ino());
            }
            "--cgroup-id" => register.scope.cgroup = Some(parsed(value()?)?),
            "--events" => register.events = kinds(value()?)?,
            "--every" => register.every = parsed(value()?)?,
            "--missing" => register.missing = true,
            "--redact" => register.redact.push(value()?.to_owned()),
            "--audit" => register.enforce = Enforce::Audit,
            "--enforce" => register.enforce = Enforce::On,
            "--no-internet" => register.no_internet = true,
            "--no-user-namespace" => register.no_user_namespace = true,
            "--connection" => register.lifetime = Lifetime::Connection,
            "--forbid" => asked.forbidden.push(value()?.to_owned()),
            "--stay" => asked.stay = true,
            "--" => break,
            other => return Err(Trouble::Usage(format!("`{other}`"))),
        }
    }
    asked.command = words.map(OsString::from).collect();
    if register.scope.process.is_none() && register.scope.cgroup.is_none() {
        register.scope.process = Some(std::process::id());
    }
    register.command = asked
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    Ok(asked)
}

const EVENTS: [(&str, EventKind); 7] = [
    ("fork", EventKind::Fork),
    ("exec", EventKind::Exec),
    ("exit", EventKind::Exit),
    ("open", EventKind::Open),
    ("connect", EventKind::Connect),
    ("listen", EventKind::Listen),
    ("operation", EventKind::Operation),
];

fn kinds(words: &str) -> Result<Vec<EventKind>, Trouble> {
    let known = |word: &str| EVENTS.iter().find(|(name, _)| *name == word);
    words
        .split(',')
        .map(|word| match known(word) {
            Some((_, kind)) => Ok(*kind),
            None => Err(Trouble::Usage(format!("`{word}`"))),
        })
        .collect()
}

fn register(socket: &Path, words: &[&str]) -> Result<(), Trouble> {
    let asked = asked(words)?;
    let connection = Connection::open(socket, PATIENCE)?;
    let answer = connection.ask(&Request::Register(Box::new(asked.register)))?;
    let Response::Registered { trace, blind } = answer else {
        return Err(strange(&answer));
    };
    println!("trace: {trace}");
    for sentence in blind {
        println!("blind: {sentence}");
    }
    let forbidden: Vec<File> = asked
        .forbidden
        .iter()
        .map(|path| {
            let opened = OpenOptions::new()
                .read(true)
                .custom_flags(O_PATH)
                .open(path);
            system(path, opened)
        })
        .collect::<Result<_, _>>()?;
    if !forbidden.is_empty() {
        let descriptors: Vec<_> = forbidden.iter().map(|file| file.as_fd()).collect();
        let request = Request::Forbid { version: VERSION };
        match connection.ask_with(&request, &descriptors)? {
            Response::Forbidden { taken, blind } => {
                println!("forbidden: {taken}");
                for sentence in blind {
                    println!("blind: {sentence}");
                }
            }
            other => return Err(strange(&other)),
        }
    }
    match connection.ask(&Request::Begin)? {
        Response::Done => {}
        other => return Err(strange(&other)),
    }
    if asked.stay {
        println!("begun:");
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    }
    let [program, arguments @ ..] = asked.command.as_slice() else {
        return Ok(());
    };
    let error = Command::new(program).args(arguments).exec();
    Err(Trouble::System(format!("{}: {error}", program.display())))
}
