//! The ready-made policies of `profiles/site`: they load, an ordinary session works under them, what they
//! hide is hidden, and what a user adds does not widen them.

use std::fs;
use std::path::PathBuf;

use crate::world::{CANARY, Call, USER, World};

/// Roots that the examples name, and that this machine may not have: they stand in the world's own
/// directory.
const ROOTS: [&str; 5] = ["/archive", "/data", "/scratch", "/srv", "/work"];

/// What a group of the tests is in `group(5)`: its number is nobody's.
const GROUP: u32 = 64998;

/// A world under an example, with its data.
fn world(example: &str) -> World {
    let world = World::new();
    for file in ["defaults.toml", "enforced.toml"] {
        world.site_file(file, adapted(&world, example, file));
    }
    for tree in [
        "data/public",
        "data/private",
        "data/regulated",
        "data/staff",
        "archive",
        "srv/backup",
    ] {
        let directory = world.base().join(tree);
        fs::create_dir_all(&directory).unwrap();
        let text = if tree == "data/public" {
            "public"
        } else {
            CANARY
        };
        fs::write(directory.join("table.csv"), text).unwrap();
    }
    let scratch = world.base().join("scratch");
    fs::create_dir(&scratch).unwrap();
    world.own(&scratch, 0o755);
    world.write("projects/thesis/main.c", "int main(void) { return 7; }\n");
    world.write(".claude/history.jsonl", "before\n");
    world.write(".claude.json", "{}\n");
    world.write("notes/diary", CANARY);
    world
}

/// An example's file with its roots where the world has them.
fn adapted(world: &World, example: &str, file: &str) -> String {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let path = root.join("profiles/site").join(example).join(file);
    let mut text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for root in ROOTS {
        let own = format!("\"{}{root}", world.base().display());
        text = text.replace(&format!("\"{root}"), &own);
    }
    text
}

/// A script in a jail of Claude Code's profile, in a project that both examples allow.
fn session<'a>(world: &'a World, options: &[&str], script: &str) -> Call<'a> {
    let command = ["--profile", "claude", "--", "sh", "-c", script];
    let words = [&["-q"], options, &command].concat();
    world
        .call(&words)
        .cwd(world.seen_home().join("projects/thesis"))
}

/// What people do all day.
const WORK: &str = "set -e
    python3 -c 'import json, subprocess; print(subprocess.check_output([\"echo\", \"python\"]).decode().strip())'
    git init -q . && git -c user.name=a -c user.email=a@b add main.c
    git -c user.name=a -c user.email=a@b commit -q -m first && git log --format=%s
    cc -o prog main.c && { ./prog || echo compiled $?; }
    echo after >> ~/.claude/history.jsonl
    mkdir -p ~/.cache/pip && echo x > ~/.cache/pip/x
    cat $DATA/public/table.csv; echo; echo x > /tmp/x; cat /tmp/x";

fn works(world: &World) {
    world.write(".cache/pip/first", "");
    let data = world.base().join("data");
    let option = format!("DATA={}", data.display());
    let said = session(world, &["--env", &option], WORK).run().ok();
    assert_eq!(
        said.stdout, "python\nfirst\ncompiled 7\npublic\nx\n",
        "{said}"
    );
    // What the agent notes is the project's, and stays.
    assert_eq!(world.read(".claude/history.jsonl"), "before\n");
    assert_eq!(world.read(".claude.json"), "{}\n");
    let next = session(world, &[], "cat ~/.claude/history.jsonl")
        .run()
        .ok();
    assert_eq!(next.stdout, "after\n", "{next}");
    assert_eq!(world.read(".cache/pip/x"), "x\n");
}

/// Everything that a user can say, at once: in a policy, a profile, a section for the project, and by
/// options.
fn wide(world: &World) -> Vec<String> {
    let base = world.base().display();
    let text = format!(
        "[home]\nmode = \"write\"\nread = [\"~/.ssh\"]\nwrite = [\"~/.ssh\", \"~/.bashrc\"]\n\
         [files]\nread = [\"{base}/data\", \"{base}/archive\", \"{base}/srv\"]\nwrite = [\"{base}/data\", \"{base}/archive\"]\n\
         unhide = [\"~/.ssh\", \"{base}/data/regulated\", \"{base}/data/private\", \"{base}/archive\", \"{base}/srv/backup\"]\n\
         [env]\npass = [\"LAB_*\", \"LAB_TOKEN\", \"REGULATED_KEY\", \"GITHUB_TOKEN\"]\n\
         [env.set]\nLAB_OTHER = \"{CANARY}\"\nREGULATED_OTHER = \"{CANARY}\"\n\
         [jail]\nmax_processes = 0\nkeyctl = true\n[slurm.limits]\njobs = 0\n[slurm.bounds]\ngpus = 0\n"
    );
    let sections = text.replace("\n[", "\n[projects.\"~/projects\".");
    let sections = sections.replacen("[home]", "[projects.\"~/projects\".home]", 1);
    world.user_config(&format!("{text}\n{sections}"));
    let linked = world.home().join("projects/thesis/linked");
    let _ = fs::remove_file(&linked);
    std::os::unix::fs::symlink(world.base().join("data"), &linked).unwrap();
    [
        "--home",
        "write",
        "--read",
        "~/.ssh",
        "--read",
        &format!("{base}/data/regulated/table.csv"),
        "--read",
        "linked/private",
        "--env",
        "LAB_TOKEN",
        "--env",
        &format!("LAB_MORE={CANARY}"),
        "--set",
        "files.unhide=[\"~/.ssh\"]",
        "--set",
        "jail.max_processes=0",
    ]
    .map(|word| word.replace("~/", &format!("{}/", world.seen_home().display())))
    .to_vec()
}

/// Looks for the canary wherever it could be, and says the names of what it finds.
const SEARCH: &str = "grep -rl canary- ~ $BASE/data $BASE/archive $BASE/srv ./linked/ 2>/dev/null; env | grep -E '^(LAB|REGULATED)_'; env | grep canary-";

fn hides(world: &World, example: &str) {
    let option = format!("BASE={}", world.base().display());
    let variables = [("LAB_TOKEN", CANARY), ("REGULATED_KEY", CANARY)];
    let call = |options: &[&str], script: &str| {
        let options = [&["--env", &option], options].concat();
        variables
            .iter()
            .fold(session(world, &options, script), |call, (name, value)| {
                call.variable(name, *value)
            })
            .run()
    };
    // Outside all of it is there.
    let outside = world.outside(&format!("BASE={} ; {SEARCH}", world.base().display()));
    let outside = outside.run().stdout;
    assert!(
        outside.contains(".ssh/id_rsa") && outside.contains("data/regulated"),
        "{outside}"
    );
    let options = wide(world);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let said = call(&options, SEARCH);
    // What the example leaves to its users, this one has given: two trees of the site's, what is no
    // credential in the home, and names that are no rule of the example's.
    let left: &[&str] = match example {
        "university" => &[
            "/data/staff/",
            "/data/private/",
            "/srv/backup/",
            "/notes/diary",
            "LAB_",
        ],
        _ => &[
            "/data/staff/",
            "/data/regulated/",
            "/archive/",
            "/notes/diary",
            "REGULATED_OTHER",
        ],
    };
    for line in said.stdout.lines() {
        let given = left.iter().any(|place| {
            line.contains(place) || line.contains(&place.replace("/data/", "./linked/"))
        });
        assert!(given, "{example}: {line}\n{said}");
    }
    assert!(
        said.stdout.contains("/data/staff/"),
        "it gives nothing at all: {said}"
    );
    // And what holds is what the site says.
    let shown = [&["policy", "--json"][..], &options].concat();
    let shown = world
        .call(&shown)
        .cwd(world.seen_home().join("projects/thesis"))
        .run()
        .ok();
    let json = shown.json();
    let most = if example == "university" { 4096 } else { 8192 };
    assert_eq!(json["jail"]["max_processes"]["value"], most);
    assert_eq!(json["jail"]["keyctl"]["value"], false);
}

#[test]
fn a_small_group_works_and_its_secrets_stay_hidden() {
    let world = world("small-group");
    works(&world);
    hides(&world, "small-group");
}

#[test]
fn a_university_works_and_its_data_stays_hidden() {
    let world = world("university");
    works(&world);
    hides(&world, "university");
}

#[test]
fn a_university_says_where_agents_work_and_write() {
    let world = world("university");
    let home = world.seen_home();
    for place in [home.join("project"), world.base().join("data/public")] {
        world
            .call(&["--", "true"])
            .cwd(&place)
            .run()
            .refused(&["project.parents"]);
        // Nothing that a user says moves it.
        let everywhere = ["--set", "project.parents=[\"/\", \"~/\"]", "--", "true"];
        world
            .call(&everywhere)
            .cwd(&place)
            .run()
            .refused(&["project.parents"]);
    }
    let run = world.base().join("scratch/run");
    fs::create_dir(&run).unwrap();
    world.own(&run, 0o755);
    let script = "echo x > here && cat here";
    world
        .call(&["-q", "--", "sh", "-c", script])
        .cwd(&run)
        .run()
        .ok();
    // A home is shown without its hidden entries, and only agents' state is written.
    let script = "echo x >> ~/notes/diary; echo x > ~/.config/new; echo $?";
    let options = ["--home", "write", "--write"];
    let notes = home.join("notes");
    let options = [&options[..], &[notes.to_str().unwrap()]].concat();
    session(&world, &options, script).run();
    assert_eq!(world.read("notes/diary"), CANARY);
    assert!(!world.home().join(".config/new").exists());
}

#[test]
fn a_university_narrows_for_students_nodes_and_partitions() {
    let world = world("university");
    let thesis = world.seen_home().join("projects/thesis");
    let policy = || world.call(&["policy", "--json"]).cwd(&thesis);
    let everybody = policy().groups(&[]).run().ok().json();
    assert_eq!(everybody["slurm"]["bounds"]["gpus"]["value"], 16);
    assert_eq!(everybody["network"]["mode"]["value"], "open");
    let student = policy()
        .group_line(&format!("students:x:{GROUP}:{USER}"))
        .run()
        .ok()
        .json();
    assert_eq!(student["slurm"]["limits"]["jobs"]["value"], 4);
    for (bound, most) in [("nodes", 1), ("gpus", 1), ("minutes", 60)] {
        assert_eq!(student["slurm"]["bounds"][bound]["value"], most, "{bound}");
    }
    assert_eq!(student["slurm"]["queries"]["value"], "none");
    // A student who works in a directory that is for others, or gives what is.
    let students = |words: &[&str]| {
        world
            .call(words)
            .group_line(&format!("students:x:{GROUP}:{USER}"))
    };
    students(&["--", "true"])
        .cwd(world.base().join("scratch"))
        .run()
        .refused(&["project.parents"]);
    let (staff, scratch) = (
        world.base().join("data/staff"),
        world.base().join("scratch"),
    );
    let (staff, scratch) = (staff.to_str().unwrap(), scratch.to_str().unwrap());
    let script = format!("cat {staff}/table.csv; echo x > {scratch}/student; true");
    let said = students(&[
        "-q", "--read", staff, "--write", scratch, "--", "sh", "-c", &script,
    ])
    .cwd(&thesis)
    .run();
    assert!(!said.stdout.contains(CANARY), "{said}");
    assert!(!world.base().join("scratch/student").exists(), "{said}");
    // The same from others works: the rule is what stops it.
    let said = world
        .call(&[
            "-q", "--read", staff, "--write", scratch, "--", "sh", "-c", &script,
        ])
        .cwd(&thesis)
        .run()
        .ok();
    assert!(said.stdout.contains(CANARY), "{said}");
    assert!(world.base().join("scratch/student").exists(), "{said}");
    // Login nodes.
    let login = policy().host("login2.example.edu").run().ok().json();
    assert_eq!(login["jail"]["max_processes"]["value"], 256);
    let asked = ["policy", "--json", "--set", "jail.max_processes=4000"];
    let login = world
        .call(&asked)
        .cwd(&thesis)
        .host("login2.example.edu")
        .run()
        .ok()
        .json();
    assert_eq!(login["jail"]["max_processes"]["value"], 512);
    // Those who may read what is regulated, and where it is computed on: no network.
    let network = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' \\n'";
    let asked = [
        "-q",
        "--set",
        "network.mode=open",
        "--",
        "sh",
        "-c",
        network,
    ];
    for group in ["clinical", "regulated-genomes"] {
        let said = world
            .call(&asked)
            .cwd(&thesis)
            .group_line(&format!("{group}:x:{GROUP}:{USER}"))
            .run()
            .ok();
        assert_eq!(said.stdout, "lo", "{group}: {said}");
    }
    let said = world
        .call(&asked)
        .cwd(&thesis)
        .variable("SLURM_JOB_PARTITION", "secure-long");
    let said = said.run().ok();
    assert_eq!(said.stdout, "lo", "{said}");
}
