//! The form of an index, as `build.rs` writes it of what is built in, and a launch of a file: for each key and value one node, the
//! outermost table first.
//!
//! A node is its [`Tag`], the two ends of its span, and what the tag says. Numbers of these are 32 bits,
//! little-endian. A text is mostly what stands in its span, so that an index is small.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

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
    /// A number that is not whole, which no key takes: nothing.
    Float,
    /// A date or a time, which no key takes: nothing.
    Date,
}

/// Tables and lists in one another: what any key takes has less.
const MOST_DEEP: usize = 16;

/// What an index does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// A whole number for which 64 bits are too few, or a place behind 4 GiB.
    Number,
    /// Tables and lists in one another, more than any key takes.
    Depth,
}

/// What did not fit, and where.
type Written = Result<(), (Limit, Range<usize>)>;

/// The index of a text that was parsed.
///
/// # Errors
/// It does not hold something, which stands there.
pub(crate) fn write(
    text: &str,
    table: &Spanned<DeTable<'_>>,
) -> Result<Vec<u8>, (Limit, Range<usize>)> {
    let mut index = Index {
        text,
        depth: 0,
        bytes: Vec::new(),
    };
    index.table(table.span(), table.get_ref())?;
    Ok(index.bytes)
}

/// An index that is being written.
struct Index<'a> {
    text: &'a str,
    depth: usize,
    bytes: Vec<u8>,
}

impl Index<'_> {
    fn number(&mut self, number: usize, span: &Range<usize>) -> Written {
        let number = u32::try_from(number).map_err(|_| (Limit::Number, span.clone()))?;
        self.bytes.extend(number.to_le_bytes());
        Ok(())
    }

    fn head(&mut self, tag: Tag, span: &Range<usize>) -> Written {
        self.bytes.push(tag as u8);
        self.number(span.start, span)?;
        self.number(span.end, span)
    }

    /// The beginning of a list or a table.
    fn nodes(&mut self, tag: Tag, nodes: usize, span: &Range<usize>) -> Written {
        if self.depth == MOST_DEEP {
            return Err((Limit::Depth, span.clone()));
        }
        self.depth += 1;
        self.head(tag, span)?;
        self.number(nodes, span)
    }

    /// A text, or a key.
    fn text(&mut self, span: &Range<usize>, content: &str) -> Written {
        let written = &self.text[span.clone()];
        if written == content {
            return self.head(Tag::Bare, span);
        }
        if written.get(1..written.len().saturating_sub(1)) == Some(content) {
            return self.head(Tag::Quoted, span);
        }
        self.head(Tag::Text, span)?;
        self.number(content.len(), span)?;
        self.bytes.extend(content.as_bytes());
        Ok(())
    }

    fn table(&mut self, span: Range<usize>, table: &DeTable<'_>) -> Written {
        self.nodes(Tag::Table, 2 * table.len(), &span)?;
        for (key, value) in table {
            self.text(&key.span(), key.get_ref())?;
            self.value(value)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>) -> Written {
        let span = value.span();
        match value.get_ref() {
            DeValue::String(content) => self.text(&span, content),
            DeValue::Integer(number) => {
                let number = i64::from_str_radix(number.as_str(), number.radix());
                let number = number.map_err(|_| (Limit::Number, span.clone()))?;
                self.head(Tag::Number, &span)?;
                self.bytes.extend(number.to_le_bytes());
                Ok(())
            }
            DeValue::Boolean(true) => self.head(Tag::True, &span),
            DeValue::Boolean(false) => self.head(Tag::False, &span),
            DeValue::Float(_) => self.head(Tag::Float, &span),
            DeValue::Datetime(_) => self.head(Tag::Date, &span),
            DeValue::Array(values) => {
                self.nodes(Tag::List, values.len(), &span)?;
                values.iter().try_for_each(|value| self.value(value))?;
                self.depth -= 1;
                Ok(())
            }
            DeValue::Table(table) => self.table(span, table),
        }
    }
}
