//! Policy files as they are written: the table of keys, where each value stands, and the only code
//! that reads configuration files. What the values mean is decided in [`crate::policy`], which
//! this module never looks at.

pub mod agent;
pub(crate) mod built_in;
pub mod diagnostic;
pub mod draft;
mod files;
mod index;
pub(crate) mod keys;
pub mod load;
pub mod parse;
pub mod pattern;
pub mod profiles;
mod request;
pub mod schema;
pub mod site;
pub mod source;
mod text;
pub mod when;
