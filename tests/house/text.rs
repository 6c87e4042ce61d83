//! What holds for every file: its size, its name, where `unsafe` may stand, which words may not.

use crate::lex;

/// A reader finds the room for a change by its name, and the file fits on a few screens.
pub(crate) const MAX_LINES: usize = 600;

/// Files that are one table, and so may be longer.
pub(crate) const TABLES: &[&str] = &[];

/// The effect modules: what may open files, start processes, read the environment or the clock.
/// A name that ends in `/` stands for the directory.
pub(crate) const EFFECTS: &[&str] = &[
    "src/main.rs",
    "base/src/config/draft.rs",
    "base/src/config/files.rs",
    "base/src/config/load.rs",
    "base/src/config/site.rs",
    "base/src/host.rs",
    "base/src/host/",
    "landlock/src/mediator/",
    "landlock/src/restrict.rs",
    "landlock/src/stage.rs",
    "src/launch.rs",
    "src/launch/",
    "src/audit.rs",
    "src/logging.rs",
    "base/src/session.rs",
    "base/src/session_directory.rs",
    "src/users.rs",
    "src/users/",
    "base/src/session/",
    "src/init.rs",
    "src/job/",
    "src/share/",
    "src/profile_init/place.rs",
    "src/init/",
    "src/inside.rs",
    "src/notice.rs",
    "src/wait.rs",
    "src/report/git_ssh.rs",
    "base/src/mediate/",
    "src/doctor.rs",
    "src/doctor/look.rs",
    "src/doctor/look/",
    "base/src/sys/",
    "chaperon/daemon/src/main.rs",
    "chaperon/daemon/src/filter.rs",
    "chaperon/daemon/src/server.rs",
    "chaperon/daemon/src/audit.rs",
    "chaperon/daemon/src/logging.rs",
    "chaperon/daemon/src/files.rs",
    "chaperon/daemon/src/intent.rs",
    "chaperon/daemon/src/limiter.rs",
    "chaperon/daemon/src/query_cache.rs",
    "chaperon/daemon/src/spawn.rs",
    "chaperon/daemon/src/slurm/intents.rs",
    "chaperon/daemon/src/slurm/queue.rs",
    "chaperon/daemon/src/slurm/rates.rs",
    "chaperon/daemon/src/slurm/lines.rs",
    "chaperon/daemon/src/slurm/ledger.rs",
    "chaperon/daemon/src/slurm/approval.rs",
    "chaperon/daemon/src/slurm/records.rs",
    // The shim is all effects; these are those that clippy knows.
    "chaperon/shim/src/main.rs",
    "chaperon/shim/src/call.rs",
    "chaperon/shim/src/child.rs",
    "chaperon/shim/src/link.rs",
    "chaperon/shim/src/look.rs",
    "chaperon/shim/src/signals.rs",
    "ebpf/events/examples/ask.rs",
    "ebpf/events/src/sluid.rs",
    "ebpf/events/src/trails.rs",
    "network/filter/src/authority.rs",
    "network/filter/src/outside.rs",
    "network/filter/src/start.rs",
    "network/ssh/src/agent.rs",
    "network/ssh/src/message.rs",
    "network/ssh/src/users_agent.rs",
    "ebpf/trail/src/main.rs",
    "ebpf/trail/src/names.rs",
    "ebpf/trail/src/report/write.rs",
    "ebpf/trail/src/trace/",
    "ebpf/trail/src/watch/copy.rs",
    "ebpf/trail/src/watch/mod.rs",
    "ebpf/tracer/examples/",
    "ebpf/tracer/src/logging.rs",
    "ebpf/tracer/src/main.rs",
    "ebpf/tracer/src/kernel/demand.rs",
    "ebpf/tracer/src/kernel/exercise.rs",
    "ebpf/tracer/src/kernel/iterator.rs",
    "ebpf/tracer/src/kernel/load.rs",
    "ebpf/tracer/src/kernel/objects.rs",
    "ebpf/tracer/src/kernel/obstacles.rs",
    "ebpf/tracer/src/kernel/pins.rs",
    "ebpf/tracer/src/kernel/prove.rs",
    "ebpf/tracer/src/service/cgroups.rs",
    "ebpf/tracer/src/service/core/mod.rs",
    "ebpf/tracer/src/service/core/register.rs",
    "ebpf/tracer/src/service/core/restart.rs",
    "ebpf/attest/src/main.rs",
    "ebpf/tracer/src/service/files.rs",
    "ebpf/tracer/src/service/mark_key.rs",
    "ebpf/tracer/src/service/forbidden.rs",
    "ebpf/tracer/src/service/process.rs",
    "ebpf/tracer/src/service/socket/mod.rs",
];

/// Where `unsafe` may stand. A name that ends in `/` stands for the directory.
const SYS: &[&str] = &[
    "base/src/sys/",
    "base/src/sys.rs",
    "chaperon/daemon/src/sys.rs",
    "chaperon/daemon/src/sys/",
    "chaperon/shim/src/sys.rs",
    "chaperon/shim/tests/shim/sys.rs",
    "ebpf/events/src/sys.rs",
    "ebpf/tracer/src/sys.rs",
    "ebpf/tracer/src/sys/",
];

/// The roots of crates, each of which refuses `unsafe`.
pub(crate) const ROOTS: &[&str] = &[
    "src/lib.rs",
    "base/src/lib.rs",
    "landlock/src/lib.rs",
    "chaperon/wire/src/lib.rs",
    "chaperon/shim/src/main.rs",
    "chaperon/daemon/src/lib.rs",
    "ebpf/events/src/lib.rs",
    "ebpf/secrets/src/lib.rs",
    "ebpf/tracer/src/lib.rs",
    "ebpf/trail/src/lib.rs",
    "tests/support/src/lib.rs",
];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc"];

/// Words that promise work instead of doing it. Spelt apart, so that this file passes its own check.
const MARKERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];

/// The tree stands alone: what it needs is inside it.
const OUTSIDE: &str = concat!("../", "shared");

/// Complaints about nix's `Backlog`: it refuses what is above the C library's `SOMAXCONN`, 128 in musl, whose
/// programs then listen nowhere. What listens outside of tests asks the kernel (`sys::sockets::listen`).
pub(crate) fn backlog(file: &str, text: &str) -> Vec<String> {
    let tested = file.starts_with("tests/") || file.contains("/tests/");
    let tokens = lex::without_tests(&lex::tokens(text));
    let named = tokens
        .iter()
        .filter(|token| token.text == "Backlog" && !tested);
    named
        .map(|token| {
            format!(
                "{file}:{}: the C library bounds `Backlog`: sys::sockets::listen",
                token.line
            )
        })
        .collect()
}

/// Complaint about a file that is too long.
pub(crate) fn size(file: &str, text: &str, tables: &[&str]) -> Vec<String> {
    let lines = text.lines().count();
    if lines <= MAX_LINES || tables.contains(&file) {
        return Vec::new();
    }
    vec![format!(
        "{file}: {lines} lines, more than {MAX_LINES}: split it, one noun a file"
    )]
}

/// Complaint about a file or directory whose name says nothing.
pub(crate) fn name(file: &str) -> Vec<String> {
    let hollow = file.split('/').find(|part| {
        let stem = part.split('.').next().unwrap_or(part);
        EMPTY_NAMES.contains(&stem)
    });
    hollow
        .map(|part| format!("{file}: `{part}` says nothing: name the noun"))
        .into_iter()
        .collect()
}

/// Whether a list of files and directories names the file.
fn listed(file: &str, list: &[&str]) -> bool {
    list.iter()
        .any(|e| file == *e || (e.ends_with('/') && file.starts_with(e)))
}

/// Complaints about `unsafe` outside of a crate's `sys`, and about a lint that is switched off to allow it.
pub(crate) fn unsafe_code(file: &str, text: &str) -> Vec<String> {
    if listed(file, SYS) {
        return Vec::new();
    }
    let tokens = lex::tokens(text);
    let mut complaints: Vec<String> = tokens
        .iter()
        .filter(|t| t.text == "unsafe")
        .map(|t| format!("{file}:{}: `unsafe` outside sys", t.line))
        .collect();
    for lint in ["unsafe_code", "undocumented_unsafe_blocks"] {
        let off = allows(&tokens, lint);
        complaints.extend(off.map(|line| format!("{file}:{line}: allows `{lint}` outside sys")));
    }
    complaints
}

/// Complaint about a crate root that does not refuse `unsafe`.
pub(crate) fn refuses_unsafe(file: &str, text: &str) -> Vec<String> {
    let words: Vec<String> = lex::tokens(text).into_iter().map(|t| t.text).collect();
    let refused = words
        .windows(3)
        .any(|w| (w[0] == "deny" || w[0] == "forbid") && w[1] == "(" && w[2] == "unsafe_code");
    if refused {
        Vec::new()
    } else {
        vec![format!("{file}: lacks #![deny(unsafe_code)]")]
    }
}

/// Complaint about a file that leaves the effect fence and is no effect module.
pub(crate) fn effect_fence(file: &str, text: &str, effects: &[&str]) -> Vec<String> {
    // A file of tests may try everything.
    if listed(file, effects) || file.ends_with("/tests.rs") {
        return Vec::new();
    }
    let tokens = lex::without_tests(&lex::tokens(text));
    allows(&tokens, "disallowed_methods")
        .map(|line| format!("{file}:{line}: allows effects, and is no effect module"))
        .into_iter()
        .collect()
}

/// The line on which `#[allow(…)]` or `#[expect(…)]` names the lint.
fn allows(tokens: &[lex::Token], lint: &str) -> Option<usize> {
    let mut inside = false;
    for (i, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "allow" | "expect" => inside = tokens.get(i + 1).is_some_and(|t| t.text == "("),
            ")" => inside = false,
            text if inside && text == lint => return Some(token.line),
            _ => {}
        }
    }
    None
}

/// Complaints about words that have no place in a finished tree.
pub(crate) fn words(file: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(word) = words.find(|w| MARKERS.contains(w)) {
            complaints.push(format!(
                "{file}:{}: `{word}`: do it, or open an issue",
                i + 1
            ));
        }
        if line.contains(OUTSIDE) {
            complaints.push(format!(
                "{file}:{}: refers to something outside the tree",
                i + 1
            ));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_refused_unless_it_is_a_table() {
        let long = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(
            size("src/a.rs", &"x\n".repeat(MAX_LINES), &[]),
            Vec::<String>::new()
        );
        assert_eq!(size("src/a.rs", &long, &[]).len(), 1);
        assert_eq!(size("src/a.rs", &long, &["src/a.rs"]), Vec::<String>::new());
    }

    #[test]
    fn the_c_librarys_bound_is_refused() {
        let text = "fn f() { listen(&s, Backlog::new(4096)?) }";
        assert_eq!(backlog("src/f.rs", text).len(), 1);
        assert!(backlog("tests/f.rs", text).is_empty());
        assert!(backlog("src/f.rs", "fn f() { listen(&s, 4096) } // Backlog").is_empty());
    }

    #[test]
    fn a_hollow_name_is_refused() {
        assert_eq!(name("base/src/plan/mounts.rs"), Vec::<String>::new());
        assert_eq!(name("src/utils.rs").len(), 1);
        assert_eq!(name("tests/common/mod.rs").len(), 1);
    }

    #[test]
    fn unsafe_is_refused_outside_sys() {
        let text = "// unsafe\nfn f() { unsafe { g(\"unsafe\") } }";
        assert_eq!(
            unsafe_code("base/src/sys/fds.rs", text),
            Vec::<String>::new()
        );
        assert_eq!(
            unsafe_code("chaperon/shim/src/sys.rs", text),
            Vec::<String>::new()
        );
        assert_eq!(unsafe_code("chaperon/wire/src/sys.rs", text).len(), 1);
        assert_eq!(
            unsafe_code("src/launch.rs", text),
            ["src/launch.rs:2: `unsafe` outside sys"]
        );
        assert_eq!(
            unsafe_code("src/init.rs", "#![allow(dead_code, unsafe_code)]").len(),
            1
        );
        assert_eq!(
            unsafe_code("src/init.rs", "#![deny(unsafe_code)]"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_root_without_the_attribute_is_refused() {
        assert_eq!(
            refuses_unsafe("src/lib.rs", "#![deny(unsafe_code)]"),
            Vec::<String>::new()
        );
        assert_eq!(
            refuses_unsafe("src/lib.rs", "// #![deny(unsafe_code)]").len(),
            1
        );
        assert_eq!(
            refuses_unsafe("src/lib.rs", "#![allow(unsafe_code)]").len(),
            1
        );
    }

    #[test]
    fn effects_are_refused_outside_the_effect_modules() {
        let text = "#![allow(clippy::disallowed_methods)]";
        assert_eq!(
            effect_fence("src/launch.rs", text, &["src/launch.rs"]),
            Vec::<String>::new()
        );
        assert_eq!(
            effect_fence("base/src/sys/fds.rs", text, &["base/src/sys/"]),
            Vec::<String>::new()
        );
        assert_eq!(
            effect_fence("base/src/plan/mounts.rs", text, EFFECTS).len(),
            1
        );
        let in_tests = "#[cfg(test)] mod tests { #![allow(clippy::disallowed_methods)] }";
        assert_eq!(
            effect_fence("base/src/plan/mounts.rs", in_tests, EFFECTS),
            Vec::<String>::new()
        );
        assert_eq!(
            effect_fence("base/src/plan/mounts/tests.rs", text, EFFECTS),
            Vec::<String>::new()
        );
    }

    #[test]
    fn promises_and_the_outside_are_refused() {
        assert_eq!(
            words("a.md", "a todo list, mktemp /tmp/a.XXXXXX"),
            Vec::<String>::new()
        );
        for marker in MARKERS {
            assert_eq!(words("a.rs", &format!("x\n// {marker}: y")).len(), 1);
        }
        assert_eq!(words("a.md", &format!("see {OUTSIDE}/x")).len(), 1);
    }
}
