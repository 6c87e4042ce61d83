//! What holds for every row of the table.

use std::collections::BTreeSet;

use agent_sandbox_wire::command::Command;

use super::{Arity, Kind, Opt, Table, UNKNOWN, Verdict, refused, table};
use crate::refusal::has_both;

fn tables() -> impl Iterator<Item = &'static Table> {
    Command::ALL.into_iter().filter_map(table)
}

fn rows() -> impl Iterator<Item = (Command, &'static Opt)> {
    tables().flat_map(|table| table.options().map(|option| (table.command, option)))
}

#[test]
fn a_command_has_a_table_or_is_refused() {
    for command in Command::ALL {
        assert_ne!(
            table(command).is_some(),
            refused(command).is_some(),
            "{command}"
        );
        if let Some(table) = table(command) {
            assert_eq!(table.command, command);
        }
    }
}

/// An option of a command that has another table would be nobody's, and its variables would be ignored.
#[test]
fn a_row_is_of_commands_that_have_its_table() {
    for table in tables() {
        let sharing = tables().filter(|other| std::ptr::eq(other.rows, table.rows));
        let all = sharing.fold(0, |all, other| all | other.who);
        let within = |who: u8| who != 0 && who & !all == 0;
        for option in table.rows {
            assert!(within(option.who), "{} --{}", table.command, option.long);
            for (read_by, name) in option.variables {
                assert!(within(*read_by), "{} {name}", table.command);
            }
        }
    }
}

#[test]
fn names_are_given_once() {
    for table in tables() {
        let mut longs = BTreeSet::new();
        let mut shorts = BTreeSet::new();
        let mut variables = BTreeSet::new();
        for option in table.options() {
            for long in option.names() {
                assert!(longs.insert(long), "{} --{long}", table.command);
            }
            if let Some(short) = option.short {
                assert!(shorts.insert(short), "{} -{short}", table.command);
            }
            for name in table.variables(option) {
                let is_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
                assert!(name.bytes().all(is_name), "{} {name}", table.command);
                assert!(variables.insert(name), "{} {name}", table.command);
            }
        }
        let others = table.dropped.iter().map(|(name, _)| name);
        for name in others.chain(table.kept.iter().map(|(name, _)| name)) {
            assert!(variables.insert(name), "{} {name}", table.command);
        }
    }
}

#[test]
fn names_are_names() {
    for (command, option) in rows() {
        for long in option.names() {
            assert!(
                long.len() > 1
                    && long
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
                    && !long.starts_with('-'),
                "{command} --{long}"
            );
        }
        if option.is_short_only() {
            assert_eq!(
                option.short,
                option.long.chars().next(),
                "{command} -{}",
                option.long
            );
        }
        assert!(option.short.is_none_or(|short| short.is_ascii_alphabetic()));
    }
}

#[test]
fn what_is_not_passed_has_a_reason() {
    for (command, option) in rows() {
        if let Verdict::Ours(reason) | Verdict::Refused(reason) = option.verdict {
            assert!(
                reason.len() > 10 && !reason.ends_with('.') && !reason.contains("  "),
                "{command} --{}: {reason}",
                option.long
            );
        }
    }
    for table in tables() {
        for (name, reason) in table.dropped {
            assert!(reason.len() > 10, "{} {name}", table.command);
        }
    }
    for reason in Command::ALL.into_iter().filter_map(refused) {
        assert!(!reason.contains("  "), "{reason}");
    }
}

/// Whoever is refused is told what to do instead: most that ask are agents, which else try the next way
/// around.
#[test]
fn what_is_refused_names_the_way_out() {
    for (command, option) in rows() {
        if let Verdict::Refused(reason) = option.verdict {
            assert!(has_both(reason), "{command} --{}: {reason}", option.long);
        }
    }
    for reason in Command::ALL
        .into_iter()
        .filter_map(refused)
        .chain([UNKNOWN])
    {
        assert!(has_both(reason), "{reason}");
    }
}

#[test]
fn a_flag_is_what_takes_no_value() {
    for (command, option) in rows() {
        assert_eq!(
            option.kind == Kind::Flag,
            option.arity == Arity::None,
            "{command} --{}",
            option.long
        );
    }
}

#[test]
fn paths_and_ids_are_never_passed() {
    for (command, option) in rows() {
        if matches!(option.kind, Kind::Path | Kind::Raw | Kind::Jobs) {
            assert_ne!(option.verdict, Verdict::Pass, "{command} --{}", option.long);
        }
    }
    for table in tables() {
        for (name, kind) in table.kept {
            assert!(
                !matches!(kind, Kind::Path | Kind::Raw | Kind::Jobs | Kind::Flag),
                "{} {name}",
                table.command
            );
        }
    }
}

/// Slurm takes these for the name of a file when there is a slash in them.
#[test]
fn lists_of_nodes_hold_no_slash() {
    for (command, option) in rows() {
        if ["nodelist", "exclude", "nodes"].contains(&option.long)
            && option.verdict == Verdict::Pass
        {
            assert!(
                matches!(option.kind, Kind::Nodes | Kind::Name),
                "{command} --{}",
                option.long
            );
        }
    }
}

/// What runs as somebody else, outside the jail, or on another cluster.
#[test]
fn the_entrances_are_closed() {
    let closed = [
        (
            Command::Sbatch,
            &[
                "uid",
                "gid",
                "get-user-env",
                "export-file",
                "container",
                "bbf",
                "nodefile",
                "clusters",
                "reboot",
            ][..],
        ),
        (
            Command::Salloc,
            &[
                "uid",
                "gid",
                "get-user-env",
                "container",
                "x11",
                "nodefile",
                "clusters",
            ],
        ),
        (
            Command::Srun,
            &[
                "uid",
                "gid",
                "prolog",
                "epilog",
                "task-prolog",
                "task-epilog",
                "bcast",
                "send-libs",
                "container",
                "x11",
                "no-allocate",
                "nodefile",
                "het-group",
                "clusters",
            ],
        ),
        (Command::Squeue, &["clusters", "yaml"]),
        (Command::Sinfo, &["yaml"]),
        (
            Command::Sacct,
            &["clusters", "file", "env-vars", "completion", "yaml"],
        ),
        (Command::Scontrol, &["clusters", "uid"]),
        (Command::Sdiag, &["reset"]),
    ];
    for (command, longs) in closed {
        for long in longs {
            let option = table(command).and_then(|table| table.named(long)).unwrap();
            assert!(
                matches!(option.verdict, Verdict::Refused(_)),
                "{command} --{long}"
            );
        }
    }
    for long in [
        "output",
        "error",
        "input",
        "wrap",
        "export",
        "chdir",
        "ignore-pbs",
    ] {
        let option = table(Command::Sbatch)
            .and_then(|table| table.named(long))
            .unwrap();
        assert!(
            matches!(option.verdict, Verdict::Ours(_)),
            "sbatch --{long}"
        );
    }
    for long in [
        "output",
        "error",
        "input",
        "export",
        "chdir",
        "multi-prog",
        "jobid",
    ] {
        let option = table(Command::Srun)
            .and_then(|table| table.named(long))
            .unwrap();
        assert!(matches!(option.verdict, Verdict::Ours(_)), "srun --{long}");
    }
}

/// Where the installed version lacks an option, getopt could take its name for the beginning of
/// another: that one must be no more than what passes, too.
#[test]
fn what_passes_abbreviates_nothing_that_does_not() {
    for table in tables() {
        for option in table.options().filter(|one| one.verdict == Verdict::Pass) {
            for other in table.options().filter(|one| one.verdict != Verdict::Pass) {
                assert!(
                    !other.names().any(|name| name.starts_with(option.long)),
                    "{} --{} could mean --{}",
                    table.command,
                    option.long,
                    other.long
                );
            }
        }
    }
}
