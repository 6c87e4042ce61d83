//! The command line: what the user typed becomes a [`Call`].
//!
//! `agent-sandbox [OPTIONS] [--] COMMAND [ARGS]…`: the first word that is no option ends the
//! options. If it names a subcommand and no `--` stands before it, it is one.

mod explain;
mod hours;
mod notify;
mod profile;
mod records;
mod run;
mod trail;
mod wait;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, ValueEnum};

use explain::ExplainWords;
pub use explain::Question;
use hours::{ApproveWords, BudgetWords, DenyWords, PendingWords};
use profile::{ProfileWords, profile};
use records::{LogWords, MetricsWords, SessionsWords};
pub use records::{Since, Wanted};
pub use run::Around;
pub use trail::TrailCall;
pub use wait::{Job, WaitCall};

/// What the user asks for.
#[derive(Debug)]
pub enum Call {
    /// Run a command in a jail, or with `--dry-run` show how.
    Run {
        /// The options.
        options: Options,
        /// The command and its arguments.
        command: Vec<OsString>,
        /// What a program wants around it.
        around: Around,
    },
    /// `policy`
    Policy {
        /// The options.
        options: Options,
    },
    /// `explain`
    Explain {
        /// The options.
        options: Options,
        /// What is asked.
        question: Question,
    },
    /// `explain --backend`
    ExplainBackend {
        /// The options.
        options: Options,
    },
    /// `log`
    Log {
        /// The options.
        options: Options,
        /// The session to narrow it to.
        session: Option<String>,
        /// The job whose messages are wanted.
        job: Option<String>,
        /// Which records.
        wanted: Wanted,
        /// Whether it is about hosts, not Slurm.
        network: bool,
    },
    /// `profile list`
    ProfileList {
        /// The options.
        options: Options,
    },
    /// `profile show NAME`
    ProfileShow {
        /// The options.
        options: Options,
        /// Its name.
        name: String,
        /// Only the file's text.
        text: bool,
    },
    /// `profile init NAME -- COMMAND`
    ProfileInit {
        /// The options.
        options: Options,
        /// The new profile's name.
        name: String,
        /// The command that is watched, and its arguments.
        command: Vec<OsString>,
        /// Whether it may take the place of one that is built in or the site's.
        force: bool,
    },
    /// `notify`
    Notify {
        /// What stands above the text; empty: nothing.
        title: String,
        /// What the person in front of the terminal is told.
        text: String,
    },
    /// `allow SESSION HOST...`
    Allow {
        /// The session's id.
        session: String,
        /// Entries of `network.allow`.
        hosts: Vec<String>,
    },
    /// `wait JOBID...`
    Wait(WaitCall),
    /// `budget`
    Budget {
        /// The options.
        options: Options,
    },
    /// `pending`
    Pending {
        /// The options.
        options: Options,
    },
    /// `approve ID`, `deny ID`
    Decide {
        /// The options.
        options: Options,
        /// The request.
        id: String,
        /// Whether it may go.
        approve: bool,
    },
    /// `sessions`
    Sessions {
        /// The options.
        options: Options,
        /// Which.
        wanted: Wanted,
    },
    /// `report` of many sessions
    Summary {
        /// The options.
        options: Options,
        /// Which.
        wanted: Wanted,
    },
    /// `metrics`
    Metrics {
        /// The user to narrow it to, for root.
        user: Option<String>,
    },
    /// `doctor`
    Doctor {
        /// The options.
        options: Options,
        /// Partitions and nodes that are asked; none: one node of each kind.
        nodes: Option<Vec<String>>,
        /// A site's file that is examined instead, and for whom.
        policy: Option<(PathBuf, Option<String>)>,
    },
    /// `watch`, `report`, `trace`
    Trail(Box<TrailCall>),
    /// Text for standard output: help or the version.
    Print(String),
}

impl Call {
    /// How often `-v` was given.
    pub fn verbose(&self) -> u8 {
        match self {
            Self::Run { options, .. }
            | Self::Policy { options }
            | Self::Explain { options, .. }
            | Self::ExplainBackend { options }
            | Self::Log { options, .. }
            | Self::ProfileList { options }
            | Self::ProfileShow { options, .. }
            | Self::ProfileInit { options, .. }
            | Self::Sessions { options, .. }
            | Self::Summary { options, .. }
            | Self::Budget { options }
            | Self::Pending { options }
            | Self::Decide { options, .. }
            | Self::Doctor { options, .. } => options.verbose,
            Self::Trail(call) => call.options.verbose,
            Self::Notify { .. }
            | Self::Allow { .. }
            | Self::Metrics { .. }
            | Self::Wait(_)
            | Self::Print(_) => 0,
        }
    }
}

/// Which kernel facility makes the jail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// bubblewrap, and Landlock where bubblewrap cannot work
    #[default]
    Auto,
    /// bubblewrap: namespaces, mounts, a system call filter
    Bwrap,
    /// Landlock, with a mediator for what it lets through
    Landlock,
}

impl Backend {
    /// The word by which the command line names it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bwrap => "bwrap",
            Self::Landlock => "landlock",
        }
    }
}

/// Options of every call.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The project directory, writable inside [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// The profile (may be repeated) [default: the one that the command's name chooses]
    #[arg(short, long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// What makes the jail: auto, bwrap, landlock [default: auto]
    #[arg(long, value_name = "BACKEND", hide_possible_values = true)]
    pub backend: Option<Backend>,
    /// Make PATH readable inside (may be repeated)
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Make PATH writable inside (may be repeated)
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,
    /// Hide PATH (may be repeated)
    #[arg(long, value_name = "PATH")]
    pub hide: Vec<PathBuf>,
    /// Pass the variable NAME although it is hidden, or set it to VALUE (may be repeated)
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// How much of the home directory appears: tmpfs, restricted, read, write
    #[arg(long, value_name = "MODE")]
    pub home: Option<String>,
    /// Set one key of the policy (may be repeated)
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
    /// Show the plan, each line with its source, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print data as JSON
    #[arg(long)]
    pub json: bool,
    /// Do not print the banner
    #[arg(short, long)]
    pub quiet: bool,
    /// Say what is left out, and log the launch; -vv and -vvv log more
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl Options {
    /// Options before a subcommand and options behind it.
    fn and(self, more: Self) -> Self {
        let join = |mut a: Vec<PathBuf>, b: Vec<PathBuf>| {
            a.extend(b);
            a
        };
        Self {
            project: more.project.or(self.project),
            profile: self.profile.into_iter().chain(more.profile).collect(),
            backend: more.backend.or(self.backend),
            read: join(self.read, more.read),
            write: join(self.write, more.write),
            hide: join(self.hide, more.hide),
            env: self.env.into_iter().chain(more.env).collect(),
            home: more.home.or(self.home),
            set: self.set.into_iter().chain(more.set).collect(),
            dry_run: self.dry_run || more.dry_run,
            json: self.json || more.json,
            quiet: self.quiet || more.quiet,
            verbose: self.verbose.saturating_add(more.verbose),
        }
    }
}

/// The words that are subcommands.
pub const SUBCOMMAND_NAMES: &[&str] = &[
    "run", "policy", "explain", "profile", "notify", "wait", "budget", "pending", "approve",
    "deny", "sessions", "allow", "log", "metrics", "doctor", "watch", "report", "trace",
];

const SUBCOMMANDS: &str = "\
Subcommands:
  run COMMAND [ARGS]…     Run a command with --timeout and --result, for programs
  policy                  Every effective value of the policy, with its source
  explain PATH            Why a path is visible, read-only or hidden
  explain --env NAME      The same for an environment variable
  explain --host NAME     Whether a host or a socket can be connected to
  explain --slurm LINE    What is allowed of a command line of Slurm's, and why
  explain --backend       What makes the jail here, and what it lacks
  profile list            The profiles: which agents are installed, and logged in
  profile init NAME -- COMMAND
                          A new profile from a run that is watched, for you to read
  profile show NAME       What a profile says, and its text (`default`: the built-in policy)
  notify [TITLE] TEXT     Ring the terminal's bell, and ask it for a desktop notification
  wait JOBID…             Wait until jobs have ended
  budget                  The hours that jobs used, and what is left
  pending                 Jobs that wait for your approval
  approve ID              Let one of them go
  deny ID                 Refuse it
  sessions                The sessions that run on this node; for root of all users
  allow SESSION HOST…     Give a running session a host, until it ends
  report --all --since WHEN
                          What all users' sessions did: jobs, refusals, hosts; for root
  log [JOBID]             What was asked of Slurm; what Slurm said about a job
  log --network           Which hosts filtered sessions reached, and which not and why
  metrics                 Figures of this node for Prometheus; for root of all users
  doctor                  Whether a session would start here, and what to repair
  doctor --nodes [NAME]…  The same on compute nodes, in a table and compared
  doctor --policy FILE    What a site's file would mean before it is installed
  watch [SESSION|JOB[@UID]]
                          What a session and its jobs do, live, where a tracer runs
  report [SESSION|JOB[@UID]]
                          The same, summed up: as text, JSON or Markdown
  trace COMMAND [ARGS]…   What a command does, without a jail, as `strace -f` shows it

Exit status: the command's own; 128+N if signal N ended it; 125 if agent-sandbox
failed; 126 if the command cannot be executed; 127 if it was not found.";

/// Run a command, such as an AI coding agent, in a jail that hides your credentials
#[derive(Debug, Parser)]
#[command(
    name = "agent-sandbox",
    version,
    override_usage = "agent-sandbox [OPTIONS] [--] COMMAND [ARGS]…\n       agent-sandbox [OPTIONS] SUBCOMMAND",
    after_help = SUBCOMMANDS,
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct Top {
    #[command(flatten)]
    options: Options,
    #[arg(trailing_var_arg = true, hide = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

/// Every effective value of the policy, with its source
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox policy")]
struct PolicyWords {
    #[command(flatten)]
    options: Options,
}

/// Give a running session with a filtered network a host, until it ends; from outside only, and within what the site permits
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox allow")]
struct AllowWords {
    /// The session, as `agent-sandbox sessions` names it
    #[arg(value_name = "SESSION")]
    session: String,
    /// Whom, as in network.allow: NAME, *.NAME or ADDRESS, with `:PORT` or without, or a set
    #[arg(value_name = "HOST[:PORT]", required = true)]
    hosts: Vec<String>,
}

/// Whether a session would start here, what stands in its way, and the fix
#[derive(Debug, Parser)]
#[command(
    name = "agent-sandbox doctor",
    after_help = "Each line is `ok`, `degraded` (a session starts, but without this) or `broken` (no session starts).\n\
                  Exit status: 0 if a session would start, with --nodes on every node that was asked; 1 if not.\n\
                  With --policy: 1 if FILE is no policy or has an error, 0 if not; warnings do not count."
)]
struct DoctorWords {
    /// Ask compute nodes through Slurm, by a job each, and compare them: those of these partitions, these nodes
    /// (`n[01-04]`), or one of each partition and set of features
    #[arg(long, value_name = "PARTITION|NODES", num_args = 0..)]
    nodes: Option<Vec<String>>,
    /// What a site's file, enforced.toml or defaults.toml, would mean before it is installed: mistakes, the sections that
    /// hold, the values, what it narrows of the user's own, and names and paths that are not there
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    policy: Option<PathBuf>,
    /// With --policy: for this user, by name or number [default: the caller]
    #[arg(long = "as", value_name = "USER", requires = "policy")]
    user: Option<String>,
    #[command(flatten)]
    options: Options,
}

/// The whole command line as one tree, for the manual pages and the completions.
///
/// [`parse`] reads subcommands by hand, since any other first word is the user's own command.
pub fn command() -> clap::Command {
    Top::command()
        .subcommand(page::<run::RunWords>("run"))
        .subcommand(page::<PolicyWords>("policy"))
        .subcommand(page::<ExplainWords>("explain"))
        .subcommand(page::<ProfileWords>("profile"))
        .subcommand(page::<notify::NotifyWords>("notify"))
        .subcommand(page::<wait::WaitWords>("wait"))
        .subcommand(page::<BudgetWords>("budget"))
        .subcommand(page::<PendingWords>("pending"))
        .subcommand(page::<ApproveWords>("approve"))
        .subcommand(page::<DenyWords>("deny"))
        .subcommand(page::<SessionsWords>("sessions"))
        .subcommand(page::<AllowWords>("allow"))
        .subcommand(page::<LogWords>("log"))
        .subcommand(page::<MetricsWords>("metrics"))
        .subcommand(page::<DoctorWords>("doctor"))
        .subcommand(page::<trail::WatchWords>("watch"))
        .subcommand(page::<trail::ReportWords>("report"))
        .subcommand(page::<trail::TraceWords>("trace"))
}

/// A subcommand below [`command`], under its short name.
fn page<T: CommandFactory>(name: &'static str) -> clap::Command {
    T::command().name(name)
}

/// A command line that means nothing; its message.
#[derive(Debug)]
pub struct Misuse(pub String);

/// Reads the command line; `arguments` begin with the program's name.
///
/// # Errors
/// An unknown option, a missing word: the message that clap makes of it.
pub fn parse(arguments: &[OsString]) -> Result<Call, Misuse> {
    let top: Top = match read(arguments) {
        Ok(top) => top,
        Err(End::Print(text)) => return Ok(Call::Print(text)),
        Err(End::Misuse(misuse)) => return Err(misuse),
    };
    let options = top.options;
    let Some(first) = top.words.first().cloned() else {
        let usage = Top::command().render_usage();
        return Err(Misuse(format!(
            "error: no command given\n\n{usage}\n\nFor more information, try '--help'."
        )));
    };
    // clap drops the `--`; it stands right before the words.
    let at = arguments.len() - top.words.len();
    let escaped = at > 1 && arguments[at - 1] == "--";
    let rest = &top.words[1..];
    let subcommand = if escaped { None } else { first.to_str() };
    let called = match subcommand {
        Some("run") => sub(&first, rest).and_then(|words| run::read(options, words)),
        Some("policy") => sub(&first, rest).map(|words: PolicyWords| Call::Policy {
            options: options.and(words.options),
        }),
        Some("explain") => sub(&first, rest).and_then(|words| explain::read(options, words)),
        Some("profile") => sub(&first, rest).and_then(|words| profile(options, words)),
        Some("log") => sub(&first, rest).map(|words: LogWords| {
            let options = options.and(words.options);
            Call::Log {
                session: words.session,
                job: words.job,
                wanted: words.wanted.of(options.project.clone()),
                network: words.network,
                options,
            }
        }),
        Some("doctor") => sub(&first, rest).map(|words: DoctorWords| Call::Doctor {
            options: options.and(words.options),
            nodes: words.nodes,
            policy: words.policy.map(|file| (file, words.user)),
        }),
        Some("notify") => sub(&first, rest).map(notify::read),
        Some("wait") => sub(&first, rest).map(wait::read),
        Some("budget") => sub(&first, rest).map(|words: BudgetWords| words.read(options)),
        Some("pending") => sub(&first, rest).map(|words: PendingWords| words.read(options)),
        Some("approve") => sub(&first, rest).map(|words: ApproveWords| words.read(options)),
        Some("deny") => sub(&first, rest).map(|words: DenyWords| words.read(options)),
        Some("sessions") => sub(&first, rest).map(|words: SessionsWords| {
            let options = options.and(words.options);
            Call::Sessions {
                wanted: words.wanted.of(options.project.clone()),
                options,
            }
        }),
        Some("metrics") => {
            sub(&first, rest).map(|words: MetricsWords| Call::Metrics { user: words.user })
        }
        Some("allow") => sub(&first, rest).map(|words: AllowWords| Call::Allow {
            session: words.session,
            hosts: words.hosts,
        }),
        Some("watch") => sub(&first, rest).and_then(|words| trail::watch(options, words)),
        Some("report") => sub(&first, rest).and_then(|words| trail::report(options, words)),
        Some("trace") => sub(&first, rest).and_then(|words| trail::trace(options, words)),
        _ => Ok(Call::Run {
            options,
            command: top.words,
            around: Around::default(),
        }),
    };
    match called {
        Ok(call) => Ok(call),
        Err(End::Print(text)) => Ok(Call::Print(text)),
        Err(End::Misuse(misuse)) => Err(misuse),
    }
}

enum End {
    Print(String),
    Misuse(Misuse),
}

fn misuse<T>(message: &str) -> Result<T, End> {
    Err(End::Misuse(Misuse(format!(
        "error: {message}\n\nFor more information, try '--help'."
    ))))
}

fn read<T: CommandFactory + FromArgMatches>(arguments: &[OsString]) -> Result<T, End> {
    let parsed = T::command()
        .try_get_matches_from(arguments)
        .and_then(|matches| T::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let text = error.render().to_string();
        if error.use_stderr() {
            End::Misuse(Misuse(text.trim_end().to_owned()))
        } else {
            End::Print(text)
        }
    })
}

fn sub<T: CommandFactory + FromArgMatches>(name: &OsStr, rest: &[OsString]) -> Result<T, End> {
    // The name under which the usage text speaks of it.
    let mut full = OsString::from("agent-sandbox ");
    full.push(name);
    let arguments: Vec<OsString> = std::iter::once(full).chain(rest.iter().cloned()).collect();
    read(&arguments)
}
