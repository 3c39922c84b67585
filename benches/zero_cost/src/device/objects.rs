//! The objects of the device that a program creates before it posts. Each is a box, and its verb frees it.

use std::mem::{self, offset_of};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_uint, c_void};
use rdma_mummy_sys::*;

use super::data_path;

/// The number of every key and queue pair.
const NUMBER: u32 = 7;
/// The number of each queue pair, which its completions have.
const PAIR: u32 = 5;

/// A completion queue, of either interface.
#[repr(C)]
pub(super) struct Queue {
    c: ibv_cq_ex,
    /// Pending completions.
    pub(super) waiting: u64,
    /// Completions that were polled; each has the number of those before it.
    pub(super) given: u64,
}

/// A queue pair, of either interface.
#[repr(C)]
pub(super) struct Pair {
    c: ibv_qp_ex,
    /// Requests of the open batch that are signaled.
    pub(super) signalled: u64,
}

/// A new object with all bytes zero.
fn zeroed<T>() -> *mut T {
    // SAFETY: the structs have only integers, pointers and nullable functions.
    Box::into_raw(Box::new(unsafe { mem::zeroed::<T>() }))
}

/// Frees an object of [`zeroed`].
///
/// # Safety
///
/// [`zeroed`] created `object` with this type, and nothing uses it afterwards.
unsafe fn end<T>(object: *mut T) -> c_int {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { Box::from_raw(object) });
    0
}

fn device() -> *mut ibv_device {
    static DEVICE: AtomicPtr<ibv_device> = AtomicPtr::new(ptr::null_mut());
    let found = DEVICE.load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    let new = zeroed::<ibv_device>();
    // SAFETY: nothing else has the pointer yet.
    unsafe {
        for (to, from) in (*new).name.iter_mut().zip(super::NAME.bytes()) {
            *to = from as c_char;
        }
        (*new).node_type = ibv_node_type::IBV_NODE_CA;
        (*new).transport_type = ibv_transport_type::IBV_TRANSPORT_IB;
    }
    match DEVICE.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        // Another thread has set the device first; this thread's object leaks, at most once per thread.
        Err(found) => found,
    }
}

pub(super) unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    if !count.is_null() {
        // SAFETY: `count` can be written, by contract.
        unsafe { *count = 1 };
    }
    Box::into_raw(Box::new([device(), ptr::null_mut()])).cast()
}

pub(super) unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the list is from `get_device_list`, by contract.
    unsafe { end(list.cast::<[*mut ibv_device; 2]>()) };
}

pub(super) unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: devices are never freed.
    unsafe { (&raw const (*device).name).cast() }
}

pub(super) unsafe extern "C" fn get_device_guid(_device: *mut ibv_device) -> u64 {
    1
}

pub(super) unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    let verbs = zeroed::<verbs_context>();
    // SAFETY: nothing else has the pointer yet.
    unsafe {
        (*verbs).sz = size_of::<verbs_context>();
        (*verbs).query_port = Some(query_port_full);
        (*verbs).create_cq_ex = Some(create_cq_ex);
        (*verbs).create_qp_ex = Some(create_qp_ex);
        let context = &mut (*verbs).context;
        context.device = device;
        context.num_comp_vectors = 1;
        (context.cmd_fd, context.async_fd) = (-1, -1);
        context.abi_compat = ptr::without_provenance_mut(usize::MAX);
        data_path::fill_in_context(&mut context.ops);
        &raw mut (*verbs).context
    }
}

pub(super) unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the context is from `open_device`, by contract, which creates it inside this struct.
    unsafe { end(context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>()) }
}

pub(super) unsafe extern "C" fn query_device(_context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: `attr` can be written, by contract, and zero is valid.
    unsafe {
        attr.write_bytes(0, 1);
        (*attr).phys_port_cnt = 1;
        ((*attr).max_qp_wr, (*attr).max_sge, (*attr).max_cqe) = (1 << 16, 16, 1 << 20);
        ((*attr).max_qp, (*attr).max_cq, (*attr).max_mr, (*attr).max_pd) = (64, 64, 64, 64);
    }
    0
}

/// The attributes of a port, in the struct that starts both the plain and the full query.
fn port() -> ibv_port_attr {
    // SAFETY: zero is valid for its integers.
    let mut port: ibv_port_attr = unsafe { mem::zeroed() };
    port.state = ibv_port_state::IBV_PORT_ACTIVE;
    (port.max_mtu, port.active_mtu) = (ibv_mtu::IBV_MTU_4096, ibv_mtu::IBV_MTU_4096);
    (port.gid_tbl_len, port.pkey_tbl_len) = (1, 1);
    (port.lid, port.sm_lid, port.active_width, port.active_speed) = (1, 1, 1, 1);
    (port.phys_state, port.link_layer) = (5, 1);
    port
}

pub(super) unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    _port: u8,
    attr: *mut _compat_ibv_port_attr,
) -> c_int {
    let port = port();
    // SAFETY: `attr` can be written, by contract; the older struct ends where this field starts.
    unsafe {
        attr.cast::<u8>()
            .copy_from_nonoverlapping((&raw const port).cast(), offset_of!(ibv_port_attr, port_cap_flags2));
    }
    0
}

unsafe extern "C" fn query_port_full(
    _context: *mut ibv_context,
    _port: u8,
    attr: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    let port = port();
    // SAFETY: `length` bytes can be written, by contract.
    unsafe {
        attr.cast::<u8>().copy_from_nonoverlapping((&raw const port).cast(), length.min(size_of::<ibv_port_attr>()));
    }
    0
}

pub(super) unsafe extern "C" fn query_gid(
    _context: *mut ibv_context,
    _port: u8,
    _index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: `gid` can be written, by contract.
    unsafe { (*gid).raw = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] };
    0
}

pub(super) unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    _flags: u32,
    _entry_size: usize,
) -> isize {
    if max_entries == 0 {
        return 0;
    }
    // SAFETY: an entry can be written, by contract, and zero is valid.
    unsafe {
        entries.write_bytes(0, 1);
        (*entries).port_num = 1;
        query_gid(context, 1, 0, &raw mut (*entries).gid);
    }
    1
}

pub(super) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let pd = zeroed::<ibv_pd>();
    // SAFETY: nothing else has the pointer yet.
    unsafe { (*pd).context = context };
    pd
}

pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: by contract.
    unsafe { end(pd) }
}

pub(super) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _iova: u64,
    _access: c_uint,
) -> *mut ibv_mr {
    let mr = zeroed::<ibv_mr>();
    // SAFETY: nothing else has the pointer yet; the domain is live, by contract.
    unsafe {
        ((*mr).context, (*mr).pd, (*mr).addr, (*mr).length) = ((*pd).context, pd, addr, length);
        ((*mr).lkey, (*mr).rkey) = (NUMBER, NUMBER);
    }
    mr
}

pub(super) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by contract.
    unsafe { reg_mr_iova2(pd, addr, length, 0, access as c_uint) }
}

pub(super) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: by contract.
    unsafe { end(mr) }
}

pub(super) unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel = zeroed::<ibv_comp_channel>();
    // SAFETY: nothing else has the pointer yet. There are no events, but a channel requires a descriptor.
    unsafe {
        (*channel).context = context;
        (*channel).fd = libc::eventfd(0, libc::EFD_CLOEXEC);
    }
    channel
}

pub(super) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the channel is live, by contract, and owns its descriptor.
    unsafe {
        libc::close((*channel).fd);
        end(channel)
    }
}

pub(super) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _comp_vector: c_int,
) -> *mut ibv_cq {
    let queue = zeroed::<Queue>();
    // SAFETY: nothing else has the pointer yet.
    unsafe {
        data_path::fill_in_queue(&mut (*queue).c);
        let cq = queue.cast::<ibv_cq>();
        ((*cq).context, (*cq).cqe, (*cq).cq_context, (*cq).channel) = (context, cqe, cq_context, channel);
        cq
    }
}

unsafe extern "C" fn create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    // SAFETY: the attributes can be read, by contract.
    unsafe { create_cq(context, (*attr).cqe as c_int, (*attr).cq_context, (*attr).channel, 0).cast() }
}

pub(super) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: by contract; every queue has this type.
    unsafe { end(cq.cast::<Queue>()) }
}

/// # Safety
///
/// As `ibv_create_qp(3)`.
unsafe fn new_pair(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    qp_context: *mut c_void,
    (send_cq, recv_cq): (*mut ibv_cq, *mut ibv_cq),
    qp_type: ibv_qp_type,
) -> *mut ibv_qp {
    let pair = zeroed::<Pair>();
    // SAFETY: nothing else has the pointer yet.
    unsafe {
        data_path::fill_in_pair(&mut (*pair).c);
        let qp = pair.cast::<ibv_qp>();
        ((*qp).context, (*qp).pd, (*qp).qp_context) = (context, pd, qp_context);
        ((*qp).send_cq, (*qp).recv_cq, (*qp).qp_type, (*qp).qp_num) = (send_cq, recv_cq, qp_type, PAIR);
        qp
    }
}

pub(super) unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the domain is live and the attributes can be read, by contract.
    unsafe {
        let queues = ((*attr).send_cq, (*attr).recv_cq);
        new_pair((*pd).context, pd, (*attr).qp_context, queues, (*attr).qp_type)
    }
}

unsafe extern "C" fn create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: the attributes can be read, by contract.
    unsafe {
        let queues = ((*attr).send_cq, (*attr).recv_cq);
        new_pair(context, (*attr).pd, (*attr).qp_context, queues, (*attr).qp_type)
    }
}

pub(super) unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    qp.cast()
}

pub(super) unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    if mask as u32 & ibv_qp_attr_mask::IBV_QP_STATE.0 != 0 {
        // SAFETY: the queue pair is live and the attributes can be read, by contract.
        unsafe { (*qp).state = (*attr).qp_state };
    }
    0
}

pub(super) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: by contract; every queue pair has this type.
    unsafe { end(qp.cast::<Pair>()) }
}
