//! The structures inside `struct ibv_device_attr_ex`. Each describes one feature.

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

    /// Whether the device supports on-demand paging.
    pub fn is_supported(&self) -> bool {
        self.general().contains(OdpGeneralCapabilities::Supported)
    }

    /// `general_caps`: capabilities for all transports.
    pub fn general(&self) -> OdpGeneralCapabilities {
        OdpGeneralCapabilities::from_bits_retain(self.general)
    }

    /// `rc_odp_caps`: the supported operations of reliable connections.
    pub fn reliable_connection(&self) -> OdpTransportCapabilities {
        self.rc
    }

    /// `uc_odp_caps`: the supported operations of unreliable connections.
    pub fn unreliable_connection(&self) -> OdpTransportCapabilities {
        self.uc
    }

    /// `ud_odp_caps`: the supported operations of unreliable datagrams.
    pub fn unreliable_datagram(&self) -> OdpTransportCapabilities {
        self.ud
    }

    /// `xrc_odp_caps`: the supported operations of extended reliable connections.
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

    /// `max_tso`: the largest payload that the device divides into segments, in bytes. It is 0 if segmentation is
    /// unsupported.
    pub fn max_tso(&self) -> u32 {
        self.0.max_tso
    }

    /// `supported_qpts`: the supported queue pair types.
    pub fn supported_qp_types(&self) -> QueuePairTypeSupport {
        QueuePairTypeSupport::from_bits_retain(self.0.supported_qpts)
    }
}

/// `struct ibv_rss_caps` — receive side scaling: the device distributes packets among queues by a hash.
#[doc(alias = "ibv_rss_caps")]
#[derive(Clone, Copy, Debug)]
pub struct RssCapabilities(ibv_rss_caps);

impl RssCapabilities {
    pub(super) fn from_raw(raw: ibv_rss_caps) -> Self {
        Self(raw)
    }

    /// `supported_qpts`: the supported queue pair types.
    pub fn supported_qp_types(&self) -> QueuePairTypeSupport {
        QueuePairTypeSupport::from_bits_retain(self.0.supported_qpts)
    }

    /// `max_rwq_indirection_tables`: the maximum number of indirection tables.
    pub fn max_rwq_indirection_tables(&self) -> u32 {
        self.0.max_rwq_indirection_tables
    }

    /// `max_rwq_indirection_table_size`: the maximum number of queues in a table.
    pub fn max_rwq_indirection_table_size(&self) -> u32 {
        self.0.max_rwq_indirection_table_size
    }

    /// `rx_hash_fields_mask`: the packet fields that can be hashed.
    pub fn rx_hash_fields(&self) -> RxHashFields {
        RxHashFields::from_bits_retain(self.0.rx_hash_fields_mask)
    }

    /// `rx_hash_function`: the supported hash functions.
    pub fn rx_hash_function(&self) -> RxHashFunctions {
        RxHashFunctions::from_bits_retain(self.0.rx_hash_function)
    }
}

/// `struct ibv_packet_pacing_caps` — limiting the send rate.
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

    /// `qp_rate_limit_max`: the highest rate, in kbit/s. It is 0 if rate limits are unsupported.
    pub fn qp_rate_limit_max(&self) -> u32 {
        self.0.qp_rate_limit_max
    }

    /// `supported_qpts`: the supported queue pair types.
    pub fn supported_qp_types(&self) -> QueuePairTypeSupport {
        QueuePairTypeSupport::from_bits_retain(self.0.supported_qpts)
    }
}

/// `struct ibv_tm_caps` — tag matching: the device selects the receive for each message.
#[doc(alias = "ibv_tm_caps")]
#[derive(Clone, Copy, Debug)]
pub struct TagMatchingCapabilities(ibv_tm_caps);

impl TagMatchingCapabilities {
    pub(super) fn from_raw(raw: ibv_tm_caps) -> Self {
        Self(raw)
    }

    /// Whether the device supports tag matching.
    pub fn is_supported(&self) -> bool {
        self.0.max_num_tags != 0
    }

    /// `max_rndv_hdr_size`: the largest header of a rendezvous request, in bytes.
    pub fn max_rndv_hdr_size(&self) -> u32 {
        self.0.max_rndv_hdr_size
    }

    /// `max_num_tags`: the maximum number of tagged receives in a queue.
    pub fn max_num_tags(&self) -> u32 {
        self.0.max_num_tags
    }

    /// `flags`: the supported transports.
    pub fn flags(&self) -> TagMatchingFlags {
        TagMatchingFlags::from_bits_retain(self.0.flags)
    }

    /// `max_ops`: the maximum number of outstanding list operations.
    pub fn max_ops(&self) -> u32 {
        self.0.max_ops
    }

    /// `max_sge`: the maximum number of scatter entries of a tagged receive.
    pub fn max_sge(&self) -> u32 {
        self.0.max_sge
    }
}

/// `struct ibv_cq_moderation_caps` — delaying completion events.
#[doc(alias = "ibv_cq_moderation_caps")]
#[derive(Clone, Copy, Debug)]
pub struct CompletionModerationCapabilities(ibv_cq_moderation_caps);

impl CompletionModerationCapabilities {
    pub(super) fn from_raw(raw: ibv_cq_moderation_caps) -> Self {
        Self(raw)
    }

    /// `max_cq_count`: the maximum number of completions for which an event can be delayed. It is 0 if moderation is
    /// unsupported.
    pub fn max_cq_count(&self) -> u16 {
        self.0.max_cq_count
    }

    /// `max_cq_period`: the longest delay of an event, in microseconds.
    pub fn max_cq_period(&self) -> u16 {
        self.0.max_cq_period
    }
}

/// `struct ibv_pci_atomic_caps` — the sizes of the atomic operations that the device can execute over PCI Express.
#[doc(alias = "ibv_pci_atomic_caps")]
#[derive(Clone, Copy, Debug)]
pub struct PciAtomicCapabilities(ibv_pci_atomic_caps);

impl PciAtomicCapabilities {
    pub(super) fn from_raw(raw: ibv_pci_atomic_caps) -> Self {
        Self(raw)
    }

    /// `fetch_add`: the supported sizes of fetch-and-add.
    pub fn fetch_add(&self) -> PciAtomicOperationSize {
        PciAtomicOperationSize::from_bits_retain(self.0.fetch_add)
    }

    /// `swap`: the supported sizes of swap.
    pub fn swap(&self) -> PciAtomicOperationSize {
        PciAtomicOperationSize::from_bits_retain(self.0.swap)
    }

    /// `compare_swap`: the supported sizes of compare-and-swap.
    pub fn compare_swap(&self) -> PciAtomicOperationSize {
        PciAtomicOperationSize::from_bits_retain(self.0.compare_swap)
    }
}
