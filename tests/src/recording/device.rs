//! Devices and contexts: listing, opening, closing.

use std::cell::{RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::mem::{self, offset_of};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Kind;
use super::state::{Device, State};
use super::stub::{endings, forever, provide};
use super::{
    async_events, completion, control, counters, device_memory, domain, extended_cq, extended_qp, flow, memory, post,
    query, srq, window, work_queue, xrc,
};

thread_local! {
    /// The devices that this thread lists.
    static LISTED: RefCell<Vec<&'static Device>> = const { RefCell::new(Vec::new()) };
}

/// The device that logged the creation of each list.
static LISTS: Mutex<BTreeMap<usize, &'static Device>> = Mutex::new(BTreeMap::new());
/// The placeholder for the descriptor of a closed context.
const CLOSED: c_int = c_int::MIN;
static NUMBER: AtomicU32 = AtomicU32::new(0);

// SAFETY: the C struct is written before it is shared, except the mark of its provider, which is atomic.
unsafe impl Sync for Device {}

/// Creates a device for the calling thread.
pub(super) fn plug_in() -> &'static Device {
    // SAFETY: the struct has only integers and nullable function pointers, for which zero is valid.
    let mut device: ffi::ibv_device = unsafe { mem::zeroed() };
    let name = format!("recording_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    for (to, from) in device.name.iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    device.node_type = ffi::ibv_node_type::IBV_NODE_CA;
    device.transport_type = ffi::ibv_transport_type::IBV_TRANSPORT_IB;
    let device: &'static Device =
        Box::leak(Box::new(Device { device: UnsafeCell::new(device), state: State::default() }));
    LISTED.with_borrow_mut(|listed| listed.push(device));
    device
}

/// Makes the calling thread list the device as well.
pub(super) fn plug_in_too(device: &'static Device) {
    pull_out(device);
    LISTED.with_borrow_mut(|listed| listed.push(device));
}

/// Removes the device from the thread's list.
pub(super) fn pull_out(device: &'static Device) {
    LISTED.with_borrow_mut(|listed| listed.retain(|other| !ptr::eq(*other, device)));
}

/// The device that this thread plugged in last.
pub(super) fn last() -> Option<&'static Device> {
    LISTED.with_borrow(|listed| listed.last().copied())
}

/// The devices that this thread lists.
pub(super) fn listed() -> Vec<&'static Device> {
    LISTED.with_borrow(Clone::clone)
}

/// The state of the device of a context.
///
/// # Safety
///
/// `context` was opened by this provider.
pub(super) unsafe fn state_of(context: *mut ffi::ibv_context) -> &'static State {
    // SAFETY: contexts are never freed, their devices neither, and those begin with the C struct.
    unsafe {
        let state = &(*(*context).device.cast::<Device>()).state;
        if (*context).cmd_fd == CLOSED {
            // The caller may hold the lock.
            state.late.fetch_add(1, Ordering::Relaxed);
        }
        state
    }
}

pub(super) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ffi::ibv_device {
    let devices = listed();
    let mut list: Vec<*mut ffi::ibv_device> = devices.iter().map(|device| device.as_c()).collect();
    list.push(ptr::null_mut());
    let list = Box::leak(list.into_boxed_slice()).as_mut_ptr();
    if let Some(owner) = devices.last() {
        let (mut inner, failure) = owner.state.enter("get_device_list", &[]);
        if let Some(failure) = failure {
            return failure.null();
        }
        inner.made(Kind::DeviceList, list, &[]);
        LISTS.lock().unwrap_or_else(PoisonError::into_inner).insert(list.addr(), owner);
    }
    // SAFETY: `count` is writable by contract.
    unsafe { *count = devices.len() as c_int };
    list
}

pub(super) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ffi::ibv_device) {
    let owner = LISTS.lock().unwrap_or_else(PoisonError::into_inner).remove(&list.addr());
    if let Some(owner) = owner {
        let mut inner = owner.state.note("free_device_list", &[]);
        // A missing list has been logged.
        let _ = inner.destroy(Kind::DeviceList, list.addr());
    }
}

pub(super) unsafe extern "C" fn ibv_get_device_name(device: *mut ffi::ibv_device) -> *const libc::c_char {
    // SAFETY: devices are never freed.
    unsafe { (&raw const (*device).name).cast() }
}

pub(super) unsafe extern "C" fn ibv_get_device_guid(_device: *mut ffi::ibv_device) -> u64 {
    u64::from_be(0x0102_0304_0506_0708)
}

pub(super) unsafe extern "C" fn ibv_get_device_index(_device: *mut ffi::ibv_device) -> c_int {
    7
}

pub(super) unsafe extern "C" fn ibv_open_device(device: *mut ffi::ibv_device) -> *mut ffi::ibv_context {
    // SAFETY: the device is one of this provider's, which are never freed.
    let state = unsafe { &(*device.cast::<Device>()).state };
    let (mut inner, failure) = state.enter("open_device", &[]);
    if let Some(failure) = failure {
        return failure.null();
    }
    let has = |name: &str| !inner.script.without.contains(name);
    // SAFETY: the table is new, and zero is a value of it.
    let table = unsafe { &mut *forever::<ffi::verbs_context>() };
    table.sz = size_of::<ffi::verbs_context>();
    provide! { table, has;
        query: query_port query_device_ex query_rt_values;
        extended_cq: create_cq_ex;
        domain: alloc_td alloc_parent_domain;
        extended_qp: create_qp_ex;
        srq: create_srq_ex get_srq_num post_srq_ops;
        xrc: open_xrcd close_xrcd open_qp;
        memory: advise_mr alloc_null_mr;
        device_memory: alloc_dm free_dm reg_dm_mr;
        completion: modify_cq;
        control: modify_qp_rate_limit;
        counters: create_counters attach_counters_point_flow read_counters destroy_counters;
        flow: create_flow_action_esp modify_flow_action_esp destroy_flow_action;
        work_queue: create_wq modify_wq destroy_wq create_rwq_ind_table destroy_rwq_ind_table;
    }
    table.dealloc_td = Some(domain::dealloc_td);
    table.ibv_create_flow = has("create_flow").then_some(flow::create_flow);
    table.ibv_destroy_flow = has("destroy_flow").then_some(flow::destroy_flow);
    provide! { table.context.ops, has;
        window: alloc_mw dealloc_mw bind_mw;
        srq: post_srq_recv;
        completion: req_notify_cq;
        post: post_send post_recv;
    }
    table.context.device = device;
    table.context.num_comp_vectors = 1;
    table.context.cmd_fd = -1;
    let address = ptr::from_ref(table).addr() + offset_of!(ffi::verbs_context, context);
    table.context.async_fd = async_events::opened(&mut inner, address);
    table.context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    table.context.ops.poll_cq = Some(inner.script.poll_cq.unwrap_or(completion::poll_cq));
    let context =
        ptr::from_mut(table).wrapping_byte_add(offset_of!(ffi::verbs_context, context)).cast::<ffi::ibv_context>();
    inner.made(Kind::Context, context, &[]);
    context
}

/// Opens the device that this thread plugged in last.
pub(super) fn open_last() -> *mut ffi::ibv_context {
    match last() {
        // SAFETY: the device is one of this provider's, which are never freed.
        Some(device) => unsafe { ibv_open_device(device.as_c()) },
        None => ptr::null_mut(),
    }
}

endings! {
    ibv_close_device(ffi::ibv_context), |_, context| {
        async_events::closed(&mut state_of(context).lock(), context.addr());
        // Only the caller has this context now.
        (*context).cmd_fd = CLOSED;
    };
}
