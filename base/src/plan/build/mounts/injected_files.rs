//! Where the files stand that programs with a profile are given: each below `/run/agent-sandbox`, and the
//! text about the jail besides where its agent looks for instructions. No file of the host's is changed.

use std::path::{Path, PathBuf};

use super::Builder;
use crate::host::files::{Found, Kind, Look, real_as_far_as_it_exists};
use crate::plan::model::injected_files::{Holds, InjectedFiles, Placed, UsersOwn, why};
use crate::plan::model::persistent::Make;
use crate::plan::model::protect::protected;
use crate::plan::model::{Access, Mount, OWN, Omitted};
use crate::policy::{InjectedFile, PathSpec};

/// Bytes of one file of the user's that follows the text about the jail. What an agent reads at every start
/// is small.
const LARGEST: usize = 64 << 10;

impl Builder<'_> {
    /// Puts the files in. What they hold comes later, for it tells of the whole plan.
    pub(super) fn injected_files(&mut self) -> InjectedFiles {
        let policy = self.policy;
        let mut all = InjectedFiles::new(policy);
        for injected in &policy.injected_files {
            let holds = match &injected.text {
                Some(text) => Holds::Text(text.clone()),
                None if all.told || !all.preamble.is_empty() => {
                    Holds::Instructions(self.users_own(injected))
                }
                None => continue,
            };
            let inside = all.place_for(injected, &holds);
            self.put_text(&inside, injected);
            let at = injected.at.as_ref();
            let at = at.and_then(|path| self.place_at(path, injected));
            if let Some(at) = &at {
                self.put_text(at, injected);
            }
            all.files.push(Placed {
                inside,
                at,
                holds,
                injected: injected.clone(),
            });
        }
        all
    }

    fn put_text(&mut self, at: &Path, injected: &InjectedFile) {
        let content = Vec::new();
        self.tree.put(at, Mount::File { content }, why(injected));
        // It stays where the agent looks for it.
        self.tree.pin(self.files, at, &[]);
    }

    fn untold(&mut self, path: &PathSpec, injected: &InjectedFile, reason: String) {
        self.omitted.push(Omitted {
            path: path.to_string(),
            reason,
            why: why(injected),
            loud: true,
        });
    }

    /// The user's own instructions, which follow ours.
    fn users_own(&mut self, injected: &InjectedFile) -> Vec<UsersOwn> {
        let mut all = Vec::new();
        for path in &injected.user {
            match self.users_file(path) {
                Ok(Some(text)) => all.push(UsersOwn {
                    path: path.to_string(),
                    text,
                }),
                Ok(None) => {}
                Err(reason) => {
                    self.untold(
                        path,
                        injected,
                        format!("the agent does not get it: {reason}"),
                    );
                }
            }
        }
        all
    }

    /// What a file of the user's holds; `None` if there is none. A later session must not be made to read
    /// what no jail gets, so that links which an earlier one could have made are not followed.
    fn users_file(&self, path: &PathSpec) -> Result<Option<String>, String> {
        let Some(whole) = path.expand(self.host) else {
            return Ok(None);
        };
        let found = match self.files.look(&whole) {
            Look::Found(found) => found,
            Look::Missing => return Ok(None),
            Look::Denied(_) | Look::Closed(_) => return Err("it cannot be read".to_owned()),
            Look::Hung => return Err("it does not answer in time".to_owned()),
        };
        if found.kind != Kind::File {
            return Err("it is no regular file".to_owned());
        }
        if let Some(at) = self.changeable(&found) {
            let at = at.display();
            return Err(format!("the symbolic link `{at}` could be the jail's own"));
        }
        if let Some(rule) = self.hides.rule_for_found(&found) {
            return Err(format!(
                "files.hide `{}` ({}) hides it",
                rule.value, rule.source
            ));
        }
        if let Some(refusing) = self.site_bounds.refusing(&found.real, Access::Read) {
            let (key, source) = (refusing.key, &refusing.list.source);
            return Err(format!("the site's {key} ({source}) does not allow it"));
        }
        let text = self.files.small_file(&found.real, LARGEST);
        let text =
            text.ok_or_else(|| format!("it is unreadable or above {} KiB", LARGEST >> 10))?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// A link on the way to a file that the jail could change, or an earlier one could have made.
    fn changeable<'f>(&self, found: &'f Found) -> Option<&'f Path> {
        let links = found.links.iter().map(|(at, _)| at.as_path());
        let mut links = links.filter(|at| !self.home_links.iter().any(|known| known == at));
        let by_this = |at: &&Path| {
            let around = at.parent().and_then(|parent| self.tree.access(parent));
            around == Some(Access::Write)
        };
        links.find(by_this).or_else(|| self.plantable(&found.links))
    }

    /// Where the text is shown besides its own place: where the agent looks. In a directory of the jail's
    /// own that is the place itself. In one of the host's it is put over the file.
    fn place_at(&mut self, path: &PathSpec, injected: &InjectedFile) -> Option<PathBuf> {
        match self.place_for_text(path, injected) {
            Ok(at) => Some(at),
            Err(reason) => {
                let reason = format!("the agent is not told of its jail there: {reason}");
                self.untold(path, injected, reason);
                None
            }
        }
    }

    fn place_for_text(
        &mut self,
        path: &PathSpec,
        injected: &InjectedFile,
    ) -> Result<PathBuf, String> {
        let (Some(whole), Some(home)) = (path.expand(self.host), self.homes.first()) else {
            return Err("there is no home directory".to_owned());
        };
        let at = match whole.strip_prefix(&self.host.home) {
            Ok(below) => home.join(below),
            Err(_) => whole,
        };
        let directory = matches!(
            self.tree.over(&at),
            Some((over, Mount::Kept { .. } | Mount::Tmpfs { .. } | Mount::Directory { .. })) if over == at
        );
        if directory || self.tree.has_below(&at) {
            return Err("it is a directory".to_owned());
        }
        let around = at.parent().and_then(|parent| self.tree.over(parent));
        match around.map(|(_, mount)| mount) {
            Some(Mount::Tmpfs { .. } | Mount::Directory { .. } | Mount::Kept { .. }) => {
                return Ok(at);
            }
            Some(Mount::Bind { .. } | Mount::Link { .. }) => {}
            _ => return Err("nothing can be put there".to_owned()),
        }
        let found = match self.files.look(&at) {
            Look::Found(found) => found,
            Look::Missing => return self.made(&at, injected),
            _ => return Err("what stands there does not say what it is".to_owned()),
        };
        if found.kind != Kind::File {
            return Err("it is no regular file".to_owned());
        }
        if let Some(link) = self.changeable(&found) {
            let link = link.display();
            return Err(format!(
                "it leads through the symbolic link `{link}`, which a jail could change"
            ));
        }
        let inside = found.real.starts_with(home) || self.tree.access(&found.real).is_some();
        if !inside || found.real.starts_with(OWN) {
            let real = found.real.display();
            return Err(format!(
                "it is a link to `{real}`, which the jail does not show"
            ));
        }
        Ok(found.real)
    }

    /// The place in a directory of the host's where nothing stands. A mount needs a file there. Where the
    /// jail may write, so that a command could make it as well, the launch makes an empty one, and says
    /// so as it does of other state.
    fn made(&mut self, at: &Path, injected: &InjectedFile) -> Result<PathBuf, String> {
        let parent = at.parent().map(|parent| self.files.look(parent));
        let (Some(Look::Found(directory)), Some(name)) = (parent, at.file_name()) else {
            return Err("its directory does not exist".to_owned());
        };
        let real = directory.real.display();
        if self.tree.access(&directory.real) != Some(Access::Write) {
            return Err(format!(
                "it does not exist, and the jail may not write `{real}`; an empty file will do"
            ));
        }
        if let Some(link) = self.changeable(&directory) {
            let link = link.display();
            return Err(format!(
                "it leads through the symbolic link `{link}`, which a jail could change"
            ));
        }
        let path = directory.real.join(name);
        // What home.protect of others than the site names is made all the same: the text over it is
        // read-only, and without it a command could make the file.
        if self.hides.rule_for(&path).is_some() || self.is_protected_by_site(&path) {
            return Err(
                "it does not exist, and the policy hides it or the site protects it".to_owned(),
            );
        }
        self.keeping.makes.push(Make::File {
            path: path.clone(),
            text: String::new(),
            why: why(injected),
        });
        Ok(path)
    }

    fn is_protected_by_site(&self, real: &Path) -> bool {
        let layers = self.policy.bounds.layers.iter();
        let mut rules = layers.flat_map(|layer| layer.home.protect.entries());
        rules.any(|rule| {
            let mut places = protected(rule, self.host, self.files).into_iter();
            places.any(|place| real.starts_with(real_as_far_as_it_exists(self.files, &place)))
        })
    }
}
