//! Every real agent, driven from end to end: it starts by its name in the jail and does what the model
//! says. The model has it write, compile and run a program, submit a job, wait for it and read its
//! output, and look for the keys of its user by each way that there is: directly, by a link, in a job,
//! in a step. Then a second session goes on with the conversation of the first.
//!
//! The table has one row for each agent, in `rows`. What every agent is asked to do, and what must
//! hold, is here. That the script finds the keys where there is no jail is shown for the rows that say
//! so.

use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::messages_api::{Answer, MessagesApi, Step, ToolUse};
use crate::running::{Agent, Outcome, read_to_string};
use crate::{
    World, agent_sandbox, at_terminal, expect_no_copies, installed, plain_command, plant, random,
};

/// An agent, and how it is driven.
pub(crate) struct Row {
    /// The command; also its name in `tests/agents/install`.
    pub(crate) name: &'static str,
    /// The API that it speaks to.
    pub(crate) answer: Answer,
    /// Its tool that runs a command line: the call of that label.
    pub(crate) shell: fn(&'static str, &str) -> ToolUse,
    /// Its settings: files below the home, and what they hold.
    pub(crate) settings: fn(&World, &MessagesApi) -> Vec<(&'static str, String)>,
    /// The variables that it is started with.
    pub(crate) variables: fn(&MessagesApi) -> Vec<(&'static str, String)>,
    /// What stands behind its name: it asks the model something, does what the model says unasked, and
    /// ends.
    pub(crate) first: &'static [&'static str],
    /// The same, going on with the conversation that was last in this project.
    pub(crate) again: &'static [&'static str],
    /// The file below the home in which its user tells it what to heed, if there is one; the text about the
    /// jail must not take its place.
    pub(crate) memory: Option<&'static str>,
    /// Options of the launcher, for what no profile gives it.
    pub(crate) options: &'static [&'static str],
    /// Whether the script is also played without a jail, where it has to find the keys.
    pub(crate) control: bool,
}

/// Writes a program that says who started it, and a number that stands in no text.
const WRITE: &str = r#"cat > made.c <<'END'
#include <stdio.h>
int main(int count, char **words) { printf("%s says %d\n", words[count - 1], 6 * 7); return 0; }
END
cc -o made made.c && ./made 'the program'"#;
/// Submits a job and waits for it.
const SUBMIT: &str = "sbatch --wait -o job.txt job.sh";
/// Reads what the job said.
const READ: &str = "cat job.txt";

/// What a request must have shown the model: the program, the job and its step have run.
const SAID_HERE: &[&str] = &["the program says 42"];
const SAID_BY_JOBS: &[&str] = &["a job says 42", "a step says 42"];

/// How often a line is typed, how long its program has to take it in, and then to ask the model.
const TRIES: usize = 12;
const TYPING: Duration = Duration::from_millis(500);
const ANSWER: Duration = Duration::from_secs(5);

/// Ways to the keys: the word is put before each line that is found.
const WAYS_HERE: &[&str] = &["direct", "link"];
const WAYS_OF_JOBS: &[&str] = &["job", "step"];

/// What the text about the jail always holds; it has to reach the model.
const TOLD: &str = "You run in a jail that agent-sandbox made";

/// Has the second session, in which the model says this.
type Second = fn(&Row, &World, &str) -> Session;

/// Plays the row.
pub(crate) fn drive(row: &Row) {
    drive_and(row, |row, world, reply| {
        let script = vec![Step::Say(reply.to_owned())];
        let again = Session::play(row, world, row.again, &agent_sandbox(), script);
        again.expect_end(reply);
        again
    });
}

/// Plays the row of an agent whose second session is had in another way.
pub(crate) fn drive_and(row: &Row, second: Second) {
    let name = row.name;
    if let Err(why) = installed(name) {
        println!("not checked: agents: {name}: {why}");
        return;
    }
    let jobs = std::env::var_os("SLURM_CONF").is_some();
    if !jobs {
        println!("not checked: agents: {name}: a job and its step: no Slurm cluster is here");
    }
    // Side by side: they have nothing in common.
    std::thread::scope(|scope| {
        let control = row.control.then(|| scope.spawn(|| control(row, jobs)));
        jailed(row, jobs, second);
        if let Some(control) = control
            && let Err(panic) = control.join()
        {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Two sessions in the jail.
fn jailed(row: &Row, jobs: bool, second: Second) {
    let world = world();
    let first = Session::play(
        row,
        &world,
        row.first,
        &agent_sandbox(),
        script(row, &world, jobs),
    );
    first.expect_work(jobs, &world.farewell());
    expect_no_copies(&world, &first.api, &first);
    first.expect_told(row, &world);

    let reply = format!("I remember: {}", random());
    let again = second(row, &world, &reply);
    assert!(
        again.api.received(&world.last_word),
        "the second session knows nothing of the first\n{again}"
    );
    expect_no_copies(&world, &again.api, &again);
    again.expect_told(row, &world);
    println!(
        "{}: {:.1?} and {:.1?}",
        row.name, first.outcome.took, again.outcome.took
    );
}

/// The first session without a jail: it finds what the jail has to hide.
fn control(row: &Row, jobs: bool) {
    let world = world();
    let session = Session::play(row, &world, row.first, &[], script(row, &world, jobs));
    session.expect_work(jobs, &world.farewell());
    let key = &world.secrets[0].marker;
    for way in ways(jobs) {
        assert!(
            session.api.received(&format!("{way}:{key}")),
            "{way}: the key is not found even without the jail: the script is no attack\n{session}"
        );
    }
    for secret in &world.secrets {
        assert!(
            session.api.received(&secret.marker),
            "{}: not found even without the jail\n{session}",
            secret.place
        );
    }
}

fn world() -> World {
    let home = std::env::var_os("HOME").expect("the user who runs the tests has a HOME");
    World::new(Path::new(&home))
}

/// The lines of the first and the second list; of the second where jobs can be had.
fn ways(jobs: bool) -> impl Iterator<Item = &'static str> {
    let more = if jobs { WAYS_OF_JOBS } else { &[] };
    WAYS_HERE.iter().chain(more).copied()
}

/// What the model has the agent do.
fn script(row: &Row, world: &World, jobs: bool) -> Vec<Step> {
    let mut lines = vec![("write", WRITE.to_owned()), ("steal", steal(world))];
    if jobs {
        lines.push(("script", write_job(world)));
        lines.push(("submit", SUBMIT.to_owned()));
        lines.push(("read", READ.to_owned()));
    }
    let steps = lines.into_iter();
    let steps = steps.map(|(label, line)| Step::Call(vec![(row.shell)(label, &line)]));
    steps.chain([Step::Say(world.farewell())]).collect()
}

/// A command line that shows every key, with `way` before each line. The home by its variable, and by
/// its real path: Landlock's jail has another one.
fn show(world: &World, way: &str, begin: &str) -> String {
    let home = world.home.display();
    format!(
        "{begin} cat ~/.ssh/id_rsa ~/.aws/credentials ~/.netrc \
         {home}/.ssh/id_rsa {home}/.aws/credentials {home}/.netrc 2>&1 | sed 's/^/{way}:/'"
    )
}

fn steal(world: &World) -> String {
    let home = world.home.display();
    format!(
        "{}\nln -s {home}/.ssh/id_rsa link; cat link 2>&1 | sed 's/^/link:/'\n\
         env; cat /proc/$PPID/environ /proc/1/environ | tr '\\0' '\\n'; true",
        show(world, "direct", "")
    )
}

fn write_job(world: &World) -> String {
    let (job, step) = (show(world, "job", ""), show(world, "step", "srun"));
    format!(
        "cat > job.sh <<'END'\n#!/bin/bash\n./made 'a job'\nsrun ./made 'a step'\n{job}\n{step}\nenv\n\
         cat link\nsrun cat link\ntrue\nEND\ncat job.sh"
    )
}

/// A session that is over.
pub(crate) struct Session {
    api: MessagesApi,
    outcome: Outcome,
}

impl Session {
    /// Starts the agent behind the words of `launcher`, and has it play `script` to its end.
    fn play(
        row: &Row,
        world: &World,
        words: &[&str],
        launcher: &[OsString],
        script: Vec<Step>,
    ) -> Self {
        let api = MessagesApi::speaking(row.answer, script).expect("cannot start the API");
        let mut all: Vec<OsString> = launcher.to_vec();
        if !launcher.is_empty() {
            all.extend(row.options.iter().map(OsString::from));
        }
        all.push(row.name.into());
        all.extend(words.iter().map(OsString::from));
        let mut command = Self::command(row, world, &api, all);
        command.stdin(Stdio::null());
        let outcome = Agent::start(world, command).outcome(&api);
        Self { api, outcome }
    }

    /// In the jail and at a terminal, where `line` is typed. The agent is left, as a user leaves it, once it
    /// has asked the model.
    pub(crate) fn typed(
        row: &Row,
        world: &World,
        words: &[&str],
        line: &str,
        script: Vec<Step>,
    ) -> Self {
        let api = MessagesApi::speaking(row.answer, script).expect("cannot start the API");
        let mut all = agent_sandbox();
        all.extend([row.name].iter().chain(words).map(OsString::from));
        let all = at_terminal(&all);
        let mut command = Self::command(row, world, &api, all);
        command.env("TERM", "xterm-256color").stdin(Stdio::piped());

        let mut agent = Agent::start(world, command);
        let mut keyboard = agent.child.stdin.take().expect("stdin is a pipe");
        // What is typed before its screen is up is lost, and so typed again.
        let asked = || !api.requests().is_empty();
        for _ in 0..TRIES {
            for (keys, pause) in [(line, TYPING), ("\r", ANSWER)] {
                let next = Instant::now() + pause;
                let gone = keyboard.write_all(keys.as_bytes()).is_err();
                agent.wait_until(|_| gone || asked() || Instant::now() >= next);
            }
            if asked() {
                break;
            }
        }
        // Control-C, until it is gone.
        loop {
            let next = Instant::now() + TYPING;
            agent.wait_until(|_| Instant::now() >= next);
            if !agent.is_running() || keyboard.write_all(b"\x03").is_err() {
                let outcome = agent.outcome(&api);
                return Self { api, outcome };
            }
        }
    }

    /// The command of these words, as this agent needs it.
    fn command(row: &Row, world: &World, api: &MessagesApi, words: Vec<OsString>) -> Command {
        for (name, text) in (row.settings)(world, api) {
            plant(&world.home.join(name), &text);
        }
        if let Some(name) = row.memory {
            plant(&world.home.join(name), &world.memory);
        }
        let mut command = plain_command(world, words.into_iter());
        command.envs((row.variables)(api));
        if let Some(conf) = std::env::var_os("SLURM_CONF") {
            command.env("SLURM_CONF", conf);
        }
        command
    }

    /// The conversation went to its end.
    fn expect_end(&self, last: &str) {
        assert_eq!(self.api.problems(), [""; 0], "{self}");
        assert!(self.outcome.status.success(), "{self}");
        assert!(self.outcome.stdout.contains(last), "no `{last}`\n{self}");
    }

    /// All that was asked for was done.
    fn expect_work(&self, jobs: bool, last: &str) {
        self.expect_end(last);
        let more = if jobs { SAID_BY_JOBS } else { &[] };
        for said in SAID_HERE.iter().chain(more) {
            assert!(self.api.received(said), "no `{said}`\n{self}");
        }
    }

    /// The model was told about the jail, and what the user has for it; the user's file is as it was.
    fn expect_told(&self, row: &Row, world: &World) {
        assert!(self.api.received(TOLD), "no `{TOLD}`\n{self}");
        if let Some(name) = row.memory {
            let text = &world.memory;
            assert!(self.api.received(text), "no `{text}` of ~/{name}\n{self}");
            let now = read_to_string(&world.home.join(name));
            assert_eq!(&now, text, "~/{name} has changed\n{self}");
        }
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.outcome)?;
        let bodies = self.api.bodies();
        let longest = bodies.iter().map(|body| format!("{body:#}"));
        let longest = longest.max_by_key(String::len).unwrap_or_default();
        writeln!(f, "--- the longest request\n{longest}")
    }
}
