//! `struct rdma_event_channel`: a channel that receives the events of identifiers.

use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::load::LoadError;
use rdma_mummy_sys::program::Held;
use rdma_mummy_sys::{rdma_cm_id, rdma_event_channel};

use super::event::RawEvent;
use super::{Event, EventType, Identifier, PortSpace};
use crate::error::{Errno, VerbError};
use crate::ffi::{
    Found, Registry, check_alive, check_pointer, clear_errno, errno_of, last_errno, set_nonblocking, take_event,
    wait_for,
};
use crate::ibverbs::fork;

const GET_EVENT: &str = "rdma_get_cm_event";

/// `struct rdma_event_channel` — a channel that receives the events of identifiers, in the order in which they
/// happened.
///
/// The descriptor is non-blocking, and becomes readable when an event arrives. `poll(2)`, `epoll(7)` and async runtimes
/// can watch it through [`AsRawFd`]; a program that calls [`get_cm_event`](Self::get_cm_event) needs none of these. The
/// channel does not implement [`AsFd`](std::os::fd::AsFd), because safe code could then write to the descriptor.
/// librdmacm writes commands that contain addresses to it, and dereferences the addresses that the kernel returns.
///
/// Several threads can take events from one channel: each event goes to one of them.
#[doc(alias = "rdma_event_channel")]
#[doc(alias = "rdma_destroy_event_channel")]
#[derive(Debug)]
pub struct EventChannel {
    raw: NonNull<rdma_event_channel>,
    /// The identifiers, by the address of their C object.
    identifiers: Registry<Identifier>,
    /// When an event is taken, the library writes to an identifier of this channel, and it is not known beforehand to
    /// which one. So no call on any of these identifiers may run at the same time. Calls on different identifiers may
    /// run in parallel.
    calls: RwLock<()>,
    /// The number of identifiers for which an event may arrive that would make the library read freed memory. While
    /// this number is not zero, no event is taken.
    holds: AtomicUsize,
    /// Whether one of these identifiers could not be destroyed.
    is_lost: AtomicBool,
}

// SAFETY: the channel is not bound to a thread. The library only reads its descriptor, which does not change.
unsafe impl Send for EventChannel {}
// SAFETY: as for Send; the lock `calls` protects the data that the library writes while an event is taken.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// `rdma_create_event_channel()` — opens a channel to the connection manager.
    ///
    /// # Errors
    ///
    /// - [`CreateEventChannelError::Load`]: librdmacm cannot be loaded.
    /// - [`CreateEventChannelError::Verb`] otherwise: with `ENODEV` if there is no RDMA device, with `ENOENT` or
    ///   `EPERM` if the kernel has no connection manager, with `EACCES` if the user may not open its device file, and
    ///   with `EMFILE` if too many files are open.
    ///
    /// # References
    ///
    /// [rdma_create_event_channel(3)](https://man7.org/linux/man-pages/man3/rdma_create_event_channel.3.html)
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Arc<Self>, CreateEventChannelError> {
        fork::before_device();
        clear_errno();
        // SAFETY: the function has no arguments.
        let raw = unsafe { sys::rdma_create_event_channel() };
        let raw = check_pointer("rdma_create_event_channel", raw).map_err(create_error)?;
        let channel = Self {
            raw,
            identifiers: Registry::default(),
            calls: RwLock::default(),
            holds: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
        };
        set_nonblocking(channel.as_raw_fd()).map_err(CreateEventChannelError::Verb)?;
        Ok(Arc::new(channel))
    }

    /// `rdma_create_id(channel, &id, context, ps)` — creates an identifier on this channel.
    ///
    /// # Errors
    ///
    /// Returns the errno of the library: `ENOMEM`, or `EINVAL` for a port space that the kernel does not support.
    ///
    /// # References
    ///
    /// [rdma_create_id(3)](https://man7.org/linux/man-pages/man3/rdma_create_id.3.html)
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(self: &Arc<Self>, port_space: PortSpace) -> Result<Arc<Identifier>, VerbError> {
        const VERB: &str = "rdma_create_id";
        let mut id = ptr::null_mut();
        // SAFETY: the channel is live, and `id` is writable.
        let ret = unsafe {
            sys::rdma_create_id(self.raw(), &mut id, ptr::null_mut(), sys::rdma_port_space(port_space.raw()))
        };
        if ret != 0 {
            return Err(VerbError::new(VERB, errno_of(ret)));
        }
        let id = check_pointer(VERB, id)?;
        // SAFETY: just created on this channel, and not shared.
        Ok(unsafe { Identifier::adopt(id, self, None) })
    }

    /// `rdma_get_cm_event(channel, &event)` — waits for the next event and acknowledges it (`rdma_ack_cm_event`). There
    /// is no time limit if `timeout` is `None`.
    ///
    /// The call skips events of identifiers that are being destroyed.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`: `timeout` expired.
    /// - `EIO`, `ENODEV`: no more events will arrive.
    /// - `EBUSY`: the kernel failed to [leave](Identifier::leave_multicast) a multicast group of an identifier, which
    ///   happens after the device was removed. The channel delivers events again once the identifier is destroyed. If
    ///   the kernel fails to destroy the identifier as well, the channel never delivers events again.
    /// - Otherwise the errno of the library or of `poll(2)`.
    ///
    /// # References
    ///
    /// [rdma_get_cm_event(3)](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    #[doc(alias = "rdma_get_cm_event")]
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn get_cm_event(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Event, VerbError> {
        let channel = (ptr::null_mut(), self.as_raw_fd());
        // SAFETY: there is no completion channel.
        unsafe { wait_for(GET_EVENT, "event of the connection manager", channel, timeout, || self.next_event()) }
    }

    /// Returns the next event, if one is waiting.
    ///
    /// # Errors
    ///
    /// The errors are those of [`get_cm_event`](Self::get_cm_event), except that this method returns `Ok(None)` instead
    /// of `EAGAIN`.
    pub fn try_get_cm_event(self: &Arc<Self>) -> Result<Option<Event>, VerbError> {
        let event = self.next_event()?;
        if event.is_none() {
            check_alive(GET_EVENT, self.as_raw_fd())?;
        }
        Ok(event)
    }

    /// Returns the next event, or `None` if no event is waiting or the device was removed.
    fn next_event(self: &Arc<Self>) -> Result<Option<Event>, VerbError> {
        loop {
            match self.take_event()? {
                Taken::Nothing => return Ok(None),
                Taken::Event(event) => return Ok(Some(*event)),
                // The identifier is being destroyed, so its event is dropped.
                Taken::OfOneThatLeaves => {}
            }
        }
    }

    /// Takes an event, and acknowledges it. The caller drops the result after the lock is released, because dropping an
    /// identifier takes the lock.
    fn take_event(self: &Arc<Self>) -> Result<Taken, VerbError> {
        let _held = Held::new();
        let alone = self.calls.write().unwrap_or_else(PoisonError::into_inner);
        if self.holds.load(Ordering::Acquire) > 0 {
            return Err(self.held());
        }
        let mut raw = ptr::null_mut();
        let mut errno = 0;
        let is_taken = take_event(GET_EVENT, self.as_raw_fd(), || {
            // SAFETY: the channel is live, the call may write to `raw`, and no other call on the identifiers of the
            // channel runs.
            let ret = unsafe { sys::rdma_get_cm_event(self.raw(), &mut raw) };
            // If a step inside the library failed, errno contains the cause, and the status of the event is -1.
            errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            ret
        })?;
        if !is_taken {
            return Ok(Taken::Nothing);
        }
        if raw.is_null() {
            return Err(strange("the library reported success without an event"));
        }
        // SAFETY: the event was just taken, and the library keeps its identifier until the acknowledgement.
        let mut event = unsafe { RawEvent::copy(raw, errno) };
        let listener = self.identifiers.find(event.listen_id);
        let id = match self.identifiers.find(event.id) {
            Found::Foreign => self.adopt_request(&event, &listener),
            found => found,
        };
        if let Found::Object(id) = &id {
            event.name_group(id);
            if event.event_type == EventType::ConnectResponse {
                id.set_answered();
            }
        }
        // No code of the program has run since the event was taken. So this thread cannot be waiting for a thread that
        // waits for this acknowledgement (to destroy the identifier). SAFETY: the event was just taken, and is
        // acknowledged once.
        let ret = unsafe { sys::rdma_ack_cm_event(raw) };
        if ret != 0 {
            rdma_mummy_sys::log!(
                warn,
                "rdma_ack_cm_event: {}: destroying the identifier may block forever",
                errno_of(ret)
            );
        }
        // The lock is released before anything is dropped, because dropping an identifier acquires the lock.
        drop(alone);
        match id {
            Found::Object(id) => Ok(Taken::Event(Box::new(event.of(id, listener)?))),
            Found::Leaving => Ok(Taken::OfOneThatLeaves),
            Found::Foreign if event.id.is_null() => Err(strange("the library reported an event without an identifier")),
            Found::Foreign => {
                Err(strange("the library reported an event of an identifier that is not on this channel"))
            }
        }
    }

    /// Returns the error that states why no event is taken.
    #[cold]
    fn held(&self) -> VerbError {
        let error = VerbError::new(GET_EVENT, Errno::EBUSY);
        if self.is_lost.load(Ordering::Relaxed) {
            return error.with_hint(
                "the kernel could neither leave a multicast group of an identifier nor destroy it, and no more \
                events arrive on this channel; create another, and move the other identifiers there \
                (Identifier::migrate)",
            );
        }
        error.with_hint(
            "the kernel could not leave a multicast group of an identifier, and the library no longer tracks it; \
            drop that identifier first",
        )
    }

    /// Registers the new identifier of a connect request before another thread can take an event of it.
    fn adopt_request(self: &Arc<Self>, event: &RawEvent, listener: &Found<Identifier>) -> Found<Identifier> {
        let is_new = event.event_type == EventType::ConnectRequest && event.id != event.listen_id;
        let listener = match listener {
            Found::Object(listener) => Some(listener),
            // The listener is being destroyed. Dropping the event drops the request, which rejects it.
            Found::Leaving => None,
            Found::Foreign => return Found::Foreign,
        };
        match NonNull::new(event.id).filter(|_| is_new) {
            // SAFETY: the library created the identifier for this event, on this channel, and it is not shared.
            Some(id) => Found::Object(unsafe { Identifier::adopt(id, self, Some(listener)) }),
            None => Found::Foreign,
        }
    }

    /// Prevents other threads from taking events during a call on an identifier.
    pub(super) fn lock_calls(&self) -> RwLockReadGuard<'_, ()> {
        self.calls.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the taking of events, because an event may arrive that would make the library read the freed memory of an
    /// identifier. The caller holds the lock that [`lock_calls`](Self::lock_calls) returns, so no other thread is
    /// taking an event.
    pub(super) fn hold(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the identifier for which events are [held back](Self::hold) could not be destroyed.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Resumes the taking of events, after an identifier was destroyed or moved together with its events.
    pub(super) fn release(&self) {
        self.holds.fetch_sub(1, Ordering::Release);
    }

    pub(super) fn identifiers(&self) -> &Registry<Identifier> {
        &self.identifiers
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// - Use the object only while `self` lives, and do not destroy it.
    /// - Only through `self`, take events from the object, create identifiers on it, or migrate identifiers to it.
    pub unsafe fn event_channel(&self) -> NonNull<rdma_event_channel> {
        self.raw
    }

    pub(super) fn raw(&self) -> *mut rdma_event_channel {
        self.raw.as_ptr()
    }
}

/// The result of taking an event.
enum Taken {
    Nothing,
    Event(Box<Event>),
    OfOneThatLeaves,
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: this object owns the channel. The identifiers of the channel keep it alive, so all of them were
        // dropped.
        unsafe { sys::rdma_destroy_event_channel(self.raw()) };
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its descriptor never changes.
        unsafe { (*self.raw()).fd }
    }
}

/// An error of creating an event channel.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateEventChannelError {
    /// librdmacm could not be loaded. The text lists the paths that were tried and the packages to install.
    #[error(transparent)]
    Load(LoadError),
    /// `rdma_create_event_channel` failed.
    #[error(transparent)]
    Verb(VerbError),
}

crate::error::debug_is_text!(CreateEventChannelError);

/// Distinguishes a missing library from a failure of the library.
#[cold]
fn create_error(error: VerbError) -> CreateEventChannelError {
    if error.errno().raw() == libc::EOPNOTSUPP
        && let Err(load) = sys::load::rdmacm::library()
    {
        return CreateEventChannelError::Load(load);
    }
    let hint = match error.errno().raw() {
        libc::ENODEV if is_set(sys::load::rdmacm::VARIABLE) => {
            "the provider that the environment variable RDMA_MUMMY_RDMACM selects does not exist or has no device; \
            check the variable"
        }
        libc::ENODEV => "there is no RDMA device; check with `rdma link`",
        libc::ENOENT | libc::EPERM => {
            "the kernel has no connection manager for programs; load its module with `modprobe rdma_ucm`"
        }
        libc::EACCES => "no permission to open /dev/infiniband/rdma_cm; give this user access to it",
        libc::EMFILE => "too many open files; raise the limit with `ulimit -n`",
        _ => return CreateEventChannelError::Verb(error),
    };
    CreateEventChannelError::Verb(error.with_hint(hint))
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

#[cold]
fn strange(hint: &'static str) -> VerbError {
    VerbError::new(GET_EVENT, Errno::EIO).with_hint(hint)
}

/// Destroys an identifier, and returns the error of the verb.
///
/// # Safety
///
/// The identifier is live and no longer used, and its queue pair is destroyed.
pub(super) unsafe fn destroy(id: NonNull<rdma_cm_id>) -> Result<(), VerbError> {
    clear_errno();
    // SAFETY: the caller upholds the contract of this function.
    match unsafe { sys::rdma_destroy_id(id.as_ptr()) } {
        0 => Ok(()),
        _ => Err(VerbError::new("rdma_destroy_id", last_errno())),
    }
}
