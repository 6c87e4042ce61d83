//! Files of certificates, where credentials are exchanged: each has a place of its own inside, to which the launcher adds the
//! certificate of the session's filter. No file of the host's is changed.

use std::path::Path;

use super::Builder;
use crate::plan::build::credentials::bundles;
use crate::plan::model::network::Trust;
use crate::plan::model::{Access, Mount, Omitted, Why};

impl Builder<'_> {
    /// Puts them in. One that the inside can change is neither read nor covered.
    pub(super) fn certificates(&mut self) -> Trust {
        let mut trust = Trust::default();
        for one in bundles(self.policy, self.host, self.files) {
            let at = one.found.real;
            // Who writes a link on the way chooses the file.
            let links = one.found.links.iter().map(|(link, _)| link);
            if links
                .chain([&at])
                .any(|place| self.is_changed_inside(place))
            {
                self.omitted.push(Omitted {
                    path: at.display().to_string(),
                    reason:
                        "the filter's certificate is not added to a file that the jail can write"
                            .to_owned(),
                    why: Why::Every("certificates that programs trust"),
                    loud: true,
                });
                continue;
            }
            if one.first {
                trust.trusted.clone_from(&one.content);
            }
            if self.hides.rule_for(&at).is_some() {
                continue;
            }
            let why = Why::Every("certificates that programs trust, with that of the filter");
            let mut content = one.content;
            if !content.ends_with(b"\n") {
                content.push(b'\n');
            }
            let place = at.clone();
            self.tree.put(&place, Mount::File { content }, why);
            trust.bundles.push(place);
        }
        trust
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
