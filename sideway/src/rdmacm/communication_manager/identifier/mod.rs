//! `struct rdma_cm_id`: a connection endpoint or a listener.

mod address;
mod address_info;
mod connect;
mod device;
mod ece;
mod groups;
mod listen;
mod migrate;
mod multicast;
mod options;
mod queue_pair;
mod resolve;
mod shared_receive_queue;
mod user_event;

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_context, rdma_cm_id};

pub use self::multicast::MulticastJoinFlag;

use self::groups::Groups;
pub(super) use self::listen::explain_bind;
pub(super) use self::resolve::explain_address;
use super::{EventChannel, PortSpace};
use crate::error::VerbError;
use crate::ffi::{clear_errno, errno_of};
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueCore;

type Context = Arc<dyn Any + Send + Sync>;

/// `struct rdma_cm_id` — a connection endpoint or a listener. It corresponds to a socket.
///
/// Dropping the last owner destroys the identifier, which ends its connection. Its owners are the program, events, and
/// the queue pair or shared receive queue that was created through the identifier. If the identifier belongs to a
/// connect request that was neither accepted nor rejected, destroying it rejects the request.
#[doc(alias = "rdma_cm_id")]
#[doc(alias = "rdma_destroy_id")]
pub struct Identifier {
    raw: NonNull<rdma_cm_id>,
    /// The current channel. This lock is held during each call on the identifier.
    home: Mutex<Arc<EventChannel>>,
    /// Former channels, which stay open as long as the identifier lives; see `migrate`.
    left: Mutex<Vec<Arc<EventChannel>>>,
    /// Whether the identifier has started to listen.
    listens: AtomicBool,
    /// Whether a peer waits for a response.
    is_request: AtomicBool,
    /// Whether a response arrived that waits for this side to be ready.
    is_answered: AtomicBool,
    /// The number of bytes that the library prepends to the private data of a connect request.
    connect_data_len: usize,
    /// The program's context.
    context: Mutex<Option<Context>>,
    /// The shared receive queue that was created through the identifier.
    srq: Mutex<Weak<SharedReceiveQueueCore>>,
    /// The multicast groups of the identifier.
    groups: Groups,
    /// Whether the identifier [stops](EventChannel::hold) the events of its channel.
    holds: AtomicBool,
}

// SAFETY: identifiers are not bound to a thread. The library's state of an identifier is accessed only under `home` and
// the lock of its channel.
unsafe impl Send for Identifier {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for Identifier {}

impl Identifier {
    /// Takes ownership of a new identifier. `listener` is set if the identifier belongs to a connect request, and
    /// contains the listener if that is still alive.
    ///
    /// # Safety
    ///
    /// `raw` was just created on `channel`, and is not shared.
    pub(super) unsafe fn adopt(
        raw: NonNull<rdma_cm_id>,
        channel: &Arc<EventChannel>,
        listener: Option<Option<&Arc<Self>>>,
    ) -> Arc<Self> {
        let context = listener.flatten().and_then(|listener| listener.lock_context().clone());
        // SAFETY: the caller upholds the contract of this function.
        unsafe { Self::enter(raw, channel, listener.is_some(), 0, context) }
    }

    /// Takes ownership of an identifier that was created from address information. The library prepends
    /// `connect_data_len` bytes to the private data of its connect request.
    ///
    /// # Safety
    ///
    /// `raw` was just created on `channel`, or moved there, and is not shared.
    pub(super) unsafe fn adopt_endpoint(
        raw: NonNull<rdma_cm_id>,
        channel: &Arc<EventChannel>,
        connect_data_len: usize,
    ) -> Arc<Self> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { Self::enter(raw, channel, false, connect_data_len, None) }
    }

    /// # Safety
    ///
    /// The contract of [`adopt`](Self::adopt) applies.
    unsafe fn enter(
        raw: NonNull<rdma_cm_id>,
        channel: &Arc<EventChannel>,
        is_request: bool,
        connect_data_len: usize,
        context: Option<Context>,
    ) -> Arc<Self> {
        let id = Arc::new(Self {
            raw,
            home: Mutex::new(Arc::clone(channel)),
            left: Mutex::default(),
            listens: AtomicBool::new(false),
            is_request: AtomicBool::new(is_request),
            is_answered: AtomicBool::new(false),
            connect_data_len,
            context: Mutex::new(context),
            srq: Mutex::default(),
            groups: Groups::default(),
            holds: AtomicBool::new(false),
        });
        channel.identifiers().insert(raw, &id);
        id
    }

    /// Returns the current channel.
    pub fn event_channel(&self) -> Arc<EventChannel> {
        Arc::clone(&self.home.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the port space.
    pub fn port_space(&self) -> PortSpace {
        // SAFETY: the identifier is live, and the field is written only when the identifier is created.
        PortSpace::from_raw(unsafe { (*self.raw.as_ptr()).ps }.0)
    }

    /// Stores a value of the program with the identifier, for the threads that handle its events. Identifiers of
    /// connect requests start with their listener's value.
    pub fn setup_context<C: Any + Send + Sync>(&self, context: C) {
        let before = self.lock_context().replace(Arc::new(context));
        // The old value is dropped after the lock was released, because this runs code of the program, which may use
        // this identifier.
        drop(before);
    }

    /// Returns the stored value, if it has the type `C`.
    pub fn get_context<C: Any + Send + Sync>(&self) -> Option<Arc<C>> {
        self.lock_context().clone()?.downcast().ok()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// - Use the object only while `self` lives, and do not destroy it.
    /// - Do not read its fields while another thread may take an event from its channel or make a call on it.
    /// - Do not change its context, its channel or its queue pair.
    pub unsafe fn cm_id(&self) -> NonNull<rdma_cm_id> {
        self.raw
    }

    /// Runs `call` while no other thread accesses the C object. `call` must not make another call on this identifier.
    /// When this method returns, errno has the value that `call` left.
    pub(super) fn with<R>(&self, call: impl FnOnce(*mut rdma_cm_id) -> R) -> R {
        self.with_channel(|id, _| call(id))
    }

    /// Runs `call` like [`with`](Self::with), and also passes the channel to it.
    fn with_channel<R>(&self, call: impl FnOnce(*mut rdma_cm_id, &EventChannel) -> R) -> R {
        let home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        let _taken = home.lock_calls();
        call(self.raw.as_ptr(), &home)
    }

    /// Calls a function of the library that returns 0, or -1 with errno set. `verb` is the name of the function.
    pub(super) fn call(
        &self,
        verb: &'static str,
        call: impl FnOnce(*mut rdma_cm_id) -> c_int,
    ) -> Result<(), VerbError> {
        self.with(|id| {
            clear_errno();
            match call(id) {
                0 => Ok(()),
                ret => Err(VerbError::new(verb, errno_of(ret))),
            }
        })
    }

    /// Calls a function like [`call`](Self::call), if the function dereferences the identifier's device. Returns an
    /// error if there is no device.
    pub(super) fn call_on_device(
        &self,
        verb: &'static str,
        call: impl FnOnce(*mut rdma_cm_id) -> c_int,
    ) -> Result<(), VerbError> {
        self.with(|id| {
            // SAFETY: the identifier is locked.
            if unsafe { verbs(id) }.is_none() {
                return Err(not_on_a_device(verb));
            }
            clear_errno();
            match call(id) {
                0 => Ok(()),
                ret => Err(VerbError::new(verb, errno_of(ret))),
            }
        })
    }

    /// Whether the identifier belongs to a connect request that has no response yet.
    pub(super) fn is_request(&self) -> bool {
        self.is_request.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that the library prepends to the private data of a connect request.
    fn connect_data_len(&self) -> usize {
        self.connect_data_len
    }

    /// Responds to the waiting peer, with a function like that of [`call`](Self::call). Permits only one response,
    /// because the kernel accepts a rejection after an acceptance, and then never finishes destroying the identifier
    /// (in `cm_destroy_id`, seen with Linux 6.1).
    fn answer(&self, verb: &'static str, answer: impl FnOnce(*mut rdma_cm_id) -> c_int) -> Result<(), VerbError> {
        self.call_on_device(verb, |id| {
            if !self.is_request() {
                // SAFETY: this writes the errno of this thread.
                unsafe { *libc::__errno_location() = libc::EINVAL };
                return -1;
            }
            let ret = answer(id);
            if ret == 0 {
                self.is_request.store(false, Ordering::Relaxed);
            }
            ret
        })
        .map_err(|error| match error.errno().raw() {
            libc::EINVAL if !self.is_request() && error.hint().is_none() => error.with_hint(
                "no request waits for a response: the identifier does not belong to one, or the request is already \
                answered",
            ),
            _ => error,
        })
    }

    /// Records that a response arrived. The caller ensures that no other call on the identifier runs.
    pub(super) fn set_answered(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// Returns the multicast group of an event. `key` is the key with which the group was joined. `is_lost` states
    /// whether the event reports the loss of the group.
    pub(super) fn group_of(&self, key: usize, is_lost: bool) -> Option<SocketAddr> {
        if is_lost { self.groups.lose(key) } else { self.groups.address(key) }
    }

    fn lock_context(&self) -> std::sync::MutexGuard<'_, Option<Context>> {
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the device of an identifier.
///
/// # Safety
///
/// The identifier is live, and no other thread writes to it.
unsafe fn verbs(id: *mut rdma_cm_id) -> Option<NonNull<ibv_context>> {
    // SAFETY: the caller upholds the contract of this function.
    NonNull::new(unsafe { (*id).verbs })
}

#[cold]
fn not_on_a_device(verb: &'static str) -> VerbError {
    VerbError::invalid(
        verb,
        "the identifier has no device; resolve the peer's address and wait for AddressResolved, or bind it to an \
        address of a device",
    )
}

impl Drop for Identifier {
    fn drop(&mut self) {
        if *self.is_request.get_mut() {
            let rejected = self.call("rdma_reject", |id| {
                // SAFETY: the identifier is live, and there is no private data.
                unsafe { sys::rdma_reject(id, std::ptr::null(), 0) }
            });
            if let Err(error) = rejected {
                // The call can fail because the peer has given up. Destroying the identifier also rejects the request.
                rdma_mummy_sys::log!(debug, "{error}: rejecting an untaken connect request");
            }
        }
        if !self.groups.is_empty() {
            // Without this, the library would never free its state of the groups.
            self.with_channel(|id, channel| self.leave_all(id, channel));
        }
        let this: *const Self = self;
        let home = self.home.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The identifier is destroyed while no event is taken. Otherwise, the library would query the kernel for the
        // addresses and the device of an identifier that is being destroyed, would receive none, and would dereference
        // a null pointer (seen with rdma-core 44). The library also waits in this call until all taken events are
        // acknowledged, and the lock ensures that it does not wait forever.
        let calls = home.lock_calls();
        // SAFETY: the identifier is live, and this is its last owner. So there is no queue pair, because a queue pair
        // would be another owner.
        let destroyed = unsafe { super::event_channel::destroy(self.raw) };
        if let Err(error) = destroyed {
            drop(calls);
            rdma_mummy_sys::log!(warn, "{error}; the identifier is leaked");
            if *self.holds.get_mut() {
                home.lose();
            }
            return;
        }
        // The new identifier of a connect request may already have the same address. The event of that request must
        // find the new identifier. So this entry is removed before any event is taken again.
        home.identifiers().move_out(self.raw, this);
        drop(calls);
        if *self.holds.get_mut() {
            home.release();
        }
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identifier")
            .field("id", &self.raw)
            .field("port_space", &self.port_space())
            .field("local", &self.local_address())
            .field("peer", &self.peer_address())
            .finish()
    }
}
