//! copilot speaks to the Chat Completions API where it is given a model of one's own.

use serde_json::json;

use crate::dialects::chat;
use crate::driven::{Row, drive};
use crate::messages_api::call;

const COPILOT: Row = Row {
    name: "copilot",
    answer: chat,
    // It waits that long, in seconds, before it goes on without the result.
    shell: |label, line| {
        let input = json!({
            "command": line, "description": "as the script says", "initial_wait": 120, "mode": "sync",
        });
        call(label, "bash", input)
    },
    settings: |_, _| {
        vec![(
            ".copilot/settings.json",
            json!({"banner": "never"}).to_string(),
        )]
    },
    variables: |api| {
        vec![
            ("COPILOT_PROVIDER_BASE_URL", format!("{}/v1", api.url())),
            ("COPILOT_PROVIDER_API_KEY", "dummy".to_owned()),
            ("COPILOT_MODEL", "test".to_owned()),
            // A test has no business on the internet.
            ("COPILOT_OFFLINE", "true".to_owned()),
        ]
    },
    first: &["-p", "run", "--allow-all"],
    again: &["--continue", "-p", "go on", "--allow-all"],
    memory: Some(".copilot/copilot-instructions.md"),
    options: &[],
    control: false,
};

#[test]
fn copilot_works_goes_on_and_finds_no_keys() {
    drive(&COPILOT);
}
