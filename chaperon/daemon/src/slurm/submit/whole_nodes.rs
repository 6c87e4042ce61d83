//! `--exclusive`: the job gets nodes with all that is in them (`sbatch(1)`), so that their GPUs count. How
//! many those are, Slurm knows.

use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::ask::ask;
use crate::slurm::limits;
use crate::slurm::parse::Parsed;

/// Values with which nodes are only not shared with other users.
const SHARED: [&str; 2] = ["user", "mcs"];

/// GPUs that the job gets in each node because it gets the whole node, at most; 0 if it does not, or if
/// nothing limits them.
///
/// # Errors
/// Slurm does not say how many GPUs nodes have.
pub(super) async fn gpus(session: &Rc<Session>, parsed: &Parsed) -> Result<u64, Refusal> {
    let whole = parsed.given.iter().any(|given| {
        let value = given.value.as_ref().map(|value| value.to_string_lossy());
        let is_shared = |value: &str| SHARED.iter().any(|one| value.eq_ignore_ascii_case(one));
        given.option.long == "exclusive" && !value.is_some_and(|value| is_shared(&value))
    });
    if session.order.limits.gpus == 0 || !whole {
        return Ok(0);
    }
    let mut arguments: Vec<OsString> = ["--noheader", "--all", "--format=%P|%G"]
        .map(OsString::from)
        .to_vec();
    let partition = parsed.value("partition").filter(|name| !name.is_empty());
    if let Some(name) = partition {
        let mut word = OsString::from("--partition=");
        word.push(name);
        arguments.push(word);
    }
    let said = ask(session, Command::Sinfo, arguments, Vec::new()).await?;
    let most = match said.end {
        End::SUCCESS => most(&String::from_utf8_lossy(&said.output), partition.is_some()),
        _ => None,
    };
    most.ok_or_else(|| limits::unclear("--exclusive", "gpus"))
}

/// The most GPUs of a node, of lines `PARTITION|GRES`. If none was asked for, the default partition's
/// count, which has a star, if there is one.
fn most(text: &str, any: bool) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once('|'));
    let lines: Vec<(&str, &str)> = lines.collect();
    let starred = |(name, _): &&(&str, &str)| name.trim_end().ends_with('*');
    let all = any || !lines.iter().any(|line| starred(&line));
    let counted = lines.iter().filter(|line| all || starred(line));
    // Nothing that is understood is no number.
    let mut most = None;
    for (_, gres) in counted {
        most = most.max(Some(of_node(gres.trim())?));
    }
    most
}

/// GPUs of `gpu:a100:4(S:0-1),gpu:2,license:3`, or `(null)`.
fn of_node(gres: &str) -> Option<u64> {
    let mut plain = String::new();
    let mut depth = 0u32;
    for letter in gres.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            other if depth == 0 => plain.push(other),
            _ => {}
        }
    }
    let mut sum = 0u64;
    for part in plain.split(',').filter(|part| !part.is_empty()) {
        // The shares of a GPU are counted by the GPU here.
        if part.starts_with("gpu") {
            sum = sum.checked_add(limits::named_gpus(part.as_ref())?)?;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_gpus_of_a_node_count() {
        let text = "debug*|(null)\ndebug*|gpu:2\ngpu|gpu:a100:4(S:0,1),gpu:v100:4,shard:32\ncpu|\n";
        assert_eq!(most(text, false), Some(2));
        assert_eq!(most(text, true), Some(8));
        assert_eq!(most("gpu|gpu:4\n", false), Some(4));
        assert_eq!(most("cpu*|(null)\n", false), Some(0));
        assert_eq!(most("gpu|gpu:a:b:c:d\n", true), None);
        assert_eq!(most("", true), None);
    }
}
