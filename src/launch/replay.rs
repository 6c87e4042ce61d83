//! What the node's tracer told of a run that was watched: its own trail, read back when it is over.

use std::path::Path;
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::protocol::{Request, Response, VERSION, Which};

use super::tracer::TracerState;
use crate::failure::one_line;
use crate::observe::seen::Seen;
use crate::observe::trail::{Reading, Traced};

/// A trail ends when all of its processes have, which the tracer looks after several times a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(100);
/// As long as this it is read in all.
const LONGEST: Duration = Duration::from_secs(60);
/// One answer may take as long as this: of a long trail, on a slow file system.
const ANSWER: Duration = Duration::from_secs(10);
/// And so much of it: a million opens of long names.
const MOST_BYTES: usize = 1 << 30;

/// Reads the trail of a run. `seen` knows the run and has seen nothing of it; `hidden` says of a path which rule
/// hides it.
pub fn read(
    found: &TracerState,
    traced: &Traced,
    seen: Seen,
    hidden: &dyn Fn(&Path) -> Option<String>,
) -> Seen {
    let mut reading = Reading::new(traced, seen, hidden);
    let trouble = match found {
        TracerState::Listens(connection) => read_all(connection, traced, &mut reading).err(),
        TracerState::Unwanted | TracerState::Nothing => {
            Some("the tracer has gone, and the trail could not be read".to_owned())
        }
        TracerState::Unfit(trouble) => Some(format!(
            "the trail could not be read: {}",
            one_line(&trouble.what)
        )),
    };
    reading.finish(trouble)
}

/// Reads the whole trail, once it has ended; else why it is not whole.
fn read_all(
    connection: &Connection,
    traced: &Traced,
    reading: &mut Reading<'_>,
) -> Result<(), String> {
    connection.wait_for(ANSWER).map_err(broken)?;
    let ends = wait_for_the_end(connection, traced).map_err(broken)?;
    let request = Request::Read {
        version: VERSION,
        which: Which::Trace(traced.trace),
        history: true,
        follow: false,
    };
    let (begin, mut bytes) = (Instant::now(), 0);
    let mut answer = connection.ask(&request);
    loop {
        match answer.map_err(broken)? {
            Response::Lines(lines) => {
                bytes += lines.len();
                // What the tracer writes is UTF-8; what is none is no record.
                for line in String::from_utf8_lossy(&lines).lines() {
                    reading.line(line);
                }
            }
            Response::Done if ends => return Ok(()),
            Response::Done => {
                return Err("processes of the run went on, and what they did is not seen".into());
            }
            _ => return Err(broken(Unanswered::Strange)),
        }
        if begin.elapsed() > LONGEST || bytes > MOST_BYTES {
            return Err("the trail was too long to be read to its end".into());
        }
        answer = connection.next();
    }
}

/// Waits for the end of a trail, for a while; whether it has come.
fn wait_for_the_end(connection: &Connection, traced: &Traced) -> Result<bool, Unanswered> {
    let begin = Instant::now();
    loop {
        let Response::Trails(trails) = connection.ask(&Request::List { version: VERSION })? else {
            return Err(Unanswered::Strange);
        };
        let lives = trails.iter().any(|one| {
            one.live && one.trace == traced.trace && one.session.as_deref() == Some(&traced.session)
        });
        if !lives || begin.elapsed() > PATIENCE {
            return Ok(!lives);
        }
        std::thread::sleep(LOOK);
    }
}

fn broken(error: Unanswered) -> String {
    match error {
        Unanswered::Refused { why, .. } => format!("the tracer refuses: {}", one_line(&why)),
        error => format!("the trail could not be read to its end: {error}"),
    }
}
