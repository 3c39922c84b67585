//! Counters: the value at index `n` is always `100 + n`.

use std::slice;

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Kind;
use super::device::state_of;
use super::objects::{destroy_object, forever};

/// Adds the verbs of this file to the extended table.
pub(super) fn fill_in(table: &mut ffi::verbs_context, has: impl Fn(&str) -> bool) {
    table.create_counters = has("create_counters").then_some(create_counters);
    table.attach_counters_point_flow = has("attach_counters_point_flow").then_some(attach_counters_point_flow);
    table.read_counters = has("read_counters").then_some(read_counters);
    table.destroy_counters = has("destroy_counters").then_some(destroy_counters);
}

pub(super) unsafe extern "C" fn create_counters(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_counters_init_attr,
) -> *mut ffi::ibv_counters {
    // SAFETY: the context is one of this provider's, the attributes can be read, and the counters are new.
    unsafe {
        let arguments = [("comp_mask", (*attr).comp_mask.into())];
        let (mut inner, failure) = state_of(context).enter("create_counters", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let counters = forever::<ffi::ibv_counters>();
        (*counters).context = context;
        inner.made(Kind::Counters, counters, &[context.addr()]);
        counters
    }
}

pub(super) unsafe extern "C" fn attach_counters_point_flow(
    counters: *mut ffi::ibv_counters,
    attr: *mut ffi::ibv_counter_attach_attr,
    flow: *mut ffi::ibv_flow,
) -> c_int {
    // SAFETY: objects are never freed, and the attributes can be read.
    unsafe {
        let ffi::ibv_counter_attach_attr { counter_desc, index, comp_mask } = *attr;
        let arguments = [
            ("counters", counters.addr() as u64),
            ("desc", counter_desc.0.into()),
            ("index", index.into()),
            ("comp_mask", comp_mask.into()),
            ("flow", flow.addr() as u64),
        ];
        let (mut inner, failure) = state_of((*counters).context).enter("attach_counters_point_flow", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::Counters, counters.addr(), "attach_counters_point_flow") {
            return libc::EINVAL;
        }
        if !flow.is_null() {
            if !inner.is_live(Kind::Flow, flow.addr(), "attach_counters_point_flow") {
                return libc::EINVAL;
            }
            inner.depends(flow.addr(), counters.addr());
        }
    }
    0
}

pub(super) unsafe extern "C" fn read_counters(
    counters: *mut ffi::ibv_counters,
    values: *mut u64,
    count: u32,
    flags: u32,
) -> c_int {
    // SAFETY: objects are never freed, and there is room for as many values.
    unsafe {
        let arguments = [("ncounters", count.into()), ("flags", flags.into())];
        let (mut inner, failure) = state_of((*counters).context).enter("read_counters", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::Counters, counters.addr(), "read_counters") {
            return libc::EINVAL;
        }
        for index in 0..count as usize {
            values.add(index).write(100 + index as u64);
        }
        inner.list("read_counters", slice::from_raw_parts_mut(values, count as usize));
    }
    0
}

pub(super) unsafe extern "C" fn destroy_counters(counters: *mut ffi::ibv_counters) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*counters).context, "destroy_counters", Kind::Counters, counters.addr()) }
}
