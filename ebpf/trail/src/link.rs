//! The tracer, asked: which trails there are, and their records.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_sandbox_events::ask::Ask;
use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::protocol::{SOCKET, Which};
use agent_sandbox_events::record::Record;
use agent_sandbox_events::trails::{self, Listed, Reader};

use crate::fault::Fault;
use crate::names::HostNames;
use crate::text::shown;

/// How long the tracer may take for one answer: it may be busy, and the file system slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether a trail has more: the tracer writes five times a second. The files are root's, so that
/// inotify(7) does not tell a user of them.
pub const POLL: Duration = Duration::from_millis(200);
/// So many trails are named where one is not known.
const NAMED: usize = 8;

/// Trails that are meant: those of one user, for anybody may give a trail any job's or session's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    /// Which trails.
    pub which: Which,
    /// Whose; none: of whose the first record is.
    pub uid: Option<u32>,
    /// Whether the user was named: then nobody needs to hear of the others.
    pub said: bool,
}

/// Where the tracer listens.
#[derive(Clone, Debug)]
pub struct Link {
    socket: PathBuf,
    /// Where the user's sessions say which names stand for which addresses.
    state: Option<PathBuf>,
}

impl Link {
    /// At that socket.
    #[must_use]
    pub fn new(socket: &str) -> Self {
        Self {
            socket: PathBuf::from(socket),
            state: None,
        }
    }

    /// For whoever shows what was asked for: with the names of hosts.
    #[must_use]
    pub fn of(ask: &Ask) -> Self {
        Self {
            state: ask.state.as_ref().map(PathBuf::from),
            ..Self::new(&ask.socket)
        }
    }

    /// Connects.
    ///
    /// # Errors
    /// There is no tracer, or it is not to be reached.
    pub fn connect(&self) -> Result<Connection, Fault> {
        Connection::open(&self.socket, PATIENCE).map_err(|error| self.fault(error))
    }

    /// An error of the conversation, with what can be done about it.
    #[must_use]
    pub fn fault(&self, error: Unanswered) -> Fault {
        match error {
            Unanswered::Connect(error) => unreachable(&self.socket, &error),
            Unanswered::Broken(error) if is_timeout(&error) => Fault::new(format!(
                "the tracer at `{}` did not answer within {} s",
                self.socket.display(),
                PATIENCE.as_secs()
            ))
            .hint("it may be busy; an administrator finds out with `systemctl status agent-sandbox-tracer`"),
            Unanswered::Broken(error) if is_closed(&error) => {
                Fault::new("the tracer has closed the connection")
                    .hint("it may have been stopped; its log says why (`journalctl -u agent-sandbox-tracer`)")
            }
            Unanswered::Broken(error) => {
                Fault::new(format!("cannot speak with the tracer: {error}"))
            }
            Unanswered::Strange => Fault::new(format!(
                "what answers at `{}` is not understood",
                self.socket.display()
            ))
            .hint("is the tracer of the same version? compare `agent-sandbox --version` and `agent-sandbox-tracer --version`"),
            Unanswered::Refused { why, hint } => {
                let fault = Fault::new(format!("the tracer refuses: {why}"));
                match hint {
                    Some(hint) => fault.hint(hint),
                    None => fault,
                }
            }
        }
    }

    /// The trails that there are, the newest first; and whether there are older ones.
    ///
    /// # Errors
    /// The tracer cannot be asked.
    pub fn list(&self) -> Result<(Vec<Listed>, bool), Fault> {
        trails::list(&self.connect()?).map_err(|error| self.fault(error))
    }

    /// Which trails are meant by a word; the newest session's without one. With a user, only of that user's.
    ///
    /// # Errors
    /// There are none, or several users have such trails and none of them is named.
    pub fn which(&self, word: Option<&str>, uid: Option<u32>) -> Result<Meant, Fault> {
        let (mut all, more) = self.list()?;
        all.retain(|listed| uid.is_none_or(|uid| listed.trail.uid == uid));
        if let (Some(uid), None, true) = (uid, word, all.is_empty()) {
            let among = if more { " among the newest" } else { "" };
            return Err(Fault::new(format!("user {uid} has no trails{among}")));
        }
        let meant = meant(word, &all, more)?;
        Ok(match uid {
            None => meant,
            said => Meant {
                uid: said,
                said: true,
                ..meant
            },
        })
    }

    /// Begins to read.
    ///
    /// # Errors
    /// The tracer cannot be asked.
    pub fn read(&self, which: Which) -> Result<Reading, Fault> {
        let reader = Reader::new(self.connect()?, which).map_err(|error| self.fault(error))?;
        Ok(Reading {
            reader,
            one_user: false,
            uid: None,
            others: BTreeSet::new(),
            names: HostNames::new(self.state.as_deref()),
        })
    }

    /// Begins to read the trails of one user; records of others do not come.
    ///
    /// # Errors
    /// As [`Link::read`].
    pub fn read_meant(&self, meant: &Meant) -> Result<Reading, Fault> {
        let reading = self.read(meant.which.clone())?;
        Ok(Reading {
            one_user: true,
            uid: meant.uid,
            ..reading
        })
    }
}

/// Trails that are read.
#[derive(Debug)]
pub struct Reading {
    reader: Reader<Connection>,
    one_user: bool,
    uid: Option<u32>,
    /// Users whose records were left out.
    others: BTreeSet<u32>,
    names: HostNames,
}

impl Reading {
    /// The next records of what is there, and the lines that they were; none at its end.
    ///
    /// # Errors
    /// The tracer is gone, or a file cannot be read.
    pub fn take(&mut self) -> Result<Vec<(Record, String)>, Unanswered> {
        loop {
            let records = self.reader.read()?;
            let end = records.is_empty();
            let records = self.taken(records);
            if end || !records.is_empty() {
                return Ok(records);
            }
        }
    }

    /// The same, of what is added later as well; none if there is nothing for now.
    ///
    /// # Errors
    /// As [`Reading::take`].
    pub fn follow(&mut self) -> Result<Vec<(Record, String)>, Unanswered> {
        let records = self.reader.follow()?;
        match records.is_empty() {
            true => Ok(records),
            false => {
                let records = self.taken(records);
                match records.is_empty() {
                    true => self.take(),
                    false => Ok(records),
                }
            }
        }
    }

    fn taken(&mut self, mut records: Vec<(Record, String)>) -> Vec<(Record, String)> {
        records.retain(|(record, _)| self.takes(record.trail.uid));
        for (record, _) in &mut records {
            self.names.add(record);
        }
        records
    }

    /// Lines that were no records.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.reader.unreadable
    }

    /// Whether a record of that user is of what is read.
    fn takes(&mut self, uid: u32) -> bool {
        if !self.one_user {
            return true;
        }
        let takes = *self.uid.get_or_insert(uid) == uid;
        if !takes {
            self.others.insert(uid);
        }
        takes
    }

    /// That several users have trails of this name, if that is so and no user was named.
    #[must_use]
    pub fn several(&self, meant: &Meant) -> Option<Fault> {
        if meant.said || self.others.is_empty() {
            return None;
        }
        let users: BTreeSet<u32> = self.others.iter().copied().chain(self.uid).collect();
        Some(several(&meant.which, &users))
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn unreachable(socket: &Path, error: &io::Error) -> Fault {
    let place = socket.display();
    // Where another one is named, the service of the node is not what is missing.
    let start = match socket == Path::new(SOCKET) {
        true => {
            "an administrator starts it with `systemctl start agent-sandbox-tracer`, or as root with \
                 `agent-sandbox-tracer`"
        }
        false => {
            "the socket is named by --socket, or by trace.socket in the policy: `agent-sandbox policy` shows which"
        }
    };
    match error.kind() {
        io::ErrorKind::NotFound => {
            Fault::new(format!("no tracer runs on this node: there is no `{place}`")).hint(start)
        }
        io::ErrorKind::ConnectionRefused => Fault::new(format!(
            "no tracer runs on this node: nobody listens at `{place}` any more"
        ))
        .hint(start),
        io::ErrorKind::PermissionDenied => Fault::new(format!(
            "cannot connect to the tracer at `{place}`: permission denied"
        ))
        .hint("the socket is for all users (mode 0666, its directory 0755); an administrator can repair that"),
        _ => Fault::new(format!(
            "cannot connect to the tracer at `{place}`: {error}"
        ))
        .hint(start),
    }
}

/// Which trails a word means: a session's id, a job's number, or `trace:N`, and `@UID` behind it for that user's.
/// An id may be all digits, so what there is decides.
/// `more`: there may be others than these.
fn meant(word: Option<&str>, all: &[Listed], more: bool) -> Result<Meant, Fault> {
    let Some(word) = word else {
        // The newest session; where there is none, what was traced last.
        let newest = all.iter().find(|listed| listed.trail.session.is_some());
        let which = match newest.or(all.first()) {
            Some(listed) => match (&listed.trail.session, listed.trail.job) {
                (Some(session), _) => Which::Session(session.clone()),
                (None, Some(job)) => Which::Job(job),
                (None, None) => Which::Trace(listed.trail.trace),
            },
            None => {
                return Err(Fault::new("there are no trails of yours yet")
                    .hint("a session that starts while the tracer runs has one (`trace.mode` in the policy), and so has `agent-sandbox trace -- COMMAND`"));
            }
        };
        return of_one_user(which, all);
    };
    let user: Option<(&str, u32)> = word
        .rsplit_once('@')
        .and_then(|(word, uid)| Some((word, uid.parse().ok()?)));
    match user {
        Some((word, uid)) => {
            let own: Vec<Listed> = all
                .iter()
                .filter(|listed| listed.trail.uid == uid)
                .cloned()
                .collect();
            Ok(Meant {
                which: named(word, &own, more)?,
                uid: Some(uid),
                said: true,
            })
        }
        None => of_one_user(named(word, all, more)?, all),
    }
}

/// Those trails, if they are of one user as far as is known.
fn of_one_user(which: Which, all: &[Listed]) -> Result<Meant, Fault> {
    let is = |listed: &&Listed| match &which {
        Which::Session(session) => listed.trail.session.as_ref() == Some(session),
        Which::Job(job) => listed.trail.job == Some(*job),
        Which::Trace(trace) => listed.trail.trace == *trace,
        Which::All => true,
    };
    let users: BTreeSet<u32> = all
        .iter()
        .filter(is)
        .map(|listed| listed.trail.uid)
        .collect();
    if users.len() > 1 {
        return Err(several(&which, &users));
    }
    Ok(Meant {
        uid: users.first().copied(),
        which,
        said: false,
    })
}

/// Whoever traces says which job and session it is: what several users say of one is not put together.
fn several(which: &Which, users: &BTreeSet<u32>) -> Fault {
    let (what, word) = match which {
        Which::Session(session) => (format!("session {session}"), session.clone()),
        Which::Job(job) => (format!("job {job}"), job.to_string()),
        Which::Trace(trace) => (format!("trace {trace}"), format!("trace:{trace}")),
        Which::All => ("this name".to_owned(), "NAME".to_owned()),
    };
    let shown: Vec<String> = users.iter().take(NAMED).map(u32::to_string).collect();
    let more = if users.len() > NAMED { " and more" } else { "" };
    let first = users.first().copied().unwrap_or_default();
    Fault::new(format!(
        "several users have trails of {what}: {}{more}",
        shown.join(", ")
    ))
    .hint(format!("say whose, as `{word}@{first}`"))
}

/// Which trails a word without a user means. `more`: there may be others than these.
fn named(word: &str, all: &[Listed], more: bool) -> Result<Which, Fault> {
    if all
        .iter()
        .any(|listed| listed.trail.session.as_deref() == Some(word))
    {
        return Ok(Which::Session(word.to_owned()));
    }
    let job: Option<u32> = word.parse().ok();
    if let Some(job) = job.filter(|job| all.iter().any(|listed| listed.trail.job == Some(*job))) {
        return Ok(Which::Job(job));
    }
    let trace: Option<u32> = word.strip_prefix("trace:").and_then(|id| id.parse().ok());
    if let Some(trace) = trace.filter(|trace| all.iter().any(|listed| listed.trail.trace == *trace))
    {
        return Ok(Which::Trace(trace));
    }
    if more {
        // It may be an older one.
        return Ok(match (job, trace) {
            (Some(job), _) => Which::Job(job),
            (None, Some(trace)) => Which::Trace(trace),
            (None, None) => Which::Session(word.to_owned()),
        });
    }
    let what = match (job, word.starts_with("trace:")) {
        (Some(job), _) => format!("there is no trail of job {job}, and no session `{word}`"),
        (None, true) => format!("there is no trail `{word}`"),
        (None, false) => format!("there is no trail of a session `{word}`"),
    };
    let fault = Fault::new(what);
    let mut names: Vec<String> = Vec::new();
    for name in all.iter().map(name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Err(match names.len() {
        0 => fault.hint("there are no trails of yours at all"),
        more if more > NAMED => fault.hint(format!(
            "the newest are {}, of {more}",
            names[..NAMED].join(", ")
        )),
        _ => fault.hint(format!("there are {}", names.join(", "))),
    })
}

/// The word that means a trail.
fn name(listed: &Listed) -> String {
    match (&listed.trail.session, listed.trail.job) {
        (Some(session), _) => format!("session {}", shown(session)),
        (None, Some(job)) => format!("job {job}"),
        (None, None) => format!("trace:{}", listed.trail.trace),
    }
}

#[cfg(test)]
mod tests {
    use agent_sandbox_events::record::Trail;

    use super::*;

    fn listed(session: Option<&str>, job: Option<u32>, trace: u32) -> Listed {
        Listed {
            trail: Trail {
                uid: 1000,
                node: "n1".into(),
                session: session.map(str::to_owned),
                job,
                step: None,
                trace,
            },
            began: f64::from(trace),
            live: true,
        }
    }

    #[test]
    fn a_word_is_what_there_is() {
        let all = [
            listed(Some("k3v9m2qp"), None, 7),
            listed(Some("12345678"), Some(12), 6),
            listed(None, Some(13), 5),
            listed(None, None, 4),
        ];
        let which = |word| meant(word, &all, false).unwrap().which;
        assert_eq!(which(None), Which::Session("k3v9m2qp".into()));
        assert_eq!(which(Some("k3v9m2qp")), Which::Session("k3v9m2qp".into()));
        assert_eq!(which(Some("12345678")), Which::Session("12345678".into()));
        assert_eq!(which(Some("12")), Which::Job(12));
        assert_eq!(which(Some("13")), Which::Job(13));
        assert_eq!(which(Some("trace:4")), Which::Trace(4));
        assert_eq!(
            meant(None, &all[3..], false).unwrap().which,
            Which::Trace(4)
        );
        assert_eq!(meant(None, &all[2..], false).unwrap().which, Which::Job(13));
    }

    #[test]
    fn what_several_users_call_the_same_is_asked_for_by_user() {
        let of = |uid, session, job, trace| {
            let mut listed = listed(session, job, trace);
            listed.trail.uid = uid;
            listed
        };
        let all = [
            of(1014, Some("aaaa"), Some(7777), 9),
            of(1015, Some("aaaa"), Some(7777), 8),
            of(1015, Some("bbbb"), Some(5), 7),
        ];
        let said = |word| meant(word, &all, false).unwrap_err().to_string();
        assert_eq!(
            said(Some("7777")),
            "error: several users have trails of job 7777: 1014, 1015\nhint: say whose, as `7777@1014`\n"
        );
        assert!(said(Some("aaaa")).contains("session aaaa: 1014, 1015"));
        assert!(said(None).contains("session aaaa: 1014, 1015"));
        let one = meant(Some("7777@1015"), &all, false).unwrap();
        assert_eq!((one.which, one.uid), (Which::Job(7777), Some(1015)));
        // What only one has needs no more words, and is that one's alone.
        assert_eq!(meant(Some("5"), &all, false).unwrap().uid, Some(1015));
        assert!(said(Some("5@1014")).contains("no trail of job 5"));
    }

    #[test]
    fn what_there_is_not_is_answered_by_what_there_is() {
        let all: Vec<Listed> = (0..20)
            .map(|number| listed(None, Some(number), number))
            .collect();
        let said = |word, all: &[Listed]| meant(word, all, false).unwrap_err().to_string();
        assert_eq!(
            said(Some("99"), &all[..2]),
            "error: there is no trail of job 99, and no session `99`\nhint: there are job 0, job 1\n"
        );
        assert!(said(Some("x\u{1b}"), &all).contains("`x\\u{1b}`"));
        assert!(said(Some("trace:999"), &all).ends_with("job 7, of 20\n"));
        assert!(said(None, &[]).starts_with("error: there are no trails of yours yet\nhint: "));
    }

    #[test]
    fn what_cannot_be_reached_says_who_starts_it() {
        let said =
            |kind: io::ErrorKind, socket| unreachable(Path::new(socket), &kind.into()).to_string();
        assert!(
            said(io::ErrorKind::NotFound, SOCKET).contains("systemctl start agent-sandbox-tracer")
        );
        assert!(said(io::ErrorKind::NotFound, "/tmp/x").contains("trace.socket"));
        assert!(said(io::ErrorKind::PermissionDenied, SOCKET).contains("0666"));
    }
}
