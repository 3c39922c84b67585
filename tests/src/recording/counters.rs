//! Counters: the value at index `n` is always `100 + n`.

use std::slice;

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::stub::{endings, stubs};

stubs! {
    fn create_counters(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_counters_init_attr)
        -> *mut ffi::ibv_counters [; @attr: comp_mask] |inner|
    {
        inner.create(context, &[context.addr()])
    }

    fn attach_counters_point_flow(
        counters: *mut ffi::ibv_counters,
        attr: *mut ffi::ibv_counter_attach_attr,
        flow: *mut ffi::ibv_flow,
    ) -> c_int
        [counters; desc = (*attr).counter_desc, index = (*attr).index, comp_mask = (*attr).comp_mask, flow = flow]
        |inner|
    {
        if !flow.is_null() {
            if !inner.exists(flow.addr(), "attach_counters_point_flow") {
                return libc::EINVAL;
            }
            inner.depends(flow.addr(), counters.addr());
        }
        0
    }

    fn read_counters(counters: *mut ffi::ibv_counters, values: *mut u64, ncounters: u32, flags: u32) -> c_int
        [ncounters, flags] |inner|
    {
        for index in 0..ncounters as usize {
            values.add(index).write(100 + index as u64);
        }
        inner.list("read_counters", slice::from_raw_parts_mut(values, ncounters as usize));
        0
    }
}

endings! {
    destroy_counters(ffi::ibv_counters);
}
