//! `struct ibv_ah`: the path to the receiver of datagrams, stored in the device.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_ah;

use super::AddressHandleAttribute;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer, clear_errno};
use crate::ibverbs::device_context::{DeviceContext, LinkLayer};
use crate::ibverbs::protection_domain::ProtectionDomain;

/// `struct ibv_ah` — an address handle: the path of the datagrams that are sent with it. It can be used only with queue
/// pairs of the same protection domain.
#[doc(alias = "ibv_ah")]
#[derive(Debug)]
pub struct AddressHandle {
    // This is the first field, so it is dropped first, because the domain must outlive it.
    handle: Handle<ibv_ah>,
    pd: Arc<ProtectionDomain>,
}

impl ProtectionDomain {
    /// `ibv_create_ah(pd, attr)` — creates an address handle. On Ethernet this resolves the peer's hardware address,
    /// which may take some time.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the device has no such port or GID index, or, on Ethernet, the path has no global route. The hint
    ///   names the cause.
    /// - `ETIMEDOUT`: the peer's hardware address could not be resolved (ARP, neighbour discovery).
    /// - `ENETUNREACH`, `EHOSTUNREACH`: there is no route to the peer's GID.
    /// - `ENOMEM`: out of resources.
    /// - `EIO`: the driver failed without setting errno. Some drivers do so where others set `EINVAL`. The hint is the
    ///   same as for `EINVAL`.
    ///
    /// # References
    ///
    /// [ibv_create_ah(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html)
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(self: &Arc<Self>, attribute: &AddressHandleAttribute) -> Result<Arc<AddressHandle>, VerbError> {
        const VERB: &str = "ibv_create_ah";
        let mut attr = *attribute.as_raw();
        // Some drivers check the path themselves and reject it without setting errno. So clear the value that an
        // earlier call left in errno.
        clear_errno();
        // SAFETY: the domain is live, and the attributes are initialised.
        let ah = unsafe { sys::ibv_create_ah(self.raw(), &mut attr) };
        let ah = check_pointer(VERB, ah).map_err(|error| explain_way(error, self.device_context(), attribute))?;
        // SAFETY: the handle was just created in this domain and is not shared, and ibv_destroy_ah destroys such
        // handles.
        let handle = unsafe { Handle::new(ah, sys::ibv_destroy_ah, "ibv_destroy_ah") };
        Ok(Arc::new(AddressHandle { handle, pd: Arc::clone(self) }))
    }
}

impl AddressHandle {
    /// `ibv_destroy_ah(ah)` — destroys the handle. This method returns an error of the verb, whereas drop only logs it.
    ///
    /// Take a handle out of its `Arc` with [`Arc::into_inner`].
    ///
    /// # Errors
    ///
    /// The driver's errno; the handle is then leaked.
    ///
    /// # References
    ///
    /// [ibv_create_ah(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html)
    #[doc(alias = "ibv_destroy_ah")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the handle's protection domain.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives, and do not destroy it.
    pub unsafe fn ah(&self) -> NonNull<ibv_ah> {
        self.handle.as_non_null()
    }

    /// Returns the C object for this crate.
    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_ah {
        self.handle.as_ptr()
    }
}

/// Adds the probable cause to the error of a device that rejected a path.
#[cold]
pub(super) fn explain_way(error: VerbError, context: &DeviceContext, way: &AddressHandleAttribute) -> VerbError {
    let (index, port_num) = (way.grh_src_gid_index(), way.port());
    let peer = way.grh_dest_gid();
    match error.errno().raw() {
        libc::ETIMEDOUT => {
            return error.with_hint(format!(
                "cannot resolve the hardware address of {peer}; check that the peer is up, and on the network of \
                GID index {index}"
            ));
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => {
            return error.with_hint(format!(
                "there is no route to {peer} from GID index {index}; choose another GID \
                index"
            ));
        }
        // The code is EIO if the driver failed without a reason.
        libc::EINVAL | libc::ENODATA | libc::ENOENT | libc::EIO => {}
        _ => return error,
    }
    let port = match context.query_port(port_num) {
        Ok(port) => port,
        Err(failure) => return error.with_hint(format!("port {port_num}: {failure}")),
    };
    if !way.is_global() {
        return match port.link_layer() {
            LinkLayer::Ethernet => error.with_hint(
                "the port is Ethernet, and the path has no global route; call setup_grh with the \
                    peer's GID",
            ),
            _ => error,
        };
    }
    if u32::from(index) >= port.gid_tbl_len() {
        return error
            .with_hint(format!("port {port_num} has no GID index {index}; use an index below {}", port.gid_tbl_len()));
    }
    match context.query_gid(port_num, index.into()) {
        Ok(gid) if gid.is_zero() => error.with_hint(format!(
            "GID index {index} of port {port_num} is not in use; \
            choose one that query_gid_table returns"
        )),
        Ok(_) if peer.is_zero() => error.with_hint("the peer's GID is zero; set it with setup_grh"),
        Ok(_) => error,
        Err(failure) => error.with_hint(format!("GID index {index} of port {port_num}: {failure}")),
    }
}
