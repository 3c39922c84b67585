//! `struct ibv_device_attr`: the attributes of every device.

use std::borrow::Cow;
use std::fmt;

use libc::c_int;
use rdma_mummy_sys::{ibv_atomic_cap, ibv_device_attr, ibv_device_attr_ex};

use super::{DeviceCapabilityFlags, Guid};
use crate::ffi::open_enum;
use crate::ibverbs::device::c_text;

open_enum! {
    /// `enum ibv_atomic_cap` — the scope of atomic operations.
    #[doc(alias = "ibv_atomic_cap")]
    pub enum AtomicCapability {
        /// Atomic operations are not supported.
        None = ibv_atomic_cap::IBV_ATOMIC_NONE.0,
        /// Atomic among queue pairs of this device.
        HostChannelAdapter = ibv_atomic_cap::IBV_ATOMIC_HCA.0 => "HCA",
        /// Atomic with respect to all accesses to the memory, including processors.
        Global = ibv_atomic_cap::IBV_ATOMIC_GLOB.0,
    }
}

/// `struct ibv_device_attr_ex` — the capabilities of a device, as returned by
/// [`query_device`](super::DeviceContext::query_device).
///
/// The limits are upper bounds. How much of a resource is available depends on what is already in use, and on the use
/// of other resources. Attributes of the extended part are zero or empty if the driver lacks the extended query.
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

    /// Returns the C structure.
    pub fn attr(&self) -> &ibv_device_attr_ex {
        &self.attr
    }

    fn basic(&self) -> &ibv_device_attr {
        &self.attr.orig_attr
    }

    /// `fw_ver`: the firmware version; invalid UTF-8 is replaced.
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

    /// `page_size_cap`: the supported page sizes in bytes, as a bit mask.
    pub fn page_size_cap(&self) -> u64 {
        self.basic().page_size_cap
    }

    /// `vendor_id`: the vendor's IEEE number (OUI).
    pub fn vendor_id(&self) -> u32 {
        self.basic().vendor_id
    }

    /// `vendor_part_id`: the vendor's model number.
    pub fn vendor_part_id(&self) -> u32 {
        self.basic().vendor_part_id
    }

    /// `hw_ver`: the hardware version.
    pub fn hw_ver(&self) -> u32 {
        self.basic().hw_ver
    }

    /// `max_qp`: the maximum number of queue pairs.
    pub fn max_qp(&self) -> u32 {
        count(self.basic().max_qp)
    }

    /// `max_qp_wr`: the maximum number of work requests in a queue.
    pub fn max_qp_wr(&self) -> u32 {
        count(self.basic().max_qp_wr)
    }

    /// The device's capabilities, from `device_cap_flags_ex` if the driver sets it, otherwise from `device_cap_flags`.
    #[doc(alias = "device_cap_flags_ex")]
    pub fn device_cap_flags(&self) -> DeviceCapabilityFlags {
        DeviceCapabilityFlags::from_bits_retain(
            self.attr.device_cap_flags_ex | u64::from(self.basic().device_cap_flags),
        )
    }

    /// `max_sge`: the maximum number of scatter/gather entries of a work request that is not an RDMA read.
    pub fn max_sge(&self) -> u32 {
        count(self.basic().max_sge)
    }

    /// `max_sge_rd`: the maximum number of scatter entries of an RDMA read.
    pub fn max_sge_rd(&self) -> u32 {
        count(self.basic().max_sge_rd)
    }

    /// `max_cq`: the maximum number of completion queues.
    pub fn max_cq(&self) -> u32 {
        count(self.basic().max_cq)
    }

    /// `max_cqe`: the maximum number of entries of a completion queue.
    pub fn max_cqe(&self) -> u32 {
        count(self.basic().max_cqe)
    }

    /// `max_mr`: the maximum number of memory regions.
    pub fn max_mr(&self) -> u32 {
        count(self.basic().max_mr)
    }

    /// `max_pd`: the maximum number of protection domains.
    pub fn max_pd(&self) -> u32 {
        count(self.basic().max_pd)
    }

    /// `max_qp_rd_atom`: the maximum number of reads and atomics in flight for which a queue pair is the target.
    pub fn max_qp_rd_atom(&self) -> u32 {
        count(self.basic().max_qp_rd_atom)
    }

    /// `max_ee_rd_atom`: the maximum number of reads and atomics in flight for which an end-to-end context is the
    /// target.
    pub fn max_ee_rd_atom(&self) -> u32 {
        count(self.basic().max_ee_rd_atom)
    }

    /// `max_res_rd_atom`: the maximum number of reads and atomics in flight for which the device is the target.
    pub fn max_res_rd_atom(&self) -> u32 {
        count(self.basic().max_res_rd_atom)
    }

    /// `max_qp_init_rd_atom`: the maximum number of reads and atomics in flight that a queue pair initiated.
    pub fn max_qp_init_rd_atom(&self) -> u32 {
        count(self.basic().max_qp_init_rd_atom)
    }

    /// `max_ee_init_rd_atom`: the maximum number of reads and atomics in flight that an end-to-end context initiated.
    pub fn max_ee_init_rd_atom(&self) -> u32 {
        count(self.basic().max_ee_init_rd_atom)
    }

    /// `atomic_cap`: the scope of atomic operations.
    pub fn atomic_cap(&self) -> AtomicCapability {
        AtomicCapability::from_raw(self.basic().atomic_cap.0)
    }

    /// `max_ee`: the maximum number of end-to-end contexts (for reliable datagrams, which no device supports).
    pub fn max_ee(&self) -> u32 {
        count(self.basic().max_ee)
    }

    /// `max_rdd`: the maximum number of reliable datagram domains.
    pub fn max_rdd(&self) -> u32 {
        count(self.basic().max_rdd)
    }

    /// `max_mw`: the maximum number of memory windows.
    pub fn max_mw(&self) -> u32 {
        count(self.basic().max_mw)
    }

    /// `max_raw_ipv6_qp`: the maximum number of raw IPv6 queue pairs.
    pub fn max_raw_ipv6_qp(&self) -> u32 {
        count(self.basic().max_raw_ipv6_qp)
    }

    /// `max_raw_ethy_qp`: the maximum number of raw Ethertype queue pairs.
    pub fn max_raw_ethy_qp(&self) -> u32 {
        count(self.basic().max_raw_ethy_qp)
    }

    /// `max_mcast_grp`: the maximum number of multicast groups.
    pub fn max_mcast_grp(&self) -> u32 {
        count(self.basic().max_mcast_grp)
    }

    /// `max_mcast_qp_attach`: the maximum number of queue pairs attached to one multicast group.
    pub fn max_mcast_qp_attach(&self) -> u32 {
        count(self.basic().max_mcast_qp_attach)
    }

    /// `max_total_mcast_qp_attach`: the maximum number of queue pairs attached to multicast groups in total.
    pub fn max_total_mcast_qp_attach(&self) -> u32 {
        count(self.basic().max_total_mcast_qp_attach)
    }

    /// `max_ah`: the maximum number of address handles.
    pub fn max_ah(&self) -> u32 {
        count(self.basic().max_ah)
    }

    /// `max_fmr`: the maximum number of fast memory regions.
    pub fn max_fmr(&self) -> u32 {
        count(self.basic().max_fmr)
    }

    /// `max_map_per_fmr`: the maximum number of mappings of a fast memory region before it must be unmapped.
    pub fn max_map_per_fmr(&self) -> u32 {
        count(self.basic().max_map_per_fmr)
    }

    /// `max_srq`: the maximum number of shared receive queues.
    pub fn max_srq(&self) -> u32 {
        count(self.basic().max_srq)
    }

    /// `max_srq_wr`: the maximum number of work requests in a shared receive queue.
    pub fn max_srq_wr(&self) -> u32 {
        count(self.basic().max_srq_wr)
    }

    /// `max_srq_sge`: the maximum number of scatter entries of a receive in a shared receive queue.
    pub fn max_srq_sge(&self) -> u32 {
        count(self.basic().max_srq_sge)
    }

    /// `max_pkeys`: the maximum number of partitions.
    pub fn max_pkeys(&self) -> u16 {
        self.basic().max_pkeys
    }

    /// `local_ca_ack_delay`: the maximum time that the device takes to acknowledge a packet. It is stored as an
    /// exponent n, and the time is 4.096 µs × 2^n.
    pub fn local_ca_ack_delay(&self) -> u8 {
        self.basic().local_ca_ack_delay
    }

    /// The number of ports, from `phys_port_cnt_ex` if the driver sets it, otherwise from `phys_port_cnt`.
    #[doc(alias = "phys_port_cnt_ex")]
    pub fn phys_port_cnt(&self) -> u32 {
        self.attr.phys_port_cnt_ex.max(self.basic().phys_port_cnt.into())
    }
}

/// The getters under the names that they had in sideway 0.4.
impl DeviceAttr {
    /// Renamed to [`fw_ver`](Self::fw_ver).
    #[deprecated(since = "0.5.0", note = "named `fw_ver`")]
    pub fn firmware_version(&self) -> String {
        self.fw_ver().into_owned()
    }

    /// Renamed to [`hw_ver`](Self::hw_ver).
    #[deprecated(since = "0.5.0", note = "named `hw_ver`")]
    pub fn hardware_version(&self) -> u32 {
        self.hw_ver()
    }

    /// Renamed to [`max_res_rd_atom`](Self::max_res_rd_atom).
    #[deprecated(since = "0.5.0", note = "named `max_res_rd_atom`")]
    pub fn max_res_rd_atomic(&self) -> u32 {
        self.max_res_rd_atom()
    }

    /// Renamed to [`atomic_cap`](Self::atomic_cap).
    #[deprecated(since = "0.5.0", note = "named `atomic_cap`")]
    pub fn atomic_capability(&self) -> AtomicCapability {
        self.atomic_cap()
    }
}

/// Converts a count from C's `int`. Drivers do not return negative counts.
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
