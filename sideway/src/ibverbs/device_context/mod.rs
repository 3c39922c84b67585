//! `struct ibv_context`: an open device and its attributes.
//!
//! | information | verb | result |
//! |---|---|---|
//! | capabilities of the device | [`query_device`](DeviceContext::query_device) | [`DeviceAttr`] |
//! | state and limits of a port | [`query_port`](DeviceContext::query_port) | [`PortAttr`] |
//! | addresses of a port | [`query_gid_table`](DeviceContext::query_gid_table), [`query_gid`](DeviceContext::query_gid) | [`GidEntry`], [`Gid`] |
//! | partitions of a port | [`query_pkey`](DeviceContext::query_pkey) | P_Key |
//! | reading of the device's clock | [`query_rt_values_ex`](DeviceContext::query_rt_values_ex) | [`RealTimeValues`] |
//! | frequency of the device's clock | [`DeviceAttr::device_clock`] | [`DeviceClock`] |
//!
//! Results can contain values that are unknown to this crate. Such values are printed as numbers.

mod capabilities;
mod device_attr;
mod device_attr_ex;
mod device_clock;
mod device_flags;
pub(super) mod gid;
pub(super) mod gid_entry;
mod import;
mod objects;
mod port_attr;
mod port_flags;
mod port_speed;
mod port_values;
mod query;
mod query_gid;
mod real_time;
mod sysfs;

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
use gid::Gid;
use gid_entry::{GidEntry, GidType};
pub(crate) use objects::AffiliatedObjects;
pub use port_attr::PortAttr;
pub use port_flags::{PortCapabilityFlags, PortCapabilityFlags2, PortFlags};
pub use port_speed::PortSpeed;
pub use port_values::{LinkLayer, Mtu, PhysicalState, PortState, PortWidth};
pub use real_time::{RawClock, RealTimeValues, ValuesMask};

use super::device::{Device, DeviceInfo, OpenDeviceError, sealed};
use super::fork;
pub use super::guid::{Guid, ParseGuidError};
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_pointer};

/// A function that checks whether a table of data path functions has one particular function.
type HasOperation = fn(&ibv_context_ops) -> bool;

/// `struct ibv_context` — an open device.
///
/// All objects that are created from the context keep it open. The last owner closes it, either by
/// [`close`](Self::close), which returns an error, or by drop, which logs it.
#[doc(alias = "ibv_context")]
#[derive(Debug)]
pub struct DeviceContext {
    raw: NonNull<ibv_context>,
    end: End,
    objects: AffiliatedObjects,
}

/// How a context is released.
#[derive(Debug)]
enum End {
    /// The handle closes it.
    Close(Handle<ibv_context>),
    /// The context belongs to another owner, which keeps it open as long as this reference exists.
    GiveBack(#[expect(dead_code, reason = "held only to keep the context open")] Arc<dyn Any + Send + Sync>),
}

// SAFETY: the pointer belongs to the handle, which is `Send` and `Sync`, or to a context lent by another owner, for
// which the same holds.
unsafe impl Send for DeviceContext {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for DeviceContext {}

impl DeviceContext {
    /// Opens a device.
    ///
    /// # Safety
    ///
    /// `device` is live: its list has not been freed.
    unsafe fn open(device: NonNull<ibv_device>) -> Result<Arc<Self>, VerbError> {
        fork::before_device();
        // SAFETY: the device is live by contract.
        let context = check_pointer("ibv_open_device", unsafe { sys::ibv_open_device(device.as_ptr()) })?;
        // SAFETY: the context was just opened and is not shared, and ibv_close_device closes it.
        let handle = unsafe { Handle::new(context, sys::ibv_close_device, "ibv_close_device") };
        Ok(Arc::new(Self::of(handle)))
    }

    fn of(handle: Handle<ibv_context>) -> Self {
        Self { raw: handle.as_non_null(), end: End::Close(handle), objects: AffiliatedObjects::default() }
    }

    /// Wraps a context that belongs to another owner. The owner keeps it open as long as `lender` exists.
    ///
    /// # Safety
    ///
    /// - The owner keeps `raw` open as long as `lender` exists.
    /// - No other `DeviceContext` of this `raw` creates objects, because an event looks up its object in only one
    ///   `DeviceContext`.
    pub(crate) unsafe fn lent(raw: NonNull<ibv_context>, lender: Arc<dyn Any + Send + Sync>) -> Self {
        Self { raw, end: End::GiveBack(lender), objects: AffiliatedObjects::default() }
    }

    /// `ibv_close_device(context)` — closes the device. This method returns an error of the verb, whereas drop only
    /// logs it. A context of the connection manager
    /// ([`Identifier::get_device_context`](crate::rdmacm::communication_manager::Identifier::get_device_context)) is
    /// not closed, but returned to the connection manager.
    ///
    /// Take a context out of its `Arc` with [`Arc::into_inner`], which succeeds once all objects created from the
    /// context are dropped.
    ///
    /// # Errors
    ///
    /// The errno of the library. The context is then leaked.
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

    /// Returns the number of completion vectors. The vector of a completion queue must be less than this number.
    pub fn num_comp_vectors(&self) -> u32 {
        // SAFETY: the context is open as long as `self` lives, and the field does not change.
        u32::try_from(unsafe { (*self.raw()).num_comp_vectors }).unwrap_or(0)
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use it only while `self` lives, and do not close it.
    pub unsafe fn context(&self) -> NonNull<ibv_context> {
        self.raw
    }

    /// Checks that the driver has the data path functions that are later called without a check.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` with the name of a function that is missing.
    pub(crate) fn require_operations(
        &self,
        verb: &'static str,
        needed: &[(&str, HasOperation)],
    ) -> Result<(), VerbError> {
        // SAFETY: the context is open as long as `self` lives, and its driver filled the table before it returned the
        // context.
        let operations = unsafe { &(*self.raw()).ops };
        match needed.iter().find(|(_, is_there)| !is_there(operations)) {
            None => Ok(()),
            Some((name, _)) => Err(VerbError::new(verb, Errno::EOPNOTSUPP).with_hint(format!(
                "the driver has no function {name}; \
                    upgrade rdma-core"
            ))),
        }
    }

    /// Returns the table of the objects that events of the device can name.
    pub(crate) fn objects(&self) -> &AffiliatedObjects {
        &self.objects
    }

    /// Returns the C object, which stays open as long as `self` lives.
    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }
}

impl<'list> Device<'list> {
    /// `ibv_open_device(device)` — opens the device. The device stays open until the last object created on it is
    /// dropped, even if the list is dropped earlier.
    ///
    /// # Errors
    ///
    /// Returns `EACCES` if the user lacks permission for the device file. Returns `ENOENT` or `ENODEV` if the file does
    /// not exist or the device was removed.
    ///
    /// # References
    ///
    /// [ibv_open_device(3)](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Arc<DeviceContext>, OpenDeviceError> {
        // SAFETY: the device belongs to a list that lives for `'list`.
        unsafe { DeviceContext::open(self.device) }
            .map_err(|error| OpenDeviceError::new(self.name(), &self.uverbs_name(), error))
    }
}

impl sealed::Device for DeviceContext {
    fn device(&self) -> *mut ibv_device {
        // SAFETY: the context is open as long as `self` lives, and the field does not change. The library keeps the
        // device of an open context alive, even after its list was freed.
        unsafe { (*self.raw()).device }
    }
}

impl DeviceInfo for DeviceContext {}
