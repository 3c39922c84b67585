//! Binding windows.

use std::marker::PhantomData;
use std::ptr;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_mw_bind, ibv_mw_bind_info};

use super::{MemoryWindow, MemoryWindowType};
use crate::error::{Errno, VerbError};
use crate::ffi::check_errno;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::memory_region::{MemoryRegion, RemoteKey};
use crate::ibverbs::queue_pair::{QueuePairType, SendQueue};
use crate::ibverbs::quirks::Driver;
use crate::ibverbs::work_request::WorkRequestFlags;

/// `struct ibv_mw_bind_info`: what a window is bound to.
#[doc(alias = "ibv_mw_bind_info")]
#[derive(Clone, Copy, Debug)]
pub struct BindInformation<'r> {
    info: ibv_mw_bind_info,
    /// Why no window can be bound so, whichever it is.
    refused: Option<&'static str>,
    region: PhantomData<&'r MemoryRegion>,
}

// SAFETY: the pointer is to the C object of a region that is borrowed, and regions may be shared.
unsafe impl Send for BindInformation<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for BindInformation<'_> {}

impl<'r> BindInformation<'r> {
    /// `length` bytes of `region` from the address `addr` on, as requests name it ([`MemoryRegion::iova`]). `access` is of
    /// [`RemoteRead`](AccessFlags::RemoteRead), [`RemoteWrite`](AccessFlags::RemoteWrite),
    /// [`RemoteAtomic`](AccessFlags::RemoteAtomic) (the latter two where the region has
    /// [`LocalWrite`](AccessFlags::LocalWrite)) and [`ZeroBased`](AccessFlags::ZeroBased): then peers name the first byte of
    /// the window by 0.
    ///
    /// Binding is refused, before a driver sees it, where the region was registered without
    /// [`MemoryWindowBind`](AccessFlags::MemoryWindowBind), the range is not within it, or what it was registered with is not
    /// known (an [imported](crate::ibverbs::protection_domain::ProtectionDomain::import_mr) one).
    #[inline]
    pub fn new(region: &'r MemoryRegion, addr: u64, length: u64, access: AccessFlags) -> Self {
        let info = ibv_mw_bind_info { mr: region.raw(), addr, length, mw_access_flags: access.bits() };
        // It stays so: what is borrowed is not registered anew.
        Self { info, refused: region.refuses_window(addr, length, access), region: PhantomData }
    }

    /// Nothing: takes the binding back of a window of type 1. Many drivers do not, see [`bind_mw`](MemoryWindow::bind_mw).
    #[inline]
    pub const fn unbind() -> BindInformation<'static> {
        let info = ibv_mw_bind_info { mr: ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
        BindInformation { info, refused: None, region: PhantomData }
    }

    /// Whether it is [`unbind`](Self::unbind).
    #[inline]
    pub const fn is_unbind(&self) -> bool {
        self.info.mr.is_null()
    }

    /// The address of the first byte.
    #[inline]
    pub const fn addr(&self) -> u64 {
        self.info.addr
    }

    /// Bytes.
    #[inline]
    pub const fn length(&self) -> u64 {
        self.info.length
    }

    /// What peers may do.
    #[inline]
    pub const fn access(&self) -> AccessFlags {
        AccessFlags::from_bits_retain(self.info.mw_access_flags)
    }

    /// For C: its region, where there is one, is live while `'r` lasts.
    #[inline]
    pub(crate) fn raw(&self) -> ibv_mw_bind_info {
        self.info
    }

    /// Whether a window can be bound so: the region is of its domain, has the range, and was registered for what peers may do.
    /// Safe code gives no leave that the region's registration had not given, whether the driver looks or not.
    ///
    /// # Errors
    ///
    /// What is wrong.
    #[inline]
    pub(crate) fn check(&self, window: &MemoryWindow) -> Result<(), &'static str> {
        // SAFETY: the region is null or borrowed, hence live, and its domain is written by `rereg_mr` alone, which takes
        // the region for itself.
        let pd = unsafe { self.info.mr.as_ref() }.map(|mr| mr.pd);
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        if pd.is_some_and(|pd| pd != window.pd.raw()) {
            return Err("the region is of another protection domain than the window");
        }
        Ok(())
    }
}

impl MemoryWindow {
    /// `ibv_bind_mw(qp, mw, mw_bind)` — posts the request to bind a window of type 1, and returns the key that it has once
    /// that has completed. Peers are told the key by a send on the same queue, or after the completion. Should that be a
    /// failure, the window has its old key still: give it back by [`set_rkey`](Self::set_rkey).
    ///
    /// `queue` is the send queue of a reliable or unreliable connection in the window's domain
    /// ([`queues`](crate::ibverbs::queue_pair::Pair::queues) lends it), `wr_id` comes back in the completion, and of `flags`
    /// [`Signaled`](WorkRequestFlags::Signaled) and [`Fence`](WorkRequestFlags::Fence) count.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the window is of type 2, the queue pair of another device or of a service without windows, the region
    ///   of another domain, the null region, or one that has no such window ([`BindInformation::new`]); or the driver refuses
    ///   range or access.
    /// - `ENOMEM`: the queue is full.
    /// - `EPERM`, `EOPNOTSUPP`: the device has no such windows; or the binding was to be [taken back](BindInformation::unbind), which
    ///   is refused unless the driver is mlx5's or in this process: drop the window instead.
    ///
    /// # References
    ///
    /// [ibv_bind_mw(3)](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html)
    #[doc(alias = "ibv_bind_mw")]
    pub fn bind_mw(
        &mut self,
        queue: &mut impl SendQueue,
        wr_id: u64,
        flags: WorkRequestFlags,
        info: &BindInformation<'_>,
    ) -> Result<RemoteKey, VerbError> {
        const VERB: &str = "ibv_bind_mw";
        let core = queue.core();
        if self.window_type != MemoryWindowType::Type1 {
            return Err(VerbError::invalid(VERB, "only windows of type 1 are bound so; type 2 is bound by a request"));
        }
        if core.context().raw() != self.pd.device_context().raw() {
            return Err(VerbError::invalid(VERB, "the queue pair is of another device context than the window"));
        }
        match core.qp_type() {
            QueuePairType::ReliableConnection
            | QueuePairType::UnreliableConnection
            | QueuePairType::ReliableConnectionExtendedSend => {}
            other => return Err(VerbError::invalid(VERB, format!("queue pairs of type {other:?} bind no windows"))),
        }
        info.check(self).map_err(|hint| VerbError::invalid(VERB, hint))?;
        if info.is_unbind() && !Driver::of(core.context()).unbinds() {
            return Err(VerbError::new(VERB, Errno::from_raw(libc::EOPNOTSUPP)).with_hint(
                "the driver is not known to take a binding back so, and some crash: drop the window, and allocate another",
            ));
        }
        let flags = flags & (WorkRequestFlags::Signaled | WorkRequestFlags::Fence);
        let mut bind = ibv_mw_bind { wr_id, send_flags: flags.bits(), bind_info: info.raw() };
        // SAFETY: queue pair, window and region are live and of one device, whose driver has the operation (`alloc_mw`).
        // `&mut` says that nobody else posts, that no batch is open, and that nobody reads the window's key. The driver
        // keeps the keys, not the pointers.
        let ret = unsafe { sys::ibv_bind_mw(core.raw(), self.raw(), &mut bind) };
        check_errno(VERB, ret).map_err(|error| match error.errno().raw() {
            libc::EINVAL => error.with_hint(
                "the driver does not take this range or access, although the region has them: some bind no windows to \
                 regions with ZeroBased, or none with it",
            ),
            _ => error,
        })?;
        Ok(self.rkey())
    }
}
