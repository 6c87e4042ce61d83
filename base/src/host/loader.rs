//! The dynamic linker that started this program, and therefore starts it inside the jail.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::unsized_file;

/// The entry of the auxiliary vector with the linker's address (`AT_BASE`, `getauxval(3)`).
const AT_BASE: usize = 7;
/// Bytes of a number in the auxiliary vector.
const WORD: usize = size_of::<usize>();

/// The linker's file; `None` where there is none, as in a static build, or it cannot be told.
pub fn find() -> Option<PathBuf> {
    let vector = unsized_file::read("/proc/self/auxv", u64::MAX).ok()?;
    let maps = unsized_file::read("/proc/self/maps", u64::MAX).ok()?;
    mapped_at(&maps, base(&vector)?)
}

/// The linker's address. The vector is pairs of a type and a value.
fn base(vector: &[u8]) -> Option<usize> {
    let word = |bytes: &[u8]| Some(usize::from_ne_bytes(bytes.try_into().ok()?));
    let mut pairs = vector.chunks_exact(2 * WORD);
    let pair = pairs.find(|pair| word(&pair[..WORD]) == Some(AT_BASE))?;
    word(&pair[WORD..]).filter(|address| *address != 0)
}

/// The file whose mapping begins at an address (`proc_pid_maps(5)`).
fn mapped_at(maps: &[u8], address: usize) -> Option<PathBuf> {
    let begins = |line: &&[u8]| {
        let start = line.split(|&byte| byte == b'-').next();
        let start = start.and_then(|text| std::str::from_utf8(text).ok());
        start.and_then(|text| usize::from_str_radix(text, 16).ok()) == Some(address)
    };
    let line = maps.split(|&byte| byte == b'\n').find(begins)?;
    let name = line.iter().position(|&byte| byte == b'/')?;
    Some(PathBuf::from(OsStr::from_bytes(&line[name..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_at_the_address_is_named() {
        let maps = b"55e0c2a00000-55e0c2a01000 r--p 00000000 08:01 11 /usr/bin/true\n\
            7f0000000000-7f0000001000 r--p 00000000 08:01 12                         /usr/lib/ld one.so\n\
            7f0000002000-7f0000003000 rw-p 00000000 00:00 0 \n";
        let linker = Some(PathBuf::from("/usr/lib/ld one.so"));
        assert_eq!(mapped_at(maps, 0x7f00_0000_0000), linker);
        assert_eq!(mapped_at(maps, 0x7f00_0000_2000), None);
        assert_eq!(mapped_at(maps, 0x1000), None);
        let vector = |base: usize| [6, 4096, AT_BASE, base].map(usize::to_ne_bytes).concat();
        assert_eq!(base(&vector(0x1000)), Some(0x1000));
        // A static program has none.
        assert_eq!(base(&vector(0)), None);
    }

    /// This program itself, where it is no static one.
    #[test]
    fn the_linker_is_a_program_that_exists() {
        let linker = find();
        assert_eq!(linker.is_none(), cfg!(target_feature = "crt-static"));
        if let Some(linker) = linker {
            assert!(std::fs::metadata(linker).unwrap().is_file());
        }
    }
}
