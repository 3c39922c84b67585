//! `struct rdma_event_channel`: where the events of identifiers come.

use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::load::LoadError;
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

/// `struct rdma_event_channel` — where the events of identifiers come, in the order in which they happened.
///
/// The descriptor becomes readable when an event comes and is in non-blocking mode, so that it fits `poll(2)`, `epoll(7)` and
/// async runtimes through [`AsRawFd`]; [`get_cm_event`](Self::get_cm_event) waits by itself. There is no
/// [`AsFd`](std::os::fd::AsFd): what is written to the descriptor are commands of librdmacm with addresses in them, which the kernel
/// gives back and librdmacm follows.
///
/// Several threads may take events from one channel: each event goes to one of them.
#[doc(alias = "rdma_event_channel")]
#[doc(alias = "rdma_destroy_event_channel")]
#[derive(Debug)]
pub struct EventChannel {
    raw: NonNull<rdma_event_channel>,
    /// Which identifiers there are, by the address that C has for them.
    identifiers: Registry<Identifier>,
    /// While an event is taken, C writes to the identifier that it is of, unknown until then: no other call on an identifier of
    /// this channel may run. Calls on different identifiers may.
    calls: RwLock<()>,
    /// Identifiers of which an event may come that the library would look up in memory that it has freed: no event is taken until
    /// they are gone.
    holds: AtomicUsize,
    /// One of these could not be destroyed.
    is_lost: AtomicBool,
}

// SAFETY: the channel belongs to no thread; the library reads its descriptor alone, which does not change.
unsafe impl Send for EventChannel {}
// SAFETY: as for Send; what the library writes while an event is taken is behind `calls`.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// `rdma_create_event_channel()` — opens a channel to the connection manager.
    ///
    /// # Errors
    ///
    /// - [`CreateEventChannelError::Load`] where librdmacm cannot be loaded.
    /// - [`CreateEventChannelError::Verb`] otherwise: `ENODEV` where there is no RDMA device; `ENOENT` or `EPERM` where the
    ///   kernel has no connection manager; `EACCES` where its device file may not be opened; `EMFILE`.
    ///
    /// # References
    ///
    /// [rdma_create_event_channel(3)](https://man7.org/linux/man-pages/man3/rdma_create_event_channel.3.html)
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Arc<Self>, CreateEventChannelError> {
        fork::before_device();
        clear_errno();
        // SAFETY: the function takes nothing.
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

    /// `rdma_create_id(channel, &id, context, ps)` — makes an identifier, whose events come here.
    ///
    /// # Errors
    ///
    /// The errno of the library: `ENOMEM`, or `EINVAL` for a port space that the kernel does not know.
    ///
    /// # References
    ///
    /// [rdma_create_id(3)](https://man7.org/linux/man-pages/man3/rdma_create_id.3.html)
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(self: &Arc<Self>, port_space: PortSpace) -> Result<Arc<Identifier>, VerbError> {
        const VERB: &str = "rdma_create_id";
        let mut id = ptr::null_mut();
        // SAFETY: the channel is live, and `id` is there to be written.
        let ret = unsafe {
            sys::rdma_create_id(self.raw(), &mut id, ptr::null_mut(), sys::rdma_port_space(port_space.raw()))
        };
        if ret != 0 {
            return Err(VerbError::new(VERB, errno_of(ret)));
        }
        let id = check_pointer(VERB, id)?;
        // SAFETY: just made on this channel, and nobody else's.
        Ok(unsafe { Identifier::adopt(id, self, None) })
    }

    /// `rdma_get_cm_event(channel, &event)` — waits for the next event, without limit where `timeout` is `None`, and
    /// acknowledges it (`rdma_ack_cm_event`).
    ///
    /// Events of identifiers that are being destroyed are left out.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`: `timeout` has passed.
    /// - `EIO`, `ENODEV`: no event will come any more.
    /// - `EBUSY`: the kernel has refused to let an identifier [leave](Identifier::leave_multicast) a multicast group, as it does once
    ///   the device is gone. Events come again when the identifier is gone too; where the kernel refuses that as well, never.
    /// - else the errno of the library or of `poll(2)`.
    ///
    /// # References
    ///
    /// [rdma_get_cm_event(3)](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    #[doc(alias = "rdma_get_cm_event")]
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn get_cm_event(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Event, VerbError> {
        wait_for(GET_EVENT, "event of the connection manager", self.as_raw_fd(), timeout, || self.next_event())
    }

    /// The next event if there is one now.
    ///
    /// # Errors
    ///
    /// As [`get_cm_event`](Self::get_cm_event); `EAGAIN` is `Ok(None)`.
    pub fn try_get_cm_event(self: &Arc<Self>) -> Result<Option<Event>, VerbError> {
        let event = self.next_event()?;
        if event.is_none() {
            check_alive(GET_EVENT, self.as_raw_fd())?;
        }
        Ok(event)
    }

    /// The next event if there is one now; where the device is gone there is none.
    fn next_event(self: &Arc<Self>) -> Result<Option<Event>, VerbError> {
        loop {
            match self.take_event()? {
                Taken::Nothing => return Ok(None),
                Taken::Event(event) => return Ok(Some(*event)),
                // The identifier is being destroyed: its event interests nobody.
                Taken::OfOneThatLeaves => {}
            }
        }
    }

    /// Takes an event, and acknowledges it. What it gives is dropped after the lock has gone, on which identifiers wait when they
    /// are dropped.
    fn take_event(self: &Arc<Self>) -> Result<Taken, VerbError> {
        let alone = self.calls.write().unwrap_or_else(PoisonError::into_inner);
        if self.holds.load(Ordering::Acquire) > 0 {
            return Err(self.held());
        }
        let mut raw = ptr::null_mut();
        let mut errno = 0;
        let is_taken = take_event(GET_EVENT, self.as_raw_fd(), || {
            // SAFETY: the channel is live, and `raw` is there to be written. No other call on its identifiers runs.
            let ret = unsafe { sys::rdma_get_cm_event(self.raw(), &mut raw) };
            // A step of the library's own that failed has left its errno here, and -1 in the event.
            errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            ret
        })?;
        if !is_taken {
            return Ok(Taken::Nothing);
        }
        if raw.is_null() {
            return Err(strange("the library reported an event and gave none"));
        }
        // SAFETY: taken just now: the library keeps its identifier until it is acknowledged.
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
        // No code of the program ran since the event was taken, so that nothing which waits for this acknowledgement (the
        // destruction of the identifier on another thread) can be something that this thread waits for.
        // SAFETY: taken just now, and acknowledged once.
        let ret = unsafe { sys::rdma_ack_cm_event(raw) };
        if ret != 0 {
            log::warn!("rdma_ack_cm_event: {}: destroying the identifier may wait for ever", errno_of(ret));
        }
        // Before anything is dropped: an identifier that nobody took wants the lock.
        drop(alone);
        match id {
            Found::Object(id) => Ok(Taken::Event(Box::new(event.of(id, listener)?))),
            Found::Leaving => Ok(Taken::OfOneThatLeaves),
            Found::Foreign if event.id.is_null() => {
                Err(strange("the library reported an event and named no identifier"))
            }
            Found::Foreign => {
                Err(strange("the library reported an event of an identifier that is not of this channel"))
            }
        }
    }

    /// Why no event is taken.
    #[cold]
    fn held(&self) -> VerbError {
        let error = VerbError::new(GET_EVENT, Errno::EBUSY);
        if self.is_lost.load(Ordering::Relaxed) {
            return error.with_hint(
                "the kernel has refused to let an identifier leave a multicast group, and then to destroy it: no event comes on this \
                 channel any more; make another, and move what is still in use there (Identifier::migrate)",
            );
        }
        error.with_hint(
            "the kernel has refused to let an identifier leave a multicast group, which the library has forgotten: drop that \
             identifier first",
        )
    }

    /// The new identifier of a connect request, which is entered before anybody else can take an event of it.
    fn adopt_request(self: &Arc<Self>, event: &RawEvent, listener: &Found<Identifier>) -> Found<Identifier> {
        let is_new = event.event_type == EventType::ConnectRequest && event.id != event.listen_id;
        let listener = match listener {
            Found::Object(listener) => Some(listener),
            // It is on its way out. The request ends with the event, which says no.
            Found::Leaving => None,
            Found::Foreign => return Found::Foreign,
        };
        match NonNull::new(event.id).filter(|_| is_new) {
            // SAFETY: the library has made it for this event, on this channel, and it is nobody else's.
            Some(id) => Found::Object(unsafe { Identifier::adopt(id, self, Some(listener)) }),
            None => Found::Foreign,
        }
    }

    /// Keeps calls on identifiers apart from the taking of an event.
    pub(super) fn lock_calls(&self) -> RwLockReadGuard<'_, ()> {
        self.calls.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes no events from here on, for an identifier of which one may come that the library would look up in freed memory. The
    /// caller has [the lock of the calls](Self::lock_calls), so that none is being taken.
    pub(super) fn hold(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }

    /// An identifier for which the channel [holds](Self::hold) is there for good.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// The identifier is destroyed, with its events, or has moved, with its events.
    pub(super) fn release(&self) {
        self.holds.fetch_sub(1, Ordering::Release);
    }

    pub(super) fn identifiers(&self) -> &Registry<Identifier> {
        &self.identifiers
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// - It is used only while `self` lives, and not destroyed.
    /// - Events are taken from it, and identifiers made on it or migrated to it, only through `self`.
    pub unsafe fn event_channel(&self) -> NonNull<rdma_event_channel> {
        self.raw
    }

    pub(super) fn raw(&self) -> *mut rdma_event_channel {
        self.raw.as_ptr()
    }
}

/// What was taken from a channel.
enum Taken {
    Nothing,
    Event(Box<Event>),
    OfOneThatLeaves,
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: the channel is ours, and its identifiers, each of which holds it, have gone.
        unsafe { sys::rdma_destroy_event_channel(self.raw()) };
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its descriptor never changes.
        unsafe { (*self.raw()).fd }
    }
}

/// Why there is no event channel.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateEventChannelError {
    /// librdmacm could not be loaded; the text says what was tried and what to install.
    #[error(transparent)]
    Load(LoadError),
    /// `rdma_create_event_channel` failed.
    #[error(transparent)]
    Verb(VerbError),
}

crate::error::debug_is_text!(CreateEventChannelError);

/// Tells a library that is not there from one that fails.
#[cold]
fn create_error(error: VerbError) -> CreateEventChannelError {
    if error.errno().raw() == libc::EOPNOTSUPP
        && let Err(load) = sys::load::rdmacm::library()
    {
        return CreateEventChannelError::Load(load);
    }
    let hint = match error.errno().raw() {
        libc::ENODEV if is_set(sys::load::rdmacm::VARIABLE) => {
            "there is no provider of the name that the environment variable RDMA_MUMMY_RDMACM has, or it has no device"
        }
        libc::ENODEV => "there is no RDMA device",
        libc::ENOENT | libc::EPERM => {
            "the kernel has no connection manager for programs, or its module rdma_ucm is not loaded (`modprobe rdma_ucm`)"
        }
        libc::EACCES => "the file /dev/infiniband/rdma_cm may not be opened by this user",
        libc::EMFILE => "too many files are open: see `ulimit -n`",
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

/// Destroys an identifier, and reports.
///
/// # Safety
///
/// It is live, nobody uses it any more, and its queue pair has gone.
pub(super) unsafe fn destroy(id: NonNull<rdma_cm_id>) -> Result<(), VerbError> {
    clear_errno();
    // SAFETY: the caller's promise.
    match unsafe { sys::rdma_destroy_id(id.as_ptr()) } {
        0 => Ok(()),
        _ => Err(VerbError::new("rdma_destroy_id", last_errno())),
    }
}
