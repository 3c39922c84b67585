//! `struct ibv_context`: an open device, and what it says of itself.
//!
//! | question | verb | answer |
//! |---|---|---|
//! | what can the device do? | [`query_device`](DeviceContext::query_device) | [`DeviceAttr`] |
//! | what is this port, and is it up? | [`query_port`](DeviceContext::query_port) | [`PortAttr`] |
//! | what addresses does it have? | [`query_gid_table`](DeviceContext::query_gid_table), [`query_gid`](DeviceContext::query_gid) | [`GidEntry`](super::address::GidEntry), [`Gid`](super::address::Gid) |
//! | what partitions is it in? | [`query_pkey`](DeviceContext::query_pkey) | P_Key |
//! | what does its clock say? | [`query_rt_values_ex`](DeviceContext::query_rt_values_ex) | [`RealTimeValues`] |
//! | how long are its cycles? | [`DeviceAttr::device_clock`] | [`DeviceClock`] |
//!
//! All answers take values that this crate has no name for: such a value prints as its number.

mod capabilities;
mod device_attr;
mod device_attr_ex;
mod device_clock;
mod device_flags;
mod guid;
mod import;
mod port_attr;
mod port_flags;
mod port_speed;
mod port_values;
mod query;
mod query_gid;
mod real_time;
pub(super) mod sysfs;

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_context, ibv_context_ops, ibv_device};

pub use capabilities::{
    CompletionModerationCapabilities, OdpCapabilities, PacketPacingCapabilities, PciAtomicCapabilities,
    RssCapabilities, TagMatchingCapabilities, TsoCapabilities,
};
pub use device_attr::{AtomicCapability, DeviceAttr};
pub use device_clock::DeviceClock;
pub use device_flags::{
    DeviceCapabilityFlags, OdpGeneralCapabilities, OdpTransportCapabilities, PciAtomicOperationSize,
    QueuePairTypeSupport, RawPacketCapabilities, RxHashFields, RxHashFunctions, TagMatchingFlags,
};
pub use guid::{Guid, ParseGuidError};
pub use port_attr::PortAttr;
pub use port_flags::{PortCapabilityFlags, PortCapabilityFlags2, PortFlags};
pub use port_speed::PortSpeed;
pub use port_values::{LinkLayer, Mtu, PhysicalState, PortState, PortWidth};
pub use real_time::{RawClock, RealTimeValues, ValuesMask};

pub(super) use sysfs::c_text;

use super::async_event::AffiliatedObjects;
use super::device::{DeviceInfo, sealed};
use super::fork;
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_pointer};

/// Whether a table of data path functions has a certain one.
type HasOperation = fn(&ibv_context_ops) -> bool;

/// `struct ibv_context` — an open device.
///
/// Everything made from it keeps it open. The last owner closes it: by [`close`](Self::close), which reports, or by drop,
/// which logs.
#[doc(alias = "ibv_context")]
#[derive(Debug)]
pub struct DeviceContext {
    raw: NonNull<ibv_context>,
    end: End,
    objects: AffiliatedObjects,
}

/// How a context ends.
#[derive(Debug)]
enum End {
    /// It is closed.
    Close(Handle<ibv_context>),
    /// It is somebody else's, who keeps it open as long as this is held.
    GiveBack(#[expect(dead_code, reason = "held for its life alone")] Arc<dyn Any + Send + Sync>),
}

// SAFETY: the pointer is that of the handle, which may move and be shared, or of a context that is lent under the same terms.
unsafe impl Send for DeviceContext {}
// SAFETY: as for Send.
unsafe impl Sync for DeviceContext {}

impl DeviceContext {
    /// Opens a device.
    ///
    /// # Safety
    ///
    /// `device` is live: the list that it is from has not been freed.
    pub(super) unsafe fn open(device: NonNull<ibv_device>) -> Result<Arc<Self>, VerbError> {
        fork::before_device();
        // SAFETY: the device is live by contract.
        let context = check_pointer("ibv_open_device", unsafe { sys::ibv_open_device(device.as_ptr()) })?;
        // SAFETY: just opened and ours alone, and ibv_close_device is its verb.
        let handle = unsafe { Handle::new(context, sys::ibv_close_device, "ibv_close_device") };
        Ok(Arc::new(Self::of(handle)))
    }

    fn of(handle: Handle<ibv_context>) -> Self {
        Self { raw: handle.as_non_null(), end: End::Close(handle), objects: AffiliatedObjects::default() }
    }

    /// A context that somebody else has opened, and keeps open as long as `lender` is held.
    ///
    /// # Safety
    ///
    /// - That is so.
    /// - There is no other `DeviceContext` of this `raw` that things are made from: events find their objects in one of them.
    pub(crate) unsafe fn lent(raw: NonNull<ibv_context>, lender: Arc<dyn Any + Send + Sync>) -> Self {
        Self { raw, end: End::GiveBack(lender), objects: AffiliatedObjects::default() }
    }

    /// `ibv_close_device(context)` — closes the device and reports, where drop only logs. A context that is the connection
    /// manager's ([`Identifier::get_device_context`](crate::rdmacm::communication_manager::Identifier::get_device_context)) is
    /// given back to it.
    ///
    /// A context in an `Arc` is taken out of it with [`Arc::into_inner`], which succeeds once everything that was made from it
    /// has gone.
    ///
    /// # Errors
    ///
    /// The errno of the library. The context is leaked then.
    ///
    /// # References
    ///
    /// [ibv_open_device(3)](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
    #[doc(alias = "ibv_close_device")]
    pub fn close(self) -> Result<(), VerbError> {
        match self.end {
            End::Close(handle) => handle.close(),
            End::GiveBack(_) => Ok(()),
        }
    }

    /// How many completion vectors the device has: the bound for the vector that a completion queue is made with.
    pub fn num_comp_vectors(&self) -> u32 {
        // SAFETY: the context is open as long as `self`, and the field does not change.
        u32::try_from(unsafe { (*self.raw()).num_comp_vectors }).unwrap_or(0)
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not closed.
    pub unsafe fn context(&self) -> NonNull<ibv_context> {
        self.raw
    }

    /// Sees to it that the driver has the data path functions that are called without a check later.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` with the name of one that is null.
    pub(crate) fn require_operations(
        &self,
        verb: &'static str,
        needed: &[(&str, HasOperation)],
    ) -> Result<(), VerbError> {
        // SAFETY: the context is open as long as `self`, and its driver fills the table in before it hands it out.
        let operations = unsafe { &(*self.raw()).ops };
        match needed.iter().find(|(_, is_there)| !is_there(operations)) {
            None => Ok(()),
            Some((name, _)) => {
                Err(VerbError::new(verb, Errno::EOPNOTSUPP).with_hint(format!("the driver has no function {name}")))
            }
        }
    }

    /// The objects that events of the device can name.
    pub(crate) fn objects(&self) -> &AffiliatedObjects {
        &self.objects
    }

    /// The C object, for this crate: open as long as `self`.
    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }
}

impl sealed::Device for DeviceContext {
    fn device(&self) -> *mut ibv_device {
        // SAFETY: the context is open as long as `self`, and the field does not change. The library keeps the device of an open
        // context alive, whether or not the list that it came from has been freed.
        unsafe { (*self.raw()).device }
    }
}

impl DeviceInfo for DeviceContext {}
