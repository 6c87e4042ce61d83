//! opencode speaks to the Chat Completions API.

use serde_json::json;

use crate::dialects::chat;
use crate::driven::{Row, drive};
use crate::messages_api::call;

const OPENCODE: Row = Row {
    name: "opencode",
    answer: chat,
    shell: |label, line| {
        let input = json!({"command": line, "description": "as the script says"});
        call(label, "bash", input)
    },
    settings: |_, api| {
        let settings = json!({
            "autoupdate": false,
            "share": "disabled",
            "model": "test/test",
            "permission": "allow",
            "provider": {"test": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {
                    "baseURL": format!("{}/v1", api.url()),
                    "apiKey": "{env:OPENAI_API_KEY}",
                },
                "models": {"test": {}},
            }},
        });
        vec![(".config/opencode/opencode.json", settings.to_string())]
    },
    variables: |_| {
        vec![
            ("OPENAI_API_KEY", "dummy".to_owned()),
            // A test has no business on the internet: no list of models, no language servers, no package
            // that it installs at its first start.
            ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1".to_owned()),
            ("npm_config_offline", "true".to_owned()),
        ]
    },
    first: &["run", "begin"],
    again: &["run", "--continue", "go on"],
    memory: Some(".config/opencode/AGENTS.md"),
    options: &[],
    control: true,
};

#[test]
fn opencode_works_goes_on_and_finds_no_keys() {
    drive(&OPENCODE);
}
