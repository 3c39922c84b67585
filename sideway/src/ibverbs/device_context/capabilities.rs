//! The structures within `struct ibv_device_attr_ex`: one for each feature.

use rdma_mummy_sys::{
    ibv_cq_moderation_caps, ibv_packet_pacing_caps, ibv_pci_atomic_caps, ibv_rss_caps, ibv_tm_caps, ibv_tso_caps,
};

use super::{
    OdpGeneralCapabilities, OdpTransportCapabilities, PciAtomicOperationSize, QueuePairTypeSupport, RxHashFields,
    RxHashFunctions, TagMatchingFlags,
};

/// `struct ibv_odp_caps` — on-demand paging: memory regions whose pages are not pinned.
#[doc(alias = "ibv_odp_caps")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OdpCapabilities {
    general: u64,
    rc: OdpTransportCapabilities,
    uc: OdpTransportCapabilities,
    ud: OdpTransportCapabilities,
    xrc: OdpTransportCapabilities,
}

impl OdpCapabilities {
    pub(super) fn new(
        general: u64,
        rc: OdpTransportCapabilities,
        uc: OdpTransportCapabilities,
        ud: OdpTransportCapabilities,
        xrc: OdpTransportCapabilities,
    ) -> Self {
        Self { general, rc, uc, ud, xrc }
    }

    /// Whether the device does on-demand paging at all.
    pub fn is_supported(&self) -> bool {
        self.general().contains(OdpGeneralCapabilities::Supported)
    }

    /// `general_caps`: what holds for all transports.
    pub fn general(&self) -> OdpGeneralCapabilities {
        OdpGeneralCapabilities::from_bits_retain(self.general)
    }

    /// `rc_odp_caps`: the operations of reliable connections.
    pub fn reliable_connection(&self) -> OdpTransportCapabilities {
        self.rc
    }

    /// `uc_odp_caps`: the operations of unreliable connections.
    pub fn unreliable_connection(&self) -> OdpTransportCapabilities {
        self.uc
    }

    /// `ud_odp_caps`: the operations of unreliable datagrams.
    pub fn unreliable_datagram(&self) -> OdpTransportCapabilities {
        self.ud
    }

    /// `xrc_odp_caps`: the operations of extended reliable connections.
    pub fn reliable_connection_extended(&self) -> OdpTransportCapabilities {
        self.xrc
    }
}

/// `struct ibv_tso_caps` — TCP segmentation offload.
#[doc(alias = "ibv_tso_caps")]
#[derive(Clone, Copy, Debug)]
pub struct TsoCapabilities(ibv_tso_caps);

impl TsoCapabilities {
    pub(super) fn from_raw(raw: ibv_tso_caps) -> Self {
        Self(raw)
    }

    /// `max_tso`: the largest payload that the device cuts into segments, in bytes; 0 where it does not.
    pub fn max_tso(&self) -> u32 {
        self.0.max_tso
    }

    /// `supported_qpts`: for which types of queue pairs.
    pub fn supported_qp_types(&self) -> QueuePairTypeSupport {
        QueuePairTypeSupport::from_bits_retain(self.0.supported_qpts)
    }
}

/// `struct ibv_rss_caps` — receive side scaling: spreading packets over queues by a hash.
#[doc(alias = "ibv_rss_caps")]
#[derive(Clone, Copy, Debug)]
pub struct RssCapabilities(ibv_rss_caps);

impl RssCapabilities {
    pub(super) fn from_raw(raw: ibv_rss_caps) -> Self {
        Self(raw)
    }

    /// `supported_qpts`: for which types of queue pairs.
    pub fn supported_qp_types(&self) -> QueuePairTypeSupport {
        QueuePairTypeSupport::from_bits_retain(self.0.supported_qpts)
    }

    /// `max_rwq_indirection_tables`: how many indirection tables there can be.
    pub fn max_rwq_indirection_tables(&self) -> u32 {
        self.0.max_rwq_indirection_tables
    }

    /// `max_rwq_indirection_table_size`: how many queues a table can have.
    pub fn max_rwq_indirection_table_size(&self) -> u32 {
        self.0.max_rwq_indirection_table_size
    }

    /// `rx_hash_fields_mask`: which fields of a packet can be hashed.
    pub fn rx_hash_fields(&self) -> RxHashFields {
        RxHashFields::from_bits_retain(self.0.rx_hash_fields_mask)
    }

    /// `rx_hash_function`: which hash functions there are.
    pub fn rx_hash_function(&self) -> RxHashFunctions {
        RxHashFunctions::from_bits_retain(self.0.rx_hash_function)
    }
}

/// `struct ibv_packet_pacing_caps` — sending below a set rate.
#[doc(alias = "ibv_packet_pacing_caps")]
#[derive(Clone, Copy, Debug)]
pub struct PacketPacingCapabilities(ibv_packet_pacing_caps);

impl PacketPacingCapabilities {
    pub(super) fn from_raw(raw: ibv_packet_pacing_caps) -> Self {
        Self(raw)
    }

    /// `qp_rate_limit_min`: the lowest rate, in kbit/s.
    pub fn qp_rate_limit_min(&self) -> u32 {
        self.0.qp_rate_limit_min
    }

    /// `qp_rate_limit_max`: the highest rate, in kbit/s; 0 where the device does not pace.
    pub fn qp_rate_limit_max(&self) -> u32 {
        self.0.qp_rate_limit_max
    }

    /// `supported_qpts`: for which types of queue pairs.
    pub fn supported_qp_types(&self) -> QueuePairTypeSupport {
        QueuePairTypeSupport::from_bits_retain(self.0.supported_qpts)
    }
}

/// `struct ibv_tm_caps` — tag matching: the device finds the receive that a message is for.
#[doc(alias = "ibv_tm_caps")]
#[derive(Clone, Copy, Debug)]
pub struct TagMatchingCapabilities(ibv_tm_caps);

impl TagMatchingCapabilities {
    pub(super) fn from_raw(raw: ibv_tm_caps) -> Self {
        Self(raw)
    }

    /// Whether the device matches tags at all.
    pub fn is_supported(&self) -> bool {
        self.0.max_num_tags != 0
    }

    /// `max_rndv_hdr_size`: the largest header of a rendezvous request, in bytes.
    pub fn max_rndv_hdr_size(&self) -> u32 {
        self.0.max_rndv_hdr_size
    }

    /// `max_num_tags`: how many receives with tags a queue can hold.
    pub fn max_num_tags(&self) -> u32 {
        self.0.max_num_tags
    }

    /// `flags`: for which transports.
    pub fn flags(&self) -> TagMatchingFlags {
        TagMatchingFlags::from_bits_retain(self.0.flags)
    }

    /// `max_ops`: how many operations on the list can be outstanding.
    pub fn max_ops(&self) -> u32 {
        self.0.max_ops
    }

    /// `max_sge`: how many parts a receive with a tag can scatter.
    pub fn max_sge(&self) -> u32 {
        self.0.max_sge
    }
}

/// `struct ibv_cq_moderation_caps` — holding completion events back.
#[doc(alias = "ibv_cq_moderation_caps")]
#[derive(Clone, Copy, Debug)]
pub struct CompletionModerationCapabilities(ibv_cq_moderation_caps);

impl CompletionModerationCapabilities {
    pub(super) fn from_raw(raw: ibv_cq_moderation_caps) -> Self {
        Self(raw)
    }

    /// `max_cq_count`: for how many completions an event can be held back; 0 where it cannot.
    pub fn max_cq_count(&self) -> u16 {
        self.0.max_cq_count
    }

    /// `max_cq_period`: for how long an event can be held back, in microseconds.
    pub fn max_cq_period(&self) -> u16 {
        self.0.max_cq_period
    }
}

/// `struct ibv_pci_atomic_caps` — atomic operations that the device does towards PCI Express, by their sizes.
#[doc(alias = "ibv_pci_atomic_caps")]
#[derive(Clone, Copy, Debug)]
pub struct PciAtomicCapabilities(ibv_pci_atomic_caps);

impl PciAtomicCapabilities {
    pub(super) fn from_raw(raw: ibv_pci_atomic_caps) -> Self {
        Self(raw)
    }

    /// `fetch_add`: the sizes for fetch-and-add.
    pub fn fetch_add(&self) -> PciAtomicOperationSize {
        PciAtomicOperationSize::from_bits_retain(self.0.fetch_add)
    }

    /// `swap`: the sizes for swap.
    pub fn swap(&self) -> PciAtomicOperationSize {
        PciAtomicOperationSize::from_bits_retain(self.0.swap)
    }

    /// `compare_swap`: the sizes for compare-and-swap.
    pub fn compare_swap(&self) -> PciAtomicOperationSize {
        PciAtomicOperationSize::from_bits_retain(self.0.compare_swap)
    }
}
