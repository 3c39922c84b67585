//! `struct ibv_ah`: the way to the receiver of a datagram, known to the device.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_ah;

use super::AddressHandleAttribute;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer, clear_errno};
use crate::ibverbs::device_context::{DeviceContext, LinkLayer};
use crate::ibverbs::protection_domain::ProtectionDomain;

/// `struct ibv_ah` — an address handle: datagrams sent with it take the way that it was made of. It works with queue pairs
/// of its own protection domain.
#[doc(alias = "ibv_ah")]
#[derive(Debug)]
pub struct AddressHandle {
    // Dropped first: the domain must outlive it.
    handle: Handle<ibv_ah>,
    pd: Arc<ProtectionDomain>,
}

impl ProtectionDomain {
    /// `ibv_create_ah(pd, attr)` — makes an address handle. On Ethernet, the hardware address of the peer is found out here,
    /// which may take its time.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a port or GID index that the device has not; on Ethernet also a way without a global route. The hint tells
    ///   which.
    /// - `ETIMEDOUT`: the peer did not tell its hardware address (ARP, neighbour discovery).
    /// - `ENETUNREACH`, `EHOSTUNREACH`: there is no route to the peer's GID.
    /// - `ENOMEM`: out of resources.
    /// - `EIO`: the driver gave no reason, as some do where others say `EINVAL`; the hint is the same.
    ///
    /// # References
    ///
    /// [ibv_create_ah(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html)
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(self: &Arc<Self>, attribute: &AddressHandleAttribute) -> Result<Arc<AddressHandle>, VerbError> {
        const VERB: &str = "ibv_create_ah";
        let mut attr = *attribute.as_raw();
        // Drivers that look at the way themselves refuse it without setting errno: what an earlier call left is not the reason.
        clear_errno();
        // SAFETY: the domain is live, and the attributes are complete.
        let ah = unsafe { sys::ibv_create_ah(self.raw(), &mut attr) };
        let ah = check_pointer(VERB, ah).map_err(|error| explain_way(error, self.device_context(), attribute))?;
        // SAFETY: just made in this domain, ours alone, and ibv_destroy_ah is its verb.
        let handle = unsafe { Handle::new(ah, sys::ibv_destroy_ah, "ibv_destroy_ah") };
        Ok(Arc::new(AddressHandle { handle, pd: Arc::clone(self) }))
    }
}

impl AddressHandle {
    /// `ibv_destroy_ah(ah)` — destroys the handle and reports, where dropping only logs.
    ///
    /// A handle in an `Arc` is taken out of it with [`Arc::into_inner`].
    ///
    /// # Errors
    ///
    /// The driver's errno; the handle is leaked then.
    ///
    /// # References
    ///
    /// [ibv_create_ah(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html)
    #[doc(alias = "ibv_destroy_ah")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// The domain that the handle is of.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not destroyed.
    pub unsafe fn ah(&self) -> NonNull<ibv_ah> {
        self.handle.as_non_null()
    }

    /// The C object, for this crate.
    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_ah {
        self.handle.as_ptr()
    }
}

/// Says what is wrong with a way that a device refused.
#[cold]
pub(super) fn explain_way(error: VerbError, context: &DeviceContext, way: &AddressHandleAttribute) -> VerbError {
    let (index, port_num) = (way.grh_src_gid_index(), way.port());
    let peer = way.grh_dest_gid();
    match error.errno().raw() {
        libc::ETIMEDOUT => {
            return error.with_hint(format!(
                "the hardware address of {peer} could not be found out: is the peer up, and on the network of GID index \
                 {index}?"
            ));
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => {
            return error.with_hint(format!("there is no route to {peer} from GID index {index}"));
        }
        // EIO stands for a failure without a reason.
        libc::EINVAL | libc::ENODATA | libc::ENOENT | libc::EIO => {}
        _ => return error,
    }
    let port = match context.query_port(port_num) {
        Ok(port) => port,
        Err(failure) => return error.with_hint(format!("port {port_num}: {failure}")),
    };
    if !way.is_global() {
        return match port.link_layer() {
            LinkLayer::Ethernet => {
                error.with_hint("the port is Ethernet: the way needs setup_grh with the GID of the peer")
            }
            _ => error,
        };
    }
    if u32::from(index) >= port.gid_tbl_len() {
        return error.with_hint(format!(
            "GID index {index} is asked for and port {port_num} has {} entries",
            port.gid_tbl_len()
        ));
    }
    match context.query_gid(port_num, index.into()) {
        Ok(gid) if gid.is_zero() => error.with_hint(format!("GID index {index} of port {port_num} is not in use")),
        Ok(_) if peer.is_zero() => error.with_hint("the GID of the peer is zero: name it with setup_grh"),
        Ok(_) => error,
        Err(failure) => error.with_hint(format!("GID index {index} of port {port_num}: {failure}")),
    }
}
