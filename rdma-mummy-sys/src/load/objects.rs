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
//! A child after `fork` finds them as its parent had them, and the lock free, whatever other threads were doing: [`gate`].

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use super::gate;
use super::provider::Registered;
use super::route::{Owner, Routed, stamp};
use crate::bindings::rdma_cma::{rdma_addrinfo, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use crate::since_v44::ibv_buf;

pub(super) type Objects = BTreeMap<usize, &'static Registered>;

static MADE_HERE: RwLock<Objects> = RwLock::new(BTreeMap::new());
/// Whether anything was ever remembered.
static ANY: AtomicBool = AtomicBool::new(false);

/// Remembers that `owner` made `object`, if `owner` is a provider in this process.
pub(crate) fn remember<T>(object: *const T, owner: Owner) {
    if let (Owner::Provider(registered), false) = (owner, object.is_null()) {
        gate::watch();
        ANY.store(true, Ordering::Release);
        lock().insert(object.addr(), registered);
    }
}

/// Forgets `object`.
pub(crate) fn forget<T>(object: *const T) {
    if ANY.load(Ordering::Acquire) {
        lock().remove(&object.addr());
    }
}

/// What is remembered, for this thread alone.
pub(super) fn lock() -> RwLockWriteGuard<'static, Objects> {
    // The map is whole whenever the lock is free, even if a thread panicked with it held.
    MADE_HERE.write().unwrap_or_else(PoisonError::into_inner)
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
