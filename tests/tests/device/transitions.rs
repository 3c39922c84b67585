//! State changes with correct and incorrect attributes: the device accepts exactly those in sideway's table, which is
//! used to explain errors. Tests beside that table (`sideway/src/ibverbs/queue_pair/transition/table.rs`) compare the
//! table with rows in C's terms, so that all three agree.
#![expect(clippy::print_stdout, reason = "a test, which reports where it did not run")]

use std::mem::zeroed;
use std::ptr;
use std::time::{Duration, Instant};

use rdma_mummy_sys::*;
use sideway::ibverbs::queue_pair::{Connected, QueuePairState, QueuePairType, Service};
use sideway_tests::device;

const STATES: u32 = 7;
const RESET: u32 = ibv_qp_state::IBV_QPS_RESET.0;
const INIT: u32 = ibv_qp_state::IBV_QPS_INIT.0;
const RTR: u32 = ibv_qp_state::IBV_QPS_RTR.0;
const RTS: u32 = ibv_qp_state::IBV_QPS_RTS.0;
const SQD: u32 = ibv_qp_state::IBV_QPS_SQD.0;
const SQE: u32 = ibv_qp_state::IBV_QPS_SQE.0;
const ERR: u32 = ibv_qp_state::IBV_QPS_ERR.0;
const UC: u32 = ibv_qp_type::IBV_QPT_UC.0;
const UD: u32 = ibv_qp_type::IBV_QPT_UD.0;
const XRC_SEND: u32 = ibv_qp_type::IBV_QPT_XRC_SEND.0;
const XRC_RECV: u32 = ibv_qp_type::IBV_QPT_XRC_RECV.0;
const STATE: u32 = ibv_qp_attr_mask::IBV_QP_STATE.0;
/// Refused for its value: there are no alternate paths on Ethernet.
const ALT_PATH: u32 = ibv_qp_attr_mask::IBV_QP_ALT_PATH.0;

/// The table's attributes: required, and optional.
fn table(qp_type: u32, from: u32, to: u32) -> Option<(u32, u32)> {
    let states = [from, to].map(QueuePairState::from_raw);
    let transition = Connected::transition(QueuePairType::from_raw(qp_type), states[0], states[1])?;
    Some((transition.needed.bits(), transition.optional.bits()))
}

/// The attributes that the kernel drops for a type that lacks them (`modify_qp_mask` in uverbs_cmd.c).
fn dropped(qp_type: u32) -> u32 {
    match qp_type {
        XRC_SEND => ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC.0 | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0,
        XRC_RECV => {
            ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC.0
                | ibv_qp_attr_mask::IBV_QP_RETRY_CNT.0
                | ibv_qp_attr_mask::IBV_QP_RNR_RETRY.0
        }
        _ => 0,
    }
}

/// An open device, with the parents of queue pairs.
struct World {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    xrcd: *mut ibv_xrcd,
    gid: ibv_gid,
}

impl World {
    /// `None` unless the device is the soft one: others refuse values of these masks.
    fn new() -> Option<Self> {
        let soft = device::open();
        if !device::is_soft_nic(&soft) {
            println!("DID NOT RUN: the device is not softrnic's");
            return None;
        }
        let name = device::name();
        // SAFETY: all objects are used as their manual pages document, and are freed in order at the end.
        unsafe {
            let mut count = 0;
            let list = ibv_get_device_list(&raw mut count);
            let named = |device: &*mut ibv_device| {
                std::ffi::CStr::from_ptr(ibv_get_device_name(*device)).to_bytes() == name.as_bytes()
            };
            let device = (0..count as usize).map(|place| *list.add(place)).find(named).expect("it was opened before");
            let context = ibv_open_device(device);
            ibv_free_device_list(list);
            let mut attr = ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
            let xrcd = ibv_open_xrcd(context, &raw mut attr);
            let mut gid = zeroed();
            assert_eq!(ibv_query_gid(context, 1, 0, &raw mut gid), 0);
            let cq = ibv_create_cq(context, 16, ptr::null_mut(), ptr::null_mut(), 0);
            Some(Self { context, pd: ibv_alloc_pd(context), cq, xrcd, gid })
        }
    }

    fn pair(&self, qp_type: u32) -> *mut ibv_qp {
        // SAFETY: zeros are valid for the attributes, and the objects that they name exist.
        let qp = unsafe {
            let mut attr: ibv_qp_init_attr_ex = zeroed();
            attr.qp_type = ibv_qp_type(qp_type);
            if qp_type == XRC_RECV {
                attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0;
                attr.xrcd = self.xrcd;
            } else {
                attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
                (attr.pd, attr.send_cq, attr.recv_cq) = (self.pd, self.cq, self.cq);
                (attr.cap.max_send_wr, attr.cap.max_send_sge) = (1, 1);
            }
            ibv_create_qp_ex(self.context, &raw mut attr)
        };
        assert!(!qp.is_null(), "type {qp_type}");
        qp
    }

    /// Whether the device accepts the change. All values are valid, so only the mask matters.
    fn modify(&self, qp: *mut ibv_qp, from: u32, to: u32, mask: u32) -> bool {
        // SAFETY: zeros are valid for the attributes, and the queue pair exists.
        unsafe {
            let mut attr: ibv_qp_attr = zeroed();
            (attr.qp_state, attr.cur_qp_state) = (ibv_qp_state(to), ibv_qp_state(from));
            (attr.port_num, attr.path_mtu, attr.dest_qp_num) = (1, ibv_mtu::IBV_MTU_1024, (*qp).qp_num);
            (attr.ah_attr.port_num, attr.ah_attr.is_global, attr.ah_attr.grh.dgid) = (1, 1, self.gid);
            attr.alt_ah_attr = attr.ah_attr;
            attr.alt_port_num = 1;
            let result = ibv_modify_qp(qp, &raw mut attr, mask as i32);
            assert!(result == 0 || result == libc::EINVAL, "{result}");
            result == 0
        }
    }

    /// Moves the queue pair from any state to another. `false` if its type has no such state.
    fn bring(&self, qp: *mut ibv_qp, qp_type: u32, state: u32) -> bool {
        let way: &[u32] = match state {
            RESET => &[],
            INIT => &[INIT],
            RTR => &[INIT, RTR],
            RTS => &[INIT, RTR, RTS],
            SQD => &[INIT, RTR, RTS, SQD],
            SQE if qp_type == UC || qp_type == UD => &[INIT, RTR, RTS],
            SQE => return false,
            _ => &[INIT, ERR],
        };
        assert!(self.modify(qp, RESET, RESET, STATE));
        let mut from = RESET;
        for &to in way {
            let (needed, _) = table(qp_type, from, to).expect("a valid transition");
            assert!(self.modify(qp, from, to, needed | STATE), "type {qp_type}, {from} to {to}");
            from = to;
        }
        if state == SQE {
            self.fail_a_send(qp, qp_type);
        }
        true
    }

    /// A send of unregistered memory: the queue pair enters SQE.
    fn fail_a_send(&self, qp: *mut ibv_qp, qp_type: u32) {
        // SAFETY: zeros are valid for the request, and the driver reads only the fields of its operation.
        unsafe {
            let mut path: ibv_ah_attr = zeroed();
            (path.port_num, path.is_global, path.grh.dgid) = (1, 1, self.gid);
            let ah = ibv_create_ah(self.pd, &raw mut path);
            let mut piece = ibv_sge { addr: 0, length: 8, lkey: 0 };
            let mut wr: ibv_send_wr = zeroed();
            (wr.sg_list, wr.num_sge, wr.opcode) = (&raw mut piece, 1, ibv_wr_opcode::IBV_WR_SEND);
            if qp_type == UD {
                wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn: 1, remote_qkey: 1 };
            }
            let mut bad = ptr::null_mut();
            assert_eq!(ibv_post_send(qp, &raw mut wr, &raw mut bad), 0);
            let started = Instant::now();
            let mut wc: ibv_wc = zeroed();
            while ibv_poll_cq(self.cq, 1, &raw mut wc) == 0 {
                assert!(started.elapsed() < Duration::from_secs(60), "nothing completed");
            }
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_LOC_PROT_ERR);
            assert_eq!(ibv_destroy_ah(ah), 0);
        }
    }

    fn close(self) {
        // SAFETY: the objects have no dependents.
        unsafe {
            assert_eq!((ibv_destroy_cq(self.cq), ibv_dealloc_pd(self.pd)), (0, 0));
            assert_eq!((ibv_close_xrcd(self.xrcd), ibv_close_device(self.context)), (0, 0));
        }
    }
}

/// Masks that distinguish tables: the required ones, without each of them, with each other bit, and with many.
fn masks(needed: u32, optional: u32) -> Vec<u32> {
    let mut masks = vec![needed, needed | optional, 0, u32::MAX];
    masks.extend((0..32).map(|bit| needed ^ 1 << bit));
    masks.extend((0..32).map(|bit| (needed | optional) ^ 1 << bit));
    // Random subsets of the allowed bits, sometimes with another bit.
    let mut chance = 0x9e37_79b9_u32;
    masks.extend((0..32).map(|round| {
        chance = chance.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        let more = if round % 4 == 0 { 1 << (chance >> 27) } else { 0 };
        needed | optional & (chance >> 3) | more
    }));
    masks
}

#[test]
fn device_accepts_what_the_table_lists() {
    let Some(world) = World::new() else { return };
    let mut taken = 0;
    for qp_type in [2, UC, UD, XRC_SEND, XRC_RECV] {
        let qp = world.pair(qp_type);
        for (from, to) in (0..STATES).flat_map(|from| (0..STATES).map(move |to| (from, to))) {
            if !world.bring(qp, qp_type, from) {
                continue;
            }
            let rule = table(qp_type, from, to);
            let (needed, optional) = rule.unwrap_or_default();
            for mask in masks(needed, optional) {
                // Without a state, the change stays within the current state.
                for mask in [Some(mask | STATE), (from == to).then_some(mask & !STATE)].into_iter().flatten() {
                    let allowed = (needed | optional | STATE) & !ALT_PATH;
                    let given = mask & !dropped(qp_type);
                    let expected = rule.is_some() && given & needed == needed && given & !allowed == 0;
                    let found = world.modify(qp, from, to, mask);
                    assert_eq!(found, expected, "type {qp_type}, {from} to {to}, mask {mask:#x}");
                    if found {
                        taken += 1;
                        world.bring(qp, qp_type, from);
                    }
                }
            }
        }
        // SAFETY: the QP is no longer used.
        assert_eq!(unsafe { ibv_destroy_qp(qp) }, 0);
    }
    assert!(taken > 1000, "{taken}");
    world.close();
}
