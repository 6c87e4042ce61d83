//! The user's terminal, which the jail shares.

use std::ffi::c_int;

use agent_sandbox::plan::build::syscalls::Switches;

use crate::harness::{HIGH_BIT, Outcome, STRICT, after, call, declare, errno, pointer, unsigned};

/// A terminal that is the child's own, as the user's is to the jail: both ends.
fn own_terminal() -> (c_int, c_int) {
    let (mut leader, mut terminal) = (-1, -1);
    // SAFETY: openpty writes two descriptors and takes null for what it need not tell or set.
    let opened = unsafe {
        libc::openpty(
            &mut leader,
            &mut terminal,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(opened, 0, "openpty");
    nix::unistd::setsid().expect("a session of the child's own");
    let taken = call(
        libc::SYS_ioctl,
        &[unsigned(terminal), u64::from(libc::TIOCSCTTY as u32), 0],
    );
    assert_eq!(taken, 0, "the terminal becomes the session's");
    (leader, terminal)
}

/// The ioctl `command`, with `high` added, on the child's own terminal.
fn terminal_ioctl<T>(
    switches: impl Into<Option<Switches>>,
    command: libc::Ioctl,
    high: u64,
    argument: &T,
) -> Outcome {
    let command = u64::from(command as u32) | high;
    after(switches.into(), own_terminal, |(_, terminal)| {
        call(
            libc::SYS_ioctl,
            &[unsigned(terminal), command, pointer(argument)],
        )
    })
}

#[test]
fn nothing_is_typed_into_the_terminal() {
    for high in [0, HIGH_BIT, 1 << 63, 0xffff_ffff_0000_0000] {
        let result = terminal_ioctl(STRICT, libc::TIOCSTI, high, &b'x');
        assert_eq!(result, errno(libc::EPERM), "high bits {high:#x}");
    }
    // Without the filter the kernel types, high bits or not, unless dev.tty.legacy_tiocsti is 0.
    let plain = terminal_ioctl(None, libc::TIOCSTI, 0, &b'x');
    assert_eq!(
        terminal_ioctl(None, libc::TIOCSTI, HIGH_BIT, &b'x'),
        plain,
        "high bits matter here"
    );
    if plain != Outcome::Returned(0) {
        assert_eq!(plain, errno(libc::EIO));
        declare("this kernel refuses TIOCSTI by itself");
    }
}

#[test]
fn the_terminals_line_discipline_stays() {
    const N_TTY: c_int = 0;
    assert_eq!(
        terminal_ioctl(None, libc::TIOCSETD, 0, &N_TTY),
        Outcome::Returned(0)
    );
    for high in [0, HIGH_BIT] {
        let result = terminal_ioctl(STRICT, libc::TIOCSETD, high, &N_TTY);
        assert_eq!(result, errno(libc::EPERM), "high bits {high:#x}");
    }
}

#[test]
fn console_ioctls_are_refused() {
    for command in [libc::TIOCLINUX, libc::TIOCCONS] {
        for high in [0, HIGH_BIT] {
            let result = terminal_ioctl(STRICT, command, high, &0_u8);
            assert_eq!(
                result,
                errno(libc::EPERM),
                "{command:#x} with high bits {high:#x}"
            );
        }
    }
    assert_ne!(
        terminal_ioctl(None, libc::TIOCLINUX, 0, &0_u8),
        errno(libc::EPERM)
    );
}

#[test]
fn a_terminal_works_as_one() {
    let size = libc::winsize {
        ws_row: 50,
        ws_col: 132,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    for command in [libc::TIOCSWINSZ, libc::TIOCGWINSZ] {
        assert_eq!(
            terminal_ioctl(STRICT, command, 0, &size),
            Outcome::Returned(0),
            "{command:#x}"
        );
    }
    // SAFETY: all zeroes is a valid termios, for the kernel to write over.
    let settings: libc::termios = unsafe { std::mem::zeroed() };
    assert_eq!(
        terminal_ioctl(STRICT, libc::TCGETS, 0, &settings),
        Outcome::Returned(0)
    );
}
