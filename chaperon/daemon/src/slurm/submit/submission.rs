//! A job or a step on its way to Slurm, in stages.
//!
//! Each stage is reached through the one before it alone: [`Typed`], [`Judged`], [`Written`], [`Recorded`],
//! and then [`Started`]. So no real command that gets a job is started without its intent, with words that the
//! chaperon did not write, larger than the policy lets it be, or with an option that the table refuses. Where it
//! goes comes first, for what the variables of an srun mean depends on the job: a [`Target`] in a job is one
//! that was checked against the scope.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use agent_sandbox_wire::capsule::{Capsule, Program, Streams};
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::target::Target;
use super::{capsule, directory, no_job};
use crate::closing::Received;
use crate::intent::Intent;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::approval::{self, Script, Title};
use crate::slurm::ask::{Stop, patiently};
use crate::slurm::bounds::JobSize;
use crate::slurm::ledger::Hold;
use crate::slurm::messages::{Messages, Speaker};
use crate::slurm::parse::{Directives, Parsed, parse, written};
use crate::slurm::rates::Reservation;
use crate::slurm::records::{self, Record};
use crate::slurm::request::Context;
use crate::slurm::{bounds, cluster, hours, queue, rates, submitted};
use crate::spawn::{self, Running, Start, Way};
use crate::variables::{Variables, set};

/// A submission.
pub(super) struct Submission<Stage> {
    target: Target,
    parsed: Parsed,
    /// The words that a script asks with, and the mask that it sets.
    asking: (Vec<Vec<u8>>, Option<u32>),
    stage: Stage,
}

/// Options, variables and directives are types, and none of them is refused.
pub(super) struct Typed;

/// The policy lets it be as large as it is.
pub(super) struct Judged {
    /// Where it starts, in the jail.
    cwd: OsString,
    /// The user's options and variables, written anew.
    words: Vec<OsString>,
    variables: Variables,
    /// What keeps it from growing later.
    bounds: Vec<OsString>,
    /// What it takes, if hours are counted.
    size: Option<JobSize>,
}

/// The real command's words, environment and streams are the chaperon's.
pub(super) struct Written {
    start: Start,
    messages: Messages,
    size: Option<JobSize>,
    script: Option<Script>,
    line: Vec<u8>,
}

/// What is about to be submitted stands in the state directory, and there is room for it in the queue.
pub(super) struct Recorded {
    start: Start,
    messages: Messages,
    record: Vec<u8>,
    /// None for what makes no job.
    intent: Option<Intent>,
    /// None likewise, or without a limit.
    reservation: Option<Reservation>,
    /// None likewise.
    hold: Option<Hold>,
}

/// What the real command is given beside the user's options.
#[derive(Default)]
pub(super) struct Own {
    /// Words before those of the bounds, and behind them.
    pub(super) before: Vec<OsString>,
    pub(super) behind: Vec<OsString>,
    /// Words at the end, of which its messages tell nothing.
    pub(super) last: Vec<OsString>,
    pub(super) variables: Variables,
    /// Files that it keeps open, under the numbers in its words.
    pub(super) kept: Vec<Received>,
    /// The script that it will run.
    pub(super) script: Option<Script>,
    /// Its path and its arguments, with blanks between.
    pub(super) line: Vec<u8>,
}

impl<Stage> Submission<Stage> {
    /// Where it goes.
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// What was asked for.
    pub(super) fn parsed(&self) -> &Parsed {
        &self.parsed
    }

    fn next<Next>(self, stage: impl FnOnce(Stage) -> Next) -> Submission<Next> {
        Submission {
            target: self.target,
            parsed: self.parsed,
            asking: self.asking,
            stage: stage(self.stage),
        }
    }
}

impl Submission<Typed> {
    /// Reads the request.
    ///
    /// # Errors
    /// An option is refused or none; or the command is over, for it was asked about itself.
    pub(super) async fn read(context: &mut Context<'_>, target: Target) -> Result<Self, Stop> {
        let request = &context.request;
        let environment = target.without_its_own(&request.environment);
        let release = cluster::release(&context.session).await;
        let parsed = parse(request.command, release, &request.arguments, &environment)?;
        let options: Vec<_> = parsed.given.iter().map(|given| given.option.long).collect();
        tracing::debug!(target: "slurm", ?options, "submission read");
        if let Some(end) = no_job::answered(context, &parsed).await? {
            return Err(Stop::Ended(end));
        }
        Ok(Self {
            target,
            parsed,
            asking: Default::default(),
            stage: Typed,
        })
    }

    /// Adds what a script asks for.
    pub(super) fn with_directives(mut self, found: Directives) -> Self {
        self.asking = (found.words.clone(), found.umask);
        self.parsed = self.parsed.with_directives(found);
        self
    }

    /// Tells what the parser found worth telling.
    pub(super) async fn tell_notes(&self, context: &Context<'_>) {
        for note in &self.parsed.notes {
            context.say(note).await;
        }
    }

    /// The directory in which it starts.
    ///
    /// # Errors
    /// See [`directory::of`].
    pub(super) fn directory(&self, context: &Context<'_>) -> Result<PathBuf, Refusal> {
        directory::of(&context.request.cwd, self.parsed.value("chdir"))
    }

    /// Holds it against the bounds of the policy. `tasks` is how many tasks it has, where that is known in
    /// another way than by its options. A step takes nothing that its job does not have.
    ///
    /// # Errors
    /// It is too large, or nobody can tell how large it is; or the shim ends.
    pub(super) async fn judge(
        self,
        context: &mut Context<'_>,
        cwd: PathBuf,
        tasks: u32,
    ) -> Result<Submission<Judged>, Stop> {
        let session = Rc::clone(&context.session);
        let (bounds, size) = match self.target.job() {
            Some(job) => {
                context.entry.jobs.push(job);
                let judged = bounds::step(&session, &self.parsed, job);
                patiently(context.conn, judged).await??;
                (Vec::new(), None)
            }
            None => {
                let judged = bounds::submission(&session, &self.parsed, tasks);
                patiently(context.conn, judged).await??
            }
        };
        tracing::debug!(target: "slurm", bounds = bounds.len(), "submission judged: within the bounds");
        let (words, variables) = self.rewritten(context.request.command);
        Ok(self.next(|Typed| Judged {
            cwd: cwd.into_os_string(),
            words,
            variables,
            bounds,
            size,
        }))
    }

    /// The user's options as the real command gets them: words, and variables beside those of the job.
    fn rewritten(&self, command: Command) -> (Vec<OsString>, Variables) {
        // In a job the variable that holds the job's name names no step: srun's name is always the chaperon's word.
        let passes = |long: &str| command != Command::Srun || long != "job-name";
        let given = self.parsed.given.iter();
        let given: Vec<_> = given
            .filter(|given| passes(given.option.long))
            .cloned()
            .collect();
        let written = written(command, &given);
        let mut variables = self.target.variables().clone();
        for (name, value) in written
            .variables
            .into_iter()
            .chain(self.parsed.kept.clone())
        {
            set(&mut variables, &name, value);
        }
        (written.words, variables)
    }
}

impl Submission<Judged> {
    /// Where it starts, in the jail.
    pub(super) fn cwd(&self) -> &OsString {
        &self.stage.cwd
    }

    /// The capsule around what runs.
    pub(super) fn capsule(
        &self,
        context: &Context<'_>,
        streams: Streams,
        program: Program,
    ) -> Capsule {
        let Judged { cwd, variables, .. } = &self.stage;
        capsule::capsule(context, &self.parsed, variables, cwd, streams, program)
    }

    /// Writes what the real command gets, on these streams.
    pub(super) fn write(
        mut self,
        context: &Context<'_>,
        own: Own,
        [input, output, error]: [Way; 3],
    ) -> Submission<Written> {
        let Judged {
            words,
            variables,
            bounds,
            size,
            ..
        } = &mut self.stage;
        let size = size.take();
        let mut words = std::mem::take(words);
        words.extend(own.before);
        words.append(bounds);
        words.extend(own.behind);
        let mut variables = std::mem::take(variables);
        variables.extend(own.variables);
        let (found, umask) = std::mem::take(&mut self.asking);
        let messages =
            Messages::new(context, &self.parsed, &words).with_script(&self.parsed, found, umask);
        words.extend(own.last);
        let start = Start {
            command: context.request.command,
            arguments: words,
            environment: variables,
            umask: context.request.umask,
            input,
            output,
            error,
            kept: own.kept,
            changes: true,
        };
        self.next(|_| Written {
            start,
            messages,
            size,
            script: own.script,
            line: own.line,
        })
    }
}

impl Submission<Written> {
    /// Waits for room in the queue, if a limit of jobs holds, and writes down what is about to be submitted.
    ///
    /// # Errors
    /// There are too many jobs, or it cannot be written; or the shim ends.
    pub(super) async fn record(
        self,
        context: &mut Context<'_>,
        record: &Record,
    ) -> Result<Submission<Recorded>, Stop> {
        let session = Rc::clone(&context.session);
        let test = self.parsed.has("test-only");
        let batch = self.stage.start.command == Command::Sbatch;
        let size = self.stage.size;
        let (mut intent, mut reservation, mut hold) = (None, None, None);
        let mut entry = None;
        if self.target.job().is_none() && !test {
            if let Some(size) = &size {
                patiently(context.conn, hours::check(&session, size)).await??;
                approval::wait(context, size, || self.title(record)).await?;
            }
            reservation = rates::wait(context).await?;
            entry = Some(hours::draft(&session, size.as_ref())?);
        }
        let record = records::draft(&Record {
            hours: entry.clone(),
            ..record.clone()
        })?;
        // A step makes no job, and a test neither; sbatch says of a test, too, that there is no room.
        if self.target.job().is_none() && (batch || !test) {
            let entered = queue::enter(&session, &self.parsed, &record, batch);
            intent = Some(patiently(context.conn, entered).await??);
        }
        if let (Some(entry), Some(intent)) = (entry, &intent) {
            let held = hours::hold(&session, entry, intent);
            hold = Some(patiently(context.conn, held).await??);
        }
        tracing::debug!(target: "slurm", intent = intent.is_some(), test, "submission recorded");
        if test {
            intent = None;
            patiently(context.conn, session.limiter.turn()).await?;
        }
        Ok(self.next(
            |Written {
                 start, messages, ..
             }| Recorded {
                start,
                messages,
                record,
                intent,
                reservation,
                hold,
            },
        ))
    }
}

impl Submission<Written> {
    /// What the user is told of it whose approval it needs.
    fn title(&self, record: &Record) -> Title {
        let words = |words: &[u8]| String::from_utf8_lossy(words).into_owned();
        let operands = self.parsed.operands.iter();
        let operands: Vec<&[u8]> = operands.map(|word| word.as_bytes()).collect();
        let wrapped = self.parsed.value("wrap");
        let (runs, otherwise) = match self.stage.start.command {
            Command::Sbatch => match wrapped {
                Some(line) => (words(line.as_bytes()), b"wrap".to_vec()),
                // Slurm's word for a script that has no file.
                None if record.command.0 == records::NO_SCRIPT.as_bytes() => {
                    ("its standard input".to_owned(), b"sbatch".to_vec())
                }
                None => (words(&self.stage.line), base_name(&record.command.0)),
            },
            _ => {
                let line = operands.join(&b' ');
                (words(&line), base_name(&line))
            }
        };
        let name = self.parsed.value("job-name");
        Title {
            name: name.map_or_else(|| words(&otherwise), |name| words(name.as_bytes())),
            runs,
            script: self.stage.script.clone(),
        }
    }
}

/// The last part of the first word's path.
fn base_name(command: &[u8]) -> Vec<u8> {
    let word = command
        .split(|&byte| byte == b' ')
        .next()
        .unwrap_or_default();
    word.rsplit(|&byte| byte == b'/')
        .next()
        .unwrap_or_default()
        .to_vec()
}

impl Submission<Recorded> {
    /// Has the real command read this.
    pub(super) fn reading(mut self, input: Way) -> Self {
        self.stage.start.input = input;
        self
    }

    /// Starts the real command.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(self, session: &Rc<Session>) -> Result<Started, Refusal> {
        let Recorded {
            start,
            messages,
            record,
            intent,
            reservation,
            hold,
        } = self.stage;
        let batch = start.command == Command::Sbatch;
        let file = intent.as_ref().map(Intent::file);
        let mut running = spawn::start_with(session, start, file)?;
        if let Some(reservation) = reservation {
            reservation.started();
        }
        if let Some(hold) = hold {
            hold.started();
        }
        // It may be ended before it says the id of a job that Slurm has.
        let number = intent
            .map(|intent| submitted::begun(session, running.pid, batch, record.clone(), intent));
        Ok(Started {
            parsed: self.parsed,
            speaker: Speaker::new(running.error.take(), messages),
            running,
            job: Job {
                session: Rc::clone(session),
                number,
                record,
            },
        })
    }
}

/// A submission whose real command runs.
pub(super) struct Started {
    pub(super) parsed: Parsed,
    pub(super) running: Running,
    pub(super) speaker: Speaker,
    pub(super) job: Job,
}

/// The job that comes of it, if one does.
pub(super) struct Job {
    session: Rc<Session>,
    /// Among the commands that may get one; none for a step and a test.
    number: Option<u64>,
    record: Vec<u8>,
}

impl Job {
    /// Whether there may be one.
    pub(super) fn may_come(&self) -> bool {
        self.number.is_some()
    }

    /// The command said the job's id: it gets its record.
    ///
    /// # Errors
    /// It cannot be recorded, and is taken back.
    pub(super) async fn is(&self, job: u32) -> Result<(), Refusal> {
        let session = &self.session;
        tracing::info!(target: "slurm", job, "Slurm has the job");
        // The command may go on for long.
        session.query_cache.change();
        if let Some(number) = self.number {
            submitted::said(session, number, job);
        }
        if let Err(refusal) = records::record(session, job, &self.record).await {
            return Err(submitted::take_back(session, job, refusal).await);
        }
        if let Some(number) = self.number {
            submitted::recorded(session, number);
        }
        Ok(())
    }

    /// The command is over. Its job is looked for, if it is not known, while the caller goes on.
    pub(super) fn over(&self, end: &End) {
        if let Some(number) = self.number {
            submitted::over(&self.session, number, end);
        }
    }

    /// The same, but what can be found out at once is waited for.
    ///
    /// # Errors
    /// Slurm cannot be asked, or the job cannot be recorded.
    pub(super) async fn over_and_recorded(&self, end: &End) -> Result<(), Refusal> {
        match self.number {
            Some(number) => submitted::over_and_recorded(&self.session, number, end).await,
            None => Ok(()),
        }
    }
}
