//! A user who wants more than the site's enforced policy allows, in everything that is no path: variables,
//! devices, the network, what the jail itself may do. See [`crate::widening`].

use std::fs;
use std::net::TcpListener;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::widening::{Tried, holds, stops};
use crate::world::{CANARY, Output, World};

/// What a launch has of a variable.
fn shown(t: &Tried, options: &[&str], name: &str) -> Output {
    let script = format!("printenv {name}; echo ran");
    t.jail(options, &script).variable(name, CANARY).run()
}

#[test]
fn variables_that_the_site_hides_never_pass() {
    let hidden = |_: &Tried| "[env]\nhide = [\"LAB_*\"]\n".to_owned();
    let stopped = |what, way: &dyn Fn(&Tried) -> Output| stops(what, hidden, way);
    let name = "LAB_WORD";
    stopped("as it is", &|t| shown(t, &[], name));
    stopped("--env", &|t| shown(t, &["--env", name], name));
    stopped("env.pass", &|t| {
        shown(
            t,
            &["--set", "env.pass=[\"LAB_*\", \"LAB_WORD\", \"*\"]"],
            name,
        )
    });
    stopped("the user's file", &|t| {
        t.world
            .user_config("[env]\nhide = [\"LAB_*\"]\npass = [\"LAB_WORD\"]\n");
        shown(t, &[], name)
    });
    let given = format!("{name}={CANARY}");
    stopped("--env NAME=VALUE", &|t| {
        t.run(&["--env", &given], "printenv LAB_WORD; echo ran")
    });
    let set = format!("env.set.{name}={CANARY}");
    stopped("--set env.set", &|t| {
        t.run(&["--set", &set], "printenv LAB_WORD; echo ran")
    });
    stopped("env.set of a profile", &|t| {
        t.world.profile(
            "mine",
            &format!("[env]\nset = {{ {name} = \"{CANARY}\" }}\n"),
        );
        t.run(&["-p", "mine"], "printenv LAB_WORD; echo ran")
    });
}

#[test]
fn values_that_the_site_hides_never_pass() {
    let hidden = |_: &Tried| format!("[env]\nhide_values = [\"*{CANARY}*\"]\n");
    let stopped = |what, way: &dyn Fn(&Tried) -> Output| stops(what, hidden, way);
    stopped("as it is", &|t| shown(t, &[], "PLAIN"));
    stopped("--env", &|t| shown(t, &["--env", "PLAIN"], "PLAIN"));
    stopped("env.pass", &|t| {
        shown(t, &["--set", "env.pass=[\"PLAIN\"]"], "PLAIN")
    });
    let given = format!("PLAIN=x{CANARY}x");
    stopped("--env NAME=VALUE", &|t| {
        t.run(&["--env", &given], "printenv PLAIN; echo ran")
    });
    let set = format!("env.set.PLAIN={CANARY}");
    stopped("--set env.set", &|t| {
        t.run(&["--set", &set], "printenv PLAIN; echo ran")
    });
}

#[test]
fn what_the_site_sets_is_what_is_set() {
    let set = |_: &Tried| "[env]\nset = { LAB_MODE = \"safe\" }\n".to_owned();
    let stopped = |what, way: &dyn Fn(&Tried) -> Output| stops(what, set, way);
    let script = "printenv LAB_MODE; echo ran";
    let given = format!("LAB_MODE={CANARY}");
    stopped("--env", &|t| t.run(&["--env", &given], script));
    stopped("as it is", &|t| {
        shown(t, &["--env", "LAB_MODE"], "LAB_MODE")
    });
    let word = format!("env.set.LAB_MODE={CANARY}");
    stopped("--set", &|t| t.run(&["--set", &word], script));
    stopped("a hide of the user's, and a value", &|t| {
        t.run(&["--set", "env.hide=[\"LAB_*\"]", "--env", &given], script)
    });
}

/// What of the site's own list of names may pass bounds what the user passes.
#[test]
fn variables_pass_within_the_bound() {
    let bound = |_: &Tried| "[env]\npass = [\"ANTHROPIC_API_KEY\"]\n".to_owned();
    let stopped = |what, way: &dyn Fn(&Tried) -> Output| stops(what, bound, way);
    stopped("--env", &|t| shown(t, &["--env", "MY_TOKEN"], "MY_TOKEN"));
    stopped("env.pass", &|t| {
        shown(t, &["--set", "env.pass=[\"*\"]"], "MY_TOKEN")
    });
    stopped("a profile", &|t| {
        t.world.profile("mine", "[env]\npass = [\"MY_TOKEN\"]\n");
        shown(t, &["-p", "mine"], "MY_TOKEN")
    });
}

/// What a module of the user's own sets is the environment of the launch like any other.
#[test]
fn a_module_passes_no_variable_that_the_site_hides() {
    if !std::path::Path::new("/usr/share/lmod/lmod/init/bash").exists() {
        return agent_sandbox_support::not_checked(
            "variables of a module",
            "no Lmod in Debian's place",
        );
    }
    let hidden = |_: &Tried| "[env]\nhide = [\"LAB_*\"]\n".to_owned();
    stops("a module of the user's own", hidden, |t| {
        t.world.write(
            "modules/mine/1.lua",
            format!("setenv(\"LAB_WORD\", \"{CANARY}\")\n"),
        );
        t.jail(
            &["--set", "modules.load=[\"mine/1\"]", "--env", "LAB_WORD"],
            "printenv LAB_WORD; echo ran",
        )
        .variable("LMOD_CMD", "/usr/share/lmod/lmod/libexec/lmod")
        .variable("MODULEPATH", t.seen("modules"))
        .run()
    });
    let bound = |_: &Tried| "[modules]\nload = [\"gcc\"]\n".to_owned();
    let load = |t: &Tried, name: &str| {
        t.world.write(
            &format!("modules/{name}/1.lua"),
            format!("setenv(\"PLAIN\", \"{CANARY}\")\n"),
        );
        t.jail(
            &["--set", &format!("modules.load=[\"{name}/1\"]")],
            "printenv PLAIN; echo ran",
        )
        .variable("LMOD_CMD", "/usr/share/lmod/lmod/libexec/lmod")
        .variable("MODULEPATH", t.seen("modules"))
        .run()
    };
    stops("another module", bound, |t| load(t, "mine"));
    stops("a module whose name begins the same", bound, |t| {
        load(t, "gcc2")
    });
}

/// A device node of the host's that everybody may open, gone when it is dropped.
struct Device(String);

impl Device {
    fn new() -> Self {
        let path = format!("/dev/agent-sandbox-site-{}", std::process::id());
        let mode = Mode::from_bits_truncate(0o666);
        // As /dev/zero: null(4).
        mknod(path.as_str(), SFlag::S_IFCHR, mode, makedev(1, 5)).unwrap();
        crate::world::mode(path.as_ref(), 0o666);
        Self(path)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn devices_that_the_site_denies_do_not_appear() {
    let device = Device::new();
    let script = format!(
        "(exec 3< {} && head -c 1 <&3 > /dev/null && echo {CANARY}) 2> /dev/null; echo ran",
        device.0
    );
    let by_name = format!("devices.allow=[\"{}\"]", device.0);
    for (what, enforced) in [
        ("denied", "[devices]\ndeny = [\"/dev/agent-sandbox-*\"]\n"),
        (
            "not among the site's",
            "[devices]\nallow = [\"/dev/nvidia*\"]\n",
        ),
        ("no device at all", "[devices]\nallow = []\n"),
    ] {
        let enforced = move |_: &Tried| enforced.to_owned();
        for allow in [by_name.as_str(), "devices.allow=[\"/dev/agent-*\"]"] {
            stops(what, enforced, |t| t.run(&["--set", allow], &script));
        }
        for options in [
            ["--read", "/dev"],
            ["--write", "/dev"],
            ["--read", device.0.as_str()],
        ] {
            holds(what, enforced, |t| t.run(&options, &script));
        }
    }
}

/// Values of which the narrower holds: a launch that asks for the wider has the narrower.
#[test]
fn the_narrower_value_holds() {
    const BOTH: &[&str] = &["bwrap", "landlock"];
    let processes = "bash -c '[ $(ulimit -u) = unlimited ] || [ $(ulimit -u) -gt 100 ]' && echo canary-51d07a; echo ran";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connects =
        format!("bash -c 'exec 3<> /dev/tcp/127.0.0.1/{port} && echo {CANARY}'; echo ran");
    let cases: [(&[&str], &str, &str, &str); 6] = [
        // Landlock's jail never has it.
        (
            &["bwrap"],
            "[jail]\nnested = false\n",
            "jail.nested=true",
            "unshare -Ur true && echo canary-51d07a; echo ran",
        ),
        // keyctl(2): KEYCTL_GET_KEYRING_ID of the session's own.
        (
            BOTH,
            "[jail]\nkeyctl = false\n",
            "jail.keyctl=true",
            "/usr/bin/python3 -c 'import ctypes; print(\"canary-51d07a\" * (ctypes.CDLL(None).syscall(250, 0, -3, 1, 0, 0) > 0))'; echo ran",
        ),
        (
            BOTH,
            "[jail]\nmax_processes = 100\n",
            "jail.max_processes=0",
            processes,
        ),
        (
            BOTH,
            "[jail]\nmax_processes = 100\n",
            "jail.max_processes=5000",
            processes,
        ),
        (
            BOTH,
            "[network]\nmode = \"isolated\"\n",
            "network.mode=open",
            &connects,
        ),
        (
            &["bwrap"],
            "[jail]\nusers = \"filtered\"\n",
            "jail.users=host",
            "grep -q ^somebody-else: /etc/passwd && echo canary-51d07a; echo ran",
        ),
    ];
    let run = |t: &Tried, set: &str, script: &str| {
        let mut users = fs::read_to_string("/etc/passwd").unwrap();
        users.push_str("somebody-else:x:64998:64998::/nonexistent:/bin/sh\n");
        let file = t.world.base().join("passwd");
        fs::write(&file, users).unwrap();
        crate::world::mode(&file, 0o644);
        t.jail(&["--set", set], script)
            .bind(&file, "/etc/passwd")
            .run()
    };
    for (backends, enforced, set, script) in cases {
        for backend in backends {
            let control = Tried::new(backend);
            let output = run(&control, set, script);
            let wide = output.stdout.contains(CANARY);
            assert!(wide, "{enforced}, {backend}: {output}");
            let tried = Tried::new(backend);
            tried.world.enforced(enforced);
            let output = run(&tried, set, script);
            let narrow =
                output.code == 125 || output.stdout == "ran\n" || output.stdout == "\nran\n";
            assert!(narrow, "{enforced}, {backend}: {output}");
        }
    }
}

/// What Slurm's part is told: see the suite `slurm` for what it makes of it.
#[test]
fn slurms_limits_and_scope_are_the_narrower() {
    let world = World::new();
    world.enforced(
        "[slurm]\nscope = \"session\"\nqueries = \"none\"\nmode = \"auto\"\ndirectories = [\"/usr/bin\"]\n\
         query_cache_seconds = 5\n[slurm.limits]\njobs = 3\nqueries_per_minute = 30\n\
         [slurm.bounds]\nnodes = 2\ngpus = 1\nminutes = 60\npartitions = [\"short\", \"gpu*\"]\n",
    );
    world.user_config(
        "[slurm]\nquery_cache_seconds = 0\nscope = \"user\"\nqueries = \"names\"\ndirectories = [\"/home/agentsandbox-test/bin\"]\n\
         [slurm.limits]\njobs = 0\nqueries_per_minute = 0\n\
         [slurm.bounds]\nnodes = 0\ngpus = 0\nminutes = 0\npartitions = [\"*\"]\n",
    );
    for options in [
        &[][..],
        &[
            "--set",
            "slurm.limits.jobs=0",
            "--set",
            "slurm.bounds.nodes=9",
            "--set",
            "slurm.scope=user",
            "--set",
            "slurm.queries=names",
        ],
    ] {
        let mut words = options.to_vec();
        words.extend(["policy", "--json"]);
        let policy = world.run(&words).json();
        let slurm = &policy["slurm"];
        assert_eq!(slurm["scope"]["value"], "session", "{slurm}");
        assert_eq!(slurm["queries"]["value"], "none", "{slurm}");
        assert_eq!(slurm["query_cache_seconds"]["value"], 5, "{slurm}");
        for (key, value) in [("jobs", 3), ("queries_per_minute", 30)] {
            assert_eq!(slurm["limits"][key]["value"], value, "{key}: {slurm}");
        }
        for (key, value) in [("nodes", 2), ("gpus", 1), ("minutes", 60)] {
            assert_eq!(slurm["bounds"][key]["value"], value, "{key}: {slurm}");
        }
        let partitions = &slurm["bounds"]["partitions"];
        assert_eq!(partitions[0]["value"], "short, gpu*", "{slurm}");
        assert_eq!(partitions.as_array().unwrap().len(), 1, "{slurm}");
    }
}

/// A jail of Landlock's has no limits on sizes and shows all users. Where the site enforces either,
/// nobody starts one, whatever the user's policy says in its favour.
#[test]
fn what_is_enforced_and_landlock_cannot_give_is_refused() {
    for (key, value) in [
        ("tmp_size", "\"1G\""),
        ("home_size", "\"1G\""),
        ("shm_size", "\"1G\""),
        ("users", "\"filtered\""),
    ] {
        let tried = Tried::new("landlock");
        let free = tried.run(&[], "echo ran");
        assert_eq!(free.stdout, "ran\n", "{free}");
        tried.world.enforced(&format!("[jail]\n{key} = {value}\n"));
        let narrower = format!("jail.{key}=\"1M\"");
        let mut ways = vec![vec![], vec!["--set", narrower.as_str()]];
        if key == "users" {
            ways[1] = vec!["--set", "jail.users=host"];
        }
        for options in ways {
            let output = tried.run(&options, "echo ran");
            assert_eq!((output.code, output.stdout.as_str()), (125, ""), "{output}");
            let by_site = format!("jail.{key} (/etc/agent-sandbox/enforced.toml:2)");
            assert!(output.stderr.contains(&by_site), "{output}");
            assert!(!output.stderr.contains("--set landlock"), "{output}");
        }
        let default = Tried::new("landlock");
        default
            .world
            .defaults(&format!("[jail]\n{key} = {value}\n"));
        let output = default.run(&[], "echo ran");
        assert_eq!(output.stdout, "ran\n", "{output}");
    }
}
