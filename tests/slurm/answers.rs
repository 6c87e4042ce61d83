//! Answers of Slurm's that a user's sessions on a node share, and `agent-sandbox wait`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::world::{BOBS, Side, World, until};

/// Held by tests that look at the directory, or move it.
static PLACE: Mutex<()> = Mutex::new(());

/// Where this user's sessions share them.
fn directory(world: &World) -> PathBuf {
    format!("/tmp/agent-sandbox-{}/queries", world.user.uid).into()
}

/// How often slurmctld was asked for licenses, which nobody else here does.
fn asked(world: &World) -> u64 {
    let said = world.cluster.said("sdiag", []);
    let line = said
        .lines()
        .find(|line| line.contains("REQUEST_LICENSE_INFO"));
    let count = line.and_then(|line| line.split("count:").nth(1));
    count
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[test]
fn twenty_loops_in_four_sessions_ask_slurm_as_seldom_as_one() {
    const SECONDS: u64 = 5;
    let Some(world) = World::new() else { return };
    // Who does little else: what anybody of the same user submits ends all answers.
    let _alone = BOBS.lock();
    let world = World::of(world.cluster, &world.cluster.bob);
    let script = format!(
        "for loop in 1 2 3 4 5; do
             (until [ $SECONDS -ge {SECONDS} ]; do scontrol show licenses > /dev/null || exit 1; echo >> asked.txt; done) &
         done; wait"
    );
    let [without, with] = [Side::Outside, Side::Inside].map(|side| {
        let before = asked(&world);
        let sessions: Vec<_> = (0..4)
            .map(|_| {
                let session = world.on(side, &script);
                session.set("slurm.limits.queries_per_minute=0").start()
            })
            .collect();
        sessions.into_iter().for_each(|session| {
            session.end().good();
        });
        asked(&world) - before
    });
    let loops = world.read("asked.txt").lines().count();
    eprintln!("{without} without, {with} with, which answered {loops}");
    assert!(without > 20 * SECONDS, "{without} without a jail");
    assert!(
        with <= 5 * SECONDS,
        "{with} for {loops}; {without} without a jail"
    );
    assert!(loops as u64 > 2 * with, "{with} for {loops}");
}

/// Others ask all the time, so that there always is an answer from before.
#[test]
fn what_a_session_did_shows_at_once_whoever_asks() {
    let Some(world) = World::new() else { return };
    let ask = "squeue -h -o '%i %l'";
    let noise = format!("until [ -e over ]; do {ask} > /dev/null; sleep 0.05; done");
    let noise = world.inside(&noise).start();
    // Says what another session sees, once for each line that it is sent.
    let other = format!(
        "mkfifo ask; exec 3<>ask; echo > up; while read -u 3 n && [ $n != end ]; do {ask} > seen.$n.new; mv seen.$n.new seen.$n; done"
    );
    let other = world.inside(&other).start();
    world.until(Side::Inside, "up", "\n");
    let script = format!(
        r#"seen() {{ {ask} | grep -c "^$1$"; }}
        others() {{ rm -f seen.1; echo 1 > ask; until [ -e seen.1 ]; do sleep 0.01; done; grep -c "^$1$" seen.1; }}
        for round in 1 2 3; do
            others x > /dev/null
            id=$(sbatch --parsable -H -t 7 --wrap true); echo submitted $(others "$id 7:00") $(seen "$id 7:00")
            scontrol update job=$id TimeLimit=5; echo changed $(others "$id 5:00") $(seen "$id 5:00")
            scancel $id; echo cancelled $(others "$id .*") $(seen "$id .*")
        done; echo end > ask; touch over"#
    );
    let output = world.inside(&script).run();
    noise.end();
    other.end();
    let expected = "submitted 1 1\nchanged 1 1\ncancelled 0 0\n".repeat(3);
    assert_eq!(output.out(), expected, "{output}");
    // A job knows itself as it is now.
    let script =
        "sbatch -W -o out.txt --wrap 'squeue -h -j $SLURM_JOB_ID -o %T' > /dev/null; cat out.txt
        salloc -Q bash -c 'squeue -h -j $SLURM_JOB_ID -o %T'; squeue -h -t R -o '%i %j' | grep -vc ' -$'";
    assert_eq!(world.inside(script).run().out(), "RUNNING\nRUNNING\n0\n");
}

#[test]
fn sessions_of_another_scope_see_no_more_by_what_they_share() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let script = "sbatch -H -J name-of-mine --wrap true > /dev/null; touch up; until [ -e over ]; do squeue -h -o '%i %j' > seen; done";
    let mine = world.inside(script).start();
    world.until(Side::Inside, "seen", "name-of-mine");
    let ask = "for i in 1 2 3 4 5 6 7 8; do squeue -h -o '%i %j'; sleep 0.1; done";
    let theirs = other.inside(ask).run().good();
    let all = other.inside(ask).set("slurm.scope=user").run().good();
    let none = other.inside(ask).set("slurm.queries=none").run().good();
    let again = other.inside(ask).run().good();
    fs::write(world.project().join("over"), "").unwrap();
    mine.end();
    let named = |output: &crate::call::Output| output.out().matches("name-of-mine").count();
    assert_eq!(
        [named(&theirs), named(&all), named(&none), named(&again)],
        [0, 8, 0, 0],
        "{theirs}\n{all}"
    );
    assert!(theirs.out().lines().count() >= 8, "masked: {theirs}");
    assert_eq!(none.out(), "", "{none}");
}

#[test]
fn what_is_shared_is_out_of_reach_inside() {
    let Some(world) = World::new() else { return };
    let _alone = PLACE.lock();
    let place = directory(&world);
    let above = place.parent().unwrap().display().to_string();
    let script = format!(
        "squeue > /dev/null; ls {above}/queries; ls -d {above}/queries/*; cat {above}/queries/*; echo x > {above}/queries/changes
        mv {above} {above}.old; rm -rf {above}/queries; find /tmp /var/tmp /dev/shm /run -name queries 2> /dev/null; true"
    );
    let output = world.inside(&script).run();
    assert_eq!(output.out(), "", "{output}");
    let found = fs::metadata(&place).unwrap();
    assert_eq!(
        (found.uid(), found.mode() & 0o7777),
        (world.user.uid.as_raw(), 0o700)
    );
    assert_eq!(fs::metadata(place.join("changes")).unwrap().len(), 8);
}

/// Runs `squeue` in a session before and after something happened to what it left.
fn after(world: &World, happens: impl Fn(&std::path::Path)) -> String {
    for name in ["asked", "go", "done"] {
        let _ = fs::remove_file(world.project().join(name));
    }
    // Nobody else asks this.
    let ask = "squeue -h -t PD -S i -o '%j name-of-job'";
    let session = world
        .inside(&format!(
            "{ask} > /dev/null; touch asked; until [ -e go ]; do sleep 0.02; done; {ask} | grep this"
        ))
        .set("slurm.query_cache_seconds=30");
    let session = session.start();
    let asked = world.project().join("asked");
    until("the first answer", || asked.exists());
    for entry in fs::read_dir(directory(world)).unwrap().flatten() {
        let path = entry.path();
        let content = fs::read(&path).unwrap_or_default();
        if content.windows(11).any(|part| part == b"name-of-job") {
            happens(&path);
        }
    }
    fs::write(world.project().join("go"), "").unwrap();
    session.end().out()
}

#[test]
fn an_answer_that_is_not_what_a_session_left_is_none() {
    let Some(world) = World::new() else { return };
    // What anybody of the same user submits ends all answers, the forged one too.
    let _alone = BOBS.lock();
    let world = World::of(world.cluster, &world.cluster.bob);
    world
        .inside("sbatch -H -J this-job --wrap true")
        .run()
        .good();
    let right = "this-job name-of-job\n";
    let forged = |path: &std::path::Path| {
        let mut content = fs::read(path).unwrap();
        let at = content.windows(8).position(|part| part == b"this-job");
        let at = at
            .unwrap_or_else(|| panic!("{}: {}", path.display(), String::from_utf8_lossy(&content)));
        content[at..][..8].copy_from_slice(b"this-lie");
        fs::write(path, content).unwrap();
    };
    // This is what the others try to be.
    assert_eq!(after(&world, forged), "this-lie name-of-job\n");
    let user = world.user.uid.as_raw();
    let own = |path: &std::path::Path| chown(path, Some(user), None).unwrap();
    for (what, happens) in [
        (
            "somebody else's",
            &(|path: &std::path::Path| {
                forged(path);
                chown(path, Some(0), None).unwrap();
            }) as &dyn Fn(&std::path::Path),
        ),
        ("readable by others", &|path| {
            forged(path);
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        }),
        ("a link", &|path| {
            forged(path);
            let there = path.with_extension("there");
            fs::rename(path, &there).unwrap();
            symlink(&there, path).unwrap();
        }),
        ("garbage", &|path| {
            fs::write(path, vec![0xff; 4096]).unwrap()
        }),
        ("empty", &|path| fs::write(path, "").unwrap()),
        ("cut", &|path| {
            let content = fs::read(path).unwrap();
            fs::write(path, &content[..content.len() - 40]).unwrap();
        }),
        ("a directory", &|path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
            own(path);
        }),
        ("of before a change", &|path| {
            forged(path);
            fs::write(path.with_file_name("changes"), b"12345678").unwrap();
        }),
        ("nowhere", &|path| {
            forged(path);
            let all = path.parent().unwrap();
            let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
            let gone = all.with_extension(format!("{now}"));
            fs::rename(all, &gone).unwrap();
            let _ = fs::remove_dir_all(gone);
        }),
    ] {
        assert_eq!(after(&world, happens), right, "{what}");
        let place = directory(&world);
        for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = fs::remove_dir(&path);
            if path
                .extension()
                .is_some_and(|extension| extension == "there")
            {
                fs::remove_file(path).unwrap();
            }
        }
    }
    world.inside("scancel --me").run();
}

#[test]
fn where_nothing_can_be_shared_each_asks_slurm() {
    let Some(world) = World::new() else { return };
    let before = asked(&world);
    let output = world
        .inside("for i in 1 2 3 4; do scontrol show licenses; done")
        .set("slurm.query_cache_seconds=0")
        .run()
        .good();
    assert!(asked(&world) >= before + 4, "{output}");
}

#[test]
fn wait_returns_when_jobs_have_ended_with_their_codes() {
    let Some(world) = World::new() else { return };
    for side in [Side::Inside, Side::Outside] {
        let wait = match side {
            Side::Inside => "agent-sandbox".to_owned(),
            Side::Outside => world.cluster.launcher.display().to_string(),
        };
        let begun = Instant::now();
        let script = format!(
            r#"good=$(sbatch --parsable -o /dev/null --wrap 'sleep 2'); bad=$(sbatch --parsable -o /dev/null --wrap 'exit 3')
            {wait} wait $good | sed "s/$good/ID/"; echo ${{PIPESTATUS[0]}}
            {wait} wait $good $bad | sed "s/$good/ID/; s/$bad/BAD/"; echo ${{PIPESTATUS[0]}}
            array=$(sbatch --parsable -a 1-3 -o /dev/null --wrap 'exit $((SLURM_ARRAY_TASK_ID - 1))')
            {wait} wait $array | sort | sed "s/$array/ID/"; echo ${{PIPESTATUS[0]}}
            {wait} wait ${{array}}_1 | sed "s/$array/ID/"; echo ${{PIPESTATUS[0]}}
            signal=$(sbatch --parsable -o /dev/null --wrap 'kill -9 $$'); {wait} wait $signal > /dev/null; echo $?
            held=$(sbatch --parsable -H -o /dev/null --wrap true); {wait} wait --timeout 1s $held 2>&1 | sed "s/$held/ID/"; echo ${{PIPESTATUS[0]}}
            (sleep 1; scancel $held) & {wait} wait $held | sed "s/$held/ID/"; echo ${{PIPESTATUS[0]}}
            {wait} wait 999999999; echo $?"#
        );
        let output = world.on(side, &script).run();
        let expected = "ID COMPLETED 0:0\n0\nID COMPLETED 0:0\nBAD FAILED 3:0\n3\n\
                        ID_1 COMPLETED 0:0\nID_2 FAILED 1:0\nID_3 FAILED 2:0\n1\nID_1 COMPLETED 0:0\n0\n137\n\
                        error: the time is over, and not ended are: ID\n124\nID CANCELLED 0:0\n1\n1\n";
        assert_eq!(output.out(), expected, "{side:?}: {output}");
        assert!(
            output.err().contains("Invalid job id specified: 999999999"),
            "{output}"
        );
        eprintln!("{side:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn wait_is_soon_there_and_many_who_wait_ask_as_one() {
    let Some(world) = World::new() else { return };
    world.write("job.sh", "#!/bin/bash\n#SBATCH -o /dev/null\nuntil [ -e end ]; do sleep 0.05; done; date +%s.%N > ended\n");
    let wait = world
        .inside("id=$(sbatch --parsable job.sh); echo $id > id; agent-sandbox wait $id; code=$?; date +%s.%N > returned; exit $code")
        .start();
    until("the job", || world.read("id").ends_with('\n'));
    let id = world.read("id").trim().to_owned();
    let more: Vec<_> = (0..3)
        .map(|_| world.inside(&format!("agent-sandbox wait {id}")).start())
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    fs::write(world.project().join("end"), "").unwrap();
    let output = wait.end().good();
    assert_eq!(output.out(), format!("{id} COMPLETED 0:0\n"));
    for one in more {
        assert_eq!(one.end().good().out(), format!("{id} COMPLETED 0:0\n"));
    }
    let time = |name: &str| world.read(name).trim().parse::<f64>().unwrap();
    let late = time("returned") - time("ended");
    assert!(late < 10.0, "{late} s after its end");
}

/// Another project's job is no job, also where its number is shown.
#[test]
fn only_jobs_of_the_scope_are_waited_for() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let id = other
        .inside("sbatch --parsable -H --wrap true")
        .run()
        .good()
        .word();
    let output = world.inside(&format!("agent-sandbox wait {id}")).run();
    assert!(
        output.code == 1 && output.err().contains("Invalid job id specified"),
        "{output}"
    );
    let output = world
        .inside(&format!("agent-sandbox wait --timeout 1 {id}"))
        .set("slurm.scope=user")
        .run();
    assert_eq!(output.code, 124, "{output}");
    other.inside("scancel --me").run();
}

/// Nobody inside may submit one; the user's own is waited for all the same.
#[test]
fn the_components_of_a_heterogeneous_job_are_waited_for() {
    let Some(world) = World::new() else { return };
    let script = "sbatch --parsable -n1 -o /dev/null --wrap 'exit 4' : -n1";
    let id = world.outside(script).run().good().word();
    let launcher = world.cluster.launcher.display();
    for (side, wait) in [
        (Side::Outside, launcher.to_string()),
        (Side::Inside, "agent-sandbox".to_owned()),
    ] {
        let script = format!("{wait} wait {id} | sort; echo ${{PIPESTATUS[0]}}");
        let output = world.on(side, &script).set("slurm.scope=user").run();
        let said = output.out().replace(&id, "ID");
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("ID+0 FAILED 4:0"), "{side:?}: {output}");
        assert!(
            said.contains("\nID+1 ") && said.ends_with("\n4\n"),
            "{side:?}: {output}"
        );
    }
}
