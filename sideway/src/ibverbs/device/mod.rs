//! Devices: which there are, and what can be known of one without opening it.
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

/// `struct ibv_device` — a device of a [`DeviceList`], not yet open.
#[doc(alias = "ibv_device")]
#[derive(Clone, Copy, Debug)]
pub struct Device<'list> {
    device: NonNull<ibv_device>,
    list: PhantomData<&'list DeviceList>,
}

// SAFETY: what is behind the pointer lives as long as the list, belongs to no thread, and is only read here; the verbs on
// it may be called from any thread at once.
unsafe impl Send for Device<'_> {}
// SAFETY: as for Send; `Device` is `Copy`, so that a reference gives no less than the value.
unsafe impl Sync for Device<'_> {}

impl<'list> Device<'list> {
    /// A device of a list.
    ///
    /// # Safety
    ///
    /// `device` is of a list that lives for `'list`.
    unsafe fn of_list(device: NonNull<ibv_device>) -> Self {
        Self { device, list: PhantomData }
    }

    /// `ibv_open_device(device)` — opens the device. It stays open until the last thing made from it has gone, and needs the
    /// list no longer.
    ///
    /// # Errors
    ///
    /// `EACCES` where the user may not open the file of the device, `ENOENT` or `ENODEV` where there is no such file or the
    /// device has been removed.
    ///
    /// # References
    ///
    /// [ibv_open_device(3)](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Arc<DeviceContext>, OpenDeviceError> {
        // SAFETY: the device is of a list that lives for `'list`.
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
