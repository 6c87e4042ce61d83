//! A filtered network in jobs and steps: whom they reach, and what is left without the filter. Servers of the test's own stand
//! on the loopback of this machine, which is that of each node.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::call::Call;
use crate::chosen::is_landlock;
use crate::cluster::not_checked;
use crate::mpi;
use crate::own::Own;
use crate::processes::{parent, servers};
use crate::world::{Side, World, until};

/// A server that answers each connection, in this process; its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nserved\n");
        }
    });
    port
}

/// A world with two servers, the first of which a filtered session reaches. `./ask.sh NAME` says what it gets of both, and of a
/// host that nobody allows.
struct Network {
    world: World,
    allowed: u16,
}

impl Network {
    #[track_caller]
    fn of(world: World) -> Option<Self> {
        let (allowed, other) = (server(), server());
        let ask = format!(
            "#!/bin/bash\nget() {{ curl -sSf -m 20 http://$1/ 2> /dev/null || echo closed; }}\n\
             # A machine that is busy may lose a question about a name.\n\
             echo $1 $(get localhost:{allowed}) $(get localhost:{other}) $(get refused.example > asked; get refused.example)\n"
        );
        world.write("ask.sh", ask);
        Some(Self { world, allowed })
    }

    /// In a filtered session.
    fn inside(&self, script: &str) -> Call<'_> {
        let private = format!("network.private=[\"localhost:{}\"]", self.allowed);
        let call = self.world.inside(script);
        call.set("network.mode=filtered").set(&private)
    }

    /// What the chaperons and filters recorded of this machine's network.
    fn recorded(&self) -> String {
        let records = self.world.home(".local/state/agent-sandbox/audit");
        let files = fs::read_dir(records).unwrap().flatten();
        let text = files.map(|file| fs::read_to_string(file.path()).unwrap());
        let text: String = text.collect();
        let of_network = text
            .lines()
            .filter(|line| line.contains("\"kind\":\"network\""));
        of_network.map(|line| format!("{line}\n")).collect()
    }
}

/// Hosts that a text names as refused, and the text without these lines.
fn refused(text: &str) -> (Vec<String>, String) {
    let (named, other): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| {
        line.starts_with("agent-sandbox: ") && line.contains(" is not reached: ")
    });
    let host = |line: &&str| line.split(' ').nth(1).unwrap_or_default().to_owned();
    let other = other.iter().map(|line| format!("{line}\n"));
    (named.iter().map(host).collect(), other.collect())
}

/// The same without the loopback: where that is the host's the filter refuses it, and names it; else nobody listens there.
fn refused_elsewhere(text: &str) -> (Vec<String>, String) {
    let (mut named, other) = refused(text);
    named.retain(|host| !(is_landlock() && host.starts_with("localhost:")));
    (named, other)
}

/// What [`Network`] says where the network is filtered.
fn filtered(name: &str) -> String {
    format!("{name} served closed closed\n")
}

#[test]
fn jobs_and_steps_reach_what_their_session_reaches() {
    let Some(network) = World::new().and_then(Network::of) else {
        return;
    };
    let node = &network.world.cluster.nodes[0];
    // Of the network that the steps of a job share where it has one of its own.
    let shared = match is_landlock() {
        true => "printf 'the script'; srun -Q -n1 --overlap bash -c 'echo $SLURM_JOB_ID > id'\n",
        false => {
            "python3 -c 'import socket\nat = socket.create_server((\"127.0.0.1\", 8123))\nopen(\"up\", \"w\")\n\
             at.accept()[0].send(b\"the script\")' &\n\
             until [ -e up ]; do sleep 0.05; done\n\
             srun -Q -n1 --overlap bash -c 'exec 3<> /dev/tcp/127.0.0.1/8123; cat <&3; echo $SLURM_JOB_ID > id'\n"
        }
    };
    network.world.write(
        "job.sh",
        format!(
            "#!/bin/bash\n#SBATCH -N1 -n2 -o job.txt\n./ask.sh batch; srun -Q -n1 ./ask.sh step; srun -Q -n2 ./ask.sh ranks\n{shared}"
        ),
    );
    // The first of two steps that no batch script is with ends before the second asks.
    let apart = "srun -Q -n1 --exact ./ask.sh first > first.txt & srun -Q -n1 --exact bash -c 'touch second; \
                 until [ -e first.over ]; do sleep 0.05; done; ./ask.sh second' > second.txt & \
                 until [ -e second ]; do sleep 0.05; done; wait %1; touch first.over; wait";
    let script = format!(
        "./ask.sh session; srun -Q -N1 -n2 ./ask.sh login; sbatch -Q -W job.sh\n\
         sbatch -Q -W --array=1-2 -o array.%a.txt --wrap './ask.sh array'\n\
         salloc -Q -N1 -n2 -w {node} bash -c {apart:?}; cat first.txt second.txt"
    );
    let output = network.inside(&script).run().good();
    let expected = ["session", "login", "login", "first", "second"].map(filtered);
    assert_eq!(output.out(), expected.concat(), "{output}");
    let expected = ["batch", "step", "ranks", "ranks"].map(filtered);
    let expected = format!("{}the script\n", expected.concat());
    // The job's own output names each host that was refused, once.
    let once = vec!["refused.example".to_owned()];
    let said = network.world.read("job.txt");
    let (mut named, other) = refused_elsewhere(&said);
    if is_landlock() {
        // There each step has a filter of its own.
        named.dedup();
    }
    assert_eq!((named, other), (once.clone(), expected), "{said}");
    assert!(
        said.contains("add `refused.example` to network.allow"),
        "{said}"
    );
    for task in [1, 2] {
        let said = network.world.read(&format!("array.{task}.txt"));
        assert_eq!(
            refused_elsewhere(&said),
            (once.clone(), filtered("array")),
            "{task}"
        );
    }
    // So does the standard error of a step that has a filter of its own: here those of three steps; the session is a quiet one.
    let (named, _) = refused_elsewhere(&output.err());
    // Under Landlock each task has one.
    let filters = if is_landlock() { 4 } else { 3 };
    assert_eq!(named, vec![once[0].as_str(); filters], "{}", output.err());
    let (job, recorded) = (network.world.read("id"), network.recorded());
    for step in ["batch", "0"] {
        // A step in the network of the batch script has its filter.
        let of = format!(
            "\"name\":\"localhost\",\"port\":{},\"job\":{},\"step\":\"batch\",\"verdict\":\"allowed\"",
            network.allowed,
            job.trim()
        );
        assert!(recorded.contains(&of), "{step}: {recorded}");
    }
    assert!(recorded.contains("\"step\":\"0\""), "{recorded}");
}

#[test]
fn a_step_on_two_nodes_is_filtered_and_says_so() {
    let Some(network) = World::new().and_then(Network::of) else {
        return;
    };
    let script = "srun -Q -N2 -n4 ./ask.sh rank";
    let output = network.inside(script).run().good();
    assert_eq!(output.out(), filtered("rank").repeat(4), "{output}");
    let said = output.err();
    let line = "network.jobs = \"open\"";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    let output = network.inside("srun -Q -N1 -n2 ./ask.sh rank").run().good();
    assert!(!output.err().contains(line), "{output}");
}

#[test]
fn ranks_on_a_node_with_a_filtered_network() {
    if is_landlock() {
        return not_checked("where Landlock makes the jail ranks neither share memory nor listen");
    }
    let Some(network) = mpi::world().and_then(Network::of) else {
        return;
    };
    network.world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N1 -n4 -o job.txt\nexport OMPI_MCA_btl=vader,self\n\
         mpirun.openmpi -n 4 ./ring.openmpi; srun -Q --mpi=pmi2 ./ring.mpich; mpiexec.mpich -n 4 ./ring.mpich\n",
    );
    let script = "sbatch -Q -W job.sh; cat job.txt; srun -Q -N1 -n4 --mpi=pmi2 ./ring.mpich";
    let output = network.inside(script).run();
    assert_eq!(output.out(), "sum 10 of 4\n".repeat(4), "{output}");
}

/// The filters of a job's steps.
fn filters(world: &World, job: &str) -> Vec<Pid> {
    let servers: Vec<i32> = servers(world, job).iter().map(|one| one.pid).collect();
    let all = crate::processes::marked(world, "agent-sandbox-filter");
    let filters = all
        .iter()
        .filter(|process| servers.contains(&parent(process)));
    filters.map(|process| Pid::from_raw(process.pid)).collect()
}

fn is_there(process: Pid) -> bool {
    Path::new(&format!("/proc/{process}/exe")).exists()
}

#[test]
fn a_job_without_its_filter_reaches_nothing_and_no_filter_outlives_a_job() {
    if is_landlock() {
        return not_checked(
            "where Landlock makes the jail each task has a filter of its own; confine-landlock kills that",
        );
    }
    let Some(network) = World::new().and_then(Network::of) else {
        return;
    };
    let world = &network.world;
    world.write(
        "job.sh",
        "#!/bin/bash\necho $SLURM_JOB_ID > $1.id\nfor n in 1 2 3; do\n\
         ./ask.sh $1 > $1.asked; mv $1.asked $1.$n; until [ -e $1.go.$n ]; do sleep 0.05; done; done\n",
    );
    let names = ["filter", "server", "cancel"];
    let script =
        "for n in filter server cancel; do sbatch -Q --overcommit -n1 -o $n.txt job.sh $n; done";
    network.inside(script).run().good();
    let started = names.map(|name| {
        world.until(Side::Inside, &format!("{name}.1"), "\n");
        assert_eq!(world.read(&format!("{name}.1")), filtered(name));
        let job = world.read(&format!("{name}.id")).trim().to_owned();
        let [filter] = filters(world, &job)[..] else {
            panic!("{name}: {:?}", filters(world, &job));
        };
        (job, filter)
    });
    // What a site or Slurm sends to all processes of a job does not end it before the job.
    for (signal, ask, expected) in [
        (Signal::SIGTERM, 1, filtered("filter")),
        (
            Signal::SIGKILL,
            2,
            "filter closed closed closed\n".to_owned(),
        ),
    ] {
        kill(started[0].1, signal).unwrap();
        world.write(&format!("filter.go.{ask}"), "");
        let answer = format!("filter.{}", ask + 1);
        world.until(Side::Inside, &answer, "\n");
        assert_eq!(world.read(&answer), expected, "{signal}");
    }
    world.write("filter.go.3", "");
    servers(world, &started[1].0)[0].kill();
    world.real(&["scancel", &started[2].0]).good();
    for (_, filter) in &started {
        until("the filter's end", || !is_there(*filter));
    }
    world.settle(Side::Inside);
}

#[test]
fn slurms_own_ports_are_refused_to_jobs_under_every_rule() {
    let Some(network) = World::new().and_then(Network::of) else {
        return;
    };
    let conf = fs::read_to_string(&network.world.cluster.conf).unwrap();
    let behind = |key: &str| -> Vec<String> {
        let lines = conf.lines().filter_map(|line| line.split_once(key));
        let digits = |text: &str| {
            text.split(|c: char| !c.is_ascii_digit())
                .next()
                .map(str::to_owned)
        };
        lines.filter_map(|(_, value)| digits(value)).collect()
    };
    let own = [
        behind("SlurmctldPort="),
        behind(" Port="),
        behind("AccountingStoragePort="),
    ];
    assert!(own.iter().all(|ports| !ports.is_empty()), "{conf}");
    let own = own.concat();
    let all: Vec<String> = own
        .iter()
        .chain([&network.allowed.to_string()])
        .map(|port| format!("\"localhost:{port}\""))
        .collect();
    let ask = format!(
        "for port in {} {}; do curl -sSf -m 20 http://127.0.0.1:$port/; done 2> /dev/null; true",
        own.join(" "),
        network.allowed
    );
    network
        .world
        .write("job.sh", format!("#!/bin/bash\n{ask}\n"));
    let call = network
        .world
        .inside("sbatch -Q -W -N1 -o job.txt job.sh; srun -Q -N1 ./job.sh");
    let call = call
        .set("network.mode=filtered")
        .set(&format!("network.private=[{}]", all.join(", ")))
        .set(&format!("network.allow=[\"*\", {}]", all.join(", ")));
    let output = call.run().good();
    // The control: another port of the same host.
    assert_eq!(output.out(), "served\n", "{output}");
    let (named, said) = refused(&network.world.read("job.txt"));
    assert_eq!(said, "served\n");
    assert!(
        matches!(&named[..], [one] if one.starts_with("localhost:")),
        "{named:?}"
    );
    let recorded = network.recorded();
    for port in own {
        let of = |verdict: &str, line: &&str| {
            line.contains(&format!("\"port\":{port},\"job\":"))
                && line.contains(&format!("\"verdict\":\"{verdict}\""))
        };
        let refused: Vec<&str> = recorded
            .lines()
            .filter(|line| of("refused", line))
            .collect();
        assert!(
            refused.iter().any(|line| line.contains("lurm")),
            "{port}: {recorded}"
        );
        assert!(
            !recorded.lines().any(|line| of("allowed", &line)),
            "{recorded}"
        );
    }
}

#[test]
fn what_listens_in_a_job_is_not_reached_from_the_node_or_another_job() {
    if is_landlock() {
        return not_checked("where Landlock makes the jail nobody listens in a filtered job");
    }
    let Some(network) = World::new().and_then(Network::of) else {
        return;
    };
    let world = &network.world;
    // Nobody has it: it was free a moment ago, and the kernel hands out others first.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    world.write(
        "listen.sh",
        format!(
            "#!/bin/bash\npython3 -m http.server --bind 0.0.0.0 {port} > /dev/null 2>&1 & server=$!\n\
             until curl -sSf -o own.txt http://127.0.0.1:{port}/ask.sh 2> /dev/null; do sleep 0.05; done; touch up\n\
             until [ -e over ]; do sleep 0.05; done; kill $server\n"
        ),
    );
    world.write(
        "reach.sh",
        format!(
            "#!/bin/bash\nfor host in 127.0.0.1 localhost $(hostname) $SLURMD_NODENAME; do\n\
             curl -sSf -m 20 http://$host:{port}/ask.sh > /dev/null 2>&1 && echo $host is reached; done; echo asked\n"
        ),
    );
    let node = &world.cluster.nodes[0];
    let script = format!(
        "sbatch -Q -w {node} -N1 -n1 -o listen.txt listen.sh; until [ -e up ]; do sleep 0.05; done\n\
         srun -Q -w {node} -N1 -n1 ./reach.sh; until [ -e looked ]; do sleep 0.05; done; touch over"
    );
    let private = format!("network.private=[\"localhost:{port}\"]");
    let running = network.inside(&script).start();
    until("the server", || world.project().join("up").exists());
    let reached = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    // The same with a rule that leads to this port of the node.
    let other = world.inside(&format!("srun -Q -w {node} -N1 -n1 ./reach.sh"));
    let other = other.set("network.mode=filtered").set(&private).run();
    world.write("looked", "");
    let output = running.end().good();
    assert_eq!(output.out(), "asked\n", "{output}");
    assert_eq!(other.out(), "asked\n", "{other}");
    assert!(!reached, "the node reaches a job's listener");
    // The control: the job itself reaches it.
    assert!(world.read("own.txt").contains("curl"));
    world.settle(Side::Inside);
}

/// A cluster beside the one of this run, on which a site and one of its nodes say what they like.
#[test]
fn a_site_says_which_network_jobs_have_and_what_cannot_be_filtered_does_not_start() {
    let Some(own) = Own::start("network", &[]) else {
        return;
    };
    let (one, two) = (&own.cluster.nodes[0], &own.cluster.nodes[1]);
    let by_partition = "[[when]]\npartition = \"long\"\n\n[when.network]\njobs = \"open\"\n";
    fs::write(own.node(0).join("defaults.toml"), by_partition).unwrap();
    fs::write(
        own.node(1).join("enforced.toml"),
        "[network]\nmode = \"filtered\"\n",
    )
    .unwrap();
    let programs = with_a_filter_that_can_fail(&own);
    let mut cluster = own
        .cluster
        .beside(own.cluster.conf.clone(), own.login())
        .unwrap();
    cluster.launcher = programs.path().join("agent-sandbox");
    let cluster = Box::leak(Box::new(cluster));
    let Some(network) = Network::of(World::of(cluster, &cluster.alice)) else {
        return;
    };
    partitions_and_keys(&network, one, two);
    a_filter_that_fails(&network, one);
    // The node wants a filter, and its jail is one of Landlock's.
    let mut call = network.inside(&format!("srun -Q -w {two} ./ask.sh two"));
    if !is_landlock() {
        call = call.option("--backend").option("landlock");
    }
    let output = call.run();
    if output.err().contains("the network cannot be filtered") {
        assert!(!output.out().contains("served"), "{output}");
        return not_checked(
            "the node's network under Landlock: this kernel's has no rights about it",
        );
    }
    assert_eq!(output.out(), filtered("two"), "{output}");
}

fn partitions_and_keys(network: &Network, one: &str, two: &str) {
    let script = format!(
        "srun -Q -w {one} -p debug ./ask.sh debug; srun -Q -w {one} -p long ./ask.sh long\n\
         srun -Q -w {one} -p debug --export=ALL,SLURM_JOB_PARTITION=long ./ask.sh claimed\n\
         srun -Q -w {two} ./ask.sh two"
    );
    let output = network.inside(&script).run().good();
    let long = "long served served closed\n".to_owned();
    let expected = [
        filtered("debug"),
        long,
        filtered("claimed"),
        filtered("two"),
    ];
    assert_eq!(output.out(), expected.concat(), "{output}");
    let script =
        format!("./ask.sh session; srun -Q -w {one} ./ask.sh one; srun -Q -w {two} ./ask.sh two");
    let open = network
        .inside(&script)
        .set("network.jobs=open")
        .run()
        .good();
    let one = "one served served closed\n".to_owned();
    let expected = [filtered("session"), one, filtered("two")];
    assert_eq!(open.out(), expected.concat(), "{open}");
    let isolated = network
        .inside(&script)
        .set("network.jobs=isolated")
        .run()
        .good();
    let expected = "one closed closed closed\ntwo closed closed closed\n";
    assert_eq!(
        isolated.out(),
        format!("{}{expected}", filtered("session")),
        "{isolated}"
    );
}

fn a_filter_that_fails(network: &Network, node: &str) {
    // Outside, the session's own filter has started by then.
    let script = format!(
        "touch broken; srun -Q -w {node} ./ask.sh step; echo $?\n\
         sbatch --parsable -W -w {node} -o job.txt --wrap './ask.sh job' > id; echo $?; rm broken"
    );
    let output = network.inside(&script).run().good();
    assert_eq!(output.out(), "125\n125\n", "{output}");
    let why = "the network cannot be filtered";
    assert!(output.err().contains(why), "{output}");
    // Of a batch script it stands where everything does that keeps a job from starting.
    let job = network.world.read("id").trim().to_owned();
    let said = network.world.launcher(&["log", &job]);
    assert!(said.out().contains(why), "{said}");
    assert_eq!(network.world.read("job.txt"), "");
}

/// Our programs at another place, of which the filter fails while the project has a file `broken`.
fn with_a_filter_that_can_fail(own: &Own) -> tempfile::TempDir {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let mode = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    mode(place.path());
    let from = own.cluster.launcher.parent().unwrap();
    for (name, to) in [
        ("agent-sandbox", "agent-sandbox"),
        ("agent-sandbox-shim", "agent-sandbox-shim"),
        ("agent-sandbox-chaperon", "agent-sandbox-chaperon"),
        ("agent-sandbox-filter", "real-filter"),
    ] {
        fs::copy(from.join(name), place.path().join(to)).unwrap();
        mode(&place.path().join(to));
    }
    let program = place.path().join("agent-sandbox-filter");
    let home = own.cluster.alice.dir.display();
    let text = format!(
        "#!/bin/bash\ncompgen -G '{home}/slurm-suite.*/project/broken' > /dev/null && exit 1\n\
         exec {}/real-filter \"$@\"\n",
        place.path().display()
    );
    fs::write(&program, text).unwrap();
    mode(&program);
    place
}
