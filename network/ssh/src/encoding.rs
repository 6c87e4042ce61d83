//! Data types of ssh messages (RFC 4251, section 5): read strictly, and written.

/// A message is not as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub struct Malformed;

/// Reads a message from its beginning.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(byte)
    }

    /// Other bytes than 0 and 1 may be true as well; nobody writes them.
    pub(crate) fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u32, Malformed> {
        let (bytes, rest) = self.0.split_first_chunk::<4>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        let (string, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(string)
    }

    /// A positive number of any length, without the zero that keeps it from being negative.
    pub(crate) fn positive(&mut self) -> Result<&'a [u8], Malformed> {
        match self.string()? {
            [0, rest @ ..] if rest.first().is_some_and(|first| *first >= 0x80) => Ok(rest),
            plain @ [1..0x80, ..] => Ok(plain),
            _ => Err(Malformed),
        }
    }

    /// Nothing must follow.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        match self.0 {
            [] => Ok(()),
            _ => Err(Malformed),
        }
    }
}

/// Writes a message.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// Of a kind.
    pub(crate) fn of(kind: u8) -> Self {
        Self(vec![kind])
    }

    pub(crate) fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    pub(crate) fn boolean(self, value: bool) -> Self {
        self.byte(u8::from(value))
    }

    pub(crate) fn number(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// No string is as long as its length could not say: messages are bounded.
    pub(crate) fn string(self, string: &[u8]) -> Self {
        let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
        let mut all = self.number(length);
        all.0.extend_from_slice(string);
        all
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}
