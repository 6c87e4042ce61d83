//! Why something of the jail's own stands at a place of the home, and stays for later sessions.

use std::path::{Path, PathBuf};

use super::change::{Change, Request, Ways, shell_word};
use super::{Explanation, Visibility};
use crate::config::source::Layer;
use crate::host::files::{Files, Look, real_as_far_as_it_exists};
use crate::plan::model::{Access, Mount, Plan, Step, Why};

/// Explains a path that names something in a kept directory, or one; `None`: it does not.
pub(super) fn judge(
    plan: &Plan,
    files: &dyn Files,
    asked: &Path,
    ways: &Ways<'_>,
) -> Option<Explanation> {
    let inside = inside(plan, files, asked)?;
    let over = plan.steps.iter().rev();
    let step = over
        .clone()
        .find(|step| inside.starts_with(&step.at))
        .filter(|step| !matches!(step.mount, Mount::Directory { .. }))?;
    let exists = matches!(files.look(asked), Look::Found(_));
    let why = step.why.clone();
    let (verdict, notes, change) = match &step.mount {
        Mount::Kept { from, .. } => {
            let mut notes = vec![in_store(plan, step, from)];
            if exists {
                let outside = "what stands there outside is not shown, and stays as it is";
                notes.push(outside.to_owned());
            }
            (Visibility::Kept, notes, share(step, &why, ways))
        }
        Mount::Bind { access, .. } => {
            let verdict = match access {
                Access::Write => Visibility::Writable,
                Access::Read => Visibility::ReadOnly,
            };
            let note = "your own, in a directory that is the jail's own".to_owned();
            let text = "to change it: the profile names it in [profile.state], or a list of the policy gives it";
            (verdict, vec![note], Change::by(text.to_owned()))
        }
        _ => {
            let text = "the jail puts it there for each session";
            (Visibility::Private, Vec::new(), Change::never(text))
        }
    };
    Some(Explanation {
        subject: asked.display().to_string(),
        real: (inside != asked).then_some(inside),
        exists,
        verdict,
        why,
        notes,
        change,
    })
}

/// The place inside of what is asked about, if it is kept or lies below something kept: links that the
/// host has at kept places and below them lead nowhere inside.
fn inside(plan: &Plan, files: &dyn Files, asked: &Path) -> Option<PathBuf> {
    plan.kept().next()?;
    asked.ancestors().find_map(|at| {
        let (parent, name) = (at.parent()?, at.file_name()?);
        let place = real_as_far_as_it_exists(files, parent).join(name);
        let rest = asked.strip_prefix(at).ok()?;
        let is_kept = plan.kept().any(|(kept, _)| *kept == *place);
        is_kept.then(|| rest.iter().fold(place, |at, part| at.join(part)))
    })
}

fn in_store(plan: &Plan, step: &Step, from: &Path) -> String {
    let Some(store) = &plan.keeping.store else {
        let stores = plan.keeping.stores.display();
        return format!("kept for each project of its own in `{stores}`");
    };
    let shown = match from.starts_with(store) {
        true => from.display(),
        false => step.at.display(),
    };
    format!("kept for this project in `{shown}`")
}

/// How to get what the user has.
fn share(step: &Step, why: &Why, ways: &Ways<'_>) -> Change {
    let config = ways.config;
    let layer = match why {
        Why::Rule { source, .. } => Some(source.layer),
        Why::Every(_) => None,
    };
    // A profile's lists have it from [profile.state], as a rule.
    if layer == Some(Layer::Profile) {
        let text = format!(
            "to share your own with all projects, inside and outside: agents.state = \"shared\" in {config}, or \
             --set agents.state=shared for one run"
        );
        return ways.unless_forbidden(text, &[Request::Key("agents.state")]);
    }
    let at = step.at.display().to_string();
    let text = format!(
        "to have your own there: add `{at}` to home.write in {config}, or use --write {} for one run",
        shell_word(&at)
    );
    ways.unless_forbidden(text, &[Request::Give(&step.at, Access::Write)])
}
