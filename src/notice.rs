//! `agent-sandbox notify`: a sign to the person in front of the terminal, from inside the jail or outside.
//! The bell, and the two sequences by which terminals are asked for a desktop notification: OSC 9 (iTerm2,
//! Windows Terminal, kitty) and OSC 777 (rxvt-unicode, foot, WezTerm, Ghostty). A terminal skips the one
//! that it does not know. Nothing but what any command could write to that terminal is written, and what
//! is said goes into it without a character that the terminal would obey.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: writes to the terminal of the session, and looks for it"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agent_sandbox_wire::text::visible;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::major;

use crate::env_vars;

/// Characters of a title; a notification shows about so many.
const LONGEST_TITLE: usize = 60;
/// Characters of a text.
const LONGEST_TEXT: usize = 240;
/// How far up the processes are looked at. Agents and their hooks are a few deep.
const DEEPEST: usize = 64;
/// The major numbers of terminals: consoles and serial lines, and pseudo-terminals (devices.txt of the
/// kernel's documentation).
const TERMINALS: [u64; 2] = [4, 5];
/// See [`TERMINALS`].
const PSEUDO_TERMINALS: std::ops::RangeInclusive<u64> = 136..=143;

/// Why nobody was told.
#[derive(Debug)]
pub enum Untold {
    /// No process from this one up to the first has a terminal.
    NoTerminal,
    /// The terminal did not take it.
    Refused(io::Error),
}

/// Tells the person in front of the terminal.
///
/// # Errors
/// There is no terminal, or it takes nothing.
pub fn tell(title: &str, text: &str) -> Result<(), Untold> {
    let mut terminal = terminal().ok_or(Untold::NoTerminal)?;
    // A process in the background that writes is stopped where the user wants that (`stty tostop`), but
    // one that holds the signal back is not (termios(3)).
    let held = SigSet::from(Signal::SIGTTOU);
    let before = held.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    let message = sequences(title, text, in_tmux());
    let written = terminal.write_all(&message).map_err(Untold::Refused);
    if let Ok(before) = before {
        // It was in force a moment ago.
        let _ = before.thread_set_mask();
    }
    written
}

/// Whether a tmux stands between here and the terminal: it shows the bell, and hands other sequences on
/// only in a wrapping (tmux(1), allow-passthrough).
fn in_tmux() -> bool {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let term = named(env_vars::TERM);
    named(env_vars::TMUX).is_some()
        || term.is_some_and(|term| term.as_encoded_bytes().starts_with(b"tmux"))
}

/// The bell and both sequences.
fn sequences(title: &str, text: &str, in_tmux: bool) -> Vec<u8> {
    // Behind `notify` a semicolon ends the title.
    let title = plain(title, LONGEST_TITLE).replace(';', ",");
    let text = plain(text, LONGEST_TEXT);
    let mut whole = match title.as_str() {
        "" => text.clone(),
        title => format!("{title}: {text}"),
    };
    // Behind OSC 9 a number is a command of another kind (ConEmu and Windows Terminal: 4 is a progress).
    if whole.starts_with(|c: char| c.is_ascii_digit()) {
        whole.insert(0, ' ');
    }
    let title = match title.as_str() {
        "" => "agent-sandbox",
        title => title,
    };
    let mut all = vec![BELL];
    for body in [format!("9;{whole}"), format!("777;notify;{title};{text}")] {
        let sequence = [&[ESCAPE, b']'], body.as_bytes(), &[BELL]].concat();
        match in_tmux {
            false => all.extend(sequence),
            true => {
                all.extend([ESCAPE, b'P']);
                all.extend(b"tmux;");
                for byte in sequence {
                    if byte == ESCAPE {
                        all.push(ESCAPE);
                    }
                    all.push(byte);
                }
                all.extend([ESCAPE, b'\\']);
            }
        }
    }
    all
}

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// One line of what can be seen, and no more than `most` characters of it.
fn plain(text: &str, most: usize) -> String {
    let spaced: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let seen = visible(&spaced);
    match seen.char_indices().nth(most) {
        None => seen.into_owned(),
        Some((end, _)) => format!("{}…", &seen[..end]),
    }
}

/// The terminal: this process's own, one of its streams, or one that a process above it has open. What
/// runs an agent's hooks may have taken the terminal from them. All of them are what the kernel lets this
/// process open (`ptrace(2)`, "Ptrace access mode checking").
fn terminal() -> Option<File> {
    let own = opened(Path::new("/dev/tty"));
    own.or_else(|| {
        let mut process = "self".to_owned();
        for _ in 0..DEEPEST {
            let directory = PathBuf::from(format!("/proc/{process}"));
            let mut streams = [2, 1, 0].into_iter();
            let found = streams.find_map(|number| stream(&directory.join(format!("fd/{number}"))));
            if found.is_some() {
                return found;
            }
            process = parent(&directory)?;
        }
        None
    })
}

/// A stream of a process's, if it is a terminal. Nothing else is opened: to open a FIFO or a device could
/// do something.
fn stream(path: &Path) -> Option<File> {
    let meta = std::fs::metadata(path).ok()?;
    let number = major(meta.rdev());
    let terminal = TERMINALS.contains(&number) || PSEUDO_TERMINALS.contains(&number);
    if !meta.file_type().is_char_device() || !terminal {
        return None;
    }
    // Where Landlock makes the jail nothing is opened for writing by way of /proc; its rule is about the
    // terminal's own path. With a private /dev/pts another one may stand there.
    let by_name = || opened(&std::fs::read_link(path).ok()?);
    let same = |file: &File| {
        let found = file.metadata().ok();
        found.is_some_and(|found| (found.dev(), found.ino()) == (meta.dev(), meta.ino()))
    };
    opened(path).or_else(by_name).filter(same)
}

/// Opens a terminal without waiting for it, and without making it this process's own.
fn opened(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
    options.open(path).ok().filter(IsTerminal::is_terminal)
}

/// The process above, by its number (`proc_pid_stat(5)`: the fourth field; the second, in parentheses,
/// may hold anything).
fn parent(directory: &Path) -> Option<String> {
    let text = std::fs::read(directory.join("stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (_, rest) = text.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?;
    (parent != "0").then(|| parent.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(title: &str, text: &str) -> String {
        String::from_utf8_lossy(&sequences(title, text, false)).into_owned()
    }

    #[test]
    fn a_bell_and_both_sequences() {
        assert_eq!(
            said("Claude", "needs you"),
            "\x07\x1b]9;Claude: needs you\x07\x1b]777;notify;Claude;needs you\x07"
        );
        assert_eq!(
            said("", "done"),
            "\x07\x1b]9;done\x07\x1b]777;notify;agent-sandbox;done\x07"
        );
    }

    #[test]
    fn what_is_said_commands_no_terminal() {
        let all = said("a;b\x07", "x\x1b]52;c;eA==\x07\n\u{9b}2J\u{202e}y");
        assert_eq!(all.matches('\x07').count(), 3, "{all:?}");
        assert_eq!(all.matches('\x1b').count(), 2, "{all:?}");
        assert!(!all.contains(['\n', '\u{9b}', '\u{202e}']), "{all:?}");
        assert!(all.contains("777;notify;a,b\\u{7};x"), "{all:?}");
        assert!(said("", "4;1;50").contains("\x1b]9; 4;1;50\x07"));
        let long = said("", &"ä".repeat(5000));
        assert_eq!(long.matches('ä').count(), 2 * LONGEST_TEXT);
        assert_eq!(long.matches('…').count(), 2);
    }

    #[test]
    fn tmux_hands_the_sequences_on() {
        let all = sequences("", "done", true);
        let expected = "\x07\x1bPtmux;\x1b\x1b]9;done\x07\x1b\\\
                        \x1bPtmux;\x1b\x1b]777;notify;agent-sandbox;done\x07\x1b\\";
        assert_eq!(String::from_utf8_lossy(&all), expected);
    }
}
