//! Which provider made an object, and so serves the verbs on it.
//!
//! Every object of libibverbs begins with its context, and a context with its device. The device of an in-process
//! provider carries the address of its registration in `_ops._dummy1`, a field that rdma-core documents as never used
//! and leaves zero. So "who made this" is two loads and, where the field is not zero, a compare with each registered
//! provider. An address that is none of theirs is not followed: the object belongs to the system.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::library::{Library, Table};
use super::provider::{self, Registered};
use crate::bindings::verbs::*;
use crate::since_v44::{ibv_comp_cntr, ibv_dmah};

/// Who serves a call.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    /// The library of the system, loaded now if need be.
    System,
    /// A provider in this process.
    Provider(&'static Registered),
    /// The object is a null pointer.
    Nobody,
}

/// A pointer to an object whose maker can be told.
pub(crate) trait Routed {
    /// Who made the object.
    ///
    /// # Safety
    ///
    /// The pointer is null or to a live object, whose context and device are alive as well.
    unsafe fn owner(self) -> Owner;
}

impl Routed for *mut ibv_device {
    unsafe fn owner(self) -> Owner {
        if self.is_null() {
            return Owner::Nobody;
        }
        // SAFETY: the device is alive by contract. The field is as large and as aligned as any pointer, and whoever
        // writes it while devices are shared does so atomically, in `stamp`.
        let mark = unsafe { mark_of(self).load(Ordering::Relaxed) };
        if mark.is_null() {
            return Owner::System;
        }
        provider::all().find(|&registered| ptr::eq(registered, mark)).map_or(Owner::System, Owner::Provider)
    }
}

impl Routed for *mut ibv_context {
    unsafe fn owner(self) -> Owner {
        if self.is_null() {
            return Owner::Nobody;
        }
        // SAFETY: the context is alive by contract, and so is its device.
        match unsafe { (*self).device.owner() } {
            // A context without a device is odd, but it is no null argument of the caller.
            Owner::Nobody => Owner::System,
            owner => owner,
        }
    }
}

macro_rules! routed_by_context {
    ($($object:ty),* $(,)?) => { $(
        impl Routed for *mut $object {
            unsafe fn owner(self) -> Owner {
                if self.is_null() {
                    return Owner::Nobody;
                }
                // SAFETY: the object is alive by contract, and so is its context.
                unsafe { (*self).context.owner() }
            }
        }
    )* };
}

routed_by_context!(
    ibv_ah,
    ibv_comp_channel,
    ibv_comp_cntr,
    ibv_cq,
    ibv_cq_ex,
    ibv_dm,
    ibv_dmah,
    ibv_mr,
    ibv_mw,
    ibv_pd,
    ibv_qp,
    ibv_rwq_ind_table,
    ibv_srq,
    ibv_wq,
);

impl Routed for *mut ibv_qp_ex {
    unsafe fn owner(self) -> Owner {
        // SAFETY: an extended queue pair begins with the plain one, and is alive by contract.
        unsafe { self.cast::<ibv_qp>().owner() }
    }
}

/// The function that `pick` takes from the table of `owner`, or the errno value with which the verb fails: `EOPNOTSUPP`
/// when the library or the function is not there, `EINVAL` for a null object.
#[inline]
pub(crate) fn find<T: Table, F>(owner: Owner, pick: impl FnOnce(&'static T) -> Option<F>) -> Result<F, c_int> {
    pick(table(owner)?).ok_or(libc::EOPNOTSUPP)
}

/// Not inlined: each verb would have a copy of what loads the library.
#[inline(never)]
fn table<T: Table>(owner: Owner) -> Result<&'static T, c_int> {
    let table = match owner {
        Owner::System => T::slot().get().ok().map(Library::table),
        Owner::Provider(registered) => T::of(registered),
        Owner::Nobody => return Err(libc::EINVAL),
    };
    table.ok_or(libc::EOPNOTSUPP)
}

/// Marks `device` as one of `registered`.
///
/// # Safety
///
/// `device` is a live device that this provider made.
pub(crate) unsafe fn stamp(device: *mut ibv_device, registered: &'static Registered) {
    // SAFETY: the device is alive and may be written to by contract.
    unsafe { mark_of(device).store(ptr::from_ref(registered).cast_mut(), Ordering::Relaxed) };
}

/// The field that tells the provider of a device.
///
/// # Safety
///
/// `device` is live for as long as the result is used, and nothing accesses the field otherwise.
unsafe fn mark_of<'a>(device: *mut ibv_device) -> &'a AtomicPtr<Registered> {
    // SAFETY: the field lies in the live device and has the size and alignment of a pointer, as all function pointers
    // do on the platforms of libibverbs.
    unsafe { AtomicPtr::from_ptr((&raw mut (*device)._ops._dummy1).cast()) }
}
