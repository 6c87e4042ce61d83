//! The answer of `agent-sandbox log --network`.

use anyhow::Result;
use serde_json::json;

use super::print::{print, print_json};
use super::sessions::Of;
use crate::audit::{self, Connection};
use crate::cli::Options;
use crate::failure::one_line;
use crate::host;
use crate::users::{self, Known};

/// Prints the hosts that sessions wanted to reach: the caller's own, for root those of all users or of one. `session` narrows
/// them to one session.
pub(super) fn show(options: &Options, session: Option<&str>, user: Option<&str>) -> Result<()> {
    let of_session =
        |one: &Connection| session.is_none_or(|session| session == one.session.as_str());
    let users = users::meant(user, Known::Ever)?;
    let several = users.is_some();
    let mut all: Vec<Of<Connection>> = Vec::new();
    match users {
        None => {
            let own = audit::connections(&host::directories(None)?.1.state)?;
            all.extend(own.into_iter().filter(of_session).map(Of::own));
        }
        Some(users) => {
            for (user, found) in users::read(users, |user| audit::connections(&user.state()))? {
                let found = found.into_iter().filter(of_session).map(|what| Of {
                    user: Some(user.name.clone()),
                    what,
                });
                all.extend(found);
            }
            all.sort_by(|a, b| a.what.time.total_cmp(&b.what.time));
        }
    }
    if options.json {
        return print_json(&json!({ "connections": all }));
    }
    print(&text(&all, several))
}

/// For a person. `several`: they may be several users'.
fn text(all: &[Of<Connection>], several: bool) -> String {
    if all.is_empty() {
        return "no session with a filtered network has asked for a host, and none for a login by ssh\n".to_owned();
    }
    let whose = |user: Option<&str>| match several {
        true => format!("{:<16}  ", user.unwrap_or_default()),
        false => String::new(),
    };
    let mut text = format!(
        "{:<20}  {}{:<8}  {:<12}  {:<7}  {:<7}  {:<32}  REASON\n",
        "TIME",
        whose(Some("USER")),
        "SESSION",
        "NODE",
        "BY",
        "VERDICT",
        "HOST"
    );
    for Of { user, what: one } in all {
        let host = match one.port {
            Some(port) => format!("{}:{port}", one.name),
            None => one.name.clone(),
        };
        let change = one.change.as_ref().map(|change| format!("; {change}"));
        let line = format!(
            "{:<20}  {}{:<8}  {:<12}  {:<7}  {:<7}  {host:<32}  {}{}",
            audit::rfc3339(one.time),
            whose(user.as_deref()),
            one.session,
            one.host,
            one.kind,
            one.verdict,
            one.reason,
            change.unwrap_or_default()
        );
        text.push_str(&one_line(&line));
        text.push('\n');
    }
    text
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
        let text = text(&[Of::own(one)], false);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.ends_with("why; do it\n") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}
