//! The attributes of a device, as the test sets them.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::stub::stubs;

stubs! {
    fn ibv_query_device(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_device_attr) -> c_int [] |inner| {
        inner.fill("query_device", attr, |facts| facts.device.orig_attr)
    }

    fn query_device_ex(
        context: *mut ffi::ibv_context,
        _input: *const ffi::ibv_query_device_ex_input,
        attr: *mut ffi::ibv_device_attr_ex,
        size: usize,
    ) -> c_int [size] |inner| {
        inner.fill("query_device_ex", attr, |facts| facts.device)
    }

    fn query_port(context: *mut ffi::ibv_context, port: u8, attr: *mut ffi::ibv_port_attr, size: usize) -> c_int
        [port, size] |inner|
    {
        if port == 0 || port > inner.facts.device.orig_attr.phys_port_cnt {
            return inner.refuse("query_port", libc::EINVAL);
        }
        inner.fill("query_port", attr, |facts| facts.port)
    }

    fn query_rt_values(context: *mut ffi::ibv_context, values: *mut ffi::ibv_values_ex) -> c_int [] |inner| {
        if inner.facts.fills {
            (*values).comp_mask = inner.facts.values_mask;
            (*values).raw_clock.tv_nsec = 12345;
        }
        inner.output("query_rt_values", values);
        0
    }

    fn ibv_query_gid(context: *mut ffi::ibv_context, port: u8, index: c_int, gid: *mut ffi::ibv_gid) -> c_int
        [port] |inner|
    {
        let found = inner.facts.gids.iter().find(|entry| entry.gid_index as c_int == index);
        if let (true, Some(entry)) = (inner.facts.fills, found) {
            *gid = entry.gid;
        }
        inner.output("query_gid", gid);
        0
    }

    fn _ibv_query_gid_ex(
        context: *mut ffi::ibv_context,
        port: u32,
        gid_index: u32,
        out: *mut ffi::ibv_gid_entry,
        _flags: u32,
        _size: usize,
    ) -> c_int [port] |inner| {
        if !inner.facts.fills {
            return 0;
        }
        match inner.facts.gids.iter().find(|entry| entry.gid_index == gid_index).copied() {
            Some(entry) => inner.fill("query_gid_ex", out, |_facts| entry),
            None => inner.refuse("query_gid_ex", libc::ENODATA),
        }
    }

    fn _ibv_query_gid_table(
        context: *mut ffi::ibv_context,
        entries: *mut ffi::ibv_gid_entry,
        max_entries: usize,
        _flags: u32,
        _size: usize,
    ) -> isize [max_entries] |inner| {
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

    /// The library function, which only fills in the first fields.
    fn query_port_basic(context: *mut ffi::ibv_context, port: u8, attr: *mut ffi::_compat_ibv_port_attr) -> c_int
        [port] |inner|
    {
        let attr = attr.cast::<ffi::ibv_port_attr>();
        (*attr).state = inner.facts.port.state;
        (*attr).gid_tbl_len = inner.facts.port.gid_tbl_len;
        (*attr).link_layer = inner.facts.port.link_layer;
        for number in [(&raw mut (*attr).state).cast::<u32>(), (&raw mut (*attr).gid_tbl_len).cast()] {
            inner.output("query_port_basic", number);
        }
        0
    }

    /// The speed of each port, in units of 100 Mbit/s, is 4000.
    fn ibv_query_port_speed(context: *mut ffi::ibv_context, port: u32, port_speed: *mut u64) -> c_int [port] |inner| {
        inner.fill("query_port_speed", port_speed, |_facts| 4000)
    }

    fn ibv_query_pkey(context: *mut ffi::ibv_context, port: u8, index: c_int, pkey: *mut u16) -> c_int
        [port, index] |inner|
    {
        inner.fill("query_pkey", pkey, |_facts| 0xffff)
    }

    /// Index 0 has the default key, and there is no other.
    fn ibv_get_pkey_index(context: *mut ffi::ibv_context, port: u8, pkey: u16) -> c_int [port] |inner| {
        inner.number("get_pkey_index", if pkey == 0xffff { 0 } else { -1 })
    }
}
