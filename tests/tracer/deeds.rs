//! What a trail says that a process and those that come of it did; and what strace says of the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use agent_sandbox_events::record::{self, Exec, Header, Record, What};

use crate::site::brief;

/// One trail: its records in their order.
pub(crate) struct Trail {
    pub(crate) of: record::Trail,
    pub(crate) records: Vec<Record>,
}

/// Programs that were started, files that were opened, addresses that were connected to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Deeds {
    /// As they were resolved.
    pub(crate) programs: BTreeSet<String>,
    /// As they were resolved, of opens that succeeded.
    pub(crate) opened: BTreeSet<String>,
    /// As they were written, of opens that failed, with the error.
    pub(crate) refused: BTreeSet<(String, String)>,
    /// `127.0.0.1:80`, of those that succeeded.
    pub(crate) connected: BTreeSet<String>,
}

impl Trail {
    /// The trails that these records belong to, in the order in which they begin.
    pub(crate) fn each(records: Vec<Record>) -> Vec<Self> {
        let mut trails: Vec<Self> = Vec::new();
        for record in records {
            match trails.iter_mut().find(|trail| trail.of == record.trail) {
                Some(trail) => trail.records.push(record),
                None => trails.push(Self {
                    of: record.trail.clone(),
                    records: vec![record],
                }),
            }
        }
        trails
    }

    /// What it says of itself.
    #[track_caller]
    pub(crate) fn header(&self) -> &Header {
        match &self.records.first().unwrap().what {
            What::Header(header) => header,
            other => panic!("a trail begins with {other:?}"),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        let last = self.records.last();
        last.is_some_and(|record| matches!(record.what, What::End(_)))
    }

    /// It is whole: begins with its header, has every number once, in order, and nothing was lost.
    #[track_caller]
    pub(crate) fn whole(&self) {
        self.header();
        for (number, record) in (1..).zip(&self.records) {
            assert_eq!(record.seq, number, "{}", self.brief());
            assert_eq!(record.lost, 0, "{}", self.brief());
        }
    }

    /// All of it in short words, a line each.
    pub(crate) fn brief(&self) -> String {
        let mut text = format!("-- {:?}\n", self.of);
        for record in &self.records {
            text.push_str(&format!("{:>6} {}\n", record.seq, brief(record)));
        }
        text
    }

    /// The programs that were started, but those of the jail itself, in their order, with their arguments.
    pub(crate) fn started(&self) -> Vec<&Exec> {
        let own = |exec: &&Exec| {
            let program = exec.path.rsplit('/').next().unwrap_or_default();
            !["bwrap", "agent-sandbox", "agent-sandbox-shim"].contains(&program)
        };
        let all = self.records.iter().filter_map(|record| match &record.what {
            What::Exec(exec) => Some(exec),
            _ => None,
        });
        all.filter(own).collect()
    }

    /// Whether a file of this name, which no other file has, was opened.
    pub(crate) fn has_opened(&self, name: &str) -> bool {
        let end = format!("/{name}");
        self.records.iter().any(|record| match &record.what {
            What::Open(open) => open.path.ends_with(&end) && open.verdict.verdict == "allowed",
            _ => false,
        })
    }

    /// What the process did that started a program with these arguments, from then on, and all that came of
    /// it. It needs records of forks.
    #[track_caller]
    pub(crate) fn deeds(&self, of: impl Fn(&Exec) -> bool) -> Deeds {
        let begins = |record: &Record| match &record.what {
            What::Exec(exec) if of(exec) => Some(exec.actor.pid),
            _ => None,
        };
        let found = self
            .records
            .iter()
            .enumerate()
            .find_map(|(at, record)| Some((at, begins(record)?)));
        let (at, root) = found.unwrap_or_else(|| panic!("no such program in {}", self.brief()));
        let mut family = BTreeSet::from([root]);
        let mut deeds = Deeds::default();
        for record in &self.records[at..] {
            deeds.take(&record.what, &mut family);
        }
        deeds
    }
}

impl Deeds {
    fn take(&mut self, what: &What, family: &mut BTreeSet<u32>) {
        match what {
            What::Fork(actor) if family.contains(&actor.ppid) => {
                family.insert(actor.pid);
            }
            What::Exec(exec) if family.contains(&exec.actor.pid) => {
                self.programs.insert(exec.path.clone());
            }
            What::Open(open) if family.contains(&open.actor.pid) => {
                // What the kernel itself opens to start a program is no open of the process.
                if open.access == ["execute"] {
                } else if let Some(error) = &open.verdict.error {
                    self.refused.insert((open.path.clone(), error.clone()));
                } else {
                    self.opened.insert(open.path.clone());
                }
            }
            What::Connect(peer)
                if family.contains(&peer.actor.pid) && peer.verdict.verdict == "allowed" =>
            {
                self.connected.insert(peer.address.clone());
            }
            _ => {}
        }
    }

    /// What `strace -ff -y -o PREFIX` wrote: a file for each process, which begins so.
    #[track_caller]
    pub(crate) fn by_strace(prefix: &Path) -> Self {
        let name = format!("{}.", prefix.file_name().unwrap().to_str().unwrap());
        let mut deeds = Self::default();
        for entry in fs::read_dir(prefix.parent().unwrap()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with(&name) {
                let text = fs::read(entry.path()).unwrap();
                for line in String::from_utf8_lossy(&text).lines() {
                    deeds.line(line);
                }
            }
        }
        deeds
    }

    /// One line: `openat(AT_FDCWD</here>, "name", O_RDONLY) = 3</here/name>`.
    fn line(&mut self, line: &str) {
        let Some((call, result)) = line.rsplit_once(") = ").or_else(|| line.rsplit_once(" = "))
        else {
            return;
        };
        let first_string = || call.split('"').nth(1).unwrap_or_default().to_owned();
        let failed = result
            .strip_prefix("-1 ")
            .and_then(|rest| rest.split(' ').next());
        if call.starts_with("execve(") && failed.is_none() {
            let path = first_string();
            let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone().into());
            self.programs.insert(real.display().to_string());
        } else if call.starts_with("open") || call.starts_with("creat(") {
            match failed {
                Some(error) => drop(self.refused.insert((first_string(), error.to_owned()))),
                None => {
                    let path = result
                        .split_once('<')
                        .map(|(_, path)| path.trim_end_matches('>'));
                    self.opened.insert(path.unwrap_or_default().to_owned());
                }
            }
        } else if call.starts_with("connect(")
            && (failed.is_none() || failed == Some("EINPROGRESS"))
        {
            let part = |before: &str| {
                let rest = call.split_once(before)?.1;
                Some(rest.split([')', '"']).next()?.to_owned())
            };
            if let (Some(port), Some(address)) = (part("htons("), part("inet_addr(\"")) {
                self.connected.insert(format!("{address}:{port}"));
            }
        }
    }
}

/// By what a set is more than another.
pub(crate) fn more<'a, T: Ord>(of: &'a BTreeSet<T>, than: &'a BTreeSet<T>) -> Vec<&'a T> {
    of.difference(than).collect()
}
