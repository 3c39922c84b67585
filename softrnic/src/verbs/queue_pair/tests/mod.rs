//! Tests of two queue pairs in this process, which are used through the C API.

mod changes;
mod extended;
mod life;
mod posting;
mod sharing;

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ptr;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{
    ibv_access_flags as access, ibv_ah_attr, ibv_context, ibv_cq, ibv_gid, ibv_mr, ibv_mtu, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_attr_mask as mask, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_qp_init_attr_mask as init_mask, ibv_qp_state as state, ibv_qp_type, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc,
    ibv_wc_status, ibv_wr_opcode,
};

use super::*;
use crate::verbs::completion_queue::{create_cq, destroy_cq, poll_cq};
use crate::verbs::gid;
use crate::verbs::memory_region::{dereg_mr, reg_mr};
use crate::verbs::protection_domain::{alloc_pd, dealloc_pd};
use crate::verbs::{context::close_device, open::open_device};

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
/// All access rights that a region can grant.
const ALL_ACCESS: u32 = access::IBV_ACCESS_LOCAL_WRITE.0
    | access::IBV_ACCESS_REMOTE_WRITE.0
    | access::IBV_ACCESS_REMOTE_READ.0
    | access::IBV_ACCESS_REMOTE_ATOMIC.0
    | access::IBV_ACCESS_MW_BIND.0
    | access::IBV_ACCESS_FLUSH_GLOBAL.0;
const QKEY: u32 = 0x1111_1111;

/// An open device with a protection domain, a completion queue and memory.
struct World {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    mr: *mut ibv_mr,
    memory: *mut [u64],
}

impl World {
    fn new() -> Self {
        let memory = Box::into_raw(vec![0_u64; 1024].into_boxed_slice());
        // SAFETY: `open_device` does not dereference the device; the other objects were just created, and the memory
        // lives until the end.
        unsafe {
            let context = open_device(ptr::null_mut());
            let pd = alloc_pd(context);
            let cq = create_cq(context, 100, ptr::null_mut(), ptr::null_mut(), 0);
            let mr = reg_mr(pd, memory.cast(), 8 * memory.len(), ALL_ACCESS as c_int);
            assert!(!cq.is_null() && !mr.is_null());
            Self { context, pd, cq, mr, memory }
        }
    }

    fn init(&self, qp_type: ibv_qp_type) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            qp_context: ptr::without_provenance_mut(0x99),
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: ptr::null_mut(),
            cap: ibv_qp_cap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 64 },
            qp_type,
            sq_sig_all: 0,
        }
    }

    fn pair(&self, qp_type: ibv_qp_type) -> *mut ibv_qp {
        // SAFETY: the domain and the objects of the attributes are alive.
        let qp = unsafe { create_qp(self.pd, &mut self.init(qp_type)) };
        assert!(!qp.is_null());
        qp
    }

    /// Creates a QP with all operations of its service.
    fn extended_pair(&self, qp_type: ibv_qp_type, operations: u64) -> *mut ibv_qp {
        // SAFETY: zeros are valid for the attributes; the context and the objects of the attributes are alive.
        unsafe {
            let mut init: ibv_qp_init_attr_ex = zeroed();
            (init.send_cq, init.recv_cq, init.pd) = (self.cq, self.cq, self.pd);
            (init.cap, init.qp_type) = (self.init(qp_type).cap, qp_type);
            init.comp_mask = init_mask::IBV_QP_INIT_ATTR_PD.0 | init_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
            init.send_ops_flags = operations;
            let qp = create_qp_ex(self.context, &raw mut init);
            assert!(!qp.is_null());
            qp
        }
    }

    /// Returns the address of a word of the memory.
    fn address(&self, word: usize) -> u64 {
        self.memory.cast::<u64>().wrapping_add(word).expose_provenance() as u64
    }

    fn word(&self, word: usize) -> u64 {
        // SAFETY: the word is within the memory, and is not written after the completion that the test has polled.
        unsafe { self.memory.cast::<u64>().add(word).read_volatile() }
    }

    fn set(&self, word: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.memory.cast::<u64>().add(word).write_volatile(value) };
    }

    fn lkey(&self) -> u32 {
        // SAFETY: the region is alive.
        unsafe { (*self.mr).lkey }
    }

    fn rkey(&self) -> u32 {
        // SAFETY: the region is alive.
        unsafe { (*self.mr).rkey }
    }

    fn piece(&self, word: usize, words: u32) -> ibv_sge {
        ibv_sge { addr: self.address(word), length: 8 * words, lkey: self.lkey() }
    }

    /// Polls one completion. Returns `None` if there is none.
    fn poll(&self) -> Option<ibv_wc> {
        let mut wc = MaybeUninit::uninit();
        // SAFETY: the queue is alive, one completion is writable, and it is written if the call returns 1.
        unsafe { (poll_cq(self.cq, 1, wc.as_mut_ptr()) == 1).then(|| wc.assume_init()) }
    }

    fn wait(&self) -> ibv_wc {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(wc) = self.poll() {
                return wc;
            }
            assert!(Instant::now() < end, "timed out waiting for a completion");
            std::thread::yield_now();
        }
    }

    /// Polls all completions, and returns their IDs and statuses.
    fn statuses(&self) -> Vec<(u64, ibv_wc_status)> {
        std::iter::from_fn(|| self.poll()).map(|wc| (wc.wr_id, wc.status)).collect()
    }

    fn two(&self, qp_type: ibv_qp_type) -> [*mut ibv_qp; 2] {
        let both = [self.pair(qp_type), self.pair(qp_type)];
        connect(both);
        both
    }

    fn post_receive(&self, qp: *mut ibv_qp, wr_id: u64, word: usize, words: u32) -> c_int {
        let mut piece = self.piece(word, words);
        let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: &raw mut piece, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the QP and the request are alive.
        unsafe { post_recv(qp, &raw mut wr, &raw mut bad) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: the dependents of the objects are destroyed, or these calls fail.
        unsafe {
            assert_eq!(dereg_mr(self.mr), 0);
            assert_eq!(destroy_cq(self.cq), 0);
            assert_eq!(dealloc_pd(self.pd), 0);
            assert_eq!(close_device(self.context), 0);
            drop(Box::from_raw(self.memory));
        }
    }
}

fn destroy(pairs: impl IntoIterator<Item = *mut ibv_qp>) {
    for qp in pairs {
        // SAFETY: the QP is alive, and not used again.
        assert_eq!(unsafe { destroy_qp(qp) }, 0);
    }
}

/// A request without data.
fn request(wr_id: u64, operation: ibv_wr_opcode, send_flags: u32) -> ibv_send_wr {
    // SAFETY: zeros are valid for all fields of the struct.
    let mut wr: ibv_send_wr = unsafe { zeroed() };
    (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, operation, send_flags);
    wr
}

/// Posts a list of requests. On failure, returns the error code and the ID of the refused request.
fn post(qp: *mut ibv_qp, requests: &mut [ibv_send_wr]) -> Result<(), (c_int, u64)> {
    let first = requests.as_mut_ptr();
    let count = requests.len();
    for at in 0..count {
        let next = if at + 1 < count { first.wrapping_add(at + 1) } else { ptr::null_mut() };
        // SAFETY: index `at` is within the slice.
        unsafe { (*first.wrapping_add(at)).next = next };
    }
    let mut bad = ptr::null_mut();
    // SAFETY: the QP is alive, and the requests are a list; the refused one is one of them.
    unsafe {
        match post_send(qp, first, &raw mut bad) {
            0 => Ok(()),
            code => Err((code, (*bad).wr_id)),
        }
    }
}

fn attributes() -> ibv_qp_attr {
    // SAFETY: zeros are valid for all fields of the struct.
    unsafe { zeroed() }
}

fn modify(qp: *mut ibv_qp, attr: &ibv_qp_attr, given: u32) -> c_int {
    // SAFETY: the QP is alive; the attributes are only read.
    unsafe { modify_qp(qp, ptr::from_ref(attr).cast_mut(), given as c_int) }
}

fn move_to(qp: *mut ibv_qp, to: state) -> c_int {
    modify(qp, &ibv_qp_attr { qp_state: to, ..attributes() }, mask::IBV_QP_STATE.0)
}

/// Returns the path to this host.
fn loopback() -> ibv_ah_attr {
    // SAFETY: zeros are valid for all fields of the struct.
    let mut path: ibv_ah_attr = unsafe { zeroed() };
    path.grh.dgid = ibv_gid { raw: gid::by_index(0).map_or([0; 16], |gid| gid.0) };
    (path.is_global, path.port_num, path.grh.hop_limit) = (1, 1, 64);
    path
}

fn to_init(qp: *mut ibv_qp) {
    // SAFETY: the QP is alive.
    let is_datagram = unsafe { (*qp).qp_type } == UD;
    let more = if is_datagram { mask::IBV_QP_QKEY } else { mask::IBV_QP_ACCESS_FLAGS };
    let given = mask::IBV_QP_STATE.0 | mask::IBV_QP_PKEY_INDEX.0 | mask::IBV_QP_PORT.0 | more.0;
    let attr = ibv_qp_attr {
        qp_state: state::IBV_QPS_INIT,
        port_num: 1,
        qkey: QKEY,
        qp_access_flags: ALL_ACCESS & !access::IBV_ACCESS_MW_BIND.0,
        ..attributes()
    };
    assert_eq!(modify(qp, &attr, given), 0);
}

/// Returns the attributes that a service requires for RTR and for RTS.
fn required_masks(qp_type: ibv_qp_type) -> (u32, u32) {
    const PEER: u32 = mask::IBV_QP_AV.0 | mask::IBV_QP_PATH_MTU.0 | mask::IBV_QP_DEST_QPN.0 | mask::IBV_QP_RQ_PSN.0;
    const RESPONDER: u32 = mask::IBV_QP_MAX_DEST_RD_ATOMIC.0 | mask::IBV_QP_MIN_RNR_TIMER.0;
    const REQUESTER: u32 =
        mask::IBV_QP_RETRY_CNT.0 | mask::IBV_QP_RNR_RETRY.0 | mask::IBV_QP_MAX_QP_RD_ATOMIC.0 | mask::IBV_QP_TIMEOUT.0;
    match qp_type {
        UD => (0, mask::IBV_QP_SQ_PSN.0),
        UC => (PEER, mask::IBV_QP_SQ_PSN.0),
        _ => (PEER | RESPONDER, mask::IBV_QP_SQ_PSN.0 | REQUESTER),
    }
}

/// Returns the attributes of a QP that is connected to `peer`.
fn connection(peer: *mut ibv_qp) -> ibv_qp_attr {
    ibv_qp_attr {
        path_mtu: ibv_mtu::IBV_MTU_1024,
        // SAFETY: the peer is alive.
        dest_qp_num: unsafe { (*peer).qp_num },
        rq_psn: 0x123456,
        sq_psn: 0x123456,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 1,
        timeout: 14,
        retry_cnt: 3,
        rnr_retry: 3,
        ah_attr: loopback(),
        ..attributes()
    }
}

fn to_receive(qp: *mut ibv_qp, peer: *mut ibv_qp) {
    // SAFETY: the QP is alive.
    let (required, _) = required_masks(unsafe { (*qp).qp_type });
    let attr = ibv_qp_attr { qp_state: state::IBV_QPS_RTR, ..connection(peer) };
    assert_eq!(modify(qp, &attr, mask::IBV_QP_STATE.0 | required), 0);
}

fn to_send(qp: *mut ibv_qp, peer: *mut ibv_qp) {
    // SAFETY: the QP is alive.
    let (_, required) = required_masks(unsafe { (*qp).qp_type });
    let attr = ibv_qp_attr { qp_state: state::IBV_QPS_RTS, ..connection(peer) };
    assert_eq!(modify(qp, &attr, mask::IBV_QP_STATE.0 | required), 0);
}

/// Connects both QPs to each other, and moves them to RTS.
fn connect([a, b]: [*mut ibv_qp; 2]) {
    for (qp, peer) in [(a, b), (b, a)] {
        to_init(qp);
        to_receive(qp, peer);
        to_send(qp, peer);
    }
}

fn query(qp: *mut ibv_qp) -> (ibv_qp_attr, ibv_qp_init_attr) {
    let (mut attr, mut init) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the QP is alive, and the successful call has written both structs.
    unsafe {
        assert_eq!(query_qp(qp, attr.as_mut_ptr(), 0, init.as_mut_ptr()), 0);
        (attr.assume_init(), init.assume_init())
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Returns a pointer to data in the form that C expects.
fn pointer<T>(data: &T) -> *mut c_void {
    ptr::from_ref(data).cast_mut().cast()
}
