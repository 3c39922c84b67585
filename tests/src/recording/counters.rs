//! Counters of flows, where the value at index `n` is always `100 + n`, and completion counters, which are from a later
//! library than the bindings.

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

    fn _ibv_query_comp_cntr_caps(context: *mut ffi::ibv_context, caps: *mut ffi::ibv_comp_cntr_caps, size: usize)
        -> c_int [] |inner|
    {
        assert_eq!(size, size_of::<ffi::ibv_comp_cntr_caps>());
        caps.write(ffi::ibv_comp_cntr_caps { max_value: 1 << 40, max_counters: 8, supported_qp_attach_ops: 3 });
        inner.output("query_comp_cntr_caps", caps);
        0
    }

    fn ibv_create_comp_cntr(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_comp_cntr_init_attr)
        -> *mut ffi::ibv_comp_cntr [; @attr: type_] |inner|
    {
        let counter = inner.create::<ffi::ibv_comp_cntr>(context, &[context.addr()]);
        inner.counters.insert(counter.addr(), [0; 2]);
        counter
    }

    fn ibv_qp_attach_comp_cntr(
        qp: *mut ffi::ibv_qp,
        counter: *mut ffi::ibv_comp_cntr,
        attr: *mut ffi::ibv_qp_attach_comp_cntr_attr,
    ) -> c_int [; @qp: qp_num; @attr: op_mask] |inner| {
        inner.exists(counter.addr(), "qp_attach_comp_cntr");
        if (*qp).state.0 > ffi::ibv_qp_state::IBV_QPS_INIT.0 {
            return inner.refuse("qp_attach_comp_cntr", libc::EINVAL);
        }
        inner.depends(qp.addr(), counter.addr());
        0
    }
}

endings! {
    destroy_counters(ffi::ibv_counters);
    ibv_destroy_comp_cntr(ffi::ibv_comp_cntr);
}

macro_rules! changes {
    ($($name:ident($which:literal) |$number:ident, $argument:ident| $change:expr;)+) => { stubs! { $(
        fn $name(counter: *mut ffi::ibv_comp_cntr, argument: u64) -> c_int [argument] |inner| {
            if let Some(numbers) = inner.counters.get_mut(&counter.addr()) {
                let ($number, $argument) = (&mut numbers[$which], argument);
                $change;
            }
            0
        }
    )+ } };
}
changes! {
    ibv_set_comp_cntr(0) |number, value| *number = value;
    ibv_set_err_comp_cntr(1) |number, value| *number = value;
    ibv_inc_comp_cntr(0) |number, amount| *number += amount;
    ibv_inc_err_comp_cntr(1) |number, amount| *number += amount;
}

macro_rules! reads {
    ($($name:ident($which:literal) $output:literal;)+) => { stubs! { $(
        fn $name(counter: *mut ffi::ibv_comp_cntr, value: *mut u64) -> c_int [] |inner| {
            if let Some(numbers) = inner.counters.get(&counter.addr()) {
                value.write(numbers[$which]);
            }
            inner.output($output, value);
            0
        }
    )+ } };
}
reads! {
    ibv_read_comp_cntr(0) "read_comp_cntr";
    ibv_read_err_comp_cntr(1) "read_err_comp_cntr";
}
