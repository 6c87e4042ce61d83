//! What is hidden of a text.

use agent_sandbox_events::record::REDACTED;
use memchr::memmem;

/// Parts of a text that are to be hidden.
#[derive(Debug, Default)]
pub(super) struct Edit {
    parts: Vec<(usize, usize)>,
}

impl Edit {
    /// This part, unless it is empty.
    pub(super) fn hide(&mut self, begin: usize, end: usize) {
        if begin < end {
            self.parts.push((begin, end));
        }
    }

    /// The text without them. What was hidden before is hidden as a whole, and zeros between arguments stay.
    pub(super) fn apply(mut self, text: &[u8]) -> Vec<u8> {
        if self.parts.is_empty() {
            return text.to_vec();
        }
        let before = memmem::find_iter(text, REDACTED.as_bytes());
        self.parts
            .extend(before.map(|at| (at, at + REDACTED.len())));
        self.parts.sort_unstable();
        let mut left = Vec::with_capacity(text.len());
        let mut at = 0;
        let mut parts = self.parts.into_iter().peekable();
        while let Some((begin, mut end)) = parts.next() {
            while let Some((_, more)) = parts.next_if(|next| next.0 <= end) {
                end = end.max(more);
            }
            left.extend_from_slice(&text[at..begin]);
            for (place, argument) in text[begin..end].split(|byte| *byte == 0).enumerate() {
                if place > 0 {
                    left.push(0);
                }
                if !argument.is_empty() {
                    left.extend_from_slice(REDACTED.as_bytes());
                }
            }
            at = end;
        }
        left.extend_from_slice(&text[at..]);
        left
    }
}
