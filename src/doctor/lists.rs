//! Names of partitions and nodes: strict where they come in, short where they are shown. Pure.

use std::collections::BTreeMap;

/// The longest name of a partition or a node; host names have 64 (`gethostname(2)`).
const LONGEST_NAME: usize = 128;

/// The longest list of nodes that is read.
const LONGEST_LIST: usize = 4096;

/// Whether a text can be the name of a partition or of a node: letters, digits, `.`, `_` and `-`, and
/// no option of a command's.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty()
        && text.len() <= LONGEST_NAME
        && !text.starts_with('-')
        && text.bytes().all(plain)
}

/// Whether a text can be a list of nodes, or a name: names with numbers in brackets, between commas.
pub fn is_list(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-[],".contains(&byte);
    !text.is_empty()
        && text.len() <= LONGEST_LIST
        && !text.starts_with(['-', '[', ','])
        && text.bytes().all(plain)
}

/// Names of nodes as Slurm writes them: `n[01-03,7],login` (`scontrol show hostlist`).
pub fn compressed<'a>(nodes: impl Iterator<Item = &'a str>) -> String {
    // What stands before the number, and how many digits that has.
    let mut numbered: BTreeMap<(&str, usize), Vec<u64>> = BTreeMap::new();
    let mut others = Vec::new();
    for node in nodes {
        let digits = node.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (prefix, number) = node.split_at(node.len() - digits);
        match number.parse() {
            Ok(number) => numbered.entry((prefix, digits)).or_default().push(number),
            Err(_) => others.push(node.to_owned()),
        }
    }
    let mut all: Vec<String> = Vec::new();
    for ((prefix, width), mut numbers) in numbered {
        numbers.sort_unstable();
        numbers.dedup();
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match spans.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => spans.push((number, number)),
            }
        }
        let texts: Vec<String> = spans
            .iter()
            .map(|(from, to)| match from == to {
                true => format!("{from:0width$}"),
                false => format!("{from:0width$}-{to:0width$}"),
            })
            .collect();
        all.push(match spans.as_slice() {
            [(from, to)] if from == to => format!("{prefix}{}", texts.concat()),
            _ => format!("{prefix}[{}]", texts.join(",")),
        });
    }
    others.sort_unstable();
    others.dedup();
    all.extend(others);
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_strict() {
        for good in ["debug", "gpu-a100", "n01", "a.b_c", "7"] {
            assert!(is_name(good), "{good}");
        }
        let long = "n".repeat(LONGEST_NAME + 1);
        for bad in [
            "", "-p", "--uid=0", "a b", "a,b", "n[1-2]", "a\n", "a/b", "ä", "$x", &long,
        ] {
            assert!(!is_name(bad), "{bad}");
        }
        for good in ["n[01-04,7],x", "debug", "r[1-2]n[1-3]"] {
            assert!(is_list(good), "{good}");
        }
        for bad in ["", "-n", "[1]", ",n", "n 1", "n$", "n;", "n{1}", "n*", "/n"] {
            assert!(!is_list(bad), "{bad}");
        }
    }

    #[test]
    fn lists_are_short() {
        let short = |nodes: &[&str]| compressed(nodes.iter().copied());
        assert_eq!(short(&[]), "");
        assert_eq!(short(&["n2"]), "n2");
        assert_eq!(short(&["n3", "n1", "n2", "n2", "n7"]), "n[1-3,7]");
        assert_eq!(
            short(&["n09", "n10", "n011", "login"]),
            "n[09-10],n011,login"
        );
        assert_eq!(short(&["r1n1", "r1n2", "r2n1"]), "r1n[1-2],r2n1");
        let huge = format!("n{}", "9".repeat(30));
        assert_eq!(short(&[&huge]), huge);
    }
}
