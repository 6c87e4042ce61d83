//! aider speaks to the Chat Completions API, and offers the model no tools: the model writes files, and
//! aider runs what its user has told it to run after each change. So the model writes the script.

use std::io;
use std::net::TcpStream;

use serde_json::json;

use crate::dialects::{asked, list, not_found, said};
use crate::driven::{Row, drive};
use crate::messages_api::{Request, Shared, Step, call};

/// The file that the model writes and aider runs.
const SCRIPT: &str = "work.sh";
/// Where in a [`crate::messages_api::ToolUse`] the line stands.
const LINE: &str = "line";

const AIDER: Row = Row {
    name: "aider",
    answer,
    shell: |label, line| call(label, SCRIPT, json!({LINE: line})),
    settings: |_, _| Vec::new(),
    variables: |api| {
        vec![
            ("OPENAI_API_KEY", "dummy".to_owned()),
            ("OPENAI_API_BASE", format!("{}/v1", api.url())),
            // A test has no business on the internet: it looks for the prices of models there.
            ("https_proxy", "http://127.0.0.1:9".to_owned()),
        ]
    },
    first: &[
        "--model=openai/test",
        "--edit-format=whole",
        "--yes-always",
        "--no-git",
        "--no-pretty",
        "--no-check-update",
        "--no-show-model-warnings",
        "--analytics-disable",
        "--auto-test",
        "--test-cmd=sh work.sh",
        "--message=run",
    ],
    again: &[
        "--model=openai/test",
        "--edit-format=whole",
        "--yes-always",
        "--no-git",
        "--no-pretty",
        "--no-check-update",
        "--no-show-model-warnings",
        "--analytics-disable",
        "--restore-chat-history",
        "--max-chat-history-tokens=100000",
        "--message=go on",
    ],
    memory: None,
    options: &[],
    control: true,
};

/// Answers aider. The first answer is the file with all lines of the script. It ends with an error:
/// of what goes well, aider tells the model nothing.
fn answer(stream: &TcpStream, request: &Request, shared: &Shared) -> io::Result<()> {
    let Some(body) = asked(request, |path| path.ends_with("/chat/completions")) else {
        return not_found(stream);
    };
    let calls = shared.script.iter().flat_map(|step| match step {
        Step::Call(calls) => calls.as_slice(),
        Step::Say(_) => &[],
    });
    let lines: Vec<&str> = calls.filter_map(|call| call.input[LINE].as_str()).collect();
    let file = format!("{SCRIPT}\n```\n{}\nexit 1\n```\n", lines.join("\n"));
    let written = list(&body["messages"]).any(|message| {
        let content = message["content"].as_str().unwrap_or_default();
        message["role"] == "assistant" && content.contains(SCRIPT)
    });
    let last = shared.script.iter().find_map(|step| match step {
        Step::Say(text) => Some(text.clone()),
        Step::Call(_) => None,
    });
    let text = if written || lines.is_empty() {
        last.unwrap_or_default()
    } else {
        file
    };
    said(
        stream,
        &body,
        json!({"role": "assistant", "content": text}),
        "stop",
    )
}

#[test]
fn aider_works_goes_on_and_finds_no_keys() {
    drive(&AIDER);
}
