//! Nodes in a table: a row each, and below it what is wrong with one and what to do. Pure.

use serde::Serialize;

use super::compare::Answer;
use super::line::Status;
use crate::failure::one_line;

/// What stands for something that was not looked for.
const UNTOLD: &str = "-";
/// The headings of the columns.
const HEADINGS: [&str; 9] = [
    "NODE", "KERNEL", "BWRAP", "LANDLOCK", "USERNS", "BACKEND", "TRACER", "FILTER", "JOB",
];

/// A node that was asked. These keys are an interface: scripts read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The node.
    pub node: String,
    /// The kernel's release.
    pub kernel: String,
    /// bubblewrap's version.
    pub bubblewrap: Option<String>,
    /// Landlock's ABI; 0: there is none.
    pub landlock: i32,
    /// Whether user namespaces can be made.
    pub user_namespaces: bool,
    /// What would make the jail; `None`: no session would start.
    pub backend: Option<String>,
    /// The tracer's object, or `none`.
    pub tracer: Option<String>,
    /// Whether a filtered network works.
    pub filter: Option<bool>,
    /// Whether a job that was submitted in a jail ran in one on this node; `None`: it was not tried.
    pub job: Option<bool>,
    /// What is wrong; empty: nothing that is in the way.
    pub problem: String,
    /// What to do.
    pub fix: String,
}

/// The row of a node; `None`: it did not examine itself.
pub fn row(node: &str, answer: &Answer) -> Option<Row> {
    let Answer::Examined(found, job) = answer else {
        return None;
    };
    let broken = found
        .checks
        .iter()
        .find(|line| line.status == Status::Broken);
    let (problem, fix) = match (found.starts, job, broken) {
        (false, _, Some(line)) => (format!("{}: {}", line.name, line.found), line.fix.clone()),
        (false, _, None) => (found.why.clone(), String::new()),
        (true, Some(Err(why)), _) => (
            format!("a job from a jail: {why}"),
            "see `agent-sandbox log`, which has the job and what it said".to_owned(),
        ),
        (true, ..) => (String::new(), String::new()),
    };
    let parts = found.parts.clone();
    Some(Row {
        node: node.to_owned(),
        kernel: parts.kernel,
        bubblewrap: parts.bubblewrap,
        landlock: parts.landlock,
        user_namespaces: parts.user_namespaces,
        backend: found.backend.clone(),
        tracer: parts.tracer,
        filter: parts.filter,
        job: job.as_ref().map(Result::is_ok),
        problem,
        fix,
    })
}

/// The table. `quiet` leaves out nodes without a problem.
pub fn text(rows: &[Row], quiet: bool) -> String {
    let shown: Vec<&Row> = rows
        .iter()
        .filter(|row| !quiet || !row.problem.is_empty())
        .collect();
    if shown.is_empty() {
        return String::new();
    }
    let mut lines: Vec<[String; HEADINGS.len()]> = vec![HEADINGS.map(str::to_owned)];
    lines.extend(shown.iter().map(|row| cells(row)));
    let width = |column: usize| {
        let lengths = lines.iter().map(|line| line[column].chars().count());
        lengths.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let padded = line.iter().zip(&widths);
        let padded: Vec<String> = padded
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
        let row = number.checked_sub(1).and_then(|at| shown.get(at));
        let Some(row) = row.filter(|row| !row.problem.is_empty()) else {
            continue;
        };
        text.push_str(&format!("  {}\n", one_line(&row.problem)));
        if !row.fix.is_empty() {
            text.push_str(&format!("  fix: {}\n", one_line(&row.fix)));
        }
    }
    text
}

fn cells(row: &Row) -> [String; HEADINGS.len()] {
    let or_untold = |text: &Option<String>| one_line(text.as_deref().unwrap_or(UNTOLD));
    let word = |is: bool| match is {
        true => "yes".to_owned(),
        false => "no".to_owned(),
    };
    let asked = |is: Option<bool>| is.map_or_else(|| UNTOLD.to_owned(), word);
    [
        one_line(&row.node),
        one_line(&row.kernel),
        or_untold(&row.bubblewrap),
        match row.landlock {
            0 => "no".to_owned(),
            abi => abi.to_string(),
        },
        word(row.user_namespaces),
        row.backend
            .as_deref()
            .map_or_else(|| "none".to_owned(), one_line),
        or_untold(&row.tracer),
        asked(row.filter),
        match row.job {
            None => UNTOLD.to_owned(),
            Some(true) => "ran".to_owned(),
            Some(false) => "failed".to_owned(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_line_and_its_problem_stands_below() {
        let good = Row {
            node: "n01".into(),
            kernel: "6.1.0".into(),
            bubblewrap: Some("0.8.0".into()),
            landlock: 2,
            user_namespaces: true,
            backend: Some("bwrap".into()),
            tracer: None,
            filter: Some(true),
            job: Some(true),
            problem: String::new(),
            fix: String::new(),
        };
        let bad = Row {
            node: "n02".into(),
            landlock: 0,
            backend: None,
            job: None,
            problem: "no\nway".into(),
            fix: "ask".into(),
            ..good.clone()
        };
        let rows = [good, bad];
        let expected = "NODE  KERNEL  BWRAP  LANDLOCK  USERNS  BACKEND  TRACER  FILTER  JOB\n\
                        n01   6.1.0   0.8.0  2         yes     bwrap    -       yes     ran\n\
                        n02   6.1.0   0.8.0  no        yes     none     -       yes     -\n  no\\nway\n  fix: ask\n";
        assert_eq!(text(&rows, false), expected);
        assert!(!text(&rows, true).contains("n01"));
        assert_eq!(text(&rows[..1], true), "");
    }
}
