//! Which backend makes the jails of a run of a suite: bubblewrap, or Landlock where `tests/run` says so
//! by `AGENT_SANDBOX_TEST_BACKEND=landlock`. Part of each suite that runs twice.

use std::collections::BTreeSet;

/// Landlock, with the built-in policy.
pub(crate) const LANDLOCK: &[&str] = &["--backend", "landlock"];

/// Whether this run is Landlock's.
pub(crate) fn is_landlock() -> bool {
    match std::env::var("AGENT_SANDBOX_TEST_BACKEND").as_deref() {
        Err(_) => false,
        Ok("landlock") => true,
        Ok(other) => panic!("no backend {other}"),
    }
}

/// The launcher's options that choose the backend.
pub(crate) fn options() -> &'static [&'static str] {
    if is_landlock() { LANDLOCK } else { &[] }
}

/// The ids of what a launch declares to lack, from the plan that `--dry-run --json` prints.
pub(crate) fn declared(plan: &str) -> BTreeSet<String> {
    let plan: serde_json::Value = serde_json::from_str(plan).expect("JSON");
    let rows = plan["missing"].as_array().expect("the field `missing`");
    let id = |row: &serde_json::Value| row["id"].as_str().expect("an id").to_owned();
    rows.iter().map(id).collect()
}
