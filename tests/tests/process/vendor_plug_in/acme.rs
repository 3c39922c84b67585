//! A vendor's library with its driver: a device that completes each request at once, and logs its calls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::{self, offset_of};
use std::ptr;
use std::sync::Once;

use libc::{c_int, c_uint, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::ibverbs::{Ibverbs, IbverbsTable};
use rdma_mummy_sys::load::provider::{Provider, register};

thread_local! {
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static WITHOUT_FUNCTIONS: Cell<bool> = const { Cell::new(false) };
    static FAIL_NEXT: Cell<c_int> = const { Cell::new(0) };
}

/// Logs something for this thread.
pub(crate) fn log(line: String) {
    LOG.with_borrow_mut(|log| log.push(line));
}

/// The log since the last query.
pub(crate) fn take_log() -> Vec<String> {
    LOG.take()
}

/// Makes queue pairs created from now on lack the vendor's functions.
pub(crate) fn without_functions(without: bool) {
    WITHOUT_FUNCTIONS.set(without);
}

/// Makes the next creation of a queue pair fail.
pub(crate) fn fail_next(errno: c_int) {
    FAIL_NEXT.set(errno);
}

/// Adds the device to those of this process.
pub(crate) fn plug_in() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the table is empty; the system has no devices. If a library is loaded already, its devices are listed as well.
        drop(unsafe { Ibverbs::from_table(IbverbsTable::default()) }.install());
        let table = IbverbsTable {
            ibv_get_device_list: Some(get_device_list),
            ibv_free_device_list: Some(free_device_list),
            ibv_open_device: Some(open_device),
            ibv_close_device: Some(close_device),
            ibv_alloc_pd: Some(alloc_pd),
            ibv_dealloc_pd: Some(dealloc_pd),
            ibv_destroy_cq: Some(destroy_cq),
            ibv_qp_to_qp_ex: Some(qp_to_qp_ex),
            ibv_modify_qp: Some(modify_qp),
            ibv_query_qp: Some(query_qp),
            ibv_destroy_qp: Some(destroy_qp),
            ..Default::default()
        };
        // SAFETY: the functions do what the manual pages say of their names.
        unsafe { register(Provider::new("acme", table)) }.unwrap();
    });
}

/// A C struct of integers and nullable pointers, all zero, for the rest of the process.
fn forever<T>() -> *mut T {
    // SAFETY: malloc returns memory that is aligned for every C struct.
    let object = unsafe { libc::calloc(1, size_of::<T>()) };
    assert!(!object.is_null(), "out of memory");
    object.cast()
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ffi::ibv_device {
    let device = forever::<ffi::ibv_device>();
    // SAFETY: the device is new and the name shorter than the field; the count can be written.
    unsafe {
        ptr::copy_nonoverlapping(c"acme_0".as_ptr(), (&raw mut (*device).name).cast(), 7);
        *count = 1;
    }
    Box::leak(Box::new([device, ptr::null_mut()])).as_mut_ptr()
}

unsafe extern "C" fn free_device_list(list: *mut *mut ffi::ibv_device) {
    // SAFETY: one of the lists above.
    drop(unsafe { Box::from_raw(list.cast::<[*mut ffi::ibv_device; 2]>()) });
}

unsafe extern "C" fn open_device(device: *mut ffi::ibv_device) -> *mut ffi::ibv_context {
    unsafe extern "C" fn poll_cq(_: *mut ffi::ibv_cq, _: c_int, _: *mut ffi::ibv_wc) -> c_int {
        0
    }
    unsafe extern "C" fn req_notify_cq(_: *mut ffi::ibv_cq, _: c_int) -> c_int {
        0
    }
    unsafe extern "C" fn post_send(
        _: *mut ffi::ibv_qp,
        _: *mut ffi::ibv_send_wr,
        _: *mut *mut ffi::ibv_send_wr,
    ) -> c_int {
        libc::EOPNOTSUPP
    }
    unsafe extern "C" fn post_recv(
        _: *mut ffi::ibv_qp,
        _: *mut ffi::ibv_recv_wr,
        _: *mut *mut ffi::ibv_recv_wr,
    ) -> c_int {
        libc::EOPNOTSUPP
    }
    // SAFETY: the table is new, and zero is a value of it.
    let table = unsafe { &mut *forever::<ffi::verbs_context>() };
    table.sz = size_of::<ffi::verbs_context>();
    table.create_cq_ex = Some(create_cq_ex);
    table.context.device = device;
    table.context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    table.context.ops.poll_cq = Some(poll_cq);
    table.context.ops.req_notify_cq = Some(req_notify_cq);
    table.context.ops.post_send = Some(post_send);
    table.context.ops.post_recv = Some(post_recv);
    ptr::from_mut(table).wrapping_byte_add(offset_of!(ffi::verbs_context, context)).cast()
}

unsafe extern "C" fn close_device(_: *mut ffi::ibv_context) -> c_int {
    log("close_device".to_owned());
    0
}

unsafe extern "C" fn alloc_pd(context: *mut ffi::ibv_context) -> *mut ffi::ibv_pd {
    let pd = forever::<ffi::ibv_pd>();
    // SAFETY: the domain is new.
    unsafe { (*pd).context = context };
    pd
}

unsafe extern "C" fn dealloc_pd(_: *mut ffi::ibv_pd) -> c_int {
    log("dealloc_pd".to_owned());
    0
}

/// A completion queue, and the requests that have completed: number and queue pair.
#[repr(C)]
struct Queue {
    cq: ffi::ibv_cq_ex,
    completed: VecDeque<(u64, u32)>,
    qp_num: u32,
}

unsafe extern "C" fn create_cq_ex(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_cq_init_attr_ex,
) -> *mut ffi::ibv_cq_ex {
    unsafe extern "C" fn zero_u32(_: *mut ffi::ibv_cq_ex) -> u32 {
        0
    }
    unsafe extern "C" fn zero_u8(_: *mut ffi::ibv_cq_ex) -> u8 {
        0
    }
    unsafe extern "C" fn opcode(_: *mut ffi::ibv_cq_ex) -> ffi::ibv_wc_opcode {
        ffi::ibv_wc_opcode::IBV_WC_SEND
    }
    unsafe extern "C" fn flags(_: *mut ffi::ibv_cq_ex) -> c_uint {
        0
    }
    unsafe extern "C" fn qp_num(cq: *mut ffi::ibv_cq_ex) -> u32 {
        // SAFETY: queues are never freed.
        unsafe { (*cq.cast::<Queue>()).qp_num }
    }
    unsafe extern "C" fn start_poll(cq: *mut ffi::ibv_cq_ex, _: *mut ffi::ibv_poll_cq_attr) -> c_int {
        // SAFETY: as above.
        unsafe { next_poll(cq) }
    }
    unsafe extern "C" fn next_poll(cq: *mut ffi::ibv_cq_ex) -> c_int {
        // SAFETY: as above.
        let queue = unsafe { &mut *cq.cast::<Queue>() };
        let Some((wr_id, qp_num)) = queue.completed.pop_front() else { return libc::ENOENT };
        queue.cq.wr_id = wr_id;
        queue.qp_num = qp_num;
        0
    }
    unsafe extern "C" fn end_poll(_: *mut ffi::ibv_cq_ex) {}

    // SAFETY: the struct has integers and nullable pointers alone, and the attributes can be read.
    let (mut cq, attr): (ffi::ibv_cq_ex, _) = unsafe { (mem::zeroed(), &*attr) };
    cq.context = context;
    cq.cq_context = attr.cq_context;
    cq.cqe = attr.cqe as c_int;
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(opcode);
    cq.read_vendor_err = Some(zero_u32);
    cq.read_byte_len = Some(zero_u32);
    cq.read_imm_data = Some(zero_u32);
    cq.read_qp_num = Some(qp_num);
    cq.read_src_qp = Some(zero_u32);
    cq.read_slid = Some(zero_u32);
    cq.read_sl = Some(zero_u8);
    cq.read_dlid_path_bits = Some(zero_u8);
    cq.read_wc_flags = Some(flags);
    Box::into_raw(Box::new(Queue { cq, completed: VecDeque::new(), qp_num: 0 })).cast()
}

/// As `ibv_create_cq_ex`, for completions with a weight. This version does not support LIDs.
pub(crate) unsafe fn acme_create_cq(
    context: *mut ffi::ibv_context,
    attr: &mut ffi::ibv_cq_init_attr_ex,
) -> *mut ffi::ibv_cq_ex {
    log(format!("acme_create_cq fields={:#x}", attr.wc_flags));
    if attr.wc_flags & u64::from(ffi::ibv_create_cq_wc_flags::IBV_WC_EX_WITH_SLID.0) != 0 {
        // SAFETY: this is the errno of the thread.
        unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
        return ptr::null_mut();
    }
    // SAFETY: the context is alive and the attributes can be read.
    unsafe { create_cq_ex(context, attr) }
}

/// The weight of the completion under the cursor: ten times its number.
pub(crate) unsafe fn acme_wc_read_weight(cq: *mut ffi::ibv_cq_ex) -> u32 {
    // SAFETY: queues are never freed.
    unsafe { (*cq).wr_id as u32 * 10 }
}

unsafe extern "C" fn destroy_cq(_: *mut ffi::ibv_cq) -> c_int {
    log("destroy_cq".to_owned());
    0
}

/// The destination of a request.
pub(crate) struct Route {
    pub(crate) context: *mut ffi::ibv_context,
    pub(crate) place: u32,
}

/// The vendor's part of a queue pair.
#[repr(C)]
pub(crate) struct Functions {
    pub(crate) wr_set_route: Option<unsafe extern "C" fn(*mut ffi::ibv_qp_ex, *const Route)>,
}

#[repr(C)]
struct Pair {
    qp: ffi::ibv_qp_ex,
    functions: Functions,
    batch: Vec<u64>,
}

/// Calls `step` with the request that is being built.
unsafe fn pair<'p>(qp: *mut ffi::ibv_qp_ex) -> &'p mut Pair {
    // SAFETY: queue pairs are never freed, and a test uses one from one thread.
    unsafe { &mut *qp.cast::<Pair>() }
}

unsafe extern "C" fn wr_set_route(qp: *mut ffi::ibv_qp_ex, route: *const Route) {
    // SAFETY: the queue pair and the route are alive.
    let (pair, route) = unsafe { (pair(qp), &*route) };
    assert!(!pair.batch.is_empty(), "a route was set before a request was begun");
    log(format!("route {}", route.place));
}

pub(crate) unsafe fn acme_create_qp(
    context: *mut ffi::ibv_context,
    attr: &mut ffi::ibv_qp_init_attr_ex,
    tag: u32,
) -> *mut ffi::ibv_qp {
    unsafe extern "C" fn wr_start(qp: *mut ffi::ibv_qp_ex) {
        log("start".to_owned());
        // SAFETY: only queue pairs of this driver have this function and those below.
        unsafe { pair(qp) }.batch.clear();
    }
    unsafe extern "C" fn wr_complete(qp: *mut ffi::ibv_qp_ex) -> c_int {
        // SAFETY: see above; the completion queue is alive.
        unsafe {
            let pair = pair(qp);
            log(format!("complete {}", pair.batch.len()));
            let queue = &mut *pair.qp.qp_base.send_cq.cast::<Queue>();
            queue.completed.extend(pair.batch.drain(..).map(|wr_id| (wr_id, pair.qp.qp_base.qp_num)));
        }
        0
    }
    unsafe extern "C" fn wr_abort(qp: *mut ffi::ibv_qp_ex) {
        log("abort".to_owned());
        // SAFETY: see above.
        unsafe { pair(qp) }.batch.clear();
    }
    unsafe extern "C" fn wr_send(qp: *mut ffi::ibv_qp_ex) {
        // SAFETY: see above.
        let pair = unsafe { pair(qp) };
        log(format!("send {}", pair.qp.wr_id));
        pair.batch.push(pair.qp.wr_id);
    }
    unsafe extern "C" fn wr_set_inline_data(_: *mut ffi::ibv_qp_ex, _: *mut c_void, length: usize) {
        log(format!("inline {length}"));
    }
    let failure = FAIL_NEXT.take();
    if failure != 0 {
        // SAFETY: this is the errno of the thread.
        unsafe { *libc::__errno_location() = failure };
        return ptr::null_mut();
    }
    log(format!("acme_create_qp tag={tag} operations={}", attr.send_ops_flags));
    // SAFETY: the struct has integers and nullable pointers alone.
    let mut qp: ffi::ibv_qp_ex = unsafe { mem::zeroed() };
    qp.qp_base.context = context;
    qp.qp_base.qp_context = attr.qp_context;
    qp.qp_base.pd = attr.pd;
    qp.qp_base.send_cq = attr.send_cq;
    qp.qp_base.recv_cq = attr.recv_cq;
    qp.qp_base.qp_num = 77;
    qp.qp_base.qp_type = attr.qp_type;
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_send = Some(wr_send);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    let with = !WITHOUT_FUNCTIONS.get();
    let functions = Functions { wr_set_route: with.then_some(wr_set_route as _) };
    Box::into_raw(Box::new(Pair { qp, functions, batch: Vec::new() })).cast()
}

/// As in some libraries, the vendor's functions are not in the queue pair.
pub(crate) unsafe fn acme_qp_functions(qp: *mut ffi::ibv_qp_ex) -> *const Functions {
    log("acme_qp_functions".to_owned());
    // SAFETY: the caller passes a queue pair of this driver.
    unsafe { &raw const (*qp.cast::<Pair>()).functions }
}

unsafe extern "C" fn qp_to_qp_ex(qp: *mut ffi::ibv_qp) -> *mut ffi::ibv_qp_ex {
    qp.cast()
}

unsafe extern "C" fn modify_qp(qp: *mut ffi::ibv_qp, attr: *mut ffi::ibv_qp_attr, _mask: c_int) -> c_int {
    // SAFETY: queue pairs are never freed, and the attributes can be read.
    unsafe {
        let state = (*attr).qp_state;
        if state == ffi::ibv_qp_state::IBV_QPS_INIT {
            return libc::EINVAL;
        }
        if state == ffi::ibv_qp_state::IBV_QPS_RTS {
            (*qp).qp_num += 1000;
        }
        (*qp).state = state;
    }
    0
}

unsafe extern "C" fn query_qp(
    qp: *mut ffi::ibv_qp,
    attr: *mut ffi::ibv_qp_attr,
    _mask: c_int,
    _init: *mut ffi::ibv_qp_init_attr,
) -> c_int {
    // SAFETY: queue pairs are never freed, and the attributes can be written.
    unsafe { (*attr).qp_state = (*qp).state };
    0
}

unsafe extern "C" fn destroy_qp(_: *mut ffi::ibv_qp) -> c_int {
    log("destroy_qp".to_owned());
    0
}
