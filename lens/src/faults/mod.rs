//! Faults: which calls and requests fail, and how.

mod completion;
mod pair;
mod schedule;
mod timer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::names;
use crate::state::{self, FAULTS};
use crate::trace::{self, Call};
use pair::Turn;
use schedule::{Action, HowOften, Place, Queue};

pub(crate) use completion::{Completed, Fate, alters_completions, delays_completions, fate, trace_fate};
pub(crate) use pair::{OfPair, OfShared};
pub use schedule::{Schedule, ScheduleError};
pub(crate) use timer::{Wake, wake_at};

static PLAN: RwLock<Option<Arc<Plan>>> = RwLock::new(None);

/// Devices that take commands from a schedule, such as those of softrnic.
pub trait Devices: Send + Sync {
    /// Whether the devices understand a command; the error names what is wrong with it.
    ///
    /// # Errors
    ///
    /// What is wrong.
    fn check(&self, command: &str) -> Result<(), String>;

    /// Carries a command out. It may be called by any thread of the program before it posts.
    ///
    /// # Errors
    ///
    /// Why it cannot be carried out.
    fn run(&self, command: &str) -> Result<(), String>;
}

/// A schedule that is in force.
struct Plan {
    seed: u64,
    schedule: Schedule,
    devices: Option<Box<dyn Devices>>,
    /// How often the place of each fault was reached.
    reached: Vec<AtomicU64>,
}

/// Puts a schedule into force. Queue pairs are counted from now on.
pub(crate) fn start(
    schedule: Schedule,
    seed: u64,
    devices: Option<Box<dyn Devices>>,
    wake: Wake,
) -> Result<(), DeviceError> {
    for (line, command) in schedule.commands() {
        let checked = devices.as_ref().map_or_else(|| Err(NO_DEVICES.to_owned()), |devices| devices.check(command));
        checked.map_err(|reason| DeviceError { line, command: command.to_owned(), reason })?;
    }
    let times = schedule.times();
    let reached = schedule.0.iter().map(|_| AtomicU64::new(0)).collect();
    pair::start();
    let (is_empty, delays) = (schedule.is_empty(), schedule.delays_completions());
    completion::ALTERS.store(schedule.alters_completions(), Ordering::Relaxed);
    completion::DELAYS.store(delays, Ordering::Relaxed);
    *PLAN.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(Plan { seed, schedule, devices, reached }));
    if !is_empty {
        state::switch_on(FAULTS);
    }
    if times.is_empty() && !delays { Ok(()) } else { timer::start(times, wake) }
}

const NO_DEVICES: &str = "no devices take commands: run the program by softrnic-run, or give `Builder::devices`";

/// A command of a schedule cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `device {command}`: {reason}")]
#[non_exhaustive]
pub struct DeviceError {
    /// The line of the schedule.
    pub line: usize,
    /// The command.
    pub command: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// Carries a command out, and traces it.
fn command(plan: &Plan, command: &str) {
    let result = plan.devices.as_ref().map_or_else(|| Err(NO_DEVICES.to_owned()), |devices| devices.run(command));
    trace_injected("device", vec![("command".to_owned(), command.to_owned())], result.err());
}

/// Traces a fault of a queue pair.
fn trace_fault(pair: &OfPair, fault: String, error: Option<String>) {
    let qp = format!("qp {:#x}", pair.number());
    trace_injected("fault", vec![("qp".to_owned(), qp), ("fault".to_owned(), fault)], error);
}

fn trace_injected(verb: &'static str, arguments: Vec<(String, String)>, error: Option<String>) {
    if state::on() & state::TRACE != 0 {
        let (at, thread) = (state::now(), state::thread());
        trace::call(Call { at, thread, verb, arguments, result: String::new(), error, is_injected: true });
    }
}

/// Ends the faults. While completions are held back, polls must still find them: then the faults stay switched on, without
/// a schedule.
pub(crate) fn stop(holds_completions: impl Fn() -> bool) {
    timer::stop();
    completion::ALTERS.store(false, Ordering::Relaxed);
    completion::DELAYS.store(false, Ordering::Relaxed);
    *PLAN.write().unwrap_or_else(PoisonError::into_inner) = None;
    rest(holds_completions);
}

/// Whether there is a schedule.
pub(crate) fn are_in_force() -> bool {
    PLAN.read().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Switches the faults off, if there is no schedule and no completion is held back.
pub(crate) fn rest(holds_completions: impl Fn() -> bool) {
    // A schedule that is put into force meanwhile switches them on afterwards.
    let plan = PLAN.read().unwrap_or_else(PoisonError::into_inner);
    if plan.is_none() && !holds_completions() {
        state::switch_off(FAULTS);
        // A poll that began before may have held one back meanwhile.
        if holds_completions() {
            state::switch_on(FAULTS);
        }
    }
}

/// A completion is held back: the faults stay on, even if the schedule has just ended.
pub(crate) fn stay() {
    state::switch_on(FAULTS);
}

fn plan() -> Option<Arc<Plan>> {
    PLAN.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Plan {
    /// The action of the first fault whose turn it is, of those at a place and with an action of a kind.
    fn action(&self, is_at: impl Fn(&Place) -> bool, is_kind: impl Fn(&Action) -> bool) -> Option<Action> {
        self.action_of(None, is_at, is_kind)
    }

    /// As [`action`](Self::action). The chances of a queue pair depend on its place in the order of creation and on the
    /// number of calls that posted to it, so that other threads do not change them.
    fn action_of(
        &self,
        pair: Option<(u32, u64)>,
        is_at: impl Fn(&Place) -> bool,
        is_kind: impl Fn(&Action) -> bool,
    ) -> Option<Action> {
        let mut chosen = None;
        for (index, (fault, reached)) in self.schedule.0.iter().zip(&self.reached).enumerate() {
            if !is_at(&fault.place) || !is_kind(&fault.action) {
                continue;
            }
            let before = reached.fetch_add(1, Ordering::Relaxed);
            let is_due = match fault.how_often {
                HowOften::After(count) => before == count,
                HowOften::Each => true,
                HowOften::Chance(chance) => {
                    let (nth, occurrence) = pair.map_or((0, before), |(nth, posts)| (nth, posts));
                    share(self.seed, index as u64 | u64::from(nth) << 32, occurrence) < chance
                }
            };
            if is_due && chosen.is_none() {
                chosen = Some(fault.action.clone());
            }
        }
        chosen
    }
}

/// A number from zero to one that depends on nothing else: a schedule, a seed and a sequence of calls give the faults.
fn share(seed: u64, fault: u64, occurrence: u64) -> f64 {
    // SplitMix64 of the three numbers.
    let mut mixed = seed ^ fault.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ occurrence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ mixed >> 30).wrapping_mul(factor);
    }
    (mixed ^ mixed >> 31) as f64 / u64::MAX as f64
}

fn is_of(place: &Queue, pair: &OfPair) -> bool {
    match place {
        Queue::Any => true,
        Queue::Nth(nth) => pair.nth() == *nth,
        Queue::Numbered(number) => pair.number() == *number,
        Queue::Shared(_) => false,
    }
}

fn errno_of(action: Option<Action>) -> Option<i32> {
    match action {
        Some(Action::Fail(code)) => Some(code),
        _ => None,
    }
}

/// Whether a line means `verb`: also in the variant that the header or the program uses in its place.
fn is_verb(name: &str, verb: &str) -> bool {
    verb.trim_start_matches('_').strip_prefix(name).is_some_and(|rest| matches!(rest, "" | "_ex" | "_iova" | "_iova2"))
}

/// The errno value with which a call of `verb` fails.
pub(crate) fn refuse_call(verb: &str) -> Option<i32> {
    errno_of(plan()?.action(|place| matches!(place, Place::Calls(name) if is_verb(name, verb)), |_| true))
}

/// The errno value with which a call that posts send requests fails.
pub(crate) fn refuse_post(pair: &OfPair) -> Option<i32> {
    let is_at = |place: &Place| matches!(place, Place::Posts(of) if is_of(of, pair));
    errno_of(plan()?.action_of(Some(pair.turn(Turn::Post)), is_at, |action| matches!(action, Action::Fail(_))))
}

/// The errno value with which a call that posts receives fails.
pub(crate) fn refuse_receive(pair: &OfPair) -> Option<i32> {
    let is_at = |place: &Place| matches!(place, Place::Receives(of) if is_of(of, pair));
    errno_of(plan()?.action_of(Some(pair.turn(Turn::Receive)), is_at, |_| true))
}

/// The errno value with which a call that posts receives to a shared queue fails.
pub(crate) fn refuse_shared(shared: &OfShared) -> Option<i32> {
    let is_at = |place: &Place| matches!(place, Place::Receives(Queue::Shared(nth)) if shared.nth() == *nth);
    errno_of(plan()?.action_of(Some(shared.turn()), is_at, |_| true))
}

/// What the event of the connection manager is reported as.
pub(crate) fn report(event: u32) -> Option<u32> {
    match plan()?.action(|place| *place == Place::Events(event), |_| true) {
        Some(Action::Report(other)) => Some(other),
        _ => None,
    }
}

/// Traces that an event is reported as another one.
pub(crate) fn trace_report(from: u32, to: u32) {
    let (from, to) = (names::cm_event(from), names::cm_event(to));
    trace_injected("fault", vec![("event".to_owned(), from), ("fault".to_owned(), format!("report {to}"))], None);
}

/// Called before a program posts: faults of the queue pair itself.
pub(crate) fn before_post(pair: &OfPair) {
    let Some(plan) = plan() else { return };
    let is_at = |place: &Place| matches!(place, Place::Posts(of) if is_of(of, pair));
    // The number of calls before this one, which `refuse_post` counts.
    match plan.action_of(Some(pair.turn_before(Turn::Post)), is_at, |action| !matches!(action, Action::Fail(_))) {
        Some(Action::Complete(status)) => {
            trace_fault(pair, format!("complete with {}", names::status(status)), None);
            pair.arm(status);
            // A device moves the queue pair there too, and the rest of its requests is flushed.
            pair.break_down();
        }
        Some(Action::Disconnect) => {
            let error = (!pair.has_id()).then(|| "the queue pair was not made by rdma_create_qp".to_owned());
            trace_fault(pair, "disconnect".to_owned(), error);
            pair.disconnect();
        }
        Some(Action::Device(text)) => command(&plan, &text),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(line: &str, seed: u64, count: usize) -> Vec<bool> {
        let schedule: Schedule = line.parse().unwrap();
        let reached = schedule.0.iter().map(|_| AtomicU64::new(0)).collect();
        let plan = Plan { seed, schedule, devices: None, reached };
        (0..count).map(|_| plan.action(|_| true, |_| true).is_some()).collect()
    }

    #[test]
    fn fault_is_due_once_after_its_count() {
        assert_eq!(due("after 2 posts: disconnect", 0, 5), [false, false, true, false, false]);
        assert_eq!(due("each post: disconnect", 0, 3), [true; 3]);
    }

    #[test]
    fn seed_decides_chances() {
        let first = due("10 % of posts: disconnect", 1, 10_000);
        assert_eq!(first, due("10 % of posts: disconnect", 1, 10_000));
        assert_ne!(first, due("10 % of posts: disconnect", 2, 10_000));
        let count = first.iter().filter(|is| **is).count();
        assert!((900..1100).contains(&count), "{count}");
        assert!(!due("0 % of posts: disconnect", 3, 100).contains(&true));
        assert!(!due("100 % of posts: disconnect", 3, 100).contains(&false));
    }
}
