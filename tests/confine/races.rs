//! Somebody who changes names while a jail is being built: another session, in a directory around.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::operations::{carry_out, text};
use crate::world::World;

/// Launches of one race.
const LAUNCHES: u32 = 200;
/// No race takes longer, on a slow machine either.
const LONGEST: Duration = Duration::from_secs(60);

/// Swaps two names as fast as it can.
pub(crate) struct Flipper {
    stop: Arc<AtomicBool>,
    flips: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flipper {
    pub(crate) fn new(one: &Path, other: &Path) -> Self {
        let (stop, flips) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, counted) = (stop.clone(), flips.clone());
        let (one, other) = (text(one), text(other));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if carry_out(&["exchange", &one, &other]) == "ok" {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                // Slow enough for a whole look to fall between two swaps, at ever other places.
                let pause = counted.load(Ordering::Relaxed) % 23 * 40;
                std::thread::sleep(Duration::from_micros(pause));
            }
        });
        Self {
            stop,
            flips,
            thread: Some(thread),
        }
    }
}

impl Drop for Flipper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// How many launches ran and how many were refused, while `one` and `other` changed places.
fn race(
    world: &World,
    one: &Path,
    other: &Path,
    project: &Path,
    read: Option<&Path>,
    command: &str,
) -> (u32, u32) {
    let flipper = Flipper::new(one, other);
    let (mut ran, mut refused) = (0, 0);
    let start = Instant::now();
    for _ in 0..LAUNCHES {
        if start.elapsed() > LONGEST {
            break;
        }
        let mut run = world.jail([]).cwd(&world.home("")).option("-C", project);
        if let Some(read) = read {
            run = run.option("--read", read);
        }
        // `run` itself fails on any output with a secret.
        let output = run.run(&["sh", "-c", command]);
        if output.code() == 125 {
            refused += 1
        } else {
            ran += 1
        }
    }
    assert!(
        flipper.flips.load(Ordering::Relaxed) > 100,
        "nothing was swapped"
    );
    (ran, refused)
}

fn decoy(world: &World) -> PathBuf {
    let decoy = world.outer("decoy");
    symlink(world.home(".ssh"), &decoy).unwrap();
    decoy
}

/// Reads whatever a key could be called now.
const GRAB: &str = "cat id_rsa config hooks/id_rsa .git/id_rsa .git/hooks/id_rsa .git/config ../data/id_rsa ../data/sub/id_rsa ../project/id_rsa ../decoy/id_rsa 2>/dev/null; ls -a; echo x > planted-by-race; true";

fn assert_untouched(world: &World) {
    for directory in [".ssh", "", ".aws"] {
        let planted = world.home(directory).join("planted-by-race");
        assert!(!planted.exists(), "{} was written", planted.display());
    }
}

#[test]
fn a_project_that_flips_never_leaks() {
    let world = World::new();
    let project = world.project("");
    let (ran, refused) = race(&world, &project, &decoy(&world), &project, None, GRAB);
    assert_untouched(&world);
    assert!(ran > 0 && refused > 0, "{ran} ran, {refused} refused");
}

#[test]
fn git_directories_that_flip_never_leak() {
    let world = World::new();
    let project = world.project("");
    world.put(&world.project(".git/config"), "[core]\n");
    world.put(&world.project(".git/hooks/x"), "x");
    race(
        &world,
        &world.project(".git"),
        &decoy(&world),
        &project,
        None,
        GRAB,
    );
    assert_untouched(&world);
}

#[test]
fn hooks_that_flip_never_leak() {
    let world = World::new();
    let project = world.project("");
    world.put(&world.project(".git/config"), "[core]\n");
    world.put(&world.project(".git/hooks/x"), "x");
    race(
        &world,
        &world.project(".git/hooks"),
        &decoy(&world),
        &project,
        None,
        GRAB,
    );
    assert_untouched(&world);
}

/// A readable path in another session's project.
#[test]
fn a_read_path_that_flips_never_leaks() {
    let world = World::new();
    let data = world.outer("data");
    world.put(&data.join("sub/file"), "data\n");
    race(
        &world,
        &data,
        &decoy(&world),
        &world.project(""),
        Some(&data),
        GRAB,
    );
    assert_untouched(&world);
}

/// The same one level deeper: what flips is above the path that is given.
#[test]
fn a_directory_above_a_read_path_that_flips_never_leaks() {
    let world = World::new();
    let data = world.outer("data");
    world.put(&data.join("sub/file"), "data\n");
    world.secret(&world.home(".ssh/sub/id_rsa"));
    race(
        &world,
        &data,
        &decoy(&world),
        &world.project(""),
        Some(&data.join("sub")),
        GRAB,
    );
    assert_untouched(&world);
}
