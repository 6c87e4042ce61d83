//! `explain` where the site has a say: that it forbids a change, by which key and line.

use crate::world::World;

const FILE: &str = "/etc/agent-sandbox/enforced.toml";

/// What the answer says of the site; the text of the change without it.
fn forbidden_by(world: &World, words: &[&str]) -> Result<String, String> {
    let output = world.run(&[words, &["--json"]].concat()).ok();
    let told = output.json();
    let change = told["change"].as_str().expect("a change").to_owned();
    match told["forbidden_by"].as_str() {
        Some(by) => {
            let text = format!("the site forbids it: {by}; ask your administrators");
            assert_eq!((change, told["possible"].as_bool()), (text, Some(false)));
            Ok(by.to_owned())
        }
        None => Err(change),
    }
}

#[test]
fn what_the_site_forbids_is_said_with_its_key_and_line() {
    let world = World::new();
    world.write("notes/today", "x");
    world.write(".secret", "x");
    world.enforced(
        "[project]\n\
         git = \"protect\"\n\
         [home]\n\
         read = [\"~/project\"]\n\
         write = []\n\
         [files]\n\
         read = [\"/usr\", \"/etc\"]\n\
         hide = [\"~/.secret\", \"/etc/hostname\"]\n\
         unhide = []\n\
         [env]\n\
         hide = [\"SITE_*\"]\n\
         pass = [\"MINE\"]\n\
         [devices]\n\
         allow = [\"/dev/nvidia*\"]\n\
         deny = [\"/dev/denied\"]\n\
         [network]\n\
         mode = \"isolated\"\n",
    );
    let home = world.seen_home().display().to_string();
    let at = |path: &str| format!("{home}/{path}");
    for (words, by) in [
        (&["explain", &at("notes/today")][..], "home.read (FILE:4)"),
        (&["explain", "/opt"], "files.read (FILE:7)"),
        (
            &["explain", &at(".secret")],
            "files.hide `~/.secret` (FILE:8)",
        ),
        (
            &["explain", "/etc/hostname"],
            "files.hide `/etc/hostname` (FILE:8)",
        ),
        (&["explain", &at(".ssh/id_rsa")], "files.unhide (FILE)"),
        (
            &["explain", "--env", "SITE_TOKEN"],
            "env.hide `SITE_*` (FILE:11)",
        ),
        (
            &["explain", "--env", "AWS_SECRET_ACCESS_KEY"],
            "env.pass (FILE:12)",
        ),
        (&["explain", "/dev/other"], "devices.allow (FILE:14)"),
        (&["explain", "/dev/denied"], "devices.deny (FILE:15)"),
        (
            &["explain", "--host", "example.org:443"],
            "network.mode (FILE:17)",
        ),
    ] {
        let said = forbidden_by(&world, words);
        assert_eq!(said, Ok(by.replace("FILE", FILE)), "{words:?}");
    }
}

#[test]
fn within_the_bounds_of_the_site_the_user_may() {
    let world = World::new();
    world.enforced(
        "[home]\nread = [\"~/notes\"]\n[env]\npass = [\"MINE*\"]\nhide = []\n[slurm.bounds]\nnodes = 8\n",
    );
    world.user_config("[env]\nhide = [\"MINE_TOO\"]\n[slurm.bounds]\nnodes = 4\n");
    let home = world.seen_home().display().to_string();
    let words = ["explain", &format!("{home}/notes/today")];
    let said = forbidden_by(&world, &words).expect_err("it is within the bound");
    assert!(said.contains("home.read"), "{said}");
    let said = forbidden_by(&world, &["explain", "--env", "MINE_TOO"]).expect_err("so is this");
    assert!(said.contains("env.pass"), "{said}");
    // The user's own limit is narrower than the site's.
    let line = ["explain", "--slurm", "sbatch -N5 x"];
    let told = |words: &[&str]| world.run(words).ok().stdout;
    let text = told(&line);
    assert!(text.contains("5 nodes: the policy allows 4"), "{text}");
    assert!(text.contains("change: slurm.bounds.nodes in "), "{text}");
    let text = told(&[
        "--set",
        "slurm.bounds.nodes=100",
        "explain",
        "--slurm",
        "sbatch -N9 x",
    ]);
    assert!(text.contains("9 nodes: the policy allows 8"), "{text}");
    let site =
        "change: the site forbids it: slurm.bounds.nodes (/etc/agent-sandbox/enforced.toml:7); ask";
    assert!(text.contains(site), "{text}");
}

/// Inside, what the site hides is no other than what does not exist.
#[test]
fn inside_nothing_of_the_sites_rules_is_told() {
    let world = World::new();
    world.write("project/SITEHIDDEN", "x");
    world.enforced("[files]\nhide = [\"~/project/SITEHIDDEN\", \"/opt/SITEHIDDEN\"]\n[env]\nhide = [\"SITEHIDDEN*\"]\n");
    let script = "for p in SITEHIDDEN MISSED; do agent-sandbox explain $p | sed s/$p/NAME/g; done; \
                  cat /run/agent-sandbox/explain | tr -d '\\000' > document; grep -c SITEHIDDEN document; true";
    let output = world.sh(script).run().ok();
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{output:?}");
    assert_eq!(lines[..2], lines[2..4], "{output:?}");
    assert_eq!(lines[4], "0", "{output:?}");
}
