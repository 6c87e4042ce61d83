//! qwen speaks to the Chat Completions API.

use serde_json::json;

use crate::dialects::chat;
use crate::driven::{Row, drive};
use crate::messages_api::call;

const QWEN: Row = Row {
    name: "qwen",
    answer: chat,
    shell: |label, line| {
        call(
            label,
            "run_shell_command",
            json!({"command": line, "is_background": false}),
        )
    },
    settings: |_, _| {
        let settings = json!({
            "security": {"auth": {"selectedType": "openai"}},
            "general": {"disableAutoUpdate": true, "enableAutoUpdate": false},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
        });
        vec![(".qwen/settings.json", settings.to_string())]
    },
    variables: |api| {
        vec![
            ("OPENAI_API_KEY", "dummy".to_owned()),
            ("OPENAI_BASE_URL", format!("{}/v1", api.url())),
            ("OPENAI_MODEL", "test".to_owned()),
        ]
    },
    first: &["--yolo", "-p", "run"],
    again: &["--yolo", "--continue", "-p", "go on"],
    memory: Some(".qwen/QWEN.md"),
    options: &[],
    control: true,
};

#[test]
fn qwen_works_goes_on_and_finds_no_keys() {
    drive(&QWEN);
}
