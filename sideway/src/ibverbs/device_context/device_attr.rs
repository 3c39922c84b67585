//! `struct ibv_device_attr`: what every device says of itself.

use std::borrow::Cow;
use std::fmt;

use libc::c_int;
use rdma_mummy_sys::{ibv_atomic_cap, ibv_device_attr, ibv_device_attr_ex};

use super::{DeviceCapabilityFlags, Guid, c_text};
use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_atomic_cap` — between whom atomic operations are atomic.
    #[doc(alias = "ibv_atomic_cap")]
    pub enum AtomicCapability {
        /// There are none.
        None = ibv_atomic_cap::IBV_ATOMIC_NONE.0,
        /// Between queue pairs of this device.
        HostChannelAdapter = ibv_atomic_cap::IBV_ATOMIC_HCA.0 => "HCA",
        /// Between this device and everything else that accesses the memory, processors included.
        Global = ibv_atomic_cap::IBV_ATOMIC_GLOB.0,
    }
}

/// `struct ibv_device_attr_ex` — what a device can do, as it said when it was [asked](super::DeviceContext::query_device).
///
/// Limits are upper bounds: what can be had depends on what is in use, and one limit often costs another. What belongs to
/// the extended part is zero or empty where the driver does not know the extended question.
#[doc(alias = "ibv_device_attr")]
#[doc(alias = "ibv_device_attr_ex")]
#[derive(Clone, Copy)]
pub struct DeviceAttr {
    pub(super) attr: ibv_device_attr_ex,
}

impl DeviceAttr {
    pub(super) fn from_raw(attr: ibv_device_attr_ex) -> Self {
        Self { attr }
    }

    /// The structure as C has it.
    pub fn attr(&self) -> &ibv_device_attr_ex {
        &self.attr
    }

    fn basic(&self) -> &ibv_device_attr {
        &self.attr.orig_attr
    }

    /// `fw_ver`: the version of the firmware; what is not UTF-8 in it is replaced.
    pub fn fw_ver(&self) -> Cow<'_, str> {
        c_text(&self.basic().fw_ver)
    }

    /// `node_guid`: the GUID of the device.
    pub fn node_guid(&self) -> Guid {
        Guid::from_be(self.basic().node_guid)
    }

    /// `sys_image_guid`: the GUID that all parts of one adapter share.
    pub fn sys_image_guid(&self) -> Guid {
        Guid::from_be(self.basic().sys_image_guid)
    }

    /// `max_mr_size`: the largest memory region, in bytes.
    pub fn max_mr_size(&self) -> u64 {
        self.basic().max_mr_size
    }

    /// `page_size_cap`: the page sizes that the device can do, in bytes, all added up.
    pub fn page_size_cap(&self) -> u64 {
        self.basic().page_size_cap
    }

    /// `vendor_id`: the vendor, an IEEE number (OUI).
    pub fn vendor_id(&self) -> u32 {
        self.basic().vendor_id
    }

    /// `vendor_part_id`: the vendor's number for the model.
    pub fn vendor_part_id(&self) -> u32 {
        self.basic().vendor_part_id
    }

    /// `hw_ver`: the version of the hardware.
    pub fn hw_ver(&self) -> u32 {
        self.basic().hw_ver
    }

    /// `max_qp`: how many queue pairs there can be.
    pub fn max_qp(&self) -> u32 {
        count(self.basic().max_qp)
    }

    /// `max_qp_wr`: how many work requests a queue can hold.
    pub fn max_qp_wr(&self) -> u32 {
        count(self.basic().max_qp_wr)
    }

    /// `device_cap_flags`, or `device_cap_flags_ex` where the driver gives it: what the device can do.
    #[doc(alias = "device_cap_flags_ex")]
    pub fn device_cap_flags(&self) -> DeviceCapabilityFlags {
        DeviceCapabilityFlags::from_bits_retain(
            self.attr.device_cap_flags_ex | u64::from(self.basic().device_cap_flags),
        )
    }

    /// `max_sge`: how many parts a work request can gather or scatter, reads aside.
    pub fn max_sge(&self) -> u32 {
        count(self.basic().max_sge)
    }

    /// `max_sge_rd`: how many parts an RDMA read can scatter.
    pub fn max_sge_rd(&self) -> u32 {
        count(self.basic().max_sge_rd)
    }

    /// `max_cq`: how many completion queues there can be.
    pub fn max_cq(&self) -> u32 {
        count(self.basic().max_cq)
    }

    /// `max_cqe`: how many entries a completion queue can have.
    pub fn max_cqe(&self) -> u32 {
        count(self.basic().max_cqe)
    }

    /// `max_mr`: how many memory regions there can be.
    pub fn max_mr(&self) -> u32 {
        count(self.basic().max_mr)
    }

    /// `max_pd`: how many protection domains there can be.
    pub fn max_pd(&self) -> u32 {
        count(self.basic().max_pd)
    }

    /// `max_qp_rd_atom`: how many reads and atomics a queue pair can have in flight as their target.
    pub fn max_qp_rd_atom(&self) -> u32 {
        count(self.basic().max_qp_rd_atom)
    }

    /// `max_ee_rd_atom`: the same for an end-to-end context.
    pub fn max_ee_rd_atom(&self) -> u32 {
        count(self.basic().max_ee_rd_atom)
    }

    /// `max_res_rd_atom`: the same for the whole device.
    pub fn max_res_rd_atom(&self) -> u32 {
        count(self.basic().max_res_rd_atom)
    }

    /// `max_qp_init_rd_atom`: how many reads and atomics a queue pair can have in flight as their initiator.
    pub fn max_qp_init_rd_atom(&self) -> u32 {
        count(self.basic().max_qp_init_rd_atom)
    }

    /// `max_ee_init_rd_atom`: the same for an end-to-end context.
    pub fn max_ee_init_rd_atom(&self) -> u32 {
        count(self.basic().max_ee_init_rd_atom)
    }

    /// `atomic_cap`: between whom atomic operations are atomic.
    pub fn atomic_cap(&self) -> AtomicCapability {
        AtomicCapability::from_raw(self.basic().atomic_cap.0)
    }

    /// `max_ee`: how many end-to-end contexts there can be (reliable datagrams, which no device does).
    pub fn max_ee(&self) -> u32 {
        count(self.basic().max_ee)
    }

    /// `max_rdd`: how many reliable datagram domains there can be.
    pub fn max_rdd(&self) -> u32 {
        count(self.basic().max_rdd)
    }

    /// `max_mw`: how many memory windows there can be.
    pub fn max_mw(&self) -> u32 {
        count(self.basic().max_mw)
    }

    /// `max_raw_ipv6_qp`: how many raw IPv6 queue pairs there can be.
    pub fn max_raw_ipv6_qp(&self) -> u32 {
        count(self.basic().max_raw_ipv6_qp)
    }

    /// `max_raw_ethy_qp`: how many raw Ethertype queue pairs there can be.
    pub fn max_raw_ethy_qp(&self) -> u32 {
        count(self.basic().max_raw_ethy_qp)
    }

    /// `max_mcast_grp`: how many multicast groups there can be.
    pub fn max_mcast_grp(&self) -> u32 {
        count(self.basic().max_mcast_grp)
    }

    /// `max_mcast_qp_attach`: how many queue pairs can be attached to one multicast group.
    pub fn max_mcast_qp_attach(&self) -> u32 {
        count(self.basic().max_mcast_qp_attach)
    }

    /// `max_total_mcast_qp_attach`: how many queue pairs can be attached to multicast groups in all.
    pub fn max_total_mcast_qp_attach(&self) -> u32 {
        count(self.basic().max_total_mcast_qp_attach)
    }

    /// `max_ah`: how many address handles there can be.
    pub fn max_ah(&self) -> u32 {
        count(self.basic().max_ah)
    }

    /// `max_fmr`: how many fast memory regions there can be.
    pub fn max_fmr(&self) -> u32 {
        count(self.basic().max_fmr)
    }

    /// `max_map_per_fmr`: how often a fast memory region can be mapped before it must be unmapped.
    pub fn max_map_per_fmr(&self) -> u32 {
        count(self.basic().max_map_per_fmr)
    }

    /// `max_srq`: how many shared receive queues there can be.
    pub fn max_srq(&self) -> u32 {
        count(self.basic().max_srq)
    }

    /// `max_srq_wr`: how many work requests a shared receive queue can hold.
    pub fn max_srq_wr(&self) -> u32 {
        count(self.basic().max_srq_wr)
    }

    /// `max_srq_sge`: how many parts a receive on a shared receive queue can scatter.
    pub fn max_srq_sge(&self) -> u32 {
        count(self.basic().max_srq_sge)
    }

    /// `max_pkeys`: how many partitions there can be.
    pub fn max_pkeys(&self) -> u16 {
        self.basic().max_pkeys
    }

    /// `local_ca_ack_delay`: how long the device may take to acknowledge, as a power: 4.096 µs times 2 to this power.
    pub fn local_ca_ack_delay(&self) -> u8 {
        self.basic().local_ca_ack_delay
    }

    /// `phys_port_cnt`, or `phys_port_cnt_ex` where the driver gives it: how many ports there are.
    #[doc(alias = "phys_port_cnt_ex")]
    pub fn phys_port_cnt(&self) -> u32 {
        self.attr.phys_port_cnt_ex.max(self.basic().phys_port_cnt.into())
    }
}

/// Getters by their names of sideway 0.4.
impl DeviceAttr {
    /// [`fw_ver`](Self::fw_ver).
    #[deprecated(since = "0.5.0", note = "named `fw_ver`")]
    pub fn firmware_version(&self) -> String {
        self.fw_ver().into_owned()
    }

    /// [`hw_ver`](Self::hw_ver).
    #[deprecated(since = "0.5.0", note = "named `hw_ver`")]
    pub fn hardware_version(&self) -> u32 {
        self.hw_ver()
    }

    /// [`max_res_rd_atom`](Self::max_res_rd_atom).
    #[deprecated(since = "0.5.0", note = "named `max_res_rd_atom`")]
    pub fn max_res_rd_atomic(&self) -> u32 {
        self.max_res_rd_atom()
    }

    /// [`atomic_cap`](Self::atomic_cap).
    #[deprecated(since = "0.5.0", note = "named `atomic_cap`")]
    pub fn atomic_capability(&self) -> AtomicCapability {
        self.atomic_cap()
    }
}

/// A number of things in C's `int`; no driver means a negative one.
fn count(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

impl fmt::Debug for DeviceAttr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("DeviceAttr");
        out.field("fw_ver", &self.fw_ver()).field("node_guid", &self.node_guid());
        out.field("sys_image_guid", &self.sys_image_guid()).field("vendor_id", &self.vendor_id());
        out.field("vendor_part_id", &self.vendor_part_id()).field("hw_ver", &self.hw_ver());
        out.field("phys_port_cnt", &self.phys_port_cnt()).field("device_cap_flags", &self.device_cap_flags());
        out.field("max_qp", &self.max_qp()).field("max_qp_wr", &self.max_qp_wr());
        out.field("max_sge", &self.max_sge()).field("max_sge_rd", &self.max_sge_rd());
        out.field("max_cq", &self.max_cq()).field("max_cqe", &self.max_cqe());
        out.field("max_mr", &self.max_mr()).field("max_mr_size", &self.max_mr_size());
        out.field("max_pd", &self.max_pd()).field("max_mw", &self.max_mw()).field("max_ah", &self.max_ah());
        out.field("max_qp_rd_atom", &self.max_qp_rd_atom());
        out.field("max_qp_init_rd_atom", &self.max_qp_init_rd_atom()).field("atomic_cap", &self.atomic_cap());
        out.field("max_srq", &self.max_srq()).field("max_srq_wr", &self.max_srq_wr());
        out.field("max_srq_sge", &self.max_srq_sge()).field("max_pkeys", &self.max_pkeys());
        out.finish_non_exhaustive()
    }
}
