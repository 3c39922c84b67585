//! The GID table. It contains the addresses of the host, and is the same for all RoCE devices. An iWARP device has one
//! GID, which is not an IP address.

use std::ffi::{c_int, c_uint};
use std::sync::Mutex;

use rdma_mummy_sys::{ibv_context, ibv_gid, ibv_gid_entry, ibv_gid_type};

use super::device::Device;
use super::failure;
use super::kind::{GID_TABLE_LENGTH, Kind};
use super::port::PORT;
use crate::sys::addresses::{self, Address};
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::sys::unpoisoned;
use crate::wire::address::Gid;
use crate::wire::transport::Fabric;

const NO_DATA: Errno = Errno(libc::ENODATA);

/// The addresses by their index. An address keeps its index while it exists, because QPs refer to it by this index.
#[derive(Debug, Default)]
struct Table(Vec<Option<Address>>);

impl Table {
    /// Removes the addresses that no longer exist, and adds new ones at the first free indexes. One entry is for
    /// 127.0.0.1, which comes last, so that processes of a host with many addresses reach each other.
    fn update(&mut self, addresses: &[Address]) {
        for slot in &mut self.0 {
            *slot = slot.and_then(|old| addresses.iter().find(|new| new.ip == old.ip).copied());
        }
        for address in addresses {
            if self.0.iter().flatten().any(|known| known.ip == address.ip) {
                continue;
            }
            match self.0.iter().position(Option::is_none) {
                Some(free) => self.0[free] = Some(*address),
                None if self.0.len() < GID_TABLE_LENGTH as usize - usize::from(address.ip != addresses::LOOPBACK) => {
                    self.0.push(Some(*address));
                }
                None => {}
            }
        }
    }
}

/// Returns the current table, which starts at index 0.
fn table() -> Vec<Option<Address>> {
    static TABLE: PerProcess<Mutex<Table>> = PerProcess::new(Mutex::new(Table(Vec::new())), Box::default);
    let mut table = unpoisoned(TABLE.get().lock());
    table.update(&addresses::all());
    table.0.clone()
}

/// Returns the table of a device, and its kind.
///
/// # Safety
///
/// The context is null, for a RoCE device, or belongs to this provider.
unsafe fn table_of(context: *mut ibv_context) -> (Vec<Option<Address>>, &'static Kind) {
    // SAFETY: guaranteed by the caller.
    let (device, kind) = unsafe { (Device::of_context(context), Kind::of(context)) };
    (device.map_or_else(table, device_table), kind)
}

fn device_table(device: &Device) -> Vec<Option<Address>> {
    match device.kind().fabric {
        Fabric::Host | Fabric::Roce => table(),
        Fabric::Iwarp => iwarp_table(device),
    }
}

/// Returns the GID at an index, or `None` if the table has no GID there.
pub(crate) fn by_index(index: u32) -> Option<Gid> {
    let slot = table().get(index as usize).copied().flatten();
    slot.map(|address| Gid::from(address.ip))
}

/// Returns the table of an iWARP device. Its GID contains no address, and the device serves all interfaces. As programs
/// expect an interface, this is the one of the first address.
fn iwarp_table(device: &Device) -> Vec<Option<Address>> {
    let interface_index = table().first().copied().flatten().map_or(0, |address| address.interface_index);
    vec![Some(Address { ip: device.iwarp_gid().0.into(), interface_index })]
}

/// Returns the GIDs of a device, with their indexes.
pub(super) fn all(device: &Device) -> Vec<(usize, Address)> {
    device_table(device).into_iter().enumerate().filter_map(|(index, slot)| Some((index, slot?))).collect()
}

/// Returns the first index whose GID satisfies `is_it`.
pub(crate) fn index_of(is_it: &dyn Fn(Gid) -> bool) -> Option<u8> {
    let index = table().iter().position(|slot| slot.is_some_and(|address| is_it(address.ip.into())))?;
    u8::try_from(index).ok()
}

pub(crate) unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: the context belongs to this provider.
    let (table, kind) = unsafe { table_of(context) };
    let Some(index) = u32::try_from(index).ok().filter(|&index| port_num == PORT && index < kind.gids) else {
        return failure::minus_one(Errno::INVALID);
    };
    // If the table has no GID at the index, the program receives the zero GID.
    let raw = table.get(index as usize).copied().flatten().map_or([0; 16], |address| address.ip.octets());
    // SAFETY: the program provides space for a GID.
    unsafe { gid.write(ibv_gid { raw }) };
    0
}

pub(crate) unsafe extern "C" fn query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: c_uint,
    gid_type: *mut c_uint,
) -> c_int {
    // SAFETY: the context belongs to this provider.
    let (table, kind) = unsafe { table_of(context) };
    if port_num != PORT || index >= kind.gids {
        return failure::minus_one(Errno::INVALID);
    }
    if table.get(index as usize).copied().flatten().is_none() {
        return failure::minus_one(NO_DATA);
    }
    // SAFETY: the program provides space for a type.
    unsafe { gid_type.write(kind.gid_type_code) };
    0
}

/// Called by the header's `ibv_query_gid_ex` with the size of the program's entry type.
pub(crate) unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    if flags != 0 {
        return failure::code(Errno::NOT_SUPPORTED);
    }
    // SAFETY: the context belongs to this provider.
    let (table, kind) = unsafe { table_of(context) };
    if port_num != u32::from(PORT) || gid_index >= kind.gids || entry_size == 0 {
        return failure::code(Errno::INVALID);
    }
    let Some(address) = table.get(gid_index as usize).copied().flatten() else {
        return failure::code(NO_DATA);
    };
    // SAFETY: the program provides space for an entry of its size.
    unsafe { put(entry.cast(), entry_size, &c_entry(gid_index, address, kind.gid_type)) };
    0
}

/// Called by the header's `ibv_query_gid_table` with the size of the program's entry type. Fails if the table does not
/// fit.
pub(crate) unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let refused = |errno: Errno| -(failure::code(errno) as isize);
    if flags != 0 {
        return refused(Errno::NOT_SUPPORTED);
    }
    // SAFETY: the context belongs to this provider.
    let (table, kind) = unsafe { table_of(context) };
    let filled = table.iter().zip(0..).filter_map(|(slot, index)| Some((index, (*slot)?)));
    let count = filled.clone().count();
    if entry_size == 0 || count > max_entries {
        return refused(Errno::INVALID);
    }
    for (place, (index, address)) in filled.enumerate() {
        // SAFETY: the program provides space for `max_entries` of its size, and the table has no more.
        unsafe {
            put(
                entries.wrapping_byte_add(place * entry_size).cast(),
                entry_size,
                &c_entry(index, address, kind.gid_type),
            )
        };
    }
    count as isize
}

fn c_entry(index: u32, address: Address, kind: ibv_gid_type) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: address.ip.octets() },
        gid_index: index,
        port_num: PORT.into(),
        gid_type: kind.0,
        ndev_ifindex: address.interface_index,
    }
}

/// Writes an entry, truncated or padded with zeros to the program's size.
///
/// # Safety
///
/// `size` bytes are writable at `to`.
unsafe fn put(to: *mut u8, size: usize, entry: &ibv_gid_entry) {
    // SAFETY: guaranteed by the caller; the copy reads at most the entry, which has no padding.
    unsafe {
        to.write_bytes(0, size);
        to.copy_from_nonoverlapping(std::ptr::from_ref(entry).cast(), size.min(size_of::<ibv_gid_entry>()));
    }
}

#[cfg(test)]
mod tests {
    use std::mem::zeroed;
    use std::ptr;

    use super::*;

    fn address(byte: u8) -> Address {
        Address { ip: [byte; 16].into(), interface_index: byte.into() }
    }

    fn indexes(table: &Table) -> Vec<Option<u8>> {
        table.0.iter().map(|slot| slot.map(|address| address.ip.octets()[0])).collect()
    }

    #[test]
    fn address_keeps_its_index() {
        let mut table = Table(Vec::new());
        table.update(&[address(1), address(2), address(3)]);
        assert_eq!(indexes(&table), [Some(1), Some(2), Some(3)]);
        table.update(&[address(1), address(3)]);
        assert_eq!(indexes(&table), [Some(1), None, Some(3)]);
        table.update(&[address(4), address(1), address(5), address(3)]);
        assert_eq!(indexes(&table), [Some(1), Some(4), Some(3), Some(5)]);
        table.update(&[Address { interface_index: 77, ..address(3) }]);
        assert_eq!(table.0[2].map(|address| address.interface_index), Some(77), "the new interface of the address");
    }

    #[test]
    fn addresses_beyond_the_table_have_no_index() {
        let number = |n| Address { ip: u128::from(n).into(), interface_index: n };
        let mut many: Vec<Address> = (0..GID_TABLE_LENGTH + 10).map(number).collect();
        let mut table = Table(Vec::new());
        table.update(&many);
        assert_eq!(table.0.len(), GID_TABLE_LENGTH as usize - 1);
        many.push(Address { ip: addresses::LOOPBACK, interface_index: 1 });
        table.update(&many);
        assert_eq!(table.0.last(), Some(&many.last().copied()));
        assert_eq!((table.0.len(), table.0[0]), (GID_TABLE_LENGTH as usize, Some(number(0))));
    }

    #[test]
    fn first_gid_is_an_address_of_the_host() {
        let first = by_index(0).unwrap();
        assert!(addresses::all().iter().any(|address| Gid::from(address.ip) == first));
        assert_eq!(by_index(GID_TABLE_LENGTH), None);
        assert_eq!(by_index(u32::MAX), None);
        // SAFETY: the GID is writable, and the function ignores the context.
        unsafe {
            let mut gid: ibv_gid = zeroed();
            assert_eq!(query_gid(ptr::null_mut(), PORT, 0, &raw mut gid), 0);
            assert_eq!(gid.raw, first.0);
            assert_eq!(query_gid(ptr::null_mut(), PORT, GID_TABLE_LENGTH as c_int - 1, &raw mut gid), 0);
            assert_eq!(gid.raw, [0; 16]);
            for (port, index) in [(0, 0), (2, 0), (PORT, -1), (PORT, GID_TABLE_LENGTH as c_int)] {
                assert_eq!(query_gid(ptr::null_mut(), port, index, &raw mut gid), -1, "{port} {index}");
            }
        }
    }

    #[test]
    fn entry_has_the_programs_size() {
        let entry_size = size_of::<ibv_gid_entry>();
        let mut buffer = [0xa5_u8; 64];
        // SAFETY: the buffer has the given size, and the functions ignore the context.
        unsafe {
            assert_eq!(query_gid_ex(ptr::null_mut(), 1, 0, buffer.as_mut_ptr().cast(), 0, 20), 0);
            assert_eq!(buffer[..21], [&by_index(0).unwrap().0[..], &[0, 0, 0, 0, 0xa5]].concat());
            assert_eq!(query_gid_ex(ptr::null_mut(), 1, 0, buffer.as_mut_ptr().cast(), 0, entry_size + 8), 0);
            assert_eq!(buffer[20..24], 1_u32.to_ne_bytes());
            assert_eq!(buffer[24..28], 2_u32.to_ne_bytes());
            assert_eq!(buffer[32..41], [0, 0, 0, 0, 0, 0, 0, 0, 0xa5]);
            let entry = buffer.as_mut_ptr().cast();
            assert_eq!(query_gid_ex(ptr::null_mut(), 1, 0, entry, 1, entry_size), libc::EOPNOTSUPP);
            assert_eq!(query_gid_ex(ptr::null_mut(), 2, 0, entry, 0, entry_size), libc::EINVAL);
            assert_eq!(query_gid_ex(ptr::null_mut(), 1, 0, entry, 0, 0), libc::EINVAL);
            assert_eq!(query_gid_ex(ptr::null_mut(), 1, GID_TABLE_LENGTH, entry, 0, entry_size), libc::EINVAL);
            assert_eq!(query_gid_ex(ptr::null_mut(), 1, GID_TABLE_LENGTH - 1, entry, 0, entry_size), libc::ENODATA);
        }
    }

    #[test]
    fn table_is_complete_or_refused() {
        let entry_size = size_of::<ibv_gid_entry>();
        // SAFETY: an entry consists of numbers; the buffer has the given size, and the functions ignore the context.
        unsafe {
            let mut entries: Vec<ibv_gid_entry> = vec![zeroed(); GID_TABLE_LENGTH as usize];
            let read = |entries: &mut Vec<ibv_gid_entry>, max, flags, size| {
                query_gid_table(ptr::null_mut(), entries.as_mut_ptr(), max, flags, size)
            };
            let count = read(&mut entries, GID_TABLE_LENGTH as usize, 0, entry_size);
            assert!(count >= 1, "{count}");
            assert_eq!((entries[0].gid_index, entries[0].port_num, entries[0].gid_type), (0, 1, 2));
            assert_eq!(read(&mut entries, count as usize - 1, 0, entry_size), -libc::EINVAL as isize);
            assert_eq!(read(&mut entries, GID_TABLE_LENGTH as usize, 1, entry_size), -libc::EOPNOTSUPP as isize);
            assert_eq!(read(&mut entries, GID_TABLE_LENGTH as usize, 0, 0), -libc::EINVAL as isize);
        }
    }
}
