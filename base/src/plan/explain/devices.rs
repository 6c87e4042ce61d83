//! Device nodes: by `devices.allow` and `devices.deny`, by what the host has, and by the user's own
//! rights to the node.

use std::path::Path;

use super::change::{Change, Request, Ways, set_list};
use super::{Judged, Visibility};
use crate::config::source::{Layer, Sourced};
use crate::host::files::{Found, Kind};
use crate::plan::model::devices;
use crate::plan::model::{Mount, Plan, Why};
use crate::policy::PathSpec;

/// What bubblewrap puts into every `/dev` (`bwrap(1)`, `--dev`), and Landlock's rules give.
const EVERY: [&str; 12] = [
    "null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fd", "stdin", "stdout",
    "stderr",
];

/// Judges a path below `/dev`. The notes say what the node is.
pub(super) fn judge(
    plan: &Plan,
    asked: &Path,
    real: &Path,
    found: Option<&Found>,
    ways: &Ways<'_>,
) -> (Vec<String>, Judged) {
    let notes = found.map(described).unwrap_or_default();
    let below = asked.strip_prefix("/dev").ok();
    let first = below.and_then(|below| below.components().next());
    if first.is_some_and(|first| EVERY.iter().any(|name| first.as_os_str() == *name)) {
        let why = Why::Every("a minimal /dev");
        let change = Change::never("this is the same in every jail");
        return (Vec::new(), (Visibility::Private, why, change));
    }
    let over = plan
        .steps
        .iter()
        .rev()
        .find(|step| real.starts_with(&step.at));
    if let Some(step) = over
        && matches!(step.mount, Mount::Device { .. })
    {
        let change = Change::by(format!(
            "to take it away: add `{}` to devices.deny in {}, or use {} for one run",
            real.display(),
            ways.config,
            set_list("devices.deny", &real.display().to_string())
        ));
        return (notes, (Visibility::Device, step.why.clone(), change));
    }
    let both = [asked, real];
    if let Some(rule) = devices::rule(&ways.policy.devices.deny, &both) {
        return (notes, denied(rule));
    }
    if let Some(found) = found.filter(|found| found.kind != Kind::Device) {
        let kind = if found.kind == Kind::Directory {
            "it is a directory, and devices.allow takes device nodes"
        } else {
            "it is no device node, and nothing else of the host's /dev is shown"
        };
        let text = format!(
            "name nodes in devices.allow in {}: a `*` in the last part of the path stands for several",
            ways.config
        );
        return (
            notes,
            (Visibility::Absent, Why::Every(kind), Change::by(text)),
        );
    }
    if let Some(rule) = devices::rule(&ways.policy.devices.allow, &both) {
        let why = Why::rule("devices.allow", rule);
        if let Some(forbidden) = ways.forbidden(&Request::Device(real)) {
            return (notes, (Visibility::Absent, why, forbidden));
        }
        if !devices::gives(rule, real, plan.network.value) {
            let text = format!(
                "it reaches a network past every rule for hosts, so that it appears where network.mode is open; or name it in \
                 devices.allow in {}, or use {} for one run",
                ways.config,
                set_list("devices.allow", &real.display().to_string())
            );
            return (notes, (Visibility::Absent, why, Change::by(text)));
        }
        let change = match found {
            None => "it is allowed, and appears in the next launch on a host that has it",
            Some(_) => "it leads out of /dev, where nothing is shown as a device node",
        };
        return (notes, (Visibility::Absent, why, Change::never(change)));
    }
    let text = format!(
        "add `{}` to devices.allow in {}, or use {} for one run",
        real.display(),
        ways.config,
        set_list("devices.allow", &real.display().to_string())
    );
    let why = Why::Every("no rule of devices.allow names it");
    let change = ways.unless_forbidden(text, &[Request::Device(real)]);
    (notes, (Visibility::Absent, why, change))
}

/// `devices.deny` wins over what allows.
fn denied(rule: &Sourced<PathSpec>) -> Judged {
    let source = &rule.source;
    let change = match source.layer {
        Layer::User | Layer::Project | Layer::CommandLine => Change::by(format!(
            "take `{}` out of devices.deny ({source})",
            rule.value
        )),
        Layer::SiteEnforced => Change::forbidden("devices.deny", source),
        _ => Change::never(
            "it cannot be given: devices.deny wins over devices.allow, and no list takes a rule of the built-in or \
             the site's policy away",
        ),
    };
    (Visibility::Hidden, Why::rule("devices.deny", rule), change)
}

/// What the node is, and what the user may do with it. The jail gives no right that the user lacks.
fn described(found: &Found) -> Vec<String> {
    if found.kind != Kind::Device {
        return Vec::new();
    }
    let may = match found.readable {
        true => "you may read it",
        false => "your user may not read it, inside or outside",
    };
    vec![format!(
        "a device node, mode {:04o}, of uid {}; {may}",
        found.mode & 0o7777,
        found.uid
    )]
}
