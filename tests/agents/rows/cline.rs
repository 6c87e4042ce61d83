//! cline speaks to the Chat Completions API.

use serde_json::json;

use crate::dialects::chat;
use crate::driven::{Row, Session, drive_and};
use crate::messages_api::{Step, call};
use crate::running::files_with;

const CLINE: Row = Row {
    name: "cline",
    answer: chat,
    shell: |label, line| call(label, "run_commands", json!({"commands": [line]})),
    settings: |_, api| {
        let providers = json!({
            "version": 1,
            "lastUsedProvider": "openai-compatible",
            "modes": {},
            "providers": {"openai-compatible": {
                "settings": {
                    "provider": "openai-compatible", "apiKey": "dummy", "model": "test",
                    "baseUrl": format!("{}/v1", api.url()),
                },
                "updatedAt": "2026-01-01T00:00:00.000Z",
                "tokenSource": "manual",
            }},
        });
        let name = ".cline/data/settings/providers.json";
        vec![(name, providers.to_string())]
    },
    // A test has no business on the internet.
    variables: |_| vec![("CLINE_NO_AUTO_UPDATE", "1".to_owned())],
    // One word would be taken for a command of its own.
    first: &["--auto-approve", "true", "do as told"],
    // The name of the conversation comes behind.
    again: &["--auto-approve", "true", "--id"],
    memory: Some(".cline/rules/mine.md"),
    options: &[],
    // Without a jail it leaves a service behind that outlives it.
    control: false,
};

/// What it keeps of a conversation is in a file of its name.
const KEPT: &str = ".messages.json";

/// It goes on with a conversation at a terminal alone.
#[test]
fn cline_works_goes_on_and_finds_no_keys() {
    drive_and(&CLINE, |row, world, reply| {
        let files = files_with(&world.home, &world.last_word);
        let names = files.iter().filter_map(|path| path.file_name()?.to_str());
        let ids: Vec<&str> = names.filter_map(|name| name.strip_suffix(KEPT)).collect();
        assert_eq!(ids.len(), 1, "which conversation is it? {files:?}");
        let words: Vec<&str> = row.again.iter().chain(&ids).copied().collect();
        let script = vec![Step::Say(reply.to_owned())];
        Session::typed(row, world, &words, "go on", script)
    });
}
