//! Files whose size the kernel does not tell, as those of `/proc`, and small ones.

use std::fs::File;
use std::io::{self, Read};

/// Room for most of them: without it the standard library begins with 32 bytes, and doubles them.
const ROOM: usize = 8 << 10;

/// The content of a file, of at most so many bytes.
///
/// # Errors
/// What `open(2)` and `read(2)` answer.
pub fn read(path: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(ROOM);
    File::open(path)?.take(most).read_to_end(&mut content)?;
    Ok(content)
}
