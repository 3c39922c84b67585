//! `struct rdma_cm_id`: one end of a connection, or who listens for them.

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

/// `struct rdma_cm_id` — one end of a connection, or who listens for them; the counterpart of a socket.
///
/// The last owner destroys it, which ends a connection. Who holds it: the program, events, and the queue pair or shared receive
/// queue that was made through it. One that came with a connect request and was neither accepted nor rejected rejects the
/// connection then.
#[doc(alias = "rdma_cm_id")]
#[doc(alias = "rdma_destroy_id")]
pub struct Identifier {
    raw: NonNull<rdma_cm_id>,
    /// The channel that it is on. Held during each call on the identifier.
    home: Mutex<Arc<EventChannel>>,
    /// Those that it has left and that stay open as long as it does: see `migrate`.
    left: Mutex<Vec<Arc<EventChannel>>>,
    /// Whether it has begun to listen.
    listens: AtomicBool,
    /// Whether a peer waits for an answer.
    is_request: AtomicBool,
    /// Whether a response has come that waits for this side to be ready.
    is_answered: AtomicBool,
    /// Bytes that the library puts before the private data of a connect request.
    connect_data_len: usize,
    /// What the program has kept here.
    context: Mutex<Option<Context>>,
    /// The queue that was made through it.
    srq: Mutex<Weak<SharedReceiveQueueCore>>,
    /// The multicast groups that it is in.
    groups: Groups,
    /// Whether the channel is [held](EventChannel::hold) on its account.
    holds: AtomicBool,
}

// SAFETY: identifiers belong to no thread. What the library keeps of one is read and written under `home` and the lock of its
// channel alone.
unsafe impl Send for Identifier {}
// SAFETY: as for Send.
unsafe impl Sync for Identifier {}

impl Identifier {
    /// Takes a new identifier over; `listener` is there where it came with a connect request, and is who listened, if that is
    /// known.
    ///
    /// # Safety
    ///
    /// `raw` was just made on `channel`, and is nobody else's.
    pub(super) unsafe fn adopt(
        raw: NonNull<rdma_cm_id>,
        channel: &Arc<EventChannel>,
        listener: Option<Option<&Arc<Self>>>,
    ) -> Arc<Self> {
        let context = listener.flatten().and_then(|listener| listener.lock_context().clone());
        // SAFETY: the caller's promise.
        unsafe { Self::enter(raw, channel, listener.is_some(), 0, context) }
    }

    /// Takes one over that came with addresses; the library puts `connect_data_len` bytes before the private data of its connect
    /// request.
    ///
    /// # Safety
    ///
    /// `raw` was just made on `channel`, or moved there, and is nobody else's.
    pub(super) unsafe fn adopt_endpoint(
        raw: NonNull<rdma_cm_id>,
        channel: &Arc<EventChannel>,
        connect_data_len: usize,
    ) -> Arc<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::enter(raw, channel, false, connect_data_len, None) }
    }

    /// # Safety
    ///
    /// As for [`adopt`](Self::adopt).
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

    /// The channel that its events come on.
    pub fn event_channel(&self) -> Arc<EventChannel> {
        Arc::clone(&self.home.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The port space that it was made in.
    pub fn port_space(&self) -> PortSpace {
        // SAFETY: the identifier is live; the field is written when it is made, and not again.
        PortSpace::from_raw(unsafe { (*self.raw.as_ptr()).ps }.0)
    }

    /// Keeps something of the program's with the identifier, for whoever has its events. Identifiers of connect requests begin with
    /// what their listener has.
    pub fn setup_context<C: Any + Send + Sync>(&self, context: C) {
        let before = self.lock_context().replace(Arc::new(context));
        // Without the lock: it is the program's, and may look here as it goes.
        drop(before);
    }

    /// What was kept, if it is a `C`.
    pub fn get_context<C: Any + Send + Sync>(&self) -> Option<Arc<C>> {
        self.lock_context().clone()?.downcast().ok()
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// - It is used only while `self` lives, and not destroyed.
    /// - Its fields are not read while another thread may take an event from its channel or call on it.
    /// - Its context, its channel and its queue pair stay as they are.
    pub unsafe fn cm_id(&self) -> NonNull<rdma_cm_id> {
        self.raw
    }

    /// Runs `call` while nobody else reads or writes the C object. `call` calls nothing else of this identifier. errno is afterwards
    /// what `call` left.
    pub(super) fn with<R>(&self, call: impl FnOnce(*mut rdma_cm_id) -> R) -> R {
        self.with_channel(|id, _| call(id))
    }

    /// The same for one that looks at the channel.
    fn with_channel<R>(&self, call: impl FnOnce(*mut rdma_cm_id, &EventChannel) -> R) -> R {
        let home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        let _taken = home.lock_calls();
        call(self.raw.as_ptr(), &home)
    }

    /// The same with a function of the library's, by the name of `verb`, that gives 0 or -1 with errno set.
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

    /// The same with a function that follows the identifier's device, which must be there.
    pub(super) fn call_on_device(
        &self,
        verb: &'static str,
        call: impl FnOnce(*mut rdma_cm_id) -> c_int,
    ) -> Result<(), VerbError> {
        self.with(|id| {
            // SAFETY: nobody else uses the identifier.
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

    /// Whether it came with a connect request that has no answer yet.
    pub(super) fn is_request(&self) -> bool {
        self.is_request.load(Ordering::Relaxed)
    }

    /// Bytes that the library puts before the private data of a connect request.
    fn connect_data_len(&self) -> usize {
        self.connect_data_len
    }

    /// Answers the peer that waits, with a function as [`call`](Self::call) takes it. One answer only: the kernel lets a no follow
    /// a yes and then never finishes destroying the identifier (`cm_destroy_id`, seen with Linux 6.1).
    fn answer(&self, verb: &'static str, answer: impl FnOnce(*mut rdma_cm_id) -> c_int) -> Result<(), VerbError> {
        self.call_on_device(verb, |id| {
            if !self.is_request() {
                // SAFETY: this thread's errno.
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
                "no request waits for an answer: the identifier did not come with one, or it has been answered",
            ),
            _ => error,
        })
    }

    /// A response has come. Called while nobody else calls on the identifier.
    pub(super) fn set_answered(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// The multicast group that an event names by the key it was joined with; `is_lost` where the event says that it is.
    pub(super) fn group_of(&self, key: usize, is_lost: bool) -> Option<SocketAddr> {
        if is_lost { self.groups.lose(key) } else { self.groups.address(key) }
    }

    fn lock_context(&self) -> std::sync::MutexGuard<'_, Option<Context>> {
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device that an identifier is on.
///
/// # Safety
///
/// The identifier is live, and nobody else writes to it.
unsafe fn verbs(id: *mut rdma_cm_id) -> Option<NonNull<ibv_context>> {
    // SAFETY: the caller's promise.
    NonNull::new(unsafe { (*id).verbs })
}

#[cold]
fn not_on_a_device(verb: &'static str) -> VerbError {
    VerbError::invalid(
        verb,
        "the identifier is on no device: resolve the peer's address first and wait for AddressResolved, or bind it to an address \
         of a device",
    )
}

impl Drop for Identifier {
    fn drop(&mut self) {
        if *self.is_request.get_mut() {
            let rejected = self.call("rdma_reject", |id| {
                // SAFETY: the identifier is live, and nothing is to be sent.
                unsafe { sys::rdma_reject(id, std::ptr::null(), 0) }
            });
            if let Err(error) = rejected {
                // The peer may have given up; destroying the identifier is a no too.
                log::debug!("{error}: a connect request that nobody took");
            }
        }
        if !self.groups.is_empty() {
            // The library would never free what it has of them.
            self.with_channel(|id, channel| self.leave_all(id, channel));
        }
        let this: *const Self = self;
        let home = self.home.get_mut().unwrap_or_else(PoisonError::into_inner);
        // While no event is taken: the library would otherwise ask the kernel for the addresses and the device of an identifier that
        // is going, gets none, and follows a null pointer (seen with rdma-core 44). So none that was taken waits for its
        // acknowledgement either, which is what the library waits for here.
        let calls = home.lock_calls();
        // SAFETY: the identifier is live, this is its last owner, and a queue pair would be another.
        let destroyed = unsafe { super::event_channel::destroy(self.raw) };
        if let Err(error) = destroyed {
            drop(calls);
            log::warn!("{error}; the identifier is leaked");
            if *self.holds.get_mut() {
                home.lose();
            }
            return;
        }
        // The next may have the address already, and be on its way out too. It is to be found by the event that brings it, a
        // connect request, so that this one goes before any event is taken again.
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
