//! Values of hidden variables: in no environment, no command line, no memory.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::op;
use crate::probe::{Attack, tell};
use crate::world::World;

pub(crate) const ATTACKS: &[Attack] = &[("look-for", look_for), ("variables", variables)];

/// What the marker is written with, so that the attack does not find its own command line.
const VEIL: u8 = 0x15;

fn veiled(marker: &str) -> String {
    marker
        .bytes()
        .map(|byte| format!("{:02x}", byte ^ VEIL))
        .collect()
}

fn holds(memory: &[u8], wanted: &[u8]) -> bool {
    memory.windows(wanted.len()).any(|window| {
        window
            .iter()
            .zip(wanted)
            .all(|(byte, veiled)| byte ^ VEIL == *veiled)
    })
}

/// Looks for a value (given veiled, in hexadecimal digits) in everything that can be read about
/// processes.
fn look_for(words: &[String]) {
    let digits = words[0].as_bytes();
    let wanted: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    let mut found = Vec::new();
    let mut looked = 0;
    for entry in fs::read_dir("/proc").expect("/proc") {
        let name = entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        if name.parse::<u32>().is_err() {
            continue;
        }
        for file in ["environ", "cmdline", "comm", "status"] {
            if let Ok(text) = fs::read(format!("/proc/{name}/{file}")) {
                looked += 1;
                if holds(&text, &wanted) {
                    found.push(format!("/proc/{name}/{file}"));
                }
            }
        }
    }
    let memory = fs::File::open("/proc/self/mem").expect("own memory");
    for line in fs::read_to_string("/proc/self/maps")
        .expect("own maps")
        .lines()
    {
        let mut fields = line.split_whitespace();
        let (Some(range), Some(access)) = (fields.next(), fields.next()) else {
            continue;
        };
        let Some((from, to)) = range.split_once('-') else {
            continue;
        };
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        let (from, to) = (number(from), number(to));
        const MOST: u64 = 64 << 20;
        if !access.starts_with('r') || line.ends_with("[vvar]") || to - from > MOST {
            continue;
        }
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        if memory.read_exact_at(&mut bytes, from).is_ok() {
            looked += 1;
            if holds(&bytes, &wanted) {
                found.push(
                    line.split_whitespace()
                        .last()
                        .unwrap_or("memory")
                        .to_owned(),
                );
            }
        }
    }
    tell("looked", looked);
    tell("found", found.join(" "));
}

fn variables(_: &[String]) {
    let mut names: Vec<String> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    tell("names", names.join(","));
}

/// Hidden by name, by value, or because they repeat what is hidden.
fn hidden(marker: &str) -> Vec<(&'static str, String)> {
    vec![
        ("GITHUB_TOKEN", marker.to_owned()),
        ("MY_SECRET_THING", marker.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", format!("{marker}/x")),
        ("SLURM_JWT", marker.to_owned()),
        ("SSH_AUTH_SOCK", format!("/tmp/ssh-{marker}/agent.1")),
        (
            "DBUS_SESSION_BUS_ADDRESS",
            format!("unix:path=/run/{marker}"),
        ),
        ("KRB5CCNAME", format!("FILE:/tmp/{marker}")),
        ("https_proxy", format!("http://user:{marker}@proxy:3128")),
        ("PLAIN_NAME", format!("sk-{marker}")),
        ("REPEATED", format!("before {marker} after")),
        (
            "CURL_OPTIONS",
            format!("-H 'Authorization: Bearer {marker}'"),
        ),
    ]
}

#[test]
fn hidden_values_are_nowhere() {
    let world = World::new();
    let marker = format!("{}ENVIRONMENT", world.marker);
    let wanted = veiled(&marker);
    let mut outside = world.outside();
    let mut jail = world.jail([]);
    for (name, value) in hidden(&marker) {
        outside = outside.env(name, &value);
        jail = jail.env(name, &value);
    }
    let plain = outside.attack("look-for", &[&wanted]);
    assert!(plain.get("found").contains("[stack]"), "{plain:?}");
    let report = jail.attack("look-for", &[&wanted]);
    assert_eq!(report.get("found"), "");
    let looked: u32 = report.get("looked").parse().unwrap();
    assert!(looked > 10, "{report:?}");

    let mut jail = world.jail([]).env("HARMLESS", "yes");
    for (name, value) in hidden(&marker) {
        jail = jail.env(name, &value);
    }
    let report = jail.attack::<&str>("variables", &[]);
    let names: Vec<&str> = report.get("names").split(',').collect();
    for (name, _) in hidden(&marker) {
        assert!(!names.contains(&name), "{name}: {names:?}");
    }
    assert!(names.contains(&"HARMLESS") && names.contains(&"AGENT_SANDBOX"));
}

/// While the jail runs, the launcher with its full environment does too; nobody inside sees it.
#[test]
fn the_launchers_environment_is_out_of_reach() {
    let world = World::new();
    let answers = world
        .jail([])
        .env("GITHUB_TOKEN", &world.marker)
        .operations(&[
            op!("read", "/proc/1/environ"),
            op!("read", "/proc/1/mem"),
            op!("read", "/proc/self/environ"),
            op!("read", "/proc/1/cmdline"),
            op!("stat", "/proc/2000000"),
        ]);
    assert!(
        ["EACCES", "EPERM"].contains(&answers[0].as_str()),
        "{answers:?}"
    );
    assert!(
        ["EACCES", "EPERM"].contains(&answers[1].as_str()),
        "{answers:?}"
    );
    assert!(!answers[2].contains("GITHUB_TOKEN"), "{answers:?}");
    // The command line of init names descriptors, and nothing of the policy.
    assert!(
        !answers[3].contains(crate::operations::text(&world.home("")).as_str()),
        "{answers:?}"
    );
}
