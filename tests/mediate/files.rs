//! Files of a guarded directory, by real processes under Landlock and the mediator: what may be done
//! there works as ever, what is closed stays closed, whatever way leads to it.

mod attacks;
mod races;
mod uses;
mod world;
