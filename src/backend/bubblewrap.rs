//! A plan as arguments of bubblewrap (`bwrap(1)`). Pure.
//!
//! Options used, with the release that brought each: `--as-pid-1`, `--die-with-parent`, `--args`,
//! `--seccomp`, `--bind-data` (0.1–0.3), `--perms` (0.5), `--size` (0.6), `--disable-userns` (0.8). What an
//! older one lacks of the last three is left for the launcher to do, before anything runs inside
//! ([`Left`]).

pub mod mediated;
pub mod mediator;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::plan::{Access, INIT, Mount, NetworkMode, OWN, Plan};

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// As it stands.
    Text(OsString),
    /// The number of a descriptor that holds the content with this index.
    Content(usize),
}

/// Who does what `--perms`, `--size` and `--disable-userns` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finisher {
    /// bubblewrap, which has these options.
    Bubblewrap,
    /// The launcher, once bubblewrap has mounted everything.
    Launcher,
}

/// What is left to do at one place inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The place: what bubblewrap mounted or made there, in a tmpfs of the jail's.
    pub at: PathBuf,
    /// Bytes that the tmpfs that is mounted there may hold.
    pub size: Option<u64>,
    /// The mode of what is there.
    pub mode: Option<u32>,
    /// Whether the mount there becomes read-only.
    pub read_only: bool,
}

/// What is left for the launcher to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// At places inside, in this order.
    pub places: Vec<Left>,
    /// Whether the number of user namespaces is to be limited to those that there are.
    pub no_namespaces: bool,
}

/// The arguments, and the contents that they refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Options, in order; they are passed by descriptor (`--args`).
    pub options: Vec<Argument>,
    /// What [`Argument::Content`] counts.
    pub contents: Vec<Vec<u8>>,
    /// What bubblewrap cannot do; `None`: nothing.
    pub rest: Option<Rest>,
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

    /// An option that makes something at `at`, with this mode, and as a tmpfs of this size.
    fn make(&mut self, option: &str, at: &Path, mode: u32, size: Option<u64>) {
        match &mut self.rest {
            None => {
                self.perms(mode);
                if let Some(size) = size {
                    self.flag("--size");
                    self.flag(&size.to_string());
                }
            }
            // Like this bubblewrap makes it anyway.
            Some(_) if mode == DIRECTORY && size.is_none() => {}
            Some(rest) => rest.places.push(Left {
                at: at.to_owned(),
                size,
                mode: Some(mode),
                read_only: false,
            }),
        }
        self.text([Path::new(option), at]);
    }

    /// A file that can only be read.
    fn file(&mut self, at: &Path, content: Vec<u8>, mode: u32) {
        match &mut self.rest {
            None => {
                self.perms(mode);
                self.content("--ro-bind-data", content);
            }
            Some(rest) => {
                rest.places.push(Left {
                    at: at.to_owned(),
                    size: None,
                    mode: Some(mode),
                    read_only: true,
                });
                self.content("--bind-data", content);
            }
        }
        self.text([at]);
    }

    fn perms(&mut self, mode: u32) {
        self.flag("--perms");
        self.flag(&format!("{mode:04o}"));
    }

    fn read_only(&mut self, at: &Path) {
        match &mut self.rest {
            None => self.text([Path::new("--remount-ro"), at]),
            // What is at this place already, or a place of its own.
            Some(rest) => match rest.places.last_mut().filter(|left| left.at == at) {
                Some(left) => left.read_only = true,
                None => rest.places.push(Left {
                    at: at.to_owned(),
                    read_only: true,
                    ..Left::default()
                }),
            },
        }
    }
}

/// The mode of a directory that bubblewrap makes by itself.
const DIRECTORY: u32 = 0o755;

/// An empty directory that covers a hidden one needs no room.
const COVER_SIZE: u64 = 4096;

/// Translates the plan; `filter` is the compiled filter of its system calls.
pub fn call(plan: &Plan, filter: Vec<u8>, finisher: Finisher) -> Call {
    let mut call = Call::default();
    if finisher == Finisher::Launcher {
        call.rest = Some(Rest {
            places: Vec::new(),
            no_namespaces: !plan.nested.value,
        });
    }
    for namespace in ["user", "pid", "ipc", "uts", "cgroup"] {
        call.flag(&format!("--unshare-{namespace}"));
    }
    if plan.network.value != NetworkMode::Open {
        call.flag("--unshare-net");
    }
    if !plan.nested.value && finisher == Finisher::Bubblewrap {
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
            Mount::Tmpfs { size, mode } => call.make("--tmpfs", at, *mode, Some(*size)),
            Mount::Directory { mode } => call.make("--dir", at, *mode, None),
            Mount::Link { target } => call.text([Path::new("--symlink"), target, at]),
            Mount::File { content } => call.file(at, content.clone(), 0o444),
            Mount::Program { content } => call.file(at, content.clone(), 0o555),
            Mount::Copy { content, mode, .. } => {
                match &mut call.rest {
                    None => call.perms(*mode),
                    Some(rest) => rest.places.push(Left {
                        at: at.to_owned(),
                        mode: Some(*mode),
                        ..Left::default()
                    }),
                }
                call.content("--file", content.clone());
                call.text([at]);
            }
            Mount::HideDirectory => {
                call.make("--tmpfs", at, 0o555, Some(COVER_SIZE));
                call.read_only(at);
            }
            Mount::HideFile => call.file(at, Vec::new(), 0o444),
            Mount::Proc => call.text([Path::new("--proc"), at]),
            Mount::Dev => call.text([Path::new("--dev"), at]),
        }
    }
    // The file systems that hold the rest together: nothing may be stored in them, for bubblewrap
    // sets them no size. And the one of what is ours.
    for base in [OWN, "/dev", "/"] {
        call.read_only(Path::new(base));
    }
    call.text([Path::new("--chdir"), Path::new("/")]);
    call.content("--seccomp", filter);
    call
}

/// The command that bubblewrap starts inside.
pub const COMMAND: &str = INIT;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(call: &Call) -> String {
        let words = call.options.iter().map(|option| match option {
            Argument::Text(text) => text.to_string_lossy().into_owned(),
            Argument::Content(at) => format!("#{at}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn made(rest: Option<Rest>) -> Call {
        let mut call = Call {
            rest,
            ..Call::default()
        };
        call.make("--dir", Path::new("/a"), 0o755, None);
        call.make("--dir", Path::new("/b"), 0o700, None);
        call.make("--tmpfs", Path::new("/c"), 0o555, Some(4096));
        call.read_only(Path::new("/c"));
        call.file(Path::new("/d"), Vec::new(), 0o444);
        call.read_only(Path::new("/"));
        call
    }

    #[test]
    fn what_one_bubblewrap_does_is_left_by_the_other() {
        let all = made(None);
        assert_eq!(
            words(&all),
            "--perms 0755 --dir /a --perms 0700 --dir /b --perms 0555 --size 4096 --tmpfs /c --remount-ro /c \
             --perms 0444 --ro-bind-data #0 /d --remount-ro /"
        );
        let older = made(Some(Rest::default()));
        assert_eq!(
            words(&older),
            "--dir /a --dir /b --tmpfs /c --bind-data #0 /d"
        );
        let left = |at: &str, mode: Option<u32>, size: Option<u64>, read_only| Left {
            at: at.into(),
            size,
            mode,
            read_only,
        };
        assert_eq!(
            older.rest.unwrap().places,
            [
                left("/b", Some(0o700), None, false),
                left("/c", Some(0o555), Some(4096), true),
                left("/d", Some(0o444), None, true),
                left("/", None, None, true),
            ]
        );
    }
}
