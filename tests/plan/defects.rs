//! A finished plan that is wrong in one place is refused, whatever made it so.

use std::path::Path;

use agent_sandbox::config::source::{Source, Sourced};
use agent_sandbox::plan::model::persistent::Make;
use agent_sandbox::plan::model::slurm::Use;
use agent_sandbox::plan::{Access, Mount, NetworkMode, Plan, Step, Variable, Why, check};

use crate::host::plain;
use crate::scenario::Scenario;

const ENFORCED: &str = "[project]\nparents = [\"/home/ada\"]\n\
    [home]\nread = [\"~/notes.txt\", \"~/.bashrc\"]\nwrite = [\"~/work\"]\nkeep = [\"~/.cache\"]\nseed = [\"~/.bashrc\"]\n\
    [files]\nread = [\"/usr\", \"/etc\", \"/bin\", \"/lib\"]\nwrite = []\n\
    [env]\nhide = [\"CI_*\"]\n\
    [devices]\nallow = [\"/dev/null\"]\n\
    [jail]\nnested = false\nkeyctl = false\n[network]\nmode = \"isolated\"\nforward = [8888]\n[slurm]\nmode = \"off\"\n";

/// A user under a site's policy, with something kept, hidden and protected.
fn scenario() -> Scenario {
    let tree = plain()
        .file("/home/ada/project/keys/key", "SECRET")
        .file("/home/ada/work/x", "1")
        .directory("/data")
        .directory("/home/ada/.cache");
    Scenario::new(tree)
        .policy(
            "[home]\nkeep = [\"~/.cache\"]\nwrite = [\"~/work\"]\n\
             [files]\nhide = [\"~/project/keys/key\"]\n",
        )
        .enforced(ENFORCED)
}

fn step<'p>(plan: &'p mut Plan, at: &str) -> &'p mut Step {
    let found = plan.steps.iter_mut().find(|step| step.at == Path::new(at));
    found.unwrap_or_else(|| panic!("{at}"))
}

fn bind(from: &str, access: Access) -> Mount {
    let id = (1, 1);
    Mount::Bind {
        from: from.into(),
        access,
        id,
    }
}

/// Puts in a step that a rule of the user's would have led to.
fn put(plan: &mut Plan, at: &str, mount: Mount) {
    let why = plan.steps.iter().map(|step| step.why.clone());
    let why = why.clone().find(|why| matches!(why, Why::Rule { .. }));
    let (at, why) = (at.into(), why.unwrap());
    plan.steps.retain(|step| step.at != at);
    plan.steps.push(Step { at, mount, why });
    plan.steps.sort_by(|one, other| one.at.cmp(&other.at));
}

fn put_bind(plan: &mut Plan, at: &str, access: Access) {
    put(plan, at, bind(at, access));
}

type Change = fn(&mut Plan);

const DEFECTS: &[(&str, Change)] = &[
    ("is mounted after", |plan| plan.steps.swap(1, 2)),
    ("is not a plain absolute path", |plan| {
        put_bind(plan, "/usr/../data", Access::Read);
    }),
    ("not a plain absolute path", |plan| {
        put(plan, "/usr/x", bind("/", Access::Read))
    }),
    ("comes from the host's /dev or /proc", |plan| {
        put(plan, "/usr/x", bind("/proc/1", Access::Read));
    }),
    ("`/home` is writable as a whole", |plan| {
        put_bind(plan, "/home", Access::Write)
    }),
    ("makes the home directory writable", |plan| {
        plan.home = "/data".into();
        put_bind(plan, "/data", Access::Write);
    }),
    ("which files.hide `~/project/keys/key`", |plan| {
        plan.steps
            .retain(|step| step.at != Path::new("/home/ada/project/keys/key"));
    }),
    ("shows what files.hide `~/.ssh`", |plan| {
        put_bind(plan, "/home/ada/.ssh", Access::Read)
    }),
    ("agent-sandbox` writable", |plan| {
        put_bind(plan, "/usr/bin", Access::Write)
    }),
    ("where tasks meet", |plan| {
        put_bind(plan, "/tmp", Access::Read)
    }),
    ("has no place of its own", |plan| plan.slurm.value = Use::On),
    ("`/proc` is not private", |plan| {
        plan.steps.retain(|step| step.at != Path::new("/proc"));
    }),
    ("filter lacks bpf", |plan| {
        plan.syscalls.retain(|rule| rule.name != "bpf")
    }),
    ("hidden variable GITHUB_TOKEN passes", |plan| {
        pass(plan, "GITHUB_TOKEN")
    }),
    // What is kept.
    ("is not this project's", |plan| {
        let Mount::Kept { from, .. } = &mut step(plan, "/home/ada/.cache").mount else {
            panic!("kept");
        };
        let other = from.display().to_string().replace("project", "other");
        *from = other.into();
    }),
    ("is not this project's", |plan| {
        let Mount::Kept { from, .. } = &mut step(plan, "/home/ada/.cache").mount else {
            panic!("kept");
        };
        from.push("below");
    }),
    ("stands around the project or in it", |plan| {
        let kept = step(plan, "/home/ada/.cache").mount.clone();
        put(plan, "/home/ada/project/x", kept);
    }),
    ("stands in a directory of the host's", |plan| {
        let kept = step(plan, "/home/ada/.cache").mount.clone();
        put(plan, "/home/ada/work/x", kept);
    }),
    ("would be made", |plan| make(plan, "/data/x")),
    ("would be made", |plan| {
        make(plan, "/home/ada/.ssh/authorized_keys")
    }),
    ("would be made", |plan| make(plan, "/home/ada/notes")),
    // What the site enforces.
    ("project.parents does not hold `/data`", |plan| {
        plan.steps
            .retain(|step| !matches!(step.mount, Mount::Kept { .. }));
        plan.project = Some("/data".into());
    }),
    ("files.read does not hold `/data`", |plan| {
        put_bind(plan, "/data", Access::Read)
    }),
    ("files.write does not hold `/usr/lib`", |plan| {
        put_bind(plan, "/usr/lib", Access::Write);
    }),
    ("home.write does not hold `/home/ada/notes.txt`", |plan| {
        put_bind(plan, "/home/ada/notes.txt", Access::Write);
    }),
    ("home.read does not hold `/home/ada/.local`", |plan| {
        put_bind(plan, "/home/ada/.local", Access::Read);
    }),
    ("home.keep does not hold `/home/ada/.x`", |plan| {
        let kept = step(plan, "/home/ada/.cache").mount.clone();
        put(plan, "/home/ada/.x", kept);
    }),
    ("home.seed does not hold `/home/ada/notes.txt`", |plan| {
        let copy = Mount::Copy {
            from: "/home/ada/notes.txt".into(),
            content: Vec::new(),
            mode: 0o600,
        };
        put(plan, "/home/ada/notes.txt", copy);
    }),
    ("devices.allow does not hold `/dev/gpu0`", |plan| {
        let from = "/dev/gpu0".into();
        put(plan, "/dev/gpu0", Mount::Device { from });
    }),
    ("devices.deny names `/dev/sda`", |plan| {
        let from = "/dev/sda".into();
        put(plan, "/dev/sda", Mount::Device { from });
    }),
    ("network.mode is wider", |plan| {
        plan.network.value = NetworkMode::Open
    }),
    ("port 9 is not in the site's network.forward", |plan| {
        forward(plan, 9)
    }),
    ("jail.nested is wider", |plan| plan.nested.value = true),
    ("jail.keyctl is wider", |plan| {
        plan.syscalls.retain(|rule| rule.name != "keyctl")
    }),
    ("the variable CI_TOKEN passes", |plan| {
        pass(plan, "CI_TOKEN")
    }),
];

fn forward(plan: &mut Plan, port: u16) {
    plan.forward
        .push(Sourced::new(port, Source::option("a test")));
}

fn make(plan: &mut Plan, path: &str) {
    let why = Why::Every("a test");
    let path = path.into();
    plan.keeping.makes.push(Make::Directory { path, why });
}

fn pass(plan: &mut Plan, name: &str) {
    plan.variables.push(Variable {
        name: name.into(),
        value: "1".into(),
        why: Why::Every("no rule hides it"),
    });
}

#[test]
fn a_plan_with_one_defect_is_refused() {
    let scenario = scenario();
    let checked = |plan: &Plan| {
        let checked = check::check(plan, &scenario.merged(), &scenario.host, &scenario.tree);
        checked.map_err(|error| error.to_string())
    };
    let plan = scenario.plan().unwrap();
    assert_eq!(checked(&plan), Ok(()));
    let mut wrong = Vec::new();
    for (with, change) in DEFECTS {
        let mut plan = plan.clone();
        change(&mut plan);
        match checked(&plan) {
            Err(error) if error.contains("refusing an unsafe plan") && error.contains(with) => {}
            other => wrong.push(format!("{with}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
