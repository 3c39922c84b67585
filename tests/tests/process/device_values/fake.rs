//! Devices in this process, one for each kind of malformed value.

use std::ffi::CStr;
use std::mem::zeroed;
use std::ptr::{null_mut, slice_from_raw_parts_mut};

use libc::{c_char, c_int};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::ibverbs::IbverbsTable;
use rdma_mummy_sys::load::provider::{Provider, register as register_provider};

/// Supports only the verbs of 2006, and returns values that no header defines.
pub(crate) const OLD: &str = "old_0";
/// Reports more entries than exist, and fails to close.
pub(crate) const LIAR: &str = "liar_0";
/// Has no port.
pub(crate) const PORTLESS: &str = "portless_0";
/// Fails to open.
pub(crate) const CLOSED: &str = "closed_0";

/// The index for which the query fails without an errno.
pub(crate) const SILENT: c_int = 9;

const NAMES: [&str; 4] = [OLD, LIAR, PORTLESS, CLOSED];

/// Adds the devices to the list.
pub(crate) fn register() {
    let table = IbverbsTable {
        ibv_get_device_list: Some(get_device_list),
        ibv_free_device_list: Some(free_device_list),
        ibv_get_device_guid: Some(get_device_guid),
        ibv_open_device: Some(open_device),
        ibv_close_device: Some(close_device),
        ibv_query_device: Some(query_device),
        ibv_query_gid: Some(query_gid),
        _ibv_query_gid_table: Some(query_gid_table),
        ibv_query_pkey: Some(query_pkey),
        ibv_get_pkey_index: Some(get_pkey_index),
        ..Default::default()
    };
    // SAFETY: each function does what its name promises, as far as the tests need it, and devices are never freed.
    unsafe { register_provider(Provider::new("strange", table)) }.unwrap();
}

/// A value that lives as long as the process, with all bytes zero.
fn forever<T>() -> *mut T {
    // SAFETY: only used for structures of C that consist of integers, pointers and optional functions.
    Box::into_raw(Box::new(unsafe { zeroed() }))
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the C library gives every thread an errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ffi::ibv_device {
    let device = |name: &str| {
        let device = forever::<ffi::ibv_device>();
        // SAFETY: the device was made just now, and the name is shorter than its field.
        unsafe {
            for (to, from) in (*device).name.iter_mut().zip(name.bytes()) {
                *to = from as c_char;
            }
            (*device).node_type = ffi::ibv_node_type(-1);
            (*device).transport_type = ffi::ibv_transport_type(99);
        }
        device
    };
    let list: Vec<_> = NAMES.into_iter().map(device).chain([null_mut()]).collect();
    // SAFETY: `count` is writable by contract.
    unsafe { *count = NAMES.len() as c_int };
    Box::into_raw(list.into_boxed_slice()).cast()
}

unsafe extern "C" fn free_device_list(list: *mut *mut ffi::ibv_device) {
    // SAFETY: the list was made above, with a null pointer at its end. The devices stay, as open ones may.
    drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(list, NAMES.len() + 1)) });
}

unsafe extern "C" fn get_device_guid(_device: *mut ffi::ibv_device) -> u64 {
    u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8])
}

unsafe fn is(context: *mut ffi::ibv_context, name: &str) -> bool {
    // SAFETY: the context and its device live for as long as the process.
    unsafe { CStr::from_ptr((&raw const (*(*context).device).name).cast()) }.to_bytes() == name.as_bytes()
}

unsafe extern "C" fn open_device(device: *mut ffi::ibv_device) -> *mut ffi::ibv_context {
    let table = forever::<ffi::verbs_context>();
    // SAFETY: the table was made just now, and the context is its tail.
    unsafe {
        (*table).query_port = Some(query_port);
        (*table).sz = size_of::<ffi::verbs_context>();
        let context = &raw mut (*table).context;
        (*context).device = device;
        (*context).num_comp_vectors = -4;
        (*context).abi_compat = std::ptr::without_provenance_mut(usize::MAX);
        if is(context, CLOSED) {
            fail(libc::EACCES);
            return null_mut();
        }
        context
    }
}

unsafe extern "C" fn close_device(context: *mut ffi::ibv_context) -> c_int {
    // SAFETY: the context lives for as long as the process.
    if unsafe { is(context, LIAR) } { fail(libc::EBUSY) } else { 0 }
}

unsafe extern "C" fn query_device(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_device_attr) -> c_int {
    // SAFETY: the context is alive, and `attr` can be written to.
    unsafe {
        // Any device attribute, with all bits set.
        attr.write_bytes(0xff, 1);
        (*attr).phys_port_cnt = u8::from(!is(context, PORTLESS));
    }
    0
}

unsafe extern "C" fn query_port(
    context: *mut ffi::ibv_context,
    port_num: u8,
    attr: *mut ffi::ibv_port_attr,
    size: usize,
) -> c_int {
    if port_num != 1 {
        return libc::EINVAL;
    }
    // SAFETY: the context is alive, and this number of bytes can be written to.
    unsafe {
        attr.cast::<u8>().write_bytes(0, size);
        (*attr).state = ffi::ibv_port_state(77);
        (*attr).max_mtu = ffi::ibv_mtu(9);
        (*attr).gid_tbl_len = if is(context, LIAR) { c_int::MAX } else { 3 };
        (*attr).pkey_tbl_len = 1;
        (*attr).active_width = 255;
        (*attr).active_speed = 255;
        (*attr).phys_state = 200;
        (*attr).link_layer = 2;
    }
    0
}

unsafe extern "C" fn query_gid(
    _context: *mut ffi::ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ffi::ibv_gid,
) -> c_int {
    let byte = match (port_num, index) {
        (1, 0) => 1,
        (1, 1) => 0,
        (1, 2) => 3,
        (1, SILENT) => return -1,
        _ => return fail(libc::EINVAL),
    };
    // SAFETY: `gid` is writable by contract.
    unsafe { (*gid).raw = [byte; 16] };
    0
}

/// A count beyond the given space.
unsafe extern "C" fn query_gid_table(
    context: *mut ffi::ibv_context,
    _entries: *mut ffi::ibv_gid_entry,
    room: usize,
    _flags: u32,
    _size: usize,
) -> isize {
    // SAFETY: the context is alive.
    if unsafe { is(context, LIAR) } { room as isize + 1000 } else { -(libc::EOPNOTSUPP as isize) }
}

unsafe extern "C" fn query_pkey(_context: *mut ffi::ibv_context, port_num: u8, index: c_int, pkey: *mut u16) -> c_int {
    if (port_num, index) == (1, SILENT) {
        return -1;
    }
    if (port_num, index) != (1, 0) {
        return fail(libc::EINVAL);
    }
    // SAFETY: `pkey` is writable by contract.
    unsafe { *pkey = 0x8001_u16.to_be() };
    0
}

unsafe extern "C" fn get_pkey_index(_context: *mut ffi::ibv_context, _port_num: u8, pkey: u16) -> c_int {
    if pkey == 0x8001_u16.to_be() { 0 } else { -1 }
}
