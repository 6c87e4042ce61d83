//! What the live view and the report show of records: as text to be looked at.

use agent_sandbox_events::record::Verdict;
use agent_sandbox_trail::model::{Model, TableLimits};
use agent_sandbox_trail::report::{Summary, markdown, text, write};
use agent_sandbox_trail::watch::app::{Action, App, Pane};
use agent_sandbox_trail::watch::view::draw;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use crate::records::{self, NOON, Writer};

/// The view of a session.
fn app() -> App {
    let mut app = App::new(true);
    for record in records::session("k3v9m2qp") {
        app.take(&record);
    }
    app
}

/// Draws it on so many columns and rows.
fn drawn(app: &mut App, columns: u16, rows: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| draw(frame, app, NOON + 16.0))
        .unwrap();
    terminal
}

fn text_of(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let columns = usize::from(buffer.area.width);
    let rows: Vec<String> = buffer
        .content
        .chunks(columns)
        .map(|row| {
            let row: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
            row.trim_end().to_owned()
        })
        .collect();
    rows.join("\n")
}

fn shown(app: &mut App) -> String {
    text_of(&drawn(app, 80, 24))
}

fn press(app: &mut App, keys: &str) -> Action {
    let mut action = Action::None;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '^' => KeyCode::Up,
            'v' => KeyCode::Down,
            c => KeyCode::Char(c),
        };
        action = app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    action
}

#[test]
fn the_overview_fits_a_small_terminal() {
    insta::assert_snapshot!("overview", shown(&mut app()));
}

#[test]
fn each_pane_shows_what_its_name_says() {
    let mut all = String::new();
    let mut app = app();
    for (at, pane) in Pane::ALL.into_iter().enumerate().skip(1) {
        press(&mut app, &(at + 1).to_string());
        assert_eq!(app.pane, pane);
        all.push_str(&shown(&mut app));
        all.push_str("\n~~~~\n");
    }
    insta::assert_snapshot!("panes", all);
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    let mut app = app();
    for pane in Pane::ALL {
        app.pane = pane;
        for (columns, rows) in [
            (1, 1),
            (10, 3),
            (24, 8),
            (25, 9),
            (80, 24),
            (200, 60),
            (300, 5),
        ] {
            for help in [false, true] {
                app.help = help;
                drawn(&mut app, columns, rows);
            }
        }
    }
}

#[test]
fn the_filter_hides_what_does_not_fit_and_escape_brings_it_back() {
    let mut app = app();
    press(&mut app, "3/SSH");
    assert!(shown(&mut app).ends_with("/SSH_"));
    press(&mut app, "\n");
    let screen = shown(&mut app);
    assert!(
        screen.contains("id_rsa") && !screen.contains("syslog"),
        "{screen}"
    );
    press(&mut app, "/q\n");
    assert!(shown(&mut app).contains("none that fit the filter"));
    press(&mut app, "\x1b");
    assert!(shown(&mut app).contains("syslog"));
}

#[test]
fn a_pause_shows_what_was_and_counts_on() {
    let mut app = app();
    let mut writer = Writer::session("k3v9m2qp", "login1", 7);
    writer.skip(15);
    press(&mut app, "p");
    let before = shown(&mut app);
    for _ in 0..3 {
        let what = records::open(9, "sh", "/later", &["read"], records::allowed());
        app.take(&writer.write(what));
    }
    let paused = shown(&mut app);
    assert!(paused.contains("PAUSED, 3 more") && !paused.contains("/later"));
    assert_eq!(
        paused.lines().skip(1).collect::<Vec<_>>(),
        before.lines().skip(1).collect::<Vec<_>>()
    );
    press(&mut app, "p");
    assert!(shown(&mut app).contains("/later"));
    assert_eq!(app.live.model.counts.allowed, 23);
}

#[test]
fn who_scrolls_back_goes_on_seeing_the_same() {
    let mut app = App::new(true);
    let mut writer = Writer::session("k3v9m2qp", "login1", 7);
    for number in 0..100 {
        let path = format!("/file{number:03}");
        let what = records::open(9, "sh", &path, &["read"], records::allowed());
        app.take(&writer.write(what));
    }
    press(&mut app, "2");
    assert!(shown(&mut app).contains("/file099"));
    press(&mut app, "^^^^^");
    let scrolled = shown(&mut app);
    assert!(scrolled.contains("/file094") && !scrolled.contains("/file095"));
    let what = records::open(9, "sh", "/newer", &["read"], records::allowed());
    app.take(&writer.write(what));
    let later = shown(&mut app);
    assert!(later.contains("/file094") && !later.contains("/newer"));
    // Further than there is anything one does not scroll.
    press(&mut app, "g");
    assert!(shown(&mut app).contains("/file000"));
    press(&mut app, "^^^G");
    assert!(shown(&mut app).contains("/newer"));
}

#[test]
fn keys_ask_for_what_the_view_cannot_do() {
    let mut app = app();
    assert_eq!(press(&mut app, "c"), Action::Copy);
    assert_eq!(press(&mut app, "q"), Action::Quit);
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    assert_eq!(app.key(control('c')), Action::Quit);
    assert_eq!(app.key(control('z')), Action::Suspend);
    // What is typed into the filter is no command.
    assert_eq!(press(&mut app, "/q"), Action::None);
    assert_eq!(app.key(control('c')), Action::Quit);
    press(&mut app, "\x1b?");
    assert!(shown(&mut app).contains("any key closes this"));
    assert_eq!(press(&mut app, "q"), Action::None);
    assert!(!shown(&mut app).contains("any key closes this"));
}

#[test]
fn without_colour_everything_is_said_in_words() {
    let with = drawn(&mut app(), 80, 24);
    let mut plain = app();
    plain.colour = false;
    let without = drawn(&mut plain, 80, 24);
    assert_eq!(text_of(&with), text_of(&without));
    let colours = |terminal: &Terminal<TestBackend>| {
        let cells = terminal.backend().buffer().content.iter();
        cells
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    assert!(colours(&with) > 0);
    assert_eq!(colours(&without), 0);
}

#[test]
fn losses_and_what_was_removed_are_shown() {
    let mut app = App::new(true);
    let mut writer = Writer::session("k3v9m2qp", "login1", 7);
    app.take(&writer.write(records::header(&[])));
    assert!(shown(&mut app).contains("nothing lost"));
    app.take(&writer.write(records::lost(12)));
    writer.skip(30);
    app.take(&writer.write(records::end()));
    let screen = shown(&mut app);
    assert!(
        screen.contains("12 LOST") && screen.contains("30 removed before"),
        "{screen}"
    );
}

#[test]
fn memory_is_bounded_whatever_is_recorded() {
    let mut app = App::new(true);
    let mut writer = Writer::session("k3v9m2qp", "login1", 7);
    let long = "x".repeat(4000);
    for number in 0..4_000 {
        let path = format!("/{number}/{long}");
        let verdict = records::denied("permissions", "EACCES");
        let what = records::open(number, "sh", &path, &["read"], verdict);
        app.take(&writer.write(what));
    }
    let what = records::open(
        9,
        "sh",
        "/h/.ssh/id_rsa",
        &["read"],
        records::denied("permissions", "EACCES"),
    );
    app.take(&writer.write(what));
    for number in 0..4_000 {
        let path = format!("/again/{number}");
        let verdict = records::denied("permissions", "EACCES");
        let what = records::open(number, "sh", &path, &["read"], verdict);
        app.take(&writer.write(what));
    }
    let bounds = TableLimits::WATCH.table;
    let model = &app.live.model;
    assert!(model.files.len() <= bounds.rows && model.refused.len() <= bounds.rows);
    let bytes: usize = model.files.iter().map(|(path, _)| path.len()).sum();
    assert!(bytes <= bounds.bytes, "{bytes}");
    let events: usize = app.live.events.iter().map(|event| event.text.len()).sum();
    assert!(events < 6 << 20, "{events}");
    // The flood takes nothing's place that matters, and is counted.
    press(&mut app, "3");
    assert!(shown(&mut app).contains("!key"));
    assert_eq!(app.live.model.counts.denied, 8_001);
    assert!(Summary::new(&app.live.model, 0).unseen.unnamed > 0);
}

fn summary() -> Summary {
    let mut model = Model::new(TableLimits::REPORT);
    for record in records::session("k3v9m2qp") {
        model.take(&record);
    }
    Summary::new(&model, 2)
}

#[test]
fn a_report_is_text() {
    insta::assert_snapshot!("report", text::text(&summary()));
}

#[test]
fn a_report_is_markdown() {
    insta::assert_snapshot!("markdown", markdown::markdown(&summary()));
}

#[test]
fn what_did_not_run_is_neither_allowed_nor_denied() {
    let mut writer = Writer::session("k3v9m2qp", "n1", 3);
    let not_run = || Verdict {
        verdict: "not_run".into(),
        by: Some("seccomp".into()),
        count: 2,
        weak: vec!["begun_before".into()],
        ..Verdict::default()
    };
    let mut model = Model::new(TableLimits::REPORT);
    let mut app = app();
    for what in [
        records::header(&[]),
        records::operation(9, "x", "setuid", "0, was 1000", not_run()),
        records::connect(9, "x", "140.82.112.3:443", not_run()),
        records::open(9, "x", "/etc/shadow", &["read"], not_run()),
    ] {
        let record = writer.write(what);
        model.take(&record);
        app.take(&record);
    }
    let summary = Summary::new(&model, 0);
    assert_eq!(summary.verdicts.not_run, 6);
    assert_eq!(
        (
            summary.verdicts.allowed,
            summary.verdicts.denied,
            summary.verdicts.failed
        ),
        (0, 0, 0)
    );
    assert!(summary.read.is_empty() && summary.denied.is_empty());
    let data: serde_json::Value = serde_json::from_str(&write::json(&summary)).unwrap();
    assert_eq!(data["verdicts"]["not_run"], 6);
    assert_eq!(data["operations"][0]["not_run"], 2);
    for report in [text::text(&summary), markdown::markdown(&summary)] {
        for said in [
            "6 not run",
            "6 calls did not run",
            "2 not run",
            "did not run as the process called them: a filter (with Landlock that of the jail",
        ] {
            assert!(report.contains(said), "{said}\n{report}");
        }
        assert!(
            report.contains("6 events seen less surely: the call began before"),
            "{report}"
        );
    }
    let live = shown(&mut app);
    assert!(live.contains("NOT RUN 6"), "{live}");
    press(&mut app, "2");
    let live = text_of(&drawn(&mut app, 140, 24));
    assert!(live.contains("not run, answered by seccomp"), "{live}");
}

#[test]
fn a_report_of_nothing_says_so() {
    let summary = Summary::new(&Model::new(TableLimits::REPORT), 0);
    assert!(text::text(&summary).starts_with("no records\n"));
    assert!(markdown::markdown(&summary).starts_with("# Trail: no records\n"));
}
