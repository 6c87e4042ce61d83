//! claude speaks to the Messages API.

use serde_json::json;

use crate::driven::{Row, drive};
use crate::messages_api::{call, messages};
use crate::{API_KEY, claude_config};

const CLAUDE: Row = Row {
    name: "claude",
    answer: messages,
    shell: |label, line| call(label, "Bash", json!({"command": line})),
    settings: |world, _| {
        vec![
            (".claude.json", claude_config(&world.project).to_string()),
            (".claude/settings.json", "{}".to_owned()),
        ]
    },
    variables: |api| {
        vec![
            ("ANTHROPIC_BASE_URL", api.url()),
            ("ANTHROPIC_API_KEY", API_KEY.to_owned()),
            // No telemetry, no look for updates: a test has no business on the internet.
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ]
    },
    first: &["-p", "run", "--dangerously-skip-permissions"],
    again: &[
        "--continue",
        "-p",
        "go on",
        "--dangerously-skip-permissions",
    ],
    memory: Some(".claude/CLAUDE.md"),
    options: &[],
    control: true,
};

#[test]
fn claude_works_goes_on_and_finds_no_keys() {
    drive(&CLAUDE);
}
