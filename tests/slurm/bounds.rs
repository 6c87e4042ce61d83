//! What one job may ask for: `[slurm.bounds]` of a site, for new jobs, steps and jobs that are there, however they ask.

use std::ffi::OsStr;
use std::fs;

use crate::call::Output;
use crate::own::Own;
use crate::world::{Side, World};

/// What the site says where users log in. The tests name its lines.
const ENFORCED: &str = r#"[slurm.bounds]
partitions = ["long", "debug", "whole", "scarce", "fed"]
accounts = ["proj1", "proj2"]
qos = ["normal"]
reservations = []
constraints = ["a100"]
licenses = ["matlab"]
deny_options = ["nice"]
cpus = 2
memory = "1500M"
minutes = 30
array = 4

[[when]]
partition = "debug"

[when.slurm.bounds]
minutes = 10

[[when]]
account = "proj2"

[when.slurm.bounds]
partitions = ["debug"]
"#;

/// What is too much, and the line that says so.
const REFUSED: [(&str, u32); 49] = [
    ("-p secret", 2),
    ("-p long,secret", 2),
    ("--part=secret", 2),
    ("-psecret", 2),
    ("-p ,", 2),
    ("-A root", 3),
    ("-A proj1,root", 3),
    ("-q high", 4),
    ("-q ,", 4),
    ("--reservation=course", 5),
    ("-C v100", 6),
    ("-C [a100|v100]", 6),
    ("-C a100&v100*2", 6),
    ("--prefer=v100", 6),
    ("-L abaqus:1", 7),
    ("-L matlab:1,abaqus:1", 7),
    ("--nice", 8),
    ("--nice=5", 8),
    ("-n3", 9),
    ("-N1-0", 9),
    ("-c3", 9),
    ("-N2 --ntasks-per-node=2", 9),
    ("--mincpus=3", 9),
    ("-G1 --cpus-per-gpu=3", 9),
    ("--exclusive", 9),
    ("--core-spec=1", 9),
    ("-p whole", 9),
    ("-p long,whole", 9),
    ("-B 1:3:1", 9),
    ("-N1 --sockets-per-node=3", 9),
    ("--cores-per-socket=3", 9),
    ("--threads-per-core=3", 9),
    ("-G4 --gpus-per-task=1", 9),
    ("-G3 --tres-per-task=gres/gpu:1", 9),
    // Slurm gives a CPU more for each 100 MiB, or three with a GPU.
    ("-p scarce --mem=250", 9),
    ("-p scarce --mem-per-cpu=250", 9),
    ("-p fed -G1", 9),
    ("--mem=1501M", 10),
    ("--mem=2G", 10),
    ("--mem=0", 10),
    ("-n2 --mem-per-cpu=800", 10),
    ("-N2 --mem=800", 10),
    ("-t 31", 11),
    ("-t 0", 11),
    ("-t unlimited", 11),
    ("-p debug -t 11", 18),
    ("-p long,debug -t 11", 18),
    ("-A proj2 -p long", 24),
    ("-A PROJ2 -p long", 24),
];

struct Site {
    // Dropped first: it asks the cluster.
    world: World,
    own: Own,
}

impl Site {
    #[track_caller]
    fn new() -> Option<Self> {
        let extra = "PartitionName=whole Nodes=ALL OverSubscribe=EXCLUSIVE MaxTime=60\n\
                     PartitionName=scarce Nodes=ALL MaxMemPerCPU=100 MaxTime=60\n\
                     PartitionName=fed Nodes=ALL DefCpuPerGPU=3 MaxTime=60\n\
                     PartitionName=secret Nodes=ALL MaxTime=60\nLicenses=matlab:4,abaqus:4\n";
        let own = Own::start("bounds", &[("slurm.conf", extra)])?;
        fs::write(own.login().join("enforced.toml"), ENFORCED).unwrap();
        let world = World::of(own.cluster, &own.cluster.alice);
        Some(Self { own, world })
    }

    /// A submission and a word of the job that it makes.
    fn submitted(&self, line: &str) -> String {
        let said = self.world.inside(line).run().good();
        self.shown(&said.word())
    }

    fn shown(&self, job: &str) -> String {
        let format = "%P %a %q %l %C %m";
        let line = self
            .world
            .cluster
            .said("squeue", ["-h", "-j", job, "-o", format]);
        line.trim().to_owned()
    }
}

#[track_caller]
fn refused_by(output: &Output, line: u32) {
    let place = format!("/etc/agent-sandbox/enforced.toml:{line})");
    assert!(
        output.code != 0 && output.err().contains(&place),
        "line {line}: {output}"
    );
}

#[test]
fn a_sites_bounds_hold_for_jobs_however_they_ask() {
    let Some(site) = Site::new() else { return };
    what_is_not_asked_for_is_filled_in(&site);
    what_is_asked_for_is_judged(&site);
    steps_and_jobs_of_jobs_are_judged(&site);
    jobs_that_are_there_are_judged(&site);
    changes_at_once_are_not_too_much_together(&site);
    conditions_need_what_slurm_chooses(&site);
}

fn what_is_not_asked_for_is_filled_in(site: &Site) {
    let world = &site.world;
    // Slurm's own choice would be debug, proj1, ten minutes.
    let line = "sbatch --parsable -H --wrap true";
    assert_eq!(
        site.submitted(line),
        "long proj1 normal 30:00 1 100M",
        "{line}"
    );
    let line = "SBATCH_PARTITION= sbatch --parsable -H -A proj2 -t 5 --mem=70 --wrap true";
    assert_eq!(site.submitted(line), "debug proj2 normal 5:00 1 70M");
    let said = world
        .inside("srun -H -n2 true & sleep 1; squeue -h --me -t PD -o '%P %l' | tail -1; kill %1")
        .run();
    assert!(said.out().contains("long 30:00"), "{said}");
    let said = world
        .inside("salloc -Q sh -c 'squeue -h -j $SLURM_JOB_ID -o \"%P %a %l\"'")
        .run()
        .good();
    assert_eq!(said.out(), "long proj1 30:00\n", "{said}");
    // Memory counts on the nodes of a variable that Slurm 22.05 does not read: without a word of ours there would be two.
    let line = "SLURM_NNODES=1 srun -n2 --mem=800 --spread-job printenv SLURM_JOB_NUM_NODES";
    let said = world.inside(line).run().good();
    assert_eq!(said.out(), "1\n1\n", "{said}");
    world.inside("scancel --me").run();
}

fn what_is_asked_for_is_judged(site: &Site) {
    let world = &site.world;
    let mut script = String::new();
    for (number, (words, _)) in REFUSED.iter().enumerate() {
        // Words are quoted: they hold brackets and bars.
        let quoted: Vec<String> = words.split(' ').map(|word| format!("'{word}'")).collect();
        let words = quoted.join(" ");
        let directive = format!("#!/bin/sh\n#SBATCH {words}\ntrue\n");
        world.write(&format!("{number}.sh"), directive);
        script.push_str(&format!(
            "for c in 'sbatch -H --wrap true' 'srun -H true' 'salloc -H -Q true'; do \
             case $c in srun*) set -- srun -H {words} true;; salloc*) set -- salloc -H -Q {words} true;; \
             *) set -- sbatch -H {words} --wrap true;; esac; \
             said=$(\"$@\" 2>&1 > /dev/null) && echo \"passed: $*\"; echo \"{number} $said\" | tr '\\n' ' '; echo; done\n\
             said=$(sbatch -H {number}.sh 2>&1) && echo 'passed: {number}.sh'; echo \"{number} $said\" | tr '\\n' ' '; echo\n"
        ));
    }
    // Each asks Slurm several things.
    let said = world
        .inside(&script)
        .set("slurm.limits.queries_per_minute=0")
        .run();
    assert!(!said.out().contains("passed"), "{said}");
    let lines: Vec<String> = said.out().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4 * REFUSED.len(), "{said}");
    let other = lines.iter().enumerate().filter(|(at, line)| {
        let (_, place) = REFUSED[at / 4];
        !line.contains(&format!("/etc/agent-sandbox/enforced.toml:{place})"))
    });
    let other: Vec<_> = other.map(|(at, line)| (REFUSED[at / 4], line)).collect();
    assert!(other.is_empty(), "{other:#?}");
    // By variables, of other systems, as an array, and as parts of one job.
    for (line, place) in [
        ("SBATCH_PARTITION=secret sbatch -H --wrap true", 2),
        ("SLURM_PARTITION=secret srun -H true", 2),
        ("SALLOC_PARTITION=secret salloc -H -Q true", 2),
        ("SBATCH_CONSTRAINT=v100 sbatch -H --wrap true", 6),
        ("SBATCH_EXCLUSIVE=1 sbatch -H --wrap true", 9),
        ("SLURM_CPUS_PER_TASK=3 srun -H true", 9),
        ("SLURM_NSOCKETS_PER_NODE=3 srun -H true", 9),
        ("SLURM_NCORES_PER_SOCKET=3 srun -H true", 9),
        ("SBATCH_THREADS_PER_CORE=3 sbatch -H --wrap true", 9),
        ("SBATCH_MEM_PER_NODE=2G sbatch -H --wrap true", 10),
        ("SBATCH_TIMELIMIT=31 sbatch -H --wrap true", 11),
        ("sbatch -H -a 1-5 --wrap true", 12),
        ("sbatch -H -a 1-9:2%1 --wrap true", 12),
        ("printf '#!/bin/sh\\n#PBS -q secret\\n' | sbatch -H", 2),
        (
            "printf '#!/bin/sh\\n#PBS -l nodes=1:ppn=3\\n' | sbatch -H",
            9,
        ),
        (
            "printf '#!/bin/sh\\n#PBS -l select=2:ncpus=2\\n' | sbatch -H",
            9,
        ),
        ("printf '#!/bin/sh\\n#BSUB -n 3\\n' | sbatch -H", 9),
    ] {
        refused_by(&world.inside(line).run(), place);
    }
    for line in [
        "sbatch -H -p long : -p secret --wrap true",
        "srun -H -p long : -p secret true",
        "printf '#!/bin/sh\\n#SBATCH hetjob\\n#SBATCH -p secret\\n' | sbatch -H",
    ] {
        let said = world.inside(line).run();
        assert!(said.code != 0, "{said}");
    }
    let none = world.cluster.said("squeue", ["-h", "-o", "%i"]);
    assert_eq!(none.trim(), "", "{said}");
    // What is near is named.
    let said = world.inside("sbatch -H -p lnog --wrap true").run();
    assert!(
        said.err().contains("the nearest allowed partition: long"),
        "{said}"
    );
    let said = world.inside("sbatch -H -t 1:00:00 --wrap true").run();
    assert!(
        said.err().contains("the nearest allowed value: --time=30"),
        "{said}"
    );
    let line = "agent-sandbox explain --slurm 'sbatch -p secret x.sh'";
    let said = world.inside(line).run();
    assert!(
        said.out().contains("/etc/agent-sandbox/enforced.toml:2)"),
        "{said}"
    );
}

fn steps_and_jobs_of_jobs_are_judged(site: &Site) {
    let world = &site.world;
    world.write(
        "outer.sh",
        "#!/bin/sh\nsbatch -H -p secret --wrap true\nsrun --nice=1 true\nsrun -n1 -t 2 echo step ran\n",
    );
    let said = world.inside("sbatch -W -o outer.txt outer.sh").run();
    let text = world.read("outer.txt");
    for place in [":2)", ":8)"] {
        assert!(text.contains(place), "{place}: {text}\n{said}");
    }
    assert!(text.contains("step ran"), "{text}");
}

/// Each is allowed for the job as it is: more time in one partition, and the other partition for the time that it has.
fn changes_at_once_are_not_too_much_together(site: &Site) {
    let script = "for round in 1 2 3 4 5 6; do
            job=$(sbatch --parsable -H -t 5 -p long --wrap true)
            scontrol update JobId=$job TimeLimit=30 2> /dev/null & scontrol update JobId=$job Partition=debug 2> /dev/null & wait
            squeue -h -j $job -o '%P %l'
        done; scancel --me";
    let said = site
        .world
        .inside(script)
        .set("slurm.limits.queries_per_minute=0")
        .run();
    let good = |line: &&str| ["long 30:00", "debug 5:00"].contains(line);
    assert_eq!(said.out().lines().filter(good).count(), 6, "{said}");
}

fn jobs_that_are_there_are_judged(site: &Site) {
    let world = &site.world;
    let job = world
        .inside("sbatch --parsable -H --wrap true")
        .run()
        .good()
        .word();
    let before = site.shown(&job);
    for (words, place) in [
        ("Partition=secret", 2),
        ("Account=root", 3),
        ("QOS=high", 4),
        ("Partition=", 2),
        ("Partition=,", 2),
        ("Account=", 24),
        ("QOS=", 4),
        ("ReservationName=course", 5),
        ("Features=v100", 6),
        ("Licenses=abaqus:1", 7),
        ("Nice=5", 8),
        ("NumCPUs=4", 9),
        ("Partition=whole", 9),
        ("MinMemoryNode=4G", 10),
        ("TimeLimit=31", 11),
        ("TimeLimit=+1", 11),
        ("TimeLimit=UNLIMITED", 11),
        ("TimeLimit=31 TimeMin=5", 11),
        ("Partition=debug", 18),
        ("Account=proj2", 24),
    ] {
        let said = world
            .inside(&format!("scontrol update JobId={job} {words}"))
            .run();
        refused_by(&said, place);
    }
    assert_eq!(site.shown(&job), before);
    // Others' changes would wait while so many are judged.
    let many: Vec<String> = (0..101).map(|task| format!("{job}_{task}")).collect();
    let many = many.join(",");
    for verb in ["update Comment=x JobId=", "release ", "requeue "] {
        let said = world.inside(&format!("scontrol {verb}{many}")).run();
        assert!(
            said.code != 0 && said.err().contains("101 jobs at once"),
            "{said}"
        );
    }
    world
        .inside(&format!(
            "scontrol update JobId={}{job} Comment=x",
            format!("{job},").repeat(5000)
        ))
        .run()
        .good();
    world
        .inside(&format!(
            "scontrol update JobId={job} TimeLimit=9 Partition=debug Comment='Partition=secret'"
        ))
        .run()
        .good();
    assert!(site.shown(&job).starts_with("debug proj1 normal 9:00"));
    // What was submitted outside, where nothing is bounded, is neither released nor requeued.
    let foreign = [
        "sbatch",
        "--parsable",
        "-H",
        "-p",
        "secret",
        "-o",
        "/dev/null",
        "-J",
    ];
    let name = "x Partition=long Account=proj1";
    let words = [&foreign[..], &[name, "--wrap", "true"]].concat();
    let foreign = world.real(&words).good().word();
    for words in [
        "release",
        "requeue",
        "requeuehold",
        "top",
        "update StartTime=now JobId",
    ] {
        let words = match words.split_once(' ') {
            None => format!("scontrol {words} {foreign}"),
            Some(_) => format!("scontrol {words}={foreign}"),
        };
        let said = world.inside(&words).set("slurm.scope=user").run();
        refused_by(&said, 2);
    }
    world
        .inside(&format!("scontrol release {job} && scancel {job}"))
        .run()
        .good();
    world.real(&["scancel", &foreign]).good();
}

/// Ways to more than four CPUs, two GPUs or 3000 MiB, and to less, on two nodes of four cores with two threads each.
const WAYS: [&str; 48] = [
    "-B 1:4:1",
    "-B 1:4:2",
    "-N1 --cores-per-socket=4",
    "--cores-per-socket=4 --threads-per-core=2",
    "--threads-per-core=2",
    "-n4 --threads-per-core=1",
    "-n2 --threads-per-core=1",
    "-n4 --hint=nomultithread",
    "-n2 --hint=memory_bound",
    "-n4 --ntasks-per-core=1",
    "-n3",
    "-n3 -N1",
    "-n5 -N1-2",
    "-n3 -N2 -c2",
    "-c3",
    "-c5",
    "--ntasks-per-node=2 -N2",
    "--ntasks-per-node=3 -N2",
    "--ntasks-per-node=2 -n2 -N1-2",
    "--mincpus=5",
    "--mincpus=3 -N2",
    "-n4 --spread-job",
    "-n2 -O --spread-job",
    "--gpus=2",
    "--gpus=2 --gpus-per-node=1",
    "--gpus=2 --gpus-per-node=1 --exclusive",
    "--gpus=4 --gpus-per-node=2",
    "--gpus=2 --gpus-per-task=1",
    "--gpus=2 --ntasks-per-gpu=2",
    "--gpus=2 --ntasks-per-gpu=3",
    "--gpus=2 --cpus-per-gpu=2",
    "--gpus=2 --cpus-per-gpu=2 --threads-per-core=1",
    "--gpus-per-node=2 -N1-2",
    "--gpus=2 --gpus-per-node=1 --mem=1600",
    "--mem-per-cpu=1500 -c1",
    "--mem-per-cpu=1000 -n2",
    "--exclusive",
    "--mem=0",
    "-N2 --mem=1600",
    "-n2 --mem=1600",
    "-n3 --spread-job --mem=1100",
    "-n2 -c2 --mem-per-cpu=800",
    "--ntasks-per-node=1 -N2 -c3",
    "--gpus=2 --cpus-per-gpu=3",
    "--gpus-per-task=1 -n2 -N1-2",
    "--mem-per-gpu=1600 --gpus=2",
    "-p fed --gpus=2",
    "-p scarce --mem=450",
];

/// Whatever is let through, Slurm allocates no more than the site allows.
#[test]
fn what_slurm_allocates_is_within_the_bounds() {
    let extra = "PartitionName=scarce Nodes=ALL MaxMemPerCPU=100 MaxTime=60\n\
                 PartitionName=fed Nodes=ALL DefCpuPerGPU=3 MaxTime=60\n";
    let options = ["--cpus", "8", "--threads", "2"].map(OsStr::new);
    let Some(own) = Own::start_with("threads", &[("slurm.conf", extra)], &options) else {
        return;
    };
    let text = "[slurm.bounds]\ncpus = 4\ngpus = 2\nmemory = \"3000M\"\n";
    fs::write(own.login().join("enforced.toml"), text).unwrap();
    let world = World::of(own.cluster, &own.cluster.alice);
    let mut script = String::new();
    for words in WAYS {
        script.push_str(&format!(
            "echo \"{words}|\"$(salloc -Q --immediate=5 {words} \
             sh -c 'scontrol show job $SLURM_JOB_ID | grep -oE \"( |Alloc)TRES=.*\"' 2>&1)\n"
        ));
    }
    let said = world
        .inside(&script)
        .set("slurm.limits.queries_per_minute=0")
        .set("slurm.limits.submissions_per_minute=0")
        .run();
    let (mut allocated, mut refused) = (0, 0);
    let output = said.out();
    for line in output.lines() {
        let (words, result) = line.split_once('|').unwrap();
        if result.contains("/etc/agent-sandbox/enforced.toml:") {
            refused += 1;
            continue;
        }
        // Since 23.02 there is another of what was asked for.
        let tres = result
            .trim()
            .trim_start_matches("Alloc")
            .strip_prefix("TRES=");
        let tres = tres.unwrap_or_else(|| panic!("{words}: {result}"));
        let of = |key: &str| {
            let mut parts = tres.split(',').filter_map(|part| part.split_once('='));
            let value = parts.find(|(name, _)| *name == key).map(|(_, value)| value);
            value.map_or(0, |value| value.trim_end_matches('M').parse().unwrap())
        };
        let size: [u32; 3] = ["cpu", "gres/gpu", "mem"].map(of);
        assert!(size[0] <= 4 && size[1] <= 2 && size[2] <= 3000, "{line}");
        allocated += 1;
    }
    assert_eq!(allocated + refused, WAYS.len(), "{said}");
    assert!(allocated >= 15 && refused >= 15, "{allocated} {said}");
}

/// Where a condition is about what nobody named, Slurm says what it would choose, and it is named then.
fn conditions_need_what_slurm_chooses(site: &Site) {
    let text = "[[when]]\npartition = \"debug\"\n[when.slurm.bounds]\nminutes = 7\n\n\
                [[when]]\naccount = \"proj1\"\n[when.slurm.bounds]\narray = 2\n";
    fs::write(site.own.login().join("enforced.toml"), text).unwrap();
    assert_eq!(
        site.submitted("sbatch --parsable -H --wrap true"),
        "debug proj1 normal 7:00 1 100M"
    );
    refused_by(&site.world.inside("sbatch -H -t 8 --wrap true").run(), 4);
    refused_by(&site.world.inside("sbatch -H -a 1-3 --wrap true").run(), 9);
    let line = "sbatch --parsable -H -p long -A proj2 -t 8 -a 1-3 --wrap true";
    site.world.inside(line).run().good();
    site.world.inside("scancel --me").run();
    // A rule that forbids nothing, because its option does not exist, stops jobs instead.
    let text = "[slurm.bounds]\ndeny_options = [\"exlusive\"]\n";
    fs::write(site.own.login().join("enforced.toml"), text).unwrap();
    let said = site.world.inside("sbatch -H --wrap true").run();
    refused_by(&said, 2);
    assert!(said.err().contains("`exlusive`"), "{said}");
    site.world.settle(Side::Inside);
}
