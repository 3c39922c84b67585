//! The shim's state, under one lock, and the path of every call.

use std::collections::BTreeMap;
use std::io::Error;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::events::ConnectionEvent;
use super::{effects, outputs};
use crate::recording::{Answer, Call, Kind, Script, Spoil, set_errno, verb};

/// Held by the test that uses the shim.
pub(super) static ONE: Mutex<()> = Mutex::new(());
pub(super) static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

type Instead = Box<dyn FnOnce(&[u64]) -> c_int + Send>;
type Rewrite = Box<dyn FnOnce(&mut ffi::rdma_cm_event) -> c_int + Send>;

#[derive(Default)]
pub(super) struct State {
    pub(super) calls: Vec<Call>,
    pub(super) failable: u32,
    pub(super) script: Script,
    pub(super) spoil: Spoil,
    pub(super) violations: Vec<String>,
    /// By address.
    pub(super) live: BTreeMap<usize, Kind>,
    /// The calls that run on an identifier, and whether each writes it.
    pub(super) running: BTreeMap<usize, Vec<(&'static str, bool)>>,
    pub(super) instead: Vec<(&'static str, Instead)>,
    pub(super) rewrite: Option<Rewrite>,
    pub(super) only_raised: bool,
    /// Events to raise, by the number that softrnic's event carries.
    pub(super) raised: BTreeMap<u64, ConnectionEvent>,
    /// Events to raise on a channel, by its address, once softrnic's next one is read there.
    pub(super) behind: Vec<(usize, ConnectionEvent)>,
    /// Events that were read, as softrnic created them.
    pub(super) originals: BTreeMap<usize, super::events::Original>,
}

pub(super) fn lock() -> MutexGuard<'static, State> {
    // A panicking test holds the lock only in its own closures, which leave the state consistent.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs a call of the C function `name`, and then makes it fail or forwards it.
pub(super) fn call<R: Answer>(name: &'static str, arguments: &[(&'static str, u64)], forward: impl FnOnce() -> R) -> R {
    let verb = verb(name);
    let numbers: Vec<u64> = arguments.iter().map(|(_, number)| *number).collect();
    let id = effects::identifier(verb, &numbers);
    let mut state = lock();
    let at = state.calls.len();
    let mut logged = arguments.to_vec();
    logged.extend(effects::details(verb, &numbers));
    state.calls.push(Call { verb, arguments: logged, failed: None });
    if R::CAN_FAIL {
        state.failable += 1;
        if let Some(failure) = state.script.next(verb) {
            state.calls[at].failed = Some(failure.errno());
            return R::failed(verb, failure);
        }
    }
    let own = state.instead.iter().position(|(name, _)| *name == verb).map(|at| state.instead.remove(at).1);
    if let Some(own) = own {
        drop(state);
        return R::from_test(own(&numbers));
    }
    state.begin(verb, id);
    effects::before(&mut state, verb, &numbers);
    drop(state);
    let mut result = forward();
    let errno = Error::last_os_error().raw_os_error().unwrap_or(0);
    let mut state = lock();
    state.end(verb, id);
    if result.is_failure() {
        // Other threads may have made calls after this one.
        if let Some(call) = state.calls.iter_mut().rev().find(|call| call.verb == verb && call.failed.is_none()) {
            call.failed = Some(errno);
        }
        effects::failed(&mut state, verb, &numbers);
    } else {
        effects::after(&mut state, verb, &numbers, result.object());
        outputs::spoil(&mut state.spoil, verb, &numbers);
        if let Some(port) = result.port() {
            // SAFETY: any bytes are a value of the number.
            unsafe { state.spoil.output("a port", port) };
        }
    }
    drop(state);
    set_errno(errno);
    result
}

impl State {
    pub(super) fn violation(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    fn begin(&mut self, verb: &'static str, id: Option<(usize, bool)>) {
        let Some((id, writes)) = id else { return };
        let running = self.running.entry(id).or_default();
        let other = running.iter().find(|(_, other)| writes || *other).map(|(verb, _)| *verb);
        running.push((verb, writes));
        if let Some(other) = other {
            self.violation(format!("{verb} on an identifier while {other} ran on it"));
        }
    }

    fn end(&mut self, verb: &'static str, id: Option<(usize, bool)>) {
        let Some(running) = id.and_then(|(id, _)| self.running.get_mut(&id)) else { return };
        if let Some(at) = running.iter().position(|(other, _)| *other == verb) {
            running.remove(at);
        }
    }

    pub(super) fn made(&mut self, kind: Kind, object: usize) {
        if object != 0 {
            self.live.insert(object, kind);
        }
    }

    pub(super) fn ended(&mut self, kind: Kind, object: usize) {
        // A context's own functions create queues, which the shim does not see.
        let is_seen = !matches!(kind, Kind::CompletionQueue | Kind::QueuePair | Kind::SharedReceiveQueue);
        if self.live.get(&object) == Some(&kind) {
            self.live.remove(&object);
        } else if is_seen {
            self.violation(format!("a {kind:?} that does not exist was released"));
        }
    }
}
