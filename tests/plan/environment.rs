//! The environment, by the built-in policy: what the tracer hides in command lines is hidden there, too.

use agent_sandbox_secrets::{keys, names};

use crate::host::plain;
use crate::scenario::Scenario;

/// Names of those variables that the built-in policy lets pass.
fn passing(variables: &[(String, String)]) -> Vec<String> {
    let tree = plain();
    let add = |scenario: Scenario, (name, value): &(String, String)| scenario.variable(name, value);
    let plan = variables
        .iter()
        .fold(Scenario::new(tree), add)
        .plan()
        .unwrap();
    let hidden = |name: &str| {
        plan.hidden_variables
            .iter()
            .any(|variable| variable.name == name)
    };
    let names = variables.iter().map(|(name, _)| name.clone());
    names.filter(|name| !hidden(name)).collect()
}

#[test]
fn keys_of_every_service_are_hidden_by_their_beginning() {
    let begins = keys::KEYS.iter().flat_map(keys::Key::begins);
    let value = |(number, begins): (usize, &str)| {
        let value = format!("{begins}{}", "A1b2.C3d4.E5f6".repeat(3));
        (format!("LAB_{number}"), value)
    };
    let mut variables: Vec<(String, String)> = begins.enumerate().map(value).collect();
    variables.push(("LAB_OTHER".into(), "B1b2.C3d4.E5f6".into()));
    assert_eq!(passing(&variables), ["LAB_OTHER"]);
}

#[test]
fn variables_that_are_named_like_a_secret_are_hidden() {
    let words = names::STEMS.split(' ').chain(names::WORDS.split(' '));
    let words = words.map(str::to_uppercase);
    let keys = names::KEYS
        .split(' ')
        .map(|word| format!("{}_KEY", word.to_uppercase()));
    let others = ["SETTING", "TOKENIZER", "AUTHOR", "KEYBOARD"];
    let all = words.chain(keys).chain(others.map(String::from));
    let variables: Vec<(String, String)> = all
        .map(|word| (format!("LAB_{word}"), "x".to_string()))
        .collect();
    assert_eq!(
        passing(&variables),
        others.map(|word| format!("LAB_{word}"))
    );
}
