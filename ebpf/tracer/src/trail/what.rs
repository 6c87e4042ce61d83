//! What an event says, in words and without secrets.

use agent_sandbox_events::raw::{self, About, By, Event, Head, Kind, OPERATIONS, flags};
use agent_sandbox_events::record::{Actor, Exec, Exit, Open, Operation, Peer, Verdict, What};
use agent_sandbox_events::text;

use super::hidden::Hidden;
use super::redact::Redaction;
use super::words::{self, address, operation};

/// The record of so many events that are alike. Without a redaction, because its user has no time left for it, texts that
/// can hold secrets are left out.
pub(super) fn what(
    event: &Event<'_>,
    redaction: Option<&Redaction>,
    hidden: &Hidden,
    count: u64,
) -> What {
    let head = &event.head;
    let actor = actor(head);
    match event.about {
        About::Life if head.kind == Kind::Exit => What::Exit(exit(head, actor)),
        About::Life => What::Fork(actor),
        About::Exec {
            path,
            arguments,
            total,
        } => {
            let whole = usize::try_from(total).unwrap_or(usize::MAX) <= arguments.len();
            What::Exec(Exec {
                actor,
                path: text::escape(&Redaction::path(&raw::turned(path, head.flags))),
                arguments: match redaction {
                    Some(redaction) if whole => words_of(arguments, redaction, false),
                    Some(redaction) => head_and_tail(arguments, redaction),
                    None => vec![MISSING.to_string()],
                },
                verdict: verdict(head, count, !whole || redaction.is_none()),
                set_id: head.flags & flags::SET_ID != 0,
            })
        }
        About::Open {
            path,
            inode,
            device,
            open_flags,
            mode: _,
        } => What::Open(Open {
            actor,
            path: text::escape(&Redaction::path(&raw::turned(path, head.flags))),
            access: words::access(open_flags),
            hidden: opens_hidden(event, hidden),
            device: words::device(device),
            inode,
            verdict: verdict(head, count, false),
        }),
        About::Address {
            family,
            kind,
            protocol,
            address,
        } => {
            let peer = Peer {
                actor,
                family: address::family(family),
                kind: address::kind(kind),
                address: address::address(family, protocol, &Redaction::address(family, address)),
                host: None,
                verdict: verdict(head, count, false),
            };
            match head.kind {
                Kind::Listen => What::Listen(peer),
                _ => What::Connect(peer),
            }
        }
        About::Operation {
            what,
            numbers,
            path,
            other,
        } => {
            // The source of a mount can hold a password: `//user:password@server/share`.
            let operation = OPERATIONS.get(what as usize).copied();
            let mounted = operation == Some("mount");
            // What a symbolic link says, or a file system's type, is no path that the kernel walked.
            let walked = matches!(operation, Some("link" | "rename"));
            let named = |path: &[u8], other: bool| {
                let path = if other && !walked {
                    path.to_vec()
                } else {
                    raw::turned(path, head.flags)
                };
                let path = match redaction {
                    Some(redaction) if other && mounted => redaction.text(&path),
                    None if other && mounted => MISSING.as_bytes().to_vec(),
                    _ => Redaction::path(&path),
                };
                text::escape(&path)
            };
            What::Operation(Operation {
                actor,
                operation: operation::name(what),
                detail: operation::detail(what, numbers),
                path: (!path.is_empty()).then(|| named(path, false)),
                other: (!other.is_empty()).then(|| named(other, true)),
                verdict: verdict(head, count, false),
            })
        }
    }
}

/// So many events of a record were denied, or were attempts on what is hidden. What a mediator answers in the kernel's place
/// is denied only if its answer says so.
pub(super) fn denied(what: &What) -> u64 {
    let (verdict, hidden) = match what {
        What::Open(open) => (&open.verdict, open.hidden),
        What::Exec(exec) => (&exec.verdict, false),
        What::Connect(peer) | What::Listen(peer) => (&peer.verdict, false),
        What::Operation(operation) => (&operation.verdict, false),
        _ => return 0,
    };
    let answered = verdict.by.as_deref() == Some("seccomp")
        && !matches!(verdict.error.as_deref(), Some("EACCES" | "EPERM" | "EROFS"));
    if hidden || (verdict.verdict == "denied" && !answered) {
        verdict.count
    } else {
        0
    }
}

fn actor(head: &Head) -> Actor {
    Actor {
        pid: head.pid,
        tid: (head.tid != head.pid).then_some(head.tid),
        ppid: head.ppid,
        comm: text::escape(head.command()),
        cgroup: head.cgroup,
        worker: head.flags & flags::WORKER != 0,
    }
}

/// The wait status (`wait(2)`): a signal's number in the low seven bits, or an exit code above them.
fn exit(head: &Head, actor: Actor) -> Exit {
    let signal = u64::from(head.result.cast_unsigned() & 0x7f);
    Exit {
        actor,
        code: (signal == 0).then_some((head.result >> 8) & 0xff),
        signal: (signal != 0).then(|| words::signal(signal)),
    }
}

/// Stands where arguments are missing.
const MISSING: &str = "[...]";

/// Arguments of which the middle is missing, redacted. What stands next to the gap can be the rest of a secret, or
/// its value while the name is in the gap: so the rest of one argument behind it and the next one are left out.
/// Which of the others are secrets depends on the program, and on what stands in the head.
fn head_and_tail(arguments: &[u8], redaction: &Redaction) -> Vec<String> {
    let Some((head, tail)) = arguments.split_at_checked(raw::ARGUMENT_HEAD) else {
        return words_of(arguments, redaction, true);
    };
    let mut words = words_of(head, redaction, true);
    words.push(MISSING.to_string());
    let tail = tail.splitn(3, |byte| *byte == 0).nth(2).unwrap_or_default();
    if !tail.is_empty() {
        let before = head.iter().rposition(|byte| *byte == 0).unwrap_or(0);
        let whole = [&head[..before], tail].join(&0);
        let count = tail.split(|byte| *byte == 0).count() - usize::from(tail.ends_with(&[0]));
        let shown = words_of(&whole, redaction, false);
        words.extend_from_slice(&shown[shown.len().saturating_sub(count)..]);
    }
    words
}

/// Arguments with zeros between them, redacted.
pub(super) fn words_of(arguments: &[u8], redaction: &Redaction, cut: bool) -> Vec<String> {
    if arguments.is_empty() {
        return Vec::new();
    }
    let arguments = arguments.strip_suffix(&[0]).unwrap_or(arguments);
    let words: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
    let shown = redaction.arguments(&words, cut);
    shown.iter().map(|word| text::escape(word)).collect()
}

/// How a call ends within the kernel that a signal interrupts: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND,
/// ERESTART_RESTARTBLOCK (`include/linux/errno.h`). The process sees EINTR, or the call is made again.
const INTERRUPTED: [i32; 4] = [512, 513, 514, 516];

/// How it went. Permissions, a security module, the tracer and seccomp deny; an error without a known
/// cause is a denial where the error says so, else a failure. A connection that is being made is no failure:
/// nor is one of which a signal ends the waiting, for the kernel goes on making it (`connect(2)`, EINTR).
/// What seccomp answers the kernel has not run, whatever the answer is: only one that refuses is a denial.
fn verdict(head: &Head, count: u64, cut: bool) -> Verdict {
    let number = head.result.checked_neg().unwrap_or(i32::MAX);
    let refusal = matches!(number, libc::EACCES | libc::EPERM | libc::EROFS);
    let refused_early = refusal || matches!(number, libc::ENOSYS | libc::EAFNOSUPPORT);
    let interrupted =
        head.kind == Kind::Connect && (number == libc::EINTR || INTERRUPTED.contains(&number));
    let pending = interrupted
        || head.kind == Kind::Connect && matches!(number, libc::EINPROGRESS | libc::EALREADY);
    let verdict = match head.by {
        By::Seccomp if head.result < 0 && refused_early => "denied",
        By::Seccomp => "not_run",
        _ if head.result == 0 && head.flags & flags::WOULD_DENY != 0 => "would_deny",
        _ if head.result >= 0 || pending => "allowed",
        By::SecurityModule | By::Tracer => "denied",
        By::Permissions | By::Nobody if refusal => "denied",
        By::Permissions | By::Nobody => "failed",
    };
    let by = match head.by {
        By::Nobody => None,
        By::Permissions => Some("permissions"),
        By::SecurityModule => Some("security_module"),
        By::Tracer => Some("tracer"),
        By::Seccomp => Some("seccomp"),
    };
    let weak = [
        (head.flags & flags::UNRESOLVED != 0, "unresolved"),
        (head.flags & flags::FROM_USER != 0, "from_user"),
        (head.flags & flags::TRUNCATED != 0 || cut, "truncated"),
        (head.flags & flags::TAIL != 0, "tail"),
        (head.flags & flags::BEGUN_BEFORE != 0, "begun_before"),
    ];
    Verdict {
        verdict: verdict.to_string(),
        by: by.filter(|_| verdict != "allowed").map(str::to_string),
        error: (head.result < 0)
            .then(|| words::error(if interrupted { libc::EINTR } else { number })),
        count,
        weak: weak
            .iter()
            .filter(|row| row.0)
            .map(|row| row.1.to_string())
            .collect(),
    }
}

/// Whether it is an open of what does not exist.
pub(super) fn missing(event: &Event<'_>) -> bool {
    event.head.kind == Kind::Open
        && matches!(
            event.head.result.checked_neg(),
            Some(libc::ENOENT | libc::ENOTDIR)
        )
}

/// Whether it is an open of what is hidden.
pub(super) fn opens_hidden(event: &Event<'_>, hidden: &Hidden) -> bool {
    match event.about {
        About::Open { path, .. } => hidden.holds(&raw::turned(path, event.head.flags)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: Kind) -> Head {
        Head {
            kind,
            by: By::Nobody,
            flags: 0,
            time: 0,
            cgroup: 7,
            trace: 1,
            pid: 10,
            tid: 11,
            ppid: 9,
            uid: 1000,
            result: 0,
            comm: *b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            cpu: 0,
        }
    }

    fn said(head: Head, about: About<'_>) -> serde_json::Value {
        let event = Event { head, about };
        serde_json::to_value(what(
            &event,
            Some(&Redaction::default()),
            &Hidden::default(),
            1,
        ))
        .unwrap()
    }

    fn went(result: i32, by: By, flags: u16) -> (String, Option<String>, Option<String>) {
        let head = Head {
            result,
            by,
            flags,
            ..head(Kind::Open)
        };
        let verdict = verdict(&head, 1, false);
        (verdict.verdict, verdict.by, verdict.error)
    }

    #[test]
    fn who_denied_is_said() {
        let some = |text: &str| Some(text.to_string());
        assert_eq!(went(0, By::Nobody, 0), ("allowed".into(), None, None));
        assert_eq!(
            went(-2, By::Permissions, 0),
            ("failed".into(), some("permissions"), some("ENOENT"))
        );
        assert_eq!(
            went(-13, By::Permissions, 0),
            ("denied".into(), some("permissions"), some("EACCES"))
        );
        assert_eq!(
            went(-13, By::Nobody, 0),
            ("denied".into(), None, some("EACCES"))
        );
        assert_eq!(
            went(-2, By::SecurityModule, 0),
            ("denied".into(), some("security_module"), some("ENOENT"))
        );
        assert_eq!(
            went(-1, By::Tracer, 0),
            ("denied".into(), some("tracer"), some("EPERM"))
        );
        assert_eq!(
            went(-38, By::Seccomp, 0),
            ("denied".into(), some("seccomp"), some("ENOSYS"))
        );
        assert_eq!(
            went(0, By::Tracer, flags::WOULD_DENY),
            ("would_deny".into(), some("tracer"), None)
        );
        assert_eq!(went(i32::MIN, By::Nobody, 0).0, "failed");
        // What the kernel has not run is neither allowed nor failed.
        for result in [0, -libc::ECONNREFUSED, -libc::EINPROGRESS, -libc::EINTR] {
            for kind in [Kind::Open, Kind::Connect, Kind::Operation] {
                let head = Head {
                    result,
                    by: By::Seccomp,
                    ..head(kind)
                };
                let verdict = verdict(&head, 1, false);
                assert_eq!(verdict.verdict, "not_run", "{result}");
                assert_eq!(verdict.by.as_deref(), Some("seccomp"));
            }
        }
        let connecting = Head {
            result: -115,
            ..head(Kind::Connect)
        };
        assert_eq!(verdict(&connecting, 1, false).verdict, "allowed");
    }

    #[test]
    fn a_connection_that_a_signal_interrupts_is_being_made() {
        for number in [libc::EINTR, 512, 513, 514, 516] {
            let head = |kind| Head {
                result: -number,
                ..head(kind)
            };
            let connect = verdict(&head(Kind::Connect), 1, false);
            assert_eq!(connect.verdict, "allowed", "{number}");
            assert_eq!(connect.error.as_deref(), Some("EINTR"), "{number}");
            assert_eq!(verdict(&head(Kind::Open), 1, false).verdict, "failed");
        }
        let other = Head {
            result: -libc::ECONNREFUSED,
            ..head(Kind::Connect)
        };
        assert_eq!(verdict(&other, 1, false).verdict, "failed");
    }

    #[test]
    fn an_exec_is_redacted() {
        let about = About::Exec {
            path: b"/bin/x",
            arguments: b"x\0--token\0abc\0",
            total: 14,
        };
        let said = said(head(Kind::Exec), about);
        assert_eq!(
            said["arguments"],
            serde_json::json!(["x", "--token", "[redacted]"])
        );
        assert_eq!(said["tid"], 11);
        assert!(said.get("weak").is_none());
    }

    #[test]
    fn arguments_that_are_cut_off_are_said_to_be() {
        let about = About::Exec {
            path: b"/bin/x",
            arguments: b"x\0ghp_ab",
            total: 100,
        };
        let said = said(head(Kind::Exec), about);
        assert_eq!(
            said["arguments"],
            serde_json::json!(["x", "ghp_[redacted]"])
        );
        assert_eq!(said["weak"], serde_json::json!(["truncated"]));
    }

    #[test]
    fn behind_a_gap_nothing_is_shown_that_could_be_a_secret() {
        let shown = |program: &str, tail: &str| {
            let mut bytes = format!("{program}\0one\0{}", "x".repeat(raw::ARGUMENT_HEAD));
            bytes.truncate(raw::ARGUMENT_HEAD);
            bytes.push_str(tail);
            let about = About::Exec {
                path: b"/bin/x",
                arguments: bytes.as_bytes(),
                total: 100_000,
            };
            let said = said(head(Kind::Exec), about);
            assert_eq!(said["weak"], serde_json::json!(["truncated"]));
            let words = said["arguments"].as_array().unwrap();
            let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
            words[3..].join(" ")
        };
        let sh = |tail| shown("sh", tail);
        assert_eq!(
            sh("rest\0-c\0evil --token=abc\0"),
            "[...] evil --token=[redacted]"
        );
        assert_eq!(sh("oken\0abc\0"), "[...]");
        assert_eq!(sh("abc"), "[...]");
        assert_eq!(sh("a\0b\0--token\0c\0\0d\0"), "[...] --token [redacted]  d");
        // Of which program it is an argument the head says.
        assert_eq!(sh("a\0b\0-pxyzzy\0d\0"), "[...] -pxyzzy d");
        let mysql = shown("mysql", "a\0b\0-pxyzzy\0d\0");
        assert!(!mysql.contains("xyzzy") && mysql.ends_with(" d"), "{mysql}");
    }

    #[test]
    fn empty_arguments_are_arguments() {
        assert_eq!(
            words_of(b"x\0\0y\0", &Redaction::default(), false),
            ["x", "", "y"]
        );
        assert_eq!(
            words_of(b"", &Redaction::default(), false),
            Vec::<String>::new()
        );
    }

    #[test]
    fn the_end_of_a_process() {
        let code = Head {
            result: 3 << 8,
            ..head(Kind::Exit)
        };
        assert_eq!(said(code, About::Life)["code"], 3);
        let killed = Head {
            result: 9,
            ..head(Kind::Exit)
        };
        assert_eq!(said(killed, About::Life)["signal"], "SIGKILL");
    }

    #[test]
    fn keys_in_paths_are_hidden() {
        // Put together here, so that no file of ours holds what looks like a key.
        let path = format!("/tmp/{}{}.json", "ghp_", "A1b2C3d4E5f6G7h8I9j0");
        let open = About::Open {
            path: path.as_bytes(),
            inode: 1,
            device: 1,
            open_flags: 0,
            mode: 0,
        };
        assert_eq!(
            said(head(Kind::Open), open)["path"],
            "/tmp/ghp_[redacted].json"
        );
        let rename = OPERATIONS
            .iter()
            .position(|name| *name == "rename")
            .unwrap();
        let renamed = About::Operation {
            what: u32::try_from(rename).unwrap(),
            numbers: [0, 0, 0],
            path: b"/tmp/a",
            other: path.as_bytes(),
        };
        let other = &said(head(Kind::Operation), renamed)["other"];
        assert_eq!(other, "/tmp/ghp_[redacted].json");
        let exec = About::Exec {
            path: path.as_bytes(),
            arguments: b"x\0",
            total: 2,
        };
        assert_eq!(
            said(head(Kind::Exec), exec)["path"],
            "/tmp/ghp_[redacted].json"
        );
    }

    #[test]
    fn only_what_the_kernel_walked_is_turned() {
        let what = |name: &str| OPERATIONS.iter().position(|known| *known == name).unwrap();
        let reversed = Head {
            flags: flags::REVERSED,
            ..head(Kind::Operation)
        };
        let about = |name: &str| About::Operation {
            what: u32::try_from(what(name)).unwrap(),
            numbers: [0; 3],
            path: b"link\0ada\0home",
            other: b"to/there",
        };
        let symlink = said(reversed, about("symlink"));
        assert_eq!(symlink["path"], "/home/ada/link");
        assert_eq!(symlink["other"], "to/there");
        assert_eq!(said(reversed, about("rename"))["other"], "/to/there");
    }

    #[test]
    fn the_source_of_a_mount_is_redacted() {
        let mount = OPERATIONS.iter().position(|name| *name == "mount").unwrap();
        let about = About::Operation {
            what: u32::try_from(mount).unwrap(),
            numbers: [1, 0, 0],
            path: b"/mnt",
            other: b"smb://me:pw@host/share",
        };
        let said = said(head(Kind::Operation), about);
        assert_eq!(said["path"], "/mnt");
        assert_eq!(said["other"], "smb://me:[redacted]@host/share");
        assert_eq!(said["detail"], "MS_RDONLY");
    }
}
