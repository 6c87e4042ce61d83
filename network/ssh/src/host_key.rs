//! Whether a host signed something: its key, and its signature.

use ring::digest::{SHA256, digest};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

use crate::encoding::{Malformed, Reader};
use crate::rules::Fingerprint;

/// The fingerprint of a key.
pub(crate) fn fingerprint(key: &[u8]) -> Fingerprint {
    let mut all = [0; 32];
    all.copy_from_slice(digest(&SHA256, key).as_ref());
    Fingerprint(all)
}

/// Whether `signature` is that of a text by the key. RSA with SHA-1 is none.
///
/// # Errors
/// The key or the signature cannot be read, or is of a kind that is not known here.
pub(crate) fn has_signed(key: &[u8], text: &[u8], signature: &[u8]) -> Result<bool, Malformed> {
    let mut key = Reader::new(key);
    let mut signature = Reader::new(signature);
    let kind = key.string()?;
    let algorithm = signature.string()?;
    let signed = signature.string()?;
    signature.end()?;
    let verified = match kind {
        // RFC 8709
        b"ssh-ed25519" if algorithm == kind => {
            let point = key.string()?;
            key.end()?;
            UnparsedPublicKey::new(&ED25519, point).verify(text, signed)
        }
        // RFC 5656, section 3.1
        b"ecdsa-sha2-nistp256" | b"ecdsa-sha2-nistp384" if algorithm == kind => {
            let (curve, verifies, size): (_, &dyn VerificationAlgorithm, _) = match kind {
                b"ecdsa-sha2-nistp256" => (b"nistp256", &ECDSA_P256_SHA256_FIXED, 32),
                _ => (b"nistp384", &ECDSA_P384_SHA384_FIXED, 48),
            };
            if key.string()? != curve {
                return Err(Malformed);
            }
            let point = key.string()?;
            key.end()?;
            let mut both = Reader::new(signed);
            let signed = [both.positive()?, both.positive()?].map(|number| padded(number, size));
            both.end()?;
            let [r, s] = signed;
            UnparsedPublicKey::new(verifies, point).verify(text, &[r?, s?].concat())
        }
        // RFC 8332
        b"ssh-rsa" => {
            let verifies = match algorithm {
                b"rsa-sha2-256" => &RSA_PKCS1_2048_8192_SHA256,
                b"rsa-sha2-512" => &RSA_PKCS1_2048_8192_SHA512,
                _ => return Err(Malformed),
            };
            let (e, n) = (key.positive()?, key.positive()?);
            key.end()?;
            RsaPublicKeyComponents { n, e }.verify(verifies, text, signed)
        }
        _ => return Err(Malformed),
    };
    Ok(verified.is_ok())
}

/// A number with zeros before it.
fn padded(number: &[u8], size: usize) -> Result<Vec<u8>, Malformed> {
    let zeros = size.checked_sub(number.len()).ok_or(Malformed)?;
    Ok([&vec![0; zeros], number].concat())
}
