//! Finding an object's provider, which serves the verbs on it.
//!
//! Every object of libibverbs starts with its context, and a context with its device. A provider stores the address of
//! its registration in its devices' `_ops._dummy1`, a field that rdma-core documents as unused and leaves zero. Finding
//! the provider takes two loads and, if the field is not zero, a comparison with each registered provider. Any other
//! address is not dereferenced: the object belongs to the system.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::library::{Library, Table};
use super::provider::{self, Registered};
use crate::bindings::verbs::*;
use crate::since_v44::{ibv_comp_cntr, ibv_dmah};

/// The provider of an object.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    /// The system's library, loaded now if necessary.
    System,
    /// A provider in this process.
    Provider(&'static Registered),
    /// The object is a null pointer.
    Null,
}

/// A pointer to an object whose provider can be found.
pub(crate) trait Routed {
    /// Returns the object's provider.
    ///
    /// # Safety
    ///
    /// The pointer is null or to a live object, whose context and device are live too.
    unsafe fn owner(self) -> Owner;
}

impl Routed for *mut ibv_device {
    unsafe fn owner(self) -> Owner {
        if self.is_null() {
            return Owner::Null;
        }
        // SAFETY: the device is live by contract. The field has the size and alignment of a pointer, and `stamp` writes
        // it atomically while devices are shared.
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
            return Owner::Null;
        }
        // SAFETY: the context is alive by contract, and so is its device.
        match unsafe { (*self).device.owner() } {
            // A context without a device is unexpected, but not a null argument.
            Owner::Null => Owner::System,
            owner => owner,
        }
    }
}

macro_rules! routed_by_context {
    ($($object:ty),* $(,)?) => { $(
        impl Routed for *mut $object {
            unsafe fn owner(self) -> Owner {
                if self.is_null() {
                    return Owner::Null;
                }
                // SAFETY: by contract the object is live, and so is its context.
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
        // SAFETY: an extended queue pair starts with a plain one, and is live by contract.
        unsafe { self.cast::<ibv_qp>().owner() }
    }
}

/// Returns the function that `pick` takes from the table of `owner`, or the errno value of the failed verb:
/// `EOPNOTSUPP` if the library or the function is missing, `EINVAL` for a null object.
#[inline]
pub(crate) fn find<T: Table, F>(owner: Owner, pick: impl FnOnce(&'static T) -> Option<F>) -> Result<F, c_int> {
    pick(table(owner)?).ok_or(libc::EOPNOTSUPP)
}

/// Not inlined, because otherwise each verb would contain a copy of the loading code.
#[inline(never)]
fn table<T: Table>(owner: Owner) -> Result<&'static T, c_int> {
    let table = match owner {
        Owner::System => T::slot().get().ok().map(Library::table),
        Owner::Provider(registered) => T::of(registered),
        Owner::Null => return Err(libc::EINVAL),
    };
    table.ok_or(libc::EOPNOTSUPP)
}

/// Marks `device` as one of `registered`.
///
/// # Safety
///
/// `device` is a live device of this provider.
pub(crate) unsafe fn stamp(device: *mut ibv_device, registered: &'static Registered) {
    // SAFETY: the device is alive and may be written to by contract.
    unsafe { mark_of(device).store(ptr::from_ref(registered).cast_mut(), Ordering::Relaxed) };
}

/// Returns the field that identifies a device's provider.
///
/// # Safety
///
/// `device` is live while the result is used, and the field is accessed only through it.
unsafe fn mark_of<'a>(device: *mut ibv_device) -> &'a AtomicPtr<Registered> {
    // SAFETY: the field lies in the live device and, like all function pointers on platforms of libibverbs, has the
    // size and alignment of a pointer.
    unsafe { AtomicPtr::from_ptr((&raw mut (*device)._ops._dummy1).cast()) }
}
