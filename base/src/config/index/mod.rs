//! Reads the text of a policy by an index of it: what stands where. That of what is built in was written when the program
//! was built, so that nothing is parsed; its texts stay where they are compiled in. Any other text is parsed first.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

mod format;
mod mistake;

use format::Tag;
use mistake::{Found, What};
pub(super) use mistake::{Kind, Mistake};

/// The tags by their bytes.
const TAGS: [Tag; 10] = [
    Tag::Bare,
    Tag::Quoted,
    Tag::Text,
    Tag::Number,
    Tag::True,
    Tag::False,
    Tag::List,
    Tag::Table,
    Tag::Float,
    Tag::Date,
];

/// What a text holds that is compiled in, by its index.
///
/// # Errors
/// The index is not one of this text.
pub(super) fn read<T: Indexed>(text: &'static str, index: &[u8]) -> Result<T, Mistake> {
    Reader::new(text, Some(text), index).next()
}

/// What a text holds.
///
/// # Errors
/// It is no TOML, or does not hold what is read.
pub(super) fn parse<T: Indexed>(text: &str) -> Result<T, Mistake> {
    let table = DeTable::parse(text).map_err(|error| Mistake {
        span: error.span().unwrap_or(0..0),
        what: What::Syntax(error.message().to_owned()),
    })?;
    let index = format::write(text, &table).map_err(|(limit, span)| Mistake {
        span,
        what: What::Limit(limit),
    })?;
    Reader::new(text, None, &index).next()
}

/// What can be read by an index.
pub(super) trait Indexed: Sized {
    /// What it is called in messages.
    const KIND: &'static Kind;

    /// Reads the next node.
    ///
    /// # Errors
    /// It is another one.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake>;

    /// What holds where a table lacks the key.
    fn missing() -> Option<Self> {
        None
    }
}

/// A table of keys that are known: what a struct is read from.
macro_rules! indexed {
    ($name:ident { $($key:ident,)* }) => {
        impl crate::config::index::Indexed for $name {
            const KIND: &'static crate::config::index::Kind = &crate::config::index::Kind::Table;

            fn read(
                reader: &mut crate::config::index::Reader<'_>,
            ) -> Result<Self, crate::config::index::Mistake> {
                $(let mut $key = None;)*
                let (span, pairs) = reader.pairs()?;
                for _ in 0..pairs {
                    match reader.key()? {
                        $(stringify!($key) => $key = Some(reader.next()?),)*
                        _ => return Err(reader.unknown(&[$(stringify!($key),)*])),
                    }
                }
                Ok(Self { $($key: reader.or_missing(&span, stringify!($key), $key)?,)* })
            }
        }
    };
}

pub(super) use indexed;

/// On the way through an index.
pub(super) struct Reader<'a> {
    text: &'a str,
    /// The same, where it is compiled in.
    compiled_in: Option<&'static str>,
    rest: &'a [u8],
    /// The key that was read last, and where it stands.
    key: (&'a str, Range<usize>),
}

/// What stands in front of each node.
struct Head {
    tag: Tag,
    span: Range<usize>,
}

const TORN: Mistake = Mistake {
    span: 0..0,
    what: What::Torn,
};

impl<'a> Reader<'a> {
    fn new(text: &'a str, compiled_in: Option<&'static str>, index: &'a [u8]) -> Self {
        Self {
            text,
            compiled_in,
            rest: index,
            key: ("", 0..0),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Mistake> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(TORN)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<usize, Mistake> {
        let bytes = self.take(4)?.try_into().map_err(|_| TORN)?;
        usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| TORN)
    }

    fn head(&mut self) -> Result<Head, Mistake> {
        let byte = usize::from(self.take(1)?[0]);
        Ok(Head {
            tag: *TAGS.get(byte).ok_or(TORN)?,
            span: self.number()?..self.number()?,
        })
    }

    /// The head of the next node, which stays.
    fn ahead(&self) -> Result<Head, Mistake> {
        Reader {
            key: ("", 0..0),
            ..*self
        }
        .head()
    }

    /// The mistake that a value of another kind stands here.
    fn another(&mut self, head: Head, expected: &'static Kind) -> Mistake {
        let whole = self.text.get(head.span.clone()).unwrap_or_default();
        let written = whole.to_owned();
        let found = match head.tag {
            Tag::Bare | Tag::Quoted | Tag::Text => match self.content(&head) {
                Ok((text, _)) => Found::Text(text.to_owned()),
                Err(torn) => return torn,
            },
            Tag::Number => Found::Number(written),
            Tag::Float => Found::Float(written),
            Tag::True | Tag::False => Found::Switch(written),
            Tag::Date => Found::Date(written),
            Tag::List => Found::List,
            Tag::Table => Found::Table,
        };
        // A table's header names it whole.
        let header = whole.starts_with('[') && head.tag == Tag::Table;
        let key = match header {
            true => whole.trim_matches(['[', ']', ' ', '\t']),
            false => self.key.0,
        };
        Mistake {
            span: head.span,
            what: What::Kind {
                key: key.to_owned(),
                expected,
                found,
            },
        }
    }

    /// How many nodes a list or a table has, and where it stands.
    fn nodes(&mut self, tag: Tag, kind: &'static Kind) -> Result<(Range<usize>, usize), Mistake> {
        let head = self.head()?;
        if head.tag != tag {
            return Err(self.another(head, kind));
        }
        Ok((head.span, self.number()?))
    }

    /// The beginning of a table: where it stands, and how many keys with values follow.
    pub(super) fn pairs(&mut self) -> Result<(Range<usize>, usize), Mistake> {
        let (span, nodes) = self.nodes(Tag::Table, &Kind::Table)?;
        Ok((span, nodes / 2))
    }

    /// What a text holds, and where that stands in the file, unless it is written in another way.
    fn content(&mut self, head: &Head) -> Result<(&'a str, Option<Range<usize>>), Mistake> {
        let Range { start, end } = head.span;
        let span = match head.tag {
            Tag::Quoted => start + 1..end.saturating_sub(1),
            Tag::Bare => start..end,
            Tag::Text => {
                let length = self.number()?;
                let text = std::str::from_utf8(self.take(length)?).map_err(|_| TORN)?;
                return Ok((text, None));
            }
            _ => return Err(TORN),
        };
        let text = self.text.get(span.clone()).ok_or(TORN)?;
        Ok((text, Some(span)))
    }

    /// A text, or a key.
    fn string(&mut self) -> Result<Cow<'static, str>, Mistake> {
        let head = self.head()?;
        if !matches!(head.tag, Tag::Bare | Tag::Quoted | Tag::Text) {
            return Err(self.another(head, &Kind::Text));
        }
        let (text, span) = self.content(&head)?;
        let kept = self.compiled_in.zip(span);
        let kept = kept.and_then(|(text, span)| text.get(span));
        Ok(kept.map_or_else(|| Cow::Owned(text.to_owned()), Cow::Borrowed))
    }

    /// The next key of a table.
    pub(super) fn key(&mut self) -> Result<&'a str, Mistake> {
        let head = self.head()?;
        let (key, _) = self.content(&head)?;
        self.key = (key, head.span);
        Ok(key)
    }

    /// The key that was read last is none of the table's.
    pub(super) fn unknown(&self, known: &'static [&'static str]) -> Mistake {
        let (key, span) = &self.key;
        Mistake {
            span: span.clone(),
            what: What::Unknown {
                key: (*key).to_owned(),
                known,
            },
        }
    }

    /// The next value.
    pub(super) fn next<T: Indexed>(&mut self) -> Result<T, Mistake> {
        T::read(self)
    }

    /// The value of a key of the table that stands there, or what holds without it.
    pub(super) fn or_missing<T: Indexed>(
        &self,
        table: &Range<usize>,
        key: &'static str,
        value: Option<T>,
    ) -> Result<T, Mistake> {
        value.or_else(T::missing).ok_or_else(|| Mistake {
            span: table.clone(),
            what: What::Missing(key),
        })
    }
}

impl Indexed for Cow<'static, str> {
    const KIND: &'static Kind = &Kind::Text;

    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        reader.string()
    }
}

impl Indexed for String {
    const KIND: &'static Kind = &Kind::Text;

    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        reader.string().map(Cow::into_owned)
    }
}

impl Indexed for i64 {
    const KIND: &'static Kind = &Kind::Number;

    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        let head = reader.head()?;
        match head.tag {
            Tag::Number => {
                let bytes = reader.take(8)?.try_into().map_err(|_| TORN)?;
                Ok(Self::from_le_bytes(bytes))
            }
            _ => Err(reader.another(head, Self::KIND)),
        }
    }
}

impl Indexed for bool {
    const KIND: &'static Kind = &Kind::Switch;

    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        let head = reader.head()?;
        match head.tag {
            Tag::True => Ok(true),
            Tag::False => Ok(false),
            _ => Err(reader.another(head, Self::KIND)),
        }
    }
}

impl<T: Indexed> Indexed for Spanned<T> {
    const KIND: &'static Kind = T::KIND;

    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        let span = reader.ahead()?.span;
        Ok(Self::new(span, reader.next()?))
    }
}

impl<T: Indexed> Indexed for Option<T> {
    const KIND: &'static Kind = T::KIND;

    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        reader.next().map(Some)
    }

    fn missing() -> Option<Self> {
        Some(None)
    }
}

impl<T: Indexed> Indexed for Vec<T> {
    const KIND: &'static Kind = &Kind::List(T::KIND);

    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        let (_, nodes) = reader.nodes(Tag::List, Self::KIND)?;
        let mut all = Self::new();
        for _ in 0..nodes {
            all.push(reader.next()?);
        }
        Ok(all)
    }

    fn missing() -> Option<Self> {
        Some(Self::new())
    }
}

impl<K: Indexed + Ord, V: Indexed> Indexed for BTreeMap<K, V> {
    const KIND: &'static Kind = &Kind::Table;

    fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        let (_, pairs) = reader.pairs()?;
        let mut all = Self::new();
        for _ in 0..pairs {
            let key = reader.next()?;
            all.insert(key, reader.next()?);
        }
        Ok(all)
    }

    fn missing() -> Option<Self> {
        Some(Self::new())
    }
}

/// One of them, or a list.
pub(super) fn one_or_more(reader: &mut Reader<'_>) -> Result<Vec<String>, Mistake> {
    match reader.ahead()?.tag {
        Tag::List => reader.next(),
        _ => reader.next().map(|one| vec![one]),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::built_in::{DEFAULT, PROFILES};
    use crate::config::schema::Document;

    #[test]
    fn what_is_built_in_is_read_as_if_it_were_parsed() {
        for built_in in std::iter::once(&DEFAULT).chain(PROFILES) {
            let parsed: Document = parse(built_in.text).unwrap();
            let read: Document = read(built_in.text, built_in.index).unwrap();
            assert_eq!(
                format!("{read:#?}"),
                format!("{parsed:#?}"),
                "{}",
                built_in.file
            );
        }
    }

    #[test]
    fn an_index_of_another_text_is_refused() {
        let index = DEFAULT.index;
        for length in [0, 1, 8, index.len() / 2, index.len() - 1] {
            assert!(
                read::<Document>(DEFAULT.text, &index[..length]).is_err(),
                "{length}"
            );
        }
        assert!(read::<Document>("[files]\n", index).is_err());
        assert!(read::<Document>(DEFAULT.text, &[255; 64]).is_err());
    }

    #[test]
    fn tags_are_their_places() {
        for (at, tag) in TAGS.into_iter().enumerate() {
            assert_eq!(tag as usize, at);
        }
    }
}
