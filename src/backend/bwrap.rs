//! A plan as arguments of bubblewrap (`bwrap(1)`). Pure.
//!
//! Options used, with the release that brought each: `--as-pid-1`, `--die-with-parent`, `--args`,
//! `--seccomp` (0.1–0.3), `--perms` (0.5), `--size`, `--disable-userns` (0.8).

use std::ffi::OsString;
use std::path::Path;

use crate::plan::{Access, INIT, Mount, NetworkMode, OWN, Plan};

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// As it stands.
    Text(OsString),
    /// The number of a descriptor that holds the content with this index.
    Content(usize),
}

/// The arguments, and the contents that they refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Options, in order; they are passed by descriptor (`--args`).
    pub options: Vec<Argument>,
    /// What [`Argument::Content`] counts.
    pub contents: Vec<Vec<u8>>,
}

impl Call {
    fn text<const N: usize>(&mut self, words: [&Path; N]) {
        self.options.extend(
            words
                .into_iter()
                .map(|word| Argument::Text(word.as_os_str().to_owned())),
        );
    }

    fn flag(&mut self, flag: &str) {
        self.options.push(Argument::Text(flag.into()));
    }

    fn content(&mut self, flag: &str, content: Vec<u8>) {
        self.flag(flag);
        self.options.push(Argument::Content(self.contents.len()));
        self.contents.push(content);
    }

    fn mode(&mut self, mode: u32) {
        self.flag("--perms");
        self.flag(&format!("{mode:04o}"));
    }

    fn size(&mut self, size: u64) {
        self.flag("--size");
        self.flag(&size.to_string());
    }
}

/// An empty directory that covers a hidden one needs no room.
const COVER_SIZE: u64 = 4096;

/// Translates the plan; `filter` is the compiled filter of its system calls.
pub fn call(plan: &Plan, filter: Vec<u8>) -> Call {
    let mut call = Call::default();
    for namespace in ["user", "pid", "ipc", "uts", "cgroup"] {
        call.flag(&format!("--unshare-{namespace}"));
    }
    if plan.network.value == NetworkMode::Isolated {
        call.flag("--unshare-net");
    }
    if !plan.nested.value {
        call.flag("--disable-userns");
    }
    call.flag("--die-with-parent");
    call.flag("--as-pid-1");
    // By where they are made, so that what stands deeper comes later.
    let mut steps: Vec<_> = plan
        .steps
        .iter()
        .map(|step| (plan.place(step), step))
        .collect();
    steps.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (at, step) in &steps {
        let at = at.as_path();
        match &step.mount {
            Mount::Bind { from, access, .. } => {
                let flag = match access {
                    Access::Read => "--ro-bind",
                    Access::Write => "--bind",
                };
                call.text([Path::new(flag), from, at]);
            }
            Mount::Kept { from, .. } => call.text([Path::new("--bind"), from, at]),
            Mount::Device { from } => call.text([Path::new("--dev-bind"), from, at]),
            Mount::Tmpfs { size, mode } => {
                call.mode(*mode);
                call.size(*size);
                call.text([Path::new("--tmpfs"), at]);
            }
            Mount::Directory { mode } => {
                call.mode(*mode);
                call.text([Path::new("--dir"), at]);
            }
            Mount::Link { target } => call.text([Path::new("--symlink"), target, at]),
            Mount::File { content } => {
                call.mode(0o444);
                call.content("--ro-bind-data", content.clone());
                call.text([at]);
            }
            Mount::Program { content } => {
                call.mode(0o555);
                call.content("--ro-bind-data", content.clone());
                call.text([at]);
            }
            Mount::Copy { content, mode, .. } => {
                call.mode(*mode);
                call.content("--file", content.clone());
                call.text([at]);
            }
            Mount::HideDirectory => {
                call.mode(0o555);
                call.size(COVER_SIZE);
                call.text([Path::new("--tmpfs"), at]);
                call.text([Path::new("--remount-ro"), at]);
            }
            Mount::HideFile => {
                call.mode(0o444);
                call.content("--ro-bind-data", Vec::new());
                call.text([at]);
            }
            Mount::Proc => call.text([Path::new("--proc"), at]),
            Mount::Dev => call.text([Path::new("--dev"), at]),
        }
    }
    // The file systems that hold the rest together: nothing may be stored in them, for bubblewrap
    // sets them no size. And the one of what is ours.
    for base in [OWN, "/dev", "/"] {
        call.text([Path::new("--remount-ro"), Path::new(base)]);
    }
    call.text([Path::new("--chdir"), Path::new("/")]);
    call.content("--seccomp", filter);
    call
}

/// The command that bubblewrap starts inside.
pub const COMMAND: &str = INIT;
