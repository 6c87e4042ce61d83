//! What is the same on all nodes of a partition, and what differs between which. Pure.

use serde::Serialize;

use super::judge::ALLOCATION;
use super::line::{Examination, Status};
use super::{lists, table};

/// What came of asking a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It examined itself; and what came of a job from a jail there, if one was tried.
    Examined(Box<Examination>, Option<Result<(), String>>),
    /// It was not asked, or there was no room on it: why.
    Unavailable(String),
    /// It was asked, and something else came back: what.
    Failed(String),
}

/// Some nodes, and what was found on all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The nodes, as Slurm writes lists of them.
    pub nodes: String,
    /// How it stands.
    pub status: Option<Status>,
    /// What was found.
    pub found: String,
    /// What can be done.
    pub fix: String,
}

/// One thing that was compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The check.
    pub name: String,
    /// The groups of nodes; one if all are alike.
    pub parts: Vec<Part>,
}

/// The whole comparison. These keys are an interface: scripts read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Partitions and nodes, as they were named; none: one node of each kind was asked.
    pub asked: Vec<String>,
    /// The nodes that were asked, one by one.
    pub nodes: Vec<table::Row>,
    /// The nodes that answered.
    pub answered: String,
    /// What is the same on all of them.
    pub same: Vec<Row>,
    /// What is not.
    pub differs: Vec<Row>,
    /// Nodes that could not be asked.
    pub unavailable: Vec<Part>,
    /// Nodes that were asked in vain.
    pub failed: Vec<Part>,
    /// Whether a session would start on every node that was asked, and one was.
    pub starts: bool,
    /// That, as a sentence.
    pub verdict: String,
}

/// What stands in the place of a check that a node does not have.
const NONE: &str = "not checked there";
/// What to do about a difference for which no node has a better word.
const ALIGN: &str = "ask your administrators: these nodes should be alike; which of them is meant?";

/// Compares the answers of nodes.
pub fn compare(named: &[String], answers: &[(String, Answer)]) -> Comparison {
    let nodes: Vec<table::Row> = answers
        .iter()
        .filter_map(|(node, answer)| table::row(node, answer))
        .collect();
    let examined: Vec<(&str, &Examination)> = answers
        .iter()
        .filter_map(|(node, answer)| match answer {
            Answer::Examined(found, _) => Some((node.as_str(), &**found)),
            _ => None,
        })
        .collect();
    let rows = rows(&examined);
    let (same, differs) = rows.into_iter().partition(|row: &Row| row.parts.len() == 1);
    let of = |pick: fn(&Answer) -> Option<&str>, fix: &str| -> Vec<Part> {
        let picked = answers.iter().filter_map(|(node, answer)| {
            let found = pick(answer)?;
            Some((node.as_str(), (None, found.to_owned(), fix.to_owned())))
        });
        parts(picked.collect())
    };
    let unavailable = of(
        |answer| match answer {
            Answer::Unavailable(why) => Some(why),
            _ => None,
        },
        "",
    );
    let failed = of(
        |answer| match answer {
            Answer::Failed(why) => Some(why),
            _ => None,
        },
        "ask your administrators: agent-sandbox has to be installed on every node, under the same path",
    );
    let names = |wanted: fn(&Examination) -> bool| {
        let all = examined.iter().filter(|(_, found)| wanted(found));
        lists::compressed(all.map(|(node, _)| *node))
    };
    let (good, bad) = (names(|found| found.starts), names(|found| !found.starts));
    let jobless = nodes.iter().filter(|row| row.job == Some(false));
    let jobless = lists::compressed(jobless.map(|row| row.node.as_str()));
    let starts = !good.is_empty() && bad.is_empty() && failed.is_empty() && jobless.is_empty();
    let mut sentences = Vec::new();
    for (nodes, words) in [
        (&good, "A session would start on"),
        (&bad, "No session would start on"),
        (&jobless, "A job from a jail failed on"),
    ] {
        if !nodes.is_empty() {
            sentences.push(format!("{words} {nodes}."));
        }
    }
    for (parts, words) in [(&failed, "No answer from"), (&unavailable, "Not asked:")] {
        let nodes: Vec<&str> = parts.iter().map(|part| part.nodes.as_str()).collect();
        if !nodes.is_empty() {
            sentences.push(format!("{words} {}.", nodes.join(",")));
        }
    }
    Comparison {
        asked: named.to_vec(),
        nodes,
        answered: names(|_| true),
        same,
        differs,
        unavailable,
        failed,
        starts,
        verdict: sentences.join(" "),
    }
}

/// What a node says in one row.
type Said = (Option<Status>, String, String);

fn rows(examined: &[(&str, &Examination)]) -> Vec<Row> {
    let mut all = Vec::new();
    let mut row = |name: &str, said: &dyn Fn(&Examination) -> Said| {
        let each = examined.iter().map(|(node, found)| (*node, said(found)));
        let mut parts = parts(each.collect());
        if parts.len() > 1
            && parts.iter().all(|part| part.fix.is_empty())
            && let Some(last) = parts.last_mut()
        {
            last.fix = ALIGN.to_owned();
        }
        if !parts.is_empty() {
            all.push(Row {
                name: name.to_owned(),
                parts,
            });
        }
    };
    let plain = |text: String| -> Said { (None, text, String::new()) };
    row("version", &|found| plain(found.version.clone()));
    row("executable", &|found| plain(found.executable.clone()));
    row("digest", &|found| {
        plain(found.digest.clone().unwrap_or_else(|| NONE.to_owned()))
    });
    row("verdict", &|found| plain(found.verdict()));
    let mut names: Vec<&str> = Vec::new();
    for line in examined.iter().flat_map(|(_, found)| &found.checks) {
        // Each node is asked by a job of its own.
        if line.name != ALLOCATION && !names.contains(&line.name.as_str()) {
            names.push(&line.name);
        }
    }
    for name in names {
        row(name, &|found| {
            let line = found.checks.iter().find(|line| line.name == name);
            line.map_or_else(
                || plain(NONE.to_owned()),
                |line| (Some(line.status), line.found.clone(), line.fix.clone()),
            )
        });
    }
    all
}

/// Nodes that say the same, together; the largest group first.
fn parts(said: Vec<(&str, Said)>) -> Vec<Part> {
    let mut groups: Vec<(Said, Vec<&str>)> = Vec::new();
    for (node, said) in said {
        match groups.iter_mut().find(|(other, _)| *other == said) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((said, vec![node])),
        }
    }
    groups.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let part = |((status, found, fix), nodes): (Said, Vec<&str>)| Part {
        nodes: lists::compressed(nodes.into_iter()),
        status,
        found,
        fix,
    };
    groups.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::super::line::{Group, Line, Parts};
    use super::*;

    fn examined(found: &str, status: Status) -> Answer {
        let examination = Examination {
            version: "1".into(),
            node: "ignored".into(),
            executable: "/opt/a".into(),
            digest: Some("d".into()),
            starts: status != Status::Broken,
            backend: Some("bwrap".into()),
            why: "w".into(),
            checks: vec![Line {
                group: Group::Node,
                name: "kernel".into(),
                status,
                found: found.into(),
                fix: String::new(),
                milliseconds: None,
            }],
            absent: Vec::new(),
            parts: Parts::default(),
        };
        Answer::Examined(Box::new(examination), Some(Ok(())))
    }

    #[test]
    fn groups_of_nodes_are_found() {
        let node = |number: u32| format!("n{number:02}");
        let mut answers: Vec<(String, Answer)> = (1..=4)
            .map(|number| (node(number), examined("6.1", Status::Ok)))
            .collect();
        answers.push((node(5), examined("5.4", Status::Degraded)));
        answers.push((node(6), Answer::Unavailable("down".into())));
        let asked = ["p".to_owned()];
        let found = compare(&asked, &answers);
        assert_eq!(found.answered, "n[01-05]");
        let names: Vec<&str> = found.same.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["version", "executable", "digest", "verdict"]);
        let [row] = found.differs.as_slice() else {
            panic!("{found:?}");
        };
        let parts: Vec<(&str, &str)> = row
            .parts
            .iter()
            .map(|part| (part.nodes.as_str(), part.found.as_str()))
            .collect();
        assert_eq!(parts, [("n[01-04]", "6.1"), ("n05", "5.4")]);
        assert!(row.parts[1].fix.starts_with("ask your administrators"));
        assert!(found.starts, "{}", found.verdict);
        assert!(
            found.verdict.ends_with("Not asked: n06."),
            "{}",
            found.verdict
        );
        answers.push((node(7), Answer::Failed("no such file".into())));
        assert!(!compare(&asked, &answers).starts);
        assert!(!compare(&asked, &answers[5..6]).starts);
        answers[0].1 = examined("6.1", Status::Broken);
        assert!(!compare(&asked, &answers[..4]).starts);
        answers[0].1 = examined("6.1", Status::Ok);
        assert!(compare(&asked, &answers[..4]).starts);
        if let Answer::Examined(_, job) = &mut answers[0].1 {
            *job = Some(Err("srun: error: no way".into()));
        }
        let found = compare(&asked, &answers[..4]);
        assert!(!found.starts && found.nodes[0].problem.contains("no way"));
        let said = "A job from a jail failed on n01.";
        assert!(found.verdict.ends_with(said), "{}", found.verdict);
    }
}
