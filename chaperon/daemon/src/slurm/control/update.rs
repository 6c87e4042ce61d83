//! `scontrol update`: of jobs, the keys that open nothing.

mod bounded;

use std::ffi::OsStr;
use std::fmt;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::answers::reply;
use crate::slurm::ask::{Stop, act_now, attended};
use crate::slurm::bounds::{self, StandingJob, unknown_options};
use crate::slurm::hours;
use crate::slurm::ids;
use crate::slurm::keywords::{KeywordRequest, means};
use crate::slurm::parse::{Duration, duration, is_dependency, is_mail};
use crate::slurm::queue;
use crate::slurm::request::Context;
use crate::slurm::scope;

/// What a value must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Printable text.
    Text,
    /// Letters, digits and `_-.,:;+@%*=[]()|&^#!~?`, without slashes.
    Word,
    /// Node names; with a slash it would be a file.
    Nodes,
    /// Addresses for mail: the site's mail program gets them as an argument.
    Mail,
    /// What the job waits for; nothing: it waits no more.
    Dependency,
    /// A number, with a sign.
    Number,
    /// A number that makes a job larger.
    Size,
    /// A duration that the bounds allow.
    Limit,
    /// A duration.
    Time,
    /// How many nodes, `N` or `N-M`.
    Count,
    /// `0`, `1`, `yes`, `no` and the like.
    Refused(&'static str),
}

const PATHS: &str = "slurmstepd would open it outside the jail; submit the job again";
/// How much the job then is, and of what, only Slurm would know.
const SIZES: &str = "how much the job then has, is not counted here; submit the job again";
const OTHERS: &str = "it is for administrators; put it into Comment";

/// The keys, as Slurm writes them, the fewest letters that mean each, and the value
/// (`update_job.c`), in Slurm's order of comparison.
const KEYS: [(&str, usize, Kind); 64] = [
    ("AdminComment", 3, Kind::Refused(OTHERS)),
    ("ArrayTaskThrottle", 10, Kind::Number),
    ("Comment", 3, Kind::Text),
    (
        "Clusters",
        8,
        Kind::Refused("jobs stay on this cluster; leave it out"),
    ),
    (
        "ClusterFeatures",
        8,
        Kind::Refused("jobs stay on this cluster; leave it out"),
    ),
    ("DelayBoot", 5, Kind::Time),
    ("TimeLimit", 5, Kind::Limit),
    ("TimeMin", 5, Kind::Limit),
    ("Priority", 2, Kind::Number),
    ("Nice", 2, Kind::Number),
    ("CPUsPerTask", 9, Kind::Size),
    ("CpusPerTres", 9, Kind::Refused(SIZES)),
    ("NumCPUs", 6, Kind::Count),
    ("NumTasks", 8, Kind::Size),
    ("ReqProcs", 8, Kind::Size),
    ("Requeue", 4, Kind::Number),
    ("ReqNodes", 8, Kind::Count),
    ("NumNodes", 8, Kind::Count),
    ("ReqSockets", 4, Kind::Size),
    ("ReqCores", 4, Kind::Size),
    ("TasksPerNode", 2, Kind::Size),
    ("ReqThreads", 4, Kind::Size),
    ("MinCPUsNode", 4, Kind::Size),
    ("MinMemoryNode", 10, Kind::Word),
    ("MinMemoryCPU", 10, Kind::Word),
    ("MinTmpDiskNode", 4, Kind::Word),
    ("Partition", 2, Kind::Word),
    ("QOS", 2, Kind::Word),
    ("ReservationName", 3, Kind::Word),
    ("Name", 2, Kind::Text),
    ("JobName", 4, Kind::Text),
    ("WCKey", 1, Kind::Word),
    ("StdOut", 6, Kind::Refused(PATHS)),
    ("StdErr", 6, Kind::Refused(PATHS)),
    ("StdIn", 5, Kind::Refused(PATHS)),
    ("Switches", 5, Kind::Word),
    ("wait-for-switch", 5, Kind::Number),
    ("OverSubscribe", 2, Kind::Word),
    ("Shared", 2, Kind::Word),
    ("Contiguous", 3, Kind::Number),
    ("CoreSpec", 4, Kind::Number),
    ("MemPerTres", 5, Kind::Refused(SIZES)),
    ("ThreadSpec", 4, Kind::Number),
    ("TresBind", 5, Kind::Refused(SIZES)),
    ("TresFreq", 5, Kind::Refused(SIZES)),
    ("TresPerJob", 8, Kind::Refused(SIZES)),
    ("TresPerNode", 8, Kind::Refused(SIZES)),
    ("TresPerSocket", 8, Kind::Refused(SIZES)),
    ("TresPerTask", 8, Kind::Refused(SIZES)),
    ("ExcNodeList", 3, Kind::Nodes),
    ("NodeList", 8, Kind::Nodes),
    ("ReqNodeList", 8, Kind::Nodes),
    ("Features", 1, Kind::Word),
    ("Prefer", 3, Kind::Word),
    ("Gres", 2, Kind::Refused(SIZES)),
    ("Account", 1, Kind::Word),
    (
        "BurstBuffer",
        1,
        Kind::Refused(
            "it moves files outside the jail; copy them at the start of the job's script",
        ),
    ),
    ("Dependency", 1, Kind::Dependency),
    ("Licenses", 1, Kind::Word),
    ("EligibleTime", 2, Kind::Word),
    ("StartTime", 2, Kind::Word),
    ("Deadline", 3, Kind::Word),
    ("MailType", 5, Kind::Word),
    ("MailUser", 5, Kind::Mail),
];

/// A change of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    /// The key, as Slurm writes it.
    name: &'static str,
    kind: Kind,
    /// `+` or `-` before the `=`.
    sign: &'static str,
    value: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}={}", self.name, self.sign, self.value)
    }
}

/// Carries it out.
pub(in crate::slurm) async fn run(
    context: &mut Context<'_>,
    asked: KeywordRequest,
) -> Result<End, Stop> {
    let (jobs, changes) = read(&asked.words)?;
    let session = context.session.clone();
    queue::check_few(&session, jobs.len())?;
    attended(context.conn, scope::check_change(&session, &jobs)).await?;
    context.entry.jobs.extend(jobs.iter().map(|job| job.job));
    let list: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let mut arguments = asked.options;
    arguments.extend(["update".into(), format!("JobId={}", list.join(",")).into()]);
    arguments.extend(changes.iter().map(|change| change.to_string().into()));
    let own = session.clone();
    let judged = async move {
        judge(&own, &jobs, &changes).await?;
        count(&own, &jobs, &changes).await
    };
    let own = session.clone();
    let work = async move { act_now(&own, Command::Scontrol, arguments, Vec::new()).await };
    let work = queue::one_at_a_time(&session, judged, work);
    let said = attended(context.conn, work).await?;
    reply(context.conn, &said.output, &said.error, said.end).await
}

/// Holds the jobs, as they would be, against the bounds.
async fn judge(
    session: &Rc<Session>,
    jobs: &[ids::Selector],
    changes: &[Change],
) -> Result<(), Refusal> {
    let bounds = &session.order.bounds;
    if bounds.are_none() {
        return Ok(());
    }
    bounds::first(unknown_options(bounds).into_iter().collect())?;
    for job in jobs {
        for standing in StandingJob::all(session, &job.to_string()).await? {
            let from = standing.place.clone();
            let mut changed = bounded::changed(standing, changes);
            changed.count(session).await?;
            bounded::moves(bounds, &from, &changed.place)?;
            bounded::allowed(bounds, &changed, changes)?;
        }
    }
    Ok(())
}

/// Counts the hours that jobs take then, where they are counted.
async fn count(
    session: &Rc<Session>,
    jobs: &[ids::Selector],
    changes: &[Change],
) -> Result<(), Refusal> {
    let Some((key, source)) = session.order.budgets.reason() else {
        return Ok(());
    };
    for change in changes {
        match bounded::growth(change) {
            Growth::No => {}
            Growth::Unknown => return Err(bounded::refused(change.name, key, Some(source))),
            Growth::Nodes(nodes) => {
                for job in jobs {
                    if nodes > hours::nodes(session, job.job).await? {
                        return Err(bounded::refused(change.name, key, Some(source)));
                    }
                }
            }
            Growth::Minutes(minutes) => {
                for job in jobs {
                    hours::lengthen(session, job.job, minutes).await?;
                }
            }
        }
    }
    Ok(())
}

/// What a change makes of the hours of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// No more of them.
    No,
    /// It has so many nodes.
    Nodes(u64),
    /// It runs for so many minutes.
    Minutes(u64),
    /// Slurm alone would know.
    Unknown,
}

/// The jobs and the changes.
fn read(words: &[String]) -> Result<(Vec<ids::Selector>, Vec<Change>), Refusal> {
    let mut jobs = Vec::new();
    let mut changes = Vec::new();
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| {
            Refusal::mistake(format!(
                "Invalid update specification: {}",
                word.escape_debug()
            ))
        })?;
        if means(key, "JobId", 3) || key.eq_ignore_ascii_case("job") {
            jobs = ids::parse_list(OsStr::new(value))?;
            continue;
        }
        changes.push(change(key, value)?);
    }
    if jobs.is_empty() {
        return Err(Refusal::rule(
            "scontrol update is refused for anything but jobs named by JobId=NUMBER",
            "squeue --me shows the numbers; nodes, partitions and reservations are the administrators'",
        ));
    }
    if changes.is_empty() {
        return Err(Refusal::mistake("No changes specified"));
    }
    Ok((jobs, changes))
}

fn change(key: &str, value: &str) -> Result<Change, Refusal> {
    // `TimeLimit+=5`
    let (key, sign) = match (key.strip_suffix('+'), key.strip_suffix('-')) {
        (Some(bare), _) => (bare, "+"),
        (_, Some(bare)) => (bare, "-"),
        _ => (key, ""),
    };
    let known = KEYS
        .iter()
        .find(|(name, least, _)| means(key, name, *least));
    let Some(&(name, _, kind)) = known else {
        return Err(Refusal::rule(
            format!(
                "scontrol update of `{}` is refused: it is not known to be harmless",
                key.escape_debug()
            ),
            "submit the job again with what it needs",
        ));
    };
    let wrong = |expected: &str| {
        Refusal::mistake(format!(
            "invalid value `{}` for {name}: it takes {expected}",
            value.escape_debug()
        ))
    };
    if !sign.is_empty() && !matches!(kind, Kind::Limit) {
        return Err(wrong("no sign before the `=`"));
    }
    let among = |extra: &[u8]| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || extra.contains(&byte);
        value.bytes().all(good)
    };
    let expected = match kind {
        Kind::Refused(reason) => {
            return Err(Refusal::listed(
                format_args!("scontrol update of {name}"),
                reason,
            ));
        }
        Kind::Text => {
            let text = !value.chars().any(char::is_control);
            (!text).then_some("text without control characters")
        }
        Kind::Word => (!among(b"_-.,:;+@%*=[]()|&^#!~?"))
            .then_some("one word without blanks, quotes or slashes"),
        Kind::Nodes => (!among(b"_-.,[]")).then_some("names of nodes"),
        Kind::Mail => {
            (!is_mail(value.as_bytes())).then_some("addresses of letters, digits and ._+@-")
        }
        Kind::Dependency => (!value.is_empty() && !is_dependency(value))
            .then_some("a dependency, as sbatch does, without expand"),
        Kind::Number | Kind::Size => (!is_number(value)).then_some("a whole number"),
        Kind::Time | Kind::Limit => relative(sign, value)
            .1
            .is_none()
            .then_some("a time, as in minutes or h:m:s"),
        Kind::Count => counts(value).is_none().then_some("a number or a range"),
    };
    match expected {
        Some(expected) => Err(wrong(expected)),
        None => Ok(Change {
            name,
            kind,
            sign,
            value: value.to_owned(),
        }),
    }
}

fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    let word = ["yes", "no"]
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word));
    let number = !digits.is_empty() && digits.len() <= 12;
    word || number && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The numbers of `N` or `N-M`.
fn counts(value: &str) -> Option<Vec<u64>> {
    let numbers = value.split('-').map(|number| {
        // Behind a dash 0 means that there is no limit.
        let number = number.parse::<u32>().ok().filter(|number| *number > 0)?;
        Some(u64::from(number))
    });
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    (numbers.len() <= 2).then_some(numbers)
}

/// Whether a time is added to what the job has, or taken from it; and the time.
fn relative(sign: &str, value: &str) -> (bool, Option<Duration>) {
    let plain = value.strip_prefix(['+', '-']);
    let relative = plain.is_some() && value != "-1" || !sign.is_empty();
    let text = if relative {
        plain.unwrap_or(value)
    } else {
        value
    };
    (relative, duration(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(words: &[&str]) -> Result<String, Refusal> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (jobs, changes) = read(&words)?;
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        Ok(format!("{} {}", jobs[0], changes.join(" ")))
    }

    #[test]
    fn what_is_refused_names_the_way_out() {
        for (name, _, kind) in KEYS {
            if let Kind::Refused(reason) = kind {
                assert!(crate::refusal::has_both(reason), "{name}: {reason}");
            }
        }
    }

    #[test]
    fn keys_are_written_anew() {
        let written = |words: &[&str]| written(words).unwrap();
        assert_eq!(written(&["jobid=5", "timel=10"]), "5 TimeLimit=10");
        assert_eq!(
            written(&["JobId=5_2", "comment=a b=c"]),
            "5_2 Comment=a b=c"
        );
        assert_eq!(written(&["name=x", "job=5"]), "5 Name=x");
        assert_eq!(
            written(&["JobId=5", "TimeLimit+=10", "nice=-5"]),
            "5 TimeLimit+=10 Nice=-5"
        );
        assert_eq!(written(&["JobId=5", "TimeLimit=-5"]), "5 TimeLimit=-5");
        assert_eq!(
            written(&["JobId=5", "Dependency=", "MailUser=a@b.c"]),
            "5 Dependency= MailUser=a@b.c"
        );
        assert_eq!(
            written(&["JobId=5", "depend=afterok:7"]),
            "5 Dependency=afterok:7"
        );
    }

    #[test]
    fn what_opens_something_is_refused() {
        for words in [
            &["JobId=5", "StdOut=/x"][..],
            &["JobId=5", "stdin=/x"],
            &["JobId=5", "WorkDir=/x"],
            &["JobId=5", "UserID=0"],
            &["JobId=5", "BurstBuffer=x"],
            &["JobId=5", "Nonsense=1"],
            &["JobId=5", "NodeList=/etc/passwd"],
            &["JobId=5", "MailUser=-X!/tmp/x"],
            &["JobId=5", "MailUser=a,-X"],
            &["JobId=5", "Dependency=expand:7"],
            &["JobId=5", "Dependency=afterok:7,expand:8"],
            &["JobId=5", "Comment=a\nb"],
            &["JobId=5", "Reboot=1"],
            &["JobId=5", "EndTime=now"],
            &["NodeName=n", "State=down"],
            &["JobName=x", "TimeLimit=5"],
            &["JobId=5"],
            &["JobId=5", "x"],
            &["JobId=x", "Nice=1"],
            &[],
        ] {
            assert!(written(words).is_err(), "{words:?}");
        }
    }
}
