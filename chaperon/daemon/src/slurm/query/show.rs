//! `scontrol show`: of jobs those in the scope, of the cluster what everybody may know.

use std::ffi::OsString;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::Queries;

use crate::refusal::Refusal;
use crate::slurm::answers::{plain, reply};
use crate::slurm::ask::{Stop, attended, look_up};
use crate::slurm::ids::{self, Selector};
use crate::slurm::keywords::{KeywordRequest, means};
use crate::slurm::query::blocks::{self, Block};
use crate::slurm::query::json::filter;
use crate::slurm::query::shown::Who;
use crate::slurm::request::Context;
use crate::slurm::{records, scope};

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Jobs,
    Steps,
    /// Shown as Slurm shows it, with at most so many names.
    Plain,
    /// Likewise, without the names of users.
    Nameless,
    Refused(&'static str),
}

/// The things, the fewest letters that mean each, in the order in which Slurm compares
/// (`scontrol.c`).
const THINGS: [(&str, usize, Thing); 26] = [
    ("aliases", 1, Thing::Plain),
    (
        "bbstat",
        2,
        Thing::Refused("it shows burst buffers of everybody; scontrol show job shows a job's own"),
    ),
    (
        "dwstat",
        2,
        Thing::Refused("it shows burst buffers of everybody; scontrol show job shows a job's own"),
    ),
    (
        "burstbuffer",
        2,
        Thing::Refused("it shows burst buffers of everybody; scontrol show job shows a job's own"),
    ),
    (
        "assoc_mgr",
        2,
        Thing::Refused(
            "it shows what users and accounts may do and used; sacctmgr show assoc and sshare show your own",
        ),
    ),
    (
        "cache",
        2,
        Thing::Refused(
            "it shows what users and accounts may do and used; sacctmgr show assoc and sshare show your own",
        ),
    ),
    ("config", 1, Thing::Plain),
    ("daemons", 1, Thing::Plain),
    (
        "federations",
        1,
        Thing::Refused("queries stay on this cluster; leave it out"),
    ),
    ("frontendname", 1, Thing::Plain),
    ("hostnames", 5, Thing::Plain),
    ("hostlist", 5, Thing::Plain),
    ("hostlistsorted", 9, Thing::Plain),
    ("jobs", 1, Thing::Jobs),
    ("jobid", 1, Thing::Jobs),
    ("licenses", 2, Thing::Plain),
    ("nodes", 1, Thing::Nameless),
    ("partitions", 2, Thing::Nameless),
    ("partitionname", 2, Thing::Nameless),
    ("reservations", 1, Thing::Nameless),
    ("reservationname", 1, Thing::Nameless),
    (
        "slurmd",
        2,
        Thing::Refused(
            "it asks the node's daemon about jobs of everybody; scontrol show node shows the node",
        ),
    ),
    ("steps", 2, Thing::Steps),
    ("topology", 1, Thing::Plain),
    (
        "ping",
        3,
        Thing::Refused("it is another way to say it; use scontrol ping"),
    ),
    (
        "version",
        3,
        Thing::Refused("it is another way to say it; use scontrol version"),
    ),
];

/// Carries it out.
pub(in crate::slurm) async fn run(
    context: &mut Context<'_>,
    asked: KeywordRequest,
) -> Result<End, Stop> {
    let (what, mut names) = match &asked.words[..] {
        [] => return Err(Refusal::mistake("too few arguments for keyword:show").into()),
        [what, rest @ ..] => match what.split_once('=') {
            Some((what, name)) => (what, [&[name.to_owned()], rest].concat()),
            None => (&what[..], rest.to_vec()),
        },
    };
    let known = THINGS
        .iter()
        .find(|(name, least, _)| means(what, name, *least));
    let Some(&(name, _, thing)) = known else {
        return Err(Refusal::mistake(format!(
            "invalid entity:{} for keyword:show",
            what.escape_debug()
        ))
        .into());
    };
    if let Thing::Refused(reason) = thing {
        return Err(Refusal::listed(format_args!("scontrol show {name}"), reason).into());
    }
    if names.len() > 1 {
        let text = format!("too many arguments for keyword:{what}");
        return Err(Refusal::mistake(text).into());
    }
    let mut arguments = asked.options.clone();
    arguments.extend(["show".into(), name.into()]);
    let named = names.pop();
    match thing {
        Thing::Jobs | Thing::Steps => {
            let list = match &named {
                None => Vec::new(),
                Some(list) => ids::parse_list(list.as_ref())?,
            };
            jobs(context, asked, arguments, list, thing == Thing::Steps).await
        }
        _ if asked.parsed.has("json") => {
            Err(Refusal::mistake("--json is for scontrol show job").into())
        }
        _ => {
            if let Some(list) = named {
                let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.,[]:".contains(&byte);
                if !list.bytes().all(good) {
                    let text = format!("invalid name `{}`", list.escape_debug());
                    return Err(Refusal::mistake(text).into());
                }
                arguments.push(list.into());
            }
            let kept = asked.parsed.kept;
            let names = context.session.order.queries == Queries::Names;
            if thing == Thing::Plain || names {
                return plain(context, arguments, kept).await;
            }
            let session = context.session.clone();
            let said = attended(
                context.conn,
                look_up(&session, Command::Scontrol, arguments, kept),
            );
            let said = said.await?;
            let output = blocks::nameless(&said.output, &session.order.user);
            reply(context.conn, &output, &said.error, said.end).await
        }
    }
}

async fn jobs(
    context: &mut Context<'_>,
    asked: KeywordRequest,
    arguments: Vec<OsString>,
    list: Vec<Selector>,
    steps: bool,
) -> Result<End, Stop> {
    let session = context.session.clone();
    let json = asked.parsed.has("json");
    if json && steps {
        return Err(Refusal::mistake("--json is for scontrol show job").into());
    }
    let oneliner = asked.parsed.has("oneliner");
    let kept = &asked.parsed.kept;
    let others = session.order.queries;
    let work = async {
        let view = scope::view(&session).await?;
        let reader = records::reader(&session).await?;
        let mut wanted: Vec<Option<&Selector>> = list.iter().map(Some).collect();
        if wanted.is_empty() {
            wanted.push(None);
        }
        let (mut output, mut error, mut end) = (Vec::new(), Vec::new(), End::SUCCESS);
        // Held until all was sent: so much of the session's memory is in use.
        let mut accounts = Vec::new();
        for selector in wanted {
            let mut arguments = arguments.clone();
            if json {
                arguments.insert(0, "--json".into());
            }
            arguments.extend(selector.map(|one| OsString::from(one.to_string())));
            let said = look_up(&session, Command::Scontrol, arguments, kept.clone()).await?;
            if said.end != End::SUCCESS {
                end = said.end;
            }
            accounts.extend(said.account.clone());
            error.extend_from_slice(&said.error);
            if json {
                output.extend(filter(&said.output, &view, others, &reader)?);
                continue;
            }
            let mut shown = 0;
            let all = Block::all(&said.output, steps, oneliner);
            for block in &all {
                if block.job.is_none() {
                    // `No jobs in the system`
                    output.extend_from_slice(block.text);
                    continue;
                }
                let ours = block
                    .job
                    .zip(block.uid)
                    .is_some_and(|(job, uid)| view.shows(job, uid));
                if ours {
                    let record = block.job.and_then(|job| reader.find(job));
                    output.extend(block.rewritten(record.as_ref(), Who::of(&session), oneliner));
                } else if others == Queries::Names {
                    output.extend_from_slice(block.text);
                } else {
                    continue;
                }
                shown += 1;
            }
            if shown == 0 && said.end == End::SUCCESS && all.iter().any(|block| block.job.is_some())
            {
                if selector.is_some() {
                    // What Slurm says of jobs that do not exist.
                    let text = if steps {
                        "slurm_get_job_steps error: Invalid job id specified\n"
                    } else {
                        "slurm_load_jobs error: Invalid job id specified\n"
                    };
                    error.extend_from_slice(text.as_bytes());
                    end = End::FAILURE;
                } else {
                    let what = if steps { "job steps" } else { "jobs" };
                    output.extend_from_slice(format!("No {what} in the system\n").as_bytes());
                }
            }
        }
        Ok::<_, Refusal>((output, error, end, accounts))
    };
    let (output, error, end, _accounts) = attended(context.conn, work).await?;
    reply(context.conn, &output, &error, end).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_names_the_way_out() {
        for (name, _, thing) in THINGS {
            if let Thing::Refused(reason) = thing {
                assert!(crate::refusal::has_both(reason), "{name}: {reason}");
            }
        }
    }
}
