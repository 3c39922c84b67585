//! The provider of objects that have no device.
//!
//! Objects of the connection manager have no device until they are bound; buffers never have one. So this map holds the
//! channels, identifiers, events, address lists and buffers created by providers in this process, by address, until
//! they are destroyed. Objects not in the map belong to the system. A process without such objects pays one atomic
//! load.
//!
//! An address is removed *before* its object is destroyed, because afterwards the system's library may reuse the
//! address.
//!
//! After `fork` the child has the parent's map, and the lock is free: see [`gate`].

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use super::gate;
use super::provider::Registered;
use super::route::{Owner, Routed, stamp};
use crate::bindings::rdma_cma::{rdma_addrinfo, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use crate::since_v44::ibv_buf;

pub(super) type Objects = BTreeMap<usize, Object>;

/// An object of a provider.
#[derive(Debug)]
pub(super) struct Object {
    provider: &'static Registered,
    /// The address of the channel that was made with the object and is destroyed with it, if the object is an
    /// identifier without a channel of the program.
    channel: Option<usize>,
}

static MADE_HERE: RwLock<Objects> = RwLock::new(BTreeMap::new());
/// Whether any object was ever added.
static ANY: AtomicBool = AtomicBool::new(false);

/// Adds `object` if `owner` is a provider in this process.
pub(crate) fn remember<T>(object: *const T, owner: Owner) {
    if let (Owner::Provider(registered), false) = (owner, object.is_null()) {
        gate::watch();
        ANY.store(true, Ordering::Release);
        lock().insert(object.addr(), Object { provider: registered, channel: None });
    }
}

/// Adds the channel of `id`, unless it is a channel of the program. Does nothing if `id` is not in the map.
///
/// # Safety
///
/// `id` is null or a live identifier.
pub(crate) unsafe fn remember_channel(id: *const rdma_cm_id) {
    // SAFETY: by contract an identifier that is not null is live.
    let channel = unsafe { id.as_ref() }.map_or(0, |id| id.channel.addr());
    let mut objects = lock();
    if channel == 0 || objects.contains_key(&channel) {
        return;
    }
    if let Some(object) = objects.get_mut(&id.addr()) {
        object.channel = Some(channel);
        let provider = object.provider;
        objects.insert(channel, Object { provider, channel: None });
    }
}

/// Removes the channel that was made with `id`, if any.
pub(crate) fn forget_channel(id: *const rdma_cm_id) {
    let mut objects = lock();
    if let Some(channel) = objects.get_mut(&id.addr()).and_then(|object| object.channel.take()) {
        objects.remove(&channel);
    }
}

/// Removes `object`, and the channel that was made with it.
pub(crate) fn forget<T>(object: *const T) {
    if ANY.load(Ordering::Acquire) {
        let mut objects = lock();
        if let Some(channel) = objects.remove(&object.addr()).and_then(|object| object.channel) {
            objects.remove(&channel);
        }
    }
}

/// Locks the map for this thread.
pub(super) fn lock() -> RwLockWriteGuard<'static, Objects> {
    // The map is consistent even if a thread panicked with the lock held.
    MADE_HERE.write().unwrap_or_else(PoisonError::into_inner)
}

fn owner<T>(object: *const T) -> Owner {
    if object.is_null() {
        return Owner::Null;
    }
    if !ANY.load(Ordering::Acquire) {
        return Owner::System;
    }
    let made_here = MADE_HERE.read().unwrap_or_else(PoisonError::into_inner);
    made_here.get(&object.addr()).map_or(Owner::System, |object| Owner::Provider(object.provider))
}

/// Marks the device of `id` as one of `owner`, if `owner` is a provider in this process. Needed because a provider may
/// open a device that no device list has returned.
///
/// # Safety
///
/// `id` is a live identifier created by `owner`.
pub(crate) unsafe fn stamp_device(id: *mut rdma_cm_id, owner: Owner) {
    if let (Owner::Provider(registered), false) = (owner, id.is_null()) {
        // SAFETY: by contract the identifier is live, and so are its context and device.
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
