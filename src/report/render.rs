//! An error as a person reads it.

use crate::config::diagnostic::ConfigError;
use crate::failure::{Failure, one_line};
use crate::plan::PlanError;

/// `error:` with the chain of causes on one line, then a `hint:` line each.
pub fn render(error: &anyhow::Error) -> String {
    let (message, hints) = parts(error);
    let mut text = format!("error: {message}\n");
    for hint in hints {
        text.push_str(&format!("hint: {hint}\n"));
    }
    text
}

/// An error as its message and the ways out. Lines of its own has only what shows a place in a policy:
/// names in everything else may hold a newline, and come from the project.
pub fn parts(error: &anyhow::Error) -> (String, Vec<String>) {
    let mut message = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !message.is_empty() {
            message.push_str(": ");
        }
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        match cause.is::<ConfigError>() {
            true => message.push_str(text),
            false => message.push_str(&one_line(text.trim_end())),
        }
    }
    let mut hints: Vec<&str> = Vec::new();
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            hints.extend(failure.hints.iter().map(String::as_str));
        }
        hints.extend(
            cause
                .downcast_ref::<ConfigError>()
                .and_then(ConfigError::hint),
        );
        hints.extend(
            cause
                .downcast_ref::<PlanError>()
                .and_then(PlanError::hint_text),
        );
    }
    let hints = hints.into_iter().map(one_line).collect();
    (message.trim_end().to_owned(), hints)
}
