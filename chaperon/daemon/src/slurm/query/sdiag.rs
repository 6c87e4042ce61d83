//! `sdiag(1)`: how the scheduler does, without who asks it how often.

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::Queries;

use crate::refusal::Refusal;
use crate::slurm::answers::{about, plain, reply};
use crate::slurm::ask::{Stop, attended, look_up, settle};
use crate::slurm::parse;
use crate::slurm::request::Context;

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
    let arguments = parse::canonical(&parsed.given);
    if session.order.queries == Queries::Names {
        return plain(context, arguments, parsed.kept).await;
    }
    let work = look_up(&session, Command::Sdiag, arguments, parsed.kept);
    let said = attended(context.conn, work).await?;
    let output = without_users(&said.output, &session.order.user);
    reply(context.conn, &output, &said.error, said.end).await
}

/// Leaves out the lines of other users. Their section's heading ends with `by user`; its lines are
/// indented.
fn without_users(answer: &[u8], user: &str) -> Vec<u8> {
    let mut output = Vec::with_capacity(answer.len());
    let mut users = false;
    for line in answer.split_inclusive(|&byte| byte == b'\n') {
        let indented = line
            .first()
            .is_some_and(|&byte| byte == b'\t' || byte == b' ');
        if !indented {
            users = line.trim_ascii().ends_with(b"by user");
        }
        let first = line.trim_ascii().split(u8::is_ascii_whitespace).next();
        if !indented || !users || first == Some(user.as_bytes()) {
            output.extend_from_slice(line);
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_are_left_out() {
        let answer = "Remote Procedure Call statistics by message type\n\tREQUEST_PING ( 1008) count:1\n\n\
                      Remote Procedure Call statistics by user\n\
                      \troot            (       0) count:1\n\
                      \talice           (    2001) count:2\n\
                      \tbob             (    2002) count:3\n\n\
                      Pending RPC statistics\n\tNo pending RPCs\n";
        let said = String::from_utf8(without_users(answer.as_bytes(), "alice")).unwrap();
        assert!(said.contains("alice") && !said.contains("bob") && !said.contains("root"));
        assert!(said.contains("REQUEST_PING") && said.contains("No pending"));
    }
}
