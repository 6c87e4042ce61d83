//! What `doctor` says of the site's files.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use serde_json::Value;

use crate::world::{Output, SITE, World};

/// Without Slurm, of which a test machine may have the commands and no cluster.
const WORDS: [&str; 4] = ["--set", "slurm.mode=off", "doctor", "--json"];

#[track_caller]
fn read(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// Status, what was found, and the fix.
#[track_caller]
fn line(json: &Value, name: &str) -> (String, String, String) {
    let all = json["checks"].as_array().unwrap();
    let line = all.iter().find(|line| line["name"] == name);
    let line = line.unwrap_or_else(|| panic!("no `{name}` in {json:#}"));
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    (text("status"), text("found"), text("fix"))
}

#[test]
fn the_sites_files_and_what_of_them_applies_are_described() {
    let world = World::new();
    let json = world.run(&WORDS).json();
    let (status, found, _) = line(&json, "site-enforced");
    assert_eq!(
        (status.as_str(), found),
        ("ok", format!("{SITE}/enforced.toml does not exist"))
    );
    let without = json["digest"].clone();
    world.defaults("[jail]\ntmp_size = \"1G\"\n");
    world.enforced(
        "[jail]\nnested = false\nmax_processes = 500\n[files]\nhide = [\"/srv/x\"]\n\n\
         [[when]]\nhost = \"login*\"\n[when.slurm.limits]\njobs = 3\n\n\
         [[when]]\nhost = \"gpu*\"\n[when.jail]\nmax_processes = 50\n",
    );
    let on = |host: &str| world.call(&WORDS).host(host).run().json();
    let (login, gpu, other) = (on("login1"), on("gpu7"), on("other"));
    for (json, apply) in [(&login, 1), (&gpu, 1), (&other, 0)] {
        let (status, found, _) = line(json, "site-enforced");
        let words = format!("3 keys; of its [[when]] sections {apply} of 2 apply here; digest ");
        assert!(status == "ok" && found.contains(&words), "{found}");
        let (status, found, _) = line(json, "site-defaults");
        assert!(
            status == "ok" && found.contains("1 key; digest "),
            "{found}"
        );
        assert_eq!(json["starts"], true, "{json:#}");
    }
    // Nodes of one policy have one sum; others have others.
    let digests = [&without, &login["digest"], &gpu["digest"], &other["digest"]];
    for (at, one) in digests.iter().enumerate() {
        assert!(one.is_string(), "{one}");
        assert!(!digests[..at].contains(one), "{digests:?}");
    }
    assert_eq!(on("other")["digest"], other["digest"]);
    assert_eq!(login["node"], "login1");
}

#[test]
fn a_site_file_that_cannot_be_used_is_in_the_way_and_names_whom_to_ask() {
    let world = World::new();
    let path = world.site_file("enforced.toml", "[jail]\nnested = false\n");
    chown(&path, Some(world.user().uid.as_raw()), None).unwrap();
    let output = world.run(&WORDS);
    assert_eq!(output.code, 1, "{output}");
    let json = read(&output);
    let (status, found, fix) = line(&json, "site-enforced");
    assert!(
        status == "broken" && found.contains("enforced.toml"),
        "{found}"
    );
    assert!(fix.contains("ask your administrators"), "{fix}");
    assert_eq!(json["starts"], false);
    assert!(
        json["checks"]
            .as_array()
            .unwrap()
            .iter()
            .all(|line| line["name"] != "policy"),
        "said once: {json:#}"
    );
    // A mistake in it is shown with its line.
    fs::remove_file(&path).unwrap();
    world.enforced("[jail]\nnestd = false\n");
    let output = world.run(&["doctor"]);
    assert_eq!(output.code, 1, "{output}");
    for words in [
        "enforced.toml:2",
        "nestd = false",
        "ask your administrators",
        "No session would start: ",
    ] {
        assert!(output.stdout.contains(words), "no `{words}`: {output}");
    }
    assert_eq!(output.stderr, "");
}

#[test]
fn a_site_that_allows_no_project_here_is_said() {
    let world = World::new();
    world.enforced("[project]\nparents = [\"/srv/projects\"]\n");
    let json = world.run(&WORDS).json();
    let (status, found, fix) = line(&json, "project");
    assert!(
        status == "degraded" && found.contains("cannot be the project"),
        "{found}"
    );
    assert!(!fix.is_empty());
    // Not even an empty directory may be one here, so nothing was started.
    let (status, found, fix) = line(&json, "session");
    assert!(
        status == "degraded" && found.contains("not tried"),
        "{found}"
    );
    assert!(fix.contains("-C DIR"), "{fix}");
    let why = json["why"].as_str().unwrap();
    assert!(why.ends_with("this one can be no project"), "{why}");
}

/// Runs the rest of its words in a user namespace in which every id is itself, as on the node, and no
/// other user namespace can be made.
const WITHOUT_NAMESPACES: &str = r#"
go=$1; shift
mkfifo "$go" || exit 90
limit='echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
# Whoever has a number when a program begins has its rights; so one more shell.
unshare --user -- sh -c 'read -r _ < "$0" && exec sh -c "$@"' "$go" "$limit" sh "$@" &
until [ "$(readlink /proc/$!/ns/user)" != "$(readlink /proc/$$/ns/user)" ]; do sleep 0.01; done
echo '0 0 4294967295' > /proc/$!/uid_map && echo '0 0 4294967295' > /proc/$!/gid_map || exit 91
echo > "$go"
wait $!
"#;

#[test]
fn where_user_namespaces_are_switched_off_landlock_takes_over() {
    let world = World::new();
    world.user_config("[landlock]\nusers = \"degraded\"\nsizes = \"degraded\"\n");
    let without = |words: &[&str]| {
        let (uid, gid) = (world.user().uid, world.user().gid);
        let fifo = world.base().join(format!("go{}", words.len()));
        let output = Command::new("timeout")
            .args(["--kill-after=2", "60", "sh", "-c", WITHOUT_NAMESPACES, "sh"])
            .arg(fifo)
            .args([
                "setpriv",
                &format!("--reuid={uid}"),
                &format!("--regid={gid}"),
            ])
            .args(["--init-groups", "--inh-caps=-all", "--"])
            .arg(world.launcher())
            .args(WORDS)
            .args(words)
            .current_dir(world.home().join("project"))
            .env_clear()
            .env("HOME", world.home())
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let json: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (output.status.code(), json)
    };
    let (code, json) = without(&[]);
    assert_eq!(
        (code, &json["backend"]),
        (Some(0), &Value::from("landlock")),
        "{json:#}"
    );
    for name in ["user-namespaces", "bubblewrap"] {
        let (status, found, fix) = line(&json, name);
        assert!(
            status == "degraded" && found.contains("user.max_user_namespaces = 0"),
            "{found}"
        );
        assert_eq!(
            fix,
            "ask your administrators: sysctl -w user.max_user_namespaces=15000, and the same in /etc/sysctl.d/"
        );
    }
    assert_eq!(line(&json, "session").0, "ok");
    // Where bubblewrap is asked for, nothing takes its place.
    let (code, json) = without(&["--backend", "bwrap"]);
    assert_eq!((code, &json["starts"]), (Some(1), &Value::Bool(false)));
    assert_eq!(line(&json, "bubblewrap").0, "broken");
    assert_eq!(line(&json, "jail-landlock").0, "ok");
}

/// A file system of a few pages, full, where the state directory is.
struct Full(std::path::PathBuf);

impl Full {
    fn of(world: &World) -> Self {
        let at = world.base().join("full");
        fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs"])
            .arg(&at)
            .status()
            .unwrap();
        assert!(mounted.success());
        let state = at.join("state");
        fs::create_dir(&state).unwrap();
        world.own(&state, 0o700);
        // Ends with ENOSPC.
        let filler = std::io::copy(
            &mut fs::File::open("/dev/zero").unwrap(),
            &mut fs::File::create(at.join("filler")).unwrap(),
        );
        assert!(filler.is_err());
        Self(at)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_state_directory_without_room_is_in_the_way_and_no_banner_comes_first() {
    let world = World::new();
    let full = Full::of(&world);
    let state = full.0.join("state");
    let output = world.call(&WORDS).variable("XDG_STATE_HOME", &state).run();
    assert_eq!(output.code, 1, "{output}");
    let json = read(&output);
    assert_eq!(json["starts"], false, "{json:#}");
    let why = json["why"].as_str().unwrap();
    assert!(why.contains("No space left on device"), "{why}");
    let (status, found, fix) = line(&json, "state");
    assert_eq!(status, "broken", "{found}");
    assert!(found.contains("No space left on device"), "{found}");
    assert!(fix.contains("make room"), "{fix}");
    // As it said; and nobody reads of a jail before.
    let output = world.call(&["true"]);
    let output = output.variable("XDG_STATE_HOME", &state).run();
    let output = output.refused(&[
        "cannot note what stands in the project, in `",
        "No space left on device",
    ]);
    assert!(!output.stderr.contains("jailed in"), "{output}");
    // With room it starts.
    fs::remove_file(full.0.join("filler")).unwrap();
    let output = world.call(&WORDS).variable("XDG_STATE_HOME", &state).run();
    assert_eq!(line(&output.json(), "state").0, "ok", "{output}");
}
