//! Records to journald, beside the files. It is not waited for: what it does not take at once waits within bounds,
//! and what does not fit is counted and said.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use agent_sandbox_events::record::Trail;

/// Where journald takes messages in its own protocol (systemd, "Native Journal Protocol").
const JOURNALD: &str = "/run/systemd/journal/socket";

/// What a program is called there.
const NAME: &str = "agent-sandbox-tracer";

/// As much of all users waits at most, in bytes. One user has at most half of what others leave.
const WAITING: usize = 8 * 1024 * 1024;

/// As much of one user's waits at most, in bytes.
const OF_A_USER: usize = 1024 * 1024;

/// The last part of that is for what was denied.
const FOR_DENIALS: usize = OF_A_USER / 4;

/// The facility `authpriv` (RFC 5424, section 6.2.1): what is private to administrators.
const AUTHPRIV: u8 = 10;

/// Severities of the same section: what was denied, and all else.
const NOTICE: u8 = 5;
const INFORMATIONAL: u8 = 6;

/// Messages of one user that wait, at least one.
#[derive(Debug)]
struct Queue {
    uid: u32,
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// Takes records.
#[derive(Debug)]
pub(super) struct Journal {
    to: PathBuf,
    socket: UnixDatagram,
    /// Users in a ring, so that nobody's messages wait for those of others.
    waiting: VecDeque<Queue>,
    bytes: usize,
    dropped: u64,
    trouble: Option<String>,
}

impl Journal {
    /// That of this node.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        Self::at(Path::new(JOURNALD))
    }

    fn at(to: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            to: to.to_path_buf(),
            socket,
            waiting: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            trouble: None,
        })
    }

    /// Sends a line of a trail, or lets it wait.
    pub(super) fn send(&mut self, trail: &Trail, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let denied = memchr::memmem::find(line, b"\"verdict\":\"denied\"").is_some();
        let severity = if denied { NOTICE } else { INFORMATIONAL };
        let message = message(trail, line, severity);
        self.go_on();
        if self.waiting.is_empty() && self.gone(&message) {
            return;
        }
        let own = self.waiting.iter().position(|one| one.uid == trail.uid);
        let bytes = own.map_or(0, |at| self.waiting[at].bytes);
        let others = self.bytes - bytes;
        let kept = if denied { 0 } else { FOR_DENIALS };
        let most = (OF_A_USER - kept).min(WAITING.saturating_sub(others) / 2);
        if bytes + message.len() > most {
            self.dropped += 1;
            return;
        }
        self.bytes += message.len();
        let at = own.unwrap_or_else(|| {
            self.waiting.push_back(Queue {
                uid: trail.uid,
                messages: VecDeque::new(),
                bytes: 0,
            });
            self.waiting.len() - 1
        });
        self.waiting[at].bytes += message.len();
        self.waiting[at].messages.push_back(message);
    }

    /// Sends what waits, as far as it is taken: one message of each user in turn.
    pub(super) fn go_on(&mut self) {
        while let Some(mut queue) = self.waiting.pop_front() {
            let Some(message) = queue.messages.pop_front() else {
                continue;
            };
            if !self.gone(&message) {
                queue.messages.push_front(message);
                self.waiting.push_front(queue);
                return;
            }
            self.bytes -= message.len();
            queue.bytes -= message.len();
            if !queue.messages.is_empty() {
                self.waiting.push_back(queue);
            }
        }
    }

    /// Whether it was taken, or never will be.
    fn gone(&mut self, message: &[u8]) -> bool {
        match self.socket.send_to(message, &self.to) {
            Ok(_) => {
                self.trouble = None;
                true
            }
            // Too long for a datagram.
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                self.dropped += 1;
                true
            }
            Err(error) => {
                let busy = error.kind() == io::ErrorKind::WouldBlock;
                self.trouble = (!busy).then(|| error.to_string());
                false
            }
        }
    }

    /// What is wrong with it, if anything is.
    pub(super) fn trouble(&self) -> Option<String> {
        match (&self.trouble, self.dropped) {
            (None, 0) => None,
            (None, dropped) => Some(format!("journald did not take {dropped} records in time")),
            (Some(why), dropped) => Some(format!(
                "journald takes no records ({why}), {dropped} were not taken"
            )),
        }
    }
}

/// Fields, one a line; a value that holds a newline would need another form, and JSON lines have none. Values
/// that users chose are in the message alone.
fn message(trail: &Trail, line: &[u8], severity: u8) -> Vec<u8> {
    let mut message = Vec::with_capacity(line.len() + 160);
    message.extend_from_slice(b"MESSAGE=");
    message.extend_from_slice(line);
    // Writing into memory does not fail.
    let _ = write!(
        message,
        "\nPRIORITY={severity}\nSYSLOG_FACILITY={AUTHPRIV}\nSYSLOG_IDENTIFIER={NAME}\nAGENT_SANDBOX_UID={}\nAGENT_SANDBOX_TRACE={}\n",
        trail.uid, trail.trace
    );
    if let Some(job) = trail.job {
        let _ = writeln!(message, "AGENT_SANDBOX_JOB={job}");
    }
    message
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "listens as journald does")]

    use super::*;

    fn trail() -> Trail {
        Trail {
            node: "n1".into(),
            uid: 1000,
            job: Some(7),
            trace: 3,
            ..Trail::default()
        }
    }

    fn journal() -> (tempfile::TempDir, UnixDatagram, Journal) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let listener = UnixDatagram::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let journal = Journal::at(&path).unwrap();
        (directory, listener, journal)
    }

    fn received(listener: &UnixDatagram) -> Option<String> {
        let mut bytes = vec![0; 70_000];
        let length = listener.recv(&mut bytes).ok()?;
        bytes.truncate(length);
        Some(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn journald_gets_fields() {
        let (_directory, listener, mut journal) = journal();
        journal.send(&trail(), b"{\"verdict\":\"denied\"}\n");
        assert_eq!(
            received(&listener).unwrap(),
            "MESSAGE={\"verdict\":\"denied\"}\nPRIORITY=5\nSYSLOG_FACILITY=10\nSYSLOG_IDENTIFIER=agent-sandbox-tracer\n\
             AGENT_SANDBOX_UID=1000\nAGENT_SANDBOX_TRACE=3\nAGENT_SANDBOX_JOB=7\n"
        );
        assert_eq!(journal.trouble(), None);
    }

    #[test]
    fn nobody_who_listens_is_waited_for() {
        let (_directory, listener, mut journal) = journal();
        let line = vec![b'x'; 10_000];
        for _ in 0..400 {
            journal.send(&trail(), &line);
            assert!(journal.bytes <= WAITING);
        }
        assert!(journal.dropped > 0);
        assert!(journal.trouble().unwrap().contains("did not take"));
        // What waited comes, in order, and then what is new.
        let mut count = 0;
        loop {
            while received(&listener).is_some() {
                count += 1;
            }
            journal.go_on();
            if journal.waiting.is_empty() {
                break;
            }
        }
        while received(&listener).is_some() {
            count += 1;
        }
        assert_eq!(count + journal.dropped, 400);
        journal.send(&trail(), b"y");
        assert!(received(&listener).unwrap().starts_with("MESSAGE=y\n"));
    }

    #[test]
    fn one_users_flood_drops_nothing_of_others() {
        let (_directory, listener, mut journal) = journal();
        let of = |uid| Trail { uid, ..trail() };
        let line = vec![b'x'; 10_000];
        for _ in 0..400 {
            journal.send(&of(1), &line);
        }
        let dropped = journal.dropped;
        assert!(dropped > 0 && journal.bytes <= OF_A_USER);
        // There is room for what is denied, and for others.
        journal.send(&of(1), b"{\"verdict\":\"denied\"}");
        for n in 0..3 {
            journal.send(&of(2), format!("of-another-{n}").as_bytes());
        }
        assert_eq!(journal.dropped, dropped);
        // They do not wait until all of the flood has gone.
        let (mut before, mut found) = (0, 0);
        while found < 3 {
            let Some(message) = received(&listener) else {
                journal.go_on();
                continue;
            };
            if message.contains("of-another-") {
                found += 1;
            } else {
                before += 1;
            }
        }
        assert!(before < 40, "{before}");
        // However many there are.
        for uid in 10..40 {
            for _ in 0..200 {
                journal.send(&of(uid), &line);
            }
        }
        assert!(journal.bytes <= WAITING);
        let last = journal.dropped;
        journal.send(&of(50), b"y");
        assert_eq!(journal.dropped, last);
    }

    #[test]
    fn one_that_is_gone_and_comes_back_is_found() {
        let (directory, listener, mut journal) = journal();
        drop(listener);
        std::fs::remove_file(directory.path().join("log")).unwrap();
        journal.send(&trail(), b"a");
        assert!(journal.trouble().unwrap().contains("takes no records"));
        let listener = UnixDatagram::bind(directory.path().join("log")).unwrap();
        listener.set_nonblocking(true).unwrap();
        journal.go_on();
        assert!(received(&listener).unwrap().starts_with("MESSAGE=a\n"));
        assert_eq!(journal.trouble(), None);
    }
}
