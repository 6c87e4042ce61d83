//! gemini speaks to the Gemini API.

use serde_json::json;

use crate::dialects::gemini;
use crate::driven::{Row, drive};
use crate::messages_api::call;

const GEMINI: Row = Row {
    name: "gemini",
    answer: gemini,
    shell: |label, line| call(label, "run_shell_command", json!({"command": line})),
    settings: |_, _| {
        let settings = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": false},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
        });
        vec![(".gemini/settings.json", settings.to_string())]
    },
    variables: |api| {
        vec![
            ("GEMINI_API_KEY", "dummy".to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", api.url()),
        ]
    },
    first: &[
        "-m",
        "gemini-2.5-flash",
        "--skip-trust",
        "--yolo",
        "-p",
        "run",
    ],
    again: &[
        "-m",
        "gemini-2.5-flash",
        "--skip-trust",
        "--yolo",
        "--resume",
        "latest",
        "-p",
        "go on",
    ],
    memory: Some(".gemini/GEMINI.md"),
    options: &[],
    control: true,
};

#[test]
fn gemini_works_goes_on_and_finds_no_keys() {
    drive(&GEMINI);
}
