//! Why there is no plan.

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    message: String,
    hint: Option<String>,
}

impl PlanError {
    /// A message, without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What the user can do about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}
