//! Which hosts addresses stand for: in a filtered network programs connect to an address of 198.18.0.0/15, which the filter of that
//! network gave a name. The filter notes which in the user's audit record; the tracer sees the address alone.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads the user's audit record, looks at the clock"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_sandbox_events::record::{Record, Trail, What};
use nix::libc;
use nix::unistd::getuid;
use serde::Deserialize;

/// The directory of audit records, below the state directory.
const RECORDS: &str = "audit";
/// Files of a node that are set aside and kept.
const SET_ASIDE: u32 = 4;
/// No file of theirs comes to so many bytes.
const LARGEST: u64 = 64 << 20;
/// Names that are held, of all networks: one has 16,384 at most.
const MOST_NAMES: usize = 100_000;
/// The longest name of a host, in bytes (RFC 1035, 2.3.4).
const LONGEST_NAME: usize = 253;
/// A file is not looked at again before so long.
const AGAIN: Duration = Duration::from_millis(500);
/// The step whose network the other steps on its node have, too.
const SCRIPT: &str = "batch";

/// Whose network: session, node, job and step.
type Network = (String, String, Option<u32>, Option<String>);

/// What is known of the user's own networks. Other users' connections are shown by address.
#[derive(Debug, Default)]
pub struct HostNames {
    directory: Option<PathBuf>,
    names: BTreeMap<(Network, Ipv4Addr), String>,
    nodes: BTreeMap<String, Progress>,
}

/// How far a node's newest file was read.
#[derive(Debug)]
struct Progress {
    inode: u64,
    offset: u64,
    looked: Instant,
}

/// What a filter noted.
#[derive(Deserialize)]
struct Noted {
    session: String,
    host: String,
    name: String,
    inside: Ipv4Addr,
    job: Option<u32>,
    step: Option<String>,
}

/// Whether a record was given a name.
#[must_use]
pub fn has(record: &Record) -> bool {
    matches!(&record.what, What::Connect(peer) if peer.host.is_some())
}

impl HostNames {
    /// What the record in a user's state directory says.
    #[must_use]
    pub fn new(state: Option<&Path>) -> Self {
        Self {
            directory: state.map(|state| state.join(RECORDS)),
            ..Self::default()
        }
    }

    /// Adds the host to the record of a connection to an address that stands for one.
    pub fn add(&mut self, record: &mut Record) {
        let What::Connect(peer) = &mut record.what else {
            return;
        };
        let address: Option<SocketAddrV4> = peer.address.parse().ok();
        let stands = |at: &Ipv4Addr| matches!(at.octets(), [198, 18 | 19, ..]);
        let Some(address) = address.map(|at| *at.ip()).filter(stands) else {
            return;
        };
        if record.trail.uid != getuid().as_raw() {
            return;
        }
        peer.host = self.host(&record.trail, address);
    }

    fn host(&mut self, trail: &Trail, address: Ipv4Addr) -> Option<String> {
        let found = self.known(trail, address);
        if found.is_some() || !self.look(&trail.node) {
            return found;
        }
        self.known(trail, address)
    }

    fn known(&self, trail: &Trail, address: Ipv4Addr) -> Option<String> {
        let session = trail.session.as_ref()?;
        let of = |job, step: Option<&str>| {
            let step = step.map(str::to_owned);
            let network = (session.clone(), trail.node.clone(), job, step);
            self.names.get(&(network, address)).cloned()
        };
        // A session may be started in a job of somebody's: its network is its own.
        of(trail.job, trail.step.as_deref())
            .or_else(|| of(trail.job, Some(SCRIPT)))
            .or_else(|| of(None, None))
    }

    /// Reads what a node's filters have added; whether there was a reason to look.
    fn look(&mut self, node: &str) -> bool {
        let Some(directory) = self.directory.clone().filter(|_| is_plain(node)) else {
            return false;
        };
        let before = self.nodes.get(node);
        if before.is_some_and(|before| before.looked.elapsed() < AGAIN) {
            return false;
        }
        let newest = open(&directory.join(format!("{node}.jsonl")));
        let inode = newest.as_ref().map_or(0, |(_, inode)| *inode);
        let before = before.filter(|before| before.inode == inode);
        let mut offset = before.map_or(0, |before| before.offset);
        if before.is_none() {
            for number in (1..=SET_ASIDE).rev() {
                if let Some((file, _)) = open(&directory.join(format!("{node}.{number}.jsonl"))) {
                    self.read(file, 0);
                }
            }
        }
        if let Some((file, _)) = newest {
            offset = self.read(file, offset);
        }
        let looked = Instant::now();
        let progress = Progress {
            inode,
            offset,
            looked,
        };
        self.nodes.insert(node.to_owned(), progress);
        true
    }

    /// Takes the lines behind an offset; where the last whole one ended.
    fn read(&mut self, mut file: File, mut offset: u64) -> u64 {
        if file.seek(SeekFrom::Start(offset)).is_err() {
            return offset;
        }
        let mut lines = BufReader::new(file.take(LARGEST));
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) && line.ends_with(b"\n") {
            offset += line.len() as u64;
            // Of requests to Slurm there is nothing to know.
            if let Ok(noted) = serde_json::from_slice::<Noted>(&line) {
                self.note(noted);
            }
            line.clear();
        }
        offset
    }

    fn note(&mut self, noted: Noted) {
        if self.names.len() < MOST_NAMES && is_plain(&noted.name) {
            let network = (noted.session, noted.host, noted.job, noted.step);
            self.names.insert((network, noted.inside), noted.name);
        }
    }
}

/// Whether a text can be the name of a host, and so of a file.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(plain)
}

fn open(path: &Path) -> Option<(File, u64)> {
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).ok()?;
    let meta = file.metadata().ok().filter(|meta| meta.is_file())?;
    Some((file, meta.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs::{rename, write};

    use agent_sandbox_events::record::Peer;

    use super::*;

    fn line(name: &str, inside: &str, more: &str) -> String {
        format!(
            "{{\"session\":\"s1\",\"host\":\"n1\",\"time\":1.5,\"kind\":\"network\",\"name\":\"{name}\",\"port\":443,\"inside\":\"{inside}\"{more},\"verdict\":\"allowed\",\"reason\":\"x\"}}\n"
        )
    }

    fn shown(names: &mut HostNames, job: Option<(u32, &str)>, address: &str) -> Option<String> {
        let trail = Trail {
            uid: getuid().as_raw(),
            node: "n1".into(),
            session: Some("s1".into()),
            job: job.map(|(job, _)| job),
            step: job.map(|(_, step)| step.into()),
            trace: 7,
        };
        let peer = Peer {
            family: "inet".into(),
            address: address.into(),
            ..Peer::default()
        };
        let what = What::Connect(peer);
        let mut record = Record {
            seq: 1,
            time: 1.0,
            trail,
            lost: 0,
            what,
        };
        names.add(&mut record);
        assert_eq!(
            has(&record),
            matches!(&record.what, What::Connect(peer) if peer.host.is_some())
        );
        match record.what {
            What::Connect(peer) => peer.host,
            _ => None,
        }
    }

    #[test]
    fn an_address_is_the_name_of_its_own_network() {
        let state = tempfile::tempdir().unwrap();
        let audit = state.path().join(RECORDS);
        std::fs::create_dir(&audit).unwrap();
        let aside = audit.join("n1.1.jsonl");
        let newest = audit.join("n1.jsonl");
        write(&aside, line("old.example", "198.18.0.1", "")).unwrap();
        let script = ",\"job\":12,\"step\":\"batch\"";
        let step = ",\"job\":12,\"step\":\"3\"";
        let text = [
            line("script.example", "198.18.0.1", script),
            line("step.example", "198.18.0.1", step),
            line("evil\\u001b[2J", "198.18.0.9", ""),
            "{\"session\":\"s1\",\"host\":\"n1\",\"command\":\"squeue\"}\nno record\n".to_owned(),
        ];
        write(&newest, text.concat()).unwrap();
        let mut names = HostNames::new(Some(state.path()));
        let is = |host: &str| Some(host.to_owned());
        assert_eq!(shown(&mut names, None, "198.18.0.1:443"), is("old.example"));
        let of =
            |names: &mut HostNames, job, step| shown(names, Some((job, step)), "198.18.0.1:22");
        assert_eq!(of(&mut names, 12, "batch"), is("script.example"));
        assert_eq!(of(&mut names, 12, "3"), is("step.example"));
        // The script's network is that of a step beside it.
        assert_eq!(of(&mut names, 12, "4"), is("script.example"));
        for other in [
            "198.18.0.9:1",
            "198.18.0.2:443",
            "192.0.2.1:443",
            "/run/x",
            "",
            "[::1]:443",
        ] {
            assert_eq!(shown(&mut names, None, other), None, "{other}");
        }
        // What is written later is found, also in a file that is new.
        let mut more = text.concat();
        more.push_str(&line("new.example", "198.18.0.2", ""));
        more.push_str("{\"session\":\"s1\",\"half");
        write(&newest, &more).unwrap();
        std::thread::sleep(AGAIN);
        assert_eq!(shown(&mut names, None, "198.18.0.2:443"), is("new.example"));
        rename(&newest, &aside).unwrap();
        write(&newest, line("last.example", "198.18.0.3", "")).unwrap();
        std::thread::sleep(AGAIN);
        assert_eq!(
            shown(&mut names, None, "198.18.0.3:443"),
            is("last.example")
        );
    }

    #[test]
    fn without_a_record_an_address_stays_one() {
        let mut none = HostNames::new(None);
        assert_eq!(shown(&mut none, None, "198.18.0.1:443"), None);
        let state = tempfile::tempdir().unwrap();
        let mut empty = HostNames::new(Some(state.path()));
        assert_eq!(shown(&mut empty, None, "198.18.0.1:443"), None);
    }
}
