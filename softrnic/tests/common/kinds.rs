//! Creates ends for datagrams, SRQs and XRC, which require more than [`Side::new`] does.

use std::ffi::c_int;
use std::io;
use std::mem::zeroed;
use std::ptr;

use rdma_mummy_sys::*;

use super::{Setup, Side};

/// The Q_Key that all datagrams of the tests use.
pub(crate) const QKEY: u32 = 0x1122;

impl Side {
    /// Creates an SRQ in the domain of this side.
    pub(crate) fn shared_queue(&self, depth: u32) -> *mut ibv_srq {
        // SAFETY: the domain is alive, and the attributes are numbers and a nullable pointer.
        let srq = unsafe {
            let mut init: ibv_srq_init_attr = zeroed();
            (init.attr.max_wr, init.attr.max_sge) = (depth, 4);
            ibv_create_srq(self.pd, &raw mut init)
        };
        assert!(!srq.is_null(), "{}", io::Error::last_os_error());
        srq
    }

    /// Replaces the QP by another one, whose attributes `fill` sets.
    fn replace(&mut self, setup: Setup, fill: impl FnOnce(&mut ibv_qp_init_attr_ex)) {
        // SAFETY: the QP is not used; the new one has the same domain and queues, and the attributes are numbers and
        // pointers.
        unsafe {
            assert_eq!(ibv_destroy_qp(self.qp), 0);
            let mut attr: ibv_qp_init_attr_ex = zeroed();
            (attr.send_cq, attr.recv_cq, attr.qp_type) = (self.cq, self.cq, setup.kind);
            (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (setup.depth, setup.depth);
            (attr.cap.max_send_sge, attr.cap.max_recv_sge, attr.cap.max_inline_data) = (4, 4, 128);
            (attr.pd, attr.comp_mask) = (self.pd, ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0);
            fill(&mut attr);
            self.qp = ibv_create_qp_ex(self.context, &raw mut attr);
        }
        assert!(!self.qp.is_null(), "{}", io::Error::last_os_error());
    }

    /// Replaces the QP by one that uses an SRQ, which this function returns. It must be called before the QP is
    /// connected.
    pub(crate) fn share(&mut self, setup: Setup) -> *mut ibv_srq {
        let srq = self.shared_queue(setup.depth);
        self.replace(setup, |attr| attr.srq = srq);
        srq
    }

    /// Replaces the QP by an XRC target. Returns the XRC domain, the SRQ, and the number of the SRQ.
    pub(crate) fn target(&mut self, setup: Setup) -> (*mut ibv_xrcd, *mut ibv_srq, u32) {
        use ibv_srq_init_attr_mask as mask;
        // SAFETY: the context, domain and completion queue are alive; the attributes are numbers and pointers.
        let (xrcd, srq, number) = unsafe {
            let all =
                ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_FD.0 | ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_OFLAGS.0;
            let mut domain = ibv_xrcd_init_attr { comp_mask: all, fd: -1, oflags: libc::O_CREAT };
            let xrcd = ibv_open_xrcd(self.context, &raw mut domain);
            assert!(!xrcd.is_null(), "{}", io::Error::last_os_error());
            let mut init: ibv_srq_init_attr_ex = zeroed();
            init.comp_mask = mask::IBV_SRQ_INIT_ATTR_TYPE.0
                | mask::IBV_SRQ_INIT_ATTR_PD.0
                | mask::IBV_SRQ_INIT_ATTR_XRCD.0
                | mask::IBV_SRQ_INIT_ATTR_CQ.0;
            (init.srq_type, init.pd, init.xrcd, init.cq) = (ibv_srq_type::IBV_SRQT_XRC, self.pd, xrcd, self.cq);
            (init.attr.max_wr, init.attr.max_sge) = (setup.depth, 4);
            let srq = ibv_create_srq_ex(self.context, &raw mut init);
            assert!(!srq.is_null(), "{}", io::Error::last_os_error());
            let mut number = 0;
            assert_eq!(ibv_get_srq_num(srq, &raw mut number), 0);
            (xrcd, srq, number)
        };
        self.replace(Setup { kind: ibv_qp_type::IBV_QPT_XRC_RECV, ..setup }, |attr| {
            attr.xrcd = xrcd;
            (attr.pd, attr.send_cq, attr.recv_cq) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            attr.cap =
                ibv_qp_cap { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline_data: 0 };
            attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0;
        });
        (xrcd, srq, number)
    }

    /// Closes the side and its SRQ.
    pub(crate) fn close_with(self, srq: *mut ibv_srq) {
        // SAFETY: this side owns all objects, and destroys them in order.
        unsafe {
            assert_eq!(ibv_destroy_qp(self.qp), 0);
            assert_eq!(ibv_destroy_srq(srq), 0);
            assert_eq!(ibv_dereg_mr(self.mr), 0);
            assert_eq!(ibv_destroy_cq(self.cq), 0);
            assert_eq!(ibv_destroy_comp_channel(self.channel), 0);
            assert_eq!(ibv_dealloc_pd(self.pd), 0);
        }
    }

    pub(crate) fn receive_shared(&self, srq: *mut ibv_srq, wr_id: u64, pieces: &mut [ibv_sge]) {
        let num_sge = pieces.len() as c_int;
        let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: pieces.as_mut_ptr(), num_sge };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is alive, and the request and its list exist during the call.
        assert_eq!(unsafe { ibv_post_srq_recv(srq, &raw mut wr, &raw mut bad) }, 0);
    }

    /// Moves a datagram QP to RTS.
    pub(crate) fn ready_for_datagrams(&self) {
        use ibv_qp_attr_mask as mask;
        // SAFETY: the attributes are numbers.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        (attr.qp_state, attr.port_num, attr.qkey) = (ibv_qp_state::IBV_QPS_INIT, 1, QKEY);
        let init = mask::IBV_QP_STATE.0 | mask::IBV_QP_PKEY_INDEX.0 | mask::IBV_QP_PORT.0 | mask::IBV_QP_QKEY.0;
        assert_eq!(self.modify(&mut attr, init), 0);
        attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
        assert_eq!(self.modify(&mut attr, mask::IBV_QP_STATE.0), 0);
        attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
        assert_eq!(self.modify(&mut attr, mask::IBV_QP_STATE.0 | mask::IBV_QP_SQ_PSN.0), 0);
    }

    /// Returns the first GID of this host.
    pub(crate) fn gid(&self) -> ibv_gid {
        // SAFETY: the context is open, and all bytes of a GID are valid.
        unsafe {
            let mut gid: ibv_gid = zeroed();
            assert_eq!(ibv_query_gid(self.context, 1, 0, &raw mut gid), 0);
            gid
        }
    }

    pub(crate) fn address_handle(&self, gid: ibv_gid) -> *mut ibv_ah {
        // SAFETY: the domain is alive, and the attributes are numbers.
        let address_handle = unsafe {
            let mut attr: ibv_ah_attr = zeroed();
            (attr.is_global, attr.port_num) = (1, 1);
            (attr.grh.dgid, attr.grh.hop_limit) = (gid, 64);
            ibv_create_ah(self.pd, &raw mut attr)
        };
        assert!(!address_handle.is_null(), "{}", io::Error::last_os_error());
        address_handle
    }

    pub(crate) fn send_datagram(&self, address_handle: *mut ibv_ah, number: u32, wr_id: u64, pieces: &mut [ibv_sge]) {
        self.send(ibv_wr_opcode::IBV_WR_SEND, wr_id, pieces, |wr| {
            wr.wr.ud =
                ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah: address_handle, remote_qpn: number, remote_qkey: QKEY };
        });
    }
}
