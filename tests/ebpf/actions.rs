//! Every kind of event: the probe does it, and the trail has a record of it.

use crate::machine::Transcript;
use crate::trail::{Trail, actor, brief};
use crate::{Machine, TRACEPOINTS, on_each_with, reports, unless};

/// What the trail has of an action.
#[derive(Clone, Copy)]
enum Seen {
    /// A record like this: parts of it, in their order.
    As(&'static [&'static str]),
    /// Nothing like the other object's record; a sentence of the header says so, with this word in it.
    Blind(&'static str),
}

/// An action, what it comes to, and what the trail has of it: with trampolines, with tracepoints.
struct Row {
    action: &'static str,
    result: &'static str,
    trampolines: &'static [&'static str],
    tracepoints: Seen,
}

const fn ok(action: &'static str, seen: &'static [&'static str]) -> Row {
    fails(action, "ok", seen)
}

const fn fails(action: &'static str, result: &'static str, seen: &'static [&'static str]) -> Row {
    Row {
        action,
        result,
        trampolines: seen,
        tracepoints: Seen::As(seen),
    }
}

impl Row {
    /// It looks otherwise with tracepoints.
    const fn or(mut self, seen: &'static [&'static str]) -> Self {
        self.tracepoints = Seen::As(seen);
        self
    }

    /// Tracepoints do not show it.
    const fn blind(mut self, word: &'static str) -> Self {
        self.tracepoints = Seen::Blind(word);
        self
    }
}

/// What an ordinary user does.
const ACTIONS: &[Row] = &[
    // Programs.
    ok("exec", &["exec allowed", "/usr/bin/busybox", "true exec"]),
    ok(
        "exec-fd",
        &["exec allowed", "/usr/bin/busybox", "true exec-fd"],
    ),
    ok(
        "exec-link",
        &["exec allowed", "/usr/bin/busybox", "true exec-link"],
    ),
    ok(
        "exec-memfd",
        &["exec allowed", "memfd:in-memory", "true exec-memfd"],
    ),
    ok("exec-script", &["exec allowed", "/srv/t/script"]),
    fails(
        "exec-denied",
        "EACCES",
        &["denied by permissions EACCES", "/srv/t/no-program"],
    )
    .or(&["denied EACCES", "/srv/t/no-program"]),
    // Nobody asked for what is missing: see below.
    fails("exec-missing", "ENOENT", &[]),
    fails("exec-format", "ENOEXEC", &["/srv/t/not-executable"]),
    ok(
        "exec-thread",
        &["exec allowed", "/usr/bin/busybox", "true exec-thread"],
    ),
    ok(
        "exec-vfork",
        &["exec allowed", "/usr/bin/busybox", "true exec-vfork"],
    ),
    ok(
        "exec-long",
        &["exec allowed", "/usr/bin/busybox", "true exec-long xxxx"],
    ),
    ok(
        "exec-secret",
        &[
            "exec allowed",
            "/usr/bin/busybox",
            "true exec-secret",
            "[redacted]",
        ],
    ),
    // The first argument is longer than what there is room for.
    ok(
        "fg-arguments",
        &["exec allowed", "xxx [...]", "fg-arguments"],
    ),
    // Files.
    ok("open", &["open allowed: /srv/t/open (read)"]),
    ok("openat", &["open allowed: /srv/t/openat (read)"]),
    ok("openat2", &["open allowed: /srv/t/openat2 (read)"]),
    ok(
        "creat",
        &["open allowed: /srv/t/creat (write,create,truncate)"],
    ),
    ok(
        "create",
        &["open allowed: /srv/t/create (read,write,create,exclusive)"],
    ),
    ok(
        "truncate",
        &["open allowed: /srv/t/truncate (write,truncate)"],
    ),
    ok("append", &["open allowed: /srv/t/append (write,append)"]),
    ok(
        "directory",
        &["open allowed: /srv/t/inner (read,directory)"],
    ),
    ok("temporary", &["open allowed: ", "temporary"]),
    ok("relative", &["open allowed: /srv/t/inner/relative (read)"]),
    ok("dots", &["open allowed: /srv/t/dots (read)"]),
    ok("linked", &["open allowed: /srv/t/linked (read)"]),
    ok("descriptor", &["open allowed: /srv/t/descriptor (read)"]),
    ok(
        "strange",
        &["open allowed: /srv/t/strange\\x0a\\x01\\xff\"\\\\name (read)"],
    ),
    ok("device", &["open allowed: /dev/zero (read)"]),
    ok(
        "deep",
        &["open allowed: /srv/t/0123456789", "/deep (write,create)"],
    ),
    ok("deeper", &["open allowed: ", "deeper (write,create)"]),
    ok("often", &["open allowed: /srv/t/often (read)"]),
    ok("i386", &["open allowed: /srv/t/i386 (read)"]),
    ok("deleted", &["open allowed: /srv/t/deleted", "(read"]),
    ok("memory", &["open allowed: ", "memfd:memory", "(read"]),
    ok("bound", &["open allowed: /srv/mount/bound (read)"]),
    ok("rooted", &["open allowed: ", "/rooted (read)"]),
    // Opens that fail.
    fails(
        "mode",
        "EACCES",
        &["open denied by permissions EACCES: /srv/t/mode (read)"],
    )
    .or(&["open denied EACCES: /srv/t/mode (read)"]),
    fails(
        "above",
        "EACCES",
        &["open denied by permissions EACCES: /srv/t/closed/above (read)"],
    )
    .or(&["open denied EACCES: /srv/t/closed/above (read)"]),
    fails(
        "rdonly",
        "EROFS",
        &["open denied by permissions EROFS: /srv/rdonly/rdonly (write)"],
    ),
    fails(
        "rdonly-create",
        "EROFS",
        &["open denied by permissions EROFS: /srv/rdonly/new (write,create)"],
    ),
    fails(
        "not-mine",
        "EACCES",
        &["open denied by permissions EACCES: /srv/not-mine (write,create)"],
    )
    .or(&["open denied EACCES: /srv/not-mine (write,create)"]),
    fails(
        "landlock",
        "EACCES",
        &["open denied by security_module EACCES: /srv/t/landlock (read)"],
    )
    .or(&["open denied", "EACCES: /srv/t/landlock (read)"]),
    // io_uring.
    ok("ring-open", &["open allowed: /srv/t/ring-open (read)"]).blind("io_uring"),
    ok("ring-async", &["open allowed: /srv/t/ring-async (read)"]).blind("io_uring"),
    ok("ring-polled", &["open allowed: /srv/t/ring-polled (read)"]).blind("io_uring"),
    ok("ring-both", &["open allowed: /srv/t/ring-both (read)"]).blind("io_uring"),
    fails(
        "ring-denied",
        "EACCES",
        &["open denied by permissions EACCES: /srv/t/ring-denied (read)"],
    )
    .blind("io_uring"),
    ok(
        "ring-connect",
        &["connect allowed: unix stream /srv/keeper/socket"],
    )
    .blind("io_uring"),
    // Sockets.
    ok("inet", &["connect allowed: inet stream 127.0.0.1:20000"]),
    ok("inet6", &["connect allowed: inet6 stream [::1]:20001"]),
    ok("unix", &["connect allowed: unix stream /srv/t/connected"]),
    ok("abstract", &["connect allowed: unix stream @ebpf-abstract"]),
    fails(
        "refused",
        "ECONNREFUSED",
        &["connect ", "inet stream 127.0.0.1:9"],
    ),
    ok(
        "udp-connect",
        &["connect allowed: inet dgram 127.0.0.1:20002"],
    ),
    ok(
        "udp-sendto",
        &["connect allowed: inet dgram 127.0.0.1:20003"],
    ),
    ok(
        "udp-sendmsg",
        &["connect allowed: inet dgram 127.0.0.1:20004"],
    ),
    ok(
        "udp-sendmmsg",
        &["connect allowed: inet dgram 127.0.0.1:20005"],
    ),
    ok(
        "unix-sendto",
        &["connect allowed: unix dgram /srv/t/datagrams"],
    ),
    ok(
        "fast-open",
        &["connect allowed: inet stream 127.0.0.1:20006"],
    ),
    ok(
        "listen-inet",
        &["listen allowed: inet stream 127.0.0.1:20010"],
    ),
    ok(
        "listen-inet6",
        &["listen allowed: inet6 stream [::1]:20011"],
    ),
    ok(
        "listen-unix",
        &["listen allowed: unix stream /srv/t/listening"],
    ),
    ok(
        "listen-abstract",
        &["listen allowed: unix stream @ebpf-abstract-listening"],
    ),
    // Operations.
    ok("op-ptrace", &["ptrace allowed"]),
    ok("op-traceme", &["ptrace allowed"]),
    ok("op-mount", &["mount allowed", "/srv/mount"]),
    ok("op-umount", &["umount allowed", "/srv/mount"]),
    fails("op-pivot", "EINVAL", &["pivot_root "]),
    ok("op-unshare", &["unshare allowed"]),
    ok("op-clone", &["unshare allowed"]),
    ok("op-setns", &["setns allowed"]),
    fails("op-bpf", "EPERM", &["bpf "]),
    ok("op-keyctl", &["keyctl allowed"]),
    ok("op-add-key", &["keyctl allowed"]),
    fails("op-request-key", "ENOKEY", &["keyctl "]),
    ok("op-kill", &["kill allowed", "SIGCONT"]),
    ok("op-vm", &["process_vm allowed"]),
    ok(
        "op-link",
        &["link allowed", "/srv/t/link", "/srv/t/inner/linked"],
    ),
    ok(
        "op-rename",
        &["rename allowed", "/srv/t/rename", "/srv/t/inner/renamed"],
    ),
    ok(
        "op-exchange",
        &[
            "rename allowed",
            "/srv/t/exchange",
            "/srv/t/inner/exchanged",
        ],
    ),
    ok("op-chmod", &["chmod allowed", "/srv/t/set-id"]),
    ok("op-fchmod", &["chmod allowed"]),
    ok(
        "op-truncate",
        &["open allowed: /srv/t/op-cut (write,truncate)"],
    ),
    fails(
        "op-cut-not",
        "EACCES",
        &["open denied EACCES: /usr/bin/busybox (write,truncate)"],
    ),
    ok("op-unlink", &["unlink allowed", "/srv/t/op-old"]),
    ok("op-unlinkat", &["unlink allowed", "/srv/t/inner/op-gone"]),
    ok(
        "op-unlink-here",
        &["unlink allowed", "/srv/t/inner/op-gone-here"],
    ),
    fails(
        "op-unlink-not",
        "EACCES",
        &["unlink denied EACCES", "/usr/bin/busybox"],
    ),
    ok("op-rmdir", &["mkdir allowed", "/srv/t/op-made"]),
    ok("op-rmdir", &["rmdir allowed", "/srv/t/op-made"]),
    fails("op-rmdir-not", "EACCES", &["rmdir denied EACCES", "/srv/t"]),
    ok(
        "op-symlink",
        &["symlink allowed", "/srv/t/op-symlink", "to/nowhere"],
    ),
    ok("op-pipe", &["mknod allowed", "/srv/t/op-pipe"]),
    ok("op-bind", &["mknod allowed", "/srv/t/op-socket"]),
    // An address that changes while the call waits.
    ok(
        "fg-changed",
        &["connect allowed: inet stream 127.0.0.1:20030"],
    ),
    ok(
        "fg-unmapped",
        &["connect allowed: inet stream 127.0.0.1:20031"],
    ),
    fails("op-raw", "EPERM", &["raw_socket "]),
    fails("op-packets", "EPERM", &["raw_socket "]),
    ok("op-uffd", &["userfaultfd allowed"]),
    ok("op-ring", &["io_uring allowed"]),
    ok("op-userns", &["user_namespace allowed"]).or(&["unshare allowed"]),
    ok("exec-memfd", &["memfd_exec allowed", "memfd:in-memory"]),
];

/// What only root may, in a trace of root's.
const OF_ROOT: &[Row] = &[
    ok("handle", &["open allowed: /srv/t/handle (read)"]),
    ok("mount", &["mount allowed", "/srv/mounted"]),
    ok("umount", &["umount allowed", "/srv/mounted"]),
    fails("module", "ENOEXEC", &["module_load "]),
    fails("module-file", "ENOEXEC", &["module_load "]),
    ok("packets", &["raw_socket allowed"]),
    ok("raw", &["raw_socket allowed"]),
    ok("seteuid", &["setuid allowed"]),
    ok("seteuid", &["open allowed: /srv/t/seteuid (read)"]),
    ok("setegid", &["setgid allowed"]),
    ok("setuid", &["other_user"]),
    ok("chrooted", &["open allowed: ", "/chrooted (read)"]),
    fails("root-bpf", "EINVAL", &["bpf "]),
];

/// What must not be in a trail, and why.
const NEVER: &[(&str, &str, &str)] = &[
    ("actions", "op-kill-own", "kill "), // to itself: the trace's own
    ("actions", "exec-missing", "/srv/t/missing-program"),
    ("actions", "missing", "/srv/t/missing"), // nobody asked for what is missing
    ("root", "setuid", "/srv/t/setuid"),      // another user's by then
];

fn contains(text: &str, parts: &[&str]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// Whether the trail has such a record, of the action's process, of the program that this has become, or of
/// a worker of the kernel's.
fn has(trail: &Trail, action: &str, parts: &[&str]) -> bool {
    let elsewhere =
        action.starts_with("exec") || action.starts_with("ring") || action == "fg-arguments";
    trail.records.iter().any(|record| {
        let of_action = actor(&record.what).is_some_and(|actor| actor.comm == action);
        (of_action || elsewhere) && contains(&brief(&record.what), parts)
    })
}

fn judge(machine: &Machine, said: &Transcript, session: &str, rows: &[Row]) -> Vec<String> {
    let (results, mut wrong) = reports(said, session);
    let (trail, complaints) = Trail::of(said, session);
    wrong.extend(complaints);
    wrong.extend(unless(trail.ended(), || {
        format!("{session}: the trail has no end")
    }));
    for row in rows {
        let result = results.get(row.action).copied().unwrap_or("not done");
        wrong.extend(unless(result == row.result, || {
            format!("{}: {result}, wanted {}", row.action, row.result)
        }));
        let seen = if machine.object == TRACEPOINTS {
            row.tracepoints
        } else {
            Seen::As(row.trampolines)
        };
        match seen {
            Seen::As(parts) => wrong.extend(unless(has(&trail, row.action, parts), || {
                trail.lacks(row.action, &parts.join(" … "))
            })),
            Seen::Blind(word) => {
                wrong.extend(unless(!has(&trail, row.action, row.trampolines), || {
                    format!("{} is seen here", row.action)
                }));
                wrong.extend(unless(trail.blind().contains(word), || {
                    format!("{} is not seen, and the header does not say so", row.action)
                }));
            }
        }
    }
    let never = NEVER.iter().filter(|(of, ..)| *of == session);
    for (_, action, part) in never {
        wrong.extend(unless(!has(&trail, action, &[part]), || {
            format!("{action}: {part} is recorded")
        }));
    }
    wrong
}

#[test]
fn every_kind_of_event_is_recorded() {
    on_each_with("actions", "events", |machine, said| {
        judge(machine, said, "actions", ACTIONS)
    });
}

#[test]
fn what_root_does_is_recorded_until_it_is_another_user() {
    on_each_with("actions", "events of root", |machine, said| {
        judge(machine, said, "root", OF_ROOT)
    });
}

#[test]
fn a_hundred_opens_of_a_file_are_one_record_that_counts_them() {
    on_each_with("actions", "counts", |_, said| {
        let (trail, mut wrong) = Trail::of(said, "actions");
        let counts: Vec<u64> = trail.opens("/srv/t/often").map(|how| how.count).collect();
        let good = counts.iter().sum::<u64>() == 100 && counts.len() <= 3;
        wrong.extend(unless(good, || format!("counts {counts:?}")));
        wrong
    });
}

#[test]
fn what_is_missing_is_recorded_where_it_is_asked_for() {
    on_each_with("actions", "what is missing", |_, said| {
        let (trail, mut wrong) = Trail::of(said, "missing");
        for (path, error) in [
            ("/srv/t/missing", "ENOENT"),
            ("/srv/t/open/notdir", "ENOTDIR"),
        ] {
            let found = trail
                .opens(path)
                .any(|how| how.verdict == "failed" && how.error.as_deref() == Some(error));
            wrong.extend(unless(found, || format!("no open of {path} with {error}")));
        }
        wrong
    });
}

/// A filter of the process's own, or who traces it, answers calls: none of them has happened.
#[test]
fn what_has_not_run_is_not_said_to_have() {
    on_each_with("actions", "forged records", |machine, said| {
        let (trail, mut wrong) = Trail::of(said, "actions");
        for action in ["fg-answered", "fg-first", "fg-emulated"] {
            for what in trail.of_action(action) {
                let brief = brief(what);
                let forged = [
                    "setuid",
                    "mount",
                    "module_load",
                    "203.0.113.66",
                    "forged",
                    "/etc/emulated",
                ];
                let happened =
                    brief.contains("allowed") && forged.iter().any(|part| brief.contains(part));
                wrong.extend(unless(!happened, || format!("{action}: {brief}")));
            }
            let seen = trail
                .of_action(action)
                .any(|what| contains(&brief(what), &["setuid not_run by seccomp"]));
            wrong.extend(unless(seen || machine.object != TRACEPOINTS, || {
                trail.lacks(action, "setuid not_run by seccomp")
            }));
        }
        wrong
    });
}

/// seccomp ends a call before any of the kernel's functions that trampolines are on.
#[test]
fn what_seccomp_denies_is_seen_at_the_end_of_calls_or_said_to_be_missing() {
    on_each_with("actions", "seccomp", |_, said| {
        let (trail, mut wrong) = Trail::of(said, "actions");
        let seen = trail
            .of_action("seccomp")
            .any(|what| contains(&brief(what), &["denied by seccomp EPERM"]));
        wrong.extend(unless(seen || trail.blind().contains("seccomp"), || {
            trail.lacks(
                "seccomp",
                "denial by seccomp, and no word of it in the header",
            )
        }));
        wrong
    });
}
