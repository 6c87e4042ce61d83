//! What makes jobs and steps: sbatch, srun and salloc. Each builds a [`submission::Submission`] and takes
//! it from stage to stage; there is no other way to start a real command that gets a job.

mod capsule;
mod directory;
mod export;
mod mark;
mod multi_prog;
mod no_job;
mod own_words;
pub(super) mod salloc;
pub(super) mod sbatch;
pub(super) mod srun;
mod streams;
mod submission;
mod target;
