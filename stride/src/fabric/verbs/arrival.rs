//! Whether anything has arrived of writes of which nobody is told.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::contents;
use super::corner::Corner;
use crate::fabric::Glimpse;
use crate::plan::Plan;
use crate::stats::{Bandwidth, Figures};

/// For so long it is waited for what may still come.
const LATE: Duration = Duration::from_secs(1);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Whether anything of what the other side has written has come, or does within a moment: what it has sent may still be on its way.
pub(super) fn awaited(corners: &[Corner], size: u64, tell: &mut dyn FnMut(Glimpse<'_>) -> bool) -> Result<bool> {
    let end = Instant::now() + LATE;
    loop {
        for corner in corners {
            if contents::has_come(corner, size)? {
                return Ok(true);
            }
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        // The other side hears of this one meanwhile. It is over, whatever is said to that.
        tell(Glimpse { done: 1.0, intervals: &[] });
        thread::sleep(LOOK);
    }
}

/// The figures of a side to which nothing has come, over any of its ports.
pub(super) fn none(figures: Option<Figures>, plan: &Plan) -> Figures {
    let own = match figures {
        Some(Figures::Bandwidth(own)) => own,
        Some(Figures::Latency(_)) | None => Bandwidth::default(),
    };
    let nothing = |own: Bandwidth| Bandwidth { arrived: Some(0), ..own };
    let mut ports = own.ports.clone();
    if plan.ports() > 1 {
        ports.resize(plan.ports() as usize, Bandwidth::default());
    }
    Figures::Bandwidth(Bandwidth { ports: ports.into_iter().map(nothing).collect(), ..nothing(own) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_come_over_any_port() {
        let of = |plan: &Plan, figures| match none(figures, plan) {
            Figures::Bandwidth(all) => (all.messages, all.arrived, all.ports.iter().map(|port| port.arrived).collect()),
            Figures::Latency(latency) => panic!("{latency:?}"),
        };
        let mut plan = Plan::example();
        let own = Bandwidth { messages: 7, ..Bandwidth::default() };
        assert_eq!(of(&plan, Some(Figures::Bandwidth(own))), (7, Some(0), vec![]));
        plan.client.others.push(crate::plan::Spot::default());
        assert_eq!(of(&plan, None), (0, Some(0), vec![Some(0); 2]));
    }
}
