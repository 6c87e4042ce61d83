//! What a plan is made for: one command line, or one task of a job.

use std::ffi::OsString;
use std::path::PathBuf;

/// What one command line asks for.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The project directory as the user named it, absolute. `None` only where no command will run
    /// and the question is about the rules alone.
    pub project: Option<PathBuf>,
    /// The current directory as the user knows it, absolute.
    pub cwd: PathBuf,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The session's id.
    pub session: String,
    /// Letters that nobody can guess, for the placeholders of this session; nothing in a job, which has those of its session.
    pub random: String,
    /// The job, on a compute node.
    pub job: Option<Job>,
}

/// What the jail gets of a job. Environment and script come from inside another jail, so that
/// nothing of them decides anything: paths of the policy are expanded with the launcher's own
/// environment. The rest is what slurmstepd told the launcher.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The environment inside, in place of the launcher's; judged by the same rules.
    pub environment: Vec<(OsString, OsString)>,
    /// The batch script and its place, which Slurm chose.
    pub script: Option<(PathBuf, Vec<u8>)>,
    /// Bytes of memory that the job has on this node, see `memory::of_job`. Slurm's word.
    pub memory: Option<u64>,
    /// Slurm's number of the job, and the step's name (`trace::step_name`).
    pub step: Option<(u32, String)>,
    /// Whether the session was to be traced that the job is of: its own trace may have failed to begin.
    pub traced: bool,
    /// The credentials that the session exchanges, by name, with their placeholders. The capsule's word, as its policy is.
    pub placeholders: Vec<(String, String)>,
}

impl Job {
    /// What stands inside in place of a credential, if the session exchanges it.
    #[must_use]
    pub fn placeholder(&self, name: &str) -> Option<&str> {
        let mut all = self.placeholders.iter();
        all.find(|(known, _)| known == name)
            .map(|(_, placeholder)| placeholder.as_str())
    }

    /// Whether the job brings a variable with this value.
    #[must_use]
    pub fn brings(&self, name: &str, value: &str) -> bool {
        let mut all = self.environment.iter();
        all.any(|(known, brought)| known == name && brought == value)
    }
}
