//! Queues whose requests complete when they are posted.

use std::mem::offset_of;
use std::ptr;
use std::sync::OnceLock;

use libc::{c_int, c_void};
use rdma_mummy_sys::load::ibverbs::IbverbsTable;
use rdma_mummy_sys::*;
use sideway_zero_cost::device;

/// A completion queue: a ring with the IDs of completed requests.
#[repr(C)]
struct Queue {
    c: ibv_cq,
    wr_ids: Box<[u64]>,
    /// Completions that were added and taken.
    added: usize,
    taken: usize,
}

/// If this environment variable is present, the device offers extended queue pairs.
const EXTENDED: &str = "INSTANT_EXTENDED";

type Create = unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;

/// The function with which the device of `zero_cost` creates extended queue pairs.
static CREATE: OnceLock<Create> = OnceLock::new();

/// The functions of the device.
pub(crate) fn table() -> IbverbsTable {
    IbverbsTable {
        ibv_open_device: Some(open_device),
        ibv_create_cq: Some(create_cq),
        ibv_destroy_cq: Some(destroy_cq),
        ..device::table()
    }
}

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    let Some(open) = device::table().ibv_open_device else { return ptr::null_mut() };
    // SAFETY: the caller's contract. The device of `zero_cost` creates the context inside a `verbs_context`, to which
    // nothing else has a pointer yet.
    unsafe {
        let context = open(device);
        let verbs = context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
        (*verbs).create_cq_ex = None;
        (*verbs).create_qp_ex = match (*verbs).create_qp_ex {
            Some(create) if std::env::var_os(EXTENDED).is_some() => {
                CREATE.get_or_init(|| create);
                Some(create_qp_ex)
            }
            _ => None,
        };
        let ops = &mut (*context).ops;
        ops.poll_cq = Some(poll_cq);
        ops.post_send = Some(post_send);
        ops.post_recv = Some(post_recv);
        context
    }
}

unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _comp_vector: c_int,
) -> *mut ibv_cq {
    let entries = usize::try_from(cqe).unwrap_or(0).max(1).next_power_of_two();
    // SAFETY: the struct has integers and nullable pointers.
    let mut c: ibv_cq = unsafe { std::mem::zeroed() };
    (c.context, c.cqe, c.cq_context, c.channel) = (context, cqe, cq_context, channel);
    Box::into_raw(Box::new(Queue { c, wr_ids: vec![0; entries].into(), added: 0, taken: 0 })).cast()
}

unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: every queue has this type, and by contract nothing uses the queue afterwards.
    drop(unsafe { Box::from_raw(cq.cast::<Queue>()) });
    0
}

/// Creates a queue pair whose writes and reads complete when their setter is called.
unsafe extern "C" fn create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    let Some(create) = CREATE.get() else { return ptr::null_mut() };
    // SAFETY: the caller's contract. Each queue pair of the device begins with an `ibv_qp_ex`, to which nothing else has
    // a pointer yet.
    unsafe {
        let qp = create(context, attr);
        if let Some(qp) = qp.cast::<ibv_qp_ex>().as_mut() {
            qp.wr_start = Some(nothing);
            qp.wr_complete = Some(complete);
            qp.wr_abort = Some(nothing);
            qp.wr_rdma_write = Some(request);
            qp.wr_rdma_read = Some(request);
            qp.wr_set_sge = Some(set_sge);
        }
        qp
    }
}

unsafe extern "C" fn nothing(_qp: *mut ibv_qp_ex) {}

unsafe extern "C" fn complete(_qp: *mut ibv_qp_ex) -> c_int {
    0
}

unsafe extern "C" fn set_sge(_qp: *mut ibv_qp_ex, _lkey: u32, _addr: u64, _length: u32) {}

unsafe extern "C" fn request(qp: *mut ibv_qp_ex, _rkey: u32, _remote_addr: u64) {
    // SAFETY: the queue pair and its queue are live, by contract.
    unsafe {
        if (*qp).wr_flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 {
            (*(*qp).qp_base.send_cq.cast::<Queue>()).add((*qp).wr_id);
        }
    }
}

impl Queue {
    /// Adds a completion. Returns `false` if the queue is full.
    fn add(&mut self, wr_id: u64) -> bool {
        let has_room = self.added - self.taken < self.wr_ids.len();
        if has_room {
            let mask = self.wr_ids.len() - 1;
            self.wr_ids[self.added & mask] = wr_id;
            self.added += 1;
        }
        has_room
    }
}

unsafe extern "C" fn post_send(qp: *mut ibv_qp, mut wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the queue pair and its queue are live, and the list can be read, by contract.
    unsafe {
        let queue = &mut *(*qp).send_cq.cast::<Queue>();
        while let Some(request) = wr.as_ref() {
            if request.send_flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 && !queue.add(request.wr_id) {
                *bad = wr;
                return libc::ENOMEM;
            }
            wr = request.next;
        }
    }
    0
}

/// Takes receives, which never complete.
unsafe extern "C" fn post_recv(_qp: *mut ibv_qp, _wr: *mut ibv_recv_wr, _bad: *mut *mut ibv_recv_wr) -> c_int {
    0
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the queue is live, and `entries` entries can be written, by contract.
    unsafe {
        let queue = &mut *cq.cast::<Queue>();
        let count = (queue.added - queue.taken).min(entries as usize);
        let mask = queue.wr_ids.len() - 1;
        for place in 0..count {
            let wc = &mut *wc.add(place);
            wc.wr_id = queue.wr_ids[(queue.taken + place) & mask];
            (wc.status, wc.opcode) = (ibv_wc_status::IBV_WC_SUCCESS, ibv_wc_opcode::IBV_WC_RDMA_WRITE);
            (wc.vendor_err, wc.byte_len, wc.qp_num, wc.wc_flags) = (0, 0, 7, 0);
        }
        queue.taken += count;
        count as c_int
    }
}
