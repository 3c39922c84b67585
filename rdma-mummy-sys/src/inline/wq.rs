//! Work queues, the receiving halves of packet queue pairs, and the tables that distribute packets among them.

use core::ffi::c_int;
use core::ptr::null;

use libc::EOPNOTSUPP;

use super::unsupported;
use crate::bindings::verbs::*;

/// Posts a list of receive requests. Returns zero, or an errno value after storing the first request not posted in
/// `bad_recv_wr`. See `ibv_create_wq(3)`.
///
/// # Safety
///
/// `wq` is live, `recv_wr` begins a list that can be read with its entries, and `bad_recv_wr` can be written. The
/// buffers must stay registered and unaliased until their completions, because the device uses them.
#[inline]
pub unsafe fn ibv_post_wq_recv(
    wq: *mut ibv_wq,
    recv_wr: *mut ibv_recv_wr,
    bad_recv_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by contract the queue is live: its provider sets this operation.
    unsafe { ((*wq).post_recv.unwrap_unchecked())(wq, recv_wr, bad_recv_wr) }
}

/// Creates a work queue. Returns null and sets errno on failure. See `ibv_create_wq(3)`.
///
/// # Safety
///
/// `context` is live, `wq_init_attr` can be read and written, and the objects that it names are live.
#[inline]
pub unsafe fn ibv_create_wq(context: *mut ibv_context, wq_init_attr: *mut ibv_wq_init_attr) -> *mut ibv_wq {
    // SAFETY: by contract the context is live; its operation receives this function's arguments. The
    // result is null or a new queue, not yet shared: its lock and its condition are initialised here, as in C.
    unsafe {
        let Some(create) = extended_op!(context, create_wq) else {
            return unsupported();
        };
        let wq = create(context, wq_init_attr);
        if !wq.is_null() {
            (*wq).wq_context = (*wq_init_attr).wq_context;
            (*wq).events_completed = 0;
            libc::pthread_mutex_init(&raw mut (*wq).mutex, null());
            libc::pthread_cond_init(&raw mut (*wq).cond, null());
        }
        wq
    }
}

/// Changes the state or the flags of a work queue. Returns zero or an errno value. See `ibv_modify_wq(3)`.
///
/// # Safety
///
/// `wq` is live and `wq_attr` can be read.
#[inline]
pub unsafe fn ibv_modify_wq(wq: *mut ibv_wq, wq_attr: *mut ibv_wq_attr) -> c_int {
    // SAFETY: by contract the queue is live, and with it its context; the operation receives this function's arguments.
    unsafe {
        match extended_op!((*wq).context, modify_wq) {
            Some(modify) => modify(wq, wq_attr),
            None => EOPNOTSUPP,
        }
    }
}

/// Destroys a work queue. Returns zero or an errno value. See `ibv_destroy_wq(3)`.
///
/// # Safety
///
/// `wq` is live, and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn ibv_destroy_wq(wq: *mut ibv_wq) -> c_int {
    // SAFETY: by contract the queue is live, and with it its context; the operation receives this function's arguments.
    unsafe {
        match extended_op!((*wq).context, destroy_wq) {
            Some(destroy) => destroy(wq),
            None => EOPNOTSUPP,
        }
    }
}

/// Creates a table that distributes packets among work queues. Returns null and sets errno on failure. See
/// `ibv_create_rwq_ind_table(3)`.
///
/// # Safety
///
/// `context` is live, `init_attr` can be read with its table, and the queues in that are live.
#[inline]
pub unsafe fn ibv_create_rwq_ind_table(
    context: *mut ibv_context,
    init_attr: *mut ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(context, create_rwq_ind_table) {
            Some(create) => create(context, init_attr),
            None => unsupported(),
        }
    }
}

/// Destroys a table of work queues. Returns zero or an errno value. See `ibv_destroy_rwq_ind_table(3)`.
///
/// # Safety
///
/// `rwq_ind_table` is live, and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn ibv_destroy_rwq_ind_table(rwq_ind_table: *mut ibv_rwq_ind_table) -> c_int {
    // SAFETY: by contract the table is live, and with it its context; the operation receives this function's arguments.
    unsafe {
        match extended_op!((*rwq_ind_table).context, destroy_rwq_ind_table) {
            Some(destroy) => destroy(rwq_ind_table),
            None => EOPNOTSUPP,
        }
    }
}
