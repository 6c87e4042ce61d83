//! tmux inside, with the profile that is built in. Another tmux, outside, is the terminal that it is shown in:
//! it tells what arrives there.

use std::fs;

use crate::backend::launcher_words;
use crate::world::{World, wait_for};

/// The terminal: a tmux with a server of its own.
struct Screen<'a> {
    world: &'a World,
}

impl<'a> Screen<'a> {
    /// Starts a command in it.
    fn start(world: &'a World, words: &[String]) -> Self {
        let screen = Self { world };
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        // A terminal that knows true colours, keys with modifiers, and a clipboard.
        let settings = "set -g set-clipboard on\nset -s extended-keys on\nset -as terminal-features ',*:RGB:extkeys'\n";
        world.put(&world.base("outer.conf"), settings);
        let size = ["new-session", "-d", "-x", "120", "-y", "30"];
        let command = quoted.join(" ");
        screen.tmux(&[&size[..], &[&command]].concat());
        screen
    }

    /// One command of the outer tmux's; what it prints.
    fn tmux(&self, words: &[&str]) -> String {
        let socket = crate::operations::text(&self.world.base("outer"));
        let settings = crate::operations::text(&self.world.base("outer.conf"));
        let server = ["tmux", "-S", &socket, "-f", &settings];
        let run = self.world.outside().env("TERM", "xterm-256color");
        let run = run.env("COLORTERM", "truecolor").env("SHELL", "/bin/bash");
        run.run(&[&server, words].concat()).stdout
    }

    /// Types a line.
    fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.tmux(&["send-keys", "Enter"]);
    }

    /// Waits until a command of the outer tmux's prints one of these.
    #[track_caller]
    fn expect(&self, words: &[&str], texts: &[&str]) {
        let one = |said: String| texts.iter().any(|text| said.contains(text));
        let found = wait_for(&texts.join(" or "), || one(self.tmux(words)).then_some(()));
        if let Err(why) = found {
            panic!(
                "{why}; on the screen:\n{}",
                self.tmux(&["capture-pane", "-p"])
            );
        }
    }

    /// Waits until something is on the screen.
    #[track_caller]
    fn shows(&self, text: &str) {
        self.expect(SHOWN, &[text]);
    }
}

/// What is on the screen, with its colours.
const SHOWN: &[&str] = &["capture-pane", "-e", "-p"];

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn tmux_inside_hands_everything_to_the_terminal() {
    let world = World::new();
    world.put(
        &world.home(".tmux.conf"),
        "set -g status-right MY-OWN-STATUS\n",
    );
    let profiles = ["-q", "-p", "tmux", "-p", "claude", "-p", "codex", "--"];
    let mut words = launcher_words(&profiles);
    words.extend(["tmux", "new-session", "-s", "work"].map(String::from));
    let screen = Screen::start(&world, &words);
    screen.shows("[jail work]");
    screen.shows("MY-OWN-STATUS");
    // A colour of its own.
    screen.line(r"printf '\033[38;2;1;2;3m%s\033[0m\n' COLOUR");
    screen.shows("38;2;1;2;3mCOLOUR");
    // The clipboard (OSC 52).
    screen.line(r"printf '\033]52;c;aGVsbG8=\a'");
    screen.expect(&["show-buffer"], &["hello"]);
    // A sequence that tmux does not know, handed through.
    screen.line(r"printf '\033Ptmux;\033\033]2;passed\a\033\\'");
    screen.expect(&["display-message", "-p", "#{pane_title}"], &["passed"]);
    // A key with modifiers, for a program that asks for them.
    screen.line(r"printf '\033[>4;1mREADY\n'; cat -v");
    screen.shows("\nREADY");
    screen.tmux(&["send-keys", "C-Tab"]);
    // As xterm writes it, or as CSI u: tmux has had either.
    screen.expect(SHOWN, &["^[[27;5;9~", "^[[9;5u"]);
    screen.tmux(&["send-keys", "C-c"]);
    // A second pane is in the same jail: its shell finds what the first one finds, and each agent's state.
    let tell = "echo $AGENT_SANDBOX_SESSION $PATH $(ls -d ~/.claude ~/.codex | wc -l)";
    let script =
        format!("tmux split-window; tmux send-keys '{tell} > second' Enter; {tell} > first");
    screen.line(&script);
    let said = |name| {
        fs::read_to_string(world.project(name))
            .ok()
            .filter(|text| text.ends_with('\n'))
    };
    let first = wait_for("the first pane", || said("first")).unwrap();
    let second = wait_for("the second pane", || said("second")).unwrap();
    assert_eq!(first, second);
    assert!(first.ends_with(" 2\n"), "{first}");
}

/// Nothing can attach to it again, so it asks before it ends everything.
#[test]
fn tmux_inside_asks_before_a_detach_ends_the_session() {
    let world = World::new();
    // A shell around it says that it ended: the outer tmux notices the end of its own command late, or not.
    let ended = world.project("ended");
    let script = format!("\"$@\"; echo $? > {}", ended.display());
    let mut words = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    words.extend(launcher_words(&["-q"]));
    words.push("tmux".to_owned());
    let screen = Screen::start(&world, &words);
    screen.shows("[jail 0]");
    screen.tmux(&["send-keys", "C-b", "d"]);
    screen.shows("detaching ends this jail");
    screen.tmux(&["send-keys", "n"]);
    screen.line("echo it is $((40+2)) > still");
    let said = || fs::read_to_string(world.project("still")).ok();
    let still = wait_for("the pane", || said().filter(|text| text.ends_with('\n')));
    assert_eq!(still.unwrap(), "it is 42\n");
    screen.tmux(&["send-keys", "C-b", "d"]);
    screen.shows("detaching ends this jail");
    screen.tmux(&["send-keys", "y"]);
    let said = || fs::read_to_string(&ended).ok();
    wait_for("the end", || said().filter(|text| text.ends_with('\n'))).unwrap();
}
