//! Options of one release and not of another.

use super::*;

/// Words and variables, read for a release.
fn read_for(
    command: Command,
    release: (u16, u8),
    words: &[&str],
    variables: &[(&str, &str)],
) -> Result<Parsed, Refusal> {
    let release = Some(Release::new(release.0, release.1));
    parse(command, release, &os(words), &environment(variables))
}

#[test]
fn an_abbreviation_means_what_this_slurm_has() {
    // --segment came with 24.05, --send-libs is srun's alone.
    let old = read_for(Command::Sbatch, (22, 5), &["--se=2"], &[]).unwrap_err();
    assert_eq!(old.to_string(), "unrecognized option '--se'");
    let new = read_for(Command::Sbatch, (24, 5), &["--se=2"], &[]).unwrap();
    assert_eq!(new.value("segment"), Some(OsStr::new("2")));
    // Until 23.11 there was --power beside --prefer.
    let new = read_for(Command::Sbatch, (24, 11), &["--pref=a"], &[]).unwrap();
    assert!(new.has("prefer"));
}

#[test]
fn a_variable_that_came_later_than_its_option_is_not_read() {
    let read = |release| {
        let variables = &[("SBATCH_SEGMENT_SIZE", "2")];
        read_for(Command::Sbatch, release, &[], variables).unwrap()
    };
    assert!(!read((24, 11)).has("segment"));
    assert!(read((25, 5)).has("segment"));
}

#[test]
fn what_this_slurm_lacks_it_refuses_itself() {
    let parsed = read_for(Command::Sbatch, (22, 5), &["--segment=2"], &[]).unwrap();
    assert!(parsed.has("segment"));
    // What would never reach it is refused in its words.
    let refused = read_for(Command::Srun, (25, 11), &["--async"], &[]).unwrap_err();
    assert_eq!(refused.to_string(), "unrecognized option '--async'");
    let refused = read_for(Command::Srun, (26, 5), &["--async"], &[]).unwrap_err();
    assert!(refused.by_rule, "{refused}");
}

#[test]
fn a_name_of_a_newer_slurm_means_what_it_begins_in_this() {
    let shape = read_for(Command::Sbatch, (22, 5), &["--extra=2:8:1"], &[]).unwrap();
    assert!(shape.has("extra-node-info") && !shape.has("extra"));
    let text = read_for(Command::Sbatch, (23, 2), &["--extra=2:8:1"], &[]).unwrap();
    assert!(text.has("extra"));
    // Where the release is not known it can be either, and is neither.
    let either = read(Command::Sbatch, &["--extra=2:8:1"]).unwrap_err();
    let shown = either.to_string();
    assert!(shown.contains("ambiguous"), "{shown}");
    // No other name is one thing in one release and another in the next.
    for option in crate::slurm::options::table(Command::Sbatch)
        .unwrap()
        .options()
    {
        let longer = |name: &str| {
            let all = crate::slurm::options::table(Command::Sbatch)
                .unwrap()
                .options();
            let mut names = all
                .filter(|other| other.since.is_none())
                .flat_map(Opt::names);
            names.find(|other| other.starts_with(name) && *other != name)
        };
        if option.since.is_some() && option.verdict == crate::slurm::options::Verdict::Pass {
            for name in option.names().filter(|name| *name != "extra") {
                assert_eq!(longer(name), None, "{name}");
            }
        }
    }
}

#[test]
fn a_variable_counts_where_its_option_is() {
    let variables = [("SBATCH_SEGMENT_SIZE", "4"), ("SBATCH_CONTAINER_TYPE", "x")];
    let old = read_for(Command::Sbatch, (22, 5), &[], &variables).unwrap();
    assert!(old.given.is_empty());
    let new = read_for(Command::Sbatch, (25, 5), &[], &variables).unwrap();
    assert!(new.has("segment") && !new.has("container-type"));
    assert!(read_for(Command::Sbatch, (26, 5), &[], &variables).is_err());
}

#[test]
fn an_option_of_a_newer_slurm_is_refused_with_the_release() {
    let refused = read_for(Command::Sbatch, (27, 11), &["--shape=torus"], &[]).unwrap_err();
    assert_eq!(refused.to_string(), "unrecognized option '--shape'");
    let hints = refused.hints.join("\n");
    assert!(
        hints.contains("Slurm 27.11") && hints.contains("26.05"),
        "{hints}"
    );
    // What is known passes there, too.
    assert!(read_for(Command::Sbatch, (27, 11), &["--segment=2"], &[]).is_ok());
}
