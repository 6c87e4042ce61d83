//! A user's home in a temporary directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use agent_sandbox::config::diagnostic::ConfigError;
use agent_sandbox::config::load::{self, Locations, RawLayer, Request};
use agent_sandbox::config::site::Site;
use agent_sandbox::config::when::Circumstances;

pub(crate) struct World {
    // Removed on drop.
    _root: tempfile::TempDir,
    pub(crate) locations: Locations,
}

impl World {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = fs::canonicalize(root.path()).unwrap();
        let home = at.join("home");
        let locations = Locations {
            config_dir: home.join(".config/agent-sandbox"),
            // A site without a policy, whatever this machine has.
            site: Site::in_directory("/agent-sandbox-has-no-such-site".into()),
            home,
        };
        fs::create_dir_all(locations.config_dir.join("profiles")).unwrap();
        Self {
            _root: root,
            locations,
        }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.locations.config_dir.join("config.toml")
    }

    pub(crate) fn profile(&self, name: &str) -> PathBuf {
        self.locations.config_dir.join("profiles").join(name)
    }

    pub(crate) fn load(
        &self,
        change: impl FnOnce(&mut Request<'_>),
    ) -> Result<Vec<RawLayer>, ConfigError> {
        let mut request = Request {
            locations: &self.locations,
            profiles: &[],
            command: None,
            project: None,
            settled: false,
            set: &[],
            circumstances: &Circumstances::default,
        };
        change(&mut request);
        load::load(&request)
    }

    pub(crate) fn load_command(&self, command: &str) -> Result<Vec<RawLayer>, ConfigError> {
        self.load_with(None, Some(command), None, &[])
    }

    pub(crate) fn load_with(
        &self,
        profile: Option<&str>,
        command: Option<&str>,
        project: Option<&Path>,
        set: &[&str],
    ) -> Result<Vec<RawLayer>, ConfigError> {
        let profiles: Vec<String> = profile.into_iter().map(str::to_owned).collect();
        let set = set
            .iter()
            .map(|option| (*option).to_owned())
            .collect::<Vec<_>>();
        load::load(&Request {
            settled: false,
            locations: &self.locations,
            profiles: &profiles,
            command: command.map(OsStr::new),
            project,
            set: &set,
            circumstances: &Circumstances::default,
        })
    }
}

/// Writes a file that only its owner can change, whatever the umask.
pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

/// The files of the layers, in order.
pub(crate) fn names(layers: &[RawLayer]) -> Vec<&str> {
    layers.iter().map(|layer| &*layer.file).collect()
}

/// The message and the hint, as a person reads them.
pub(crate) fn said(error: &ConfigError) -> String {
    match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    }
}
