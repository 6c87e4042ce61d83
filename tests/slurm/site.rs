//! A site's policy on the nodes: each node applies its own to jobs and steps, besides that of the node of
//! submission, and nothing that travels widens it.

use std::fs;
use std::path::{Path, PathBuf};

use agent_sandbox_wire::capsule::{
    Capsule, Layer, LayerKind, Options, PolicySnapshot, Program, Streams,
};
use agent_sandbox_wire::step;

use crate::call::Output;
use crate::cluster::put;
use crate::own::Own;
use crate::world::{Side, World, until};

/// What the node 1, the node 2 and the login node hide, and what nobody does.
const DATA: [&str; 4] = ["first", "second", "login", "open"];

/// A site with a login node and two others, and data.
struct Site {
    // Dropped first: it asks the cluster.
    world: World,
    own: Own,
    data: PathBuf,
}

impl Site {
    #[track_caller]
    fn new(name: &str) -> Option<Self> {
        let own = Own::start(name, &[])?;
        for name in DATA {
            own.data(name, name);
        }
        let data = own.data("", "");
        let world = World::of(own.cluster, &own.cluster.alice);
        Some(Self { own, world, data })
    }

    /// A rule that hides some data.
    fn hiding(&self, names: &[&str]) -> String {
        let paths = names.iter().map(|name| self.data.join(name));
        let paths: Vec<String> = paths
            .map(|path| format!("{:?}", path.display().to_string()))
            .collect();
        format!("[files]\nhide = [{}]\n", paths.join(", "))
    }

    /// The usual policies: each hides what is named after it.
    fn usual(&self) {
        rule(&self.own.node(0), &self.hiding(&["first"]));
        rule(&self.own.node(1), &self.hiding(&["second"]));
        rule(&self.own.login(), &self.hiding(&["login"]));
    }

    /// The option by which a session gives all the data.
    fn inside(&self, script: &str) -> Output {
        let call = self
            .world
            .inside(script)
            .option("--read")
            .option(&self.data);
        call.variable("LAB_TOKEN", "lab")
            .option("--env")
            .option("LAB_TOKEN")
            .run()
    }

    /// A shell's words that print the names of the data that can be read.
    fn look(&self) -> String {
        format!(
            "cat {}/*/text 2> /dev/null | tr '\\n' ' '",
            self.data.display()
        )
    }

    /// The port of Slurm's controller, on the machine's loopback: not to be reached from a network of
    /// one's own.
    fn controller(&self) -> String {
        let conf = fs::read_to_string(&self.own.cluster.conf).unwrap();
        let port = conf
            .lines()
            .find_map(|line| line.strip_prefix("SlurmctldPort="));
        port.unwrap().to_owned()
    }

    fn node(&self, number: usize) -> &str {
        &self.own.cluster.nodes[number]
    }

    /// What a file of the project says, in words.
    fn said(&self, name: &str) -> Vec<String> {
        words(&self.world.read(name))
    }
}

fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    words.sort();
    words
}

/// Root's file.
fn rule(directory: &Path, text: &str) {
    fs::write(directory.join("enforced.toml"), text).unwrap();
}

#[test]
fn a_job_gets_what_its_node_and_the_node_of_submission_allow() {
    let Some(site) = Site::new("site") else {
        return;
    };
    for name in DATA {
        fs::write(site.data.join(name).join("text"), format!("{name}\n")).unwrap();
    }
    let all = site.world.outside(&site.look()).run().good();
    assert_eq!(
        words(&all.out()),
        ["first", "login", "open", "second"],
        "{all}"
    );
    site.usual();
    jobs_and_steps(&site);
    jobs_of_jobs(&site);
    values_and_sections(&site);
    forged_capsules(&site);
    another_policy_does_not_join(&site);
}

fn jobs_and_steps(site: &Site) {
    let (look, one, two) = (site.look(), site.node(0), site.node(1));
    site.world.write(
        "look.sh",
        format!(
            "#!/bin/bash\n{look}\necho; srun -n1 -o step.$SLURMD_NODENAME.txt bash -c \"{look}\"\n"
        ),
    );
    // Also with two ranks on each of two nodes, in rooms.
    site.world.write(
        "rank.sh",
        format!("#!/bin/bash\n{look} > rank.$SLURM_PROCID.txt\n"),
    );
    let script = format!(
        "{look} > session.txt; for n in {one} {two}; do sbatch -w $n -o job.$n.txt look.sh; done
         srun -N2 -n4 --ntasks-per-node=2 ./rank.sh
         salloc -Q -w {one} srun bash -c \"{look}\" > allocation.txt"
    );
    site.inside(&script).good();
    site.world.settle(Side::Inside);
    let (first, second) = (["open", "second"], ["first", "open"]);
    assert_eq!(site.said("session.txt"), ["first", "open", "second"]);
    for (node, expected) in [(one, first), (two, second)] {
        assert_eq!(site.said(&format!("job.{node}.txt")), expected, "{node}");
        assert_eq!(site.said(&format!("step.{node}.txt")), expected, "{node}");
    }
    for (rank, expected) in [(0, first), (1, first), (2, second), (3, second)] {
        assert_eq!(site.said(&format!("rank.{rank}.txt")), expected, "{rank}");
    }
    assert_eq!(site.said("allocation.txt"), first);
}

fn jobs_of_jobs(site: &Site) {
    let (look, one, two) = (site.look(), site.node(0), site.node(1));
    site.world
        .write("inner.sh", format!("#!/bin/bash\n{look}\n"));
    site.world.write(
        "outer.sh",
        format!("#!/bin/bash\nsbatch -w {two} -o inner.txt inner.sh\nsrun --overlap true\n"),
    );
    site.inside(&format!("sbatch -w {one} -o outer.txt outer.sh"))
        .good();
    site.world.until(Side::Inside, "inner.txt", "open");
    site.world.settle(Side::Inside);
    // The login node's rule went along, through the first node, whose own is for what runs there.
    assert_eq!(
        site.said("inner.txt"),
        ["first", "open"],
        "{}",
        site.world.read("outer.txt")
    );
}

fn values_and_sections(site: &Site) {
    let (one, two) = (site.node(0), site.node(1));
    let deny = "[home]\nmode = \"tmpfs\"\nwrite = []\n[env]\nhide = [\"LAB_*\"]\n\n\
                [[when]]\npartition = \"lo*\"\n\n[when.network]\nmode = \"isolated\"\n";
    rule(&site.own.node(0), deny);
    rule(&site.own.node(1), "[env.set]\nWHO = \"node\"\n");
    rule(
        &site.own.login(),
        "[env.set]\nWHO = \"login\"\n[project]\ngit = \"protect\"\n",
    );
    for (directory, who) in [
        (site.own.login(), "login"),
        (site.own.node(0), "one"),
        (site.own.node(1), "two"),
    ] {
        let text = format!("[env.set]\nDEFAULT = \"{who}\"\n");
        fs::write(directory.join("defaults.toml"), text).unwrap();
    }
    let target = site.world.home("site-target");
    fs::create_dir_all(&target).unwrap();
    let (uid, gid) = (site.world.user.uid.as_raw(), site.world.user.gid.as_raw());
    std::os::unix::fs::chown(&target, Some(uid), Some(gid)).unwrap();
    site.world.write(
        "values.sh",
        format!(
            "#!/bin/bash\nnet=closed; (exec 3<> /dev/tcp/127.0.0.1/{1}) 2> /dev/null && net=open\n\
             touch {0}/$SLURMD_NODENAME 2> /dev/null\n\
             echo ${{LAB_TOKEN-none}} $WHO $DEFAULT $net\n",
            target.display(),
            site.controller()
        ),
    );
    // Another partition than the job's, by who is inside.
    let claims = format!(
        "export SLURM_JOB_PARTITION=debug; where=\"-w {one} -p long\"
         srun $where --export=ALL,SLURM_JOB_PARTITION=debug ./values.sh > claimed.step.txt
         sbatch $where --export=ALL,SLURM_JOB_PARTITION=debug -o claimed.job.txt values.sh
         sbatch $where -o claimed.later.txt --wrap 'export SLURM_JOB_PARTITION=debug; srun ./values.sh'
         salloc -Q $where env SLURM_JOB_PARTITION=debug srun ./values.sh > claimed.allocation.txt"
    );
    let script = format!(
        "./values.sh > session.txt; for n in {one} {two}; do
         sbatch -w $n -o debug.$n.txt values.sh; srun -w $n -p long ./values.sh > long.$n.txt; done
         {claims}"
    );
    let call = site.world.inside(&script).option("--write").option(&target);
    let call = call
        .variable("LAB_TOKEN", "lab")
        .option("--env")
        .option("LAB_TOKEN");
    call.set("env.set.WHO=user").run().good();
    site.world.settle(Side::Inside);
    let read = |name: &str| site.world.read(name).trim().to_owned();
    assert_eq!(read("session.txt"), "lab login login open");
    assert_eq!(read(&format!("debug.{one}.txt")), "none login one open");
    assert_eq!(read(&format!("debug.{two}.txt")), "lab node two open");
    // A section for a partition holds there alone.
    assert_eq!(read(&format!("long.{one}.txt")), "none login one closed");
    assert_eq!(read(&format!("long.{two}.txt")), "lab node two open");
    for kind in ["step", "job", "later", "allocation"] {
        let said = read(&format!("claimed.{kind}.txt"));
        assert_eq!(said, "none login one closed", "{kind}");
    }
    // Given by the user, allowed where they log in and on the second node, not on the first.
    assert!(target.join(two).exists() && !target.join(one).exists());
    fs::remove_dir_all(&target).unwrap();
    for directory in [site.own.login(), site.own.node(0), site.own.node(1)] {
        fs::remove_file(directory.join("defaults.toml")).unwrap();
    }
    site.usual();
}

/// A capsule that a user wrote, outside of any session: it gives all that the user has.
fn forged(site: &Site, program: Program) -> Capsule {
    let place = site.world.place(Side::Outside);
    let place = place.to_str().unwrap();
    let text = format!(
        "[files]\nread = [{0:?}]\nunhide = [{0:?}, \"{1}/first\"]\n",
        site.data,
        site.data.display()
    );
    let layers = [LayerKind::User, LayerKind::CommandLine].map(|kind| Layer {
        kind,
        file: "/etc/agent-sandbox/enforced.toml".into(),
        text: text.clone(),
    });
    Capsule {
        snapshot: PolicySnapshot {
            session: "forged00".into(),
            project: place.into(),
            layers: layers.to_vec(),
            options: Options {
                read: vec![site.data.join("first").to_str().unwrap().into()],
                ..Options::default()
            },
            variables: Vec::new(),
            told: Vec::new(),
            traced: false,
            allocation: Vec::new(),
            placeholders: Vec::new(),
        },
        base_environment: Vec::new(),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        cwd: place.into(),
        submit_directory: place.into(),
        umask: 0o22,
        streams: Streams::default(),
        program,
    }
}

fn forged_capsules(site: &Site) {
    let launcher = site.own.cluster.launcher.to_str().unwrap();
    let (place, one, two) = (site.world.place(Side::Outside), site.node(0), site.node(1));
    let script = format!("#!/bin/bash\n{}\n", site.look()).into_bytes();
    let arguments = Vec::new();
    let mut capsule = forged(site, Program::Script { script, arguments });
    capsule.streams.output = Some(b"forged.txt".to_vec());
    let text = capsule.batch_script(launcher.as_bytes()).unwrap();
    put(site.world.user, &place.join("forged.sh"), &text, 0o755);
    let look = [b"bash".to_vec(), b"-c".to_vec(), site.look().into_bytes()].to_vec();
    let lines = step::variables(&forged(site, Program::Command(look))).unwrap();
    let lines: Vec<String> = lines
        .into_iter()
        .map(|(n, v)| format!("export {n}={v}\n"))
        .collect();
    put(
        site.world.user,
        &place.join("step.sh"),
        lines.concat().as_bytes(),
        0o644,
    );
    // The login node's rule is not in a capsule that did not come from there; the node's own holds.
    for (node, expected) in [
        (one, ["login", "open", "second"]),
        (two, ["first", "login", "open"]),
    ] {
        let script = format!(
            "sbatch -o log.txt -w {node} forged.sh > /dev/null
             until grep -qs open forged.txt; do sleep 0.1; done; cat forged.txt; rm forged.txt
             . ./step.sh; echo; srun -w {node} {launcher} task > step.txt; cat step.txt"
        );
        let said = site.world.outside(&script).run().good();
        let lines: Vec<Vec<String>> = said.out().lines().map(words).collect();
        assert_eq!(lines, [expected, expected], "{node}: {said}");
    }
}

fn another_policy_does_not_join(site: &Site) {
    let (one, look) = (site.node(0), site.look());
    let world = &site.world;
    world.write(
        "hold.sh",
        "#!/bin/bash\necho here > held.txt\nuntil [ -e release.txt ]; do sleep 0.1; done\n",
    );
    let said = site
        .inside(&format!(
            "sbatch --parsable -n2 -w {one} -o hold.txt hold.sh"
        ))
        .good();
    let job = said.word();
    world.until(Side::Inside, "held.txt", "here");
    let join = format!("srun --jobid={job} --overlap -n1 bash -c \"{look}\"");
    // The same policy: it joins.
    let same = site.inside(&join).good();
    assert_eq!(words(&same.out()), ["open", "second"], "{same}");
    // The login node's has changed: what is hidden now is hidden from a step of a job from before, too.
    rule(&site.own.login(), &site.hiding(&["login", "open"]));
    let other = site.inside(&join);
    assert!(!words(&other.out()).contains(&"open".to_owned()), "{other}");
    site.usual();
    world.write("release.txt", "");
    world.settle(Side::Inside);
}

#[test]
fn a_node_whose_policy_cannot_be_read_runs_nothing() {
    let Some(site) = Site::new("broken") else {
        return;
    };
    let (one, two) = (site.node(0).to_owned(), site.node(1).to_owned());
    let launcher = site.own.cluster.launcher.to_str().unwrap();
    type Break = fn(&Path);
    let kinds: [(&str, &str, Break); 3] = [
        ("malformed", "enforced.toml:2", |file| {
            fs::write(file, "[files]\nhied = []\n").unwrap()
        }),
        ("a user's", "enforced.toml", |file| {
            fs::write(file, "").unwrap();
            std::os::unix::fs::chown(file, Some(65534), None).unwrap();
        }),
        ("a FIFO", "enforced.toml", |file| {
            let _ = fs::remove_file(file);
            nix::unistd::mkfifo(file, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
        }),
    ];
    for (kind, place, break_it) in kinds {
        break_it(&site.own.node(0).join("enforced.toml"));
        site.world
            .write("ran.sh", "#!/bin/bash\ntouch ran.$SLURMD_NODENAME\n");
        let script = format!(
            "sbatch --parsable -w {one} -o out.txt ran.sh; srun -w {one} ./ran.sh; echo $?
             srun -w {two} ./ran.sh; echo $?"
        );
        let said = site.inside(&script);
        let lines: Vec<String> = said.out().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 3, "{kind}: {said}");
        let (job, step, other) = (&lines[0], &lines[1], &lines[2]);
        assert!(step != "0" && other == "0", "{kind}: {said}");
        let state = || site.world.cluster.said("scontrol", ["show", "job", job]);
        until("the job's end", || state().contains("JobState=FAILED"));
        assert!(
            !site.world.project().join(format!("ran.{one}")).exists(),
            "{kind}"
        );
        assert!(
            site.world.project().join(format!("ran.{two}")).exists(),
            "{kind}"
        );
        // A step says it where it was started; a job in what Slurm said, which `log` shows.
        let full = format!("/etc/agent-sandbox/{place}");
        assert!(
            said.err().contains(&full) && said.err().contains("administrators"),
            "{kind}: {said}"
        );
        let log = || site.world.real(&[launcher, "log", job]).out();
        until("what Slurm said about the job", || log().contains(&full));
        let told = log();
        assert!(told.contains("administrators"), "{kind}: {told}");
        let _ = fs::remove_file(site.own.node(0).join("enforced.toml"));
        fs::remove_file(site.world.project().join(format!("ran.{two}"))).unwrap();
    }
}
