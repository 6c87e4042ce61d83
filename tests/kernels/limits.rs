//! What a session may take where its user has a part of the cgroups.

use crate::{ended, on_each_kernel, silent, unless};

#[test]
fn a_session_keeps_to_its_cgroup() {
    on_each_kernel("limits by a cgroup", |_, said| {
        // Where there is none nothing starts.
        let mut wrong = ended(
            said,
            "cgroup-refused",
            125,
            &["limits.memory (--set limits.memory) cannot be enforced"],
        );
        wrong.extend(unless(
            !said.stage("cgroup-refused").text().contains("ran"),
            || "the command ran without its limit".to_owned(),
        ));
        let settings = said.stage("cgroup-settings").text();
        for line in [
            "memory.max:67108864",
            "cpu.max:200000 100000",
            "io.weight:default 50",
            "pids.max:99",
        ] {
            wrong.extend(unless(settings.contains(line), || {
                format!("no `{line}`: {settings}")
            }));
        }
        // The launcher stays outside, to say what happened.
        wrong.extend(ended(said, "cgroup-launcher", 0, &["agent-sandbox -q"]));
        wrong.extend(ended(said, "cgroup-control", 0, &["changed"]));
        let text = said.stage("cgroup-takes").text();
        wrong.extend(ended(
            said,
            "cgroup-takes",
            0,
            &[
                "hog ended 137",
                "out of memory: the session may have 64M (limits.memory, --set limits.memory)",
            ],
        ));
        wrong.extend(unless(!text.contains("through"), || {
            format!("changed from inside: {text}")
        }));
        let result = said.stage("cgroup-result").text();
        let result: serde_json::Value = serde_json::from_str(&result).unwrap_or_default();
        let peak = result["peak_memory_bytes"].as_u64().unwrap_or(0);
        // Before Linux 5.19 there is no peak; both kernels are newer.
        let counted = result["peak_memory_from"] == "cgroup"
            && result["cpu_from"] == "cgroup"
            && (32 << 20..=64 << 20).contains(&peak)
            && result["memory_kills"]
                .as_u64()
                .is_some_and(|kills| kills > 0);
        wrong.extend(unless(counted, || format!("the result: {result:#}")));
        wrong.extend(silent(said, "cgroup-left"));
        // Of what is not the user's there is less, and of the rest all.
        wrong.extend(ended(
            said,
            "cgroup-part",
            0,
            &[
                "warning: limits.cpus, limits.io_weight as far as",
                "hog ended 137",
                "out of memory: the session may have 64M",
            ],
        ));
        wrong
    });
}
