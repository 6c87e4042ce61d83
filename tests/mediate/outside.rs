//! A jail with a project in it that has something closed, and a socket outside.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use agent_sandbox::plan::build::syscalls::{Switches, rules};
use agent_sandbox::policy::NetworkMode;
use agent_sandbox::seccomp::compile;
use agent_sandbox::sys::{passing, privileges, process};
use agent_sandbox_landlock::access::{
    AccessMap, HandedOver, MapEntry, MediatorConfig, Permission, Right, Rule,
};
use agent_sandbox_landlock::{handed_over, mediator, refused, restrict};

/// A project with something closed in it, a directory that is the jail's altogether, and what is
/// neither.
pub(crate) struct World {
    root: tempfile::TempDir,
    pub(crate) host: UnixListener,
    pub(crate) abi: i32,
}

impl World {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        for directory in ["outside/deep", "project/.git", "stage"] {
            fs::create_dir_all(root.path().join(directory)).expect("a directory");
        }
        let host = UnixListener::bind(root.path().join("outside/host")).expect("a socket");
        host.set_nonblocking(true).expect("a flag");
        let abi = process::landlock_abi();
        Self { root, host, abi }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        let real = fs::canonicalize(self.root.path()).expect("a path");
        real.join(path)
    }

    fn entry(&self, path: &str, permission: Permission, direct: bool) -> MapEntry {
        MapEntry {
            at: self.at(path).into_os_string().into_encoded_bytes(),
            permission,
            direct,
            listed: true,
        }
    }

    fn rule(&self, path: &str, right: Right) -> Rule {
        let path = self.at(path);
        let meta = fs::symlink_metadata(&path).expect("a file");
        Rule {
            path: path.into_os_string().into_encoded_bytes(),
            id: Some((meta.dev(), meta.ino())),
            right,
        }
    }

    /// Runs `act` in a jail; it fails by a panic.
    pub(crate) fn jail(&self, act: impl FnOnce()) {
        let command = vec![
            self.rule("project", Right::Read),
            self.rule("stage", Right::Write),
            self.rule("/proc", Right::Read),
        ];
        let config = MediatorConfig {
            access_map: AccessMap::new(vec![
                self.entry("project", Permission::Write, false),
                self.entry("project/.git/config", Permission::Read, false),
                self.entry("project/.git/closed", Permission::Read, false),
                self.entry("stage", Permission::Write, true),
            ]),
            rules: [&command[..], &[self.rule("project", Right::Write)]].concat(),
            abi: self.abi,
            stand_in: None,
            listed: None,
            git_config: None,
        };
        let refused = compile(&rules(Switches {
            nested: false,
            keyctl: false,
            mediated: true,
            besides: refused::besides(NetworkMode::Open),
        }));
        let refused = refused.expect("rules that compile");
        let handed_over = handed_over::program(HandedOver {
            changes: true,
            ..HandedOver::default()
        });
        let confine = |mediator: &OwnedFd| {
            privileges::no_new_privileges().expect("no_new_privs");
            restrict::restrict(&command, self.abi, None).expect("a domain");
            nix::sys::prctl::set_dumpable(true).expect("dumpable");
            privileges::filter(&refused).expect("a filter");
            let listener = privileges::filter_with_listener(&handed_over).expect("a listener");
            passing::send(mediator, b"l", Some(listener.as_fd())).expect("sent");
        };
        let mediator = mediator::start(config, &[], |mediator| {
            let command = match process::fork().expect("a fork") {
                process::Side::Child => {
                    confine(&mediator);
                    drop(mediator);
                    let done = catch_unwind(AssertUnwindSafe(act));
                    if let Err(reason) = &done {
                        let text = reason.downcast_ref::<String>().map(String::as_str);
                        let text = text.or_else(|| reason.downcast_ref::<&str>().copied());
                        let text = format!("inside: {}\n", text.unwrap_or("a panic"));
                        let _ = nix::unistd::write(std::io::stderr(), text.as_bytes());
                    }
                    process::exit_now(i32::from(done.is_err()))
                }
                process::Side::Parent(pid) => pid,
            };
            drop(mediator);
            match process::wait(command) {
                Ok(process::Change::Exited(code)) => process::exit_now(code),
                _ => process::exit_now(99),
            }
        });
        let mediator = mediator.expect("a mediator");
        let ended = process::wait(mediator).expect("its end");
        assert_eq!(ended, process::Change::Exited(0));
    }

    /// Nobody has reached the socket outside.
    pub(crate) fn assert_unreached(&self) {
        let came = self.host.accept().map(drop).map_err(|error| error.kind());
        assert_eq!(came, Err(ErrorKind::WouldBlock), "somebody came");
    }
}
