//! The rights that the unit leaves to the tracer are enough for it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::mount::{MsFlags, mount};

use crate::service::Service;
use crate::site::Site;

/// A setting of the unit.
fn setting(name: &str) -> String {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let text = fs::read_to_string(root.join("ebpf/agent-sandbox-tracer.service")).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}=")));
    line.unwrap_or_else(|| panic!("no {name} in the unit"))
        .to_owned()
}

#[test]
fn the_rights_of_the_unit_are_enough() {
    let capabilities = setting("CapabilityBoundingSet");
    let words = capabilities.split(' ').map(|name| {
        let short = name.strip_prefix("CAP_").unwrap().to_lowercase();
        format!(",+{short}")
    });
    let bounds = format!("--bounding-set=-all{}", words.collect::<String>());
    let site = Site::with(|| {
        let mut service = Service::places("").through(&[
            "/usr/bin/setpriv",
            &bounds,
            "--inh-caps=-all",
            "--no-new-privs",
        ]);
        // systemd has mounted it where a service starts.
        let bpf = service.bpffs();
        let nothing = None::<&str>;
        mount(Some("bpf"), &bpf, Some("bpf"), MsFlags::empty(), nothing).unwrap();
        service.again();
        service
    });
    let Some(mut site) = site else { return };
    let status = fs::read_to_string(format!("/proc/{}/status", site.service.pid())).unwrap();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap();
    let effective = u64::from_str_radix(effective.trim(), 16).unwrap();
    assert_eq!(
        effective.count_ones() as usize,
        capabilities.split(' ').count(),
        "{status}"
    );
    let world = site.alice();
    world.write("seen.txt", "seen\n");
    let script = "cat seen.txt; srun -n1 cat seen.txt";
    world.inside(script).set("trace.mode=required").run().good();
    let session = site.ended("session", |trail| trail.of.job.is_none());
    session.whole();
    assert!(session.has_opened("seen.txt"), "{}", session.brief());
    site.ended("step", |trail| {
        trail.of.job.is_some() && trail.has_opened("seen.txt")
    });
    // Also what comes back.
    site.service.end(nix::sys::signal::Signal::SIGKILL);
    site.service.again();
    world
        .inside("cat seen.txt")
        .set("trace.mode=required")
        .run()
        .good();
    site.ended("second session", |trail| {
        trail.of.job.is_none() && trail.of.session != session.of.session
    });
}

/// As the documentation says it: any user with the two capabilities.
#[test]
fn a_user_with_two_capabilities_can_run_it() {
    let Some(site) = Site::with(|| Service::places("")) else {
        return;
    };
    let world = site.bob();
    let place = world.project();
    for name in ["run", "records", "state", "bpf"] {
        fs::create_dir(place.join(name)).unwrap();
        let (uid, gid) = (world.user.uid.as_raw(), world.user.gid.as_raw());
        std::os::unix::fs::chown(place.join(name), Some(uid), Some(gid)).unwrap();
    }
    let bpf = place.join("bpf");
    let options = format!("uid={},gid={},mode=700", world.user.uid, world.user.gid);
    mount(
        Some("bpf"),
        &bpf,
        Some("bpf"),
        MsFlags::empty(),
        Some(options.as_str()),
    )
    .unwrap();
    let check = |capabilities: &str| {
        let mut command = Command::new("/usr/bin/setpriv");
        command
            .arg(format!("--reuid={}", world.user.uid))
            .arg(format!("--regid={}", world.user.gid))
            .args(["--clear-groups", "--no-new-privs"])
            .arg(format!("--inh-caps=-all{capabilities}"))
            .arg(format!("--ambient-caps=-all{capabilities}"))
            .arg(Service::program())
            .arg("check")
            .arg("--config")
            .arg(place.join("none.toml"))
            .arg("--bpffs")
            .arg(&bpf)
            .arg("--state")
            .arg(place.join("state"))
            .arg("--records")
            .arg(place.join("records"))
            .arg("--socket")
            .arg(place.join("run/tracer.sock"));
        command.output().unwrap()
    };
    let checks = [check(",+bpf,+perfmon"), check(",+bpf"), check("")];
    nix::mount::umount(&bpf).unwrap();
    let [both, one, none] = checks;
    assert!(both.status.success(), "{both:?}");
    assert!(!one.status.success() && !one.stderr.is_empty(), "{one:?}");
    assert!(
        !none.status.success() && !none.stderr.is_empty(),
        "{none:?}"
    );
}
