//! `agent-sandbox profile init` where a tracer runs: the run's own trail is a recorder.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};

use crate::call::Call;
use crate::site::{Site, has};
use crate::world::{Side, World};

/// Writes its state, reads what is none of its business, and asks for more. The trail in
/// `src/observe/trail/recorded.jsonl` is of this.
const AGENT: &str = r#"#!/bin/sh
mkdir -p ~/.fakeagent ~/.config/fake ~/.cache/fake ~/results
echo run >> ~/.fakeagent/state
cat ~/.fakeagent/settings
echo x > ~/.config/fake/settings
echo x > ~/.cache/fake/x
echo x > ~/results/x
echo x > ~/.bashrc
echo x > ~/.fake.tmp && mv ~/.fake.tmp ~/.fake.json
cat ~/.ssh/id_rsa ~/.fakerc ~/.api_token
cat /etc/shadow
echo x > /etc/x
true
"#;

/// Runs a command where calls cannot be watched: a process has one filter with a listener at most, and here
/// something around the launcher has it (`seccomp(2)`, EBUSY).
const UNWATCHED: &str = r#"
import ctypes, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
# acct(2), which nobody calls, is handed over.
acct, seccomp = {"x86_64": (163, 317), "aarch64": (89, 277)}[platform.machine()]
words = [(0x20, 0, 0, 0), (0x15, 0, 1, acct), (6, 0, 0, 0x7fc00000), (6, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *word) for word in words))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("words", ctypes.c_void_p)]
listener = libc.syscall(seccomp, 1, 8, ctypes.byref(Program(len(words), ctypes.addressof(text))))
assert listener >= 0, ctypes.get_errno()
os.set_inheritable(listener, True)
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// Files that are not there after the test.
struct Own(Vec<PathBuf>);

impl Own {
    /// The agent's, in the user's home, and its profiles.
    fn new(world: &World) -> Self {
        let own = Self(vec![
            world.home(".fakerc"),
            world.home(".api_token"),
            world.home(".config/agent-sandbox/profiles"),
        ]);
        own.remove();
        for file in &own.0[..2] {
            fs::write(file, "x\n").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }
        world.write("agent.sh", AGENT);
        world.write("unwatched.py", UNWATCHED);
        own
    }

    fn remove(&self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
            let _ = fs::remove_dir_all(path);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.remove();
    }
}

/// How calls are watched.
#[derive(Clone, Copy)]
enum By {
    Calls,
    Trail,
    Both,
}

fn init<'a>(world: &'a World, by: By, name: &str, command: &[&str]) -> Call<'a> {
    let launcher = world.cluster.launcher.to_str().unwrap();
    let project = world.project().display().to_string();
    // Where a user's project is.
    let there = ["/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", &project];
    let unwatched = ["/usr/bin/python3", "unwatched.py"];
    let words: Vec<&str> = match by {
        By::Trail => [&unwatched[..], &[launcher]].concat(),
        By::Both => vec![launcher],
        By::Calls => vec![launcher, "--set", "trace.mode=off"],
    };
    let rest = ["profile", "init", name, "--"];
    let words = [&there[..], &words, &rest, command].concat();
    world.outside("").words(words)
}

fn file(world: &World, name: &str) -> String {
    let path = world.home(&format!(".config/agent-sandbox/profiles/{name}.toml"));
    fs::read_to_string(path).unwrap()
}

/// What is in force of a profile, but its name.
fn given(text: &str) -> BTreeMap<String, toml::Value> {
    let mut table: toml::Table = toml::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let profile = table["profile"].as_table_mut().unwrap();
    profile.remove("description");
    table.into_iter().collect()
}

#[test]
fn a_profile_is_the_same_by_either_recorder() {
    let Some(site) = Site::new("") else { return };
    if !has("python3") {
        return;
    }
    let world = site.alice();
    let _own = Own::new(&world);
    let profile = |by, name: &str| {
        let output = init(&world, by, name, &["sh", "./agent.sh"]).run().good();
        (file(&world, name), output)
    };
    let (calls, _) = profile(By::Calls, "by-calls");
    let (trail, said) = profile(By::Trail, "by-trail");
    let (both, _) = profile(By::Both, "by-both");
    assert!(
        said.err()
            .contains("calls could not be watched here: the file has what the tracer recorded"),
        "{said}"
    );
    for text in [&trail, &both] {
        assert_eq!(given(text), given(&calls), "{text}\n{calls}");
        for line in [
            "the node's tracer (",
            "#   \"/etc/shadow\"  # asked for: hidden, not given; files.hide has /etc/shadow",
            "#   \"/etc/x\"  # asked for: denied",
            "#            by the tracer: ",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("NOT COMPLETE"), "{text}");
    }
    for text in [&calls, &trail, &both] {
        for line in [
            "\"~/.config/fake\",  # written",
            "\"~/.fakeagent\",  # written",
            "\"~/.fake.json\",  # written",
            "\"~/.fakerc\",  # opened",
            "#   \"~/.ssh/id_rsa\"  # opened; files.hide has ~/.ssh\n",
            "#   \"~/.bashrc\"  # written; home.protect has ~/.bashrc\n",
            "#   \"~/.api_token\"  # opened; by its name it may be a secret\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
    assert!(!calls.contains("tracer"), "{calls}");
    assert!(!trail.contains("system calls, by seccomp"), "{trail}");
    // The trail itself is the site's, and has no less for it.
    let trails = site.trails();
    assert_eq!(trails.len(), 2, "the run without a trace has none");
    for trail in trails {
        assert!(trail.has_ended() && trail.header().missing);
        trail.whole();
    }
}

#[test]
fn events_that_were_lost_are_told_in_the_profile() {
    let Some(site) = Site::new("ring_bytes = 262144\n") else {
        return;
    };
    let world = site.alice();
    let _own = Own::new(&world);
    let script = "echo up > up.txt; until [ -e over ]; do sleep 0.05; done; \
                  i=0; while [ $i -lt 5000 ]; do : < ~/.no$i; i=$((i+1)); done 2> /dev/null; touch done.txt; \
                  until [ -e end ]; do sleep 0.05; done";
    let running = init(&world, By::Both, "lossy", &["bash", "-c", script]).start();
    world.until(Side::Inside, "up.txt", "up");
    kill(site.service.pid(), Signal::SIGSTOP).unwrap();
    world.write("over", "");
    crate::world::until("the end", || world.project().join("done.txt").exists());
    kill(site.service.pid(), Signal::SIGCONT).unwrap();
    world.write("end", "");
    let output = running.end().good();
    let text = file(&world, "lossy");
    assert!(text.contains("NOT COMPLETE, of the tracer's: "), "{text}");
    assert!(text.contains(" events were lost"), "{text}");
    let told = "agent-sandbox: the tracer's trail is not complete: ";
    assert!(output.err().contains(told), "{output}");
}

#[test]
fn a_tracer_that_goes_away_is_told_and_the_other_recorder_stays() {
    let Some(mut site) = Site::new("") else {
        return;
    };
    let world = site.alice();
    let _own = Own::new(&world);
    let script = "echo up > up.txt; until [ -e over ]; do sleep 0.05; done; sh ./agent.sh";
    let running = init(&world, By::Both, "left", &["bash", "-c", script]).start();
    world.until(Side::Inside, "up.txt", "up");
    site.service.end(Signal::SIGKILL);
    world.write("over", "");
    let output = running.end().good();
    let text = file(&world, "left");
    assert!(
        text.contains("NOT COMPLETE, of the tracer's: the tracer has gone"),
        "{text}"
    );
    assert!(output.err().contains("the tracer has gone"), "{output}");
    assert!(text.contains("\"~/.fakeagent\",  # written"), "{text}");
    site.service.again();
}

/// The site's demand is met, and what the run is asked for besides hinders nothing.
#[test]
fn a_watched_run_is_traced_as_the_site_demands() {
    let Some(site) = Site::new("") else { return };
    site.policy("mode = \"required\"\nevents = [\"exit\"]\nmissing = false");
    let world = site.alice();
    let _own = Own::new(&world);
    let call = init(&world, By::Calls, "demanded", &["sh", "./agent.sh"]);
    call.run().good();
    let trails = site.trails();
    let header = trails[0].header();
    for kind in ["exec", "exit", "open", "connect", "operation"] {
        assert!(header.events.iter().any(|one| one == kind), "{header:?}");
    }
    assert!(header.missing && header.every == 1, "{header:?}");
    let text = file(&world, "demanded");
    assert!(text.contains("the node's tracer ("), "{text}");
}
