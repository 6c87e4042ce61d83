//! Files of certificates, where credentials are exchanged: each has a place of its own inside, to which the launcher adds the
//! certificate of the session's filter. No file of the host's is changed.

use std::path::{Path, PathBuf};

use super::Builder;
use crate::host::files::Found;
use crate::plan::build::credentials::{bundles, java_stores};
use crate::plan::model::network::Trust;
use crate::plan::model::{Access, Mount, Omitted, Why};

impl Builder<'_> {
    /// Puts them in. One that the inside can change is neither read nor covered.
    pub(super) fn certificates(&mut self) -> Trust {
        let mut trust = Trust::default();
        for one in bundles(self.policy, self.host, self.files) {
            if self.may_be_changed(&one.found) {
                continue;
            }
            if one.first {
                trust.trusted.clone_from(&one.content);
            }
            let mut content = one.content;
            if !content.ends_with(b"\n") {
                content.push(b'\n');
            }
            trust.bundles.extend(self.covered(one.found.real, content));
        }
        for one in java_stores(self.host, self.files) {
            if !self.may_be_changed(&one.found) {
                trust.java.extend(self.covered(one.found.real, one.content));
            }
        }
        trust
    }

    /// Puts a file of certificates where one is, unless that is hidden; its place.
    fn covered(&mut self, at: PathBuf, content: Vec<u8>) -> Option<PathBuf> {
        if self.hides.rule_for(&at).is_some() {
            return None;
        }
        let why = Why::Every("certificates that programs trust, with that of the filter");
        self.tree.put(&at, Mount::File { content }, why);
        Some(at)
    }

    /// Whether what is inside can change a file, or which one it is, for who writes a link on the way chooses it. Then that is said.
    fn may_be_changed(&mut self, found: &Found) -> bool {
        let links = found.links.iter().map(|(link, _)| link);
        let mut on_the_way = links.chain([&found.real]);
        let changed = on_the_way.any(|place| self.is_changed_inside(place));
        if changed {
            self.omitted.push(Omitted {
                path: found.real.display().to_string(),
                reason: "the filter's certificate is not added to a file that the jail can write"
                    .to_owned(),
                why: Why::Every("certificates that programs trust"),
                loud: true,
            });
        }
        changed
    }

    /// Whether what is inside can change what stands at a place of the host's.
    fn is_changed_inside(&self, place: &Path) -> bool {
        let over = self.tree.over(place).map(|(_, mount)| mount);
        matches!(
            over,
            Some(
                Mount::Kept { .. }
                    | Mount::Bind {
                        access: Access::Write,
                        ..
                    }
            )
        )
    }
}
