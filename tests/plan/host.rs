//! The host that most scenarios start from: one user, `ada`, with a home, a project and a few
//! credentials.

use std::path::PathBuf;

use agent_sandbox::host::{Databases, HostFacts};

use crate::tree::{OWNER, Tree};

const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
ada:x:1000:1000:Ada:/home/ada:/bin/bash
bob:x:1001:1001:Bob:/home/bob:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
";
const GROUP: &str = "root:x:0:
adm:x:4:bob
ada:x:1000:
lab:x:2000:ada,bob
";
const NSSWITCH: &str = "passwd: files sss\nhosts: files mdns4_minimal dns\n";

/// The system without anybody's home.
pub(crate) fn system() -> Tree {
    Tree::default()
        .link("/bin", "usr/bin")
        .link("/lib", "usr/lib")
        .file("/usr/bin/agent-sandbox", "ELF")
        .file("/usr/bin/cc", "ELF")
        .directory("/usr/lib")
        .directory("/opt/software")
        .file("/etc/passwd", PASSWD)
        .file("/etc/group", GROUP)
        .file("/etc/nsswitch.conf", NSSWITCH)
        .file("/etc/hosts", "127.0.0.1 localhost\n")
        .file("/etc/resolv.conf", "nameserver 192.0.2.1\n")
        .file("/etc/shadow", "root:!:")
        .unreadable("/etc/shadow")
        .directory("/run/user/1000")
        .socket("/run/munge/munge.socket.2")
        .directory("/tmp")
        .directory("/proc/1")
        .device("/dev/null")
        .file("/home/bob/thesis.tex", "Bob's")
}

/// The system and `/home/ada`.
pub(crate) fn plain() -> Tree {
    home(system(), "/home/ada")
}

/// Adds Ada's home.
pub(crate) fn home(tree: Tree, at: &str) -> Tree {
    let in_home = |name: &str| format!("{at}/{name}");
    tree.file(&in_home(".ssh/id_rsa"), "KEY")
        .file(&in_home(".bash_history"), "mysql -p")
        .file(&in_home(".bashrc"), "# mine")
        .file(&in_home(".gitconfig"), "[user]")
        .file(&in_home(".netrc"), "machine")
        .file(&in_home(".config/agent-sandbox/config.toml"), "")
        .file(&in_home(".config/gh/hosts.yml"), "oauth_token")
        .file(&in_home(".config/htop/htoprc"), "")
        .file(&in_home(".local/bin/tool"), "#!/bin/sh")
        .file(&in_home("notes.txt"), "notes")
        .file(&in_home("project/main.c"), "int main;")
}

/// What is known about the host.
pub(crate) fn facts() -> HostFacts {
    let home = PathBuf::from("/home/ada");
    let variable = |name: &str, value: &str| (name.into(), value.into());
    HostFacts {
        uid: OWNER,
        gid: OWNER,
        groups: vec![OWNER],
        user: Some("ada".into()),
        passwd_home: None,
        home_aliases: Vec::new(),
        home_reals: vec![home.clone()],
        state_directory: home.join(".local/state/agent-sandbox"),
        join_directories: ["/dev/shm", "/tmp", "/var/tmp"]
            .map(|directory| format!("{directory}/agent-sandbox-{OWNER}").into())
            .to_vec(),
        input: None,
        environment: vec![
            variable("HOME", "/home/ada"),
            variable("PATH", "/usr/bin:/bin"),
            variable("LANG", "C.UTF-8"),
            variable("GITHUB_TOKEN", "ghp_0123456789abcdef"),
            variable("SSH_AUTH_SOCK", "/run/user/1000/agent"),
        ],
        carried: None,
        executable: "/usr/bin/agent-sandbox".into(),
        companions: Vec::new(),
        loader: None,
        own_directories: vec![
            home.join(".config/agent-sandbox"),
            home.join(".local/state/agent-sandbox"),
        ],
        databases: Databases {
            passwd: Some(PASSWD.into()),
            group: Some(GROUP.into()),
            nsswitch: Some(NSSWITCH.into()),
            caller: PASSWD
                .lines()
                .find(|line| line.starts_with("ada:"))
                .map(Into::into),
            groups: vec![(1000, "ada".into()), (2000, "lab".into())],
        },
        home,
        landlock_abi: 7,
        no_mediator: None,
        slurm: None,
        allocation: None,
        traced: false,
    }
}
