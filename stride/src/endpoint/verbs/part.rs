//! What a side does in a step.

use crate::endpoint::Role;
use crate::plan::{self, Plan, Semantics};

/// Whether a side sends and receives in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) sends: bool,
    pub(super) receives: bool,
}

pub(super) fn part(plan: &Plan, role: Role) -> Part {
    let is_sender = if role == Role::Client { plan.client_sends() } else { plan.workload.direction.is_reversed() };
    let in_turn = matches!(plan.workload.measure, plan::Measure::Latency(Semantics::Oneway | Semantics::Rtt))
        && !plan.workload.operation.fetches();
    let both = in_turn || plan.workload.direction.is_both();
    let takes = plan.workload.operation.takes_receive();
    Part { sends: is_sender || both, receives: takes && (!is_sender || both) }
}
