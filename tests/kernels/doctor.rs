//! What `doctor` says where something is missing that this machine has.

use serde_json::Value;

use crate::machine::Transcript;
use crate::{boots, on_each_kernel, unless};

/// Complaints about an examination: its exit code, what would make the jail, and lines as name, status,
/// what was found, and the fix.
fn examined(
    said: &Transcript,
    stage: &str,
    backend: Option<&str>,
    lines: &[(&str, &str, &str, &str)],
) -> Vec<String> {
    let stage_said = said.stage(stage);
    let text = stage_said.text();
    let json = text.find('{').map_or("", |at| &text[at..]);
    let Ok(json) = serde_json::from_str::<Value>(json) else {
        return vec![format!("{stage}: no examination: {text}")];
    };
    let code = i32::from(backend.is_none());
    let mut wrong = Vec::new();
    wrong.extend(unless(stage_said.status == code, || {
        format!("{stage}: exit code {}, wanted {code}", stage_said.status)
    }));
    wrong.extend(unless(json["backend"].as_str() == backend, || {
        format!("{stage}: backend {}: {}", json["backend"], json["why"])
    }));
    for (name, status, found, fix) in lines {
        let all = json["checks"].as_array().into_iter().flatten();
        let line = all.clone().find(|line| line["name"] == *name);
        let has = |key: &str, word: &str| {
            line.and_then(|line| line[key].as_str())
                .is_some_and(|text| text.contains(word))
        };
        let good = has("status", status) && has("found", found) && has("fix", fix);
        wrong.extend(unless(good, || {
            format!("{stage}: `{name}` wanted {status} `{found}` `{fix}`: {line:?}")
        }));
    }
    wrong
}

#[test]
fn doctor_names_what_this_kernel_lacks() {
    on_each_kernel("doctor", |kernel, said| {
        let abi = format!("ABI {}", kernel.abi);
        let scopes = match kernel.abi {
            6.. => ("landlock", "ok", abi.as_str(), ""),
            _ => ("landlock", "degraded", abi.as_str(), "Linux 6.12 or newer"),
        };
        let missing = (
            "bubblewrap",
            "degraded",
            "not installed",
            "install the package `bubblewrap`",
        );
        let started = ("session", "ok", "a session started", "");
        let mut wrong = examined(
            said,
            "doctor",
            Some("landlock"),
            &[
                scopes,
                missing,
                started,
                ("yama", "ok", "ptrace_scope is", ""),
                ("user-namespaces", "ok", "can be made", ""),
                ("jail-landlock", "ok", "a session started", ""),
                ("seccomp", "ok", "user notification", ""),
            ],
        );
        let off = "user.max_user_namespaces = 0";
        let sysctl = "ask your administrators: sysctl -w user.max_user_namespaces=15000";
        wrong.extend(examined(
            said,
            "no-namespaces-doctor",
            Some("landlock"),
            &[
                ("user-namespaces", "degraded", off, sysctl),
                ("bubblewrap", "degraded", off, sysctl),
                started,
            ],
        ));
        wrong
    });
}

#[test]
fn doctor_says_what_yama_keeps_out() {
    on_each_kernel("doctor and Yama", |_, said| {
        let mut wrong = examined(
            said,
            "yama-1-doctor",
            Some("landlock"),
            &[("yama", "ok", "is 1", "")],
        );
        for scope in ["2", "3"] {
            let found = format!("kernel.yama.ptrace_scope is {scope}");
            let fix = "ask your administrators: sysctl -w kernel.yama.ptrace_scope=1";
            wrong.extend(examined(
                said,
                &format!("yama-{scope}-doctor"),
                None,
                &[
                    ("yama", "broken", &found, fix),
                    ("session", "broken", "", ""),
                ],
            ));
        }
        wrong
    });
}

#[test]
fn doctor_says_that_there_is_no_landlock() {
    let Some(boots) = boots("doctor without Landlock") else {
        return;
    };
    let lines = [
        ("landlock", "broken", "no Landlock", "kernel parameter lsm="),
        ("bubblewrap", "broken", "not installed", "`bubblewrap`"),
    ];
    let wrong = examined(&boots.without_landlock, "refused-doctor", None, &lines);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
