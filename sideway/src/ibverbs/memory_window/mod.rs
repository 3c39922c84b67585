//! `struct ibv_mw`: remote access to part of a region. Requests grant and revoke this access, so no registration is
//! needed.
//!
//! | | type 1 | type 2 |
//! |---|---|---|
//! | bound by | [`bind_mw`](MemoryWindow::bind_mw), a separate verb | a request in a send queue |
//! | key | chosen by the driver anew for each binding | chosen by the program: [`RemoteKey::inc_rkey`] of the previous key |
//! | revoked by | an empty binding ([`BindInformation::unbind`]), or deallocation | invalidating the key, also by the peer |
//!
//! The region of a window must be registered with [`MemoryWindowBind`](super::AccessFlags::MemoryWindowBind). The
//! region cannot be deregistered while a window is bound to it: `ibv_dereg_mr` fails with `EBUSY` (on soft-RoCE with
//! `EINVAL`), and the region is leaked together with the memory that it owns. So drop or unbind windows before you drop
//! their regions. If a device ends the registration nevertheless, it rejects accesses through the window with a
//! protection error.
//!
//! Soft-RoCE on Linux 6.1 checks accesses through a window against the range of the region and not against that of the
//! window: see [`checks_window_bounds`](super::device_context::DeviceContext::checks_window_bounds).
//!
//! Binding is safe, because it grants no access beyond the region's registration. This crate checks that itself,
//! because not all drivers do (mlx5 does not). The region must contain the range, and must have `MemoryWindowBind`. If
//! peers may write, it must also have [`LocalWrite`](super::AccessFlags::LocalWrite). With `MemoryWindowBind`, the
//! contract of [`reg_mr`](super::protection_domain::ProtectionDomain::reg_mr) covers remote access, and an
//! [`OwnedMemoryRegion`](super::memory_region::OwnedMemoryRegion) returns no references.

mod bind;

use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_mw, ibv_mw_type as raw};

pub use self::bind::BindInformation;
use super::device_context::DeviceContext;
use super::memory_region::RemoteKey;
use super::protection_domain::ProtectionDomain;
use super::quirks::Driver;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer, open_enum};

impl DeviceContext {
    /// Whether the device checks accesses through a memory window against the range of the window. Soft-RoCE checks them
    /// against the range of the region, so a peer with the key can access the whole region.
    pub fn checks_window_bounds(&self) -> bool {
        Driver::of(self) != Driver::SoftRoce
    }
}

open_enum! {
    /// `enum ibv_mw_type`: how a window is bound.
    #[doc(alias = "ibv_mw_type")]
    pub enum MemoryWindowType {
        /// A window that is bound by a separate verb. It belongs to its domain.
        Type1 = raw::IBV_MW_TYPE_1.0,
        /// A window that is bound by a request. It then belongs to the queue pair of that request.
        Type2 = raw::IBV_MW_TYPE_2.0,
    }
}

/// A memory window. It has only one owner, because binding changes its key and so takes `&mut`.
#[doc(alias = "ibv_mw")]
#[derive(Debug)]
pub struct MemoryWindow {
    // This is the first field, so it is dropped first, because the domain must outlive it.
    handle: Handle<ibv_mw>,
    window_type: MemoryWindowType,
    /// The first key of the window; all later keys have the same index.
    first_rkey: RemoteKey,
    pd: Arc<ProtectionDomain>,
}

/// Calls `ibv_dealloc_mw`. This is a function with a C signature, which a handle can store.
unsafe extern "C" fn dealloc(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { sys::ibv_dealloc_mw(mw) }
}

impl ProtectionDomain {
    /// `ibv_alloc_mw(pd, type)` — allocates an unbound window.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the driver does not support windows, `EINVAL` if the device does not support the type,
    /// and `ENOMEM` if resources are exhausted.
    ///
    /// # References
    ///
    /// [ibv_alloc_mw(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html)
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(self: &Arc<Self>, window_type: MemoryWindowType) -> Result<MemoryWindow, VerbError> {
        const VERB: &str = "ibv_alloc_mw";
        // Later code calls these functions without a check.
        self.device_context().require_operations(
            VERB,
            &[
                ("alloc_mw", |operations| operations.alloc_mw.is_some()),
                ("dealloc_mw", |operations| operations.dealloc_mw.is_some()),
            ],
        )?;
        if window_type == MemoryWindowType::Type1 {
            self.device_context()
                .require_operations(VERB, &[("bind_mw", |operations| operations.bind_mw.is_some())])?;
        }
        // SAFETY: the domain is live.
        let mw = check_pointer(VERB, unsafe { sys::ibv_alloc_mw(self.raw(), sys::ibv_mw_type(window_type.raw())) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(mw, dealloc, "ibv_dealloc_mw") };
        // SAFETY: the window is live and not shared.
        let first_rkey = RemoteKey::from_raw(unsafe { (*mw.as_ptr()).rkey });
        Ok(MemoryWindow { handle, window_type, first_rkey, pd: Arc::clone(self) })
    }
}

#[cold]
fn of_another(rkey: RemoteKey, own: RemoteKey) -> VerbError {
    let hint = format!(
        "the key {rkey} does not belong to this window, whose keys are {own} except for the low 8 bits; use \
        RemoteKey::inc_rkey"
    );
    VerbError::invalid("ibv_mw::rkey", hint)
}

impl MemoryWindow {
    /// Returns the window's key. For a bound window of type 1, this is the key of its last binding.
    #[inline]
    pub fn rkey(&self) -> RemoteKey {
        // SAFETY: the window is live, and only ibv_bind_mw writes the field, through `&mut self`.
        RemoteKey::from_raw(unsafe { (*self.raw()).rkey })
    }

    /// Sets the key of the window. This is necessary if a bind failed, so that the device still uses the old key, or
    /// after a window of type 2 was bound with another key.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the key belongs to another window or region. The keys of one window differ only in the tag,
    /// which is the low 8 bits. This check is needed because some drivers (mlx5) use the key to find the object that a
    /// bind changes.
    #[inline]
    pub fn set_rkey(&mut self, rkey: RemoteKey) -> Result<(), VerbError> {
        if (rkey.raw() ^ self.first_rkey.raw()) >> 8 != 0 {
            return Err(of_another(rkey, self.first_rkey));
        }
        // SAFETY: the window is live and not shared, and the key belongs to it. If the tag is wrong, the device rejects
        // requests that name the key.
        unsafe { (*self.raw()).rkey = rkey.raw() };
        Ok(())
    }

    /// Returns how the window is bound.
    #[inline]
    pub fn window_type(&self) -> MemoryWindowType {
        self.window_type
    }

    /// Returns the protection domain.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// `ibv_dealloc_mw(mw)` — unbinds and frees the window. This method returns an error of the verb, whereas drop only
    /// logs it.
    ///
    /// # Errors
    ///
    /// The driver's errno; the window is then leaked, and its binding remains.
    ///
    /// # References
    ///
    /// [ibv_alloc_mw(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html)
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the C object for this crate.
    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_mw {
        self.handle.as_ptr()
    }
}
