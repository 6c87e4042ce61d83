//! The home directory: its modes, its credentials, what is protected in it, private copies.

use agent_sandbox::plan::Mount;

use crate::host::{self, plain};
use crate::scenario::Scenario;
use crate::tree::Tree;

#[test]
fn by_default() {
    Scenario::new(plain()).snapshot("default");
}

#[test]
fn modes() {
    for mode in ["restricted", "read", "write"] {
        Scenario::new(plain())
            .policy(&format!("home.mode = \"{mode}\""))
            .snapshot(&format!("home_{mode}"));
    }
}

#[test]
fn a_home_that_cannot_be_listed() {
    let unlistable = || plain().unreadable("/home/ada");
    Scenario::new(unlistable())
        .policy("home.mode = \"read\"")
        .project("/opt/software")
        .snapshot("home_unlistable");
}

/// The files beside a credential stay visible: their directory is taken apart.
#[test]
fn a_credential_below_a_readable_directory() {
    let tree = plain()
        .file("/home/ada/.config/gcloud/token", "ya29")
        .file("/home/ada/.config/nvim/init.lua", "")
        .file("/home/ada/.config/nvim/token", "")
        .link("/home/ada/.config/link", "htop");
    Scenario::new(tree)
        .policy("home.read = [\"~/.config\"]\nfiles.hide = [\"~/.config/nvim/token\"]")
        .snapshot("credential_below_readable");
}

/// A writable directory stays whole, for new files belong into the real one.
#[test]
fn a_hidden_file_in_a_writable_directory() {
    let tree = plain()
        .file("/home/ada/data/open", "")
        .file("/home/ada/data/secret", "")
        .file("/home/ada/data/keys/a/key", "");
    Scenario::new(tree)
        .policy("home.write = [\"~/data\"]\nfiles.hide = [\"~/data/secret\", \"~/data/keys\"]")
        .snapshot("hidden_in_writable");
}

#[test]
fn a_home_behind_a_link() {
    let tree = host::home(host::system().without("/home"), "/cluster/home/ada")
        .link("/home", "/cluster/home");
    Scenario::new(tree).snapshot("home_symlinked");
}

/// `$HOME` is one directory and the user database names another: credentials of both are hidden.
#[test]
fn a_home_that_the_user_database_does_not_know() {
    let tree = host::home(plain(), "/nfs/ada");
    Scenario::new(tree)
        .facts(|facts| facts.passwd_home = Some("/nfs/ada".into()))
        .policy("files.read = [\"/nfs/ada/.config\", \"/nfs/ada/.ssh\", \"/nfs/ada/notes.txt\"]")
        .snapshot("home_of_user_database");
}

/// Directories between a writable one and what is protected in it are mount points of their own, so
/// that they cannot be moved away.
#[test]
fn protected_files_below_a_writable_directory() {
    let tree = plain()
        .file("/home/ada/.config/systemd/user/x.service", "")
        .file("/home/ada/.claude/settings.json", "{}")
        .file("/home/ada/.claude/projects/x", "")
        .file("/home/ada/deep/a/b/start.sh", "");
    Scenario::new(tree)
        .policy(
            "[home]\nwrite = [\"~/.claude\", \"~/deep\", \"~/.bashrc\"]\nprotect = [\"~/deep/a/b/start.sh\"]",
        )
        .snapshot("protected_below_writable");
}

/// A link at a protected name: what it leads to is read-only.
#[test]
fn a_protected_file_behind_a_link() {
    let tree = plain()
        .without("/home/ada/.bashrc")
        .file("/home/ada/project/dotfiles/bashrc", "")
        .link("/home/ada/.bashrc", "project/dotfiles/bashrc");
    Scenario::new(tree).snapshot("protected_behind_link");
}

#[test]
fn credentials_that_lead_into_the_project() {
    let tree = plain()
        .without("/home/ada/.ssh")
        .file("/home/ada/project/keys/id_rsa", "KEY")
        .link("/home/ada/.ssh", "/home/ada/project/keys");
    Scenario::new(tree).snapshot("credentials_in_project");
}

#[test]
fn private_copies() {
    let tree = plain()
        .file("/home/ada/.config/matplotlib/style", "x")
        .file("/home/ada/.config/matplotlib/sub/more", "xy")
        .link("/home/ada/.config/matplotlib/link", "style")
        .socket("/home/ada/.config/matplotlib/socket")
        .file("/home/ada/.condarc", "channels")
        .file("/home/ada/.toolrc", "z");
    Scenario::new(tree)
        .policy("home.seed = [\"~/.config/matplotlib\", \"~/.toolrc\", \"~/.gone\"]")
        .snapshot("seeds");
}

#[test]
fn private_copies_that_are_refused() {
    let large = vec![0; (4 << 20) + 1];
    let many = (0..2100).fold(plain(), |tree, number| {
        tree.file(&format!("/home/ada/many/{number}"), "")
    });
    let deep = plain().file(&format!("/home/ada/deep{}", "/d".repeat(20)), "");
    let cases: [(&str, Tree, &str); 6] = [
        ("hidden", plain(), "home.seed = [\"~/.ssh\"]"),
        ("also_real", plain(), "home.seed = [\"~/.gitconfig\"]"),
        (
            "large",
            plain().file("/home/ada/large", large),
            "home.seed = [\"~/large\"]",
        ),
        ("many", many, "home.seed = [\"~/many\"]"),
        ("deep", deep, "home.seed = [\"~/deep\"]"),
        (
            "hung",
            plain().hung("/home/ada/hung"),
            "home.seed = [\"~/hung\"]",
        ),
    ];
    for (name, tree, policy) in cases {
        Scenario::new(tree)
            .policy(policy)
            .snapshot(&format!("seed_{name}"));
    }
}

/// What stands inside of a copy and is hidden is not copied.
#[test]
fn a_copy_leaves_out_what_is_hidden() {
    let tree = plain()
        .file("/home/ada/.tool/config", "x")
        .file("/home/ada/.tool/token", "SECRET");
    let plan = Scenario::new(tree)
        .policy("home.seed = [\"~/.tool\"]\nfiles.hide = [\"~/.tool/token\"]")
        .plan()
        .unwrap();
    let copies: Vec<_> = plan
        .steps
        .iter()
        .filter(|step| matches!(step.mount, Mount::Copy { .. }))
        .map(|step| step.at.display().to_string())
        .collect();
    assert_eq!(copies, ["/home/ada/.tool/config"]);
}

/// The profile of an agent: its state is writable, its settings are not, its login is there.
#[test]
fn an_agent_with_its_profile() {
    let claude = include_str!("../../profiles/agents/claude.toml");
    let tree = plain()
        .file("/home/ada/.claude.json", "{}")
        .file("/home/ada/.claude/.credentials.json", "{}")
        .file("/home/ada/.claude/settings.json", "{}")
        .file("/home/ada/.claude/hooks/start", "")
        .file("/home/ada/.claude/ide/1234.lock", "{}")
        .file("/home/ada/.claude/projects/x.jsonl", "");
    Scenario::new(tree)
        .profile("claude.toml", claude)
        .variable("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdef")
        .snapshot("profile_claude");
}
