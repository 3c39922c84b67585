//! Faults of completions: what becomes of one that a device has reported.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdma_mummy_sys::ibv_wc_status;

use super::pair::Turn;
use super::schedule::{Action, Place, Queue};
use super::{OfPair, names, trace_injected};

/// What becomes of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The program gets it.
    Pass,
    /// The program gets it after this time.
    Delay(Duration),
    /// The program gets it after a completion of another queue.
    Reorder,
    /// The program does not get it.
    Lose,
    /// The program gets it with another status. With `is_first`, its queue pair enters the error state.
    Complete { status: ibv_wc_status, is_first: bool },
}

/// A completion of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub(crate) wr_id: u64,
    pub(crate) is_receive: bool,
    pub(crate) is_success: bool,
}

/// Whether the schedule in force has such faults, and whether it holds completions back for a time.
pub(super) static ALTERS: AtomicBool = AtomicBool::new(false);
pub(super) static DELAYS: AtomicBool = AtomicBool::new(false);

/// Whether completions take another course than that of the device.
pub(crate) fn alters_completions() -> bool {
    ALTERS.load(Ordering::Relaxed)
}

/// Whether completions are held back for a time, so that programs must be woken when it is over.
pub(crate) fn delays_completions() -> bool {
    DELAYS.load(Ordering::Relaxed)
}

fn is_at(place: &Place, pair: &OfPair, is_receive: bool) -> bool {
    match place {
        Place::Completions(Queue::Shared(nth)) => is_receive && pair.shared() == *nth,
        Place::Completions(queue) => super::is_of(queue, pair),
        _ => false,
    }
}

/// Decides about a completion that the device has just reported.
pub(crate) fn fate(pair: &OfPair, completed: Completed) -> Fate {
    let Completed { is_receive, is_success, .. } = completed;
    let Some(plan) = super::plan() else { return Fate::Pass };
    let is_kind = |action: &Action| is_success || !matches!(action, Action::Complete(_));
    let action = plan.action_of(Some(pair.turn(Turn::Completion)), |place| is_at(place, pair, is_receive), is_kind);
    if is_receive && is_success && pair.has_failed_receive() {
        // A device receives nothing after a failure.
        return Fate::Complete { status: ibv_wc_status::IBV_WC_WR_FLUSH_ERR, is_first: false };
    }
    match action {
        Some(Action::Delay(time)) => Fate::Delay(time),
        Some(Action::Reorder) => Fate::Reorder,
        Some(Action::Lose) => Fate::Lose,
        Some(Action::Complete(status)) => {
            pair.fail_receive();
            Fate::Complete { status: ibv_wc_status(status), is_first: true }
        }
        _ => Fate::Pass,
    }
}

/// Traces what became of a completion, or why this was not possible.
pub(crate) fn trace_fate(pair: &OfPair, fate: Fate, completed: Completed, error: Option<String>) {
    let text = match fate {
        Fate::Pass | Fate::Complete { is_first: false, .. } => return,
        Fate::Delay(time) => format!("delay {time:?}"),
        Fate::Reorder => "reorder".to_owned(),
        Fate::Lose => "lose".to_owned(),
        Fate::Complete { status, .. } => format!("complete with {}", names::status(status.0)),
    };
    let argument = |name: &str, text: String| (name.to_owned(), text);
    let kind = if completed.is_receive { "receive" } else { "request" };
    let arguments = vec![
        argument("qp", format!("qp {:#x}", pair.number())),
        argument("fault", text),
        argument("completion", format!("{kind} with wr_id {}", completed.wr_id)),
    ];
    trace_injected("fault", arguments, error);
}
