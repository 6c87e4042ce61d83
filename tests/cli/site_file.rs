//! `doctor --policy`: a file of the site's before it is installed.

use crate::world::World;

/// What can be read and is likely a mistake: with its line, what to do, and an exit status if nothing could start.
#[test]
fn what_is_likely_a_mistake_in_a_sites_file_is_told() {
    let world = World::new();
    let write = |text: &str| {
        let file = world.write("site/enforced.toml", text);
        file.to_str().unwrap().to_owned()
    };
    world.write("site/defaults.toml", "[jail]\nmax_processes = 700\n");
    let path = write(
        "[project]\nparents = [\"/usr\"]\n[files]\nhide = [\"/no/such\", \"/no/such/below\", \"/usr/no-*\"]\n\
         [jail]\nmax_processes = 500\n\
         [[when]]\ngroup = \"no-such-group\"\n[when.jail]\nmax_processes = 600\n",
    );
    let output = world.call(["doctor", "--policy", &path]).run();
    assert_eq!((output.code, output.err().as_str()), (0, ""), "{output}");
    let text = output.out();
    for words in [
        "defaults.toml:2: the default jail.max_processes `700` is not allowed by [PLACE]/site/enforced.toml:6, which has 500\n  fix: ",
        "warning: [PLACE]/site/enforced.toml:2: `/usr` itself may be a project",
        "warning: [PLACE]/site/enforced.toml:4: files.hide `/no/such` does not exist on this host",
        "files.hide `/no/such/below` is hidden already, by `/no/such` ([PLACE]/site/enforced.toml:4)",
        "files.hide `/usr/no-*` matches nothing on this host",
        "warning: [PLACE]/site/enforced.toml:7: this section is never in force: group no-such-group",
        "enforced.toml:10: jail.max_processes `600` has no effect: [PLACE]/site/enforced.toml:6 has 500",
    ] {
        assert!(text.contains(words), "no `{words}`: {output}");
    }
    let json = world
        .call(["doctor", "--json", "--policy", &path])
        .run()
        .json();
    let remarks = json["remarks"].as_array().unwrap();
    assert!(
        remarks.len() >= 7 && remarks.iter().all(|one| one["level"] == "warning"),
        "{json:#}"
    );
    // Nothing could run.
    for (text, words) in [
        (
            "[files]\nhide = [\"/usr/bin\"]\n",
            "no session would start: ",
        ),
        (
            "[files]\nhide = [\"/bin\", \"/usr\"]\n",
            "no session would start: ",
        ),
        (
            "[agents]\nallowed = [\"claude\"]\n",
            "agents.allowed: no name is in both claude",
        ),
    ] {
        world.write("site/defaults.toml", "[agents]\nallowed = [\"codex\"]\n");
        let path = write(text);
        let output = world.call(["doctor", "--policy", &path]).run();
        assert_eq!(output.code, 1, "{text}: {output}");
        let error = |line: &str| line.starts_with("error: ") && line.contains(words);
        assert!(output.out().lines().any(error), "{text}: {output}");
    }
}

/// What a site's file would mean, read from a checkout; for the checks of a repository.
#[test]
fn a_sites_file_is_tried_before_it_is_installed() {
    let world = World::new();
    let own = nix::unistd::User::from_uid(nix::unistd::getuid())
        .unwrap()
        .unwrap()
        .name;
    let file = world.write(
        "site/enforced.toml",
        format!(
            "[jail]\nmax_processes = 100\nnested = false\n\n[[when]]\nuser = \"{own}\"\n[when.limits]\nsessions = 2\n\n\
             [[when]]\nuser = \"nobody-here\"\n[when.limits]\nsessions = 1\n"
        ),
    );
    let path = file.to_str().unwrap().to_owned();
    let output = world.call(["doctor", "--policy", &path]).run();
    assert_eq!(output.code, 0, "{output}");
    let text = output.out();
    for words in [
        format!("for {own} (groups "),
        format!("line 5    holds: user {own}\n"),
        "line 10   does not hold: user nobody-here\n".to_owned(),
        "jail.max_processes = 100  # [PLACE]/site/enforced.toml:2\n".to_owned(),
        "limits.sessions = 2  # [PLACE]/site/enforced.toml:8\n".to_owned(),
    ] {
        assert!(text.contains(&words), "no `{words}`: {output}");
    }
    let json = world
        .call(["doctor", "--json", "--policy", &path, "--as", &own])
        .run()
        .json();
    assert_eq!(json["sections"][1]["holds"], false);
    assert_eq!(json["policy"]["jail"]["max_processes"]["value"], 100);
    // Anybody may have written a checkout; a mistake for somebody else counts.
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(world.call(["doctor", "--policy", &path]).run().code, 0);
    let defaults = world.write(
        "site/defaults.toml",
        "[[when]]\nuser = \"nobody-here\"\n[when.home]\nmode = \"wide\"\n",
    );
    for file in [&path, defaults.to_str().unwrap()] {
        let output = world.call(["doctor", "--policy", file]).run();
        assert_eq!(output.code, 1, "{output}");
        assert!(output.err().contains("defaults.toml:4"), "{output}");
    }
    let other = world.write("site/other.toml", "");
    let output = world
        .call(["doctor", "--policy", other.to_str().unwrap()])
        .run();
    assert_eq!(output.code, 1, "{output}");
    assert!(
        output
            .err()
            .contains("neither enforced.toml nor defaults.toml"),
        "{output}"
    );
    // Another user's own policy is theirs.
    std::fs::remove_file(defaults).unwrap();
    let output = world
        .call(["doctor", "--policy", &path, "--as", "root"])
        .run();
    assert_eq!(output.code, 0, "{output}");
    assert!(
        output.out().contains("is read by root and root alone"),
        "{output}"
    );
}
