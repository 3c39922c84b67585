//! The device list, and the properties of devices that are not open.
//!
//! ```no_run
//! use sideway::ibverbs::device::{DeviceInfo, DeviceList};
//!
//! for device in &DeviceList::new()? {
//!     println!("{} {} {}", device.name(), device.guid(), device.transport_type());
//! }
//! # Ok::<(), sideway::ibverbs::device::GetDeviceListError>(())
//! ```

mod error;
mod info;
mod list;
mod sysfs;

use std::marker::PhantomData;
use std::ptr::NonNull;

use rdma_mummy_sys::ibv_device;

pub use error::{DeviceNotFoundError, GetDeviceListError, OpenDeviceError};
pub(super) use info::sealed;
pub use info::{DeviceInfo, NodeType, TransportType};
pub use list::{DeviceList, DeviceListIter};
pub(super) use sysfs::c_text;

/// `struct ibv_device` — a device of a [`DeviceList`], not opened yet.
#[doc(alias = "ibv_device")]
#[derive(Clone, Copy, Debug)]
pub struct Device<'list> {
    pub(super) device: NonNull<ibv_device>,
    list: PhantomData<&'list DeviceList>,
}

// SAFETY: the device lives as long as the list. It is not bound to a thread, and is only read here. Several threads may
// call the verbs on it at the same time.
unsafe impl Send for Device<'_> {}
// SAFETY: as for Send; `Device` is `Copy`, so a shared reference permits the same operations as the value.
unsafe impl Sync for Device<'_> {}

impl<'list> Device<'list> {
    /// Wraps a device of a list.
    ///
    /// # Safety
    ///
    /// `device` belongs to a list that lives for `'list`.
    unsafe fn of_list(device: NonNull<ibv_device>) -> Self {
        Self { device, list: PhantomData }
    }
}

impl sealed::Device for Device<'_> {
    fn device(&self) -> *mut ibv_device {
        self.device.as_ptr()
    }
}

impl DeviceInfo for Device<'_> {}
