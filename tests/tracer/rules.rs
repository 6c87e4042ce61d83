//! The files of `profiles/site/slurm`, each by itself: what Slurm says to them is made up here, also what only other
//! versions of Slurm say.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::has;

/// An example, with what a site adapts.
#[track_caller]
fn adapted(name: &str, changes: &[(&str, &str)]) -> String {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let mut text = fs::read_to_string(root.join("profiles/site/slurm").join(name)).unwrap();
    for (from, to) in changes {
        assert_eq!(text.matches(from).count(), 1, "`{from}` in {name}");
        text = text.replace(from, to);
    }
    text
}

fn program(at: &Path, text: &str) {
    fs::write(at, text).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What slurmctld gives to its plug-in. `debug` is the default partition.
const CONTROLLER: &str = r#"
slurm = { SUCCESS = 0, ERROR = -1, reservations = { r = { partition = "debug" } } }
local said = ""
function slurm.log_user(text, ...) said = said .. " " .. string.format(text, ...) end
function slurm.log_info() end
function slurm.log_error() end
dofile(arg[1])
local partitions = { debug = { flag_default = 1 }, long = { flag_default = 0 } }
local function tell(name, code)
    print(name .. "|" .. (code == slurm.SUCCESS and "yes" or "no") .. "|" .. said)
    said = ""
end
function submit(name, job)
    job.user_id, job.default_account, job.environment = 1000, job.default_account or "other", job.environment or {}
    tell(name, slurm_job_submit(job, partitions, 1000))
end
function modify(name, job, uid)
    local record = { account = "other", partition = "long" }
    tell(name, slurm_job_modify(job, record, partitions, uid or 1000))
end
dofile(arg[2])
"#;

/// Asks the rule, changed so, about the calls; the answers are compared with `yes` and `no` in the names of the calls.
#[track_caller]
fn judge(changes: &[(&str, &str)], calls: &str) -> String {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let at = place.path().join(name);
        fs::write(&at, text).unwrap();
        at
    };
    let said = Command::new("/usr/bin/lua")
        .arg(file("controller.lua", CONTROLLER))
        .arg(file("rule.lua", &adapted("job_submit.lua", changes)))
        .arg(file("calls.lua", calls))
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    let text = String::from_utf8(said.stdout).unwrap();
    let asked = calls.lines().filter(|line| line.contains("(\"")).count();
    assert_eq!(text.lines().count(), asked, "{text}");
    for line in text.lines() {
        let mut parts = line.split('|');
        let (name, answer) = (parts.next().unwrap(), parts.next().unwrap());
        assert!(name.starts_with(answer), "{line}");
    }
    text
}

#[test]
fn a_list_without_names_is_the_default() {
    if !has("lua") {
        return;
    }
    let agents = [
        ("accounts = {},", "accounts = { mine = true },"),
        ("partitions = {},", "partitions = { debug = true },"),
    ];
    judge(
        &agents,
        r#"
submit("no: none", {})
submit("no: an empty one", { partition = "" })
submit("no: a comma", { partition = "," })
submit("no: commas", { partition = ",,," })
submit("yes: another", { partition = "long" })
submit("yes: another with commas", { partition = ",long," })
submit("no: among commas", { partition = ",debug," })
submit("no: the default account", { partition = "long", default_account = "mine" })
submit("no: an empty account", { partition = "long", account = "", default_account = "mine" })
submit("no: a comma as account", { partition = "long", account = ",", default_account = "mine" })
submit("no: in other letters", { partition = "long", account = "MINE" })
submit("yes: another account", { partition = "long", account = "other", default_account = "mine" })
modify("yes: nothing of it", {})
modify("yes: to another", { partition = "long" })
modify("no: to the default partition", { partition = "" })
modify("no: to it by a comma", { partition = "," })
modify("no: to what may be the default account", { account = "" })
modify("no: to it by a comma", { account = "," })
modify("yes: to another account", { account = "third" })
modify("yes: root", { partition = "", account = "" }, 0)
"#,
    );
    let reserved = [("partitions = {},", "partitions = { debug = true },")];
    judge(
        &[
            reserved[0],
            ("partition.flag_default == 1", "name == \"long\""),
        ],
        r#"
submit("yes: the default is another", { partition = "," })
submit("no: the one of a reservation", { partition = ",", reservation = "r" })
submit("no: among commas", { reservation = ",r," })
submit("no: an unknown one", { reservation = "x" })
modify("yes: without accounts for agents", { account = "" })
"#,
    );
    judge(
        &[("teaching = true", "long = true")],
        r#"
submit("no: a session's to the default", { account = "students", partition = ",", argv = { [0] = "/bin/agent-sandbox" } })
submit("no: an account of none", { account = ",", default_account = "students", partition = "debug", argv = { [0] = "/bin/agent-sandbox" } })
submit("yes: where it may", { account = "students", partition = "long", argv = { [0] = "/bin/agent-sandbox" } })
submit("yes: a user's", { account = "students", partition = "," })
"#,
    );
}

/// Options of plug-ins come in the environment of a job: what nobody here has installed.
#[test]
fn a_marked_script_gets_no_other_root_by_a_plug_in() {
    if !has("lua") {
        return;
    }
    let changes = [
        ("accounts = {},", "accounts = { mine = true },"),
        // What it would say of a script that is signed.
        (
            "    return verified(script, job_desc.user_id)",
            "    return MARK .. \" session=s node=n\"",
        ),
    ];
    let said = judge(
        &changes,
        r##"
local script = "#!/bin/agent-sandbox job\n# agent-sandbox capsule 1 4\nnone\n# agent-sandbox mark 1\n"
function with(name, variable) submit(name, { account = "mine", script = script, environment = { [variable] = "x" } }) end
with("yes: another", "HOME")
with("no: image", "_SLURM_SPANK_OPTION_pyxis_container_image")
with("no: name", "_SLURM_SPANK_OPTION_pyxis_container_name")
with("no: mounts", "_SLURM_SPANK_OPTION_pyxis_container_mounts")
with("no: in Slurm's other letters", "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image")
with("no: Shifter", "_SLURM_SPANK_OPTION_shifter_image")
"##,
    );
    assert!(said.contains("its environment has _SLURM_SPANK_OPTION_pyxis_container_image"));
}

/// `sh` is bash on many systems, and bash takes functions from the environment.
#[test]
fn a_task_prolog_takes_no_function_from_the_job() {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("task_prolog");
    let ran = place.path().join("ran");
    let text = adapted("task_prolog.sh", &[]);
    program(&script, &text);
    let first = text.lines().next().unwrap();
    let mut words = first.strip_prefix("#!").unwrap().split(' ');
    assert_eq!(words.next(), Some("/bin/sh"));
    let options: Vec<&str> = words.collect();
    // As the kernel starts it.
    let start = |shell: &str, options: &[&str]| {
        let body = format!(
            "() {{ command touch {}; printf '%s\\n' 'export LD_PRELOAD=/x.so'; }}",
            ran.display()
        );
        let mut command = Command::new(shell);
        command
            .arg0("/bin/sh")
            .args(options)
            .arg(&script)
            .env_clear();
        for name in ["echo", "logger", "read", "[", "exit"] {
            command.env(format!("BASH_FUNC_{name}%%"), &body);
        }
        command
            .env("BASH_ENV", place.path().join("x"))
            .env("ENV", place.path().join("x"));
        let said = command
            .env("AGENT_SANDBOX_STEP", "x")
            .env("SLURM_STEP_ID", "0")
            .env("SLURM_JOB_ID", "1")
            .env("SLURM_PROCID", "1")
            .output()
            .unwrap();
        (
            String::from_utf8(said.stdout).unwrap(),
            said.status.success(),
        )
    };
    let good = ("export SITE_AGENT_SANDBOX=step\n".to_owned(), true);
    for shell in ["/bin/bash", "/bin/sh", "/usr/bin/dash"] {
        if Path::new(shell).exists() {
            assert_eq!(start(shell, &options), good, "{shell} {options:?}");
            assert!(!ran.exists(), "{shell}");
        }
    }
    // It is what the option is for.
    let (said, _) = start("/bin/bash", &[]);
    assert!(ran.exists() && said.contains("LD_PRELOAD"), "{said}");
}

/// The Prolog with made-up commands of Slurm's. What it was asked, and what it did.
struct Prolog {
    place: tempfile::TempDir,
}

impl Prolog {
    fn new(accounts: &str, partitions: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let text = adapted(
            "prolog.sh",
            &[
                ("ACCOUNTS=''", &format!("ACCOUNTS='{accounts}'")),
                ("PARTITIONS=''", &format!("PARTITIONS='{partitions}'")),
                (
                    "PATH=/usr/bin:/bin",
                    &format!("PATH={}:/usr/bin:/bin", place.path().display()),
                ),
                (
                    "/usr/local/libexec/agent-sandbox/agent-sandbox-attest",
                    at("verify").to_str().unwrap(),
                ),
            ],
        );
        program(&at("prolog"), &text);
        program(
            &at("verify"),
            "#!/bin/sh\ncat > /dev/null\necho 'refused: no'\n",
        );
        program(
            &at("scancel"),
            &format!("#!/bin/sh\necho $1 >> {}\n", at("cancelled").display()),
        );
        for silent in ["squeue", "logger", "sleep"] {
            program(&at(silent), "#!/bin/sh\n");
        }
        Self { place }
    }

    /// Whether it cancels a job with these variables, where `scontrol show hostnames` says this.
    #[track_caller]
    fn cancels(&self, hostnames: &str, variables: &[(&str, &str)]) -> bool {
        let at = |name: &str| self.place.path().join(name);
        program(
            &at("scontrol"),
            &format!("#!/bin/sh\ncase $1 in show) {hostnames} ;; write) echo script ;; esac\n"),
        );
        let _ = fs::remove_file(at("cancelled"));
        let said = Command::new(at("prolog"))
            .env_clear()
            .env("SLURM_JOB_ID", "7")
            .env("SLURM_NODELIST", "n[1-2]")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        // One that fails would drain the node.
        assert!(said.status.success(), "{said:?}");
        at("cancelled").exists()
    }
}

#[test]
fn a_prolog_judges_the_jobs_of_agents_and_no_others() {
    const NODES: &str = "echo n1; echo n2";
    let partition = |name: &'static str| [("SLURM_JOB_PARTITION", name), ("SLURMD_NODENAME", "n1")];
    for prolog in [Prolog::new("", "agents"), Prolog::new("mine", "agents")] {
        // Jobs without an account.
        assert!(!prolog.cancels(NODES, &partition("debug")));
        assert!(prolog.cancels(NODES, &partition("agents")));
    }
    let prolog = Prolog::new("mine", "");
    assert!(!prolog.cancels(NODES, &[]));
    assert!(!prolog.cancels(NODES, &[("SLURM_JOB_ACCOUNT", "other")]));
    assert!(prolog.cancels(NODES, &[("SLURM_JOB_ACCOUNT", "MINE")]));
    // The first node asks; each does if it is unknown which that is.
    let second = [("SLURM_JOB_ACCOUNT", "mine"), ("SLURMD_NODENAME", "n2")];
    assert!(!prolog.cancels(NODES, &second));
    assert!(prolog.cancels("exit 1", &second));
}
