//! A recording device's faults, and the attributes that it reports.

use std::collections::BTreeSet;
use std::mem;

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::driver::{Driver, Fault, PollCq};
use super::failure::Failure;

/// The target of `bad_wr` for a refused list.
#[derive(Clone, Copy, Debug)]
pub enum Bad {
    /// The request at this index of the list; those before it are posted.
    At(usize),
    /// Nowhere.
    Null,
    /// Memory outside the list.
    Foreign,
    /// The memory after the last request of the list; all of it is posted.
    Behind,
}

/// The faults, and when they occur.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// A verb, how many of its calls still succeed, and the effect on the next one.
    failures: Vec<(&'static str, u32, Failure)>,
    /// Verbs that always fail.
    always: Vec<(&'static str, Failure)>,
    /// How many calls of any verb still succeed.
    countdown: Option<(u32, Failure)>,
    /// Functions that objects created from now on lack.
    pub(super) without: BTreeSet<&'static str>,
    /// The driver that the device imitates.
    pub(super) driver: Option<Driver>,
    /// The poll function of devices opened from now on.
    pub(super) poll_cq: Option<PollCq>,
    /// The return value and errno of the next `rereg_mr`.
    pub(super) rereg: Option<(c_int, c_int)>,
    /// The fault of the next list of requests.
    pub(super) refusal: Option<(Bad, Failure)>,
}

impl Script {
    /// Whether the driver has this fault.
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.driver.is_some_and(|driver| driver.faults.contains(&fault))
    }

    pub(crate) fn fail(&mut self, verb: &'static str, passing: u32, failure: Failure) {
        self.failures.push((verb, passing, failure));
    }

    pub(crate) fn fail_always(&mut self, verb: &'static str, failure: Failure) {
        self.always.push((verb, failure));
    }

    /// Removes the failure of the verb.
    pub(super) fn succeed(&mut self, verb: &str) {
        self.always.retain(|(name, _)| *name != verb);
        self.failures.retain(|(name, ..)| *name != verb);
    }

    pub(crate) fn fail_any(&mut self, passing: u32, failure: Failure) {
        self.countdown = Some((passing, failure));
    }

    /// The failure of this call of `verb`.
    pub(crate) fn next(&mut self, verb: &str) -> Option<Failure> {
        if let Some((left, failure)) = &mut self.countdown {
            if *left == 0 {
                let failure = *failure;
                self.countdown = None;
                return Some(failure);
            }
            *left -= 1;
        }
        if let Some((_, failure)) = self.always.iter().find(|(name, _)| *name == verb) {
            return Some(*failure);
        }
        let index = self.failures.iter().position(|(name, ..)| *name == verb)?;
        let (_, passing, failure) = &mut self.failures[index];
        if *passing > 0 {
            *passing -= 1;
            return None;
        }
        let failure = *failure;
        self.failures.remove(index);
        Some(failure)
    }
}

/// The attributes that the device reports; tests change them.
pub struct Facts {
    /// Whether the query verbs, and the one for completion events, write anything.
    pub fills: bool,
    /// Whether the receives of a queue pair in the error state complete.
    pub flushes: bool,
    /// `ibv_query_device_ex`.
    pub device: ffi::ibv_device_attr_ex,
    /// `ibv_query_port`, of each port.
    pub port: ffi::ibv_port_attr,
    /// `ibv_query_gid_table`.
    pub gids: Vec<ffi::ibv_gid_entry>,
    /// `ibv_query_qp`; the state is that of the queue pair unless `query_state` is set.
    pub qp: ffi::ibv_qp_attr,
    /// The state that `ibv_query_qp` returns.
    pub query_state: Option<u32>,
    /// The type of the queue pair that `ibv_query_qp` returns.
    pub query_type: Option<u32>,
    /// The numbers of receives and entries that `ibv_create_srq` grants.
    pub srq: Option<(u32, u32)>,
    /// `ibv_query_rt_values_ex`: the mask that is returned.
    pub values_mask: u32,
    /// `ibv_resolve_eth_l2_from_gid`: the VLAN; above 4095 there is none.
    pub vlan: u16,
    /// `ibv_query_ece`; `ibv_set_ece` accepts only these options.
    pub ece: ffi::ibv_ece,
    /// `ibv_query_qp_data_in_order`.
    pub data_in_order: c_int,
}

impl Default for Facts {
    fn default() -> Self {
        // SAFETY: all three are structs of integers, of which zero is a value.
        let (mut device, mut port, qp): (ffi::ibv_device_attr_ex, ffi::ibv_port_attr, ffi::ibv_qp_attr) =
            unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        device.device_cap_flags_ex = ffi::IB_UVERBS_DEVICE_ATOMIC_WRITE;
        let plain = &mut device.orig_attr;
        (plain.phys_port_cnt, plain.atomic_cap) = (1, ffi::ibv_atomic_cap::IBV_ATOMIC_HCA);
        (plain.max_qp_wr, plain.max_sge, plain.max_cqe) = (1024, 8, 4096);
        (plain.max_qp_rd_atom, plain.max_qp_init_rd_atom) = (16, 16);
        (plain.max_srq, plain.max_srq_wr, plain.max_srq_sge) = (64, 512, 4);
        (port.state, port.link_layer) = (ffi::ibv_port_state::IBV_PORT_ACTIVE, 2);
        (port.max_mtu, port.active_mtu) = (ffi::ibv_mtu::IBV_MTU_4096, ffi::ibv_mtu::IBV_MTU_1024);
        (port.gid_tbl_len, port.pkey_tbl_len) = (4, 1);
        let gid = ffi::ibv_gid { raw: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] };
        Self {
            fills: true,
            flushes: true,
            device,
            port,
            gids: vec![ffi::ibv_gid_entry { gid, gid_index: 0, port_num: 1, gid_type: 2, ndev_ifindex: 0 }],
            qp,
            query_state: None,
            query_type: None,
            srq: None,
            values_mask: 1,
            vlan: 0xffff,
            ece: ffi::ibv_ece { vendor_id: 0x15b3, options: 0b1110, comp_mask: 0 },
            data_in_order: 0,
        }
    }
}

impl std::fmt::Debug for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts").field("fills", &self.fills).finish_non_exhaustive()
    }
}
