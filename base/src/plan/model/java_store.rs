//! A file of certificates as Java reads it (`cacerts`): a "JKS", which every Java reads whatever it writes itself. Nothing names another file
//! to Java without a line on standard error, so the usual one gets the filter's certificate.
//!
//! The format is that of `sun.security.provider.JavaKeyStore`: numbers in network order; a magic number, the version, a count; for each
//! certificate a tag, its name, when it was put in, its type and its DER; and at last a SHA-1 over the password and all of it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
/// The tag of a certificate that is trusted.
const TRUSTED: u32 = 2;
const X509: &str = "X.509";
/// Every file that Java comes with has this one, and Java asks for none when it reads whom it trusts.
const PASSWORD: &str = "changeit";
/// Stands between the password and the content.
const SALT: &[u8] = b"Mighty Aphrodite";
/// Bytes of the three numbers in front.
const HEAD: usize = 12;
const SUM: usize = 20;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The file with one certificate more, which stands in it as PEM: one of this kind as it is, and in place of any other (Java 18 comes with
/// PKCS #12) one of those that `trusted` has, as PEM. `None`: there is no certificate.
pub(super) fn with(file: &[u8], trusted: &[u8], certificate: &[u8]) -> Option<Vec<u8>> {
    let more = certificates(certificate).into_iter().next()?;
    let (mut count, mut entries) = match read(file) {
        Some((count, entries)) => (count, entries.to_vec()),
        None => {
            let mut all = Vec::new();
            let usual = certificates(trusted);
            for (at, one) in usual.iter().enumerate() {
                entry(&mut all, &format!("system-{at}"), one)?;
            }
            (u32::try_from(usual.len()).ok()?, all)
        }
    };
    entry(&mut entries, "agent-sandbox", &more)?;
    count = count.checked_add(1)?;
    let mut all = Vec::with_capacity(HEAD + entries.len() + SUM);
    for number in [MAGIC, VERSION, count] {
        all.extend(number.to_be_bytes());
    }
    all.extend(entries);
    let mut sum = Sha1::new();
    PASSWORD
        .encode_utf16()
        .for_each(|letter| sum.update(letter.to_be_bytes()));
    sum.update(SALT);
    sum.update(&all);
    all.extend(sum.finalize());
    Some(all)
}

/// The number of entries of such a file, and the entries.
fn read(file: &[u8]) -> Option<(u32, &[u8])> {
    let number = |at: usize| Some(u32::from_be_bytes(file.get(at..at + 4)?.try_into().ok()?));
    if (number(0)?, number(4)?) != (MAGIC, VERSION) {
        return None;
    }
    let end = file.len().checked_sub(SUM)?;
    Some((number(8)?, file.get(HEAD..end)?))
}

fn entry(to: &mut Vec<u8>, name: &str, certificate: &[u8]) -> Option<()> {
    let text = |to: &mut Vec<u8>, text: &str| {
        to.extend(u16::try_from(text.len()).ok()?.to_be_bytes());
        to.extend(text.as_bytes());
        Some(())
    };
    to.extend(TRUSTED.to_be_bytes());
    text(to, name)?;
    // Milliseconds since 1970 at which it was put in; nobody asks.
    to.extend(0_u64.to_be_bytes());
    text(to, X509)?;
    to.extend(u32::try_from(certificate.len()).ok()?.to_be_bytes());
    to.extend(certificate);
    Some(())
}

/// The certificates of a text (RFC 7468). What cannot be read vouches for nobody.
fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(pem);
    let parts = text.split(BEGIN).skip(1);
    parts
        .filter_map(|part| {
            let text: String = part.split_once(END)?.0.split_whitespace().collect();
            BASE64_STANDARD.decode(text).ok()
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    fn pem(der: &[u8]) -> String {
        format!("# a\n{BEGIN}\n{}\n{END}\n", BASE64_STANDARD.encode(der))
    }

    #[test]
    fn a_certificate_is_added_to_what_is_there() {
        let trusted = pem(b"one") + &pem(b"two") + BEGIN;
        let made = with(b"PKCS #12", trusted.as_bytes(), pem(b"own").as_bytes()).unwrap();
        let (count, entries) = read(&made).unwrap();
        assert_eq!(count, 3);
        for der in [&b"\0\0\0\x03one"[..], b"\0\0\0\x03two", b"\0\0\0\x03own"] {
            assert!(entries.windows(der.len()).any(|part| part == der));
        }
        // What is one already keeps what it has.
        let again = with(&made, b"", pem(b"more").as_bytes()).unwrap();
        assert_eq!(read(&again).unwrap().0, 4);
        assert!(read(&again).unwrap().1.starts_with(entries));
        assert_eq!(with(&made, b"", b"none"), None);
        for end in 0..made.len() {
            let _ = read(&made[..end]);
        }
    }
}
