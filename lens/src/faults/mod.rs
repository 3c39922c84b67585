//! Faults: which calls and requests fail, and how.

mod schedule;
mod timer;

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::{mem, ptr};

use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::front;

use crate::names;
use crate::state::{self, FAULTS};
use crate::trace::{self, Call};
use schedule::{Action, HowOften, Pair, Place};

pub use schedule::{Schedule, ScheduleError};

/// What a queue pair has for its faults.
#[derive(Debug)]
pub(crate) struct OfPair {
    number: AtomicU32,
    address: AtomicPtr<ffi::ibv_qp>,
    /// Its place in the order of creation.
    nth: AtomicU32,
    /// The status of the next completion with an error; zero for none.
    status: AtomicU32,
    /// How often the program posted to it, sends and receives.
    posts: [AtomicU64; 2],
    /// Its identifier of librdmacm, if it has one.
    id: AtomicPtr<ffi::rdma_cm_id>,
}

static MADE: AtomicU32 = AtomicU32::new(0);
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

impl OfPair {
    pub(crate) const fn new() -> Self {
        Self {
            number: AtomicU32::new(0),
            address: AtomicPtr::new(ptr::null_mut()),
            nth: AtomicU32::new(0),
            status: AtomicU32::new(0),
            posts: [AtomicU64::new(0), AtomicU64::new(0)],
            id: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(crate) fn start(&self, qp: *mut ffi::ibv_qp, number: u32) {
        self.number.store(number, Ordering::Relaxed);
        self.address.store(qp, Ordering::Relaxed);
        self.nth.store(MADE.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.status.store(0, Ordering::Relaxed);
        self.posts.iter().for_each(|posts| posts.store(0, Ordering::Relaxed));
        self.id.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Its place in the order of creation, and how often the program posted before.
    fn turn(&self, side: usize) -> (u32, u64) {
        (self.nth.load(Ordering::Relaxed), self.posts[side].fetch_add(1, Ordering::Relaxed))
    }

    /// The queue pair has no requests any more.
    pub(crate) fn reset(&self) {
        self.status.store(0, Ordering::Relaxed);
    }

    /// Forgets the identifier, if it is this one.
    pub(crate) fn forget_id(&self, id: *mut ffi::rdma_cm_id) {
        let _ = self.id.compare_exchange(id, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn set_id(&self, id: *mut ffi::rdma_cm_id) {
        self.id.store(id, Ordering::Relaxed);
    }

    /// The status that the next completion of a request with an error gets in place of its own.
    pub(crate) fn next_status(&self) -> Option<ffi::ibv_wc_status> {
        let status = self.status.swap(0, Ordering::Relaxed);
        (status != 0).then_some(ffi::ibv_wc_status(status))
    }
}

/// Puts a schedule into force. Queue pairs are counted from now on.
pub(crate) fn start(schedule: Schedule, seed: u64, devices: Option<Box<dyn Devices>>) -> Result<(), DeviceError> {
    for (line, command) in schedule.commands() {
        let checked = devices.as_ref().map_or_else(|| Err(NO_DEVICES.to_owned()), |devices| devices.check(command));
        checked.map_err(|reason| DeviceError { line, command: command.to_owned(), reason })?;
    }
    let times = schedule.times();
    let reached = schedule.0.iter().map(|_| AtomicU64::new(0)).collect();
    MADE.store(0, Ordering::Relaxed);
    let is_empty = schedule.is_empty();
    *PLAN.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(Plan { seed, schedule, devices, reached }));
    if !is_empty {
        state::switch_on(FAULTS);
    }
    if times.is_empty() { Ok(()) } else { timer::start(times) }
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
    let qp = format!("qp {:#x}", pair.number.load(Ordering::Relaxed));
    trace_injected("fault", vec![("qp".to_owned(), qp), ("fault".to_owned(), fault)], error);
}

fn trace_injected(verb: &'static str, arguments: Vec<(String, String)>, error: Option<String>) {
    if state::on() & state::TRACE != 0 {
        let (at, thread) = (state::now(), state::thread());
        trace::call(Call { at, thread, verb, arguments, result: String::new(), error, is_injected: true });
    }
}

pub(crate) fn stop() {
    state::switch_off(FAULTS);
    timer::stop();
    *PLAN.write().unwrap_or_else(PoisonError::into_inner) = None;
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

fn is_of(place: &Pair, pair: &OfPair) -> bool {
    match place {
        Pair::Any => true,
        Pair::Nth(nth) => pair.nth.load(Ordering::Relaxed) == *nth,
        Pair::Numbered(number) => pair.number.load(Ordering::Relaxed) == *number,
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
    errno_of(plan()?.action_of(Some(pair.turn(0)), is_at, |action| matches!(action, Action::Fail(_))))
}

/// The errno value with which a call that posts receives fails.
pub(crate) fn refuse_receive(pair: &OfPair) -> Option<i32> {
    let is_at = |place: &Place| matches!(place, Place::Receives(of) if is_of(of, pair));
    errno_of(plan()?.action_of(Some(pair.turn(1)), is_at, |_| true))
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
    let turn = (pair.nth.load(Ordering::Relaxed), pair.posts[0].load(Ordering::Relaxed));
    match plan.action_of(Some(turn), is_at, |action| !matches!(action, Action::Fail(_))) {
        Some(Action::Complete(status)) => {
            trace_fault(pair, format!("complete with {}", names::status(status)), None);
            pair.status.store(status, Ordering::Relaxed);
            // A device moves the queue pair there too, and the rest of its requests is flushed.
            // SAFETY: the program posts to the queue pair, so it is live. The attributes are plain numbers.
            unsafe {
                let mut attr: ffi::ibv_qp_attr = mem::zeroed();
                attr.qp_state = ffi::ibv_qp_state::IBV_QPS_ERR;
                let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
                front::pass(|| ffi::ibv_modify_qp(pair.address.load(Ordering::Relaxed), &raw mut attr, mask));
            }
        }
        Some(Action::Disconnect) => {
            let id = pair.id.load(Ordering::Relaxed);
            let error = id.is_null().then(|| "the queue pair was not made by rdma_create_qp".to_owned());
            trace_fault(pair, "disconnect".to_owned(), error);
            if !id.is_null() {
                // SAFETY: the queue pair is live, and so is its identifier.
                unsafe { front::pass(|| ffi::rdma_disconnect(id)) };
            }
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
