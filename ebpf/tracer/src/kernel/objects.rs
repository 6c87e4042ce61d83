//! The two objects: their bytes, the name that stands for their content, and where each program hooks in.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads objects from a directory, in tests"
)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use aya::include_bytes_aligned;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use sha2::{Digest as _, Sha256};

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// fentry, fexit and LSM programs.
    Trampolines,
    /// Tracepoints alone.
    Tracepoints,
}

/// As many hexadecimal digits of an object's SHA-256 name its directory.
const DIGITS: usize = 16;

/// The committed objects. aya reads them in place, so they are aligned.
#[cfg(target_arch = "x86_64")]
static TRAMPOLINES: &[u8] = include_bytes_aligned!("../../../probes/trampolines.bpf.o");
#[cfg(target_arch = "x86_64")]
static TRACEPOINTS: &[u8] = include_bytes_aligned!("../../../probes/tracepoints.bpf.o");
#[cfg(target_arch = "aarch64")]
static TRAMPOLINES: &[u8] = include_bytes_aligned!("../../../probes/aarch64/trampolines.bpf.o");
#[cfg(target_arch = "aarch64")]
static TRACEPOINTS: &[u8] = include_bytes_aligned!("../../../probes/aarch64/tracepoints.bpf.o");

impl Kind {
    /// Both, the better one first.
    pub const ALL: [Kind; 2] = [Kind::Trampolines, Kind::Tracepoints];

    /// As records name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Trampolines => "trampolines",
            Kind::Tracepoints => "tracepoints",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The object: the one in this program, or the one in a directory.
    ///
    /// # Errors
    /// The directory lacks it.
    pub fn bytes(self, directory: Option<&Path>) -> io::Result<Cow<'static, [u8]>> {
        match directory {
            Some(directory) => {
                let file = directory.join(format!("{}.bpf.o", self.name()));
                fs::read(file).map(Cow::Owned)
            }
            None => Ok(Cow::Borrowed(match self {
                Kind::Trampolines => TRAMPOLINES,
                Kind::Tracepoints => TRACEPOINTS,
            })),
        }
    }
}

/// The name of the directory below which everything of an object is pinned: two versions of the tracer never
/// take each other's maps for their own.
#[must_use]
pub(crate) fn hash16(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(DIGITS);
    for byte in Sha256::digest(bytes).iter().take(DIGITS / 2) {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// Where a program hooks in: what its section is called (`fexit/security_file_open`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hook {
    /// `fentry`, `fexit`, `lsm`, `tp_btf`, `iter`; with `.s` behind it if it may sleep.
    pub(crate) kind: String,
    /// The function, the security hook, the tracepoint.
    pub(crate) target: String,
}

/// The programs of an object by name. aya does not say where a program hooks in, so the sections are read.
///
/// # Errors
/// It is no object.
pub(crate) fn hooks(bytes: &[u8]) -> Result<BTreeMap<String, Hook>, object::Error> {
    let file = object::File::parse(bytes)?;
    let mut hooks = BTreeMap::new();
    for symbol in file.symbols() {
        if symbol.kind() != SymbolKind::Text || !symbol.is_global() {
            continue;
        }
        let Some(index) = symbol.section_index() else {
            continue;
        };
        let section = file.section_by_index(index)?;
        if let Some((kind, target)) = section.name()?.split_once('/') {
            let hook = Hook {
                kind: kind.to_owned(),
                target: target.to_owned(),
            };
            hooks.insert(symbol.name()?.to_owned(), hook);
        }
    }
    Ok(hooks)
}
