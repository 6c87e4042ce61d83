//! The answer of `agent-sandbox log --network`.

use anyhow::Result;
use serde_json::json;

use super::lines::{Lines, Of, Question};
use super::print::{Output, print_json};
use crate::audit::line::About;
use crate::audit::{self, Connection};
use crate::cli::{Options, Wanted};
use crate::failure::one_line;

/// Prints the hosts that sessions wanted to reach: the caller's own, for root those of all users or of one. `session` narrows
/// them to one session.
pub(super) fn show(options: &Options, session: Option<&str>, wanted: &Wanted) -> Result<()> {
    let question = Question {
        about: About::Host,
        session,
    };
    let mut lines = Lines::read(question, wanted)?;
    if options.json {
        let all: Vec<Of<Connection>> = lines.all()?;
        return print_json(&json!({ "connections": all }));
    }
    let mut output = Output::new();
    let none =
        "no session with a filtered network has asked for a host, and none for a login by ssh\n";
    lines.table(&mut output, head, row, none)?;
    output.finish()
}

fn whose(user: Option<&str>) -> String {
    user.map(|user| format!("{user:<16}  ")).unwrap_or_default()
}

fn head(several: bool) -> String {
    format!(
        "{:<20}  {}{:<8}  {:<12}  {:<7}  {:<7}  {:<32}  REASON\n",
        "TIME",
        whose(several.then_some("USER")),
        "SESSION",
        "NODE",
        "BY",
        "VERDICT",
        "HOST"
    )
}

/// For a person.
fn row(of: &Of<Connection>) -> String {
    let one = &of.what;
    let host = match one.port {
        Some(port) => format!("{}:{port}", one.name),
        None => one.name.clone(),
    };
    let change = one.change.as_ref().map(|change| format!("; {change}"));
    let line = format!(
        "{:<20}  {}{:<8}  {:<12}  {:<7}  {:<7}  {host:<32}  {}{}",
        audit::rfc3339(one.time),
        whose(of.user.as_deref()),
        one.session,
        one.host,
        one.kind,
        one.verdict,
        one.reason,
        change.unwrap_or_default()
    );
    one_line(&line) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_line_whatever_is_in_it() {
        let one = Connection {
            kind: audit::NETWORK.to_owned(),
            time: 1.5,
            session: "s1".to_owned(),
            host: "n1".to_owned(),
            name: "a.org\n\u{1b}[2J".to_owned(),
            port: Some(22),
            verdict: "refused".to_owned(),
            reason: "why".to_owned(),
            change: Some("do it".to_owned()),
        };
        let text = row(&Of::own(one));
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.ends_with("why; do it\n") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}
