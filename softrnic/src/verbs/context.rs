//! `struct ibv_context`: an open device.

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rdma_mummy_sys::{ibv_context, ibv_device, verbs_context};

use super::async_event::AsyncEvent;
use super::device::Device;
use super::event_fd_queue::EventFdQueue;
use super::exports::Exports;
use super::failure;
use crate::mem::domain::Domain;
use crate::sys::errno::Errno;
use crate::sys::fork::{self, PerProcess};
use crate::sys::unpoisoned;
use crate::sys::usage::Usage;
use crate::wire::condition::Condition;
use crate::wire::limits;

pub(crate) type Events = EventFdQueue<AsyncEvent>;

/// An open device. C programs use a pointer to the `ibv_context` at the end of `verbs`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) verbs: verbs_context,
    pub(crate) events: Arc<Events>,
    /// Counts the objects of the context. The context cannot be closed before its objects are destroyed.
    pub(crate) usage: Usage,
    /// The generation of the process that opened the context.
    pub(crate) generation: u32,
    /// The next handle of an object.
    pub(crate) handles: AtomicU32,
    /// The protection domains by their handles, so that they can be imported.
    pub(crate) domains: Mutex<HashMap<u32, Weak<Domain>>>,
    /// The regions and device memory by their handles, so that they can be imported.
    pub(crate) exports: Exports,
    /// In a context of the kernel's drivers this is the device file. Here it is a descriptor that is never readable.
    _commands: OwnedFd,
}

/// The address of a device, and the events of a context.
type Opened = (usize, Weak<Events>);

/// The open contexts.
static OPENED: PerProcess<Mutex<Vec<Opened>>> = PerProcess::new(Mutex::new(Vec::new()), Box::default);

/// Queues an event for each open context of a device.
pub(crate) fn raise(device: &Device, event: &AsyncEvent) {
    let opened = unpoisoned(OPENED.get().lock());
    for (_, events) in opened.iter().filter(|(address, _)| *address == device.as_c().addr()) {
        if let Some(events) = events.upgrade() {
            events.put(event.clone());
        }
    }
}

impl Context {
    /// Returns the context of a C pointer.
    ///
    /// # Safety
    ///
    /// This provider opened `context`, which is not closed during the lifetime of the reference.
    pub(crate) unsafe fn of<'c>(context: *mut ibv_context) -> &'c Self {
        // SAFETY: guaranteed by the caller: the pointer is that of a `Context`'s part at this offset.
        unsafe { &*start(context) }
    }

    /// Returns a handle for a new object.
    pub(crate) fn handle(&self) -> u32 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens a device. `verbs` contains the functions of the context.
    pub(super) fn open(device: *mut ibv_device, mut verbs: verbs_context) -> Result<Self, Errno> {
        let events = Arc::new(EventFdQueue::watching(AsyncEvent::of_addresses)?);
        let commands = descriptor()?;
        {
            let mut opened = unpoisoned(OPENED.get().lock());
            opened.retain(|(_, events)| events.strong_count() > 0);
            opened.push((device.addr(), Arc::downgrade(&events)));
        }
        verbs.sz = size_of::<verbs_context>();
        verbs.context.device = device;
        verbs.context.cmd_fd = commands.as_raw_fd();
        verbs.context.async_fd = events.as_raw_fd();
        verbs.context.num_comp_vectors = limits::COMP_VECTORS as c_int;
        // This value marks the context as part of a `verbs_context`.
        verbs.context.abi_compat = ptr::without_provenance_mut(usize::MAX);
        let (usage, handles, domains) = (Usage::default(), AtomicU32::new(1), Mutex::default());
        let generation = fork::generation();
        Ok(Self {
            verbs,
            events,
            usage,
            generation,
            handles,
            domains,
            exports: Exports::default(),
            _commands: commands,
        })
    }
}

fn start(context: *mut ibv_context) -> *mut Context {
    context.wrapping_byte_sub(offset_of!(Context, verbs) + offset_of!(verbs_context, context)).cast()
}

/// Opens an eventfd that is never written to.
fn descriptor() -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes only numbers.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is new, and only this function owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Whether an object belongs to the parent of this forked process.
///
/// # Safety
///
/// This provider opened the context, which is not closed, in this process or its parent.
#[inline]
pub(super) unsafe fn is_inherited(context: *mut ibv_context) -> bool {
    let generation = fork::generation();
    // SAFETY: guaranteed by the caller.
    generation != 0 && unsafe { Context::of(context) }.generation != generation
}

/// Whether an object belongs to the parent of this process, or to a device that was removed.
///
/// # Safety
///
/// As for [`is_inherited`].
pub(super) unsafe fn is_unusable(context: *mut ibv_context) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { is_inherited(context) || Condition::of(context).is_removed() }
}

/// `ibv_close_device(context)`: fails with `EBUSY` while objects of the context exist.
pub(crate) unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the context belongs to this provider and is open.
    if unsafe { Context::of(context) }.usage.is_used() {
        return failure::minus_one(Errno::BUSY);
    }
    // SAFETY: `open::open_device` put the context on the heap, and a closed context is not used.
    drop(unsafe { Box::from_raw(start(context)) });
    0
}
