//! What the node's tracer told of a run that was watched: its own trail, read back when it is over.

use std::path::Path;
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::protocol::Which;
use agent_sandbox_events::record::What;
use agent_sandbox_events::trails::Reader;

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
    let which = Which::Session(traced.session.clone());
    let mut trail = Reader::new(connection, which).map_err(broken)?;
    let (begin, mut bytes, mut ended) = (Instant::now(), 0, false);
    loop {
        let records = trail.follow().map_err(broken)?;
        // The trail of a run ends when all of its processes have.
        if records.is_empty() && (ended || begin.elapsed() > PATIENCE) {
            break;
        }
        if records.is_empty() {
            std::thread::sleep(LOOK);
        }
        for (record, line) in records {
            if record.trail.trace == traced.trace {
                ended |= matches!(record.what, What::End(_));
                bytes += line.len();
                reading.line(&line);
            }
        }
        if begin.elapsed() > LONGEST || bytes > MOST_BYTES {
            return Err("the trail was too long to be read to its end".into());
        }
    }
    match ended {
        true => Ok(()),
        false => Err("processes of the run went on, and what they did is not seen".into()),
    }
}

fn broken(error: Unanswered) -> String {
    match error {
        Unanswered::Refused { why, .. } => format!("the tracer refuses: {}", one_line(&why)),
        error => format!("the trail could not be read to its end: {error}"),
    }
}
