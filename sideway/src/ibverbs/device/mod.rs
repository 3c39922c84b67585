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

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::ibv_device;

pub use error::{DeviceNotFoundError, GetDeviceListError, OpenDeviceError};
pub(super) use info::sealed;
pub use info::{DeviceInfo, NodeType, TransportType};
pub use list::{DeviceList, DeviceListIter};

use super::device_context::DeviceContext;

/// `struct ibv_device` — a device of a [`DeviceList`], not opened yet.
#[doc(alias = "ibv_device")]
#[derive(Clone, Copy, Debug)]
pub struct Device<'list> {
    device: NonNull<ibv_device>,
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

impl sealed::Device for Device<'_> {
    fn device(&self) -> *mut ibv_device {
        self.device.as_ptr()
    }
}

impl DeviceInfo for Device<'_> {}
