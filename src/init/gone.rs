//! What is installed into the private home, which goes with the session: said when the command is over, for people
//! install with `pip install --user` and look for it tomorrow. Init tells of places by their number here, so that nothing that
//! the jail wrote is on its way to the user's terminal.

use std::collections::VecDeque;
use std::fs::symlink_metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where installers put programs and libraries, below the home.
const PLACES: [&str; 14] = [
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".local/share/pipx",
    "bin",
    ".npm-global",
    "node_modules",
    ".nvm",
    ".cargo/bin",
    "go/bin",
    ".conda/envs",
    "miniconda3",
    "miniforge3",
    "R",
];
/// Entries that are looked at in a place: what is installed has a file among the first.
const MOST: usize = 256;

/// The numbers of the places in which a file was made.
pub(super) fn of(home: &Path) -> Vec<u8> {
    let Ok(device) = symlink_metadata(home).map(|is| is.dev()) else {
        return Vec::new();
    };
    let gone = |place: &str| {
        // A link leads to what stays, or what somebody else looks after.
        let mut steps = Path::new(place).ancestors();
        let own = |at: &Path| {
            symlink_metadata(home.join(at)).is_ok_and(|is| is.is_dir() && is.dev() == device)
        };
        steps.all(own) && has_file(home.join(place), device)
    };
    let all = (0..).zip(PLACES);
    all.filter(|(_, place)| gone(place))
        .map(|(number, _)| number)
        .collect()
}

/// Whether a file stands there that is not mounted.
fn has_file(place: PathBuf, device: u64) -> bool {
    let mut waiting = VecDeque::from([place]);
    let mut left = MOST;
    while let Some(at) = waiting.pop_front() {
        for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
            match symlink_metadata(entry.path()) {
                Ok(is) if is.is_file() && is.dev() == device => return true,
                Ok(is) if is.is_dir() && is.dev() == device => waiting.push_back(entry.path()),
                _ => {}
            }
            left -= 1;
            if left == 0 {
                return false;
            }
        }
    }
    false
}

/// What the user is told of these places, by their numbers.
pub fn line(places: &[u8]) -> String {
    let names = places
        .iter()
        .filter_map(|&number| PLACES.get(usize::from(number)));
    let names: Vec<String> = names.map(|name| format!("~/{name}")).collect();
    format!(
        "agent-sandbox: note: gone with this session's home: {}; what is in the project stays (python3 -m venv .venv, npm \
         install without -g)\n",
        names.join(", ")
    )
}
