//! The environment that a job's command gets: the one that its submitter had inside the jail, and
//! over it what Slurm and the site set on the node. Pure. The submitter's half is hostile: it is
//! for the inside alone, and the launcher never looks at it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use agent_sandbox_wire::capsule::{Capsule, Program};
use agent_sandbox_wire::step;

use crate::env_vars;

/// Variables as bytes, by name.
type Variables = BTreeMap<Vec<u8>, Vec<u8>>;

/// Variables that differ from the submitter's because the chaperon's own `sbatch` or `srun`
/// differs; the capsule says what they would be.
const OF_THE_REAL_COMMAND: [&[u8]; 6] = [
    b"PWD",
    b"OLDPWD",
    SUBMIT_DIRECTORY,
    // What `--export` said.
    b"SLURM_EXPORT_ENV",
    OPEN_MODE,
    UMASK,
];
const SUBMIT_DIRECTORY: &[u8] = b"SLURM_SUBMIT_DIR";
const JOB_NAME: &[u8] = b"SLURM_JOB_NAME";
const OPEN_MODE: &[u8] = b"SLURM_OPEN_MODE";
const UMASK: &[u8] = b"SLURM_UMASK";

/// Composes it. `node` is the environment in which Slurm started the launcher.
pub fn compose(capsule: &Capsule, node: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let base = parse(&capsule.base_environment);
    let mut all = parse(&capsule.environment);
    let node: Variables = node
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect();
    let tmpdir = env_vars::TMPDIR.as_bytes();
    for (name, value) in &node {
        let unchanged = base.get(name) == Some(value);
        if unchanged || OF_THE_REAL_COMMAND.contains(&name.as_slice()) || step::is_part(name) {
            continue;
        }
        if name == tmpdir {
            // The jail's own `/tmp` stands for whatever directory the node has. slurmstepd sets
            // `/tmp` where there was nothing, which is no reason to drop what the submitter had.
            if value != b"/tmp" || !all.contains_key(name) {
                all.insert(name.clone(), b"/tmp".to_vec());
            }
            continue;
        }
        all.insert(name.clone(), value.clone());
    }
    // What the site's prolog unset.
    for name in base.keys().filter(|name| !node.contains_key(*name)) {
        all.remove(name);
    }
    all.retain(|name, _| !step::is_part(name));
    let script = matches!(capsule.program, Program::Script { .. });
    // The chaperon's srun names the step; the variable is the job's name, and srun leaves it.
    let named = capsule.environment.iter().find_map(|entry| {
        let value = entry.strip_prefix(JOB_NAME)?.strip_prefix(b"=")?;
        (!script && !value.contains(&0)).then(|| value.to_vec())
    });
    if let Some(name) = named {
        all.insert(JOB_NAME.to_vec(), name);
    }
    if script || !all.contains_key(SUBMIT_DIRECTORY) {
        all.insert(SUBMIT_DIRECTORY.to_vec(), capsule.submit_directory.clone());
    }
    all.insert(b"PWD".to_vec(), capsule.cwd.clone());
    // The chaperon's sbatch appends to a log; whether the job's own files are appended to is the
    // capsule's.
    if script {
        all.remove(OPEN_MODE);
        if capsule.streams.append {
            all.insert(OPEN_MODE.to_vec(), b"a".to_vec());
        }
    }
    if node.contains_key(UMASK) {
        let umask = format!("{:04o}", capsule.umask & 0o777);
        all.insert(UMASK.to_vec(), umask.into_bytes());
    }
    // Slurm's PMIx server offers its data in files as well, in a directory of the user's which
    // slurmstepd fills and empties as root (that it lost races there to whoever can write to it is
    // CVE-2023-41914, repaired in Slurm 22.05.10 and 23.02.6). The jail does not have the directory;
    // a client that is told not to look for files asks the server about everything.
    if node.contains_key(env_vars::PMIX.as_bytes()) {
        let store = all.entry(env_vars::PMIX_STORE.into());
        store.or_insert_with(|| b"hash".to_vec());
    }
    all.into_iter()
        .map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value)))
        .collect()
}

/// `NAME=VALUE` entries. What is none, and what `execve(2)` cannot pass on, is left out.
fn parse(entries: &[Vec<u8>]) -> Variables {
    let pairs = entries.iter().filter_map(|entry| {
        let at = entry.iter().position(|&byte| byte == b'=')?;
        (at > 0 && !entry.contains(&0)).then(|| (entry[..at].to_vec(), entry[at + 1..].to_vec()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use agent_sandbox_wire::capsule::{Options, PolicySnapshot, Streams};

    use super::*;

    fn capsule(base: &[&str], inside: &[&str], program: Program) -> Capsule {
        let bytes = |all: &[&str]| all.iter().map(|one| one.as_bytes().to_vec()).collect();
        Capsule {
            snapshot: PolicySnapshot {
                session: "s0000000".into(),
                project: b"/home/ada/project".to_vec(),
                layers: Vec::new(),
                options: Options::default(),
                variables: Vec::new(),
                told: Vec::new(),
                traced: false,
                allocation: Vec::new(),
                placeholders: Vec::new(),
            },
            base_environment: bytes(base),
            environment: bytes(inside),
            cwd: b"/home/ada/project/run".to_vec(),
            submit_directory: b"/home/ada/project/from".to_vec(),
            umask: 0o27,
            streams: Streams::default(),
            program,
        }
    }

    fn script() -> Program {
        Program::Script {
            script: Vec::new(),
            arguments: Vec::new(),
        }
    }

    fn composed(capsule: &Capsule, node: &[&str]) -> Vec<String> {
        let node: Vec<(OsString, OsString)> = node
            .iter()
            .filter_map(|entry| entry.split_once('='))
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let all = compose(capsule, &node);
        let shown = all
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()));
        shown.collect()
    }

    #[test]
    fn the_submitters_stays_and_slurms_wins() {
        let base = ["HOME=/home/ada", "PATH=/usr/bin", "LANG=C", "GONE=1"];
        let inside = [
            "HOME=/elsewhere",
            "PATH=/opt/x:/usr/bin",
            "BASH_ENV=/x",
            "SLURM_JOB_ID=1",
            "GONE=2",
            "=odd",
            "novalue",
        ];
        let node = [
            "HOME=/home/ada",
            "PATH=/usr/bin",
            "LANG=C",
            "SLURM_JOB_ID=7",
            "SLURM_SUBMIT_DIR=/",
            "SLURM_EXPORT_ENV=ALL",
            "SLURM_OPEN_MODE=a",
            "CUDA_VISIBLE_DEVICES=0",
            "PWD=/",
        ];
        let expected = [
            "BASH_ENV=/x",
            "CUDA_VISIBLE_DEVICES=0",
            "HOME=/elsewhere",
            "PATH=/opt/x:/usr/bin",
            "PWD=/home/ada/project/run",
            "SLURM_JOB_ID=7",
            "SLURM_SUBMIT_DIR=/home/ada/project/from",
        ];
        assert_eq!(
            composed(&capsule(&base, &inside, script()), &node),
            expected
        );
    }

    #[test]
    fn temporary_files_are_in_the_jail_or_where_the_submitter_had_them() {
        let value = |inside: &[&str], node: &[&str]| {
            let all = composed(&capsule(&[], inside, script()), node);
            all.into_iter().find(|entry| entry.starts_with("TMPDIR="))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            value(&["TMPDIR=/p/tmp"], &["TMPDIR=/tmp"]),
            some("TMPDIR=/p/tmp")
        );
        assert_eq!(
            value(&["TMPDIR=/p/tmp"], &["TMPDIR=/local/7"]),
            some("TMPDIR=/tmp")
        );
        assert_eq!(value(&[], &["TMPDIR=/tmp"]), some("TMPDIR=/tmp"));
        assert_eq!(value(&[], &[]), None);
    }

    #[test]
    fn a_client_of_pmix_asks_its_server() {
        let value = |inside: &[&str], node: &[&str]| {
            let all = composed(&capsule(&[], inside, script()), node);
            all.into_iter().find(|entry| entry.contains("_gds="))
        };
        let some = |text: &str| Some(text.to_owned());
        let step = ["PMIX_NAMESPACE=slurm.pmix.7.0"];
        assert_eq!(value(&[], &step), some("PMIX_MCA_gds=hash"));
        assert_eq!(
            value(&["PMIX_MCA_gds=ds21"], &step),
            some("PMIX_MCA_gds=ds21")
        );
        // Of the node's word alone: what the submitter has may be left over from another step.
        assert_eq!(value(&step, &[]), None);
        assert_eq!(value(&[], &["PMI_RANK=0"]), None);
    }

    #[test]
    fn a_step_has_its_jobs_directory_and_no_part_of_its_capsule() {
        let step = Program::Command(vec![b"hostname".to_vec()]);
        let all = composed(
            &capsule(
                &["SLURM_SUBMIT_DIR=/"],
                &[
                    "SLURM_SUBMIT_DIR=/home/ada/project",
                    "SLURM_JOB_NAME=count",
                    "AGENT_SANDBOX_STEP_0=x",
                ],
                step,
            ),
            &[
                "AGENT_SANDBOX_STEP=1",
                "AGENT_SANDBOX_STEP_0=abc",
                "SLURM_SUBMIT_DIR=/",
                "SLURM_UMASK=0022",
                "SLURM_JOB_NAME=hostname",
                "SLURM_PROCID=3",
            ],
        );
        let expected = [
            "PWD=/home/ada/project/run",
            "SLURM_JOB_NAME=count",
            "SLURM_PROCID=3",
            "SLURM_SUBMIT_DIR=/home/ada/project",
            "SLURM_UMASK=0027",
        ];
        assert_eq!(all, expected);
    }
}
