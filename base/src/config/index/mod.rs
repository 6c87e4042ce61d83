//! Reads a policy that is built in without parsing its text: by the index that the build wrote of it. What
//! comes out is what parsing it would give, every span included (tested), but for texts: these are not copied.

use std::borrow::Cow;
use std::collections::BTreeMap;

use thiserror::Error;
use toml::Spanned;

mod format;

use format::Tag;

/// The tags by their bytes.
const TAGS: [Tag; 8] = [
    Tag::Bare,
    Tag::Quoted,
    Tag::Text,
    Tag::Number,
    Tag::True,
    Tag::False,
    Tag::List,
    Tag::Table,
];

/// What a text holds, by its index.
///
/// # Errors
/// The index is not one of this text.
pub(super) fn read<T: Indexed>(text: &'static str, index: &'static [u8]) -> Result<T, Torn> {
    T::read(&mut Reader { text, rest: index })
}

/// What an index says is not of the form that is read, or is not in the text.
#[derive(Debug, Error)]
#[error("not the index of this text")]
pub(super) struct Torn;

/// What can be read by an index.
pub(super) trait Indexed: Sized {
    /// Reads the next node.
    ///
    /// # Errors
    /// It is another one.
    fn read(reader: &mut Reader) -> Result<Self, Torn>;

    /// What holds where a table lacks the key.
    fn missing() -> Option<Self> {
        None
    }
}

/// A table of keys that are known: what a struct is read from.
macro_rules! indexed {
    ($name:ident { $($key:ident,)* }) => {
        impl crate::config::index::Indexed for $name {
            fn read(
                reader: &mut crate::config::index::Reader,
            ) -> Result<Self, crate::config::index::Torn> {
                $(let mut $key = None;)*
                for _ in 0..reader.pairs()? {
                    match reader.string()? {
                        $(stringify!($key) => $key = Some(reader.next()?),)*
                        _ => return Err(crate::config::index::Torn),
                    }
                }
                Ok(Self { $($key: reader.or_missing($key)?,)* })
            }
        }
    };
}

pub(super) use indexed;

/// On the way through an index.
pub(super) struct Reader {
    text: &'static str,
    rest: &'static [u8],
}

/// What stands in front of each node.
struct Head {
    tag: Tag,
    start: usize,
    end: usize,
}

impl Reader {
    fn take(&mut self, count: usize) -> Result<&'static [u8], Torn> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Torn)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<usize, Torn> {
        let bytes = self.take(4)?.try_into().map_err(|_| Torn)?;
        usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| Torn)
    }

    fn head(&mut self) -> Result<Head, Torn> {
        let byte = usize::from(self.take(1)?[0]);
        Ok(Head {
            tag: *TAGS.get(byte).ok_or(Torn)?,
            start: self.number()?,
            end: self.number()?,
        })
    }

    /// How many nodes a list or a table has.
    fn nodes(&mut self, tag: Tag) -> Result<usize, Torn> {
        match self.head()?.tag == tag {
            true => self.number(),
            false => Err(Torn),
        }
    }

    /// The beginning of a table: how many keys with values follow.
    pub(super) fn pairs(&mut self) -> Result<usize, Torn> {
        Ok(self.nodes(Tag::Table)? / 2)
    }

    /// A text, or a key.
    pub(super) fn string(&mut self) -> Result<&'static str, Torn> {
        let Head { tag, start, end } = self.head()?;
        let within = |span| self.text.get(span).ok_or(Torn);
        match tag {
            Tag::Bare => within(start..end),
            Tag::Quoted => within(start + 1..end.saturating_sub(1)),
            Tag::Text => {
                let length = self.number()?;
                std::str::from_utf8(self.take(length)?).map_err(|_| Torn)
            }
            _ => Err(Torn),
        }
    }

    /// The next value.
    pub(super) fn next<T: Indexed>(&mut self) -> Result<T, Torn> {
        T::read(self)
    }

    /// The value of a key, or what holds without it.
    pub(super) fn or_missing<T: Indexed>(&self, value: Option<T>) -> Result<T, Torn> {
        value.or_else(T::missing).ok_or(Torn)
    }
}

impl Indexed for Cow<'static, str> {
    fn read(reader: &mut Reader) -> Result<Self, Torn> {
        reader.string().map(Cow::Borrowed)
    }
}

impl Indexed for String {
    fn read(reader: &mut Reader) -> Result<Self, Torn> {
        reader.string().map(str::to_owned)
    }
}

impl Indexed for i64 {
    fn read(reader: &mut Reader) -> Result<Self, Torn> {
        match reader.head()?.tag {
            Tag::Number => {
                let bytes = reader.take(8)?.try_into().map_err(|_| Torn)?;
                Ok(Self::from_le_bytes(bytes))
            }
            _ => Err(Torn),
        }
    }
}

impl Indexed for bool {
    fn read(reader: &mut Reader) -> Result<Self, Torn> {
        match reader.head()?.tag {
            Tag::True => Ok(true),
            Tag::False => Ok(false),
            _ => Err(Torn),
        }
    }
}

impl<T: Indexed> Indexed for Spanned<T> {
    fn read(reader: &mut Reader) -> Result<Self, Torn> {
        let Head { start, end, .. } = Reader { ..*reader }.head()?;
        Ok(Self::new(start..end, reader.next()?))
    }
}

impl<T: Indexed> Indexed for Option<T> {
    fn read(reader: &mut Reader) -> Result<Self, Torn> {
        reader.next().map(Some)
    }

    fn missing() -> Option<Self> {
        Some(None)
    }
}

impl<T: Indexed> Indexed for Vec<T> {
    fn read(reader: &mut Reader) -> Result<Self, Torn> {
        let nodes = reader.nodes(Tag::List)?;
        // A wrong number asks for no more room than the index could fill.
        let mut all = Self::with_capacity(nodes.min(reader.rest.len()));
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
    fn read(reader: &mut Reader) -> Result<Self, Torn> {
        let pairs = 0..reader.pairs()?;
        pairs
            .map(|_| Ok((reader.next()?, reader.next()?)))
            .collect()
    }

    fn missing() -> Option<Self> {
        Some(Self::new())
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
            let parsed: Document = toml::from_str(built_in.text).unwrap();
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
        assert!(read::<Document>(DEFAULT.text, &[8; 64]).is_err());
    }

    #[test]
    fn tags_are_their_places() {
        for (at, tag) in TAGS.into_iter().enumerate() {
            assert_eq!(tag as usize, at);
        }
    }
}
