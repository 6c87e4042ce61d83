//! Programs that have rights of others than who starts them.

use super::*;

/// What a program that has rights of others does, as the trail of the user who starts it has it.
struct Rights {
    place: BpfDirectory,
    programs: TempDir,
}

impl Rights {
    fn new(test: &str) -> Option<Self> {
        let place = BpfDirectory::new(test)?;
        let programs = tempfile::tempdir_in("/var/tmp").expect("a directory");
        if nosuid(programs.path()) {
            println!("not checked: tracer: {test}: /var/tmp is mounted nosuid");
            return None;
        }
        let at = programs.path();
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).expect("a mode");
        let closed = at.join("closed");
        fs::create_dir(&closed).expect("a directory");
        fs::write(closed.join("hidden-name"), "").expect("a file");
        std::os::unix::fs::symlink("hidden-name", closed.join("known")).expect("a link");
        std::os::unix::fs::chown(&closed, Some(0), Some(CLOSED)).expect("chown");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o750)).expect("a mode");
        fs::write(at.join("after"), "").expect("a file");
        Some(Self { place, programs })
    }

    /// A copy of a program with these bits, of root's and this group's.
    fn program(&self, from: &str, name: &str, group: u32, mode: u32) -> PathBuf {
        let to = self.programs.path().join(name);
        fs::copy(from, &to).expect("a copy");
        std::os::unix::fs::chown(&to, Some(0), Some(group)).expect("chown");
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).expect("a mode");
        to
    }

    /// What is recorded when the user has this program open what is closed, and then opens something: each
    /// open's path, and what is said of a task that is not the user's.
    fn recorded(&self, program: &Path, succeeds: bool) -> (Vec<String>, Vec<[u64; 3]>) {
        let mut probes = Probes::open(&self.place.settings()).expect("probes");
        let at = self.programs.path().display();
        let (program, how) = (program.display(), if succeeds { "&&" } else { "||" });
        let script = format!("{program} {at}/closed/known {how} : < {at}/after");
        let shell = Shell::of_user(&script);
        assert_eq!(mark_of(&mut probes, 5, &shell, USER), 1);
        shell.end();
        let (mut opened, mut others, mut started) = (Vec::new(), Vec::new(), false);
        probes.drain(usize::MAX, &mut |bytes| {
            let event = raw::parse(bytes).expect("an event");
            assert_eq!(event.head.trace, 5);
            let text = |path| String::from_utf8(turned(path, event.head.flags)).expect("UTF-8");
            match event.about {
                About::Open { path, .. } => opened.push(text(path)),
                About::Exec { path, .. } => started |= text(path) == program.to_string(),
                About::Operation { what, numbers, .. } => {
                    assert_eq!(OPERATIONS[what as usize], "other_user");
                    others.push(numbers);
                }
                _ => {}
            }
        });
        assert!(started, "that it was started is recorded");
        let last = opened.last().map(String::as_str);
        assert_eq!(last, Some(format!("{at}/after").as_str()), "{opened:?}");
        probes.unpin().expect("unpinned");
        (opened, others)
    }

    /// The same of a program that has rights which the user has not.
    fn silent(&self, program: &Path, said: [u64; 3]) {
        let (opened, others) = self.recorded(program, true);
        let hidden = opened.iter().any(|path| path.contains("hidden-name"));
        assert!(!hidden, "{}: {opened:?}", program.display());
        assert_eq!(others, [said], "{}", program.display());
    }
}

fn nosuid(path: &Path) -> bool {
    let found = nix::sys::statvfs::statvfs(path).expect("a file system");
    found
        .flags()
        .contains(nix::sys::statvfs::FsFlags::ST_NOSUID)
}

#[test]
fn a_program_with_rights_of_others_is_recorded_as_started_and_not_what_it_does() {
    let Some(rights) = Rights::new("programs that set ids") else {
        return;
    };
    let cat = "/bin/cat";
    rights.silent(&rights.program(cat, "set-uid", 0, 0o4755), [0, 1, 0]);
    let group = rights.program(cat, "set-gid", CLOSED, 0o2755);
    rights.silent(&group, [CLOSED.into(), 2, 0]);
    let capable = rights.program(cat, "capable", 0, 0o755);
    let set = Command::new("setcap")
        .arg("cap_dac_read_search+ep")
        .arg(&capable)
        .status();
    match set {
        Ok(status) if status.success() => rights.silent(&capable, [0, 3, 0]),
        other => println!("not checked: tracer: capabilities of a file: setcap: {other:?}"),
    }
}

#[test]
fn nobody_hides_behind_a_group_of_their_own() {
    let Some(rights) = Rights::new("a group of one's own") else {
        return;
    };
    let own = rights.program("/bin/cat", "own-group", GROUP, 0o2755);
    let (opened, others) = rights.recorded(&own, false);
    assert_eq!(others, <[[u64; 3]; 0]>::default());
    let tried = opened.iter().any(|path| path.ends_with("/closed/known"));
    assert!(tried, "{opened:?}");
}

#[test]
fn nobody_leaves_a_trace_by_a_program_that_sets_ids() {
    let Some(rights) = Rights::new("marks of programs that set ids") else {
        return;
    };
    let sleep = rights.program("/bin/sleep", "set-uid-sleep", 0, 0o4755);
    let mut probes = Probes::open(&rights.place.settings()).expect("probes");
    let mut shell = Shell::of_user(&format!("exec {} 600", sleep.display()));
    assert_eq!(mark_of(&mut probes, 5, &shell, USER), 1);
    shell.go();
    let end = Instant::now() + Duration::from_secs(10);
    while fs::read_link(format!("/proc/{}/exe", shell.0.id())).ok() != Some(sleep.clone()) {
        assert!(Instant::now() < end, "it does not start");
    }
    assert_eq!(mark_of(&mut probes, 6, &shell, USER), 0, "it has a mark");
    assert_eq!(count(&mut probes, 5), 1);
    probes.unpin().expect("unpinned");
}
