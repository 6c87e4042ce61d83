//! The state of the live view, and what keys do to it: pure. What is shown of it [`super::view`] draws.

use std::collections::VecDeque;

use agent_sandbox_events::record::Record;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::clock;
use crate::line::Line;
use crate::model::{Model, TableLimits, Way};
use crate::text::cut;

/// Live events that can be scrolled back to: some 5 MB at most.
const EVENTS: usize = 3000;
/// Characters of an event's line.
const WIDE: usize = 400;
/// Characters of a filter.
const LONGEST_FILTER: usize = 60;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    /// The most important of all others.
    All,
    /// Live events.
    Events,
    /// What was denied most often.
    Denied,
    /// Programs.
    Programs,
    /// Connections, and where somebody listens.
    Connections,
    /// Operations.
    Operations,
    /// The session's jobs and their nodes.
    Jobs,
    /// What cannot be seen, and what was lost.
    Unseen,
}

impl Pane {
    /// In the order of the keys 1 to 8.
    pub const ALL: [Pane; 8] = [
        Pane::All,
        Pane::Events,
        Pane::Denied,
        Pane::Programs,
        Pane::Connections,
        Pane::Operations,
        Pane::Jobs,
        Pane::Unseen,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pane::All => "all",
            Pane::Events => "events",
            Pane::Denied => "denied",
            Pane::Programs => "programs",
            Pane::Connections => "connections",
            Pane::Operations => "operations",
            Pane::Jobs => "jobs",
            Pane::Unseen => "unseen",
        }
    }

    /// Its place in [`Pane::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        Pane::ALL.iter().position(|pane| *pane == self).unwrap_or(0)
    }
}

/// A live event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The whole line.
    pub text: String,
    /// Which way it went.
    pub way: Option<Way>,
}

/// What came from the tracer.
#[derive(Clone, Debug)]
pub struct Live {
    /// What is known.
    pub model: Model,
    /// The last events, the newest at the end.
    pub events: VecDeque<Event>,
    /// Lines that were no records.
    pub unreadable: u64,
    /// How the conversation stands, if not well.
    pub trouble: Option<String>,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            model: Model::new(TableLimits::WATCH),
            events: VecDeque::new(),
            unreadable: 0,
            trouble: None,
        }
    }
}

/// What a key asks for beyond the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// End.
    Quit,
    /// Copy a summary.
    Copy,
    /// Give the terminal back until the shell continues.
    Suspend,
}

/// The view.
#[derive(Debug)]
pub struct App {
    /// What comes in.
    pub live: Live,
    /// What is shown instead, while it is paused.
    pub frozen: Option<Box<Live>>,
    /// What is looked at.
    pub pane: Pane,
    /// Rows scrolled, by pane: from the top; of events from the end.
    pub scroll: [usize; Pane::ALL.len()],
    /// Only rows that hold this, in whatever case.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// The keys are shown.
    pub help: bool,
    /// Something to say, until the next key.
    pub message: Option<String>,
    /// Whether there are colours.
    pub colour: bool,
    /// Rows of the list as it was drawn last: so far one can scroll, and so much is a page.
    pub rows: usize,
    /// Rows that fitted.
    pub page: usize,
    /// Events since it is paused.
    pub behind: u64,
}

impl App {
    /// Of no record.
    #[must_use]
    pub fn new(colour: bool) -> Self {
        Self {
            live: Live::default(),
            frozen: None,
            pane: Pane::All,
            scroll: [0; Pane::ALL.len()],
            filter: String::new(),
            typing: false,
            help: false,
            message: None,
            colour,
            rows: 0,
            page: 1,
            behind: 0,
        }
    }

    /// What is shown.
    #[must_use]
    pub fn shown(&self) -> &Live {
        self.frozen.as_deref().unwrap_or(&self.live)
    }

    /// Takes a record.
    pub fn take(&mut self, record: &Record) {
        self.live.model.take(record);
        let line = Line::of(record);
        let mut text = format!("{} {}", clock::of_day(record.time), line.text());
        if text.len() > WIDE {
            text = cut(&text, WIDE);
        }
        if self.frozen.is_some() {
            self.behind = self.behind.saturating_add(1);
        } else if self.fits(&text) {
            // Who has scrolled back goes on seeing the same.
            for pane in [Pane::All, Pane::Events] {
                let scroll = &mut self.scroll[pane.index()];
                if *scroll > 0 {
                    *scroll += 1;
                }
            }
        }
        if self.live.events.len() == EVENTS {
            self.live.events.pop_front();
        }
        self.live.events.push_back(Event {
            text,
            way: line.way,
        });
    }

    /// Begins anew: the tracer was away, and sends everything again.
    pub fn forget(&mut self) {
        self.live = Live::default();
        self.scroll = [0; Pane::ALL.len()];
    }

    /// Whether the filter lets a row through.
    #[must_use]
    pub fn fits(&self, row: &str) -> bool {
        self.filter.is_empty() || row.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => Action::Quit,
                KeyCode::Char('z') => Action::Suspend,
                KeyCode::Char('u') if self.typing => {
                    self.filter.clear();
                    Action::None
                }
                _ => Action::None,
            };
        }
        if self.typing {
            self.type_key(key.code);
            return Action::None;
        }
        if self.help {
            self.help = false;
            return Action::None;
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('c' | 'y') => return Action::Copy,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = true,
            KeyCode::Char('p' | ' ') => self.pause(),
            KeyCode::Esc => {
                self.filter.clear();
                self.scroll = [0; Pane::ALL.len()];
            }
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.switch(1),
            KeyCode::BackTab | KeyCode::Left => self.switch(Pane::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='8') => {
                let at = digit as usize - '1' as usize;
                self.pane = Pane::ALL[at];
            }
            KeyCode::Up | KeyCode::Char('k') => self.up(1),
            KeyCode::Down | KeyCode::Char('j') => self.down(1),
            KeyCode::PageUp => self.up(self.page.max(1)),
            KeyCode::PageDown => self.down(self.page.max(1)),
            KeyCode::Home | KeyCode::Char('g') => self.up(usize::MAX),
            KeyCode::End | KeyCode::Char('G') => self.down(usize::MAX),
            _ => {}
        }
        Action::None
    }

    fn type_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if !c.is_control() && self.filter.chars().count() < LONGEST_FILTER => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.scroll = [0; Pane::ALL.len()];
    }

    fn pause(&mut self) {
        self.behind = 0;
        self.frozen = match self.frozen.take() {
            Some(_) => None,
            None => Some(Box::new(self.live.clone())),
        };
    }

    fn switch(&mut self, by: usize) {
        self.pane = Pane::ALL[(self.pane.index() + by) % Pane::ALL.len()];
    }

    /// Whether the pane's newest row is its last, so that scrolling counts from the end.
    fn ends_with_the_newest(&self) -> bool {
        matches!(self.pane, Pane::All | Pane::Events)
    }

    fn up(&mut self, by: usize) {
        match self.ends_with_the_newest() {
            true => self.away(by),
            false => self.back(by),
        }
    }

    fn down(&mut self, by: usize) {
        match self.ends_with_the_newest() {
            true => self.back(by),
            false => self.away(by),
        }
    }

    fn away(&mut self, by: usize) {
        let most = self.rows.saturating_sub(self.page);
        let scroll = &mut self.scroll[self.pane.index()];
        *scroll = scroll.saturating_add(by).min(most);
    }

    fn back(&mut self, by: usize) {
        let scroll = &mut self.scroll[self.pane.index()];
        *scroll = scroll.saturating_sub(by);
    }
}
