//! Which directory it is, and which it is not.

use std::os::unix::fs::{MetadataExt, chown, symlink};

use agent_sandbox::launch::join_directories::make_places;
use agent_sandbox::share::join_socket::{Arrival, StepId};
use agent_sandbox_support::not_checked;

use crate::world::{World, mode, place, uid};

/// Arrives, and says which of the two directories was taken.
#[track_caller]
fn taken(world: &World) -> usize {
    let _first = world.first(StepId::Batch);
    let all: Vec<usize> = (0..2)
        .filter(|at| world.base(*at).join("n1.7").is_dir())
        .collect();
    assert_eq!(all.len(), 1);
    all[0]
}

fn refusal(world: &World) -> String {
    let arrival = world.join_directories().arrive(&place(7), StepId::Batch);
    format!("{:#}", arrival.unwrap_err())
}

#[test]
fn it_is_the_users_alone() {
    let world = World::new();
    assert_eq!(taken(&world), 0);
    for directory in [world.base(0), world.job()] {
        let meta = std::fs::metadata(directory).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (uid(), 0o700));
    }
}

#[test]
fn one_with_another_mode_is_passed_over() {
    for wrong in [0o755, 0o701, 0o1700, 0o2700, 0o500] {
        let world = World::new();
        std::fs::create_dir(world.base(0)).unwrap();
        mode(&world.base(0), wrong);
        assert_eq!(taken(&world), 1, "{wrong:o}");
    }
}

#[test]
fn a_link_or_a_file_is_passed_over() {
    let world = World::new();
    let elsewhere = world.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    mode(&elsewhere, 0o700);
    symlink(&elsewhere, world.base(0)).unwrap();
    assert_eq!(taken(&world), 1);
    assert_eq!(world.names(&elsewhere), [""; 0]);
    drop(world);
    let world = World::new();
    std::fs::write(world.base(0), "").unwrap();
    assert_eq!(taken(&world), 1);
    drop(world);
    let world = World::new();
    symlink("nowhere", world.base(0)).unwrap();
    assert_eq!(taken(&world), 1);
}

#[test]
fn somebody_elses_is_passed_over() {
    if uid() != 0 {
        not_checked(
            "a directory of join sockets that another user made",
            "root can make one",
        );
        return;
    }
    let world = World::new();
    std::fs::create_dir(world.base(0)).unwrap();
    mode(&world.base(0), 0o700);
    chown(world.base(0), Some(12345), None).unwrap();
    assert_eq!(taken(&world), 1);
    // The directory around it is another user's.
    drop(world);
    let world = World::new();
    chown(&world.parents()[0], Some(12345), None).unwrap();
    assert_eq!(taken(&world), 1);
}

#[test]
fn the_directory_around_it_keeps_it_in_place() {
    let world = World::new();
    mode(&world.parents()[0], 0o777);
    assert_eq!(taken(&world), 1);
    drop(world);
    let world = World::new();
    mode(&world.parents()[0], 0o1777);
    assert_eq!(taken(&world), 0);
}

#[test]
fn the_one_that_has_the_job_stays_the_one() {
    let world = World::new();
    std::fs::write(world.base(0), "").unwrap();
    let _first = world.first(StepId::Batch);
    std::fs::remove_file(world.base(0)).unwrap();
    let arrival = world
        .join_directories()
        .arrive(&place(7), StepId::Batch)
        .unwrap();
    assert!(matches!(arrival, Arrival::Member(_)));
    let _other = world
        .join_directories()
        .arrive(&place(8), StepId::Batch)
        .unwrap();
}

#[test]
fn without_any_each_is_named() {
    let world = World::new();
    std::fs::write(world.base(0), "").unwrap();
    std::fs::create_dir(world.base(1)).unwrap();
    mode(&world.base(1), 0o755);
    let message = refusal(&world);
    for why in ["is not a directory", "has the mode 0755 and not 0700"] {
        assert!(message.contains(why), "{message}");
    }
    for at in 0..2 {
        assert!(
            message.contains(world.base(at).to_str().unwrap()),
            "{message}"
        );
    }
    drop(world);
    let world = World::new();
    for parent in world.parents() {
        std::fs::remove_dir(parent).unwrap();
    }
    assert!(refusal(&world).contains("stands in no directory"));
}

#[test]
fn a_jobs_directory_is_not_taken_from_others() {
    let world = World::new();
    std::fs::create_dir(world.base(0)).unwrap();
    mode(&world.base(0), 0o700);
    symlink(world.path(), world.job()).unwrap();
    assert!(refusal(&world).contains("n1.7"));
    std::fs::remove_file(world.job()).unwrap();
    std::fs::create_dir(world.job()).unwrap();
    mode(&world.job(), 0o777);
    assert!(refusal(&world).contains("has the mode 0777"));
}

#[test]
fn places_to_cover_are_made() {
    let world = World::new();
    make_places(&[world.base(0), world.base(1)]).unwrap();
    make_places(&[world.base(0)]).unwrap();
    assert_eq!(taken(&world), 0);
    assert!(make_places(&[world.path().join("no/such")]).is_err());
}
