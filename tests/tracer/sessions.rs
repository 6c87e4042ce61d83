//! A session's trail says what was done in it, and no more.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;

use agent_sandbox_events::record::What;

use crate::deeds::{Deeds, Trail, more};
use crate::site::{Site, WITH_FORKS, strace_works};
use crate::world::World;

/// What is done: programs, files that are read, written, missing and closed, and a connection.
const WORK: &str = r#"#!/bin/bash
cat input.txt > output.txt
cp input.txt copy.txt
mkdir deep; mv copy.txt deep/moved.txt; ln output.txt hard.txt
cat closed.txt no-such-file.txt 2> /dev/null
exec 3<>/dev/tcp/127.0.0.1/PORT && echo hello >&3; exec 3>&-
/usr/bin/python3 -I -S -c 'open("by-python.txt", "w").write("x")'
"#;

/// A world in which that can be done, and where the connection leads.
pub(crate) struct Work {
    listener: TcpListener,
}

impl Work {
    pub(crate) fn new(world: &World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        world.write("work.sh", WORK.replace("PORT", &port.to_string()));
        world.write("input.txt", "input\n");
        world.write("closed.txt", "closed\n");
        let closed = world.project().join("closed.txt");
        std::fs::set_permissions(closed, std::os::unix::fs::PermissionsExt::from_mode(0o0))
            .unwrap();
        Self { listener }
    }

    /// The same under another program that says what is done.
    pub(crate) fn under_strace() -> &'static str {
        "strace -ff -qq -y -o said -e trace=execve,open,openat,openat2,creat,connect ./work.sh"
    }

    /// The trail says what strace says of the same run, both ways.
    #[track_caller]
    pub(crate) fn same(&self, world: &World, trail: &Trail) {
        trail.whole();
        let (mut stream, _) = self.listener.accept().unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello\n");
        let mut theirs = Deeds::by_strace(&world.project().join("said"));
        // Of a script the kernel starts what its first line names.
        assert!(theirs.programs.remove("./work.sh"), "{theirs:?}");
        let shell = std::fs::canonicalize("/bin/bash").unwrap();
        theirs.programs.insert(shell.display().to_string());
        let ours = trail.deeds(|exec| {
            exec.arguments.iter().any(|word| word == "./work.sh") && !exec.path.ends_with("/strace")
        });
        let lists = [
            ("programs", &ours.programs, &theirs.programs),
            ("files", &ours.opened, &theirs.opened),
            ("connections", &ours.connected, &theirs.connected),
        ];
        for (what, ours, theirs) in lists {
            assert!(
                ours == theirs && !ours.is_empty(),
                "{what}: the trail alone has {:?}, strace alone {:?}\n{}",
                more(ours, theirs),
                more(theirs, ours),
                trail.brief()
            );
        }
        assert_eq!(
            ours.refused,
            theirs.refused,
            "refused: the trail alone has {:?}, strace alone {:?}\n{}",
            more(&ours.refused, &theirs.refused),
            more(&theirs.refused, &ours.refused),
            trail.brief()
        );
        self.known(world, trail, &ours);
    }

    /// Whatever strace says: this was done.
    #[track_caller]
    fn known(&self, world: &World, trail: &Trail, deeds: &Deeds) {
        for program in ["cat", "cp", "mkdir", "mv", "ln"] {
            let name = format!("/{program}");
            assert!(
                deeds.programs.iter().any(|path| path.ends_with(&name)),
                "{program}: {deeds:?}"
            );
        }
        let project = world.project().display().to_string();
        let below = |name: &str| format!("{project}/{name}");
        let ours: BTreeSet<&str> = deeds
            .opened
            .iter()
            .filter_map(|path| path.strip_prefix(&format!("{project}/")))
            .collect();
        let files = [
            "by-python.txt",
            "copy.txt",
            "input.txt",
            "output.txt",
            "work.sh",
        ];
        assert_eq!(ours, BTreeSet::from(files), "{}", trail.brief());
        for (name, error) in [("closed.txt", "EACCES"), ("no-such-file.txt", "ENOENT")] {
            let refused = (name.to_owned(), error.to_owned());
            assert!(deeds.refused.contains(&refused), "{refused:?}: {deeds:?}");
        }
        let operation = |name: &str, from: &str, to: &str| {
            let found = trail.records.iter().any(|record| match &record.what {
                What::Operation(operation) => {
                    let ends = |path: &Option<String>, with: &str| {
                        path.as_deref()
                            .is_some_and(|path| path == below(with) || path == with)
                    };
                    operation.operation == name
                        && ends(&operation.path, from)
                        && ends(&operation.other, to)
                }
                _ => false,
            });
            assert!(found, "{name} {from} {to}: {}", trail.brief());
        };
        operation("rename", "copy.txt", "deep/moved.txt");
        operation("link", "output.txt", "hard.txt");
        let written: BTreeSet<&str> = trail
            .records
            .iter()
            .filter_map(|record| match &record.what {
                What::Open(open) if open.access.iter().any(|access| access == "write") => {
                    open.path.strip_prefix(&format!("{project}/"))
                }
                _ => None,
            })
            // Beside strace's own: where a job's output goes is opened for it.
            .filter(|name| !name.starts_with("said.") && *name != "job.txt")
            .collect();
        assert_eq!(
            written,
            BTreeSet::from(["by-python.txt", "copy.txt", "output.txt"])
        );
    }
}

#[test]
fn a_sessions_trail_names_what_it_did() {
    let Some(site) = Site::new("") else { return };
    if !strace_works() {
        return;
    }
    let world = site.alice();
    let work = Work::new(&world);
    world
        .inside(Work::under_strace())
        .set(WITH_FORKS)
        .set("trace.missing=true")
        .set("trace.mode=required")
        .run()
        .good();
    let trail = site.ended("session", |trail| trail.of.session.is_some());
    assert_eq!(trail.of.uid, world.user.uid.as_raw());
    assert_eq!((trail.of.job, &trail.of.step), (None, &None));
    let header = trail.header();
    assert_eq!(header.object, site.service.status().object);
    assert!(
        header.object == "trampolines" || !header.blind.is_empty(),
        "{header:?}"
    );
    work.same(&world, &trail);
}

/// What is hidden does not exist inside: each attempt is in the trail and in the report, marked, whether opens of what does
/// not exist are wanted or not.
#[test]
fn an_attempt_at_what_is_hidden_is_in_the_trail() {
    let Some(site) = Site::new("") else { return };
    let world = site.alice();
    let key = world.home(".ssh/id_rsa").display().to_string();
    let missing = world.home("no-such-file").display().to_string();
    let script = format!("cat {key} {missing}; cd; cat .aws/credentials; true");
    world.inside(&script).run().good();
    let trail = site.ended("session", |trail| trail.of.session.is_some());
    trail.whole();
    let opened = |path: &str| {
        trail.records.iter().find_map(|record| match &record.what {
            What::Open(open) if open.path == path => Some(open),
            _ => None,
        })
    };
    for path in [key.as_str(), ".aws/credentials"] {
        let open = opened(path).unwrap_or_else(|| panic!("{path}\n{}", trail.brief()));
        assert!(open.hidden, "{open:?}");
        assert_eq!(open.verdict.error.as_deref(), Some("ENOENT"), "{open:?}");
    }
    assert!(opened(&missing).is_none(), "{}", trail.brief());
    let session = trail.of.session.clone().unwrap();
    let report = world.launcher(&["report", &session]).good().out();
    assert!(
        report.contains(&format!(
            "  open {key} [key] hidden by the policy (ENOENT)\n"
        )),
        "{report}"
    );
    // With all that is missing, the other one is there, too, and not marked.
    let wanted = world.inside(&script).set("trace.missing=true");
    wanted.run().good();
    let first = trail.of.session.clone();
    let trail = site.ended("second session", |trail| trail.of.session != first);
    let hidden = trail.records.iter().find_map(|record| match &record.what {
        What::Open(open) if open.path == missing => Some(open.hidden),
        _ => None,
    });
    assert_eq!(hidden, Some(false), "{}", trail.brief());
}

/// In a filtered network every host has an address of its own, which says nothing to whoever reads the report.
#[test]
fn a_filtered_sessions_connections_are_reported_by_name() {
    let Some(site) = Site::new("") else { return };
    let world = site.alice();
    world
        .inside("exec 3<>/dev/tcp/nobody.example/443; cat <&3; true")
        .set("network.mode=filtered")
        .set("network.allow=[\"nobody.example\"]")
        .set("trace.mode=required")
        .run()
        .good();
    let trail = site.ended("session", |trail| trail.of.session.is_some());
    trail.whole();
    let connected = trail.records.iter().any(|record| match &record.what {
        What::Connect(peer) => peer.address == "198.18.0.1:443",
        _ => false,
    });
    assert!(connected, "{}", trail.brief());
    let session = trail.of.session.clone().unwrap();
    let report = world.launcher(&["report", &session]).good().out();
    let line = "  nobody.example = 198.18.0.1:443 (inet, stream)";
    assert!(report.contains(line), "{report}");
}

#[test]
fn arguments_that_are_secrets_are_in_no_trail() {
    let settings = "[redact]\npatterns = [\"--of-the-site=*\"]\n";
    let Some(site) = Site::new(settings) else {
        return;
    };
    let world = site.alice();
    let secrets = ["own-51d07a", "site-51d07a", "users-51d07a", "word-51d07a"];
    let [own, sites, users, word] = secrets;
    world
        .inside(&format!(
            "/usr/bin/env true --password={own} --of-the-site={sites} --mine={users} --token {word} kept-51d07a"
        ))
        .set("trace.redact=[\"--mine=*\"]")
        .set("trace.mode=required")
        .run()
        .good();
    let trail = site.ended("session", |trail| trail.of.session.is_some());
    trail.whole();
    let text = trail.brief();
    assert!(text.contains("kept-51d07a"), "{text}");
    // Nor in the files, nor in the header's command.
    let mut files = 0;
    for directory in std::fs::read_dir(site.service.records()).unwrap() {
        for file in std::fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            for secret in secrets {
                assert!(
                    !text.contains(secret),
                    "{secret} is in {}:\n{text}",
                    path.display()
                );
            }
            files += usize::from(text.contains("kept-51d07a"));
        }
    }
    assert!(files > 0, "no file has the trail");
}

/// Whoever's processes are in no session are in no trail, though all pass the same probes.
#[test]
fn nobody_else_is_in_a_trail() {
    let Some(site) = Site::new("") else { return };
    let (alice, bob) = (site.alice(), site.bob());
    bob.write("bobs-own.txt", "bob\n");
    alice.write("outside.txt", "outside\n");
    let running = alice
        .inside("echo up > up.txt; until [ -e over ]; do sleep 0.05; done; cat work-of-hers.txt")
        .set("trace.mode=required")
        .start();
    alice.write("work-of-hers.txt", "hers\n");
    alice.until(crate::world::Side::Inside, "up.txt", "up");
    bob.outside("cat bobs-own.txt").run().good();
    alice.outside("cat outside.txt").run().good();
    alice.write("over", "");
    running.end().good();
    let trail = site.ended("session", |trail| trail.of.session.is_some());
    trail.whole();
    assert!(trail.has_opened("work-of-hers.txt"), "{}", trail.brief());
    assert!(!trail.has_opened("bobs-own.txt") && !trail.has_opened("outside.txt"));
    let uid = alice.user.uid.as_raw();
    assert!(trail.records.iter().all(|record| record.trail.uid == uid));
    assert_eq!(site.trails().len(), 1);
}
