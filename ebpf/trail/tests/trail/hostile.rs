//! Names that were chosen to do something to whoever looks at them.

use agent_sandbox_events::record::{
    Actor, Exec, Header, Open, Operation, Peer, Record, Trail, Verdict, What,
};
use agent_sandbox_trail::line::Line;
use agent_sandbox_trail::report::{Summary, markdown, text, write};
use agent_sandbox_trail::watch::app::{App, Pane};
use agent_sandbox_trail::watch::view::draw;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// Whatever, and what terminals, Markdown and readers stumble over.
fn hostile() -> impl Strategy<Value = String> {
    let nasty = prop::sample::select(vec![
        "\x1b]0;owned\x07",
        "\x1b[2J\x1b[H",
        "\x1b]52;c;b3duZWQ=\x07",
        "\u{9b}31m",
        "\r\nerror: all is well",
        "\u{202e}gnp.exe",
        "\u{200b}\u{feff}",
        "`|` |`",
        "@everyone #1 https://evil.example www.evil.example",
        "[x](javascript:x) ![x](//evil.example/x.png) $x$",
        "a\\|b",
        "<script>",
        "\t\x08\x7f",
        "e\u{301}\u{301}\u{301}",
        "漢字",
        "\u{e0041}",
        "/../../",
        "",
    ]);
    prop_oneof![
        any::<String>(),
        nasty.clone().prop_map(str::to_owned),
        (any::<String>(), nasty, any::<String>()).prop_map(|(a, b, c)| format!("{a}{b}{c}")),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let texts = prop::collection::vec(hostile(), 8);
    let verdict =
        prop::sample::select(vec!["allowed", "denied", "failed", "would_deny", "\x1b[1m"]);
    (texts, verdict, 0..6u32, any::<u64>(), any::<f64>()).prop_map(
        |(texts, verdict, kind, number, time)| {
            let text = |at: usize| texts[at].clone();
            let actor = Actor {
                pid: 17,
                comm: text(0),
                ..Actor::default()
            };
            let verdict = Verdict {
                verdict: verdict.into(),
                by: Some(text(1)),
                error: Some(text(2)),
                count: number,
                weak: vec![text(3)],
            };
            let what = match kind {
                0 => What::Exec(Exec {
                    actor,
                    path: text(4),
                    arguments: vec![text(5), text(6)],
                    verdict,
                    set_id: true,
                }),
                1 => What::Open(Open {
                    actor,
                    path: text(4),
                    access: vec!["read".into(), text(5)],
                    hidden: true,
                    verdict,
                    ..Open::default()
                }),
                2 => What::Connect(Peer {
                    actor,
                    family: text(4),
                    kind: text(5),
                    address: text(6),
                    host: Some(text(7)),
                    verdict,
                }),
                3 => What::Operation(Operation {
                    actor,
                    operation: text(4),
                    detail: text(5),
                    path: Some(text(6)),
                    other: Some(text(7)),
                    verdict,
                }),
                4 => What::Header(Header {
                    object: text(4),
                    kernel: text(5),
                    blind: vec![text(6)],
                    enforce: text(7),
                    command: vec![text(0), text(1)],
                    ..Header::default()
                }),
                _ => What::End(agent_sandbox_events::record::End {
                    why: text(4),
                    skipped: number,
                }),
            };
            Record {
                seq: number,
                time,
                trail: Trail {
                    node: text(1),
                    session: Some(text(2)),
                    step: Some(text(3)),
                    ..Trail::default()
                },
                lost: number,
                what,
            }
        },
    )
}

/// Whether a terminal obeys it, or nobody sees it.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// What is left of a page without its code spans and what is escaped.
fn beside_code(page: &str) -> String {
    let mut left = String::new();
    for line in page.lines() {
        let mut rest = line;
        while let Some(begin) = rest.find('`') {
            let fence = rest[begin..].chars().take_while(|c| *c == '`').count();
            let escaped = rest[..begin].ends_with('\\');
            let inside = &rest[begin + fence..];
            // It ends at a row of backticks that is just as long.
            let mut at = 0;
            let end = loop {
                let Some(next) = inside[at..].find('`') else {
                    break None;
                };
                let length = inside[at + next..]
                    .chars()
                    .take_while(|c| *c == '`')
                    .count();
                if length == fence {
                    break Some(at + next + length);
                }
                at += next + length;
            };
            left.push_str(&rest[..begin]);
            match end.filter(|_| !escaped) {
                Some(end) => rest = &inside[end..],
                None => {
                    left.push('`');
                    rest = &rest[begin + 1..];
                }
            }
        }
        left.push_str(rest);
        left.push('\n');
    }
    let mut all = left.chars();
    let mut plain = String::new();
    while let Some(c) = all.next() {
        match c {
            // It stays between its neighbours, which are no sign together.
            '\\' => {
                all.next();
                plain.push(char::REPLACEMENT_CHARACTER);
            }
            c => plain.push(c),
        }
    }
    plain
}

fn assert_harmless(text: &str) {
    let found = text.chars().find(|c| *c != '\n' && is_harmful(*c));
    assert_eq!(found, None, "{text:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn no_name_reaches_a_terminal_raw(records in prop::collection::vec(record(), 1..8), filter in hostile()) {
        let mut app = App::new(true);
        for record in &records {
            assert_harmless(&Line::of(record).text());
            app.take(record);
        }
        for filter in ["", filter.as_str()] {
            app.filter = filter.to_owned();
            app.typing = !app.typing;
            for pane in Pane::ALL {
                app.pane = pane;
                let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
                terminal.draw(|frame| draw(frame, &mut app, 1e9)).unwrap();
                for cell in &terminal.backend().buffer().content {
                    assert_harmless(cell.symbol());
                    assert!(!cell.symbol().contains('\n'));
                }
            }
        }
        let summary = Summary::new(&app.live.model, 1);
        assert_harmless(&text::text(&summary));
        let page = markdown::markdown(&summary);
        assert_harmless(&page);
        // A heading or a rule that no line of ours begins would be theirs.
        for line in page.lines() {
            let ours = ["# Trail: ", "## ", "- ", "| ", "|---", "And ", ""];
            assert!(ours.iter().any(|begin| line.starts_with(begin) && (!begin.is_empty() || line.is_empty())), "{line:?}");
        }
        // Beside code nothing links, mentions or is read as more than text.
        let beside = beside_code(&page);
        for sign in ["@", "://", "www.", "](", "<script", "$x"] {
            assert!(!beside.contains(sign), "{sign}\n{page}");
        }
        let json = write::json(&summary);
        assert_harmless(&json);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(&read["version"], 1);
    }
}
