//! A feature of a jail that one backend has and another lacks, as data.

use serde::Serialize;

/// A feature that a jail lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MissingFeature {
    /// Its name, in words joined by hyphens.
    pub id: &'static str,
    /// What it means.
    pub kind: Kind,
    /// What is so instead, exactly.
    pub sentence: &'static str,
}

/// What it means that a feature is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something can be asked or done inside that the other backend keeps from the jail.
    Open,
    /// A feature of the policy's is missing. Nothing starts where somebody requires it.
    Required,
    /// Something does not work inside, or works otherwise. Nothing is open.
    Stricter,
}
