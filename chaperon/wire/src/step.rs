//! A step's capsule travels in the environment of `srun`, in parts that `execve(2)` takes.

use crate::capsule::{Capsule, CapsuleError};

/// Name of the variable that holds the number of parts; part N is in `NAME_N`.
pub const VARIABLE: &str = "AGENT_SANDBOX_STEP";

/// Bytes in a part. One string may have 128 KiB (`MAX_ARG_STRLEN`, `execve(2)`).
const PART: usize = 96 << 10;

/// The most parts: three quarters of the 2 MiB that arguments and environment may have together.
const MOST_PARTS: usize = 16;

/// The variables, as name and value.
///
/// # Errors
/// The number of bytes, if there are too many.
pub fn variables(capsule: &Capsule) -> Result<Vec<(String, String)>, usize> {
    let text = capsule.pack();
    let parts: Vec<&str> = text
        .as_bytes()
        .chunks(PART)
        // base64 is ASCII, so that every cut is between characters.
        .filter_map(|part| std::str::from_utf8(part).ok())
        .collect();
    if parts.len() > MOST_PARTS {
        return Err(text.len());
    }
    let mut all = vec![(VARIABLE.to_owned(), parts.len().to_string())];
    for (number, part) in parts.iter().enumerate() {
        all.push((format!("{VARIABLE}_{number}"), (*part).to_owned()));
    }
    Ok(all)
}

/// Whether a variable of this name belongs to a step's capsule.
pub fn is_part(name: &[u8]) -> bool {
    name.strip_prefix(VARIABLE.as_bytes())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"_"))
}

/// Puts the capsule together; `variable` looks a name up.
///
/// # Errors
/// See [`CapsuleError`].
pub fn capsule(variable: impl Fn(&str) -> Option<Vec<u8>>) -> Result<Capsule, CapsuleError> {
    let count = variable(VARIABLE).ok_or(CapsuleError::NotOne)?;
    let count: usize = std::str::from_utf8(&count)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|&count| count <= MOST_PARTS)
        .ok_or(CapsuleError::Damaged)?;
    let mut text = Vec::new();
    for number in 0..count {
        text.extend(variable(&format!("{VARIABLE}_{number}")).ok_or(CapsuleError::Damaged)?);
    }
    Capsule::unpack(&text)
}
