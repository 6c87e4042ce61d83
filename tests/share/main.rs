//! One jail for each job and node, as far as no jail is needed to try it: processes of this test
//! meet as the tasks of a job do.

#![allow(clippy::disallowed_methods)] // a test: files, processes, the clock
#![allow(clippy::unwrap_used)] // a test: its own set-up either works or fails the test

mod crowd;
mod join;
mod peer;
mod places;
mod world;
