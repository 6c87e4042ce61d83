//! `agent-sandbox explain`: the question.

use std::ffi::{OsStr, OsString};

use clap::Parser;

use super::{Backend, Call, End, Options, misuse};

/// What `explain` is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A path.
    Path(OsString),
    /// The name of an environment variable.
    Variable(OsString),
    /// A host, with or without a port; a socket.
    Host(OsString),
    /// A command of Slurm's with its arguments, as typed.
    Slurm(OsString),
}

/// What the jail makes of a path, a device, a variable, a host or a command line of Slurm's: the rule, its
/// place, and how to change it. Inside the jail the same command answers for what is visible there
#[derive(Debug, Parser)]
#[command(
    name = "agent-sandbox explain",
    override_usage = "agent-sandbox explain [OPTIONS] PATH\n       agent-sandbox explain [OPTIONS] --env NAME\n       agent-sandbox explain [OPTIONS] --host NAME[:PORT]\n       agent-sandbox explain [OPTIONS] --slurm LINE\n       agent-sandbox explain [OPTIONS] --backend",
    mut_arg("backend", |arg| arg
        .num_args(0..=1)
        .default_missing_value("auto")
        .help("What makes the jail, and what that lacks of a full one; with BACKEND as if that were asked for. Beside \
               another question: what makes the jail: auto, bwrap, landlock"))
)]
pub(super) struct ExplainWords {
    /// The path: a file, a directory, a device node, a socket
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
    /// A host, with or without a port: "login2", "[::1]:22", "@NAME" for an abstract socket
    #[arg(long, value_name = "NAME[:PORT]")]
    host: Option<OsString>,
    /// A command of Slurm's with its options, as one word: "sbatch --uid=0"
    #[arg(long, value_name = "LINE", allow_hyphen_values = true)]
    slurm: Option<OsString>,
    #[command(flatten)]
    options: Options,
}

/// Reads the question.
///
/// # Errors
/// None is asked, or several are.
pub(super) fn read(options: Options, mut words: ExplainWords) -> Result<Call, End> {
    // Behind `explain`, `--env NAME` is the question and not an option of the launch.
    let names = std::mem::take(&mut words.options.env);
    // Behind `explain`, `--backend` alone is a question, too; without a word it changes no option.
    let backend = words.options.backend;
    if backend == Some(Backend::Auto) && options.backend.is_some() {
        words.options.backend = None;
    }
    let options = options.and(words.options);
    let mut questions: Vec<Question> = names.into_iter().map(Question::Variable).collect();
    questions.extend(words.path.map(Question::Path));
    questions.extend(words.host.map(Question::Host));
    questions.extend(words.slurm.map(Question::Slurm));
    let mut questions = questions.into_iter();
    match (questions.next(), questions.next()) {
        (Some(Question::Path(path)), None) if path.is_empty() => {
            misuse("`agent-sandbox explain` needs a PATH, and this one is empty")
        }
        (Some(Question::Variable(name)), None) if !is_variable(&name) => misuse(&format!(
            "`--env {}` names no variable: a name is not empty and has no `=`",
            name.display()
        )),
        (Some(question), None) => Ok(Call::Explain { options, question }),
        (None, _) if backend.is_some() => Ok(Call::ExplainBackend { options }),
        (None, _) => misuse(
            "`agent-sandbox explain` needs one of PATH, --env NAME, --host NAME, --slurm LINE and --backend",
        ),
        (Some(_), Some(_)) => misuse(
            "`agent-sandbox explain` takes one of PATH, --env NAME, --host NAME and --slurm LINE",
        ),
    }
}

/// Whether an entry of the environment can have this name (`environ(7)`).
fn is_variable(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    !bytes.is_empty() && !bytes.contains(&b'=')
}
