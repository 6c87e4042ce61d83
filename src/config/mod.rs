//! Policy files as they are written: where each value stands, the raw schema, and the only code
//! that reads configuration files. What the values mean is decided in [`crate::policy`], which
//! this module never looks at.

pub mod agent;
mod built_in;
pub mod diagnostic;
mod index;
pub mod load;
pub mod parse;
pub mod pattern;
pub mod profiles;
pub mod schema;
pub mod site;
pub mod source;
pub mod when;
