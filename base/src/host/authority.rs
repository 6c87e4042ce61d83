//! What Slurm's configuration says of paths that matter to a jail: munge's sockets (whoever reaches
//! one of them can prove to Slurm that he is the user), the directory in which slurmstepd's sockets
//! stand, and where tasks put temporary files. Pure: text in, paths out.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use bstr::ByteSlice;

/// Where the configuration stands unless `SLURM_CONF` names another place (`slurm.conf(5)`, the
/// packages of Debian, and `slurmd(8)` without a file of its own).
pub const CONFIGURATIONS: [&str; 3] = [
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/run/slurm/conf/slurm.conf",
];
/// The largest configuration that is read, in bytes; one with ten thousand nodes, each on a line of
/// its own, has a quarter of it.
pub const LARGEST: usize = 4 << 20;

/// Keys whose values have a socket behind `socket=`.
const WITH_OPTIONS: [&[u8]; 2] = [b"authinfo=", b"authaltparameters="];
/// The key whose value may be a socket (`slurm.conf(5)`).
const WHOLE: &[u8] = b"accountingstoragepass=";
const SOCKET: &[u8] = b"socket=";
/// `slurmd` keeps its own there, and each `slurmstepd` its socket (`slurm.conf(5)`).
const SPOOL: &[u8] = b"slurmdspooldir=";
/// Where tasks put temporary files: `slurm.conf(5)`, `mpi.conf(5)`.
const TEMPORARY: [&[u8]; 2] = [b"tmpfs=", b"pmixclitmpdirbase="];

/// Where munge's socket is unless another is named (`munged(8)`): Slurm's default, which needs no line.
const MUNGE: &str = "/run/munge/munge.socket.2";

/// Where those of sackd, slurmctld and slurmdbd are, which give credentials with `auth/slurm` (`sackd(8)`).
const SACKD: [&str; 3] = [
    "/run/slurm/sack.socket",
    "/run/slurmctld/sack.socket",
    "/run/slurmdbd/sack.socket",
];
const WITH_SACKD: &[u8] = b"authtype=auth/slurm";

/// Each slurm.conf has it. sackd's socket is in a directory of the cluster's, too (Slurm 25.05, `sack_api.c`).
const CLUSTER: &[u8] = b"clustername=";

/// At which ports Slurm's own services listen: `slurm.conf(5)`. The fourth is that of nodes with a port of their own, in lines
/// that begin otherwise; at the last `srun` does.
const PORTS: [&[u8]; 5] = [
    b"slurmctldport=",
    b"slurmdport=",
    b"accountingstorageport=",
    b" port=",
    b"srunportrange=",
];

/// Paths with the lines that name them, counted from 1.
pub type Lines<T> = Vec<(u32, T)>;

/// What a configuration names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Sockets of the authority. Rather too many than too few: a path that is hidden for nothing is
    /// missed by nobody.
    pub sockets: Lines<PathBuf>,
    /// Directories of `slurmd`, in which `%h` and `%n` stand for names of the node.
    pub spools: Lines<PathBuf>,
    /// Directories for temporary files.
    pub temporary: Lines<PathBuf>,
    /// Ports of Slurm's own services, the first and the last of each range.
    pub ports: Lines<(u16, u16)>,
}

/// Reads a configuration.
pub fn read(text: &[u8]) -> Named {
    let mut all = Named::default();
    let mut before: Vec<u8> = Vec::new();
    for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Blanks may stand around `=`; lines go on behind a backslash.
        let packed = packed(line);
        if let Some(part) = packed.strip_suffix(b"\\") {
            before.extend_from_slice(part);
            continue;
        }
        let whole = [std::mem::take(&mut before), packed].concat();
        if whole.starts_with(b"#") {
            continue;
        }
        let lower = whole.to_ascii_lowercase();
        if WITH_OPTIONS.iter().any(|key| lower.find(key).is_some()) {
            let mut rest = &whole[..];
            while let Some(at) = rest.to_ascii_lowercase().find(SOCKET) {
                rest = &rest[at + SOCKET.len()..];
                all.sockets.extend(path(rest).map(|path| (number, path)));
            }
        }
        if lower.find(WITH_SACKD).is_some() {
            all.sockets
                .extend(SACKD.map(|place| (number, place.into())));
        }
        if let Some(at) = lower.find(CLUSTER) {
            let name = whole[at + CLUSTER.len()..].trim_start_with(|letter| letter == '"');
            let end = name.iter().position(|byte| b" ,;\"#/".contains(byte));
            let name = OsStr::from_bytes(&name[..end.unwrap_or(name.len())]);
            let mut place = OsString::from("/run/slurm-");
            place.push(name);
            all.sockets
                .push((number, PathBuf::from(place).join("sack.socket")));
            all.sockets.push((number, MUNGE.into()));
        }
        let behind = |key: &[u8]| {
            let at = lower.find(key)?;
            Some((number, path(&whole[at + key.len()..])?))
        };
        for key in PORTS {
            let value = lower.find(key).map(|at| &whole[at + key.len()..]);
            all.ports
                .extend(value.and_then(ports).map(|ports| (number, ports)));
        }
        all.sockets.extend(behind(WHOLE));
        all.spools.extend(behind(SPOOL));
        // These hide nothing, so that what a comment says must not count.
        let comment = whole.iter().position(|&byte| byte == b'#');
        for key in TEMPORARY {
            let said = lower
                .find(key)
                .is_some_and(|at| comment.is_none_or(|from| at < from));
            all.temporary.extend(behind(key).filter(|_| said));
        }
    }
    all
}

/// A line with one blank for many, and none around `=`.
fn packed(line: &[u8]) -> Vec<u8> {
    let mut all: Vec<u8> = Vec::with_capacity(line.len());
    for &byte in line {
        let blank = byte == b' ' || byte == b'\t';
        if blank && matches!(all.last(), None | Some(b' ' | b'=')) {
            continue;
        }
        if byte == b'=' && all.last() == Some(&b' ') {
            all.pop();
        }
        all.push(if blank { b' ' } else { byte });
    }
    all
}

/// The absolute path at the beginning of a value.
fn path(value: &[u8]) -> Option<PathBuf> {
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let end = value.iter().position(|byte| b" ,;\"#".contains(byte));
    let path = PathBuf::from(OsStr::from_bytes(&value[..end.unwrap_or(value.len())]));
    path.is_absolute().then_some(path)
}

/// A port, or a range of them, at the beginning of a value.
fn ports(value: &[u8]) -> Option<(u16, u16)> {
    // Ports of several nodes stand in brackets.
    let value = value.trim_start_with(|letter| "\"[".contains(letter));
    let end = value.iter().position(|byte| !b"0123456789-".contains(byte));
    let text = std::str::from_utf8(&value[..end.unwrap_or(value.len())]).ok()?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(found: &Lines<PathBuf>) -> Vec<String> {
        found
            .iter()
            .map(|(line, path)| format!("{line} {}", path.display()))
            .collect()
    }

    #[test]
    fn sockets_are_found_however_they_are_written() {
        let text = b"# AuthInfo=socket=/no\n\
            AuthType=auth/munge  AuthInfo = socket=/opt/munge/a.sock\r\n\
            authinfo=cred_expire=90,socket=/srv/b;ttl=3\n\
            AUTHINFO=\"socket=/srv/c\" Epilog=/srv/no\n\
            SlurmctldHost=socket=/no\n\
            AuthInfo=cred_expire=90,\\\n\
            socket=/srv/d # mine\n\
            AccountingStoragePass=/srv/e\nAccountingStoragePass=word\n\
            AuthAltParameters=jwt_key=/k,socket=relative\nAuthInfo=Socket=/srv/f";
        let all = shown(&read(text).sockets);
        let expected = [
            "2 /opt/munge/a.sock",
            "3 /srv/b",
            "4 /srv/c",
            "7 /srv/d",
            "8 /srv/e",
            "11 /srv/f",
        ];
        assert_eq!(all, expected);
        let text = b"ClusterName = \"one\" # x\nauthtype=auth/slurm\n";
        let expected = [
            "1 /run/slurm-one/sack.socket",
            "1 /run/munge/munge.socket.2",
            "2 /run/slurm/sack.socket",
            "2 /run/slurmctld/sack.socket",
            "2 /run/slurmdbd/sack.socket",
        ];
        assert_eq!(shown(&read(text).sockets), expected);
        assert_eq!(read(b""), Named::default());
        assert_eq!(read(b"\\"), Named::default());
    }

    #[test]
    fn directories_are_found() {
        let text = b"SlurmdSpoolDir = /srv/%n\nTMPFS=/scratch # SlurmdSpoolDir=/b\n\
            PMIxCliTmpDirBase=\"/local\"\nTmpDisk=3 # TmpFS=/no\n#TmpFS=/no\nTmpFS=no";
        let found = read(text);
        assert_eq!(shown(&found.spools), ["1 /srv/%n", "2 /b"]);
        assert_eq!(shown(&found.temporary), ["2 /scratch", "3 /local"]);
        assert!(found.sockets.is_empty());
        let text =
            b"SlurmctldPort=7001-7004\nSlurmdPort = 7010 # x\nAccountingStoragePort=\"7020\"\n";
        let ports = [(1, (7001, 7004)), (2, (7010, 7010)), (3, (7020, 7020))];
        assert_eq!(read(text).ports, ports);
        let text =
            b"NodeName=n1 CPUs=4 Port=7030\nNodeName=n[2-4] port = [7031-7033] State=UNKNOWN\n\
            SrunPortRange=60001-60009\nNodeName=n5 \\\nPort=7040\n";
        let ports = [
            (1, (7030, 7030)),
            (2, (7031, 7033)),
            (3, (60001, 60009)),
            (5, (7040, 7040)),
        ];
        assert_eq!(read(text).ports, ports);
    }
}
