//! `[slurm.budget]` and `[slurm.confirm]` as the chaperon counts hours by them.

use agent_sandbox_wire::budget::{Budgets, Holder, HourLimit, Measure, Resource, Threshold};

use super::merged::{Policy, SlurmBudget, SlurmConfirm};
use crate::config::source::Sourced;

impl Policy {
    /// What bounds the hours of jobs, and which wait for the user's approval.
    pub fn budgets(&self) -> Budgets {
        let (budget, confirm) = (&self.slurm.budget, &self.slurm.confirm);
        Budgets {
            days: budget.days.value,
            limits: budget.limits(),
            thresholds: confirm.thresholds(),
            patience: confirm.wait_minutes.value,
        }
    }
}

/// A number that is a limit, and its place.
fn limit(number: &Sourced<u32>) -> Option<(u64, String)> {
    (number.value > 0).then(|| (number.value.into(), number.source.to_string()))
}

impl SlurmBudget {
    fn limits(&self) -> Vec<HourLimit> {
        use Holder::{Project, Session, User};
        use Resource::{Cpu, Gpu, Node};
        let all = [
            (Session, Cpu, &self.session_cpu_hours),
            (Session, Gpu, &self.session_gpu_hours),
            (Session, Node, &self.session_node_hours),
            (Project, Cpu, &self.project_cpu_hours),
            (Project, Gpu, &self.project_gpu_hours),
            (Project, Node, &self.project_node_hours),
            (User, Cpu, &self.cpu_hours),
            (User, Gpu, &self.gpu_hours),
            (User, Node, &self.node_hours),
        ];
        let all = all.into_iter().filter_map(|(holder, resource, number)| {
            let (hours, source) = limit(number)?;
            Some(HourLimit {
                holder,
                resource,
                hours,
                source,
            })
        });
        all.collect()
    }
}

impl SlurmConfirm {
    fn thresholds(&self) -> Vec<Threshold> {
        let all = [
            (Measure::Hours(Resource::Gpu), &self.gpu_hours),
            (Measure::Hours(Resource::Node), &self.node_hours),
            (Measure::Hours(Resource::Cpu), &self.cpu_hours),
            (Measure::Minutes, &self.minutes),
        ];
        let all = all.into_iter().filter_map(|(of, number)| {
            let (most, source) = limit(number)?;
            Some(Threshold { of, most, source })
        });
        all.collect()
    }
}
