//! The extended attributes of a device.

use super::{
    CompletionModerationCapabilities, DeviceAttr, OdpCapabilities, OdpTransportCapabilities, PacketPacingCapabilities,
    PciAtomicCapabilities, RawPacketCapabilities, RssCapabilities, TagMatchingCapabilities, TsoCapabilities,
};

impl DeviceAttr {
    /// `odp_caps`, `xrc_odp_caps`: the operations for which each transport supports on-demand paging.
    #[doc(alias = "xrc_odp_caps")]
    pub fn odp_caps(&self) -> OdpCapabilities {
        let transport = |bits| OdpTransportCapabilities::from_bits_retain(bits);
        OdpCapabilities::new(
            self.attr.odp_caps.general_caps,
            transport(self.attr.odp_caps.per_transport_caps.rc_odp_caps),
            transport(self.attr.odp_caps.per_transport_caps.uc_odp_caps),
            transport(self.attr.odp_caps.per_transport_caps.ud_odp_caps),
            transport(self.attr.xrc_odp_caps),
        )
    }

    /// `completion_timestamp_mask`: the valid bits of completion timestamps, or `None` if timestamps are unsupported.
    pub fn completion_timestamp_mask(&self) -> Option<u64> {
        some_unless_zero(self.attr.completion_timestamp_mask)
    }

    /// `hca_core_clock`: the frequency of the timestamp clock, in kHz, or `None` if the driver does not report it.
    pub fn hca_core_clock(&self) -> Option<u64> {
        some_unless_zero(self.attr.hca_core_clock)
    }

    /// `tso_caps`: TCP segmentation offload.
    pub fn tso_caps(&self) -> TsoCapabilities {
        TsoCapabilities::from_raw(self.attr.tso_caps)
    }

    /// `rss_caps`: receive side scaling.
    pub fn rss_caps(&self) -> RssCapabilities {
        RssCapabilities::from_raw(self.attr.rss_caps)
    }

    /// `max_wq_type_rq`: the maximum number of receive work queues (`IBV_WQT_RQ`).
    pub fn max_wq_type_rq(&self) -> u32 {
        self.attr.max_wq_type_rq
    }

    /// `packet_pacing_caps`: limiting the send rate.
    pub fn packet_pacing_caps(&self) -> PacketPacingCapabilities {
        PacketPacingCapabilities::from_raw(self.attr.packet_pacing_caps)
    }

    /// `raw_packet_caps`: the capabilities of raw packet queue pairs.
    pub fn raw_packet_caps(&self) -> RawPacketCapabilities {
        RawPacketCapabilities::from_bits_retain(self.attr.raw_packet_caps)
    }

    /// `tm_caps`: tag matching.
    pub fn tm_caps(&self) -> TagMatchingCapabilities {
        TagMatchingCapabilities::from_raw(self.attr.tm_caps)
    }

    /// `cq_mod_caps`: delaying completion events.
    pub fn cq_mod_caps(&self) -> CompletionModerationCapabilities {
        CompletionModerationCapabilities::from_raw(self.attr.cq_mod_caps)
    }

    /// `max_dm_size`: the amount of device memory that can be allocated, in bytes.
    pub fn max_dm_size(&self) -> u64 {
        self.attr.max_dm_size
    }

    /// `pci_atomic_caps`: atomic operations over PCI Express.
    pub fn pci_atomic_caps(&self) -> PciAtomicCapabilities {
        PciAtomicCapabilities::from_raw(self.attr.pci_atomic_caps)
    }
}

fn some_unless_zero(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use rdma_mummy_sys::ibv_device_attr_ex;

    use super::*;

    const SIZE: usize = size_of::<ibv_device_attr_ex>();

    fn filled_with(byte: u8) -> DeviceAttr {
        // SAFETY: the structure consists of integers and newtypes of integers, for which all bytes are valid.
        DeviceAttr::from_raw(unsafe { std::mem::transmute::<[u8; SIZE], ibv_device_attr_ex>([byte; SIZE]) })
    }

    #[test]
    fn any_bytes_read_and_print() {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let attr = filled_with(byte);
            let text = format!(
                "{attr:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                attr.odp_caps(),
                attr.tso_caps(),
                attr.rss_caps(),
                attr.packet_pacing_caps(),
                attr.raw_packet_caps(),
                attr.tm_caps(),
                attr.cq_mod_caps(),
                attr.pci_atomic_caps()
            );
            assert!(text.contains("max_qp"), "{text}");
        }
    }

    #[test]
    fn unreported_attributes_are_none_or_zero() {
        let attr = filled_with(0);
        assert_eq!((attr.completion_timestamp_mask(), attr.hca_core_clock()), (None, None));
        assert!(!attr.odp_caps().is_supported());
        assert!(!attr.tm_caps().is_supported());
        assert_eq!(attr.fw_ver(), "");
        assert_eq!(filled_with(0xff).max_qp(), 0, "a negative count");
    }

    #[test]
    fn extended_counts_and_flags_take_precedence() {
        let mut attr = filled_with(0);
        attr.attr.orig_attr.phys_port_cnt = 2;
        assert_eq!(attr.phys_port_cnt(), 2);
        attr.attr.phys_port_cnt_ex = 300;
        assert_eq!(attr.phys_port_cnt(), 300);
        attr.attr.orig_attr.device_cap_flags = 1 << 17;
        attr.attr.device_cap_flags_ex = 1 << 34;
        let flags = attr.device_cap_flags();
        assert_eq!(flags.bits(), 1 << 17 | 1 << 34);
        assert!(format!("{flags:?}").contains("RawScatterFcs"), "{flags:?}");
        attr.attr.device_cap_flags_ex = 0b111 << 38;
        let flags = format!("{:?}", attr.device_cap_flags());
        assert!(flags.contains("FlushGlobal | FlushPersistent | AtomicWrite"), "{flags}");
    }
}
