//! What stands by a running jail, beside the supervisor.

use std::io::PipeReader;
use std::os::fd::OwnedFd;

use super::announcements::Announcements;
use super::begun::ToHand;
use super::cgroup::{Group, Wanted};
use super::deadline::Deadline;
use super::finish::Finish;
use super::forward::Forward;
use super::measured::Measured;
use super::network::Filter;
use super::on_call::OnCall;
use super::traced::Tracer;
use crate::backend::bubblewrap::mediator::Terms;
use crate::handoff::{Run, Service};
use crate::observe::recorder;

/// What stands by besides the supervisor.
#[derive(Default)]
pub struct Company {
    /// The way to Slurm.
    pub chaperon: Option<OnCall>,
    /// The ssh agent.
    pub ssh: Option<OnCall>,
    /// The filter of a network that is filtered.
    pub network: Option<Filter>,
    /// Ports that are forwarded.
    pub forward: Option<Forward>,
    /// What Slurm says about the job.
    pub announcements: Option<Announcements>,
    /// What the network's filter refuses, in a job.
    pub refused: Option<PipeReader>,
    /// Whether Slurm started the launcher.
    pub by_slurm: bool,
    /// The process without which the command must not go on: it becomes readable when that ends.
    pub parent: Option<OwnedFd>,
    /// What is left of building the jail.
    pub finish: Option<Finish>,
    /// What watches the command.
    pub recorder: Option<recorder::Shared>,
    /// What is said when the jail is there, right before the command starts.
    pub announcement: String,
    /// What the mediator beside the jail keeps to; `None`: there is none.
    pub mediated: Option<Terms>,
    /// The node's tracer, with the command for its trail, of a jail that is held until it is traced.
    pub tracer: Option<(Tracer, Vec<Vec<u8>>)>,
    /// What that is told of the session for root's audit record.
    pub begun: Option<ToHand>,
    /// The session, and what its cgroup is made for.
    pub wanted: Option<(String, Wanted)>,
    /// The limit of its memory, in words; empty: there is none of ours.
    pub memory: String,
    /// The session's cgroup, which goes with this.
    pub group: Option<Group>,
    /// When the command is ended.
    pub deadline: Deadline,
    /// Says, when [`super::supervisor::supervise`] has returned, whether the process below the launcher was killed.
    pub killed: bool,
    /// What [`super::supervisor::supervise`] measured.
    pub measured: Measured,
}

impl Company {
    /// What serves calls from inside.
    pub(super) fn serves(&mut self, service: Service) -> Option<&mut OnCall> {
        match service {
            Service::Slurm => self.chaperon.as_mut(),
            Service::SshAgent => self.ssh.as_mut(),
        }
    }

    /// Has a command held until the tracer traces it, its network is filtered and its ports are forwarded, if they are, and the
    /// announcement is made.
    pub fn hold(&mut self, run: &mut Run, tracer: Option<Tracer>) {
        run.lends_network = self.network.is_some() || self.forward.is_some();
        let limited = self
            .wanted
            .as_ref()
            .is_some_and(|(_, group)| group.required);
        let says = !self.announcement.is_empty();
        run.held = tracer.is_some() || run.lends_network || says || limited;
        self.tracer = tracer.map(|tracer| (tracer, run.argv.clone()));
    }
}
