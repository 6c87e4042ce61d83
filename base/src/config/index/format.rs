//! The form of an index, as `build.rs` writes it: for each key and value one node, the outermost
//! table first.
//!
//! A node is its [`Tag`], the two ends of its span, and what the tag says. Numbers of these are 32 bits,
//! little-endian. A text is mostly what stands in its span, so that an index is small.

use std::ops::Range;

/// What a node is, and what stands behind its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// A text that is its span: nothing.
    Bare,
    /// A text that is its span without the quotes: nothing.
    Quoted,
    /// Another text, one with escapes or in several lines: its length and its bytes.
    Text,
    /// A whole number: 64 bits.
    Number,
    /// `true`: nothing.
    True,
    /// `false`: nothing.
    False,
    /// A list: how many nodes, and these.
    List,
    /// A table: how many nodes, and these, a key and its value in turn.
    Table,
}

/// A node that is being written.
#[allow(dead_code, reason = "the build script alone writes")]
pub(crate) struct Node {
    head: Vec<u8>,
    nodes: Option<u32>,
    behind: Vec<u8>,
}

#[allow(dead_code, reason = "the build script alone writes")]
impl Node {
    /// A node with nothing behind its span, or a list or table without nodes.
    pub(crate) fn new(tag: Tag, span: Range<usize>) -> Self {
        let mut head = vec![tag as u8];
        head.extend((span.start as u32).to_le_bytes());
        head.extend((span.end as u32).to_le_bytes());
        Self {
            head,
            nodes: matches!(tag, Tag::List | Tag::Table).then_some(0),
            behind: Vec::new(),
        }
    }

    /// A text, or a key.
    pub(crate) fn text(file: &str, span: Range<usize>, content: &str) -> Self {
        let written = &file[span.clone()];
        if written == content {
            return Self::new(Tag::Bare, span);
        }
        if written.len() > 1 && &written[1..written.len() - 1] == content {
            return Self::new(Tag::Quoted, span);
        }
        let mut node = Self::new(Tag::Text, span);
        node.behind.extend((content.len() as u32).to_le_bytes());
        node.behind.extend(content.as_bytes());
        node
    }

    /// A whole number.
    pub(crate) fn number(span: Range<usize>, number: i64) -> Self {
        let mut node = Self::new(Tag::Number, span);
        node.behind.extend(number.to_le_bytes());
        node
    }

    /// Appends to a list or a table.
    pub(crate) fn push(&mut self, node: Self) {
        self.nodes = self.nodes.map(|nodes| nodes + 1);
        self.behind.extend(node.bytes());
    }

    /// As it is written.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut all = self.head;
        all.extend(self.nodes.iter().flat_map(|nodes| nodes.to_le_bytes()));
        all.extend(self.behind);
        all
    }
}
