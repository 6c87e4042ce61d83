//! A job, sealed: what runs, with what, under which policy. It is the batch script that Slurm stores:
//! its first line names `agent-sandbox job` as interpreter, the rest is data that no parser of
//! Slurm's takes for anything.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Version of the format; a node reads this one only.
pub const VERSION: u8 = 5;

/// The second line of a batch script that is a capsule, up to the version.
const MARK: &str = "# agent-sandbox capsule ";

/// Characters of base64 on a line. Any length would do; people may look at it.
const LINE: usize = 120;

/// From this size on a capsule is compressed.
const COMPRESSED_FROM: usize = 64 << 10;

/// The content stands as it is.
const PLAIN: u8 = 0;
/// The content is compressed (RFC 1951).
const DEFLATED: u8 = 1;

/// The largest content of a capsule, unpacked, in bytes: sixteen times the size of the largest
/// batch script that Slurm takes by default (`max_script_size`, `slurm.conf(5)`).
const LARGEST: usize = 64 << 20;

/// The longest interpreter line that Linux reads (`execve(2)`, since 5.1), less the line's end.
const LONGEST_INTERPRETER: usize = 254;

/// What every job of a session has in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySnapshot {
    /// The session's id.
    pub session: String,
    /// The project directory, its real path.
    pub project: Vec<u8>,
    /// The user's layers of the policy, weakest first, and what the site enforces where the session
    /// was started. The built-in layer and the site's defaults are the node's own, and what the
    /// site enforces there narrows besides.
    pub layers: Vec<Layer>,
    /// Options of the launcher's command line that shape the jail.
    pub options: Options,
    /// Variables that paths of the policy begin with, `NAME=VALUE`, as the launcher had them. Never
    /// of the inside.
    pub variables: Vec<Vec<u8>>,
    /// What the user was told already of what cannot be enforced or given, a line each.
    pub told: Vec<String>,
    /// Whether the session was to be traced: then no job of it runs untraced where a tracer listens.
    pub traced: bool,
    /// The allocation in which the session was started, by every number that names it: its own, and
    /// that of its array. Empty if there is none. Its jobs and steps are held to the same rules.
    pub allocation: Vec<u32>,
    /// The credentials that the session exchanges: their names, and what stands inside in place of each. Never a value.
    pub placeholders: Vec<(String, String)>,
}

/// One layer of the policy, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Which layer.
    pub kind: LayerKind,
    /// The file's name as a person would write it.
    pub file: String,
    /// The TOML text; of [`LayerKind::Project`] the section's path, as written in the user's file.
    pub text: String,
}

/// Where a layer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerKind {
    /// An agent's profile.
    Profile,
    /// The user's policy file.
    User,
    /// The section of the user's policy file for this project.
    Project,
    /// A `--set` of the command line.
    CommandLine,
    /// What the site enforces on the node where the session was started.
    SiteEnforced,
}

/// Options of the launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// `--read`, absolute.
    pub read: Vec<Vec<u8>>,
    /// `--write`, absolute.
    pub write: Vec<Vec<u8>>,
    /// `--hide`, absolute.
    pub hide: Vec<Vec<u8>>,
    /// `--env`
    pub env: Vec<Vec<u8>>,
    /// `--home`
    pub home: Option<String>,
    /// `--backend`
    pub backend: Backend,
}

/// What makes the jail on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// bubblewrap, or Landlock where bubblewrap cannot work.
    #[default]
    Auto,
    /// bubblewrap.
    Bwrap,
    /// Landlock.
    Landlock,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capsule {
    /// What the session's jobs have in common.
    pub snapshot: PolicySnapshot,
    /// The environment of the real command that submitted it, `NAME=VALUE`. What differs on the node
    /// is Slurm's doing, or the site's, and wins over [`Self::environment`].
    pub base_environment: Vec<Vec<u8>>,
    /// The environment that the job gets, `NAME=VALUE`, by `--export`.
    pub environment: Vec<Vec<u8>>,
    /// The current directory.
    pub cwd: Vec<u8>,
    /// The directory from which it was submitted (`SLURM_SUBMIT_DIR`).
    pub submit_directory: Vec<u8>,
    /// `umask(2)`
    pub umask: u32,
    /// Where the streams lead.
    pub streams: Streams,
    /// The program.
    pub program: Program,
}

/// The program of a job or a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// A batch script and its arguments.
    Script {
        /// The user's script, as given.
        script: Vec<u8>,
        /// Its arguments.
        arguments: Vec<Vec<u8>>,
    },
    /// A command and its arguments, for every task the same.
    Command(Vec<Vec<u8>>),
    /// `srun --multi-prog`: for each task its own command.
    PerTask(Vec<TaskCommand>),
}

/// A line of a `--multi-prog` file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCommand {
    /// Ranges of task numbers (`SLURM_PROCID`), both ends included; empty: all others (`*`).
    pub tasks: Vec<(u32, u32)>,
    /// Command and arguments; `%t` stands for the task, `%o` for its place within the range.
    pub argv: Vec<Vec<u8>>,
}

/// Files behind the standard streams, as file name patterns of Slurm's (`sbatch(1)`, "filename
/// pattern"), resolved on the node and opened inside the jail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// Standard input; `None`: as it comes (a batch script's is `/dev/null`).
    pub input: Option<Vec<u8>>,
    /// Standard output; `None`: as it comes.
    pub output: Option<Vec<u8>>,
    /// Standard error; `None`: where the output goes if that is a file, else as it comes. Empty: as it
    /// comes, wherever the output goes.
    pub error: Option<Vec<u8>>,
    /// Whether files are appended to instead of emptied (`--open-mode`).
    pub append: bool,
}

/// Where the output of a batch script goes if nobody says, of an array's and of another (`sbatch(1)`, `--output`).
pub const fn default_output(array: bool) -> &'static [u8] {
    if array {
        b"slurm-%A_%a.out"
    } else {
        b"slurm-%j.out"
    }
}

/// Why a text is no capsule that can be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapsuleError {
    /// The text is something else.
    #[error("this is not a capsule of agent-sandbox")]
    NotOne,
    /// Another version of agent-sandbox wrote it.
    #[error(
        "the job was submitted by another version of agent-sandbox: its capsule has version {theirs}, this node reads {VERSION}"
    )]
    Version {
        /// The capsule's version.
        theirs: u8,
    },
    /// It was cut off or changed.
    #[error("the capsule is damaged")]
    Damaged,
    /// The interpreter line would be too long for Linux, or would not be one.
    #[error("the path of agent-sandbox is too long, or has blanks, for the first line of a script")]
    Interpreter,
}

impl Capsule {
    /// The batch script. `interpreter` is the path of agent-sandbox on the nodes.
    ///
    /// # Errors
    /// [`CapsuleError::Interpreter`]
    pub fn batch_script(&self, interpreter: &[u8]) -> Result<Vec<u8>, CapsuleError> {
        let mut script = b"#!".to_vec();
        script.extend_from_slice(interpreter);
        script.extend_from_slice(b" job");
        let odd = |byte: &u8| *byte == b' ' || byte.is_ascii_control();
        if script.len() > LONGEST_INTERPRETER
            || !interpreter.starts_with(b"/")
            || interpreter.iter().any(odd)
        {
            return Err(CapsuleError::Interpreter);
        }
        let body = self.pack();
        script.extend_from_slice(format!("\n{MARK}{VERSION} {}\n", body.len()).as_bytes());
        for line in body.as_bytes().chunks(LINE) {
            script.extend_from_slice(line);
            script.push(b'\n');
        }
        Ok(script)
    }

    /// Reads a batch script that is a capsule.
    ///
    /// # Errors
    /// It is none, another version's, or damaged.
    pub fn from_batch_script(script: &[u8]) -> Result<Self, CapsuleError> {
        let (_, rest) = line(script).ok_or(CapsuleError::NotOne)?;
        let (mark, body) = line(rest).ok_or(CapsuleError::NotOne)?;
        let mark = std::str::from_utf8(mark).map_err(|_| CapsuleError::NotOne)?;
        let fields = mark.strip_prefix(MARK).ok_or(CapsuleError::NotOne)?;
        let (version, length) = fields.split_once(' ').ok_or(CapsuleError::NotOne)?;
        let theirs = version.parse().map_err(|_| CapsuleError::NotOne)?;
        if theirs != VERSION {
            return Err(CapsuleError::Version { theirs });
        }
        let length: usize = length.parse().map_err(|_| CapsuleError::NotOne)?;
        let body: Vec<u8> = body
            .iter()
            .copied()
            .filter(|byte| *byte != b'\n')
            .take(length)
            .collect();
        if body.len() != length {
            return Err(CapsuleError::Damaged);
        }
        Self::unpack(&body)
    }

    /// As one word of base64: the version, whether it is compressed, and the content.
    pub(crate) fn pack(&self) -> String {
        // Memory is all that serialisation into it can run out of.
        let plain = postcard::to_allocvec(self).unwrap_or_default();
        let mut bytes = vec![VERSION];
        if plain.len() < COMPRESSED_FROM {
            bytes.push(PLAIN);
            bytes.extend(plain);
        } else {
            bytes.push(DEFLATED);
            bytes.extend(miniz_oxide::deflate::compress_to_vec(&plain, 6));
        }
        STANDARD.encode(bytes)
    }

    pub(crate) fn unpack(text: &[u8]) -> Result<Self, CapsuleError> {
        let bytes = STANDARD.decode(text).map_err(|_| CapsuleError::Damaged)?;
        let plain = match bytes.as_slice() {
            [VERSION, PLAIN, content @ ..] => content.to_vec(),
            [VERSION, DEFLATED, content @ ..] => {
                miniz_oxide::inflate::decompress_to_vec_with_limit(content, LARGEST)
                    .map_err(|_| CapsuleError::Damaged)?
            }
            [VERSION, ..] | [] => return Err(CapsuleError::Damaged),
            [theirs, ..] => return Err(CapsuleError::Version { theirs: *theirs }),
        };
        match postcard::take_from_bytes(&plain) {
            Ok((capsule, [])) => Ok(capsule),
            _ => Err(CapsuleError::Damaged),
        }
    }
}

fn line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&byte| byte == b'\n')?;
    Some((&text[..end], &text[end + 1..]))
}
