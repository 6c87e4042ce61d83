//! `agent-sandbox watch` on a terminal.

use std::process::Command;

use agent_sandbox_events::ask::{Ask, What};
use agent_sandbox_trail::watch::screen::Screen;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fake::Fake;
use crate::output::{ask, program};
use crate::records::{self, Writer};
use crate::terminal::Terminal;

fn watch(fake: &Fake) -> Command {
    let state = fake.place.path().join("state");
    let ask = Ask {
        state: Some(state.to_str().unwrap().into()),
        ..ask(fake.socket(), What::Watch { which: None })
    };
    let mut command = program(&ask);
    command.env("TERM", "xterm-256color");
    command
}

fn signal(terminal: &Terminal, signal: Signal) {
    kill(
        Pid::from_raw(i32::try_from(terminal.pid()).unwrap()),
        signal,
    )
    .unwrap();
}

#[test]
fn it_shows_what_happens_and_gives_the_terminal_back() {
    let fake = Fake::with_session();
    let mut terminal = Terminal::start(&watch(&fake));
    terminal.expect("session k3v9m2qp on 3 nodes");
    terminal.expect("DENIED 45");
    terminal.expect("!key");
    terminal.expect("5 LOST");
    fake.followed();
    let mut writer = Writer::session("k3v9m2qp", "login1", 7);
    writer.skip(15);
    let what = records::exec(77, "/usr/bin/live-now", &["live-now"], records::allowed());
    fake.happen(records::line(&writer.write(what)));
    terminal.expect("/usr/bin/live-now");
    terminal.keys("3");
    terminal.expect_gone("live-now");
    terminal.keys("/ssh\r");
    terminal.expect_gone("syslog");
    terminal.expect("id_rsa");
    terminal.keys("q");
    assert_eq!(terminal.end(), 0);
    assert!(
        terminal.is_given_back(),
        "{:?}",
        String::from_utf8_lossy(&terminal.raw)
    );
}

#[test]
fn a_signal_gives_the_terminal_back() {
    for (number, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGINT, 130),
    ] {
        let fake = Fake::with_session();
        let mut terminal = Terminal::start(&watch(&fake));
        terminal.expect("k3v9m2qp");
        signal(&terminal, number);
        assert_eq!(terminal.end(), code);
        assert!(terminal.is_given_back(), "{number}");
    }
}

/// Not a test by itself: what [`a_panic_gives_the_terminal_back`] starts on a terminal.
#[test]
fn panics_with_a_terminal() {
    if std::env::var_os("PANICS_WITH_A_TERMINAL").is_some() {
        let _screen = Screen::enter().unwrap();
        // As in a release, where nothing is unwound.
        panic!("as expected");
    }
}

#[test]
fn a_panic_gives_the_terminal_back() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "watching::panics_with_a_terminal", "--nocapture"])
        .env("PANICS_WITH_A_TERMINAL", "1")
        .env("TERM", "xterm-256color");
    let mut terminal = Terminal::start(&command);
    terminal.expect_raw("as expected");
    assert_eq!(terminal.end(), 101);
    assert!(terminal.is_given_back());
    // The message stands on the screen that stays.
    let raw = String::from_utf8_lossy(&terminal.raw).into_owned();
    assert!(raw.find("\x1b[?1049l") < raw.find("as expected"), "{raw:?}");
}

#[test]
fn the_window_may_change_its_size() {
    let fake = Fake::with_session();
    let mut terminal = Terminal::start(&watch(&fake));
    terminal.expect("DENIED 45");
    terminal.resize(5, 20);
    terminal.expect("too small");
    terminal.resize(40, 120);
    terminal.expect("q quit");
    terminal.expect("DENIED 45");
    let screen = terminal.screen();
    assert_eq!(screen.lines().count(), 40, "{screen}");
    terminal.keys("\x03");
    assert_eq!(terminal.end(), 0);
    assert!(terminal.is_given_back());
}

#[test]
fn no_name_speaks_to_the_terminal() {
    let mut writer = Writer::session("k3v9m2qp", "login1", 7);
    let name = "/tmp/\x1b]0;owned\x07\x1b[2J\u{9b}5n\r\n\u{202e}end";
    let verdict = records::denied("permissions", "EACCES");
    let line = records::line(&writer.write(records::open(9, "\x1b[6n", name, &["read"], verdict)));
    let fake = Fake::new(vec![line]);
    let mut terminal = Terminal::start(&watch(&fake));
    for pane in 1..=8 {
        terminal.keys(&pane.to_string());
        terminal.expect("k3v9m2qp");
        if (1..=3).contains(&pane) {
            terminal.expect("owned");
        }
    }
    terminal.keys("q");
    assert_eq!(terminal.end(), 0);
    for raw in ["\x1b]0;", "\x07", "\u{9b}", "\x1b[6n", "\u{202e}", "\r\n"] {
        assert!(!terminal.wrote(raw), "{raw:?}");
    }
}

#[test]
fn without_colour_none_is_written() {
    let fake = Fake::with_session();
    let mut terminal = Terminal::start(&watch(&fake));
    terminal.expect("DENIED 45");
    terminal.expect_raw("\x1b[38;5;");
    terminal.keys("q");
    terminal.end();
    let mut plain = watch(&fake);
    plain.env("NO_COLOR", "1");
    let mut terminal = Terminal::start(&plain);
    terminal.expect("DENIED 45");
    terminal.keys("q");
    assert_eq!(terminal.end(), 0);
    assert!(!terminal.wrote("\x1b[38;5;"));
}

#[test]
fn a_summary_is_copied_to_the_clipboard_and_into_a_file() {
    let fake = Fake::with_session();
    let mut terminal = Terminal::start(&watch(&fake));
    terminal.expect("DENIED 45");
    terminal.keys("c");
    terminal.expect_raw("\x1b]52;c;");
    terminal.expect("/state/summaries/");
    let directory = fake.place.path().join("state/summaries");
    let file = std::fs::read_dir(directory)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let kept = std::fs::read_to_string(file.path()).unwrap();
    assert!(
        kept.starts_with("# Trail: session k3v9m2qp on 3 nodes, user 1000\n"),
        "{kept}"
    );
    terminal.keys("q");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn a_tracer_that_comes_back_is_asked_again() {
    let mut fake = Fake::with_session();
    let mut terminal = Terminal::start(&watch(&fake));
    terminal.expect("DENIED 45");
    fake.followed();
    fake.stop();
    terminal.expect("the tracer is away");
    fake.start();
    terminal.expect("| live");
    // Nothing is counted twice.
    terminal.expect("DENIED 45");
    terminal.keys("q");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn it_can_be_suspended_and_goes_on() {
    let fake = Fake::with_session();
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc", "--noediting", "-i"]);
    let watch = watch(&fake);
    for (name, value) in watch.get_envs() {
        command.env(name, value.unwrap());
    }
    command.env("PS1", "(shell) ");
    command.env("ASK", watch.get_args().next().unwrap());
    command.env("TRAIL", watch.get_program());
    let mut terminal = Terminal::start(&command);
    terminal.expect("(shell)");
    terminal.keys("\"$TRAIL\" \"$ASK\"\r");
    terminal.expect("DENIED 45");
    terminal.keys("\x1a");
    terminal.expect_raw("Stopped");
    terminal.expect_last("(shell) ");
    assert!(terminal.is_given_back());
    terminal.raw.clear();
    terminal.keys("fg\r");
    terminal.expect("DENIED 45");
    terminal.keys("q");
    terminal.expect_last("(shell) ");
    terminal.keys("exit $?\r");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_is_refused() {
    let fake = Fake::with_session();
    let mut command = watch(&fake);
    command.env("TERM", "dumb");
    let mut terminal = Terminal::start(&command);
    assert_eq!(terminal.end(), 125);
    assert!(terminal.wrote("TERM") && !terminal.wrote("\x1b"));
}
