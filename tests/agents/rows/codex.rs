//! codex speaks to the Responses API.

use serde_json::json;

use crate::chosen::is_landlock;
use crate::dialects::responses;
use crate::driven::{Row, drive};
use crate::messages_api::call;

const CODEX: Row = Row {
    name: "codex",
    answer: responses,
    // It waits that long, in milliseconds, before it goes on without the result. Its shell is a login
    // shell unless the model says otherwise; /etc/profile then sets PATH, and in a jail of Landlock's the
    // real commands of Slurm stand first in it, which reach nobody.
    shell: |label, line| {
        let input = json!({"cmd": line, "yield_time_ms": 30_000, "login": !is_landlock()});
        call(label, "exec_command", input)
    },
    settings: |_, api| {
        let text = format!(
            "model = \"test\"\nmodel_provider = \"test\"\n\
             [model_providers.test]\nname = \"test\"\nbase_url = \"{}/v1\"\n\
             wire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n\
             request_max_retries = 0\nstream_max_retries = 0\n",
            api.url()
        );
        vec![(".codex/config.toml", text)]
    },
    variables: |_| vec![("OPENAI_API_KEY", "dummy".to_owned())],
    // Its own sandbox needs namespaces of its own. The jail is this one.
    first: &[
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "run",
    ],
    again: &[
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "resume",
        "--last",
        "go on",
    ],
    memory: Some(".codex/AGENTS.md"),
    options: &[],
    control: true,
};

#[test]
fn codex_works_goes_on_and_finds_no_keys() {
    drive(&CODEX);
}
