//! Records as the tracer writes them, for tests.

use agent_sandbox_events::record::{
    Actor, End, Exec, Exit, Header, Lost, Open, Operation, Peer, Record, Trail, Verdict, What,
};

/// A time in 2026 at which everything happens: 2026-01-15 10:00:00 UTC.
pub(crate) const NOON: f64 = 1_768_471_200.0;

/// Puts records into a trail, one a second.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    trail: Trail,
    seq: u64,
    lost: u64,
}

impl Writer {
    pub(crate) fn session(id: &str, node: &str, trace: u32) -> Self {
        Self {
            trail: Trail {
                node: node.into(),
                uid: 1000,
                session: Some(id.into()),
                trace,
                ..Trail::default()
            },
            seq: 0,
            lost: 0,
        }
    }

    /// Of this user from now on.
    pub(crate) fn own(&mut self, uid: u32) {
        self.trail.uid = uid;
    }

    pub(crate) fn job(id: &str, node: &str, job: u32, step: &str, trace: u32) -> Self {
        let mut writer = Self::session(id, node, trace);
        writer.trail.job = Some(job);
        writer.trail.step = Some(step.into());
        writer
    }

    pub(crate) fn command(trace: u32) -> Self {
        let mut writer = Self::session("", "n1", trace);
        writer.trail.session = None;
        writer
    }

    pub(crate) fn write(&mut self, what: What) -> Record {
        self.seq += 1;
        if let What::Lost(lost) = &what {
            self.lost += lost.more;
        }
        Record {
            seq: self.seq,
            time: NOON + self.seq as f64,
            trail: self.trail.clone(),
            lost: self.lost,
            what,
        }
    }

    /// Leaves numbers out, as if records had not arrived.
    pub(crate) fn skip(&mut self, records: u64) {
        self.seq += records;
    }
}

pub(crate) fn line(record: &Record) -> String {
    format!("{}\n", serde_json::to_string(record).unwrap())
}

pub(crate) fn actor(pid: u32, comm: &str) -> Actor {
    Actor {
        pid,
        ppid: 100,
        comm: comm.into(),
        ..Actor::default()
    }
}

pub(crate) fn header(blind: &[&str]) -> What {
    What::Header(Header {
        version: 1,
        object: "tracepoints".into(),
        kernel: "6.12.48".into(),
        blind: blind.iter().map(|text| (*text).to_owned()).collect(),
        events: ["exec", "exit", "open", "connect", "listen", "operation"]
            .map(String::from)
            .to_vec(),
        enforce: "off".into(),
        every: 1,
        began: NOON,
        command: vec!["claude".into(), "--continue".into()],
        ..Header::default()
    })
}

pub(crate) fn allowed() -> Verdict {
    Verdict {
        verdict: "allowed".into(),
        count: 1,
        ..Verdict::default()
    }
}

pub(crate) fn denied(by: &str, error: &str) -> Verdict {
    Verdict {
        verdict: "denied".into(),
        by: Some(by.into()),
        error: Some(error.into()),
        count: 1,
        ..Verdict::default()
    }
}

pub(crate) fn failed(error: &str) -> Verdict {
    Verdict {
        verdict: "failed".into(),
        error: Some(error.into()),
        count: 1,
        ..Verdict::default()
    }
}

/// An open of what the policy hides.
pub(crate) fn hidden(what: What) -> What {
    match what {
        What::Open(open) => What::Open(Open {
            hidden: true,
            ..open
        }),
        what => what,
    }
}

pub(crate) fn times(count: u64, verdict: Verdict) -> Verdict {
    Verdict { count, ..verdict }
}

pub(crate) fn exec(pid: u32, path: &str, arguments: &[&str], verdict: Verdict) -> What {
    What::Exec(Exec {
        actor: actor(pid, path.rsplit('/').next().unwrap_or(path)),
        path: path.into(),
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        verdict,
        set_id: false,
    })
}

pub(crate) fn open(pid: u32, comm: &str, path: &str, access: &[&str], verdict: Verdict) -> What {
    What::Open(Open {
        actor: actor(pid, comm),
        path: path.into(),
        access: access.iter().map(|word| (*word).to_owned()).collect(),
        hidden: false,
        verdict,
        ..Open::default()
    })
}

fn peer(pid: u32, comm: &str, address: &str, verdict: Verdict) -> Peer {
    Peer {
        actor: actor(pid, comm),
        family: "inet".into(),
        kind: "stream".into(),
        address: address.into(),
        host: None,
        verdict,
    }
}

pub(crate) fn connect(pid: u32, comm: &str, address: &str, verdict: Verdict) -> What {
    What::Connect(peer(pid, comm, address, verdict))
}

pub(crate) fn listen(pid: u32, comm: &str, address: &str) -> What {
    What::Listen(peer(pid, comm, address, allowed()))
}

pub(crate) fn operation(pid: u32, comm: &str, name: &str, detail: &str, verdict: Verdict) -> What {
    What::Operation(Operation {
        actor: actor(pid, comm),
        operation: name.into(),
        detail: detail.into(),
        verdict,
        ..Operation::default()
    })
}

pub(crate) fn exit(pid: u32, comm: &str, code: i32) -> What {
    What::Exit(Exit {
        actor: actor(pid, comm),
        code: Some(code),
        ..Exit::default()
    })
}

pub(crate) fn lost(more: u64) -> What {
    What::Lost(Lost {
        more,
        why: "no room in the ring".into(),
    })
}

pub(crate) fn end() -> What {
    What::End(End {
        why: "all tasks have ended".into(),
        skipped: 0,
    })
}

/// A session with a job of two steps on two nodes: some of everything.
pub(crate) fn session(id: &str) -> Vec<Record> {
    const BLIND: &str = "opens by io_uring cannot be seen";
    let mut writer = Writer::session(id, "login1", 7);
    let mut all: Vec<Record> = [
        header(&[BLIND, "a path is read from the caller's memory"]),
        exec(200, "/usr/bin/claude", &["claude", "--continue"], allowed()),
        open(
            200,
            "claude",
            "/usr/lib/libc.so.6",
            &["read"],
            times(12, allowed()),
        ),
        open(
            200,
            "claude",
            "/home/ada/work/notes",
            &["write", "create"],
            allowed(),
        ),
        open(
            200,
            "claude",
            "/home/ada/work",
            &["read", "directory"],
            allowed(),
        ),
        exec(
            201,
            "/usr/bin/cat",
            &["cat", "/home/ada/.ssh/id_rsa"],
            allowed(),
        ),
        open(
            201,
            "cat",
            "/home/ada/.ssh/id_rsa",
            &["read"],
            times(3, denied("security_module", "EACCES")),
        ),
        open(
            201,
            "cat",
            "/var/log/syslog",
            &["read"],
            times(40, denied("permissions", "EACCES")),
        ),
        open(
            201,
            "cat",
            "/srv/forbidden",
            &["read"],
            Verdict {
                verdict: "would_deny".into(),
                count: 2,
                ..Verdict::default()
            },
        ),
        hidden(open(
            201,
            "cat",
            "/home/ada/.aws/credentials",
            &["read"],
            failed("ENOENT"),
        )),
        exit(201, "cat", 1),
        connect(200, "claude", "192.0.2.1:443", allowed()),
        connect(200, "claude", "192.0.2.9:25", denied("tracer", "EPERM")),
        listen(200, "claude", "127.0.0.1:8080"),
        operation(
            200,
            "claude",
            "ptrace",
            "process 1",
            denied("seccomp", "EPERM"),
        ),
        lost(5),
    ]
    .into_iter()
    .map(|what| writer.write(what))
    .collect();
    for (node, step, trace) in [("n1", "batch", 3), ("n2", "0", 4)] {
        let mut writer = Writer::job(id, node, 12, step, trace);
        for what in [
            header(&[BLIND]),
            exec(300, "/usr/bin/hostname", &["hostname"], allowed()),
            end(),
        ] {
            all.push(writer.write(what));
        }
    }
    all
}
