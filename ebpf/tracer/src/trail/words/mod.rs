//! Numbers of the kernel in words: errors, ways to open, signals, flags.

pub(super) mod address;
pub(super) mod operation;

use nix::errno::Errno;
use nix::sys::signal::Signal;

/// Flags and their names. What has no name is given as a number.
pub(super) type Flags = [(u64, &'static str)];

/// The set ones, `A|B|0x100`; nothing for none.
pub(super) fn flags(value: u64, names: &Flags) -> String {
    let mut rest = value;
    let mut words: Vec<&str> = Vec::new();
    for (flag, name) in names {
        if *flag != 0 && rest & flag == *flag {
            words.push(name);
            rest &= !flag;
        }
    }
    let unnamed = format!("0x{rest:x}");
    if rest != 0 {
        words.push(&unnamed);
    }
    words.join("|")
}

/// The name at that place of a list, or what it is and its number.
pub(super) fn named(list: &[&str], number: u64, noun: &str) -> String {
    let place = usize::try_from(number).ok().and_then(|at| list.get(at));
    place.map_or_else(|| format!("{noun} {number}"), |name| (*name).to_string())
}

/// The name of an error's number (`errno(3)`), and of those that stay in the kernel as a rule
/// (`include/linux/errno.h`) but that a probe sees.
pub(super) fn error(number: i32) -> String {
    match number {
        512 => return "ERESTARTSYS".to_string(),
        513 => return "ERESTARTNOINTR".to_string(),
        514 => return "ERESTARTNOHAND".to_string(),
        515 => return "ENOIOCTLCMD".to_string(),
        516 => return "ERESTART_RESTARTBLOCK".to_string(),
        517 => return "EPROBE_DEFER".to_string(),
        518 => return "EOPENSTALE".to_string(),
        524 => return "ENOTSUPP".to_string(),
        _ => {}
    }
    match Errno::from_raw(number) {
        Errno::UnknownErrno => format!("error {number}"),
        known => format!("{known:?}"),
    }
}

/// The name of a signal (`signal(7)`).
pub(super) fn signal(number: u64) -> String {
    let known = i32::try_from(number).map(Signal::try_from);
    match known {
        Ok(Ok(signal)) => signal.as_str().to_string(),
        _ => format!("signal {number}"),
    }
}

/// An open for execution: the kernel's own flag among `O_*` (`__FMODE_EXEC`, `include/linux/fs.h`).
const OPEN_EXECUTE: u32 = 0x20;

/// Opened how (`open(2)`).
pub(super) fn access(open_flags: u32) -> Vec<String> {
    let has = |flag: libc::c_int| open_flags & flag.cast_unsigned() == flag.cast_unsigned();
    let mut words: Vec<&str> = Vec::new();
    if has(libc::O_PATH) {
        words.push("path");
    } else if open_flags & OPEN_EXECUTE != 0 {
        words.push("execute");
    } else {
        match open_flags & libc::O_ACCMODE.cast_unsigned() {
            0 => words.push("read"),
            1 => words.push("write"),
            2 => words.extend(["read", "write"]),
            // 3 is for ioctl(2) alone: neither.
            _ => {}
        }
    }
    let temporary = has(libc::O_TMPFILE);
    let others = [
        (has(libc::O_CREAT), "create"),
        (has(libc::O_EXCL), "exclusive"),
        (has(libc::O_TRUNC), "truncate"),
        (has(libc::O_APPEND), "append"),
        (temporary, "temporary"),
        (has(libc::O_DIRECTORY) && !temporary, "directory"),
    ];
    words.extend(others.iter().filter(|(set, _)| *set).map(|(_, word)| *word));
    words.into_iter().map(str::to_string).collect()
}

/// A device as the kernel has it (`include/linux/kdev_t.h`), `major:minor`; none for 0.
pub(super) fn device(device: u32) -> Option<String> {
    (device != 0).then(|| format!("{}:{}", device >> 20, device & 0xf_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(flags: libc::c_int) -> String {
        access(flags.cast_unsigned()).join(" ")
    }

    #[test]
    fn errors_have_their_names() {
        assert_eq!(error(13), "EACCES");
        assert_eq!(error(2), "ENOENT");
        assert_eq!(error(512), "ERESTARTSYS");
        assert_eq!(error(4000), "error 4000");
        assert_eq!(error(-1), "error -1");
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!(signal(9), "SIGKILL");
        assert_eq!(signal(0), "signal 0");
        assert_eq!(signal(40), "signal 40");
        assert_eq!(signal(u64::MAX), format!("signal {}", u64::MAX));
    }

    #[test]
    fn an_open_is_said_in_words() {
        assert_eq!(opened(libc::O_RDONLY), "read");
        assert_eq!(
            opened(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL),
            "read write create exclusive"
        );
        assert_eq!(
            opened(libc::O_WRONLY | libc::O_TRUNC | libc::O_APPEND),
            "write truncate append"
        );
        assert_eq!(opened(libc::O_DIRECTORY), "read directory");
        assert_eq!(
            opened(libc::O_TMPFILE | libc::O_RDWR),
            "read write temporary"
        );
        assert_eq!(opened(libc::O_PATH | libc::O_DIRECTORY), "path directory");
        assert_eq!(opened(0x20), "execute");
        assert_eq!(opened(3), "");
    }

    #[test]
    fn flags_without_a_name_are_numbers() {
        let names: &Flags = &[(1, "ONE"), (6, "SIX"), (2, "TWO")];
        assert_eq!(flags(0, names), "");
        assert_eq!(flags(7, names), "ONE|SIX");
        assert_eq!(flags(3 | 0x100, names), "ONE|TWO|0x100");
    }

    #[test]
    fn a_device_is_two_numbers() {
        assert_eq!(device(8 << 20 | 1).as_deref(), Some("8:1"));
        assert_eq!(device(0), None);
        assert_eq!(device(u32::MAX).as_deref(), Some("4095:1048575"));
    }
}
