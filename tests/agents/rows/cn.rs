//! continue, whose command is `cn`, speaks to the Chat Completions API.

use serde_json::json;

use crate::chosen::is_landlock;
use crate::dialects::chat;
use crate::driven::{Row, drive};
use crate::messages_api::call;

const CN: Row = Row {
    name: "cn",
    answer: chat,
    // Its shell is a login shell: /etc/profile sets PATH, and in a jail of Landlock's the real commands of
    // Slurm stand first in it, which reach nobody.
    shell: |label, line| {
        let path = "PATH=$(tr '\\0' '\\n' < /proc/$PPID/environ | sed -n 's/^PATH=//p')\n";
        let path = if is_landlock() { path } else { "" };
        let input = json!({"command": format!("{path}{line}"), "timeout": 120});
        call(label, "Bash", input)
    },
    settings: |_, api| {
        // YAML, of which JSON is a part.
        let config = json!({
            "name": "test", "version": "1.0.0", "schema": "v1",
            "models": [{
                "name": "test", "provider": "openai", "model": "test",
                "apiBase": format!("{}/v1", api.url()), "apiKey": "dummy",
                "roles": ["chat"], "capabilities": ["tool_use"],
            }],
        });
        vec![(".continue/config.yaml", config.to_string())]
    },
    // A test has no business on the internet.
    variables: |_| vec![("CONTINUE_METRICS_ENABLED", "0".to_owned())],
    first: &["--auto", "-p", "run"],
    again: &["--auto", "--resume", "-p", "go on"],
    memory: Some(".continue/rules/mine.md"),
    options: &[],
    control: true,
};

#[test]
fn cn_works_goes_on_and_finds_no_keys() {
    drive(&CN);
}
