//! The software NIC with a shim: each call of libibverbs and librdmacm is logged, fails on request, and is otherwise
//! forwarded to softrnic's functions.
//!
//! The shim is a provider in front of softrnic whose tables hold a forwarding function for each of softrnic's
//! (`forward`). Verbs are logged and fail under their names without `ibv_`, or with `rdma_`; function pointers of a
//! context or queue pair (posting, polling, `create_qp_ex`) are not.
//!
//! The shim tracks live objects ([`Shim::live`]) and violations ([`Shim::violations`]): an object that is released
//! twice, two calls on one identifier of which one writes it, an event that is never acknowledged.
//!
//! softrnic never produces some situations. [`Shim::raise`] adds an event of any content, [`Shim::rewrite`] changes the
//! next one, and [`Shim::instead`] replaces one call.
//!
//! The shim is not a user of rdma-lens, which stands at the same place: a lens does not replace calls or the contents of
//! events, does not detect violations, and only injects documented failures.
//!
//! Tests that use the shim run one at a time: the log belongs to the process.

mod effects;
mod events;
mod forward;
mod outputs;
mod state;

use std::sync::{Arc, MutexGuard, Once, PoisonError};

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::ibverbs::{Ibverbs, IbverbsTable};
use rdma_mummy_sys::load::provider::{Provider, ProviderId, register};
use rdma_mummy_sys::load::rdmacm::{Choice, Rdmacm, RdmacmTable, choose};
use sideway::rdmacm::communication_manager::EventChannel;

pub use events::{ConnectionEvent, ConnectionParameters};

use crate::recording::{Call, Failure, Kind, controls};
use state::{ONE, State};

/// The shim, for one test.
#[derive(Debug)]
pub struct Shim {
    _one: MutexGuard<'static, ()>,
}

/// An event channel of the shim.
///
/// # Panics
///
/// If the channel cannot be created.
#[track_caller]
pub fn channel() -> Arc<EventChannel> {
    EventChannel::new().unwrap_or_else(|error| panic!("{error}"))
}

impl Shim {
    /// Waits until no other test uses the shim, and starts with an empty log. A thread must not hold two shims.
    pub fn new() -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            softrnic::Builder::new()
                .device(crate::device::SOFT_DEVICE)
                .register()
                .expect("no other device is registered");
            let below = ProviderId::by_name("softrnic").expect("it was registered");
            let (ibverbs, rdmacm) = forward::tables(below);
            // SAFETY: each function does what softrnic's function of that name does, or fails as the manual page
            // documents.
            let shim = unsafe { register(Provider::new("shim", ibverbs).with_rdmacm(rdmacm).in_front_of(below)) };
            choose(Choice::Provider(shim.expect("the name is free")));
            // SAFETY: the tables are empty, so that the system has no devices. If a library is loaded, its devices are listed as well.
            unsafe {
                drop(Ibverbs::from_table(IbverbsTable::default()).install());
                drop(Rdmacm::from_table(RdmacmTable::default()).install());
            }
        });
        // A failed test leaves nothing that the next test reads.
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        *state::lock() = State::default();
        Self { _one: one }
    }

    controls!(self => state::lock());

    /// The next call of `verb` is not forwarded. Instead, `call` receives its arguments (pointers as addresses) and
    /// returns the result.
    pub fn instead(&self, verb: &'static str, call: impl FnOnce(&[u64]) -> c_int + Send + 'static) -> &Self {
        state::lock().instead.push((verb, Box::new(call)));
        self
    }

    /// Adds an event to a channel.
    ///
    /// # Panics
    ///
    /// If the channel is not live.
    pub fn raise(&self, channel: *mut ffi::rdma_event_channel, event: ConnectionEvent) -> &Self {
        events::raise(channel, event);
        self
    }

    /// Adds an event after softrnic's next event of the channel.
    pub fn raise_after_next(&self, channel: *mut ffi::rdma_event_channel, event: ConnectionEvent) -> &Self {
        state::lock().behind.push((channel.addr(), event));
        self
    }

    /// Changes the next event that is read; the result is the errno of the call.
    pub fn rewrite(&self, change: impl FnOnce(&mut ffi::rdma_cm_event) -> c_int + Send + 'static) -> &Self {
        state::lock().rewrite = Some(Box::new(change));
        self
    }

    /// Whether from now on only the events that a test raises are returned; softrnic's own are acknowledged and
    /// dropped.
    pub fn only_raised(&self, only: bool) -> &Self {
        state::lock().only_raised = only;
        self
    }

    /// The violations since the last query: actions that would crash a library.
    pub fn violations(&self) -> Vec<String> {
        std::mem::take(&mut state::lock().violations)
    }

    /// The kinds of all objects that were created and not released.
    pub fn live(&self) -> Vec<Kind> {
        let mut kinds: Vec<_> = state::lock().live.values().copied().collect();
        kinds.sort();
        kinds
    }
}

impl Default for Shim {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let mut state = state::lock();
        let unacknowledged = state.live.values().filter(|kind| **kind == Kind::ConnectionEvent).count();
        let violations = std::mem::take(&mut state.violations);
        drop(state);
        if !std::thread::panicking() {
            assert!(violations.is_empty(), "{violations:#?}");
            assert_eq!(unacknowledged, 0, "events were never acknowledged");
        }
    }
}
