//! Marks that somebody made by hand: as RFC 8032 says, by another program than ours.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use agent_sandbox_events::mark::{Claim, DIGEST, LIFETIME, LINE, Mark, SIGNATURE};

use crate::attest::refused;
use crate::attested::{ACCOUNT, Attested};
use crate::site::has;
use crate::world::World;

/// Marks that somebody made with a key: an older one of the site's own, and one of somebody else's key.
pub(crate) fn made_by_hand(attested: &Attested, alice: &World, body: &str, mark: &str) {
    if !has("openssl") {
        return;
    }
    let mark = Mark::parse(mark.strip_prefix(LINE).unwrap()).unwrap();
    let key = fs::read_to_string(attested.place.path().join("mark.key")).unwrap();
    let site = key.trim().strip_prefix("ed25519 ").unwrap();
    let seconds = |age: u64| Claim {
        time: mark.claim.time - age,
        ..mark.claim.clone()
    };
    let signed = format!("{body}\n");
    let submit = format!("sbatch -H -A {ACCOUNT} -o o.txt made.sh");
    for (claim, seed, why) in [
        (seconds(0), site, None),
        (seconds(LIFETIME + 60), site, Some("seconds ago")),
        (
            seconds(0),
            &"07".repeat(32),
            Some("its mark is not of this script"),
        ),
    ] {
        let made = Mark {
            signature: by_openssl(attested.place.path(), seed, &claim, signed.as_bytes()),
            claim,
        };
        alice.write("made.sh", format!("{signed}{LINE}{made}\n"));
        let said = alice.outside(&submit).run();
        match why {
            Some(why) => refused(&said, why),
            // The forger has signed as the tracer does.
            None => drop(said.good()),
        }
    }
    let job = alice
        .cluster
        .said("squeue", ["-h", "-t", "PD", "-o", "%A", "-n", "made.sh"]);
    alice.real(&["scancel", job.trim()]).good();
}

/// Signs with the key of this seed.
fn by_openssl(place: &Path, seed: &str, claim: &Claim, script: &[u8]) -> [u8; SIGNATURE] {
    let file = |name: &str, content: &[u8]| {
        let path = place.join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let run = |words: &[&str]| {
        let said = Command::new("/usr/bin/openssl")
            .args(words)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(said.status.success(), "{words:?}: {said:?}");
        said.stdout
    };
    let text = file("script", script);
    let digest = run(&["dgst", "-sha256", "-binary", text.to_str().unwrap()]);
    let digest: [u8; DIGEST] = digest.try_into().unwrap();
    let message = file("message", &claim.signed(&digest));
    // RFC 8410: the key as PKCS #8.
    let der: Vec<u8> = format!("302e020100300506032b657004220420{seed}")
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    let key = file("key.der", &der);
    let signature = run(&[
        "pkeyutl",
        "-sign",
        "-rawin",
        "-keyform",
        "DER",
        "-inkey",
        key.to_str().unwrap(),
        "-in",
        message.to_str().unwrap(),
    ]);
    signature.try_into().unwrap()
}
