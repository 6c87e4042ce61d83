//! Paths of a caller, resolved to objects that the mediator holds open.
