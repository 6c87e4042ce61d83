//! Several keys of an enforced file at once, in real launches of an ordinary user.

use std::fs;
use std::os::unix::fs::symlink;

use crate::widening::Tried;
use crate::world::{CANARY, World};

const SYSTEM: &str = r#""/bin", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/usr""#;

/// What the site enforces, with room for more below `[files]`.
fn enforced(files: &str) -> String {
    format!(
        "[home]\nmode = \"tmpfs\"\nread = [\"~/allowed\"]\nwrite = []\n\
         [jail]\nmax_processes = 200\nnested = false\ntmp_size = \"8M\"\n\
         [network]\nmode = \"isolated\"\n\
         [env]\nhide = [\"SITE_*\"]\nset = {{ CHOSEN = \"by the site\" }}\n\
         [files]\n{files}\n"
    )
}

#[test]
fn several_keys_hold_in_a_real_launch() {
    let world = World::new();
    world.write("allowed/file", "allowed");
    world.write("private/file", "private");
    world.user_config(
        "[home]\nmode = \"read\"\n[jail]\nmax_processes = 0\nnested = true\ntmp_size = \"64M\"\n\
         [env]\npass = [\"SITE_SECRET\"]\nset = { CHOSEN = \"by me\", SITE_NEW = \"1\" }\n",
    );
    let script = "cat ~/allowed/file; cat ~/private/file; echo s=$SITE_SECRET n=$SITE_NEW c=$CHOSEN; \
                  bash -c 'ulimit -u'; tail -n +3 /proc/net/dev | cut -d: -f1; df -k --output=size /tmp | tail -1; \
                  echo x > ~/allowed/file || echo readable";
    let launch = |script: &str| {
        let read = world.seen_home().join("private").display().to_string();
        let write = world.seen_home().join("allowed").display().to_string();
        let words = [
            "--backend",
            "bwrap",
            "--read",
            &read,
            "--write",
            &write,
            "--env",
            "SITE_SECRET",
            "--",
            "sh",
            "-c",
            script,
        ];
        world
            .call(&words)
            .variable("SITE_SECRET", "4711")
            .run()
            .ok()
    };
    let free = launch(script);
    for words in ["private", "s=4711 n=1 c=by me", "65536"] {
        assert!(free.stdout.contains(words), "{free:?}");
    }
    assert!(!free.stderr.contains("site:"), "{free:?}");
    world.write("allowed/file", "allowed");
    world.enforced(&enforced(""));
    let held = launch(script);
    let lines: Vec<&str> = held.stdout.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "alloweds= n= c=by the site",
            "200",
            "lo",
            "8192",
            "readable"
        ],
        "{held:?}"
    );
    // Said once, with both places.
    let told: Vec<&str> = held
        .stderr
        .lines()
        .filter(|line| line.starts_with("agent-sandbox: site: "))
        .collect();
    for (key, value, asked, place) in [
        (
            "home.mode",
            "`read`",
            "config.toml:2",
            "/etc/agent-sandbox/enforced.toml:2",
        ),
        (
            "jail.max_processes",
            "`no limit`",
            "config.toml:4",
            "/etc/agent-sandbox/enforced.toml:6",
        ),
        (
            "files.write",
            "/allowed`",
            "--write",
            "/etc/agent-sandbox/enforced.toml",
        ),
        (
            "files.read",
            "/private`",
            "--read",
            "/etc/agent-sandbox/enforced.toml:3",
        ),
        (
            "env.pass",
            "`SITE_SECRET`",
            "(",
            "/etc/agent-sandbox/enforced.toml:12",
        ),
        (
            "env.set",
            "`CHOSEN`",
            "config.toml:9",
            "/etc/agent-sandbox/enforced.toml:13",
        ),
        (
            "env.set",
            "`SITE_NEW`",
            "config.toml:9",
            "/etc/agent-sandbox/enforced.toml:12",
        ),
    ] {
        let line = format!("agent-sandbox: site: {key} ");
        let found = told.iter().filter(|told| told.starts_with(&line));
        let fits = |told: &&&str| {
            [value, asked, place]
                .iter()
                .all(|words| told.contains(words))
        };
        assert_eq!(found.filter(fits).count(), 1, "{key} {value}: {told:#?}");
    }
    // Not with -q; nor of what nobody asked for.
    assert!(
        told.iter().all(|line| !line.contains("built-in")),
        "{told:#?}"
    );
    let quiet = world.sh("true").run().ok();
    assert_eq!(quiet.stderr, "");
    let policy = world.run(&["policy"]).ok();
    for line in [
        "jail.tmp_size = 8388608  # /etc/agent-sandbox/enforced.toml:8",
        "home.read within `~/allowed`  # /etc/agent-sandbox/enforced.toml:3",
        "clamped jail.tmp_size: asked `64M` (",
    ] {
        assert!(policy.stdout.contains(line), "{line}: {policy}");
    }
    let json = world.run(&["policy", "--json"]).ok().json();
    let narrowed = json["site"]["clamped"].as_array().unwrap();
    let one = narrowed
        .iter()
        .find(|one| one["key"] == "jail.nested")
        .unwrap();
    assert_eq!(one["asked"]["value"], "true");
    assert_eq!(
        one["allowed"]["source"],
        "/etc/agent-sandbox/enforced.toml:7"
    );
    let plan = world.run(&["--dry-run", "--json", "--backend", "bwrap", "--", "true"]);
    let plan = plan.ok().json();
    let keys = plan["clamped"].as_array().unwrap().iter();
    assert!(
        keys.filter(|one| one["asked_by_user"] == true).count() >= 6,
        "{}",
        plan["clamped"]
    );
}

#[test]
fn paths_are_judged_by_their_place() {
    let world = World::new();
    for name in ["open", "shut"] {
        let directory = world.base().join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("file"), name).unwrap();
        world.own(&directory, 0o755);
        world.own(&directory.join("file"), 0o644);
    }
    let (open, shut) = (world.base().join("open"), world.base().join("shut"));
    world.enforced(&enforced(&format!(
        "read = [{SYSTEM}, {open:?}]\nwrite = [{open:?}]\nhide = [\"{}/hidden\"]",
        open.display()
    )));
    fs::create_dir(open.join("hidden")).unwrap();
    fs::write(open.join("hidden/file"), "hidden").unwrap();
    // A link of the user's into what is shut, by a path in what is open, and dots.
    symlink(&shut, open.join("way")).unwrap();
    let dots = format!("{}/../shut", open.display());
    let way = format!("{}/way", open.display());
    let script = format!(
        "cat {0}/file {0}/hidden/file {1}/file {0}/way/file; echo . >> {0}/file && echo written",
        open.display(),
        shut.display()
    );
    let open = open.display().to_string();
    let set = format!("files.unhide=[\"{open}/hidden\"]");
    let base = world.base().display().to_string();
    let words = [
        "-q", "--set", &set, "--read", &base, "--read", &dots, "--read", &way, "--write", &open,
        "--", "sh", "-c", &script,
    ];
    let held = world.call(&words).run();
    assert_eq!(held.stdout.replace('\n', ""), "openwritten", "{held:?}");
}

/// The home is bound from elsewhere, where it can be seen as well.
#[test]
fn what_the_site_protects_is_not_written_by_another_name() {
    let protect = "[home]\nprotect = [\"~/tools\"]\n";
    for backend in ["bwrap", "landlock"] {
        let tried = Tried::new(backend);
        tried.world.write("tools/tool", "true");
        let other = tried.world.home().join("tools").display().to_string();
        let write = || {
            let script = format!("echo {CANARY} > '{other}/tool'; echo ran");
            let output = tried.run(&["--write", &other], &script).ok();
            assert!(output.stdout.contains("ran"), "{output}");
            tried.world.read("tools/tool")
        };
        assert!(write().contains(CANARY), "{backend}");
        tried.world.write("tools/tool", "true");
        tried.world.enforced(protect);
        assert_eq!(write(), "true", "{backend}");
        // Nor as a project.
        for project in [tried.seen("tools"), other.clone()] {
            let output = tried.jail(&["-C", &project], "echo ran").run();
            output.refused(&["home.protect `~/tools`", "enforced.toml:2"]);
        }
    }
}

/// A list that was meant as a gift.
#[test]
fn a_bound_in_which_nothing_could_run_is_named() {
    for backend in ["bwrap", "landlock"] {
        let tried = Tried::new(backend);
        tried.world.enforced("[files]\nread = [\"/srv\"]\n");
        let output = tried.run(&[], "true").refused(&[
            "nothing could run in the jail",
            "files.read (/etc/agent-sandbox/enforced.toml:2)",
        ]);
        assert!(!output.stderr.contains("bwrap"), "{output}");
        tried.world.enforced("[files]\nread = [\"/usr\"]\n");
        tried.run(&[], "true").ok();
    }
}

#[test]
fn a_copy_of_what_the_site_hides_is_not_set() {
    let tried = Tried::new("bwrap");
    let secret = format!("{CANARY}-and-more-of-it");
    let given = format!("COPY=x{secret}");
    let copy = || {
        let call = tried.jail(&["--env", &given], "printenv COPY; echo ran");
        call.variable("LAB_WORD", &secret).run().ok()
    };
    assert!(copy().stdout.contains(&secret));
    tried.world.enforced("[env]\nhide = [\"LAB_*\"]\n");
    assert_eq!(copy().stdout, "ran\n");
}

#[test]
fn ports_are_forwarded_as_far_as_the_site_allows() {
    let world = World::new();
    let asked = "network.forward=[8123, 9123]";
    let words = [
        "--backend",
        "bwrap",
        "--set",
        "network.mode=isolated",
        "--set",
        asked,
        "true",
    ];
    let launch = || world.run(&words).ok().stderr;
    let free = launch();
    assert!(
        free.contains("-L 8123:/") && free.contains("-L 9123:/"),
        "{free}"
    );
    world.enforced("[network]\nforward = [9123]\n");
    let held = launch();
    assert!(
        !held.contains("-L 8123:") && held.contains("-L 9123:/"),
        "{held}"
    );
    let why = "site: network.forward `8123` (--set network.forward) is not allowed as asked";
    assert!(held.contains(why), "{held}");
    world.enforced("[network]\nforward = []\n");
    let none = launch();
    assert!(
        !none.contains("ssh -N") && none.contains("network.forward `9123`"),
        "{none}"
    );
}
