//! What is refused after the plan is made: a jail in which nothing could start, and one that shows what
//! was mounted meanwhile.

use agent_sandbox::host::mount_table::MountTable;
use agent_sandbox::plan::check::{arrivals, needs};

use super::rows::tree;
use crate::scenario::Scenario;

const LINKER: &str = "/usr/lib/ld.so";

fn refused(enforced: &str, user: &str) -> Option<String> {
    let tree = tree().file(LINKER, "ELF").file("/usr/bin/sh", "ELF");
    let scenario = Scenario::new(tree).policy(user).enforced(enforced);
    let scenario = scenario.facts(|facts| facts.loader = Some("/lib/ld.so".into()));
    let plan = scenario.plan().unwrap();
    let checked = needs::check(&plan, &scenario.host, &scenario.tree);
    checked.err().map(|error| error.to_string())
}

#[test]
fn bounds_without_the_system_are_refused() {
    for (enforced, expected) in [
        ("", None),
        ("[files]\nread = [\"/usr\"]\n", None),
        ("[home]\nread = []\n", None),
        (
            "[files]\nread = [\"/data\"]\n",
            Some(("files.read (enforced.toml:2)", LINKER)),
        ),
        (
            "[files]\nread = []\n",
            Some(("files.read (enforced.toml)", LINKER)),
        ),
        (
            "[files]\nread = [\"/usr/lib\"]\n",
            Some(("files.read (enforced.toml:2)", "/usr/bin/sh")),
        ),
        (
            "[files]\nhide = [\"/usr/lib\"]\n",
            Some(("files.hide `/usr/lib` (enforced.toml:2)", LINKER)),
        ),
    ] {
        let found = refused(enforced, "");
        match (&found, expected) {
            (None, None) => {}
            (Some(error), Some((list, place))) => {
                let place = format!("`{place}`");
                assert!(error.contains(list) && error.contains(&place), "{error}");
            }
            _ => panic!("{enforced}: {found:?}"),
        }
    }
}

const MOUNTS: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw
36 22 0:40 / /home rw - nfs4 server:/home rw
37 22 0:50 / /net rw - autofs auto.net rw
";

#[test]
fn what_is_mounted_meanwhile_is_not_given() {
    let scenario = Scenario::new(tree().file("/net/ada/x", "1").file("/net/pool/x", "2"))
        .policy("[files]\nread = [\"/net/pool\"]\n");
    let plan = scenario.plan().unwrap();
    let arrived = |line: &str| {
        let after = MountTable::of(format!("{MOUNTS}{line}\n").as_bytes());
        let before = MountTable::of(MOUNTS.as_bytes());
        let checked = arrivals::check(&plan, &scenario.host, &before, &after);
        checked.err().map(|error| error.to_string())
    };
    assert_eq!(arrived(""), None);
    // Where no bind leads, and what is no name of the home.
    assert_eq!(
        arrived("38 37 0:41 / /net/bob rw - nfs4 server:/bob rw"),
        None
    );
    for (line, at) in [
        (
            "38 37 0:41 / /net/pool rw - nfs4 server:/pool rw",
            "/net/pool",
        ),
        (
            "38 37 0:40 / /net/ada rw - nfs4 server:/home/ada rw",
            "/net/ada",
        ),
        (
            "38 37 0:40 / /net/all rw - nfs4 server:/home rw",
            "/net/all/ada",
        ),
        (
            "38 37 0:41 / /net/data ro - nfs4 server:/home/ada/data ro",
            "/net/data",
        ),
    ] {
        let error = arrived(line).unwrap();
        assert!(error.contains(&format!("`{at}` was mounted")), "{error}");
    }
    // Nothing is known of a table that cannot be read.
    let before = MountTable::of(MOUNTS.as_bytes());
    let unread = MountTable::default();
    assert!(arrivals::check(&plan, &scenario.host, &before, &unread).is_err());
    assert!(arrivals::check(&plan, &scenario.host, &unread, &before).is_err());
}
