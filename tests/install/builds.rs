//! What `make build` asks of cargo, and when. cargo is a stand-in here that writes down how it was
//! called, and makes empty programs; the real one builds what all suites test.

use std::fs;
use std::path::PathBuf;

use crate::world::{Done, TestPrefix, root};

struct Builder {
    place: TestPrefix,
    log: PathBuf,
}

impl Builder {
    fn new() -> Self {
        let place = TestPrefix::new();
        let log = place.path.join("log");
        let target = place.path.join("target");
        // In place of cargo: the programs and what makes the pages.
        place.program(
            "bin/cargo",
            &format!(
                "#!/bin/sh\necho \"$* SITE=$AGENT_SANDBOX_SITE_DIR\" >> '{log}'\n\
                 case \"$*\" in *--target*musl*) d={target}/$(uname -m)-unknown-linux-musl ;; *) d={target} ;; esac\n\
                 case \"$*\" in *--release*) d=$d/release ;; *) d=$d/debug ;; esac\n\
                 mkdir -p \"$d/examples\"\n\
                 for p in '' -attest -chaperon -filter -shim -tracer -trail; do : > \"$d/agent-sandbox$p\"; done\n\
                 printf '#!/bin/sh\\nmkdir -p \"$1/man/man1\"\\n' > \"$d/examples/pages\"\n\
                 chmod 755 \"$d/examples/pages\"\n",
                log = log.display(),
                target = target.display(),
            ),
        );
        // In place of rustc: a target that is there.
        place.program("bin/rustc", "#!/bin/sh\necho /\n");
        Self { place, log }
    }

    /// What cargo was asked, a line for each call.
    fn make(&self, words: &[&str]) -> Vec<String> {
        let _ = fs::remove_file(&self.log);
        self.call(words).ok();
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn call(&self, words: &[&str]) -> Done {
        let mut make = self.place.command("make");
        let path = format!(
            "{}:{}",
            self.place.path.join("bin").display(),
            crate::world::PATH
        );
        make.current_dir(root())
            .env("PATH", path)
            .arg("--no-print-directory")
            .arg(format!(
                "CARGO_TARGET_DIR={}/target",
                self.place.path.display()
            ))
            .args(words);
        Done::of(make)
    }
}

#[test]
fn the_sites_directory_is_built_in_and_another_one_builds_again() {
    let builder = Builder::new();
    let first = builder.make(&["build"]);
    let launcher = |calls: &[String]| {
        let mut own = calls
            .iter()
            .filter(|call| call.contains("--bins --release"));
        own.next().cloned().unwrap_or_default()
    };
    assert!(
        launcher(&first).ends_with(" SITE=/etc/agent-sandbox"),
        "{first:?}"
    );
    // The others know no site.
    for name in ["shim", "chaperon", "tracer", "trail"] {
        let asked = |call: &String| call.contains(&format!("agent-sandbox-{name}"));
        assert!(first.iter().any(asked), "{name}: {first:?}");
    }
    assert_eq!(builder.make(&["build"]), Vec::<String>::new());
    let other = builder.make(&["build", "SITE_DIR=/cluster/etc/agent-sandbox"]);
    assert!(
        launcher(&other).ends_with(" SITE=/cluster/etc/agent-sandbox"),
        "{other:?}"
    );
    // What root installs then is that, though nothing is said again.
    assert_eq!(builder.make(&["build"]), Vec::<String>::new());
    builder
        .call(&["build"])
        .ok()
        .says("with the site's policy in /cluster/etc/agent-sandbox");
    let back = builder.make(&["build", "SITE_DIR=/etc/agent-sandbox"]);
    assert!(
        launcher(&back).ends_with(" SITE=/etc/agent-sandbox"),
        "{back:?}"
    );
}

#[test]
fn a_sites_directory_without_a_slash_is_refused() {
    let builder = Builder::new();
    builder
        .call(&["build", "SITE_DIR=etc/agent-sandbox"])
        .fails("SITE_DIR must begin with a slash");
    assert!(!builder.log.exists(), "cargo was asked");
}

#[test]
fn static_programs_are_built_for_musl_and_kept_apart() {
    let builder = Builder::new();
    let calls = builder.make(&["static"]);
    for package in ["agent-sandbox", "agent-sandbox-trail"] {
        let words = format!("--package {package} --bins");
        let own = calls.iter().find(|call| call.contains(&words));
        assert!(
            own.is_some_and(|call| call.contains("-unknown-linux-musl")),
            "{calls:?}"
        );
    }
    assert!(!builder.place.path.join("target/release/pages").exists());
}
