//! The words of `watch`, `report` and `trace`: they become an [`Ask`] for the program that shows trails.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agent_sandbox_events::ask::{Ask, Target, Trace, VERSION, What};
use agent_sandbox_events::protocol::EventKind;
use agent_sandbox_events::raw::Kind;
use clap::{Args, Parser};

use super::records::{Wanted, WantedWords, summary};
use super::{Call, End, Options, misuse};

/// Kinds of events that `trace` records unless it is told which: processes that only come to be say little
/// beside the programs that they start.
const USUAL: [EventKind; 6] = [
    EventKind::Exec,
    EventKind::Exit,
    EventKind::Open,
    EventKind::Connect,
    EventKind::Listen,
    EventKind::Operation,
];

#[derive(Args, Debug)]
struct Tracer {
    /// Where the tracer listens [default: trace.socket of the policy]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// What sessions and jobs do, live: what is denied, programs, files, connections
#[derive(Debug, Parser)]
#[command(
    name = "agent-sandbox watch",
    after_help = "Keys: 1 to 8 and Tab switch panes, / filters, p pauses, c copies a summary, ? shows all, q quits."
)]
pub(super) struct WatchWords {
    /// A session's id, a job's number, or trace:N; for root of a user's, JOB@UID [default: the newest session]
    #[arg(value_name = "SESSION|JOB[@UID]")]
    which: Option<String>,
    /// Print records as they come, a JSON object a line
    #[arg(long)]
    json: bool,
    /// Say nothing beside the records about those that were missed
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    tracer: Tracer,
}

/// What a session or a job did: programs, files, what was denied, connections, and what could not be seen. With --all, --since or
/// --from: sessions, jobs, refusals, denials and hosts by user, agent and project
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox report")]
pub(super) struct ReportWords {
    /// A session's id, a job's number, or trace:N; for root of a user's, JOB@UID [default: the newest session]
    #[arg(value_name = "SESSION|JOB[@UID]")]
    which: Option<String>,
    /// Print data as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
    /// With --all, --since or --from: only sessions in this project
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    #[command(flatten)]
    wanted: WantedWords,
    #[command(flatten)]
    tracer: Tracer,
}

/// What a command and all that it starts do, without a jail: programs, files, connections, as they happen
#[derive(Debug, Parser)]
#[command(
    name = "agent-sandbox trace",
    override_usage = "agent-sandbox trace [OPTIONS] [--] COMMAND [ARGS]…\n       agent-sandbox trace [OPTIONS] --pid N\n       agent-sandbox trace [OPTIONS] --cgroup PATH\n       agent-sandbox trace [OPTIONS] --job N",
    after_help = "Events are printed on standard error, or into FILE.\n\
                  Exit status: the command's own; 128+N if signal N ended it; 125 if nothing was traced."
)]
pub(super) struct TraceWords {
    /// Trace this process of yours, its threads and descendants, until it ends or ^C
    #[arg(short, long, value_name = "N", group = "target")]
    pid: Option<u32>,
    /// Trace your processes in and below a cgroup v2, until ^C
    #[arg(long, value_name = "PATH", group = "target")]
    cgroup: Option<PathBuf>,
    /// Trace a job of yours on this node, until ^C
    #[arg(long, value_name = "N", group = "target")]
    job: Option<u32>,
    /// Which events, with commas between: fork, exec, exit, open, connect, listen, operation
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    events: Vec<String>,
    /// Show opens of files that do not exist, too
    #[arg(long)]
    missing: bool,
    /// Print a summary at the end instead of each event
    #[arg(long)]
    report: bool,
    /// Print JSON: a record a line, or with --report the summary
    #[arg(long)]
    json: bool,
    /// Print into this file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print nothing but events
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    tracer: Tracer,
    /// The command and its arguments
    #[arg(
        trailing_var_arg = true,
        value_name = "COMMAND",
        conflicts_with = "target"
    )]
    command: Vec<OsString>,
}

/// What is asked of the program that shows trails.
#[derive(Debug)]
pub struct TrailCall {
    /// Options in front of the subcommand.
    pub options: Options,
    /// What is asked. Where no socket was named, it is empty.
    pub ask: Ask,
    /// The command that is traced, and its arguments.
    pub command: Vec<OsString>,
    /// The user to narrow a report to, for root.
    pub user: Option<String>,
}

fn call(
    options: Options,
    tracer: Tracer,
    json: bool,
    quiet: bool,
    what: What,
    command: Vec<OsString>,
) -> Result<Call, End> {
    let socket = match &tracer.socket {
        Some(path) if path.as_os_str().is_empty() => return misuse("--socket needs a PATH"),
        Some(path) => text("--socket", path)?,
        None => String::new(),
    };
    let ask = Ask {
        version: VERSION,
        socket,
        state: None,
        json: options.json || json,
        quiet: options.quiet || quiet,
        untraced: Vec::new(),
        uid: None,
        what,
    };
    Ok(Call::Trail(Box::new(TrailCall {
        options,
        ask,
        command,
        user: None,
    })))
}

fn text(option: &str, path: &Path) -> Result<String, End> {
    match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => misuse(&format!("{option} `{}` is not UTF-8", path.display())),
    }
}

pub(super) fn watch(options: Options, words: WatchWords) -> Result<Call, End> {
    let what = What::Watch { which: words.which };
    call(
        options,
        words.tracer,
        words.json,
        words.quiet,
        what,
        Vec::new(),
    )
}

pub(super) fn report(options: Options, words: ReportWords) -> Result<Call, End> {
    if options.json && words.markdown {
        return misuse("`agent-sandbox report` takes one of --json and --markdown");
    }
    let wanted = words.wanted.of(words.project);
    if summary(&wanted, words.which.is_some(), words.markdown)? {
        let project = wanted.project.or_else(|| options.project.clone());
        return Ok(Call::Summary {
            options: Options {
                json: options.json || words.json,
                ..options
            },
            wanted: Wanted { project, ..wanted },
        });
    }
    let what = What::Report {
        which: words.which,
        markdown: words.markdown,
    };
    let mut called = call(options, words.tracer, words.json, false, what, Vec::new())?;
    if let Call::Trail(trail) = &mut called {
        trail.user = wanted.user;
    }
    Ok(called)
}

pub(super) fn trace(options: Options, words: TraceWords) -> Result<Call, End> {
    let target = match (words.pid, &words.cgroup, words.job) {
        (Some(pid), _, _) => Target::Process(pid),
        (_, Some(path), _) => Target::Cgroup(text("--cgroup", path)?),
        (_, _, Some(job)) => Target::Job(job),
        (None, None, None) if words.command.is_empty() => {
            return misuse(
                "`agent-sandbox trace` needs a COMMAND, or one of --pid N, --cgroup PATH and --job N",
            );
        }
        (None, None, None) => Target::Command,
    };
    let output = match &words.output {
        Some(path) => Some(text("--output", path)?),
        None => None,
    };
    let what = What::Trace(Trace {
        target,
        events: events(&words.events)?,
        missing: words.missing,
        report: words.report,
        output,
    });
    call(
        options,
        words.tracer,
        words.json,
        words.quiet,
        what,
        words.command,
    )
}

/// Kinds of events by their names, each once.
fn events(names: &[String]) -> Result<Vec<EventKind>, End> {
    if names.is_empty() {
        return Ok(USUAL.to_vec());
    }
    let mut events = Vec::new();
    for name in names {
        let event = match Kind::named(name.trim()) {
            Some(Kind::Fork) => EventKind::Fork,
            Some(Kind::Exec) => EventKind::Exec,
            Some(Kind::Exit) => EventKind::Exit,
            Some(Kind::Open) => EventKind::Open,
            Some(Kind::Connect) => EventKind::Connect,
            Some(Kind::Listen) => EventKind::Listen,
            Some(Kind::Operation) => EventKind::Operation,
            None => {
                let known: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
                return misuse(&format!(
                    "--events: `{}` is no kind of event; there are {}",
                    name.escape_debug(),
                    known.join(", ")
                ));
            }
        };
        if !events.contains(&event) {
            events.push(event);
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::super::{Misuse, parse};
    use super::*;

    fn asked(words: &[&str]) -> Result<(Ask, Vec<OsString>), String> {
        let words: Vec<OsString> = std::iter::once("agent-sandbox")
            .chain(words.iter().copied())
            .map(OsString::from)
            .collect();
        match parse(&words) {
            Ok(Call::Trail(call)) => Ok((call.ask, call.command)),
            Ok(other) => panic!("{other:?}"),
            Err(Misuse(text)) => Err(text),
        }
    }

    #[test]
    fn what_is_typed_is_what_is_asked() {
        let (ask, command) = asked(&["watch"]).unwrap();
        assert_eq!(ask.what, What::Watch { which: None });
        assert!(!ask.json && command.is_empty() && ask.socket.is_empty());
        let (ask, _) = asked(&["--json", "-q", "watch", "12", "--socket", "/s"]).unwrap();
        assert!(ask.json && ask.quiet);
        assert_eq!(ask.socket, "/s");
        let (ask, _) = asked(&["report", "--markdown", "k3v9m2qp"]).unwrap();
        let which = Some("k3v9m2qp".to_owned());
        assert_eq!(
            ask.what,
            What::Report {
                which,
                markdown: true
            }
        );
    }

    #[test]
    fn the_words_of_a_command_are_its_own() {
        for words in [
            &["trace", "ls", "--json", "-p", "1"][..],
            &["trace", "--", "ls", "--json", "-p", "1"],
        ] {
            let (ask, command) = asked(words).unwrap();
            assert_eq!(command, ["ls", "--json", "-p", "1"]);
            assert!(!ask.json);
            let What::Trace(trace) = ask.what else {
                panic!("{ask:?}");
            };
            assert_eq!(trace.target, Target::Command);
            assert_eq!(trace.events, USUAL);
        }
    }

    #[test]
    fn one_thing_is_traced_at_a_time() {
        let target = |words: &[&str]| match asked(words).map(|(ask, _)| ask.what) {
            Ok(What::Trace(trace)) => Ok(trace.target),
            Ok(other) => panic!("{other:?}"),
            Err(text) => Err(text),
        };
        assert_eq!(target(&["trace", "-p", "17"]), Ok(Target::Process(17)));
        assert_eq!(target(&["trace", "--job", "9"]), Ok(Target::Job(9)));
        assert_eq!(
            target(&["trace", "--cgroup", "/sys/fs/cgroup/x"]),
            Ok(Target::Cgroup("/sys/fs/cgroup/x".into()))
        );
        for words in [
            &["trace"][..],
            &["trace", "--pid", "17", "ls"],
            &["trace", "--pid", "17", "--job", "9"],
            &["trace", "--events", "open,close", "ls"],
            &["report", "--json", "--markdown"],
            &["--json", "report", "--markdown"],
            &["watch", "--socket", ""],
        ] {
            assert!(asked(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn events_are_named_once() {
        let (ask, _) = asked(&["trace", "-e", "open,exec,open", "ls"]).unwrap();
        let What::Trace(trace) = ask.what else {
            panic!("{ask:?}");
        };
        assert_eq!(trace.events, [EventKind::Open, EventKind::Exec]);
    }
}
