//! `scancel(1)`: only ever with the numbers of jobs in the scope.

use std::ffi::{OsStr, OsString};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use crate::audit::Verdict;
use crate::refusal::Refusal;
use crate::slurm::answers::{about, plain, reply};
use crate::slurm::ask::{Stop, act, attended, settle};
use crate::slurm::ids::{self, Selector};
use crate::slurm::messages::{Messages, Speaker};
use crate::slurm::parse::{self, Parsed};
use crate::slurm::request::Context;
use crate::slurm::scope::{self, Membership};
use crate::spawn::{self, Start, Way};

/// Options that pick jobs without numbers.
const FILTERS: [&str; 10] = [
    "account",
    "me",
    "name",
    "nodelist",
    "partition",
    "qos",
    "reservation",
    "state",
    "user",
    "wckey",
];

/// A filter that takes any word: what stands for jobs that nobody has. The one that is given last counts.
const IMPOSSIBLE: &str = "wckey";

/// The first of the numbers that stand for jobs which Slurm does not know. No job has one: its lower
/// 26 bits are above `MaxJobId` (`slurm.conf(5)`), and the upper ones are the number of a cluster that
/// no federation has (`src/common/slurm_protocol_defs.h`, `FED_JOB_CLUSTER_BITS`).
const NOBODY: u32 = 0xffff_0000;

/// How many there are.
const MOST_UNKNOWN: usize = 0xf000;

/// Carries the request out.
///
/// # Errors
/// It is refused, or Slurm cannot be asked.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let parsed = context.parsed().await?;
    if let Some(arguments) = about(&parsed) {
        return plain(context, arguments, Vec::new()).await;
    }
    let session = context.session.clone();
    let mut wanted = Vec::new();
    for operand in &parsed.operands {
        let list = ids::parse_list(operand).map_err(|_| {
            let operand = operand.to_string_lossy();
            Refusal::mistake(format!("Invalid job id {}", operand.escape_debug()))
        })?;
        wanted.extend(list);
    }
    let filtered = FILTERS.iter().any(|name| parsed.has(name));
    if wanted.is_empty() && !filtered {
        return Err(Refusal::mistake("No job identification provided").into());
    }
    let picked = if wanted.is_empty() {
        let mut jobs = attended(context.conn, scope::active(&session)).await?;
        let all = jobs.len();
        jobs.retain(|one| !session.protects(one.job));
        if jobs.len() < all {
            let text = "the allocation in which this session was started is left out (`slurm.allocation` is `steps`)";
            context.say(text).await;
        }
        Picked::by_filter(&parsed, jobs, &session.queries.mark)
    } else {
        let work = scope::memberships(&session, &wanted);
        let memberships = attended(context.conn, work).await?;
        Picked::by_number(wanted, memberships)?
    };
    for (selector, refusal) in &picked.refused {
        let text = format!("error: Kill job error on job id {selector}: {refusal}");
        context.say(&text).await;
        context.entry.verdict = Verdict::Refused;
        context.entry.reason = Some(refusal.reason);
    }
    if picked.words.is_empty() {
        return Ok(End::FAILURE);
    }
    context.entry.jobs.extend(&picked.inside);
    let mut arguments = parse::canonical(&parsed.given);
    arguments.extend(picked.words.iter().cloned());
    let end = if parsed.has("interactive") {
        ask_first(context, &parsed, arguments, &picked).await?
    } else {
        let work = act(&session, Command::Scancel, arguments, parsed.kept.clone());
        let said = attended(context.conn, work).await?;
        let (error, end) = picked.told(&said.error, said.end);
        reply(context.conn, &picked.renamed(&said.output), &error, end).await?
    };
    Ok(if picked.refused.is_empty() {
        end
    } else {
        End::FAILURE
    })
}

/// Runs scancel where it asks about each job, on the shim's own streams.
async fn ask_first(
    context: &mut Context<'_>,
    parsed: &Parsed,
    arguments: Vec<OsString>,
    picked: &Picked,
) -> Result<End, Stop> {
    let session = context.session.clone();
    let turn = async {
        session.limiter.turn().await;
        Ok(())
    };
    attended(context.conn, turn).await?;
    let messages = Messages::new(context, parsed, &arguments).renamed(picked.names());
    let [input, output, _] = context.take_streams()?;
    let mut wish = Start::query(Command::Scancel, arguments);
    wish.environment.clone_from(&parsed.kept);
    wish.input = Way::Passed(input);
    wish.output = Way::Passed(output);
    let mut running = spawn::start(&session, wish)?;
    let mut speaker = Speaker::new(running.error.take(), messages);
    Ok(speaker.attend(&mut running, context.conn).await)
}

/// The jobs that are picked, in scancel's words.
#[derive(Default)]
struct Picked {
    /// Behind the options.
    words: Vec<OsString>,
    /// Jobs of the scope.
    inside: Vec<u32>,
    /// Jobs outside, by a rule.
    refused: Vec<(Selector, Refusal)>,
    /// Jobs that Slurm does not know: what stands for each.
    unknown: Vec<u32>,
    /// Whether filters alone pick them; the numbers are not the user's then.
    filtered: bool,
    /// The value of the filter that stands for no job at all, and the user's own.
    nobody: Option<(String, Option<String>)>,
}

impl Picked {
    fn by_number(wanted: Vec<Selector>, memberships: Vec<Membership>) -> Result<Self, Refusal> {
        let mut all = Self::default();
        let mut words = vec!["--".into()];
        for (selector, membership) in wanted.into_iter().zip(memberships) {
            match membership {
                Membership::Inside => {
                    all.inside.push(selector.job);
                    words.push(OsString::from(selector.to_string()));
                }
                Membership::Outside(refusal) => all.refused.push((selector, refusal)),
                // What Slurm says of a job that is not there, it says of one that cannot be: by the
                // time it looks there may be a job of that number, which is nobody's here.
                Membership::Nowhere => {
                    let known = all.unknown.iter().position(|&job| job == selector.job);
                    let place = known.unwrap_or(all.unknown.len());
                    if place >= MOST_UNKNOWN {
                        return Err(Refusal::mistake("too many jobs that do not exist"));
                    }
                    if known.is_none() {
                        all.unknown.push(selector.job);
                    }
                    let job = stand_in(place);
                    words.push(OsString::from(Selector { job, ..selector }.to_string()));
                }
            }
        }
        if words.len() > 1 {
            all.words = words;
        }
        Ok(all)
    }

    fn by_filter(parsed: &Parsed, jobs: Vec<Selector>, mark: &str) -> Self {
        let mut all = Self {
            filtered: true,
            ..Self::default()
        };
        if jobs.is_empty() {
            // scancel is asked all the same: it says what is wrong with a filter, and with -v that
            // nothing matches.
            let mark: String = mark.chars().filter(char::is_ascii_alphanumeric).collect();
            let value = format!("no-job-{mark}");
            let option = parse::option_word(&format!("--{IMPOSSIBLE}"), OsStr::new(&value));
            all.words.push(option);
            let given = parsed.value(IMPOSSIBLE).map(OsStr::to_string_lossy);
            all.nobody = Some((value, given.map(Into::into)));
        } else {
            all.words.push("--".into());
            all.words
                .extend(jobs.iter().map(|one| OsString::from(one.to_string())));
            all.inside.extend(jobs.iter().map(|one| one.job));
        }
        all
    }

    /// What stands for what in scancel's messages.
    fn names(&self) -> Vec<(String, String)> {
        let stand_ins = (0..).map(|place| stand_in(place).to_string());
        let jobs = self.unknown.iter().map(ToString::to_string);
        let nobody = self.nobody.iter().flat_map(|(value, given)| {
            let (filter, listed) = match given {
                Some(given) => (format!("{IMPOSSIBLE}={given} "), given.clone()),
                None => (String::new(), "(null)".to_owned()),
            };
            [
                (format!("{IMPOSSIBLE}={value} "), filter),
                (value.clone(), listed),
            ]
        });
        stand_ins.zip(jobs).chain(nobody).collect()
    }

    fn renamed(&self, text: &[u8]) -> Vec<u8> {
        let mut text = String::from_utf8_lossy(text).into_owned();
        for (name, instead) in self.names() {
            text = text.replace(&name, &instead);
        }
        text.into_bytes()
    }

    /// What scancel says, and how it ends, in terms of what was asked for.
    fn told(&self, error: &[u8], end: End) -> (Vec<u8>, End) {
        let text = self.renamed(error);
        if !self.filtered {
            return (text, end);
        }
        // A job that ended meanwhile, or that is listed with -vvv, was not named by the user.
        let text = String::from_utf8_lossy(&text);
        let gone = |line: &&str| {
            line.starts_with("scancel: error: Kill job error on job id ")
                && line.ends_with(": Invalid job id specified")
        };
        let listed = |line: &&str| line.starts_with("scancel: job_id[");
        let kept: Vec<&str> = text
            .lines()
            .filter(|line| !gone(line) && !listed(line))
            .collect();
        let ended_before = text.lines().any(|line| gone(&line));
        let fails = kept.iter().any(|line| line.starts_with("scancel: error: "));
        let end = if ended_before && !fails {
            End::SUCCESS
        } else {
            end
        };
        let kept: String = kept.into_iter().map(|line| format!("{line}\n")).collect();
        (kept.into_bytes(), end)
    }
}

/// The number at this place of those that no job has.
fn stand_in(place: usize) -> u32 {
    NOBODY + u32::try_from(place.min(MOST_UNKNOWN)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selectors(list: &str) -> Vec<Selector> {
        ids::parse_list(OsStr::new(list)).unwrap()
    }

    #[test]
    fn a_job_that_is_not_there_is_never_named_to_slurm() {
        let memberships = vec![
            Membership::Inside,
            Membership::Nowhere,
            Membership::Nowhere,
            Membership::Nowhere,
        ];
        let picked = Picked::by_number(selectors("7,8_3,9.2,8"), memberships).unwrap();
        assert_eq!(
            picked.words,
            ["--", "7", "4294901760_3", "4294901761.2", "4294901760"]
        );
        assert_eq!(picked.inside, [7]);
        let said =
            b"scancel: error: Kill job error on job id 4294901760_3: Invalid job id specified\n\
            scancel: Terminating job 7\nscancel: job step id 4294901761.2\n";
        assert_eq!(
            picked.renamed(said),
            b"scancel: error: Kill job error on job id 8_3: Invalid job id specified\n\
            scancel: Terminating job 7\nscancel: job step id 9.2\n"
        );
        // Above what a cluster hands out (MaxJobId), in each of its places.
        const { assert!(NOBODY & 0x03ff_ffff >= 0x03ff_0000) };
        assert!(stand_in(usize::MAX) < 0xffff_fffe);
    }

    #[test]
    fn filters_that_match_nothing_cancel_nothing() {
        for (words, expected) in [
            (&["-n", "x"][..], "job_name=x \n"),
            (&["-n", "x", "--wckey", "y"], "job_name=x wckey=y \n"),
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let parsed = parse::parse(Command::Scancel, None, &words, &[]).unwrap();
            let picked = Picked::by_filter(&parsed, Vec::new(), "\u{1e}ab;c1");
            assert_eq!(picked.words, ["--wckey=no-job-abc1"]);
            let said = b"scancel: error: No active jobs match ALL job filters, including: job_name=x wckey=no-job-abc1 \n";
            let (said, _) = picked.told(said, End::SUCCESS);
            let said = String::from_utf8(said).unwrap();
            assert!(said.ends_with(&format!("including: {expected}")), "{said}");
        }
    }

    #[test]
    fn a_job_that_ended_meanwhile_is_no_failure() {
        let parsed = Parsed::default();
        let picked = Picked::by_filter(&parsed, selectors("5,6"), "m");
        let gone = b"scancel: error: Kill job error on job id 5: Invalid job id specified\n";
        assert_eq!(picked.told(gone, End::FAILURE), (Vec::new(), End::SUCCESS));
        let denied = b"scancel: error: Kill job error on job id 5: Access/permission denied\n";
        assert_eq!(
            picked.told(denied, End::FAILURE),
            (denied.to_vec(), End::FAILURE)
        );
    }
}
