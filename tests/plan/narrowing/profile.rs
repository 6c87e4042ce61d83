//! A profile as data: its state, what it gives, and sections of its own. Most are ones that a profile file
//! could hold; what is none is left away.

use agent_sandbox::config::load::parse;
use agent_sandbox::config::source::Layer;
use proptest::prelude::*;

const NAMES: [&str; 6] = [".ssh", "key", ".config", "work", "sub", "a"];

/// A path in the home, no pattern.
fn place() -> impl Strategy<Value = String> {
    let names = prop::collection::vec(prop::sample::select(&NAMES[..]), 1..4);
    names.prop_map(|names| format!("~/{}", names.join("/")))
}

fn entry() -> impl Strategy<Value = String> {
    prop::sample::select(&NAMES[..]).prop_map(|name| format!("~/{name}"))
}

/// A path below one of the directories, or any.
fn part(directories: Vec<String>) -> BoxedStrategy<String> {
    if directories.is_empty() {
        return place().boxed();
    }
    let within = (
        prop::sample::select(directories),
        prop::sample::select(&NAMES[..]),
    );
    prop_oneof![
        3 => within.prop_map(|(directory, name)| format!("{directory}/{name}")),
        1 => place(),
    ]
    .boxed()
}

/// The text of `[profile]`.
pub(super) fn text() -> impl Strategy<Value = String> {
    let directories = prop::collection::vec(place(), 0..3).prop_map(|all| {
        let mut chosen: Vec<String> = Vec::new();
        for one in all {
            let beside = |other: &String| {
                let (one, other) = (format!("{one}/"), format!("{other}/"));
                !one.starts_with(&other) && !other.starts_with(&one)
            };
            if chosen.iter().all(beside) {
                chosen.push(one);
            }
        }
        chosen
    });
    let rest = directories.prop_flat_map(|directories| {
        let parts = || prop::collection::vec(part(directories.clone()), 0..3);
        (
            Just(directories.clone()),
            prop::collection::vec(entry(), 0..2),
            parts(),
            parts(),
            prop::option::of((place(), part(directories.clone()))),
            prop::option::of(part(directories.clone())),
            prop::option::of(place()),
            prop::bool::ANY,
        )
    });
    rest.prop_map(|(directories, files, login, settings, seed, at, user, given)| {
        let state = format!(
            "[profile.state]\ndirectories = {directories:?}\nfiles = {files:?}\nlogin = {login:?}\n\
             settings = {settings:?}\n"
        );
        let variables = "[profile.state.variables]\nNEW = \"~/a\"\nCI_TOKEN = \"ghp_1\"\n".to_owned();
        let seed = seed.map(|(from, to)| {
            format!("[[profile.state.seed]]\nfrom = {from:?}\nto = {to:?}\nkeys = [\"k\"]\n")
        });
        let instructions = at.map(|at| {
            let user: Vec<String> = user.into_iter().collect();
            format!("[profile.instructions]\nname = \"T\"\nat = {at:?}\nuser = {user:?}\n")
        });
        let given = given.then(|| {
            "[[profile.given]]\nname = \"g\"\ntext = \"x\"\nvariables = { LANG = \"{file}\" }\n".to_owned()
        });
        let all = [Some(state), seed, Some(variables), instructions, given];
        let mut text = "[profile]\n".to_owned();
        for part in all.into_iter().flatten() {
            let longer = format!("{text}{part}");
            if parse(Layer::Profile, "tool.toml", &longer).is_ok() {
                text = longer;
            }
        }
        text
    })
}
