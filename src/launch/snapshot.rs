//! The session's policy as it travels with a job, and back into layers on the job's node.
//!
//! Text travels, not the merged policy: the node merges it with its own built-in layer and its own
//! site's, so that a job gets no more than its node allows. What the site enforces where the session
//! was started travels too, and narrows besides.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use agent_sandbox_wire::capsule::{self, LayerKind, PolicySnapshot};
use anyhow::Result;

use super::options::{absolute, additions, normal};
use crate::cli::{Backend, Options};
use crate::config::load::{CarriedLayer, Locations, RawLayer, load_carried};
use crate::config::source::Layer;
use crate::config::when::Probe;
use crate::env_vars;
use crate::host::circumstances;
use crate::plan::build::credentials;
use crate::policy::Policy;
use crate::policy::merge::Additions;

/// What every job of a session carries: the layers that are the user's, what the site enforces on
/// this node, and the options of the command line. `cwd` is the directory to which paths of the
/// options are relative, `node` the name of this one.
pub fn take(
    options: &Options,
    cwd: &Path,
    session: &str,
    project: &Path,
    layers: &[RawLayer],
    node: &str,
) -> PolicySnapshot {
    let paths = |given: &[PathBuf]| {
        let whole = given.iter().map(|path| normal(&absolute(cwd, path)));
        whole
            .map(|path| path.into_os_string().into_vec())
            .collect::<Vec<_>>()
    };
    PolicySnapshot {
        session: session.to_owned(),
        project: project.as_os_str().as_bytes().to_vec(),
        layers: layers
            .iter()
            .filter_map(|one| carried_layer(one, node))
            .collect(),
        options: capsule::Options {
            read: paths(&options.read),
            write: paths(&options.write),
            hide: paths(&options.hide),
            env: options
                .env
                .iter()
                .map(|entry| entry.as_bytes().to_vec())
                .collect(),
            home: options.home.clone(),
            backend: match options.backend.unwrap_or_default() {
                Backend::Auto => capsule::Backend::Auto,
                Backend::Bwrap => capsule::Backend::Bwrap,
                Backend::Landlock => capsule::Backend::Landlock,
            },
        },
        variables: Vec::new(),
        told: Vec::new(),
        traced: false,
        allocation: Vec::new(),
        placeholders: Vec::new(),
    }
}

/// The variables that paths of the policy begin with, those that say where our directories are, and, where credentials
/// are exchanged, which certificates are trusted, as `NAME=VALUE`. The environment of a job has none of them but by chance, and what it has
/// of the inside must not say what is hidden.
pub fn path_variables(policy: &Policy, environment: &[(OsString, OsString)]) -> Vec<Vec<u8>> {
    let mut names = policy.path_variables();
    names.extend([env_vars::XDG_CONFIG_HOME, env_vars::XDG_STATE_HOME]);
    names.extend(credentials::trusting_variables(policy));
    let values = names.into_iter().filter_map(|name| {
        let (_, value) = environment.iter().find(|(given, _)| given == name)?;
        Some((name, value))
    });
    values
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// The variables of a snapshot, as names and values.
pub fn variables(snapshot: &PolicySnapshot) -> Vec<(OsString, OsString)> {
    let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let pairs = snapshot.variables.iter().filter_map(|entry| {
        let at = entry.iter().position(|&byte| byte == b'=')?;
        Some((word(&entry[..at]), word(&entry[at + 1..])))
    });
    pairs.collect()
}

/// A layer as it travels; `None` for those of which each node has its own, and for a section under
/// conditions, which travels with its file: the node looks at them again.
fn carried_layer(layer: &RawLayer, node: &str) -> Option<capsule::Layer> {
    let kind = match layer.layer {
        Layer::BuiltIn | Layer::SiteDefaults => return None,
        Layer::SiteEnforced if layer.when => return None,
        Layer::SiteEnforced => LayerKind::SiteEnforced,
        Layer::Profile => LayerKind::Profile,
        Layer::User => LayerKind::User,
        Layer::Project => LayerKind::Project,
        Layer::CommandLine => LayerKind::CommandLine,
    };
    // The text of a section for a project is the user's file, which travels already.
    let text = layer.project.as_deref().unwrap_or(&layer.text);
    // The node has a file of the same name.
    let file = match kind {
        LayerKind::SiteEnforced => format!("{node}:{}", layer.file),
        _ => layer.file.to_string(),
    };
    Some(capsule::Layer {
        kind,
        file,
        text: text.to_owned(),
    })
}

/// What makes the jail on the node: what the session's user said, for the node is another.
pub fn backend(snapshot: &PolicySnapshot) -> Backend {
    match snapshot.options.backend {
        capsule::Backend::Auto => Backend::Auto,
        capsule::Backend::Bwrap => Backend::Bwrap,
        capsule::Backend::Landlock => Backend::Landlock,
    }
}

/// The layers of a job on this node, weakest first, and what options add to them. Merged they give
/// the policy of the session, as far as this node allows it.
///
/// # Errors
/// This node's site has a policy that cannot be applied; a text or an option means nothing to this
/// version of agent-sandbox.
pub fn restore(snapshot: &PolicySnapshot) -> Result<(Vec<RawLayer>, Additions)> {
    restore_at(
        &super::options::locations()?,
        snapshot,
        &circumstances::probe,
    )
}

fn restore_at(
    locations: &Locations,
    snapshot: &PolicySnapshot,
    circumstances: Probe<'_>,
) -> Result<(Vec<RawLayer>, Additions)> {
    let taken: Vec<CarriedLayer<'_>> = snapshot
        .layers
        .iter()
        .map(|layer| CarriedLayer {
            layer: match layer.kind {
                LayerKind::Profile => Layer::Profile,
                LayerKind::User => Layer::User,
                LayerKind::Project => Layer::Project,
                LayerKind::CommandLine => Layer::CommandLine,
                LayerKind::SiteEnforced => Layer::SiteEnforced,
            },
            file: &layer.file,
            text: &layer.text,
        })
        .collect();
    let layers = load_carried(locations, &taken, circumstances)?;
    let given = &snapshot.options;
    let paths = |all: &[Vec<u8>]| {
        all.iter()
            .map(|path| PathBuf::from(OsStr::from_bytes(path)))
            .collect()
    };
    let options = Options {
        read: paths(&given.read),
        write: paths(&given.write),
        hide: paths(&given.hide),
        env: given.env.iter().cloned().map(OsString::from_vec).collect(),
        home: given.home.clone(),
        ..Options::default()
    };
    // Paths were made absolute when they were taken.
    let additions = additions(&options, Path::new("/"))?;
    Ok((layers, additions))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use proptest::prelude::*;

    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::load::{Request, load};
    use crate::config::site::{Site, SiteFile};
    use crate::config::when::Circumstances;
    use crate::policy::merge::merge;

    const USER: &str = "[files]\nread = [\"/data\"]\n\n[slurm.limits]\njobs = 9\n\n\
        [projects.\"/work\".files]\nhide = [\"/work/secret\"]\n\n\
        [projects.\"/work/a\".slurm]\nscope = \"session\"\n\n\
        [projects.\"/elsewhere\".network]\nmode = \"isolated\"\n";
    const PROFILE: &str = "[profile]\ncommands = [\"tool\"]\n\n[env]\npass = [\"MY_KEY\"]\n";

    const DEFAULTS: &str = "[env]\npass = [\"SITE_KEY\"]\n\n[[when]]\npartition = \"gpu\"\n\
        [when.files]\nread = [\"/gpu\"]\n";
    const ENFORCED: &str = "[jail]\ntmp_size = \"4G\"\n\n[[when]]\npartition = \"gpu\"\n\
        [when.slurm.bounds]\ngpus = 1\n\n[[when]]\npartition = \"cpu\"\n\
        [when.slurm.bounds]\nnodes = 1\n";

    fn locations(root: &Path) -> Locations {
        Locations {
            home: root.to_owned(),
            config_dir: root.join("config"),
            site: Site::of_tree(root, nix::unistd::getuid().as_raw()),
        }
    }

    /// A directory for a node, whose site has these files.
    fn node(files: &[(SiteFile, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let site = directory.path().join("site");
        std::fs::create_dir(&site).unwrap();
        set_mode(&site, 0o755);
        for (file, text) in files {
            let path = site.join(file.name());
            std::fs::write(&path, text).unwrap();
            set_mode(&path, 0o644);
        }
        directory
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// In a job on a node of the partition `gpu`.
    fn in_job() -> Circumstances {
        Circumstances {
            partition: Some("gpu".into()),
            ..Circumstances::default()
        }
    }

    /// Both policies as text, sources included: at the node `login`, and at another one that has the
    /// same files of the site's, where `same` says so, or none.
    fn both(options: &Options, project: &str, command: &str, same: bool) -> (String, String) {
        let files = [
            (SiteFile::Defaults, DEFAULTS),
            (SiteFile::Enforced, ENFORCED),
        ];
        let directory = node(&files);
        let there = node(if same { &files } else { &files[..1] });
        let here = locations(directory.path());
        std::fs::create_dir_all(here.config_dir.join("profiles")).unwrap();
        std::fs::write(here.config_dir.join("config.toml"), USER).unwrap();
        std::fs::write(here.config_dir.join("profiles/tool.toml"), PROFILE).unwrap();
        let cwd = Path::new("/work/a");
        let project = Path::new(project);
        let layers = load(&Request {
            locations: &here,
            profiles: &options.profile,
            command: Some(OsStr::new(command)),
            project: Some(project),
            settled: false,
            set: &options.set,
            circumstances: &in_job,
        })
        .unwrap();
        let policy = merge(&layers, &additions(options, cwd).unwrap()).unwrap();
        let taken = take(options, cwd, "s", project, &layers, "login");
        let bytes = postcard::to_allocvec(&taken).unwrap();
        let (layers, additions) = restore_at(
            &locations(there.path()),
            &postcard::from_bytes(&bytes).unwrap(),
            &in_job,
        )
        .unwrap();
        let again = merge(&layers, &additions).unwrap();
        let text = |policy| serde_json::to_string_pretty(policy).unwrap();
        // What travelled says where it came from.
        let again = text(&again).replace("login:/site/", "/site/");
        (text(&policy), again)
    }

    /// The layers at a node whose site has this file, of a capsule with these texts of the site's
    /// where it was taken.
    fn enforced_at(file: Option<&str>, carried: &[&str]) -> Vec<RawLayer> {
        let files: Vec<_> = file
            .map(|text| (SiteFile::Enforced, text))
            .into_iter()
            .collect();
        let directory = node(&files);
        let mut snapshot = take(
            &Options::default(),
            Path::new("/"),
            "s",
            Path::new("/w"),
            &[],
            "login",
        );
        snapshot.layers = carried
            .iter()
            .map(|text| capsule::Layer {
                kind: LayerKind::SiteEnforced,
                file: "login:/site/enforced.toml".into(),
                text: (*text).to_owned(),
            })
            .collect();
        let (layers, _) = restore_at(&locations(directory.path()), &snapshot, &in_job).unwrap();
        layers
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn what_the_node_enforces_is_the_last_layer(
            sizes in prop::collection::vec(1_u8..9, 0..3),
            own in 1_u8..9,
            conditional in proptest::bool::ANY,
        ) {
            let text = |size: &u8| format!("[jail]\ntmp_size = \"{size}G\"\n");
            let carried: Vec<String> = sizes.iter().map(text).collect();
            let carried: Vec<&str> = carried.iter().map(String::as_str).collect();
            let mut here = text(&own);
            if conditional {
                here.push_str("[[when]]\npartition = \"gpu\"\n[when.jail]\nkeyctl = false\n");
            }
            let layers = enforced_at(Some(&here), &carried);
            let last = layers.last().unwrap();
            prop_assert_eq!((last.layer, &*last.file), (Layer::SiteEnforced, "/site/enforced.toml"));
            prop_assert_eq!(last.when, conditional);
            let size = |layers: &[RawLayer]| {
                merge(layers, &Additions::default()).unwrap().jail.tmp_size.value
            };
            let least = sizes.iter().copied().map(|size| u64::from(size) << 30).min();
            let least = least.unwrap_or(u64::MAX).min(size(&enforced_at(None, &[])));
            prop_assert_eq!(size(&layers), least.min(u64::from(own) << 30));
            // Without a file here, what travelled still narrows.
            prop_assert_eq!(size(&enforced_at(None, &carried)), least);
        }

        #[test]
        fn what_is_restored_is_the_policy_that_was_taken(
            project in prop::sample::select(vec!["/work", "/work/a", "/work/a/b", "/other"]),
            command in prop::sample::select(vec!["tool", "claude", "bash"]),
            read in prop::collection::vec("[a-z.]{1,6}(/[a-z.]{1,4}){0,2}", 0..3),
            hide in prop::collection::vec("/[a-z]{1,6}", 0..3),
            env in prop::collection::vec("[A-Z]{1,6}(=[a-z =]{0,5})?", 0..3),
            home in prop::option::of(prop::sample::select(vec!["tmpfs", "read", "write"])),
            set in prop::collection::vec(
                prop::sample::select(vec![
                    "slurm.mode=off", "jail.tmp_size=8G", "slurm.bounds.gpus=2",
                    "files.read=[\"/x\"]", "env.set.A=\"quoted\"",
                ]),
                0..3,
            ),
            same in proptest::bool::ANY,
        ) {
            let options = Options {
                read: read.iter().map(PathBuf::from).collect(),
                hide: hide.iter().map(PathBuf::from).collect(),
                env: env.iter().map(OsString::from).collect(),
                home: home.map(str::to_owned),
                set: set.iter().map(|&one| one.to_owned()).collect(),
                ..Options::default()
            };
            let (before, after) = both(&options, project, command, same);
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn variables_are_those_of_paths_and_travel() {
        let policy = "[files]\nread = [\"$SCRATCH/in\"]\nhide = [\"$SECRETS\", \"$UNSET/x\"]\n\
            [slurm]\ndirectories = [\"${SLURM_ROOT}/bin\"]\n";
        let layer = crate::config::load::parse(Layer::User, "config.toml", policy);
        let policy = merge(&[layer.unwrap().raw], &Additions::default()).unwrap();
        let environment = [
            ("SCRATCH", "/scratch/a=b"),
            ("SECRETS", ""),
            ("SLURM_ROOT", "/opt/slurm"),
            ("XDG_STATE_HOME", "/state"),
            ("GITHUB_TOKEN", "ghp"),
        ]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let taken = path_variables(&policy, &environment);
        let snapshot = PolicySnapshot {
            variables: taken,
            ..take(
                &Options::default(),
                Path::new("/"),
                "s",
                Path::new("/w"),
                &[],
                "login",
            )
        };
        let back: Vec<String> = variables(&snapshot)
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        let expected = [
            "SCRATCH=/scratch/a=b",
            "SECRETS=",
            "SLURM_ROOT=/opt/slurm",
            "XDG_STATE_HOME=/state",
        ];
        assert_eq!(back, expected);
    }

    #[test]
    fn the_backend_travels_and_is_part_of_the_policy() {
        let taken = |backend| {
            let options = Options {
                backend,
                ..Options::default()
            };
            let snapshot = take(&options, Path::new("/"), "s", Path::new("/w"), &[], "login");
            let bytes = postcard::to_allocvec(&snapshot).unwrap();
            postcard::from_bytes::<PolicySnapshot>(&bytes).unwrap()
        };
        for (given, expected) in [
            (None, Backend::Auto),
            (Some(Backend::Auto), Backend::Auto),
            (Some(Backend::Bwrap), Backend::Bwrap),
            (Some(Backend::Landlock), Backend::Landlock),
        ] {
            assert_eq!(backend(&taken(given)), expected);
        }
        assert_ne!(taken(None).options, taken(Some(Backend::Bwrap)).options);
    }

    #[test]
    fn a_section_that_is_missing_is_an_error() {
        let layer = |kind, text: &str| capsule::Layer {
            kind,
            file: "f".into(),
            text: text.into(),
        };
        let mut snapshot = take(
            &Options::default(),
            Path::new("/"),
            "s",
            Path::new("/w"),
            &[],
            "login",
        );
        let directory = node(&[]);
        let here = locations(directory.path());
        snapshot.layers = vec![layer(LayerKind::Project, "/w")];
        assert!(restore_at(&here, &snapshot, &in_job).is_err());
        snapshot.layers = vec![
            layer(LayerKind::User, "[files]\nread = []\n"),
            layer(LayerKind::Project, "/w"),
        ];
        assert!(restore_at(&here, &snapshot, &in_job).is_err());
    }
}
