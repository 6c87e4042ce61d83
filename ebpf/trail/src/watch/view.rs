//! The live view, drawn: pure, onto whatever ratatui draws on. It says with words and signs what it says
//! with colours, and every text of others comes through [`crate::text::shown`] first.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::app::{App, Pane};
use crate::clock;
use crate::model::{Counts, Model, Refusals, Refused, Way};
use crate::report::text::{by, endpoint_text, program_text, trail_text, unseen};
use crate::report::{self, Unseen};
use crate::text::{cut, shown};

/// Less than this shows nothing that one could read.
const SMALLEST: (u16, u16) = (24, 8);
/// Rows that are made of a table: more than a screen has, as one can scroll.
const ROWS: usize = 2000;
/// Characters of a row; wider than terminals are.
const WIDE: usize = 400;

/// A row of a list.
struct Row {
    text: String,
    way: Option<Way>,
    /// It is about a key, a token or the like.
    marked: bool,
}

impl Row {
    fn plain(text: String) -> Self {
        Row {
            text,
            way: None,
            marked: false,
        }
    }
}

/// Draws it at a time, in seconds since 1970.
pub fn draw(frame: &mut Frame<'_>, app: &mut App, now: f64) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        frame.render_widget(Paragraph::new("too small"), area);
        return;
    }
    let [title, bar, losses, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(title_line(app), title);
    frame.render_widget(verdicts(app, now), bar);
    frame.render_widget(losses_line(app), losses);
    frame.render_widget(tabs_line(app), tabs);
    match app.pane {
        Pane::All => overview(frame, app, body),
        pane => {
            let rows = rows(app, pane);
            app.rows = rows.len();
            app.page = usize::from(body.height);
            list(
                frame,
                app,
                &rows,
                body,
                app.scroll[pane.index()],
                pane == Pane::Events,
            );
        }
    }
    frame.render_widget(foot_line(app, usize::from(area.width)), foot);
    if app.help {
        help(frame, area);
    }
}

fn title_line(app: &App) -> Text<'static> {
    let live = app.shown();
    let what = match live.model.trails.is_empty() {
        true => "waiting for the first record".to_owned(),
        false => {
            let summary: Vec<report::OneTrail> =
                live.model.trails.iter().map(report::one_trail).collect();
            report::text::heading_of(&summary)
        }
    };
    let state = match (&live.trouble, live.model.trails.ended()) {
        (Some(trouble), _) => shown(trouble),
        (None, true) => "ended".into(),
        (None, false) => "live".into(),
    };
    let span = live.model.trails.span();
    let span = span.map_or_else(String::new, |(first, last)| {
        format!(" | {}", clock::span(last - first))
    });
    let paused = match app.frozen.is_some() {
        true => format!(" | PAUSED, {} more", app.behind),
        false => String::new(),
    };
    Text::from(format!(" {what}{span} | {state}{paused}"))
        .style(Style::new().add_modifier(Modifier::REVERSED))
}

fn verdicts(app: &App, now: f64) -> Text<'static> {
    let live = app.shown();
    let (counts, rates) = (live.model.counts, live.model.rates.now(now));
    let part = |name: &str, of: fn(&Counts) -> u64| {
        format!(" {name} {} {}/s ", short(of(&counts)), short(of(&rates)))
    };
    let parts = [
        (part("allowed", |c| c.allowed), Way::Allowed, counts.allowed),
        (part("DENIED", |c| c.denied), Way::Denied, counts.denied),
        (part("NOT RUN", |c| c.not_run), Way::NotRun, counts.not_run),
        (part("failed", |c| c.failed), Way::Failed, counts.failed),
        (
            part("would deny", |c| c.would_deny),
            Way::WouldDeny,
            counts.would_deny,
        ),
    ];
    let mut spans = Vec::new();
    for (text, way, count) in parts {
        // It takes room that the others need, and is rare.
        if way == Way::NotRun && count == 0 {
            continue;
        }
        if !spans.is_empty() {
            spans.push(Span::raw("|"));
        }
        let style = match count {
            0 => Style::new(),
            _ => style(app, Some(way), false),
        };
        spans.push(Span::styled(text, style));
    }
    Text::from(spans)
}

fn losses_line(app: &App) -> Text<'static> {
    let live = app.shown();
    let trails = &live.model.trails;
    let mut parts = Vec::new();
    for (number, what) in [
        (trails.lost(), "LOST"),
        (trails.beyond, "MISSED, of too many trails"),
        (trails.gone(), "removed before"),
        (live.unreadable, "not understood"),
    ] {
        if number > 0 {
            parts.push(format!("{} {what}", short(number)));
        }
    }
    let warn = !parts.is_empty();
    if !warn {
        parts.push("nothing lost".into());
    }
    match trails.blind().len() {
        0 => {}
        1 => parts.push("1 thing cannot be seen here (8)".into()),
        more => parts.push(format!("{more} things cannot be seen here (8)")),
    }
    let style = match warn {
        true => style(app, Some(Way::WouldDeny), true),
        false => Style::new().add_modifier(Modifier::DIM),
    };
    Text::from(format!(" {}", parts.join(" | "))).style(style)
}

fn tabs_line(app: &App) -> Text<'static> {
    let mut spans = Vec::new();
    for (at, pane) in Pane::ALL.into_iter().enumerate() {
        let style = match pane == app.pane {
            true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
            false => Style::new(),
        };
        spans.push(Span::styled(format!(" {} {}", at + 1, pane.name()), style));
    }
    Text::from(spans)
}

fn foot_line(app: &App, width: usize) -> Text<'static> {
    if app.typing {
        return Text::from(format!(" /{}_", shown(&app.filter)));
    }
    if let Some(message) = &app.message {
        return Text::from(format!(
            " {}",
            cut(&shown(message), width.saturating_sub(1))
        ))
        .style(Style::new().add_modifier(Modifier::BOLD));
    }
    let filter = match app.filter.is_empty() {
        true => String::new(),
        false => format!(" [{}] Esc: all |", shown(&app.filter)),
    };
    Text::from(format!(
        "{filter} / filter  p pause  Tab pane  c copy  ? keys  q quit"
    ))
    .style(Style::new().add_modifier(Modifier::DIM))
}

fn overview(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let [events, denied, below] = Layout::vertical([
        Constraint::Fill(4),
        Constraint::Fill(3),
        Constraint::Fill(3),
    ])
    .areas(area);
    let [programs, connections] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(below);
    for (pane, area) in [
        (Pane::Events, events),
        (Pane::Denied, denied),
        (Pane::Programs, programs),
        (Pane::Connections, connections),
    ] {
        let [head, body] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        let rows = rows(app, pane);
        let title = Text::from(format!("- {} ({}) ", pane.name(), rows.len()))
            .style(Style::new().add_modifier(Modifier::BOLD));
        frame.render_widget(title, head);
        let scroll = match pane {
            Pane::Events => {
                app.rows = rows.len();
                app.page = usize::from(body.height);
                app.scroll[Pane::All.index()]
            }
            _ => 0,
        };
        list(frame, app, &rows, body, scroll, pane == Pane::Events);
    }
}

/// The rows of a list that fit, from `scroll` on, or up to it from the end.
fn list(frame: &mut Frame<'_>, app: &App, rows: &[Row], area: Rect, scroll: usize, from_end: bool) {
    let height = usize::from(area.height);
    let most = rows.len().saturating_sub(height);
    let begin = match from_end {
        true => most.saturating_sub(scroll),
        false => scroll.min(most),
    };
    if rows.is_empty() {
        let text = match app.filter.is_empty() {
            true => "  none",
            false => "  none that fit the filter",
        };
        let style = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Text::from(text).style(style), area);
        return;
    }
    let lines: Vec<Text<'_>> = rows
        .iter()
        .skip(begin)
        .take(height)
        .map(|row| Text::styled(row.text.as_str(), style(app, row.way, row.marked)))
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// The rows of a pane that fit the filter.
fn rows(app: &App, pane: Pane) -> Vec<Row> {
    let live = app.shown();
    let model = &live.model;
    if pane == Pane::Events {
        let events = live.events.iter().filter(|event| app.fits(&event.text));
        return events
            .map(|event| Row {
                text: event.text.clone(),
                way: event.way,
                marked: false,
            })
            .collect();
    }
    let mut rows = match pane {
        Pane::All | Pane::Events => Vec::new(),
        Pane::Denied => denied(model),
        Pane::Programs => programs(model),
        Pane::Connections => connections(model),
        Pane::Operations => operations(model),
        Pane::Jobs => {
            let trails = model.trails.iter().map(report::one_trail);
            trails
                .map(|one| Row::plain(format!("  {}", trail_text(&one))))
                .collect()
        }
        Pane::Unseen => {
            let sentences = unseen(&Unseen::new(model, live.unreadable));
            sentences
                .into_iter()
                .map(|line| Row::plain(format!("  {line}")))
                .collect()
        }
    };
    for row in &mut rows {
        row.text = cut(&shown(&row.text), WIDE);
    }
    rows.retain(|row| app.fits(&row.text));
    rows
}

fn denied(model: &Model) -> Vec<Row> {
    let row = |(refused, refusals): (&Refused, &Refusals)| {
        let denied = report::one_denied((refused, refusals));
        let hidden = denied.hidden.then_some("hidden");
        let mark = match denied.sensitive.or(hidden) {
            Some(word) => format!("!{word}"),
            None => String::new(),
        };
        let (would, way) = match refused.would {
            true => (" (would be)", Way::WouldDeny),
            false => ("", Way::Denied),
        };
        Row {
            text: format!(
                "{:>6} {mark:<11} {:<8} {} {}{would}",
                short(denied.count),
                denied.what,
                denied.on,
                by(&denied)
            ),
            way: Some(way),
            marked: denied.sensitive.is_some() || denied.hidden,
        }
    };
    model
        .refused
        .heaviest()
        .into_iter()
        .take(ROWS)
        .map(row)
        .collect()
}

/// How a row of several events is shown: as the worst of them.
fn worst(counts: &Counts) -> Option<Way> {
    match counts {
        _ if counts.denied > 0 => Some(Way::Denied),
        _ if counts.would_deny > 0 => Some(Way::WouldDeny),
        _ if counts.not_run > 0 => Some(Way::NotRun),
        _ if counts.failed > 0 => Some(Way::Failed),
        _ => None,
    }
}

fn programs(model: &Model) -> Vec<Row> {
    let rows = model.programs.heaviest().into_iter().take(ROWS);
    rows.map(|(call, counts)| {
        let program = report::Program {
            path: call.path.clone(),
            arguments: call.arguments.clone(),
            ways: counts.into(),
        };
        Row {
            text: format!("{:>6} {}", short(counts.all()), program_text(&program)),
            way: worst(counts),
            marked: false,
        }
    })
    .collect()
}

fn connections(model: &Model) -> Vec<Row> {
    let mut rows = Vec::new();
    for (sign, table) in [("->", &model.connections), ("at", &model.listens)] {
        for (address, counts) in table.heaviest().into_iter().take(ROWS) {
            let place = report::Endpoint {
                address: address.address.clone(),
                host: address.host.clone(),
                family: address.family.clone(),
                socket: address.kind.clone(),
                ways: counts.into(),
            };
            rows.push(Row {
                text: format!(
                    "{:>6} {sign} {}",
                    short(counts.all()),
                    endpoint_text(&place)
                ),
                way: worst(counts),
                marked: false,
            });
        }
    }
    rows
}

fn operations(model: &Model) -> Vec<Row> {
    let rows = model.operations.heaviest().into_iter().take(ROWS);
    rows.map(|(act, counts)| Row {
        text: format!(
            "{:>6} {:<14} {}{}",
            short(counts.all()),
            act.operation,
            act.about,
            report::text::not_allowed(&counts.into())
        ),
        way: worst(counts),
        marked: false,
    })
    .collect()
}

fn style(app: &App, way: Option<Way>, marked: bool) -> Style {
    let mut style = Style::new();
    if marked {
        style = style.add_modifier(Modifier::BOLD);
    }
    let colour = match way {
        _ if !app.colour => None,
        Some(Way::Denied) if marked => Some(Color::Magenta),
        Some(Way::Denied) => Some(Color::Red),
        Some(Way::WouldDeny | Way::NotRun) => Some(Color::Yellow),
        Some(Way::Failed) => Some(Color::Blue),
        Some(Way::Allowed) => Some(Color::Green),
        None => None,
    };
    match colour {
        Some(colour) => style.fg(colour),
        None => style,
    }
}

/// A number in at most five characters: `99999`, `123k`, `12M`.
fn short(number: u64) -> String {
    match number {
        0..=99_999 => number.to_string(),
        100_000..=9_999_999 => format!("{}k", number / 1000),
        10_000_000..=9_999_999_999 => format!("{}M", number / 1_000_000),
        10_000_000_000..=9_999_999_999_999 => format!("{}G", number / 1_000_000_000),
        // Nothing counts so far; a trail can say so.
        _ => ">10T".to_owned(),
    }
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    const KEYS: [&str; 13] = [
        " 1 to 8, Tab, arrows   switch panes",
        " up, down, j, k        scroll by a row",
        " PgUp, PgDn            scroll by a page",
        " Home, g, End, G       to the first, to the last",
        " /TEXT Enter           only rows with TEXT",
        " Esc                   all rows again, not scrolled",
        " p, space              pause; events are counted on",
        " c                     copy a summary: clipboard and file",
        " ^Z                    back to the shell, fg continues",
        " q, ^C                 quit",
        "",
        " !key !token !credential: what a denied path holds",
        " any key closes this",
    ];
    let (width, height) = (58.min(area.width), 15.min(area.height));
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let lines: Vec<Text<'_>> = KEYS.into_iter().map(Text::from).collect();
    let block = ratatui::widgets::Block::bordered().title(" keys ");
    frame.render_widget(Paragraph::new(lines).block(block), place);
}
