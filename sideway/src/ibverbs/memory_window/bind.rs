//! Binding memory windows.

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

/// `struct ibv_mw_bind_info`: the range to which a window is bound.
#[doc(alias = "ibv_mw_bind_info")]
#[derive(Clone, Copy, Debug)]
pub struct BindInformation<'r> {
    info: ibv_mw_bind_info,
    /// The reason why no window can be bound to the range, if there is one.
    refused: Option<&'static str>,
    region: PhantomData<&'r MemoryRegion>,
}

// SAFETY: the pointer is to the C object of a borrowed region, and regions are Sync.
unsafe impl Send for BindInformation<'_> {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for BindInformation<'_> {}

impl<'r> BindInformation<'r> {
    /// Creates a binding to `length` bytes of `region` that start at `addr`. `addr` is an address as requests use it
    /// ([`MemoryRegion::iova`]). `access` may contain [`RemoteRead`](AccessFlags::RemoteRead). If the region has
    /// [`LocalWrite`](AccessFlags::LocalWrite), `access` may also contain [`RemoteWrite`](AccessFlags::RemoteWrite) and
    /// [`RemoteAtomic`](AccessFlags::RemoteAtomic). With [`ZeroBased`](AccessFlags::ZeroBased), peers address the first
    /// byte as 0.
    ///
    /// A bind fails without a call of the driver in three cases: the region was registered without
    /// [`MemoryWindowBind`](AccessFlags::MemoryWindowBind), the range exceeds the region, or the region's registration
    /// is unknown because the region is [imported](crate::ibverbs::protection_domain::ProtectionDomain::import_mr).
    #[inline]
    pub fn new(region: &'r MemoryRegion, addr: u64, length: u64, access: AccessFlags) -> Self {
        let info = ibv_mw_bind_info { mr: region.raw(), addr, length, mw_access_flags: access.bits() };
        // The reason stays valid, because a borrowed region cannot be re-registered.
        Self { info, refused: region.refuses_window(addr, length, access), region: PhantomData }
    }

    /// Creates an empty binding, which unbinds a window of type 1. Many drivers do not support this; see
    /// [`bind_mw`](MemoryWindow::bind_mw).
    #[inline]
    pub const fn unbind() -> BindInformation<'static> {
        let info = ibv_mw_bind_info { mr: ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
        BindInformation { info, refused: None, region: PhantomData }
    }

    /// Whether this is the empty binding that [`unbind`](Self::unbind) creates.
    #[inline]
    pub const fn is_unbind(&self) -> bool {
        self.info.mr.is_null()
    }

    /// Returns the address of the first byte.
    #[inline]
    pub const fn addr(&self) -> u64 {
        self.info.addr
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn length(&self) -> u64 {
        self.info.length
    }

    /// Returns the access rights of peers.
    #[inline]
    pub const fn access(&self) -> AccessFlags {
        AccessFlags::from_bits_retain(self.info.mw_access_flags)
    }

    /// Returns the C struct. If it names a region, that region is live for `'r`.
    #[inline]
    pub(crate) fn raw(&self) -> ibv_mw_bind_info {
        self.info
    }

    /// Checks that a window can be bound: the region is in the window's domain, contains the range, and was registered
    /// for this access. So safe code cannot grant more access than the registration does, even if the driver does not
    /// check this.
    ///
    /// # Errors
    ///
    /// The reason.
    #[inline]
    pub(crate) fn check(&self, window: &MemoryWindow) -> Result<(), &'static str> {
        // SAFETY: the region is null or borrowed, hence live; only `rereg_mr` writes its domain, through `&mut`.
        let pd = unsafe { self.info.mr.as_ref() }.map(|mr| mr.pd);
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        if pd.is_some_and(|pd| pd != window.pd.raw()) {
            return Err("the region belongs to another protection domain than the window");
        }
        Ok(())
    }
}

impl MemoryWindow {
    /// `ibv_bind_mw(qp, mw, mw_bind)` — posts a request that binds a window of type 1, and returns the window's new
    /// key. The key is valid once the request completes. Send the key to a peer on the same queue, or after the
    /// completion. If the request fails, the device still uses the window's old key; restore that key with
    /// [`set_rkey`](Self::set_rkey).
    ///
    /// `queue` is the send queue of a reliable or unreliable connection in the window's domain; borrow it with
    /// [`queues`](crate::ibverbs::queue_pair::Pair::queues). The completion contains `wr_id`. Valid `flags` are
    /// [`Signaled`](WorkRequestFlags::Signaled) and [`Fence`](WorkRequestFlags::Fence).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the window is of type 2. Or the queue pair belongs to another device, or its service has no windows.
    ///   Or the region belongs to another domain, is the null region, or cannot have such a window
    ///   ([`BindInformation::new`]). Or the driver rejects the range or the access flags.
    /// - `ENOMEM`: the queue is full.
    /// - `EPERM`, `EOPNOTSUPP`: the device does not support such windows. Or the request was to
    ///   [unbind](BindInformation::unbind) the window, which only the mlx5 driver and drivers in this process support;
    ///   drop the window instead.
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
            return Err(VerbError::invalid(
                VERB,
                "bind_mw binds windows of type 1 only; post a bind request for type 2",
            ));
        }
        if core.context().raw() != self.pd.device_context().raw() {
            return Err(VerbError::invalid(VERB, "the queue pair belongs to another device context than the window"));
        }
        match core.qp_type() {
            QueuePairType::ReliableConnection
            | QueuePairType::UnreliableConnection
            | QueuePairType::ReliableConnectionExtendedSend => {}
            other => {
                return Err(VerbError::invalid(VERB, format!("queue pairs of type {other:?} do not support windows")));
            }
        }
        info.check(self).map_err(|hint| VerbError::invalid(VERB, hint))?;
        if info.is_unbind() && !Driver::of(core.context()).unbinds() {
            return Err(VerbError::new(VERB, Errno::from_raw(libc::EOPNOTSUPP))
                .with_hint("the driver may crash on unbinding; drop the window and allocate another"));
        }
        let flags = flags & (WorkRequestFlags::Signaled | WorkRequestFlags::Fence);
        let mut bind = ibv_mw_bind { wr_id, send_flags: flags.bits(), bind_info: info.raw() };
        // SAFETY: the queue pair, the window and the region are live and belong to one device, whose driver has the
        // operation (`alloc_mw`). `&mut` excludes other posts, an open batch, and concurrent reads of the window's key.
        // The driver stores the keys, but not the pointers.
        let ret = unsafe { sys::ibv_bind_mw(core.raw(), self.raw(), &mut bind) };
        check_errno(VERB, ret).map_err(|error| match error.errno().raw() {
            libc::EINVAL => error.with_hint(
                "the driver rejects this range or access, although the region permits them; some drivers do not \
                support ZeroBased windows, or windows on regions with ZeroBased",
            ),
            _ => error,
        })?;
        Ok(self.rkey())
    }
}
