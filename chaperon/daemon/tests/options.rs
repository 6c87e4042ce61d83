//! The table against the installed commands, and the page that is written from it.
#![allow(clippy::disallowed_methods)] // effects: Slurm's commands and their configuration, the page

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use agent_sandbox_chaperon::slurm::explain;
use agent_sandbox_chaperon::slurm::options::{self, Release, Table};
use agent_sandbox_chaperon::slurm::parse::directive_words;
use agent_sandbox_wire::command::Command;

/// A directory with a configuration that suffices for `--help`, which none of the commands gives
/// without one.
struct Configuration(PathBuf);

impl Configuration {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("options-{test}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        fs::write(
            dir.join("slurm.conf"),
            "ClusterName=none\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=none Nodes=localhost\n",
        )
        .expect("a configuration");
        Self(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("slurm.conf")
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What sbatch finds in a script: the words of its directives, or its complaint about them. It needs
/// no cluster: it reads the variable after the script, and that one ends it.
fn sbatch_finds(script: &[u8], configuration: &Path) -> Option<Result<Vec<Vec<u8>>, String>> {
    let file = configuration.with_file_name("script");
    fs::write(&file, script).expect("a script");
    let output = Process::new("sbatch")
        .args(["-vvv", "--ignore-pbs"])
        .arg(&file)
        .env_clear()
        .env("PATH", std::env::var_os("PATH")?)
        .env("SLURM_CONF", configuration)
        .env("SBATCH_MEM_PER_NODE", "none")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let mut words = Vec::new();
    for line in output.stderr.split(|&byte| byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        if text.contains("Unmatched `") || text.contains("Unexpected `") {
            return Some(Err(text.into_owned()));
        }
        let found = line
            .strip_prefix(b"sbatch: debug2: Found in script, argument \"")
            .and_then(|rest| rest.strip_suffix(b"\""));
        words.extend(found.map(<[u8]>::to_vec));
    }
    Some(Ok(words))
}

/// The release of the installed sbatch.
fn installed(configuration: &Path) -> Option<Release> {
    let output = Process::new("sbatch")
        .arg("--version")
        .env("SLURM_CONF", configuration)
        .output()
        .ok()?;
    Some(Release::printed(&output.stdout).expect("a release"))
}

/// Numbers that are the same in each run and look like chance (Lehmer's generator).
struct Dice(u64);

impl Dice {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        self.0 = self.0 * 48_271 % 2_147_483_647;
        from[usize::try_from(self.0).expect("64 bits") % from.len()]
    }
}

/// How many made-up scripts sbatch reads; it takes about 5 ms for each.
const SCRIPTS: usize = 400;

#[test]
fn directives_are_found_where_sbatch_finds_them() {
    let configuration = Configuration::new("directives");
    let mut dice = Dice(1);
    let mut complaints = 0;
    let release = installed(&configuration.file());
    for _ in 0..SCRIPTS {
        let mut script = String::from("#!/bin/sh\n");
        for _ in 0..4 {
            script += dice.pick(&[
                "#SBATCH",
                "#SBATCH ",
                "#SBATCH\t",
                "#SBATCH",
                "#SBATCH ",
                "#SLURM ",
                " #SBATCH ",
                "##SBATCH ",
                "#sbatch ",
                "#PBS ",
                "# ",
                "",
                "  ",
                "date ",
                "#SBATCHX ",
            ]);
            for _ in 0..6 {
                script += dice.pick(&[
                    "-N2",
                    "--comment",
                    "=a",
                    "=",
                    "\"",
                    "'",
                    "\\",
                    "#",
                    " ",
                    " ",
                    "  ",
                    "\t",
                    "\x0b",
                    "--mem=1G",
                    "hetjob",
                    "HETJOB ",
                    ":",
                    " : ",
                    "x",
                    "\"a b\"",
                    "'a # b'",
                    "\\\"",
                    "\\ ",
                    "\\#",
                    "\"\"",
                    "-J",
                    "ä",
                    "--",
                    "\\\\",
                    "packjob",
                ]);
            }
            script += "\n";
        }
        let Some(expected) = sbatch_finds(script.as_bytes(), &configuration.file()) else {
            println!("not checked: directives against sbatch: not installed");
            return;
        };
        match (directive_words(script.as_bytes(), release), expected) {
            (Ok(words), Ok(expected)) => {
                let words = words.into_iter().map(|(word, _)| word).collect::<Vec<_>>();
                assert_eq!(words, expected, "{script}");
            }
            // sbatch goes on with the next component of a heterogeneous job.
            (Err(refusal), _) if refusal.by_rule => {}
            (Err(_), Err(_)) => complaints += 1,
            (ours, theirs) => panic!("{script}\nhere: {ours:?}\nsbatch: {theirs:?}"),
        }
    }
    assert!(complaints > 0, "no script was wrong");
}

/// What a command prints about itself.
fn help(command: Command, configuration: &Path) -> Option<String> {
    let output = Process::new(command.name())
        .arg("--help")
        .env("SLURM_CONF", configuration)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The configuration of this machine, or of a cluster for tests: sacct tells nothing about itself
/// where it does not reach an accounting database.
fn of_the_machine() -> Option<PathBuf> {
    std::env::var_os("SLURM_CONF")
        .map(PathBuf::from)
        .into_iter()
        .chain([PathBuf::from("/etc/slurm/slurm.conf")])
        .find(|file| file.exists())
}

/// The option names at the beginnings of lines: `-a, --all`, `-u,--uid`, `-h or --help:`, `--me`.
fn names_in(help: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in help.lines() {
        let mut words = line
            .split([' ', '\t', ','])
            .filter(|word| !word.is_empty() && *word != "or")
            .peekable();
        while let Some(word) = words.next_if(|word| word.starts_with('-')) {
            let name = word
                .split(['=', '[', ':', '<', '{'])
                .next()
                .unwrap_or_default();
            let long = name.strip_prefix("--").is_some_and(|long| !long.is_empty());
            let short = name.len() == 2 && name.as_bytes()[1].is_ascii_alphabetic();
            if long || short {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// The names among these that the table does not have, or has more than once.
fn missing(table: &Table, names: &BTreeSet<String>) -> Vec<String> {
    names
        .iter()
        .filter(|name| match name.strip_prefix("--") {
            // Some commands print an abbreviation.
            Some(long) => table.meant_by(long).len() != 1,
            None => name
                .chars()
                .nth(1)
                .is_none_or(|short| table.short(short).is_none()),
        })
        .cloned()
        .collect()
}

#[test]
fn the_table_has_every_option_that_the_installed_commands_print() {
    let configuration = Configuration::new("help");
    let mut checked = 0;
    for command in Command::ALL {
        let Some(table) = options::table(command) else {
            continue;
        };
        let Some(text) = help(command, &configuration.file()) else {
            println!("not checked: {command}'s options against --help: not installed");
            continue;
        };
        let mut names = names_in(&text);
        if command == Command::Sacct && names.is_empty() {
            let text = of_the_machine().and_then(|file| help(command, &file));
            names = names_in(&text.unwrap_or_default());
            if names.is_empty() {
                println!("not checked: sacct's options against --help: no accounting database");
                continue;
            }
        }
        assert!(names.len() > 4, "{command} --help told no options:\n{text}");
        let missing = missing(table, &names);
        assert!(
            missing.is_empty(),
            "{command} has options that the table lacks: {missing:?}"
        );
        checked += names.len();
    }
    println!("{checked} names checked");
}

#[test]
fn names_are_found_in_help() {
    let found = names_in(
        "  -A, --account=name   charge\n      --bbf=<file>  a --word in the text\n -u,--uid   x\n     \
         -h or --help: y\n  -B  --extra-node-info=S[:C]\n     -a, --allusers:\n-c\n  - nothing\n  -5 degrees\n",
    );
    let expected = [
        "--account",
        "--allusers",
        "--bbf",
        "--extra-node-info",
        "--help",
        "--uid",
        "-A",
        "-B",
        "-a",
        "-c",
        "-h",
        "-u",
    ];
    assert_eq!(
        found.iter().map(String::as_str).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_name_that_the_table_lacks_is_found() {
    let table = options::table(Command::Squeue).unwrap();
    let names = ["--jobs", "--job", "--no-such-option", "-Y"]
        .map(str::to_owned)
        .into();
    assert_eq!(missing(table, &names), ["--no-such-option", "-Y"]);
}

#[test]
fn the_page_is_what_the_table_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/slurm.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&page, explain::reference()).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&page).unwrap_or_default(),
        explain::reference(),
        "docs/reference/slurm.md is not what the table says: UPDATE=1 cargo test -p \
         agent-sandbox-chaperon --test options"
    );
}
