//! `ibv_open_device`, and the functions of a context.

use std::mem;
use std::sync::OnceLock;

use rdma_mummy_sys::{ibv_context, ibv_device, verbs_context};

use super::context::Context;
use super::device::Device;
use super::{failure, guard};
use crate::sys::errno::Errno;

pub(crate) unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the struct consists of numbers, nullable pointers and a mutex; zero is valid for each. A zeroed mutex
    // is unlocked.
    let mut verbs: verbs_context = unsafe { mem::zeroed() };
    fill(&mut verbs);
    // SAFETY: required by the C API: the device comes from a list of devices. It is null only in tests.
    if !device.is_null() && unsafe { Device::of(device) }.condition().is_removed() {
        return failure::null(Errno(libc::ENODEV));
    }
    match Context::open(device, verbs) {
        Ok(context) => {
            if let Some(call) = ON_OPEN.get() {
                call();
            }
            let context = Box::into_raw(Box::new(context));
            // SAFETY: `context` is on the heap.
            unsafe { &raw mut (*context).verbs.context }
        }
        Err(errno) => failure::null(errno),
    }
}

/// The function that is called when a device is opened.
static ON_OPEN: OnceLock<fn()> = OnceLock::new();

/// Sets the function that is called when a device is opened. Only the first call has an effect.
pub(crate) fn on_open(call: fn()) {
    let _ = ON_OPEN.set(call);
}

/// Sets the functions of a context. A null pointer marks an unsupported function.
fn fill(verbs: &mut verbs_context) {
    verbs.query_port = Some(guard::query_port);
    verbs.query_device_ex = Some(guard::query_device_ex);
    verbs.query_rt_values = Some(guard::query_rt_values);
    verbs.alloc_td = Some(guard::alloc_td);
    verbs.dealloc_td = Some(guard::dealloc_td);
    verbs.alloc_parent_domain = Some(guard::alloc_parent_domain);
    verbs.alloc_null_mr = Some(guard::alloc_null_mr);
    verbs.advise_mr = Some(guard::advise_mr);
    verbs.alloc_dm = Some(guard::alloc_dm);
    verbs.free_dm = Some(guard::free_dm);
    verbs.reg_dm_mr = Some(guard::reg_dm_mr);
    verbs.context.ops.alloc_mw = Some(guard::alloc_mw);
    verbs.context.ops.dealloc_mw = Some(guard::dealloc_mw);
    verbs.create_qp_ex = Some(guard::create_qp_ex);
    verbs.open_qp = Some(guard::open_qp);
    verbs.context.ops.bind_mw = Some(guard::bind_mw);
    verbs.context.ops.post_send = Some(guard::post_send);
    verbs.context.ops.post_recv = Some(guard::post_recv);
    verbs.create_cq_ex = Some(guard::create_cq_ex);
    verbs.modify_cq = Some(guard::modify_cq);
    verbs.context.ops.poll_cq = Some(guard::poll_cq);
    verbs.context.ops.req_notify_cq = Some(guard::req_notify_cq);
    verbs.create_srq_ex = Some(guard::create_srq_ex);
    verbs.get_srq_num = Some(guard::get_srq_num);
    verbs.open_xrcd = Some(guard::open_xrcd);
    verbs.close_xrcd = Some(guard::close_xrcd);
    verbs.context.ops.post_srq_recv = Some(guard::post_srq_recv);
}
