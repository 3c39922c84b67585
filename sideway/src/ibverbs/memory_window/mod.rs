//! `struct ibv_mw`: leave for peers to use a part of a region, given and taken back by requests rather than by registering.
//!
//! | | type 1 | type 2 |
//! |---|---|---|
//! | bound by | [`bind_mw`](MemoryWindow::bind_mw), its own verb | a send request |
//! | its key | chosen by the driver, new with each binding | chosen by the program: [`RemoteKey::inc_rkey`] of the last |
//! | taken back by | binding nothing ([`BindInformation::unbind`]), or deallocating | invalidating the key, also by the peer |
//!
//! The region that a window is bound to needs [`MemoryWindowBind`](super::AccessFlags::MemoryWindowBind). It cannot end while
//! a window is bound to it: `ibv_dereg_mr` refuses (`EBUSY`; soft-RoCE: `EINVAL`), and the region is leaked with the memory it
//! owns. So windows are dropped, or bound to nothing, before their regions. A device that ends the registration all the same
//! answers what comes through the window with a protection error.
//!
//! Soft-RoCE of Linux 6.1 checks what comes through a window against the range of the region, not against that of the window.
//!
//! Binding is safe: it gives no leave that the region's registration had not given, which is seen to here, as not all drivers
//! do (mlx5): the region has `MemoryWindowBind`, for a window that peers write through also
//! [`LocalWrite`](super::AccessFlags::LocalWrite), and all of the range. What registers memory of the caller
//! ([`reg_mr`](super::protection_domain::ProtectionDomain::reg_mr)) promises for `MemoryWindowBind` what it would for remote
//! access, and an [`OwnedMemoryRegion`](super::memory_region::OwnedMemoryRegion) with it gives no references.

mod bind;

use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_mw, ibv_mw_type as raw};

pub use self::bind::BindInformation;
use super::memory_region::RemoteKey;
use super::protection_domain::ProtectionDomain;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer, open_enum};

open_enum! {
    /// `enum ibv_mw_type`: how a window is bound.
    #[doc(alias = "ibv_mw_type")]
    pub enum MemoryWindowType {
        /// By a verb of its own; belongs to its domain.
        Type1 = raw::IBV_MW_TYPE_1.0,
        /// By a request; bound, it belongs to the queue pair of that.
        Type2 = raw::IBV_MW_TYPE_2.0,
    }
}

/// A memory window. It is a value that one owner has: binding changes its key, and takes it by `&mut`.
#[doc(alias = "ibv_mw")]
#[derive(Debug)]
pub struct MemoryWindow {
    // Dropped first: the domain must outlive it.
    handle: Handle<ibv_mw>,
    window_type: MemoryWindowType,
    /// The key that it was allocated with: all of its keys have the index of this.
    first_rkey: RemoteKey,
    pd: Arc<ProtectionDomain>,
}

/// `ibv_dealloc_mw` with the type of a verb's own function.
unsafe extern "C" fn dealloc(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { sys::ibv_dealloc_mw(mw) }
}

impl ProtectionDomain {
    /// `ibv_alloc_mw(pd, type)` — allocates a window, bound to nothing.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the driver has no windows; `EINVAL` for a type that the device has not; `ENOMEM`.
    ///
    /// # References
    ///
    /// [ibv_alloc_mw(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html)
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(self: &Arc<Self>, window_type: MemoryWindowType) -> Result<MemoryWindow, VerbError> {
        const VERB: &str = "ibv_alloc_mw";
        // Called later without a check.
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
        // SAFETY: just made, ours alone, and this is its verb.
        let handle = unsafe { Handle::new(mw, dealloc, "ibv_dealloc_mw") };
        // SAFETY: the window is live, and nobody else has it.
        let first_rkey = RemoteKey::from_raw(unsafe { (*mw.as_ptr()).rkey });
        Ok(MemoryWindow { handle, window_type, first_rkey, pd: Arc::clone(self) })
    }
}

#[cold]
fn of_another(rkey: RemoteKey, own: RemoteKey) -> VerbError {
    let hint = format!(
        "the key {rkey} is none of this window's, which are {own} but for the low 8 bits: RemoteKey::inc_rkey gives the next"
    );
    VerbError::invalid("ibv_mw::rkey", hint)
}

impl MemoryWindow {
    /// The key that peers name the window by; of a window of type 1 that was bound, that of the last binding.
    #[inline]
    pub fn rkey(&self) -> RemoteKey {
        // SAFETY: the window is live, and the field is written by ibv_bind_mw alone, for which `&mut self` is taken.
        RemoteKey::from_raw(unsafe { (*self.raw()).rkey })
    }

    /// Sets the key, where the completion of a binding tells that it failed and the window still has the one before, or
    /// where a window of type 2 was bound with another.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the key is of another window or region: all that differs between keys of one is the tag, the low 8 bits.
    /// Drivers find by this key what a binding changes (mlx5).
    #[inline]
    pub fn set_rkey(&mut self, rkey: RemoteKey) -> Result<(), VerbError> {
        if (rkey.raw() ^ self.first_rkey.raw()) >> 8 != 0 {
            return Err(of_another(rkey, self.first_rkey));
        }
        // SAFETY: the window is live and ours alone, and the key is one of its own; where the tag is wrong, the device
        // refuses what names it.
        unsafe { (*self.raw()).rkey = rkey.raw() };
        Ok(())
    }

    /// How the window is bound.
    #[inline]
    pub fn window_type(&self) -> MemoryWindowType {
        self.window_type
    }

    /// The domain that the window is in.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// `ibv_dealloc_mw(mw)` — takes a binding back, frees the window and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// The driver's errno; the window is leaked then, and its binding stands.
    ///
    /// # References
    ///
    /// [ibv_alloc_mw(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html)
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// The C object, for this crate.
    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_mw {
        self.handle.as_ptr()
    }
}
