//! Devices, network, nesting, users, variables.

use agent_sandbox::plan::build::syscalls::{Switches, rules};
use agent_sandbox::plan::model::syscalls::{Answer, Arguments};
use agent_sandbox::plan::{Mount, Plan};

use crate::host::plain;
use crate::scenario::Scenario;

#[test]
fn devices_that_are_denied() {
    let tree = plain()
        .device("/dev/nvidia0")
        .device("/dev/nvidiactl")
        .device("/dev/dri/renderD128")
        .device("/dev/infiniband/uverbs0")
        .device("/dev/sda")
        .device("/dev/fuse")
        .device("/dev/kvm")
        .link("/dev/nvidia-evil", "sda")
        .file("/dev/nvidia-file", "");
    Scenario::new(tree)
        .policy("[devices]\nallow = [\"/dev/kvm\", \"/dev/sd*\"]\ndeny = [\"/dev/dri/*\"]")
        .snapshot("devices");
}

#[test]
fn an_isolated_network() {
    let scenario = Scenario::new(plain())
        .policy("network.mode = \"isolated\"")
        .facts(|facts| facts.landlock_abi = 0);
    let plan = scenario.plan().unwrap();
    let sockets = |weakness: &String| weakness.contains("abstract unix sockets");
    assert!(
        !plan.weaknesses.iter().any(sockets),
        "{:?}",
        plan.weaknesses
    );
    scenario.snapshot("network_isolated");
}

/// A kernel without Landlock's scopes: said, not passed over.
#[test]
fn a_kernel_that_cannot_scope() {
    for (abi, scope) in [(0, false), (5, false), (6, true), (7, true)] {
        let plan = Scenario::new(plain())
            .facts(|facts| facts.landlock_abi = abi)
            .plan()
            .unwrap();
        assert_eq!(plan.landlock_scope, scope, "ABI {abi}");
        assert_eq!(
            plan.weaknesses.is_empty(),
            scope,
            "ABI {abi}: {:?}",
            plan.weaknesses
        );
    }
}

#[test]
fn namespaces_inside() {
    let scenario = Scenario::new(plain()).policy("jail.nested = true");
    let plan = scenario.plan().unwrap();
    assert_eq!(
        plan.syscalls,
        rules(Switches {
            nested: true,
            keyctl: false,
            mediated: true,
            besides: &[],
        })
    );
    scenario.snapshot("nested");
    let strict = Scenario::new(plain()).plan().unwrap();
    // CLONE_NEWUSER
    let user: Arguments = [0x1000_0000; 6];
    let refuses = |rules: &[agent_sandbox::plan::model::syscalls::SyscallRule], name: &str| {
        rules
            .iter()
            .any(|rule| rule.name == name && rule.answer == Answer::Perm && rule.when.holds(&user))
    };
    assert!(refuses(&strict.syscalls, "unshare"));
    assert!(!refuses(&plan.syscalls, "unshare"));
}

/// The user database: system users and the caller, nobody's group memberships but the caller's.
#[test]
fn the_user_database() {
    let plan = Scenario::new(plain()).plan().unwrap();
    let mut all = String::new();
    let databases = |plan: &Plan| {
        let mut steps = plan.steps.clone();
        steps
            .retain(|step| matches!(step.mount, Mount::File { .. }) && step.at.starts_with("/etc"));
        steps
    };
    for step in databases(&plan) {
        if let Mount::File { content } = &step.mount {
            all.push_str(&format!(
                "# {}\n{}",
                step.at.display(),
                String::from_utf8_lossy(content)
            ));
        }
    }
    crate::scenario::compare("user_database", &all);
    let host = Scenario::new(plain())
        .policy("jail.users = \"host\"")
        .plan()
        .unwrap();
    assert_eq!(databases(&host), []);
}

/// Variables: hidden by name, by value, because another repeats them; passed by name; set.
#[test]
fn variables() {
    Scenario::new(plain())
        .variable("MY_URL", "https://ada:secret@example.org/")
        .variable("COPY", "x=ghp_0123456789abcdef")
        .variable("WANDB_API_KEY", "0123456789")
        .variable("TMPDIR", "/scratch/tmp")
        .variable("OLDPWD", "/home/ada/.ssh")
        .variable("PWD", "/elsewhere")
        .variable("AGENT_SANDBOX_PROJECT", "/forged")
        .variable("NUM", "1")
        .variable("", "nameless")
        .policy("[env]\npass = [\"WANDB_API_KEY\"]\nhide = [\"NUM\"]\nset = { NUM = \"2\", EXTRA = \"3\" }")
        .snapshot("variables");
}

/// `max_processes = 0` is no limit.
#[test]
fn limits() {
    let most = |policy: &str| {
        Scenario::new(plain())
            .policy(policy)
            .plan()
            .unwrap()
            .max_processes
            .value
    };
    assert_eq!(most("jail.max_processes = 0"), None);
    assert_eq!(most("jail.max_processes = 7"), Some(7));
    let plan = Scenario::new(plain())
        .policy("[jail]\ntmp_size = \"2M\"\nshm_size = \"3M\"\nhome_size = \"4M\"")
        .plan()
        .unwrap();
    for (at, mib) in [
        ("/tmp", 2),
        ("/var/tmp", 2),
        ("/dev/shm", 3),
        ("/home/ada", 4),
    ] {
        let step = plan
            .steps
            .iter()
            .find(|step| step.at.to_str() == Some(at))
            .unwrap();
        assert!(
            matches!(step.mount, Mount::Tmpfs { size, .. } if size == mib << 20),
            "{step:?}"
        );
    }
}
