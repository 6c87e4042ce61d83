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
pub enum Finisher<'a> {
    /// bubblewrap makes all of it: what the benchmark compares a launch with.
    #[default]
    Bubblewrap,
    /// bubblewrap, but for small read-only mounts over what the host has ([`Bind`]): it reads the table of mounts for
    /// each of them, and the launcher does not.
    Both,
    /// bubblewrap makes what is the jail's own, and shows of the host what holds one of these files, by which init is
    /// started. All else of the host the launcher shows ([`Taken`]).
    Less(&'a [PathBuf]),
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

/// A path of the host that the jail shows, with what is mounted below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its path on the host.
    pub from: PathBuf,
    /// Where it stands inside.
    pub at: PathBuf,
    /// What may be done with it there.
    pub uses: Uses,
    /// Whether its place is made where there is none: in a file system of the jail's, never on the host.
    pub is_made: bool,
}

/// What may be done with a path of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// Reading and executing.
    Read,
    /// Writing, too.
    Write,
    /// It is a device.
    Device,
}

/// Something that is left to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// What bubblewrap made is changed.
    Change(Left),
    /// A file is covered.
    Cover(Bind),
    /// A path of the host is shown.
    Show(Taken),
}

/// What is left for the launcher to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// In this order.
    pub acts: Vec<Act>,
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
    /// Whether bubblewrap knows no `--perms`, `--size` and `--disable-userns`.
    older: bool,
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

    fn change(&mut self, left: Left) {
        self.rest.acts.push(Act::Change(left));
    }

    /// An option that makes something at `at`, with this mode, and as a tmpfs of this size.
    fn make(&mut self, option: &str, at: &Path, mode: u32, size: Option<u64>) {
        if !self.older {
            self.perms(mode);
            if let Some(size) = size {
                self.flag("--size");
                self.flag(&size.to_string());
            }
        // Like this bubblewrap makes it anyway.
        } else if mode != DIRECTORY || size.is_some() {
            self.change(Left {
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
        if !self.older {
            self.perms(mode);
            self.content("--ro-bind-data", content);
        } else {
            self.change(Left {
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
        if !self.older {
            self.perms(mode);
        } else {
            self.change(Left {
                at: at.to_owned(),
                mode: Some(mode),
                ..Left::default()
            });
        }
        self.content("--file", content);
        self.text([at]);
    }

    /// A file that can only be read, over one of the host's that can only be read: the launcher puts it there.
    fn cover(&mut self, at: &Path, content: &[u8], mode: u32) -> Act {
        let cover = (content, mode);
        let mut covers = self.covers.iter();
        let number = covers.position(|(content, mode)| (content.as_slice(), *mode) == cover);
        let number = number.unwrap_or_else(|| {
            self.covers.push((content.to_vec(), mode));
            self.covers.len() - 1
        });
        Act::Cover(Bind {
            from: Path::new(COVERS).join(number.to_string()),
            at: at.to_owned(),
        })
    }

    fn perms(&mut self, mode: u32) {
        self.flag("--perms");
        self.flag(&format!("{mode:04o}"));
    }

    fn read_only(&mut self, at: &Path) {
        if !self.older {
            return self.text([Path::new("--remount-ro"), at]);
        }
        // What is at this place already, or a place of its own.
        match self.rest.acts.last_mut() {
            Some(Act::Change(left)) if left.at == at => left.read_only = true,
            _ => self.change(read_only(at)),
        }
    }
}

fn read_only(at: &Path) -> Left {
    Left {
        at: at.to_owned(),
        read_only: true,
        ..Left::default()
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
pub fn call(plan: &Plan, filter: Vec<u8>, finisher: Finisher<'_>) -> Call {
    let mut call = Call {
        older: finisher == Finisher::Launcher,
        ..Call::default()
    };
    call.rest.no_namespaces = !plan.nested.value && call.older;
    for namespace in ["user", "pid", "ipc", "uts", "cgroup"] {
        call.flag(&format!("--unshare-{namespace}"));
    }
    if plan.network.value != NetworkMode::Open {
        call.flag("--unshare-net");
    }
    if !plan.nested.value && !call.older {
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
    let taken = taken(&steps, finisher);
    // What is mounted around the place.
    let mut around: Vec<(&Path, &Mount)> = Vec::new();
    // What is shown in what is ours, which covers other things, and all else.
    let (mut own, mut later) = (Vec::new(), Vec::new());
    for ((at, step), uses) in steps.iter().zip(taken) {
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
                later.push(Act::Cover(Bind {
                    from,
                    at: at.to_owned(),
                }));
            }
            Mount::Bind { from, .. } | Mount::Kept { from, .. } | Mount::Device { from }
                if let Some(uses) = uses =>
            {
                let all = if at.starts_with(OWN) {
                    &mut own
                } else {
                    &mut later
                };
                all.push(Act::Show(Taken {
                    from: from.clone(),
                    at: at.to_owned(),
                    uses,
                    is_made: matches!(over, None | Some((_, Mount::Tmpfs { .. } | Mount::Dev))),
                }));
            }
            Mount::File { content } if is_small => later.push(call.cover(at, content, 0o444)),
            Mount::Program { content } if is_small => later.push(call.cover(at, content, 0o555)),
            Mount::HideFile if is_small => later.push(call.cover(at, &[], 0o444)),
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
    let bases = [OWN, "/dev", "/"].map(Path::new);
    match finisher {
        // Once the places of mounts are made in them.
        Finisher::Less(_) => {
            let [own_base, others @ ..] = bases;
            let close = |base| Act::Change(read_only(base));
            call.rest
                .acts
                .extend(own.into_iter().chain([close(own_base)]));
            call.rest
                .acts
                .extend(later.into_iter().chain(others.map(close)));
        }
        _ => {
            bases.into_iter().for_each(|base| call.read_only(base));
            call.rest.acts.extend(later);
        }
    }
    call.text([Path::new("--chdir"), Path::new("/")]);
    call.content("--seccomp", filter);
    call
}

/// Of each step, by the places where they are made, how the launcher shows what it binds; none of what bubblewrap makes.
fn taken(steps: &[(PathBuf, &Step)], finisher: Finisher<'_>) -> Vec<Option<Uses>> {
    let mut taken = Vec::with_capacity(steps.len());
    let Finisher::Less(needed) = finisher else {
        taken.resize(steps.len(), None);
        return taken;
    };
    // Those around a place.
    let mut around: Vec<usize> = Vec::new();
    for (number, (at, step)) in steps.iter().enumerate() {
        while around
            .last()
            .is_some_and(|&over| !at.starts_with(&steps[over].0))
        {
            around.pop();
        }
        let uses = match &step.mount {
            Mount::Bind {
                access: Access::Read,
                ..
            } => Some(Uses::Read),
            Mount::Bind {
                access: Access::Write,
                ..
            }
            | Mount::Kept { .. } => Some(Uses::Write),
            Mount::Device { .. } => Some(Uses::Device),
            _ => None,
        };
        let is_needed = || at == Path::new(INIT) || needed.iter().any(|path| path.starts_with(at));
        let uses = uses.filter(|_| !is_needed());
        let over = around.last().map(|&over| &steps[over].1.mount);
        let covers = matches!(
            step.mount,
            Mount::File { .. } | Mount::Program { .. } | Mount::HideFile
        ) && matches!(
            over,
            Some(Mount::Bind {
                access: Access::Read,
                ..
            })
        );
        if uses.is_none() && !covers {
            // bubblewrap makes it, and so what it stands in.
            around.iter().for_each(|&over| taken[over] = None);
        }
        taken.push(uses);
        if !matches!(step.mount, Mount::Directory { .. } | Mount::Link { .. }) {
            around.push(number);
        }
    }
    taken
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

    fn made(older: bool) -> Call {
        let mut call = Call {
            older,
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
        let all = made(false);
        assert_eq!(
            words(&all),
            "--perms 0755 --dir /a --perms 0700 --dir /b --perms 0555 --size 4096 --tmpfs /c --remount-ro /c \
             --perms 0444 --ro-bind-data #0 /d --remount-ro /"
        );
        let older = made(true);
        assert_eq!(
            words(&older),
            "--dir /a --dir /b --tmpfs /c --bind-data #0 /d"
        );
        let left = |at: &str, mode: Option<u32>, size: Option<u64>, read_only| {
            Act::Change(Left {
                at: at.into(),
                size,
                mode,
                read_only,
            })
        };
        assert_eq!(
            older.rest.acts,
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
        let binds: Vec<_> = [
            ("/etc/a", &b""[..], 0o444),
            ("/etc/b", b"b", 0o444),
            ("/etc/c", b"", 0o444),
            ("/etc/d", b"b", 0o555),
        ]
        .into_iter()
        .map(
            |(at, content, mode)| match call.cover(Path::new(at), content, mode) {
                Act::Cover(bind) => format!("{} {}", bind.from.display(), bind.at.display()),
                other => format!("{other:?}"),
            },
        )
        .collect();
        assert_eq!(
            binds,
            ["0 /etc/a", "1 /etc/b", "0 /etc/c", "2 /etc/d"].map(|bind| format!("{COVERS}/{bind}"))
        );
        assert_eq!(call.covers.len(), 3);
    }

    #[test]
    fn what_bubblewrap_makes_stands_in_what_it_binds() {
        use crate::plan::Why;

        let bind = |access| Mount::Bind {
            from: "/from".into(),
            access,
            id: (0, 0),
        };
        let (read, write) = (bind(Access::Read), bind(Access::Write));
        let private = Mount::Tmpfs {
            size: 1,
            mode: 0o700,
        };
        let content = Mount::File {
            content: Vec::new(),
        };
        let steps: Vec<_> = [
            ("/data", &read),
            ("/data/private", &Mount::HideDirectory),
            ("/etc", &read),
            ("/etc/passwd", &content),
            ("/home", &private),
            ("/home/project", &write),
            ("/home/project/.git", &read),
            ("/home/project/.git/hooks", &write),
            ("/home/project/.git/hooks/hidden", &Mount::HideFile),
            ("/home/store", &write),
            ("/run/agent-sandbox/init", &read),
            ("/run/agent-sandbox/shim", &read),
            ("/usr", &read),
            ("/usr/local", &read),
        ]
        .map(|(at, mount)| Step {
            at: at.into(),
            mount: mount.clone(),
            why: Why::Every("a test"),
        })
        .into();
        let steps: Vec<_> = steps.iter().map(|step| (step.at.clone(), step)).collect();
        let needed = ["/usr/lib/libc.so.6".into()];
        let of = |finisher| {
            let taken = taken(&steps, finisher);
            let all = steps.iter().zip(taken);
            all.filter_map(|((at, _), uses)| uses.map(|_| at.display().to_string()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(Finisher::Less(&needed)),
            [
                "/etc",
                "/home/store",
                "/run/agent-sandbox/shim",
                "/usr/local"
            ]
        );
        assert!(of(Finisher::Both).is_empty());
    }
}
