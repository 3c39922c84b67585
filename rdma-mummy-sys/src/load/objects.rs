//! Which provider made an object that does not lead to a device.
//!
//! Objects of the connection manager do not until they are bound to one, and buffers never do. So the channels,
//! identifiers, events, address lists and buffers that providers in this process make are remembered by address, from
//! the call that hands one out to the call that takes it back. What is not remembered is the system's. A process
//! without such objects pays one atomic load.
//!
//! An address is forgotten *before* its object is destroyed: once that has happened, the system's library may get the
//! same address for an object of its own.
//!
//! A child after `fork` finds them as its parent had them, and the lock free, whatever other threads were doing.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::{Once, PoisonError, RwLock, RwLockWriteGuard};

use super::provider::Registered;
use super::route::{Owner, Routed, stamp};
use crate::bindings::rdma_cma::{rdma_addrinfo, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use crate::later::ibv_buf;

type Objects = BTreeMap<usize, &'static Registered>;

static MADE_HERE: RwLock<Objects> = RwLock::new(BTreeMap::new());
/// The lock, while its thread forks.
static HELD: Held = Held(UnsafeCell::new(None));

struct Held(UnsafeCell<Option<RwLockWriteGuard<'static, Objects>>>);

// SAFETY: it is used only by the thread that has the lock that it holds, or has just taken it.
unsafe impl Sync for Held {}

/// Has the lock taken by each thread that forks, so that no other has it in the child.
fn watch_forks() {
    extern "C" fn before() {
        let guard = MADE_HERE.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: this thread has the lock, and nobody else uses it before it is given back.
        unsafe { *HELD.0.get() = Some(guard) };
    }
    extern "C" fn after() {
        // SAFETY: the same thread, or its copy in the child, still with the lock.
        let guard = unsafe { (*HELD.0.get()).take() };
        drop(guard);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: the handlers take a lock and let it go; they are there as long as the process. Without memory to remember
            // them, children are as without them.
            unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        }
    });
}
/// Whether anything was ever remembered.
static ANY: AtomicBool = AtomicBool::new(false);

/// Remembers that `owner` made `object`, if `owner` is a provider in this process.
pub(crate) fn remember<T>(object: *const T, owner: Owner) {
    if let (Owner::Provider(registered), false) = (owner, object.is_null()) {
        watch_forks();
        ANY.store(true, Ordering::Release);
        // The map is whole whenever the lock is free, even if a thread panicked with it held.
        MADE_HERE.write().unwrap_or_else(PoisonError::into_inner).insert(object.addr(), registered);
    }
}

/// Forgets `object`.
pub(crate) fn forget<T>(object: *const T) {
    if ANY.load(Ordering::Acquire) {
        MADE_HERE.write().unwrap_or_else(PoisonError::into_inner).remove(&object.addr());
    }
}

fn owner<T>(object: *const T) -> Owner {
    if object.is_null() {
        return Owner::Nobody;
    }
    if !ANY.load(Ordering::Acquire) {
        return Owner::System;
    }
    let made_here = MADE_HERE.read().unwrap_or_else(PoisonError::into_inner);
    made_here.get(&object.addr()).map_or(Owner::System, |registered| Owner::Provider(registered))
}

/// Marks the device that `id` is bound to as one of `owner`, if `owner` is a provider in this process: the device has
/// not passed through a device list when the provider opened it by itself.
///
/// # Safety
///
/// `id` is a live identifier that `owner` made.
pub(crate) unsafe fn stamp_device(id: *mut rdma_cm_id, owner: Owner) {
    if let (Owner::Provider(registered), false) = (owner, id.is_null()) {
        // SAFETY: the identifier is live by contract, and the context that it is bound to, with its device, lives as
        // long.
        unsafe {
            let context = (*id).verbs;
            if !context.is_null() && !(*context).device.is_null() {
                stamp((*context).device, registered);
            }
        }
    }
}

macro_rules! routed_by_address {
    ($($object:ty),* $(,)?) => { $(
        impl Routed for *mut $object {
            unsafe fn owner(self) -> Owner {
                owner(self)
            }
        }
    )* };
}

routed_by_address!(ibv_buf, rdma_addrinfo, rdma_cm_event, rdma_cm_id, rdma_event_channel);
