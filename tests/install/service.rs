//! The tracer's unit, as systemd reads it, and what its program says of itself.

use std::fs;

use crate::pages::rendered;
use crate::world::{Done, TestPrefix, has, root};

const UNIT: &str = "lib/systemd/system/agent-sandbox-tracer.service";

#[test]
fn systemd_understands_the_unit() {
    let place = TestPrefix::installed();
    let unit = place.prefix.join(UNIT);
    let text = fs::read_to_string(&unit).unwrap();
    assert!(
        !text.contains("@PREFIX@") && !text.contains("@DOCDIR@"),
        "{text}"
    );
    let program = place
        .prefix
        .join("libexec/agent-sandbox/agent-sandbox-tracer");
    let start = format!("\nExecStart={}\n", program.display());
    assert!(text.contains(&start), "{start} is not in {text}");
    if !has("systemd-analyze", "the tracer's unit") {
        return;
    }
    let verify = |unit: &std::path::Path| {
        let mut command = place.command("systemd-analyze");
        command.args(["verify", "--man=no"]).arg(unit);
        let done = Done::of(command);
        let lines = done
            .err
            .lines()
            .filter(|line| line.contains("agent-sandbox-tracer"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(verify(&unit), Vec::<String>::new());
    // What it does not know, it says.
    let wrong = place.write(
        "wrong/agent-sandbox-tracer.service",
        &text.replace("KillMode=", "KillMod="),
    );
    assert_eq!(verify(&wrong).len(), 1);
}

#[test]
fn the_unit_leaves_few_rights() {
    let place = TestPrefix::installed();
    let text = fs::read_to_string(place.prefix.join(UNIT)).unwrap();
    let value = |key: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{key}=")));
        line.unwrap_or_else(|| panic!("no {key} in {text}"))
            .to_owned()
    };
    assert_eq!(
        value("CapabilityBoundingSet"),
        "CAP_BPF CAP_PERFMON CAP_SYS_PTRACE"
    );
    for (key, want) in [
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("RestrictAddressFamilies", "AF_UNIX"),
        ("StateDirectoryMode", "0700"),
        ("RuntimeDirectoryMode", "0755"),
        // Marks' names are there; without them the next tracer would not know the traces.
        ("RuntimeDirectoryPreserve", "yes"),
        // One user's flood of records would drop everybody's.
        ("LogRateLimitIntervalSec", "0"),
    ] {
        assert_eq!(value(key), want, "{key}");
    }
    // It would make the file system of the pins read-only.
    assert!(!text.contains("\nProtectKernelTunables="), "{text}");
}

#[test]
fn the_tracers_options_are_in_its_pages() {
    let place = TestPrefix::installed();
    let program = place
        .prefix
        .join("libexec/agent-sandbox/agent-sandbox-tracer");
    let guide = fs::read_to_string(root().join("docs/admin/tracer.md")).unwrap();
    let page = has("man", "what the tracer's manual page says").then(|| {
        rendered(
            &place,
            &place.prefix.join("share/man/man8/agent-sandbox-tracer.8"),
        )
    });
    let mut options = 0;
    let mut command = place.command(&program);
    command.arg("--help");
    let help = Done::of(command).ok().out;
    // Not the values that an option can have: `- auto: …`.
    let lines = help
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with('-') && !line.starts_with("- "));
    for line in lines {
        let words = line.split([' ', ',']);
        let long = words
            .into_iter()
            .find(|word| word.starts_with("--"))
            .unwrap();
        // One that is counted is shown as `--verbose...`.
        let long = long.trim_end_matches("...");
        options += 1;
        if let Some(page) = &page {
            assert!(page.contains(long), "`{long}` is not in {page}");
        }
        assert!(
            ["--help", "--version"].contains(&long) || guide.contains(&format!("`{long}`")),
            "{long} is not in docs/admin/tracer.md"
        );
    }
    assert!(options >= 6, "{help}");
    for name in ["run", "check", "unpin"] {
        assert!(help.contains(name), "{help}");
        assert!(
            page.as_ref().is_none_or(|page| page.contains(name)),
            "{page:?}"
        );
    }
}

/// Every key of its settings is in the guide, by the structures that are read.
#[test]
fn the_tracers_settings_are_in_the_guide() {
    let source = fs::read_to_string(root().join("ebpf/tracer/src/service/config.rs")).unwrap();
    let guide = fs::read_to_string(root().join("docs/admin/tracer.md")).unwrap();
    let keys = |name: &str| -> Vec<(String, String)> {
        let start = format!("pub struct {name} {{");
        let body = source
            .split_once(&start)
            .unwrap_or_else(|| panic!("no {start}"))
            .1;
        let body = body.split_once("\n}").unwrap().0;
        let fields = body
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub "));
        let field = |line: &str| {
            let (name, kind) = line.trim_end_matches(',').split_once(": ")?;
            Some((name.to_owned(), kind.to_owned()))
        };
        fields.filter_map(field).collect()
    };
    let mut count = 0;
    for (name, kind) in keys("Config") {
        let table = format!("pub struct {kind} {{");
        let names = match source.contains(&table) {
            true => keys(&kind)
                .into_iter()
                .map(|(key, _)| format!("{name}.{key}"))
                .collect(),
            false => vec![name],
        };
        for name in names {
            assert!(
                guide.contains(&format!("`{name}`")),
                "`{name}` is not in docs/admin/tracer.md"
            );
            count += 1;
        }
    }
    assert!(count > 15, "{count} keys");
}
