//! What is recorded is handed to the node's tracer as well. Whoever is inside asks as often as it likes: what changes nothing is handed
//! over so many times a second.

use std::path::Path;
use std::time::Instant;

use agent_sandbox_events::audit::{
    Handed, HostKind, LONGEST_HOST, LONGEST_NAME, LONGEST_REASON, MOST_JOBS,
    Verdict as HandedVerdict, What, cut, microseconds,
};
use agent_sandbox_events::handover::Handover;
use agent_sandbox_events::protocol::VERSION;
use serde::Serialize;

use super::{Connection, Entry, SSH, Verdict};
use crate::refusal::Reason;

/// Commands that ask for a job, or end one.
const DOING: [&str; 4] = ["sbatch", "srun", "salloc", "scancel"];
/// So many records of others are handed to a tracer in a second, and so many at once: whoever is inside asks as often as it
/// likes, and the tracer keeps only so many of one user's.
const HANDED_IN_A_SECOND: f64 = 5.0;
const HANDED_AT_ONCE: f64 = 100.0;

/// What is handed to a tracer.
#[derive(Debug)]
pub(super) struct Tracer {
    handover: Handover,
    /// So many more may be handed over at once, and since when.
    room: f64,
    since: Instant,
}

/// What is written as a line, and handed over.
pub(super) trait Recorded: Serialize {
    /// The same to be handed over.
    fn handed(&self) -> What;
    /// When, in seconds since 1970.
    fn time(&self) -> f64;
    /// Whether it is handed over however much there is: what changes something, and is bounded elsewhere.
    fn is_done(&self) -> bool;
}

impl Tracer {
    /// At this socket.
    pub(super) fn at(socket: &Path) -> Self {
        Self {
            handover: Handover::new(socket),
            room: HANDED_AT_ONCE,
            since: Instant::now(),
        }
    }

    pub(super) fn hand<T: Recorded>(&mut self, session: &str, entry: &T) {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.since = now;
        self.room = (self.room + passed * HANDED_IN_A_SECOND).min(HANDED_AT_ONCE);
        if !entry.is_done() {
            if self.room < 1.0 {
                return self.handover.miss();
            }
            self.room -= 1.0;
        }
        let handed = Handed {
            version: VERSION,
            session: session.to_owned(),
            time: microseconds(entry.time()),
            missed: 0,
            what: entry.handed(),
        };
        self.handover.hand(handed, now);
    }
}

impl From<Verdict> for HandedVerdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Allowed => Self::Allowed,
            Verdict::Refused => Self::Refused,
            Verdict::Failed => Self::Failed,
        }
    }
}

impl Recorded for Entry {
    fn handed(&self) -> What {
        What::Slurm {
            pid: self.pid,
            command: cut(&self.command, LONGEST_NAME),
            verdict: self.verdict.into(),
            reason: self.reason.as_ref().map(Reason::to_string),
            jobs: self.jobs.iter().copied().take(MOST_JOBS).collect(),
            more_jobs: self.more_jobs as u64,
            suppressed: self.suppressed as u64,
        }
    }

    fn time(&self) -> f64 {
        self.time
    }

    fn is_done(&self) -> bool {
        self.verdict == Verdict::Allowed && DOING.contains(&self.command.as_str())
    }
}

impl Recorded for Connection<'_> {
    fn handed(&self) -> What {
        What::Host {
            kind: match self.kind {
                SSH => HostKind::Ssh,
                _ => HostKind::Network,
            },
            name: cut(self.name, LONGEST_HOST),
            port: self.port,
            verdict: self.verdict.into(),
            reason: cut(&self.reason, LONGEST_REASON),
        }
    }

    fn time(&self) -> f64 {
        self.time
    }

    fn is_done(&self) -> bool {
        false
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use agent_sandbox_events::client::{decode, encode};
    use agent_sandbox_events::protocol::{Request, Response};
    use nix::errno::Errno;
    use nix::sys::socket::{
        AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv,
        send, socket,
    };

    use super::*;
    use crate::audit::Audit;

    /// One who listens as the tracer does, and takes what comes when it is asked.
    struct Listener {
        place: std::path::PathBuf,
        socket: OwnedFd,
        connections: Vec<i32>,
    }

    impl Listener {
        fn new(name: &str) -> Self {
            let name = format!("chaperon-handing-{name}-{}", std::process::id());
            let place = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&place).unwrap();
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
            bind(
                socket.as_raw_fd(),
                &UnixAddr::new(&place.join("s")).unwrap(),
            )
            .unwrap();
            listen(&socket, Backlog::new(8).unwrap()).unwrap();
            Self {
                place,
                socket,
                connections: Vec::new(),
            }
        }

        fn audit(&self) -> Audit {
            let socket = self.place.join("s");
            Audit::new(self.place.join("audit"), "s1".into())
                .handed_to(Some(socket.to_str().unwrap().as_bytes()))
        }

        /// What has come, each answered.
        fn taken(&mut self) -> Vec<Handed> {
            while let Ok(connection) = accept(self.socket.as_raw_fd()) {
                self.connections.push(connection);
            }
            let mut all = Vec::new();
            let mut buffer = vec![0; 65536];
            for connection in &self.connections {
                loop {
                    match recv(*connection, &mut buffer, MsgFlags::MSG_DONTWAIT) {
                        Ok(0) | Err(Errno::EAGAIN | Errno::ECONNRESET) => break,
                        Ok(length) => {
                            let Some(Request::Audit(handed)) = decode(&buffer[..length]) else {
                                panic!("no record");
                            };
                            assert_eq!(handed.wrong(), None);
                            all.push(*handed);
                            let done = encode(&Response::Done).unwrap();
                            let _ = send(*connection, &done, MsgFlags::MSG_NOSIGNAL);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            all
        }
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            for connection in &self.connections {
                let _ = nix::unistd::close(*connection);
            }
            let _ = std::fs::remove_dir_all(&self.place);
        }
    }

    fn entry(command: &str, verdict: Verdict, jobs: &[u32]) -> Entry {
        Entry {
            time: 1_790_000_000.25,
            pid: 7,
            command: command.into(),
            verdict,
            reason: (verdict == Verdict::Refused).then_some(Reason::Limit("jobs")),
            approval: None,
            jobs: jobs.to_vec(),
            more_jobs: 0,
            suppressed: 0,
        }
    }

    #[test]
    fn what_is_recorded_is_handed_over() {
        let mut listener = Listener::new("whole");
        let audit = listener.audit();
        audit.write(&entry("sbatch", Verdict::Allowed, &[12]));
        audit.write(&entry("sbatch", Verdict::Refused, &[]));
        let long = "x".repeat(2000);
        audit.note(&Connection::new(
            (&long, Some(443)),
            None,
            Verdict::Refused,
            long.clone(),
        ));
        let all = listener.taken();
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|one| one.session == "s1" && one.missed == 0));
        assert_eq!(all[0].time, 1_790_000_000_250_000);
        let What::Slurm {
            command,
            jobs,
            verdict,
            ..
        } = &all[0].what
        else {
            panic!("{all:?}");
        };
        assert_eq!(
            (command.as_str(), jobs.as_slice(), *verdict),
            ("sbatch", &[12][..], HandedVerdict::Allowed)
        );
        let What::Slurm { reason, .. } = &all[1].what else {
            panic!("{all:?}");
        };
        assert_eq!(reason.as_deref(), Some("policy slurm.limits.jobs"));
        assert!(
            matches!(&all[2].what, What::Host { name, port: Some(443), .. } if name.len() == LONGEST_HOST)
        );
    }

    /// An agent that asks without end so that what it submits finds no room.
    #[test]
    fn a_flood_of_questions_takes_no_submissions_place() {
        let mut listener = Listener::new("flood");
        let audit = listener.audit();
        let mut all = Vec::new();
        for job in 0..1000 {
            audit.write(&entry("squeue", Verdict::Allowed, &[]));
            if job % 10 == 0 {
                audit.write(&entry("sbatch", Verdict::Allowed, &[job]));
            }
            all.extend(listener.taken());
        }
        audit.write(&entry("sbatch", Verdict::Allowed, &[1000]));
        all.extend(listener.taken());
        let of = |name: &str| {
            let is =
                |one: &&Handed| matches!(&one.what, What::Slurm { command, .. } if command == name);
            all.iter().filter(is).count() as u64
        };
        assert_eq!(of("sbatch"), 101);
        assert!(of("squeue") < 400, "{}", of("squeue"));
        let missed: u64 = all.iter().map(|one| one.missed).sum();
        assert_eq!(of("squeue") + missed, 1000);
    }

    /// Nobody listens, nobody takes, or the other end goes: the user's own record has everything, and nothing waits.
    #[test]
    fn a_tracer_that_is_away_or_stuck_holds_nothing_up() {
        for stuck in [false, true] {
            let listener = Listener::new(if stuck { "stuck" } else { "away" });
            if !stuck {
                std::fs::remove_file(listener.place.join("s")).unwrap();
            }
            let audit = listener.audit();
            let begin = Instant::now();
            for job in 0..2000 {
                audit.write(&entry("sbatch", Verdict::Allowed, &[job]));
            }
            let taken = begin.elapsed();
            assert!(taken.as_secs() < 5, "{taken:?}");
            let mut lines = 0;
            for file in std::fs::read_dir(listener.place.join("audit")).unwrap() {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                lines += text.lines().count();
            }
            assert_eq!(lines, 2000);
        }
    }
}
