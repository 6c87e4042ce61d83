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

use crate::plan::{Access, INIT, Mount, NetworkMode, OWN, Plan, Step};

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// As it stands.
    Text(OsString),
    /// The number of a descriptor that holds the content with this index.
    Content(usize),
}

/// Who finishes a jail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finisher {
    /// bubblewrap makes all of it: what the benchmark compares a launch with.
    #[default]
    Bubblewrap,
    /// bubblewrap, but for small read-only mounts over what the host has ([`Bind`]): it reads the table of mounts for
    /// each of them, and the launcher does not.
    Both,
    /// The launcher also does what `--perms`, `--size` and `--disable-userns` ask for, once bubblewrap has mounted
    /// everything.
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

/// A file that stands read-only in the jail, and the place of another that it is to cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    /// Its path inside.
    pub from: PathBuf,
    /// What it covers.
    pub at: PathBuf,
}

/// What is left for the launcher to do, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// At places inside, in this order.
    pub places: Vec<Left>,
    /// Mounts that bubblewrap did not make.
    pub binds: Vec<Bind>,
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
    /// What bubblewrap does not do.
    pub rest: Rest,
    finisher: Finisher,
    /// Contents that stand in [`COVERS`], by their number, with their modes.
    covers: Vec<(Vec<u8>, u32)>,
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

    fn is_later(&self) -> bool {
        self.finisher != Finisher::Launcher
    }

    /// An option that makes something at `at`, with this mode, and as a tmpfs of this size.
    fn make(&mut self, option: &str, at: &Path, mode: u32, size: Option<u64>) {
        if self.is_later() {
            self.perms(mode);
            if let Some(size) = size {
                self.flag("--size");
                self.flag(&size.to_string());
            }
        // Like this bubblewrap makes it anyway.
        } else if mode != DIRECTORY || size.is_some() {
            self.rest.places.push(Left {
                at: at.to_owned(),
                size,
                mode: Some(mode),
                read_only: false,
            });
        }
        self.text([Path::new(option), at]);
    }

    /// A file that can only be read.
    fn file(&mut self, at: &Path, content: Vec<u8>, mode: u32) {
        if self.is_later() {
            self.perms(mode);
            self.content("--ro-bind-data", content);
        } else {
            self.rest.places.push(Left {
                at: at.to_owned(),
                size: None,
                mode: Some(mode),
                read_only: true,
            });
            self.content("--bind-data", content);
        }
        self.text([at]);
    }

    /// A file in the file system that is there.
    fn copy(&mut self, at: &Path, content: Vec<u8>, mode: u32) {
        if self.is_later() {
            self.perms(mode);
        } else {
            self.rest.places.push(Left {
                at: at.to_owned(),
                mode: Some(mode),
                ..Left::default()
            });
        }
        self.content("--file", content);
        self.text([at]);
    }

    /// A file that can only be read, over one of the host's that can only be read: the launcher puts it there.
    fn cover(&mut self, at: &Path, content: &[u8], mode: u32) {
        let cover = (content, mode);
        let mut covers = self.covers.iter();
        let number = covers.position(|(content, mode)| (content.as_slice(), *mode) == cover);
        let number = number.unwrap_or_else(|| {
            self.covers.push((content.to_vec(), mode));
            self.covers.len() - 1
        });
        self.rest.binds.push(Bind {
            from: Path::new(COVERS).join(number.to_string()),
            at: at.to_owned(),
        });
    }

    fn perms(&mut self, mode: u32) {
        self.flag("--perms");
        self.flag(&format!("{mode:04o}"));
    }

    fn read_only(&mut self, at: &Path) {
        if self.is_later() {
            return self.text([Path::new("--remount-ro"), at]);
        }
        // What is at this place already, or a place of its own.
        let places = &mut self.rest.places;
        match places.last_mut().filter(|left| left.at == at) {
            Some(left) => left.read_only = true,
            None => places.push(Left {
                at: at.to_owned(),
                read_only: true,
                ..Left::default()
            }),
        }
    }
}

/// The mode of a directory that bubblewrap makes by itself.
const DIRECTORY: u32 = 0o755;

/// An empty directory that covers a hidden one needs no room.
const COVER_SIZE: u64 = 4096;

/// Where files stand that the launcher puts over others, in what is ours and read-only.
const COVERS: &str = "/run/agent-sandbox/covers";

/// Bytes by which a tmpfs grows.
const PAGE: u64 = 4096;

/// Translates the plan; `filter` is the compiled filter of its system calls.
pub fn call(plan: &Plan, filter: Vec<u8>, finisher: Finisher) -> Call {
    let mut call = Call {
        finisher,
        ..Call::default()
    };
    call.rest.no_namespaces = !plan.nested.value && !call.is_later();
    for namespace in ["user", "pid", "ipc", "uts", "cgroup"] {
        call.flag(&format!("--unshare-{namespace}"));
    }
    if plan.network.value != NetworkMode::Open {
        call.flag("--unshare-net");
    }
    if !plan.nested.value && call.is_later() {
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
    let shown = |mount: &Mount| {
        let own = |(at, step): &&(PathBuf, &Step)| step.mount == *mount && at.starts_with(OWN);
        steps.iter().find(own).map(|(at, _)| at.clone())
    };
    let contents = steps.iter().filter_map(|(_, step)| match &step.mount {
        Mount::File { content } | Mount::Program { content } => Some(content.len() as u64),
        _ => None,
    });
    let room: u64 = contents.map(|size| size.next_multiple_of(PAGE)).sum();
    // What is mounted around the place.
    let mut around: Vec<(&Path, &Mount)> = Vec::new();
    for (at, step) in &steps {
        let at = at.as_path();
        while around
            .last()
            .is_some_and(|(place, _)| !at.starts_with(place))
        {
            around.pop();
        }
        let over = around.last().copied();
        if !matches!(step.mount, Mount::Directory { .. } | Mount::Link { .. }) {
            around.push((at, &step.mount));
        }
        // What is there already cannot be changed from inside.
        let is_small = finisher != Finisher::Bubblewrap
            && matches!(
                over,
                Some((
                    _,
                    Mount::Bind {
                        access: Access::Read,
                        ..
                    }
                ))
            );
        match &step.mount {
            bind @ Mount::Bind {
                access: Access::Read,
                ..
            } if is_small && let Some(from) = shown(bind) => {
                call.rest.binds.push(Bind {
                    from,
                    at: at.to_owned(),
                });
            }
            Mount::File { content } if is_small => call.cover(at, content, 0o444),
            Mount::Program { content } if is_small => call.cover(at, content, 0o555),
            Mount::HideFile if is_small => call.cover(at, &[], 0o444),
            // That becomes read-only.
            Mount::File { content } if over.is_some_and(|(place, _)| place == Path::new(OWN)) => {
                call.copy(at, content.clone(), 0o444);
            }
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
                let more = if at == Path::new(OWN) { room } else { 0 };
                call.make("--tmpfs", at, *mode, Some(size + more));
            }
            Mount::Directory { mode } => call.make("--dir", at, *mode, None),
            Mount::Link { target } => call.text([Path::new("--symlink"), target, at]),
            Mount::File { content } => call.file(at, content.clone(), 0o444),
            Mount::Program { content } => call.file(at, content.clone(), 0o555),
            Mount::Copy { content, mode, .. } => call.copy(at, content.clone(), *mode),
            Mount::HideDirectory => {
                call.make("--tmpfs", at, 0o555, Some(COVER_SIZE));
                call.read_only(at);
            }
            Mount::HideFile => call.file(at, Vec::new(), 0o444),
            Mount::Proc => call.text([Path::new("--proc"), at]),
            Mount::Dev => call.text([Path::new("--dev"), at]),
        }
    }
    for (number, (content, mode)) in std::mem::take(&mut call.covers).into_iter().enumerate() {
        call.copy(&Path::new(COVERS).join(number.to_string()), content, mode);
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

    fn made(finisher: Finisher) -> Call {
        let mut call = Call {
            finisher,
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
        let all = made(Finisher::Both);
        assert_eq!(
            words(&all),
            "--perms 0755 --dir /a --perms 0700 --dir /b --perms 0555 --size 4096 --tmpfs /c --remount-ro /c \
             --perms 0444 --ro-bind-data #0 /d --remount-ro /"
        );
        let older = made(Finisher::Launcher);
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
            older.rest.places,
            [
                left("/b", Some(0o700), None, false),
                left("/c", Some(0o555), Some(4096), true),
                left("/d", Some(0o444), None, true),
                left("/", None, None, true),
            ]
        );
    }

    #[test]
    fn what_is_covered_by_the_same_needs_one_file() {
        let mut call = Call::default();
        for (at, content, mode) in [
            ("/etc/a", &b""[..], 0o444),
            ("/etc/b", b"b", 0o444),
            ("/etc/c", b"", 0o444),
            ("/etc/d", b"b", 0o555),
        ] {
            call.cover(Path::new(at), content, mode);
        }
        let binds = call.rest.binds.iter();
        let binds: Vec<_> = binds
            .map(|bind| format!("{} {}", bind.from.display(), bind.at.display()))
            .collect();
        assert_eq!(
            binds,
            ["0 /etc/a", "1 /etc/b", "0 /etc/c", "2 /etc/d"].map(|bind| format!("{COVERS}/{bind}"))
        );
        assert_eq!(call.covers.len(), 3);
    }
}
