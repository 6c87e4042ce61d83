//! What the installed bubblewrap can do, by its options and never by its version: distributions
//! carry options back.

use std::path::Path;

use memchr::memmem;

/// Options that came after 0.4.0, which RHEL 8 has: `--perms` (0.5), `--size` (0.6), `--disable-userns`
/// (0.8). Where one is missing, the launcher does in the jail what all of them do
/// (`launch::finish`).
pub const LATER_OPTIONS: [&str; 3] = ["--perms", "--size", "--disable-userns"];

/// Which of [`LATER_OPTIONS`] a bubblewrap lacks. They are looked for in the program itself, which holds
/// the text of `--help`: starting it for that takes a millisecond, more than everything else that a
/// launch asks of the host. A program that cannot be read, or a script around the real one, seems to lack
/// them all, and is then used as the oldest is, which every release understands.
pub fn lacks(program: &Path) -> Vec<&'static str> {
    let content = std::fs::read(program).unwrap_or_default();
    lacks_in(&content)
}

/// The same of a program's content, or of what `--help` says. Every one of them has an argument or a
/// description behind it.
fn lacks_in(content: &[u8]) -> Vec<&'static str> {
    let has = |option: &str| memmem::find(content, format!("{option} ").as_bytes()).is_some();
    LATER_OPTIONS
        .into_iter()
        .filter(|option| !has(option))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_program_holds_what_help_says() {
        let Ok(program) = crate::host::find_bwrap() else {
            println!("not checked: options of bubblewrap: it is not installed");
            return;
        };
        let help = Command::new(&program).arg("--help").output().unwrap();
        let help = [help.stdout, help.stderr].concat();
        assert_eq!(lacks(&program), lacks_in(&help));
    }

    #[test]
    fn an_option_is_a_whole_word() {
        assert_eq!(lacks_in(b""), LATER_OPTIONS);
        assert_eq!(lacks(Path::new("/nonexistent/bwrap")), LATER_OPTIONS);
        let text = b"    --perms OCTAL  Set\n --sizes X --disable-userns    Disable\n";
        assert_eq!(lacks_in(text), ["--size"]);
    }
}
