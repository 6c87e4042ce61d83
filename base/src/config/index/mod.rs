//! Reads a policy that is built in without parsing its text: by the index that the build wrote of it. What
//! comes out is what parsing it would give, every span included (tested).

use serde::de::value::{BorrowedStrDeserializer, Error};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

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
pub(super) fn read<'a, T: Deserialize<'a>>(text: &'a str, index: &'a [u8]) -> Result<T, Error> {
    T::deserialize(Next(&mut Reader { text, rest: index }))
}

/// On the way through an index.
struct Reader<'a> {
    text: &'a str,
    rest: &'a [u8],
}

/// What stands in front of each node.
struct Head {
    tag: Tag,
    start: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(torn)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<usize, Error> {
        let bytes = self.take(4)?.try_into().map_err(|_| torn())?;
        usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| torn())
    }

    fn head(&mut self) -> Result<Head, Error> {
        let byte = usize::from(self.take(1)?[0]);
        Ok(Head {
            tag: *TAGS.get(byte).ok_or_else(torn)?,
            start: self.number()?,
            end: self.number()?,
        })
    }
}

fn torn() -> Error {
    Error::custom("not the index of this text")
}

/// The next node.
struct Next<'r, 'a>(&'r mut Reader<'a>);

impl<'a> Deserializer<'a> for Next<'_, 'a> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        let Head { tag, start, end } = self.0.head()?;
        let within = |span| self.0.text.get(span).ok_or_else(torn);
        match tag {
            Tag::Bare => visitor.visit_borrowed_str(within(start..end)?),
            Tag::Quoted => visitor.visit_borrowed_str(within(start + 1..end.saturating_sub(1))?),
            Tag::Text => {
                let length = self.0.number()?;
                let text = std::str::from_utf8(self.0.take(length)?).map_err(|_| torn())?;
                visitor.visit_borrowed_str(text)
            }
            Tag::Number => {
                let bytes = self.0.take(8)?.try_into().map_err(|_| torn())?;
                visitor.visit_i64(i64::from_le_bytes(bytes))
            }
            Tag::True => visitor.visit_bool(true),
            Tag::False => visitor.visit_bool(false),
            Tag::List | Tag::Table => {
                let left = self.0.number()?;
                let nodes = Nodes {
                    reader: self.0,
                    left,
                };
                match tag {
                    Tag::List => visitor.visit_seq(nodes),
                    _ => visitor.visit_map(nodes),
                }
            }
        }
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // How `toml::Spanned` asks for the two ends of a span, and for the value.
        match (name, fields) {
            ("$__serde_spanned_private_Spanned", [start, end, value]) => {
                let mut ahead = Reader { ..*self.0 };
                let head = ahead.head()?;
                visitor.visit_map(Spanned {
                    names: [value, end, start],
                    ends: [head.end, head.start],
                    left: 3,
                    reader: self.0,
                })
            }
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Nodes of a list or a table.
struct Nodes<'r, 'a> {
    reader: &'r mut Reader<'a>,
    left: usize,
}

impl<'a> SeqAccess<'a> for Nodes<'_, 'a> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        seed.deserialize(Next(self.reader)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'a> MapAccess<'a> for Nodes<'_, 'a> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'a>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Error> {
        self.next_element_seed(seed)?.ok_or_else(torn)
    }
}

/// A node with its span, as three fields; the last comes first.
struct Spanned<'r, 'a> {
    names: [&'static str; 3],
    ends: [usize; 2],
    left: usize,
    reader: &'r mut Reader<'a>,
}

impl<'a> MapAccess<'a> for Spanned<'_, 'a> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'a>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let name = BorrowedStrDeserializer::new(self.names[left]);
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.left.checked_sub(1) {
            Some(end) => seed.deserialize(self.ends[end].into_deserializer()),
            None => seed.deserialize(Next(self.reader)),
        }
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
