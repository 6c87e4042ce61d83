//! Read-only files that programs with a profile are given, in the finished plan: what they hold, and the
//! variables and arguments that lead to them. Where they stand is decided with the mounts
//! (`mounts/injected_files.rs`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::instructions::{self, Maker};
use crate::config::source::Sourced;
use crate::env_vars;
use crate::host::files::{Files, Look};
use crate::plan::model::injected_files::{GIVEN, Holds, INSTRUCTIONS, Placed, UsersOwn, why};
use crate::plan::model::{Access, Mount, Omitted, Plan, Step, Variable};
use crate::policy::injected_files::{DIRECTORY, FILE, TEXT};
use crate::policy::{Clamped, Policy};
use bstr::ByteSlice;

/// The longest value of one variable or argument, in bytes. The kernel takes 128 KiB with the name
/// (`MAX_ARG_STRLEN`, execve(2)).
const LONGEST_WORD: usize = 96 << 10;

/// What a file holds, whole.
fn content(file: &Placed, text: &str) -> String {
    match &file.holds {
        Holds::Text(text) => text.clone(),
        Holds::Instructions(users) => {
            let mut all = text.to_owned();
            for UsersOwn { path, text } in users {
                let heading = instructions::USERS_OWN;
                all.push_str(&format!(
                    "\n# {heading} (`{path}`)\n\nThey hold within what stands above.\n\n{text}"
                ));
                if !text.ends_with('\n') {
                    all.push('\n');
                }
            }
            all
        }
    }
}

/// Fills in the contents, and puts the variables and arguments into the plan that lead to them.
pub(super) fn hand_out(plan: &mut Plan, policy: &Policy, in_job: bool) {
    let command = plan
        .command
        .first()
        .map(Path::new)
        .and_then(Path::file_name);
    let command = command.map(OsStr::to_owned);
    let mut injected_files = plan.injected_files.clone();
    let mut wished: Vec<(usize, Sourced<(String, String)>)> = Vec::new();
    for (number, file) in injected_files.files.iter().enumerate() {
        let each = file.injected.variables.iter();
        wished.extend(each.map(|variable| (number, variable.clone())));
        let claimed = file
            .injected
            .commands
            .iter()
            .any(|name| command.as_deref() == Some(name.as_ref()));
        if claimed && !in_job {
            let each = file.injected.arguments.iter();
            injected_files
                .arguments
                .extend(each.map(|word| (number, word.clone())));
        }
    }
    let mut files = injected_files.files.iter();
    if let Some(first) = files.position(|file| matches!(file.holds, Holds::Instructions(_))) {
        let source = injected_files.files[first].injected.source.clone();
        let pair = (env_vars::INSTRUCTIONS.to_owned(), FILE.to_owned());
        wished.push((first, Sourced::new(pair, source)));
    }
    for (number, wish) in wished {
        let (name, value) = &wish.value;
        if injected_files
            .variables
            .iter()
            .any(|(_, known, _)| known == name)
        {
            continue;
        }
        if let Some(withheld) = policy.bounds.withheld(name.as_bytes(), None) {
            let rule = withheld.rule.clone();
            plan.clamped.push(Clamped {
                key: injected_files.files[number].injected.key(),
                asked: Sourced::new(name.clone(), wish.source.clone()),
                allowed: rule.map(|rule| format!("none that {} `{rule}` matches", withheld.key)),
            });
            continue;
        }
        let known = plan
            .variables
            .iter()
            .find(|variable| variable.name == name.as_str());
        let replaced = name == env_vars::INSTRUCTIONS
            || known.is_none_or(|known| in_job && is_of_a_session(&known.value));
        if !replaced {
            plan.omitted.push(Omitted {
                path: format!("${name}"),
                reason: match injected_files.files[number].holds {
                    Holds::Instructions(_) => {
                        "it is set already and stays so: the agent is not told of its jail"
                    }
                    Holds::Text(_) => "it is set already and stays so",
                }
                .to_owned(),
                why: why(&injected_files.files[number].injected),
                loud: true,
            });
            continue;
        }
        plan.variables
            .retain(|variable| variable.name != name.as_str());
        plan.hidden_variables
            .retain(|variable| variable.name != name.as_str());
        plan.variables.push(Variable {
            name: name.into(),
            value: OsString::new(),
            why: why(&injected_files.files[number].injected),
        });
        injected_files
            .variables
            .push((number, name.clone(), value.clone()));
    }
    plan.variables
        .sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let words = vec![OsString::new(); injected_files.arguments.len()];
    if !words.is_empty() {
        plan.command.splice(1..1, words);
    }
    plan.injected_files = injected_files;
    render(plan, Maker::Mounts, &|place| place.to_path_buf());
}

/// Whether a value that a job brings was set by the session that it comes from.
fn is_of_a_session(value: &OsStr) -> bool {
    let value = value.as_bytes();
    [
        INSTRUCTIONS,
        GIVEN,
        "/own/instructions",
        "/own/given",
        instructions::OPENING,
        instructions::SITES_OWN,
    ]
    .iter()
    .any(|part| value.contains_str(part))
}

/// Writes everything anew for a jail of Landlock's, where `real` says what stands where. What a mount would
/// put over a file of the host's cannot be given: the file itself is shown, read-only.
pub fn moved(plan: &mut Plan, files: &dyn Files, real: &dyn Fn(&Path) -> PathBuf) {
    for number in 0..plan.injected_files.files.len() {
        let file = &plan.injected_files.files[number];
        let Some(at) = file.at.clone() else { continue };
        let mut over = plan.steps.iter().rev();
        let over = over.find(|step| step.at != at && at.starts_with(&step.at));
        if !matches!(over.map(|step| &step.mount), Some(Mount::Bind { .. })) {
            continue;
        }
        plan.omitted.push(Omitted {
            path: at.display().to_string(),
            reason: format!(
                "Landlock cannot show the text about the jail there; it is in ${}",
                env_vars::INSTRUCTIONS
            ),
            why: why(&file.injected),
            loud: true,
        });
        let found = match files.look(&at) {
            Look::Found(found) if found.real == at => Some(found),
            _ => None,
        };
        match (plan.steps.iter_mut().find(|step| step.at == at), found) {
            (Some(step), Some(found)) => {
                step.mount = Mount::Bind {
                    from: found.real,
                    access: Access::Read,
                    id: found.id,
                };
            }
            // One that is made first: the plan is made again then.
            _ => plan.steps.retain(|step| step.at != at),
        }
        plan.injected_files.files[number].at = None;
    }
    render(plan, Maker::Landlock, real);
}

fn render(plan: &mut Plan, maker: Maker, real: &dyn Fn(&Path) -> PathBuf) {
    let injected_files = plan.injected_files.clone();
    if injected_files.files.is_empty() {
        return;
    }
    let mut text = String::new();
    if !injected_files.preamble.is_empty() {
        let preamble = injected_files.preamble.trim_end();
        text = format!("{}\n\n{preamble}\n\n", instructions::SITES_OWN);
    }
    if injected_files.told {
        text += &instructions::compose(plan, injected_files.terms, maker);
    }
    let contents: Vec<String> = injected_files
        .files
        .iter()
        .map(|file| content(file, &text))
        .collect();
    for (file, content) in injected_files.files.iter().zip(&contents) {
        let places = [Some(&file.inside), file.at.as_ref()];
        for place in places.into_iter().flatten() {
            if let Some(Step {
                mount: Mount::File { content: held },
                ..
            }) = plan.steps.iter_mut().find(|step| step.at == *place)
            {
                *held = content.clone().into_bytes();
            }
        }
    }
    let led = |number: usize, written: &str| {
        let file = real(&injected_files.files[number].inside);
        let directory = file.parent().unwrap_or(Path::new("/"));
        let mut word = Vec::new();
        let mut rest = written;
        let marks = [
            (FILE, file.as_os_str().as_bytes()),
            (DIRECTORY, directory.as_os_str().as_bytes()),
            (TEXT, contents[number].as_bytes()),
        ];
        // From left to right, so that nothing that is put in is looked through again.
        while let Some((at, mark, stands_for)) = marks
            .iter()
            .filter_map(|(mark, stands_for)| Some((rest.find(mark)?, *mark, *stands_for)))
            .min_by_key(|(at, ..)| *at)
        {
            word.extend_from_slice(&rest.as_bytes()[..at]);
            word.extend(stands_for.iter().filter(|&&byte| byte != 0));
            rest = &rest[at + mark.len()..];
        }
        word.extend_from_slice(rest.as_bytes());
        let longest = word.len() <= LONGEST_WORD;
        longest.then(|| OsString::from_vec(word))
    };
    let mut left = Vec::new();
    for (number, name, written) in &injected_files.variables {
        let Some(variable) = plan
            .variables
            .iter_mut()
            .find(|one| one.name == name.as_str())
        else {
            continue;
        };
        match led(*number, written) {
            Some(value) => variable.value = value,
            None => left.push((*number, format!("${name}"))),
        }
    }
    for (at, (number, written)) in injected_files.arguments.iter().enumerate() {
        match (led(*number, written), plan.command.get_mut(at + 1)) {
            (Some(word), Some(place)) => *place = word,
            _ => left.push((*number, written.clone())),
        }
    }
    for (number, path) in left {
        let omitted = Omitted {
            path,
            reason: format!(
                "what it would hold is longer than {} KiB",
                LONGEST_WORD >> 10
            ),
            why: why(&injected_files.files[number].injected),
            loud: true,
        };
        if !plan.omitted.contains(&omitted) {
            plan.omitted.push(omitted);
        }
    }
}
