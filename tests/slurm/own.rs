//! A cluster of a test's own, for what would disturb all others: Slurm's configuration, and the site's
//! policy of single nodes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cluster::{Cluster, SITE, cluster};

/// A cluster beside the one of this run; it ends with the test.
pub(crate) struct Own {
    /// Its users see the directory [`Own::login`] as the site's.
    pub(crate) cluster: &'static Cluster,
    place: PathBuf,
    /// One at a time: the machine is small, and each has a database.
    _alone: MutexGuard<'static, ()>,
}

impl Own {
    /// Starts it, with files that are added to its configuration. `None` where the run has no cluster.
    #[track_caller]
    pub(crate) fn start(name: &str, extra: &[(&str, &str)]) -> Option<Self> {
        Self::start_with(name, extra, &[])
    }

    /// The same, with more options of the fixture's.
    #[track_caller]
    pub(crate) fn start_with(
        name: &str,
        extra: &[(&str, &str)],
        options: &[&OsStr],
    ) -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let shared = cluster()?;
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let beside = std::env::var("AGENT_SANDBOX_TEST_CLUSTER").unwrap();
        let place = PathBuf::from(format!("{beside}.{name}"));
        let added = tempfile::tempdir().unwrap();
        for (name, text) in extra {
            fs::write(added.path().join(name), text).unwrap();
        }
        let users = format!("{},{}", shared.alice.name, shared.bob.name);
        let words = ["--name", name, "--users", &users, "--site", SITE, "--extra"];
        let said = fixture("up", &place)
            .args(words)
            .arg(added.path())
            .args(options)
            .output()
            .unwrap();
        // From here on its end is taken care of.
        let mut own = Self {
            cluster: shared,
            place,
            _alone: alone,
        };
        assert!(said.status.success(), "{}", text(&said));
        let login = own.place.join("login");
        fs::create_dir(&login).unwrap();
        let conf = own.place.join("conf/slurm.conf");
        own.cluster = Box::leak(Box::new(shared.beside(conf, login).unwrap()));
        Some(own)
    }

    /// The site's directory where users log in.
    pub(crate) fn login(&self) -> PathBuf {
        self.place.join("login")
    }

    /// A directory that all can read, with a file `text` that holds these words.
    pub(crate) fn data(&self, name: &str, text: &str) -> PathBuf {
        let directory = self.place.join("data").join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("text"), text).unwrap();
        directory
    }

    /// The site's directory of a node, by its place in the list.
    pub(crate) fn node(&self, number: usize) -> PathBuf {
        self.place.join("site").join(&self.cluster.nodes[number])
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let said = fixture("down", &self.place).output();
        // A panic here would hide the test's own.
        match said {
            Ok(said) if said.status.success() => {
                let _ = fs::remove_dir_all(&self.place);
            }
            Ok(said) => println!("{}", text(&said)),
            Err(error) => println!("cannot stop the cluster: {error}"),
        }
    }
}

fn fixture(what: &str, place: &Path) -> Command {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let mut command = Command::new(root.join("tests/slurm/cluster"));
    command.arg(what).arg(place);
    command
}

fn text(said: &Output) -> String {
    let both = [&said.stdout[..], &said.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}
