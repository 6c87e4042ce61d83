//! pi speaks to the Chat Completions API.

use serde_json::json;

use crate::dialects::chat;
use crate::driven::{Row, drive};
use crate::messages_api::call;

const PI: Row = Row {
    name: "pi",
    answer: chat,
    shell: |label, line| call(label, "bash", json!({"command": line})),
    settings: |_, api| {
        let models = json!({"providers": {"test": {
            "baseUrl": format!("{}/v1", api.url()),
            "api": "openai-completions",
            // The variable that holds the key.
            "apiKey": "OPENAI_API_KEY",
            "models": [{"id": "test"}],
        }}});
        vec![(".pi/agent/models.json", models.to_string())]
    },
    variables: |_| {
        vec![
            ("OPENAI_API_KEY", "dummy".to_owned()),
            // No look for updates: a test has no business on the internet.
            ("PI_OFFLINE", "1".to_owned()),
        ]
    },
    first: &["--provider", "test", "--model", "test", "-p", "run"],
    again: &[
        "--provider",
        "test",
        "--model",
        "test",
        "--continue",
        "-p",
        "go on",
    ],
    memory: Some(".pi/agent/AGENTS.md"),
    options: &[],
    control: true,
};

#[test]
fn pi_works_goes_on_and_finds_no_keys() {
    drive(&PI);
}
