//! `struct ibv_device`. The devices of the process exist from their registration until the process ends.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use rdma_mummy_sys::{ibv_context, ibv_device, ibv_fork_status};

use super::kind::{HOST, Kind};
use super::limits::Profile;
use crate::sys;
use crate::wire::address::Gid;
use crate::wire::condition::{Condition, HEALTHY};
use crate::wire::transport::Fabric;

/// The size of a device name, including its terminator.
pub(crate) const NAME_SIZE: usize = 64;
/// The index of the first soft device. The kernel numbers its devices from zero.
const FIRST_INDEX: c_int = 1 << 16;

/// A device, which stays on the heap until the process ends.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Device {
    c: UnsafeCell<ibv_device>,
    /// The GUID in big-endian byte order, as in C.
    guid: u64,
    index: c_int,
    kind: &'static Kind,
    condition: Condition,
}

// SAFETY: the C struct is written before the device is shared, except for the provider's mark, which is atomic.
unsafe impl Sync for Device {}
// SAFETY: a device is not bound to a thread.
unsafe impl Send for Device {}

/// A name for which a device was registered. If its device was removed, another one can arrive.
#[derive(Debug)]
pub(crate) struct Slot {
    current: AtomicPtr<Device>,
    place: c_int,
    has_files: bool,
    profile: Option<Profile>,
}

static SLOTS: OnceLock<Box<[Slot]>> = OnceLock::new();

impl Slot {
    fn new(name: &str, place: c_int, has_files: bool, profile: Option<Profile>) -> Self {
        let device = Box::leak(Box::new(Device::new(name, place, has_files, profile)));
        Self { current: AtomicPtr::new(device), place, has_files, profile }
    }

    /// Returns the device, which may have been removed.
    pub(crate) fn device(&self) -> &'static Device {
        // SAFETY: a device is never freed.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Replaces a device that was removed by a new one with the same name. Returns whether it was removed.
    pub(crate) fn arrive(&self) -> bool {
        let old = self.device();
        if !old.condition.is_removed() {
            return false;
        }
        let name = String::from_utf8_lossy(old.name());
        let new = Box::into_raw(Box::new(Device::new(&name, self.place, self.has_files, self.profile)));
        let old = ptr::from_ref(old).cast_mut();
        let arrived = self.current.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        if arrived.is_err() {
            // SAFETY: another thread was faster, and none has seen this device.
            drop(unsafe { Box::from_raw(new) });
        }
        arrived.is_ok()
    }
}

impl Device {
    /// Creates a device. `name` must be shorter than [`NAME_SIZE`], and `place` is the index of the device in the list.
    /// With `has_files`, the device names its files.
    pub(super) fn new(name: &str, place: c_int, has_files: bool, profile: Option<Profile>) -> Self {
        // SAFETY: the struct consists of numbers and nullable function pointers; zero is valid for each.
        let mut c: ibv_device = unsafe { mem::zeroed() };
        let index = FIRST_INDEX.saturating_add(place);
        let verbs_name = verbs_name(index);
        write(&mut c.name, name);
        write(&mut c.dev_name, &verbs_name);
        if has_files {
            write(&mut c.ibdev_path, &format!("/sys/class/infiniband/{name}"));
            write(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/{verbs_name}"));
        }
        let kind = Kind::named(name, profile);
        (c.node_type, c.transport_type) = (kind.node, kind.transport);
        Self { c: UnsafeCell::new(c), guid: guid(name).to_be(), index, kind, condition: Condition::new() }
    }

    /// Returns the device of a C pointer.
    ///
    /// # Safety
    ///
    /// The device belongs to this provider.
    pub(crate) unsafe fn of(device: *mut ibv_device) -> &'static Self {
        // SAFETY: guaranteed by the caller: the pointer is the start of a `Device`, which is never freed.
        unsafe { &*device.cast::<Self>() }
    }

    /// Returns the device of a context. Returns `None` if the context or the device is null.
    ///
    /// # Safety
    ///
    /// The context and its device are null or belong to this provider.
    pub(crate) unsafe fn of_context(context: *mut ibv_context) -> Option<&'static Self> {
        // SAFETY: guaranteed by the caller.
        let device = unsafe { context.as_ref() }.map(|context| context.device).filter(|device| !device.is_null())?;
        // SAFETY: guaranteed by the caller.
        Some(unsafe { Self::of(device) })
    }

    /// Returns the C pointer, which has provenance for the whole device. C writes only to the C struct, which is in a
    /// cell.
    pub(crate) fn as_c(&self) -> *mut ibv_device {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn name(&self) -> &[u8] {
        // SAFETY: the name is at the start of the array, ends with a zero byte, and is no longer written.
        unsafe { CStr::from_ptr((&raw const (*self.as_c()).name).cast()) }.to_bytes()
    }

    /// Returns the name of the character device, which the kernel calls `uverbs` and a number.
    pub(super) fn verbs_name(&self) -> String {
        verbs_name(self.index)
    }

    /// Returns the GUID in big-endian byte order.
    pub(crate) fn guid(&self) -> u64 {
        self.guid
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        self.kind
    }

    pub(crate) fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Returns the GID of an iWARP device. It consists of a MAC address, which is derived from the GUID, and zeros.
    pub(crate) fn iwarp_gid(&self) -> Gid {
        let [a, b, c, .., d, e, f] = self.guid.to_ne_bytes();
        let mut gid = Gid::ZERO;
        gid.0[..6].copy_from_slice(&[a, b, c, d, e, f]);
        gid
    }
}

impl Kind {
    /// Returns the kind of the device of a context. If the context or its device is null, which happens only in tests,
    /// it is the last kind.
    ///
    /// # Safety
    ///
    /// The context and its device are null or belong to this provider.
    pub(crate) unsafe fn of(context: *mut ibv_context) -> &'static Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Device::of_context(context) }.map_or(&HOST, Device::kind)
    }
}

impl Condition {
    /// Returns the condition of the device of a context. If the context or its device is null, which happens only in
    /// tests, it is [`HEALTHY`].
    ///
    /// # Safety
    ///
    /// The context and its device are null or belong to this provider.
    pub(crate) unsafe fn of(context: *mut ibv_context) -> &'static Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Device::of_context(context) }.map_or(&HEALTHY, Device::condition)
    }
}

fn verbs_name(index: c_int) -> String {
    format!("uverbs{index}")
}

/// Writes a string and its terminator. The text is cut if it is too long.
fn write(to: &mut [c_char], text: &str) {
    let length = to.len().saturating_sub(1);
    for (to, from) in to.iter_mut().take(length).zip(text.bytes()) {
        *to = from as c_char;
    }
}

/// Computes a GUID that is the same in all processes of a host. It is marked as locally administered.
fn guid(name: &str) -> u64 {
    const LOCALLY_ADMINISTERED: u64 = 0x02 << 56;
    const GROUP: u64 = 0x01 << 56;
    // A zero byte separates the identity from the name.
    let bytes = sys::identity().into_iter().chain([0]).chain(name.bytes());
    fnv(bytes) & !GROUP | LOCALLY_ADMINISTERED
}

/// Computes the FNV-1a hash. Unlike the hash of the standard library, it is the same in every build.
fn fnv(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Creates the devices, which name their files if `have_files` is set. Only the first call has an effect.
pub(crate) fn make(names: &[String], have_files: bool, profile: Option<Profile>) {
    let _ = SLOTS.get_or_init(|| {
        names.iter().zip(0..).map(|(name, place)| Slot::new(name, place, have_files, profile)).collect()
    });
}

/// Returns the devices, without those that were removed.
pub(crate) fn all() -> impl Iterator<Item = &'static Device> {
    slots().iter().map(Slot::device).filter(|device| !device.condition.is_removed())
}

/// Returns the device for connections, which is the first one of the fabric.
pub(crate) fn first(fabric: Fabric) -> Option<&'static Device> {
    all().find(|device| device.kind.fabric == fabric)
}

pub(crate) fn slots() -> &'static [Slot] {
    SLOTS.get().map_or(&[], |slots| slots)
}

pub(crate) unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let mut list: Vec<*mut ibv_device> = vec![ptr::null_mut()];
    list.extend(all().map(Device::as_c));
    let count = list.len() - 1;
    list.push(ptr::null_mut());
    // The length precedes the list, because the number of devices may change until the list is freed.
    list[0] = ptr::without_provenance_mut(list.len());
    if !num_devices.is_null() {
        // SAFETY: `num_devices` is writable unless null. The builder's limit is far below `c_int::MAX`.
        unsafe { num_devices.write(count as c_int) };
    }
    Box::into_raw(list.into_boxed_slice()).cast::<*mut ibv_device>().wrapping_add(1)
}

pub(crate) unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    if list.is_null() {
        return;
    }
    let start = list.wrapping_sub(1);
    // SAFETY: the list came from `get_device_list`, which has put the length before it, and is freed once.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(start, start.read().addr())) });
}

pub(crate) unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the device belongs to this provider and is never freed.
    unsafe { (&raw const (*device).name).cast() }
}

pub(crate) unsafe extern "C" fn get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the device belongs to this provider.
    unsafe { Device::of(device) }.index
}

pub(crate) unsafe extern "C" fn get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the device belongs to this provider.
    unsafe { Device::of(device) }.guid
}

/// `ibv_fork_init()`: does nothing, because forks need no preparation.
pub(crate) unsafe extern "C" fn fork_init() -> c_int {
    0
}

pub(crate) unsafe extern "C" fn is_fork_initialized() -> ibv_fork_status {
    ibv_fork_status::IBV_FORK_UNNEEDED
}

#[cfg(test)]
mod tests {
    use rdma_mummy_sys::{ibv_node_type, ibv_transport_type};

    use super::*;

    fn name(device: &Device) -> String {
        // SAFETY: the device is alive, its name ends with a zero byte, and is not written.
        let name = unsafe { CStr::from_ptr(get_device_name(device.as_c())) };
        assert_eq!(name.to_bytes(), device.name());
        name.to_string_lossy().into_owned()
    }

    #[test]
    fn device_looks_like_a_roce_device() {
        let device = Device::new("soft0", 0, false, None);
        // SAFETY: the device lives until the end of the test, and is not written.
        unsafe {
            let c = &*device.as_c();
            assert_eq!(c.node_type, ibv_node_type::IBV_NODE_CA);
            assert_eq!(c.transport_type, ibv_transport_type::IBV_TRANSPORT_IB);
            assert!(c._ops._dummy1.is_none(), "the field for the provider is free");
            assert_eq!(get_device_guid(device.as_c()), device.guid());
            assert_eq!(get_device_index(device.as_c()), FIRST_INDEX);
        }
        assert_eq!(name(&device), "soft0");
    }

    #[test]
    fn device_with_the_prefix_looks_like_an_rnic() {
        let device = Device::new("softiw0", 1, false, None);
        // SAFETY: the device lives until the end of the test, and is not written.
        let c = unsafe { &*device.as_c() };
        assert_eq!(c.node_type, ibv_node_type::IBV_NODE_RNIC);
        assert_eq!(c.transport_type, ibv_transport_type::IBV_TRANSPORT_IWARP);
        let gid = device.iwarp_gid().0;
        assert_eq!((gid[0] & 3, &gid[6..]), (2, &[0; 10][..]));
        let fabrics = [&device, &Device::new("soft0", 0, false, None)].map(|device| device.kind().fabric);
        assert_eq!(fabrics, [Fabric::Iwarp, Fabric::Host]);
    }

    #[test]
    fn hash_matches_published_vectors() {
        // These test vectors were published by the authors of FNV.
        assert_eq!(fnv(*b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(*b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(*b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn guid_is_stable_and_unique() {
        assert_eq!(guid("soft0"), guid("soft0"));
        assert_ne!(guid("soft0"), guid("soft1"));
        let first = Device::new("soft0", 0, false, None).guid().to_ne_bytes()[0];
        assert_eq!(first & 3, 2, "locally administered, unicast");
    }

    #[test]
    fn longest_name_fits() {
        let long = "x".repeat(NAME_SIZE - 1);
        assert_eq!(name(&Device::new(&long, 0, false, None)), long);
    }

    #[test]
    fn device_lists_are_freed() {
        let mut count = -1;
        // SAFETY: the count is writable, and the list is freed once.
        unsafe {
            let list = get_device_list(&raw mut count);
            assert_eq!(count, all().count() as c_int);
            assert!((*list.add(all().count())).is_null());
            free_device_list(list);
            free_device_list(get_device_list(ptr::null_mut()));
            free_device_list(ptr::null_mut());
        }
    }
}
