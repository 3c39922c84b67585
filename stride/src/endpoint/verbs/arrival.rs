//! Detects whether any plain write over an unreliable transport has arrived.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::contents;
use super::worker_resources::WorkerResources;
use crate::plan::Plan;
use crate::stats::{Bandwidth, Figures};

/// How long to wait for late messages after the peer's last message.
const LATE: Duration = Duration::from_secs(1);
/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(20);

/// Returns the time at which to stop waiting for late messages. After a step that was cut short, the time limit starts
/// at the beginning of the step, because the first messages of the step would have arrived by now.
pub(super) fn end(began: Option<Instant>, was_cut: bool) -> Instant {
    began.filter(|_| was_cut).unwrap_or_else(Instant::now) + LATE
}

/// Determines for each port whether any write of the peer arrives before `end`. Each port has `threads` threads. Stops
/// waiting when `report` returns `false`.
pub(super) fn awaited(
    resources: &[WorkerResources],
    threads: usize,
    size: u64,
    end: Instant,
    report: &mut dyn FnMut() -> bool,
) -> Result<Vec<bool>> {
    let ports: Vec<_> = resources.chunks(threads.max(1)).collect();
    let mut come = vec![false; ports.len()];
    loop {
        let mut goes_on = Instant::now() < end;
        for (has_come, resources) in come.iter_mut().zip(&ports) {
            for worker in *resources {
                *has_come = *has_come || contents::has_come(worker, size)?;
                // Reports to the peer during the check, because it may take long: there may be many queue pairs, and
                // reading their memory may be slow.
                goes_on &= report();
            }
        }
        if !goes_on || come.iter().all(|has_come| *has_come) {
            return Ok(come);
        }
        thread::sleep(LOOK);
    }
}

/// Records in the figures of a side over which ports nothing arrived.
pub(super) fn marked(figures: Option<Figures>, plan: &Plan, come: &[bool]) -> Option<Figures> {
    if come.iter().all(|has_come| *has_come) {
        return figures;
    }
    let mut own = match figures {
        Some(Figures::Bandwidth(own)) => own,
        Some(Figures::Latency(_)) | None => Bandwidth::default(),
    };
    if plan.ports() > 1 {
        own.ports.resize(come.len(), Bandwidth::default());
        let dead = own.ports.iter_mut().zip(come).filter(|(_, has_come)| !**has_come);
        dead.for_each(|(port, _)| port.arrived = Some(0));
    }
    if come.iter().all(|has_come| !has_come) {
        own.arrived = Some(0);
    }
    Some(Figures::Bandwidth(own))
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::VerbsEndpoint;
    use super::*;
    use crate::endpoint::{Endpoint, Path, Role};
    use crate::plan::{Placement, QpAttributes, RunLength, SideConfig, Transport, Workload};

    #[test]
    fn ports_without_arrivals_are_marked() {
        let of = |plan: &Plan, figures, come: &[bool]| match marked(figures, plan, come) {
            Some(Figures::Bandwidth(all)) => {
                (all.messages, all.arrived, all.ports.iter().map(|port| port.arrived).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
        let mut plan = Plan::default();
        let own = Bandwidth { messages: 7, ..Bandwidth::default() };
        assert_eq!(of(&plan, Some(Figures::Bandwidth(own.clone())), &[false]), (7, Some(0), vec![]));
        assert_eq!(of(&plan, Some(Figures::Bandwidth(own)), &[true]), (7, None, vec![]));
        plan.placement.client.others.push(crate::plan::PortSelector::default());
        assert_eq!(of(&plan, None, &[false, false]), (0, Some(0), vec![Some(0); 2]));
        assert_eq!(of(&plan, None, &[true, false]), (0, None, vec![None, Some(0)]));
        assert_eq!(marked(None, &plan, &[true, true]), None);
    }

    #[test]
    fn wait_ends_early_if_nothing_more_can_arrive() {
        let config = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
        let amount = RunLength::Messages { count: 1, warm_up: 0 };
        let plan = Plan {
            attributes: QpAttributes { transport: Transport::Uc, ..QpAttributes::default() },
            workload: Workload { amount, sizes: vec![8], ..Workload::default() },
            ..Plan::default()
        };
        let plan = Plan { placement: Placement { client: config.clone(), server: config, ..plan.placement }, ..plan };
        let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
        let mut side = VerbsEndpoint::open(&plan, &plan.placement.server, Role::Server).unwrap();
        side.create_queue_pairs(&path).unwrap();
        side.prepare(8).unwrap();
        let looked = |end, goes_on| {
            let began = Instant::now();
            let come = awaited(&side.resources, 1, 8, end, &mut || goes_on).unwrap();
            assert_eq!(come, [false]);
            began.elapsed()
        };
        let now = Instant::now();
        assert!(looked(now + Duration::from_millis(200), true) >= Duration::from_millis(190));
        // If the peer has disconnected or the step was ended, the wait ends early.
        assert!(looked(now + LATE * 100, false) < LATE);
        let ago = now.checked_sub(LATE * 2).unwrap();
        assert!(end(Some(ago), true) < now && end(Some(ago), false) > now && end(None, true) > now);
        assert!(looked(end(Some(ago), true), true) < LATE);
    }
}
