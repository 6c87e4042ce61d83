//! What holds for any input.

use proptest::prelude::*;

use super::*;
use crate::slurm::options::Verdict;

fn any_table() -> impl Strategy<Value = &'static Table> {
    let tables = Command::ALL
        .into_iter()
        .filter_map(options::table)
        .collect::<Vec<_>>();
    proptest::sample::select(tables)
}

/// Words that come close to command lines: names of the table, whole and cut, values, borders.
fn word_of(table: &'static Table) -> impl Strategy<Value = String> {
    let values = || {
        proptest::sample::select(vec![
            "",
            "1",
            "2-4",
            "a",
            "-5",
            "--uid=0",
            "a b",
            "UNLIMITED",
            "yes",
            "append",
            "node01",
            "1_2",
            "%i",
        ])
    };
    prop_oneof![
        (
            proptest::sample::select(table.options().collect::<Vec<_>>()),
            values(),
            any::<bool>()
        )
            .prop_map(|(option, value, with)| {
                if with {
                    format!("{}={value}", option.shown())
                } else {
                    option.shown()
                }
            }),
        (
            proptest::sample::select(table.options().collect::<Vec<_>>()),
            values()
        )
            .prop_map(|(option, value)| match option.short {
                Some(short) => format!("-{short}{value}"),
                None => value.to_owned(),
            }),
        values().prop_map(str::to_owned),
        "-{0,2}[a-zA-Z=:-]{0,8}",
        "\\PC{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_words_are_read_or_refused(
        table in any_table(),
        words in proptest::collection::vec(proptest::collection::vec(1..=255_u8, 0..20), 0..8),
    ) {
        use std::os::unix::ffi::OsStringExt as _;
        let words = words.into_iter().map(OsString::from_vec).collect::<Vec<_>>();
        let _ = arguments(table, &words);
    }

    #[test]
    fn any_script_is_read_or_refused(
        script in proptest::collection::vec(
            prop_oneof![
                any::<Vec<u8>>(),
                "#(SBATCH|PBS|BSUB)[ \t\"'\\\\#=:a-zA-Z-]{0,30}\n".prop_map(String::into_bytes),
            ],
            0..8,
        )
    ) {
        let table = options::table(Command::Sbatch).unwrap();
        let _ = directives(table, &script.concat(), false);
    }

    #[test]
    fn what_is_written_is_read_as_the_same_and_holds_what_passes_alone(
        (table, words) in any_table().prop_flat_map(|table| {
            (Just(table), proptest::collection::vec(word_of(table), 0..6))
        })
    ) {
        let words = words.iter().map(OsString::from).collect::<Vec<_>>();
        if let Ok(parsed) = arguments(table, &words) {
            let written = canonical(&parsed.given);
            let again = arguments(table, &written).unwrap();
            prop_assert!(again.operands.is_empty());
            prop_assert_eq!(again.given.len(), written.len());
            for given in &again.given {
                prop_assert_eq!(given.option.verdict, Verdict::Pass);
                prop_assert!(parsed.all(given.option.long).any(|one| one.value == given.value));
                if !given.option.many {
                    prop_assert_eq!(&parsed.last(given.option.long).unwrap().value, &given.value);
                }
            }
            let passing = parsed.given.iter().filter(|one| one.option.verdict == Verdict::Pass);
            for given in passing {
                prop_assert!(again.has(given.option.long));
            }
            prop_assert_eq!(canonical(&again.given), written);
        }
    }

    #[test]
    fn any_variable_is_read_or_refused(table in any_table(), value in "\\PC{0,12}") {
        for option in table.options() {
            for name in table.variables(option) {
                let _ = variables(table, &[(name.into(), value.clone().into())]);
            }
        }
    }
}
