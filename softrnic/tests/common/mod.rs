//! Helpers for all tests. They are a thin wrapper around the C API. Only [`Side::close`] destroys objects.

#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod kinds;
pub(crate) mod party;

use std::ffi::{CStr, c_int};
use std::io;
use std::mem::zeroed;
use std::ptr;
use std::time::{Duration, Instant};

use rdma_mummy_sys::*;

/// The access rights that the regions of the tests grant by default.
pub(crate) const ACCESS: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0
    | ibv_access_flags::IBV_ACCESS_MW_BIND.0;
/// The time limit for results that are immediate except on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Registers the device by its name for all tests of a program, so that the environment has no effect.
pub(crate) fn register() {
    assert_eq!(softrnic::Builder::new().device("soft0").register(), Ok(()));
}

pub(crate) fn open(name: &CStr) -> *mut ibv_context {
    register();
    opened(name)
}

/// Opens a device that is registered.
pub(crate) fn opened(name: &CStr) -> *mut ibv_context {
    let mut count = 0;
    // SAFETY: the list has `count` devices, and is freed after its last use.
    unsafe {
        let list = ibv_get_device_list(&raw mut count);
        assert!(!list.is_null(), "{}", io::Error::last_os_error());
        let found = (0..count as usize).map(|place| *list.add(place)).find(|&device| name_of(device) == name);
        let context = found.map_or(ptr::null_mut(), |device| ibv_open_device(device));
        assert!(!context.is_null(), "{name:?}: {}", io::Error::last_os_error());
        ibv_free_device_list(list);
        context
    }
}

/// Returns the name of a device.
///
/// # Safety
///
/// The device comes from a device list.
pub(crate) unsafe fn name_of<'d>(device: *mut ibv_device) -> &'d CStr {
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(ibv_get_device_name(device)) }
}

/// One end of a connection. It has a QP, one completion queue and a registered buffer.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) mr: *mut ibv_mr,
    pub(crate) buffer: Vec<u8>,
}

/// The parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) kind: ibv_qp_type,
    pub(crate) depth: u32,
    pub(crate) bytes: usize,
    pub(crate) access: u32,
    pub(crate) rnr_retry: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) timeout: u8,
    pub(crate) min_rnr_timer: u8,
}

impl Default for Setup {
    fn default() -> Self {
        let kind = ibv_qp_type::IBV_QPT_RC;
        let (rnr_retry, retry_cnt, timeout, min_rnr_timer) = (7, 7, 14, 1);
        Self { kind, depth: 64, bytes: 65536, access: ACCESS, rnr_retry, retry_cnt, timeout, min_rnr_timer }
    }
}

impl Side {
    pub(crate) fn new(context: *mut ibv_context, setup: Setup) -> Self {
        let mut buffer = vec![0; setup.bytes];
        // SAFETY: the context is open, the attributes are numbers and nullable pointers, and the buffer outlives its
        // region.
        unsafe {
            let pd = ibv_alloc_pd(context);
            assert!(!pd.is_null(), "{}", io::Error::last_os_error());
            let channel = ibv_create_comp_channel(context);
            assert!(!channel.is_null(), "{}", io::Error::last_os_error());
            let cq = ibv_create_cq(context, 1024, ptr::null_mut(), channel, 0);
            assert!(!cq.is_null(), "{}", io::Error::last_os_error());
            let mut attr: ibv_qp_init_attr = zeroed();
            (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, setup.kind);
            (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (setup.depth, setup.depth);
            (attr.cap.max_send_sge, attr.cap.max_recv_sge, attr.cap.max_inline_data) = (4, 4, 128);
            let qp = ibv_create_qp(pd, &raw mut attr);
            assert!(!qp.is_null(), "{}", io::Error::last_os_error());
            let mr = ibv_reg_mr(pd, buffer.as_mut_ptr().cast(), buffer.len(), setup.access as c_int);
            assert!(!mr.is_null(), "{}", io::Error::last_os_error());
            Self { context, pd, channel, cq, qp, mr, buffer }
        }
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the QP is alive.
        unsafe { (*self.qp).qp_num }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the region is alive.
        unsafe { (*self.mr).rkey }
    }

    pub(crate) fn address(&self) -> u64 {
        self.buffer.as_ptr().addr() as u64
    }

    /// Returns a part of the buffer.
    pub(crate) fn piece(&self, offset: usize, length: u32) -> ibv_sge {
        // SAFETY: the region is alive.
        let lkey = unsafe { (*self.mr).lkey };
        ibv_sge { addr: self.address() + offset as u64, length, lkey }
    }

    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> c_int {
        // SAFETY: the QP is alive, and the attributes are readable.
        unsafe { ibv_modify_qp(self.qp, attr, mask as c_int) }
    }

    /// Connects the QP to the QP `peer` on this host, and moves it to RTS.
    pub(crate) fn connect(&self, peer: u32, setup: Setup) {
        assert!(self.try_connect(peer, setup), "{}", io::Error::last_os_error());
    }

    /// Connects the QP. Returns `false` if a message ended the QP before the last step.
    pub(crate) fn try_connect(&self, peer: u32, setup: Setup) -> bool {
        use ibv_qp_attr_mask as mask;
        let is_requester = [ibv_qp_type::IBV_QPT_RC, ibv_qp_type::IBV_QPT_XRC_SEND].contains(&setup.kind);
        let is_responder = [ibv_qp_type::IBV_QPT_RC, ibv_qp_type::IBV_QPT_XRC_RECV].contains(&setup.kind);
        // SAFETY: the context is open, and the attributes are numbers.
        unsafe {
            let mut gid: ibv_gid = zeroed();
            assert_eq!(ibv_query_gid(self.context, 1, 0, &raw mut gid), 0);
            let mut attr: ibv_qp_attr = zeroed();
            attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
            attr.port_num = 1;
            attr.qp_access_flags = ACCESS & !ibv_access_flags::IBV_ACCESS_MW_BIND.0;
            let init = mask::IBV_QP_STATE.0 | mask::IBV_QP_PKEY_INDEX.0 | mask::IBV_QP_PORT.0;
            assert_eq!(self.modify(&mut attr, init | mask::IBV_QP_ACCESS_FLAGS.0), 0);

            attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
            attr.path_mtu = ibv_mtu::IBV_MTU_1024;
            (attr.dest_qp_num, attr.rq_psn) = (peer, 0xff_fff0);
            (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (16, setup.min_rnr_timer);
            (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
            (attr.ah_attr.grh.dgid, attr.ah_attr.grh.hop_limit) = (gid, 64);
            let mut ready = mask::IBV_QP_STATE.0
                | mask::IBV_QP_AV.0
                | mask::IBV_QP_PATH_MTU.0
                | mask::IBV_QP_DEST_QPN.0
                | mask::IBV_QP_RQ_PSN.0;
            if is_responder {
                ready |= mask::IBV_QP_MAX_DEST_RD_ATOMIC.0 | mask::IBV_QP_MIN_RNR_TIMER.0;
            }
            assert_eq!(self.modify(&mut attr, ready), 0);

            attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
            (attr.sq_psn, attr.max_rd_atomic) = (0xff_fff0, 16);
            (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (setup.timeout, setup.retry_cnt, setup.rnr_retry);
            let mut send = mask::IBV_QP_STATE.0 | mask::IBV_QP_SQ_PSN.0;
            if is_requester {
                send |= mask::IBV_QP_MAX_QP_RD_ATOMIC.0 | mask::IBV_QP_RETRY_CNT.0 | mask::IBV_QP_RNR_RETRY.0;
            }
            if is_requester || is_responder {
                send |= mask::IBV_QP_TIMEOUT.0;
            }
            self.modify(&mut attr, send) == 0
        }
    }

    pub(crate) fn post(&self, wr: &mut ibv_send_wr) -> c_int {
        let mut bad = ptr::null_mut();
        // SAFETY: the QP is alive, and the request and its list exist during the call.
        unsafe { ibv_post_send(self.qp, wr, &raw mut bad) }
    }

    /// Posts a signaled request with pieces of the buffer. `fill` sets other fields.
    pub(crate) fn send(
        &self,
        opcode: ibv_wr_opcode,
        wr_id: u64,
        pieces: &mut [ibv_sge],
        fill: impl FnOnce(&mut ibv_send_wr),
    ) {
        // SAFETY: the type has only numbers, nullable pointers and unions of these, for which zero is valid.
        let mut wr: ibv_send_wr = unsafe { zeroed() };
        (wr.wr_id, wr.opcode) = (wr_id, opcode);
        (wr.sg_list, wr.num_sge) = (pieces.as_mut_ptr(), pieces.len() as c_int);
        wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        fill(&mut wr);
        assert_eq!(self.post(&mut wr), 0);
    }

    pub(crate) fn receive(&self, wr_id: u64, pieces: &mut [ibv_sge]) {
        let num_sge = pieces.len() as c_int;
        let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: pieces.as_mut_ptr(), num_sge };
        let mut bad = ptr::null_mut();
        // SAFETY: the QP is alive, and the request and its list exist during the call.
        assert_eq!(unsafe { ibv_post_recv(self.qp, &raw mut wr, &raw mut bad) }, 0);
    }

    pub(crate) fn poll(&self) -> Option<ibv_wc> {
        // SAFETY: zero is valid for the completion, which the call may overwrite, and the queue is alive.
        unsafe {
            let mut wc: ibv_wc = zeroed();
            match ibv_poll_cq(self.cq, 1, &raw mut wc) {
                0 => None,
                1 => Some(wc),
                other => panic!("ibv_poll_cq: {other}"),
            }
        }
    }

    /// Waits for a completion by polling.
    pub(crate) fn wait(&self) -> ibv_wc {
        let start = Instant::now();
        loop {
            if let Some(wc) = self.poll() {
                return wc;
            }
            assert!(start.elapsed() < LONG, "timed out waiting for a completion");
            std::thread::yield_now();
        }
    }

    /// Waits for a completion by waiting for an event of the channel.
    pub(crate) fn sleep(&self) -> ibv_wc {
        // SAFETY: the queue is alive.
        assert_eq!(unsafe { ibv_req_notify_cq(self.cq, 0) }, 0);
        if let Some(wc) = self.poll() {
            return wc;
        }
        // SAFETY: the channel is alive, and all results are writable.
        unsafe {
            let mut fd = libc::pollfd { fd: (*self.channel).fd, events: libc::POLLIN, revents: 0 };
            assert_eq!(libc::poll(&raw mut fd, 1, LONG.as_millis() as c_int), 1, "timed out waiting for an event");
            let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
            assert_eq!(ibv_get_cq_event(self.channel, &raw mut cq, &raw mut context), 0);
            ibv_ack_cq_events(cq, 1);
        }
        self.wait()
    }

    /// Waits for a completion, which must be successful and have this ID.
    pub(crate) fn done(&self, wr_id: u64) -> ibv_wc {
        let wc = self.wait();
        assert_eq!((wc.wr_id, wc.status), (wr_id, ibv_wc_status::IBV_WC_SUCCESS));
        wc
    }

    pub(crate) fn state(&self) -> ibv_qp_state {
        // SAFETY: zero is valid for numbers and nullable pointers, and the QP is alive.
        unsafe {
            let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = zeroed();
            let mask = ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int;
            assert_eq!(ibv_query_qp(self.qp, &raw mut attr, mask, &raw mut init), 0);
            attr.qp_state
        }
    }

    pub(crate) fn close(self) {
        // SAFETY: this side owns all objects, and destroys them in order.
        unsafe {
            assert_eq!(ibv_destroy_qp(self.qp), 0);
            assert_eq!(ibv_dereg_mr(self.mr), 0);
            assert_eq!(ibv_destroy_cq(self.cq), 0);
            assert_eq!(ibv_destroy_comp_channel(self.channel), 0);
            assert_eq!(ibv_dealloc_pd(self.pd), 0);
        }
    }
}

/// Creates two connected ends.
pub(crate) fn pair(context: *mut ibv_context, setup: Setup) -> [Side; 2] {
    let sides = [Side::new(context, setup), Side::new(context, setup)];
    sides[0].connect(sides[1].number(), setup);
    sides[1].connect(sides[0].number(), setup);
    sides
}

/// Closes both ends and their device.
pub(crate) fn close(sides: [Side; 2]) {
    let context = sides[0].context;
    sides.into_iter().for_each(Side::close);
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}
