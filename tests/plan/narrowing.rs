//! What a site enforces: the plan of any user's policy allows no more than the enforced layers do.

mod case;
mod oracle;
mod profile;
mod property;
mod protected;
mod rows;
mod starting;
mod values;
