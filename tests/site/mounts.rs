//! Directories that are mounted in a second place, as root does it: what holds of one name holds of the other.

use std::fs;

use crate::world::World;

/// What cannot be listed there cannot be here, in part or whole.
#[test]
fn a_second_mount_is_no_way_to_walk() {
    let world = World::new();
    let (shared, again) = (world.base().join("shared"), world.base().join("mnt/again"));
    for place in [&shared, &shared.join("group"), &again] {
        fs::create_dir_all(place).unwrap();
    }
    fs::write(shared.join("group/data"), "").unwrap();
    let [shared, again] = [&shared, &again].map(|at| at.to_str().unwrap());
    world.enforced(&format!("[files]\nno_walk = [{shared:?}]\n"));
    for (part, data) in [("group", "data"), ("", "group/data")] {
        let script = format!(
            "ls -d {shared}/group/data; ls -d {again}/{data}; ls {shared}; ls {shared}/group; ls {again}; \
             find {again} -name data; echo end"
        );
        for backend in ["bwrap", "landlock"] {
            let words = [
                "-q",
                "--backend",
                backend,
                "--read",
                shared,
                "--read",
                again,
            ];
            let call = words.into_iter().chain(["--", "sh", "-c", &script]);
            let call = world.call(&call.collect::<Vec<_>>());
            let output = call
                .bind(&world.base().join("shared").join(part), again)
                .run();
            let named = format!("{shared}/group/data\n{again}/{data}\nend\n");
            assert_eq!(output.stdout, named, "{backend} {part}: {output}");
        }
    }
}

/// The jail could change it by the other name.
#[test]
fn a_result_stands_in_no_second_mount_of_what_the_jail_writes() {
    let world = World::new();
    let again = world.base().join("again");
    fs::create_dir(&again).unwrap();
    world.own(&again, 0o755);
    world.write("project/sub/x", "");
    let file = again.join("result.json");
    let words = [
        "-q",
        "run",
        "--result",
        file.to_str().unwrap(),
        "--",
        "touch",
        "started",
    ];
    let output = world.call(&words).run();
    assert_eq!(output.code, 0, "{output}");
    let started = world.home().join("project/started");
    fs::remove_file(&started).unwrap();
    let call = world.call(&words);
    let output = call
        .bind(&world.home().join("project/sub"), again.to_str().unwrap())
        .run();
    assert_eq!(output.code, 125, "{output}");
    assert!(output.stderr.contains("the jail can write in"), "{output}");
    assert!(!started.exists());
}
