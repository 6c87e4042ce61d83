//! A cluster with accounts and partitions for agents, by the files of `profiles/site/slurm`, and a tracer with a key.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::cluster::Cluster;
use crate::own::Own;
use crate::service::Service;

/// The account for agents, of alice's two; and the partition.
pub(crate) const ACCOUNT: &str = "proj2";
pub(crate) const PARTITION: &str = "long";

/// A rule that refuses nothing.
pub(crate) const OPEN_TO_ALL: &str = "function slurm_job_submit() return slurm.SUCCESS end\n\
    function slurm_job_modify() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n";

/// What everything stands on: root's files that the controller and the nodes have.
pub(crate) struct Attested {
    own: Own,
    pub(crate) service: Service,
    pub(crate) place: tempfile::TempDir,
}

impl Attested {
    pub(crate) fn start() -> Option<Self> {
        let place = tempfile::Builder::new()
            .prefix("agent-sandbox-attest.")
            .tempdir_in("/run")
            .unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let conf = format!(
            "JobSubmitPlugins=lua\nProlog={}\nPrologFlags=Alloc\n",
            place.path().join("prolog").display()
        );
        fs::write(place.path().join("prolog"), "#!/bin/sh\nexit 0\n").unwrap();
        fs::set_permissions(
            place.path().join("prolog"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        let extra = [
            ("slurm.conf", conf.as_str()),
            ("job_submit.lua", OPEN_TO_ALL),
        ];
        let own = Own::start("attest", &extra)?;
        let key = place.path().join("mark.key");
        let service = Service::start(&format!("mark_key = {key:?}\n"));
        let attested = Self {
            own,
            service,
            place,
        };
        for directory in [
            attested.own.login(),
            attested.own.node(0),
            attested.own.node(1),
        ] {
            let text = format!("[trace]\nsocket = {:?}\n", attested.service.socket());
            fs::write(directory.join("enforced.toml"), text).unwrap();
        }
        Some(attested)
    }

    pub(crate) fn cluster(&self) -> &'static Cluster {
        self.own.cluster
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.place.path().join("mark.keys")
    }

    /// Makes the key, if there is none, and distributes it.
    #[track_caller]
    pub(crate) fn distribute(&self) -> String {
        let said = self.service.command("key").output().unwrap();
        assert!(said.status.success(), "{said:?}");
        let line = String::from_utf8(said.stdout).unwrap();
        fs::write(self.keys(), &line).unwrap();
        fs::set_permissions(self.keys(), fs::Permissions::from_mode(0o644)).unwrap();
        line
    }

    pub(crate) fn verifier(&self) -> PathBuf {
        self.cluster()
            .launcher
            .with_file_name("agent-sandbox-attest")
    }

    /// An example, with what a site adapts.
    #[track_caller]
    pub(crate) fn adapted(&self, name: &str, more: &[(&str, String)]) -> String {
        let root = std::env::var_os("AGENT_SANDBOX_ROOT")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let mut text = fs::read_to_string(root.join("profiles/site/slurm").join(name)).unwrap();
        let common = [
            (
                "/usr/local/libexec/agent-sandbox/agent-sandbox-attest",
                self.verifier().display().to_string(),
            ),
            (
                "/etc/agent-sandbox/mark.keys",
                self.keys().display().to_string(),
            ),
            (
                "/usr/local/bin/agent-sandbox",
                self.cluster().launcher.display().to_string(),
            ),
        ];
        for (from, to) in common.iter().chain(more) {
            assert_eq!(text.matches(from).count(), 1, "`{from}` in {name}");
            text = text.replace(from, to);
        }
        text
    }

    /// The rule of the controller, which reads it anew for the next job.
    pub(crate) fn rule(&self, text: &str) {
        let path = self.cluster().conf.with_file_name("job_submit.lua");
        // slurmctld looks at the time, in seconds.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        fs::write(&path, text).unwrap();
    }

    pub(crate) fn for_agents(&self) -> String {
        self.adapted(
            "job_submit.lua",
            &[
                (
                    "accounts = {},",
                    format!("accounts = {{ {ACCOUNT} = true }},"),
                ),
                (
                    "partitions = {},",
                    format!("partitions = {{ {PARTITION} = true }},"),
                ),
                (
                    "CLUSTER = \"cluster\"",
                    format!("CLUSTER = \"{}\"", self.cluster().name),
                ),
            ],
        )
    }

    /// The Prolog of all nodes.
    pub(crate) fn prolog(&self) {
        let text = self.adapted(
            "prolog.sh",
            &[
                ("ACCOUNTS=''", format!("ACCOUNTS='other {ACCOUNT}'")),
                ("PARTITIONS=''", format!("PARTITIONS='{PARTITION}'")),
            ],
        );
        fs::write(self.place.path().join("prolog"), text).unwrap();
    }

    pub(crate) fn script_of(&self, job: &str) -> Vec<u8> {
        let said = self
            .cluster()
            .said("scontrol", ["write", "batch_script", job, "-"]);
        said.into_bytes()
    }

    pub(crate) fn comment(&self, job: &str) -> String {
        let said = self
            .cluster()
            .said("squeue", ["-h", "-j", job, "-O", "admin_comment:80"]);
        said.trim().to_owned()
    }
}
