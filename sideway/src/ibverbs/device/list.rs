//! Listing devices with `ibv_get_device_list`.

use std::fmt;
use std::iter::FusedIterator;
use std::ptr::NonNull;
use std::slice;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_device;

use super::{Device, DeviceInfo, DeviceNotFoundError, GetDeviceListError};
use crate::error::VerbError;
use crate::ffi::last_errno;

/// A snapshot of the device list. Dropping it frees the list; opened devices stay open.
#[doc(alias = "ibv_free_device_list")]
pub struct DeviceList {
    // In C, a null pointer terminates the list; this crate uses `len`.
    list: NonNull<*mut ibv_device>,
    len: usize,
}

// SAFETY: the list is not bound to a thread. It is only read, and its owner frees it once.
unsafe impl Send for DeviceList {}
// SAFETY: as for Send; a shared reference to the list can only read it.
unsafe impl Sync for DeviceList {}

impl DeviceList {
    /// `ibv_get_device_list(num_devices)` — lists the RDMA devices of the system, and the devices of providers that are
    /// registered in this process.
    ///
    /// # Errors
    ///
    /// - [`GetDeviceListError::Load`] if libibverbs cannot be loaded.
    /// - [`GetDeviceListError::Verb`] otherwise: with `ENOSYS` if the kernel does not provide RDMA (check whether the
    ///   module `ib_uverbs` is loaded), with `EPERM` if access is denied.
    ///
    /// # References
    ///
    /// [ibv_get_device_list(3)](https://man7.org/linux/man-pages/man3/ibv_get_device_list.3.html)
    #[doc(alias = "ibv_get_device_list")]
    pub fn new() -> Result<Self, GetDeviceListError> {
        let mut count = 0;
        // SAFETY: the call may write to `count`.
        let list = unsafe { sys::ibv_get_device_list(&mut count) };
        match NonNull::new(list) {
            Some(list) => {
                let count = usize::try_from(count).unwrap_or(0);
                // The list ends with a null pointer, so its end is found even if the count is wrong. SAFETY: each
                // element up to the first null pointer can be read.
                let len = (0..count).take_while(|&index| unsafe { !(*list.as_ptr().add(index)).is_null() }).count();
                Ok(Self { list, len })
            }
            None => Err(list_error(VerbError::new("ibv_get_device_list", last_errno()))),
        }
    }

    /// Returns an iterator over the devices.
    pub fn iter(&self) -> DeviceListIter<'_> {
        DeviceListIter { devices: self.pointers().iter() }
    }

    /// Returns the device at this index, which starts at 0.
    pub fn get(&self, index: usize) -> Option<Device<'_>> {
        self.iter().nth(index)
    }

    /// Returns the device with this name, such as `mlx5_0`.
    ///
    /// # Errors
    ///
    /// Returns [`DeviceNotFoundError`], which lists the available devices.
    pub fn find(&self, name: &str) -> Result<Device<'_>, DeviceNotFoundError> {
        self.iter()
            .find(|device| device.name() == name)
            .ok_or_else(|| DeviceNotFoundError::new(name, self.iter().map(|device| device.name()).collect()))
    }

    /// Returns the number of devices.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn pointers(&self) -> &[*mut ibv_device] {
        // SAFETY: the library returned a list of `len` pointers. The list is live and does not change until `self` is
        // dropped.
        unsafe { slice::from_raw_parts(self.list.as_ptr(), self.len) }
    }
}

/// Distinguishes a library that cannot be loaded from one that fails.
#[cold]
fn list_error(error: VerbError) -> GetDeviceListError {
    match sys::load::ibverbs::library() {
        Err(load) => GetDeviceListError::Load(load),
        Ok(_) if error.errno().raw() == libc::ENOSYS => GetDeviceListError::Verb(
            error.with_hint("the kernel has no RDMA, or its module is not loaded; run `modprobe ib_uverbs`"),
        ),
        Ok(_) => GetDeviceListError::Verb(error),
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the library created the list, it is freed only here, and no borrow of it exists.
        unsafe { sys::ibv_free_device_list(self.list.as_ptr()) };
    }
}

impl fmt::Debug for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|device| device.name())).finish()
    }
}

impl<'list> IntoIterator for &'list DeviceList {
    type Item = Device<'list>;
    type IntoIter = DeviceListIter<'list>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator over the devices of a [`DeviceList`].
#[derive(Clone)]
pub struct DeviceListIter<'list> {
    devices: slice::Iter<'list, *mut ibv_device>,
}

// SAFETY: the iterator only reads pointers of a list, which any thread may read.
unsafe impl Send for DeviceListIter<'_> {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for DeviceListIter<'_> {}

impl<'list> Iterator for DeviceListIter<'list> {
    type Item = Device<'list>;

    fn next(&mut self) -> Option<Self::Item> {
        let device = NonNull::new(*self.devices.next()?)?;
        // SAFETY: the device belongs to the list borrowed for `'list`.
        Some(unsafe { Device::of_list(device) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.devices.size_hint()
    }
}

impl ExactSizeIterator for DeviceListIter<'_> {}
impl FusedIterator for DeviceListIter<'_> {}

impl fmt::Debug for DeviceListIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone().map(|device| device.name())).finish()
    }
}
