//! The attributes of a device, as the test sets them.

use libc::{c_int, c_uint};
use rdma_mummy_sys as ffi;

use super::device::state_of;

pub(super) unsafe extern "C" fn query_device(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_device_attr) -> c_int {
    // SAFETY: the context is one of this provider's, and the attributes can be written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("query_device", &[]);
        if let Some(failure) = failure {
            return failure.code();
        }
        if inner.facts.fills {
            *attr = inner.facts.device.orig_attr;
        }
        inner.output("query_device", attr);
    }
    0
}

pub(super) unsafe extern "C" fn query_device_ex(
    context: *mut ffi::ibv_context,
    _input: *const ffi::ibv_query_device_ex_input,
    attr: *mut ffi::ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: the context is one of this provider's, and the attributes can be written up to their size.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("query_device_ex", &[("size", size as u64)]);
        if let Some(failure) = failure {
            return failure.code();
        }
        if inner.facts.fills {
            *attr = inner.facts.device;
        }
        inner.output("query_device_ex", attr);
    }
    0
}

pub(super) unsafe extern "C" fn query_port(
    context: *mut ffi::ibv_context,
    port_num: u8,
    attr: *mut ffi::ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: the context is one of this provider's, and the attributes can be written up to their size.
    unsafe {
        let arguments = [("port", port_num.into()), ("size", size as u64)];
        let (mut inner, failure) = state_of(context).enter("query_port", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        let ports = inner.facts.device.orig_attr.phys_port_cnt;
        if port_num == 0 || port_num > ports {
            inner.failed(libc::EINVAL);
            return libc::EINVAL;
        }
        if inner.facts.fills {
            *attr = inner.facts.port;
        }
        inner.output("query_port", attr);
    }
    0
}

pub(super) unsafe extern "C" fn query_rt_values(
    context: *mut ffi::ibv_context,
    values: *mut ffi::ibv_values_ex,
) -> c_int {
    // SAFETY: the context is one of this provider's, and the values can be written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("query_rt_values", &[]);
        if let Some(failure) = failure {
            return failure.code();
        }
        if inner.facts.fills {
            (*values).comp_mask = inner.facts.values_mask;
            (*values).raw_clock.tv_nsec = 12345;
        }
        inner.output("query_rt_values", values);
    }
    0
}

pub(super) unsafe extern "C" fn query_gid(
    context: *mut ffi::ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ffi::ibv_gid,
) -> c_int {
    // SAFETY: the context is one of this provider's, and the GID can be written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("query_gid", &[("port", port_num.into())]);
        if let Some(failure) = failure {
            return failure.minus();
        }
        let found = inner.facts.gids.iter().find(|entry| entry.gid_index as c_int == index);
        if let (true, Some(entry)) = (inner.facts.fills, found) {
            *gid = entry.gid;
        }
        inner.output("query_gid", gid);
    }
    0
}

pub(super) unsafe extern "C" fn query_gid_ex(
    context: *mut ffi::ibv_context,
    port_num: u32,
    gid_index: u32,
    out: *mut ffi::ibv_gid_entry,
    _flags: u32,
    _size: usize,
) -> c_int {
    // SAFETY: the context is one of this provider's, and the entry can be written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("query_gid_ex", &[("port", port_num.into())]);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.facts.fills {
            return 0;
        }
        match inner.facts.gids.iter().find(|entry| entry.gid_index == gid_index).copied() {
            Some(entry) => {
                *out = entry;
                inner.output("query_gid_ex", out);
            }
            None => {
                inner.failed(libc::ENODATA);
                return libc::ENODATA;
            }
        }
    }
    0
}

pub(super) unsafe extern "C" fn query_gid_table(
    context: *mut ffi::ibv_context,
    entries: *mut ffi::ibv_gid_entry,
    max_entries: usize,
    _flags: u32,
    _size: usize,
) -> isize {
    // SAFETY: the context is one of this provider's, and this number of entries can be written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("query_gid_table", &[("max_entries", max_entries as u64)]);
        if let Some(failure) = failure {
            return failure.below_zero() as isize;
        }
        if inner.facts.fills {
            for (index, entry) in inner.facts.gids.iter().take(max_entries).enumerate() {
                entries.add(index).write(*entry);
            }
        }
        if max_entries > 0 {
            inner.output("query_gid_table", entries);
        }
        // A driver that reports more entries than fit is faulty.
        let count = inner.facts.gids.len() as isize;
        inner.number("query_gid_table: count", count)
    }
}

/// The library function, which only fills in the first fields.
pub(super) unsafe extern "C" fn query_port_basic(
    context: *mut ffi::ibv_context,
    port_num: u8,
    attr: *mut ffi::_compat_ibv_port_attr,
) -> c_int {
    // SAFETY: the context is one of this provider's, and only the old fields are written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("query_port_basic", &[("port", port_num.into())]);
        if let Some(failure) = failure {
            return failure.code();
        }
        let attr = attr.cast::<ffi::ibv_port_attr>();
        (*attr).state = inner.facts.port.state;
        (*attr).gid_tbl_len = inner.facts.port.gid_tbl_len;
        (*attr).link_layer = inner.facts.port.link_layer;
        for number in [(&raw mut (*attr).state).cast::<u32>(), (&raw mut (*attr).gid_tbl_len).cast()] {
            inner.output("query_port_basic", number);
        }
    }
    0
}

/// The speed of each port, in units of 100 Mbit/s, is 4000.
pub(super) unsafe extern "C" fn query_port_speed(
    context: *mut ffi::ibv_context,
    port_num: u32,
    port_speed: *mut u64,
) -> c_int {
    // SAFETY: the context is one of this provider's, and the speed can be written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("query_port_speed", &[("port", port_num.into())]);
        if let Some(failure) = failure {
            return failure.code();
        }
        if inner.facts.fills {
            *port_speed = 4000;
        }
        inner.output("query_port_speed", port_speed);
    }
    0
}

pub(super) unsafe extern "C" fn query_pkey(
    context: *mut ffi::ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: the context is one of this provider's, and the key can be written.
    unsafe {
        let arguments = [("port", port_num.into()), ("index", u64::from(index as c_uint))];
        let (mut inner, failure) = state_of(context).enter("query_pkey", &arguments);
        if let Some(failure) = failure {
            return failure.minus();
        }
        if inner.facts.fills {
            *pkey = 0xffff;
        }
        inner.output("query_pkey", pkey);
    }
    0
}

/// Index 0 has the default key, and there is no other.
pub(super) unsafe extern "C" fn get_pkey_index(context: *mut ffi::ibv_context, port_num: u8, pkey: u16) -> c_int {
    // SAFETY: the context is one of this provider's.
    let (mut inner, failure) = unsafe { state_of(context) }.enter("get_pkey_index", &[("port", port_num.into())]);
    match failure {
        Some(failure) => failure.minus(),
        None => inner.number("get_pkey_index", if pkey == 0xffff { 0 } else { -1 }),
    }
}
