//! `struct ibv_qp_attr`, with the mask of what was set.

use std::{fmt, mem};

use rdma_mummy_sys::{ibv_mig_state, ibv_mtu, ibv_qp_attr, ibv_qp_state};

use super::{PathMigrationState, QueuePairAttributeMask as Mask, QueuePairCapabilities, QueuePairState};
use crate::ibverbs::AccessFlags;
use crate::ibverbs::address::AddressHandleAttribute;
use crate::ibverbs::device_context::Mtu;

/// Attributes of a queue pair: what to set with [`modify`](super::QueuePair::modify), or what
/// [`query`](super::QueuePair::query) found. Each setter marks its attribute in the mask.
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy)]
pub struct QueuePairAttribute {
    attr: ibv_qp_attr,
    mask: Mask,
}

impl Default for QueuePairAttribute {
    fn default() -> Self {
        Self::new()
    }
}

impl QueuePairAttribute {
    /// No attribute set.
    pub fn new() -> Self {
        // SAFETY: all-zero is a legal ibv_qp_attr: it has integers alone.
        Self { attr: unsafe { mem::zeroed() }, mask: Mask::empty() }
    }

    /// What a query filled in.
    pub(crate) fn from_raw(attr: ibv_qp_attr, mask: Mask) -> Self {
        Self { attr, mask }
    }

    /// The C struct.
    pub(crate) fn raw(&self) -> &ibv_qp_attr {
        &self.attr
    }

    /// Which attributes are set.
    pub fn mask(&self) -> Mask {
        self.mask
    }

    /// The state to go to.
    pub fn setup_state(&mut self, state: QueuePairState) -> &mut Self {
        self.attr.qp_state = ibv_qp_state(state.raw());
        self.set(Mask::State)
    }

    /// The state.
    pub fn state(&self) -> QueuePairState {
        QueuePairState::from_raw(self.attr.qp_state.0)
    }

    /// The state that the queue pair is taken to be in.
    pub fn setup_current_state(&mut self, state: QueuePairState) -> &mut Self {
        self.attr.cur_qp_state = ibv_qp_state(state.raw());
        self.set(Mask::CurrentState)
    }

    /// The state that the queue pair is taken to be in.
    pub fn current_state(&self) -> QueuePairState {
        QueuePairState::from_raw(self.attr.cur_qp_state.0)
    }

    /// Whether there is an event (`IBV_EVENT_SQ_DRAINED`) once the send queue has drained; set with the transition to
    /// [`SendQueueDrain`](QueuePairState::SendQueueDrain).
    pub fn setup_sqd_async_notify(&mut self, notify: bool) -> &mut Self {
        self.attr.en_sqd_async_notify = notify.into();
        self.set(Mask::EnableSendQueueDrainedAsyncNotify)
    }

    /// Whether there is an event once the send queue has drained.
    pub fn sqd_async_notify(&self) -> bool {
        self.attr.en_sqd_async_notify != 0
    }

    /// Index into the port's table of partition keys; 0 is the default partition.
    pub fn setup_pkey_index(&mut self, pkey_index: u16) -> &mut Self {
        self.attr.pkey_index = pkey_index;
        self.set(Mask::PartitionKeyIndex)
    }

    /// Index into the port's table of partition keys.
    pub fn pkey_index(&self) -> u16 {
        self.attr.pkey_index
    }

    /// The port, from 1.
    pub fn setup_port(&mut self, port: u8) -> &mut Self {
        self.attr.port_num = port;
        self.set(Mask::Port)
    }

    /// The port, from 1.
    pub fn port(&self) -> u8 {
        self.attr.port_num
    }

    /// What the peer may do through this queue pair.
    pub fn setup_access_flags(&mut self, access_flags: AccessFlags) -> &mut Self {
        self.attr.qp_access_flags = access_flags.bits();
        self.set(Mask::AccessFlags)
    }

    /// What the peer may do through this queue pair.
    pub fn access_flags(&self) -> AccessFlags {
        AccessFlags::from_bits_retain(self.attr.qp_access_flags)
    }

    /// The largest payload of a packet on the way; at most the active MTU of both ports.
    pub fn setup_path_mtu(&mut self, path_mtu: Mtu) -> &mut Self {
        self.attr.path_mtu = ibv_mtu(path_mtu.raw());
        self.set(Mask::PathMtu)
    }

    /// The largest payload of a packet on the way.
    pub fn path_mtu(&self) -> Mtu {
        Mtu::from_raw(self.attr.path_mtu.0)
    }

    /// The peer's queue pair, 24 bits.
    pub fn setup_dest_qp_num(&mut self, dest_qp_num: u32) -> &mut Self {
        self.attr.dest_qp_num = dest_qp_num;
        self.set(Mask::DestinationQueuePairNumber)
    }

    /// The peer's queue pair.
    pub fn dest_qp_num(&self) -> u32 {
        self.attr.dest_qp_num
    }

    /// The first packet sequence number to expect, 24 bits; the peer's `sq_psn`.
    pub fn setup_rq_psn(&mut self, rq_psn: u32) -> &mut Self {
        self.attr.rq_psn = rq_psn;
        self.set(Mask::ReceiveQueuePacketSequenceNumber)
    }

    /// The next packet sequence number to expect.
    pub fn rq_psn(&self) -> u32 {
        self.attr.rq_psn
    }

    /// The first packet sequence number to send, 24 bits; the peer's `rq_psn`.
    pub fn setup_sq_psn(&mut self, sq_psn: u32) -> &mut Self {
        self.attr.sq_psn = sq_psn;
        self.set(Mask::SendQueuePacketSequenceNumber)
    }

    /// The next packet sequence number to send.
    pub fn sq_psn(&self) -> u32 {
        self.attr.sq_psn
    }

    /// Outstanding reads and atomics of this side; at most the peer's `max_dest_read_atomic`.
    pub fn setup_max_read_atomic(&mut self, max_read_atomic: u8) -> &mut Self {
        self.attr.max_rd_atomic = max_read_atomic;
        self.set(Mask::MaxReadAtomic)
    }

    /// Outstanding reads and atomics of this side.
    pub fn max_read_atomic(&self) -> u8 {
        self.attr.max_rd_atomic
    }

    /// Outstanding reads and atomics of the peer that this side holds resources for.
    pub fn setup_max_dest_read_atomic(&mut self, max_dest_read_atomic: u8) -> &mut Self {
        self.attr.max_dest_rd_atomic = max_dest_read_atomic;
        self.set(Mask::MaxDestinationReadAtomic)
    }

    /// Outstanding reads and atomics of the peer that this side holds resources for.
    pub fn max_dest_read_atomic(&self) -> u8 {
        self.attr.max_dest_rd_atomic
    }

    /// How long a peer is asked to wait when no receive is posted, as the code of the specification (0 to 31): 12 is
    /// 0.64 ms, 0 the longest, 655.36 ms.
    pub fn setup_min_rnr_timer(&mut self, min_rnr_timer: u8) -> &mut Self {
        self.attr.min_rnr_timer = min_rnr_timer;
        self.set(Mask::MinResponderNotReadyTimer)
    }

    /// The code of the time that a peer is asked to wait when no receive is posted.
    pub fn min_rnr_timer(&self) -> u8 {
        self.attr.min_rnr_timer
    }

    /// How long to wait for an acknowledgement, as a code (0 to 31): 4.096 us times 2 to the power of it; 14 is 67 ms, 0
    /// waits for ever.
    pub fn setup_timeout(&mut self, timeout: u8) -> &mut Self {
        self.attr.timeout = timeout;
        self.set(Mask::Timeout)
    }

    /// The code of the time to wait for an acknowledgement.
    pub fn timeout(&self) -> u8 {
        self.attr.timeout
    }

    /// How often a request is sent again without an acknowledgement, 0 to 7.
    pub fn setup_retry_cnt(&mut self, retry_cnt: u8) -> &mut Self {
        self.attr.retry_cnt = retry_cnt;
        self.set(Mask::RetryCount)
    }

    /// How often a request is sent again without an acknowledgement.
    pub fn retry_cnt(&self) -> u8 {
        self.attr.retry_cnt
    }

    /// How often a request is sent again while the peer has no receive posted, 0 to 7; 7 is without end.
    pub fn setup_rnr_retry(&mut self, rnr_retry: u8) -> &mut Self {
        self.attr.rnr_retry = rnr_retry;
        self.set(Mask::ResponderNotReadyRetryCount)
    }

    /// How often a request is sent again while the peer has no receive posted.
    pub fn rnr_retry(&self) -> u8 {
        self.attr.rnr_retry
    }

    /// The way to the peer.
    pub fn setup_address_vector(&mut self, address: &AddressHandleAttribute) -> &mut Self {
        self.attr.ah_attr = *address.as_raw();
        self.set(Mask::AddressVector)
    }

    /// The way to the peer.
    pub fn address_vector(&self) -> AddressHandleAttribute {
        AddressHandleAttribute::from_raw(self.attr.ah_attr)
    }

    /// The Q_Key of datagrams: those that come with another are dropped.
    pub fn setup_qkey(&mut self, qkey: u32) -> &mut Self {
        self.attr.qkey = qkey;
        self.set(Mask::QueueKey)
    }

    /// The Q_Key of datagrams.
    pub fn qkey(&self) -> u32 {
        self.attr.qkey
    }

    /// The way that the queue pair migrates to: the path, the port of this side, the index of the partition key, and the
    /// code of the time to wait for an acknowledgement (as in [`setup_timeout`](Self::setup_timeout)). C has the four in
    /// one attribute.
    pub fn setup_alternate_path(
        &mut self,
        address: &AddressHandleAttribute,
        port: u8,
        pkey_index: u16,
        timeout: u8,
    ) -> &mut Self {
        self.attr.alt_ah_attr = *address.as_raw();
        self.attr.alt_port_num = port;
        self.attr.alt_pkey_index = pkey_index;
        self.attr.alt_timeout = timeout;
        self.set(Mask::AlternatePath)
    }

    /// The way that the queue pair migrates to.
    pub fn alternate_address_vector(&self) -> AddressHandleAttribute {
        AddressHandleAttribute::from_raw(self.attr.alt_ah_attr)
    }

    /// The port of this side on the way that the queue pair migrates to.
    pub fn alternate_port(&self) -> u8 {
        self.attr.alt_port_num
    }

    /// Index into the table of partition keys of the port that the queue pair migrates to.
    pub fn alternate_pkey_index(&self) -> u16 {
        self.attr.alt_pkey_index
    }

    /// The code of the time to wait for an acknowledgement on the way that the queue pair migrates to.
    pub fn alternate_timeout(&self) -> u8 {
        self.attr.alt_timeout
    }

    /// Arms path migration ([`Rearm`](PathMigrationState::Rearm)) or starts it ([`Migrated`](PathMigrationState::Migrated)).
    pub fn setup_path_mig_state(&mut self, state: PathMigrationState) -> &mut Self {
        self.attr.path_mig_state = ibv_mig_state(state.raw());
        self.set(Mask::PathMigrationState)
    }

    /// Where path migration stands.
    pub fn path_mig_state(&self) -> PathMigrationState {
        PathMigrationState::from_raw(self.attr.path_mig_state.0)
    }

    /// New depths, for a device that can resize a queue pair
    /// ([`ResizeMaxWorkRequest`](crate::ibverbs::device_context::DeviceCapabilityFlags::ResizeMaxWorkRequest)). A batch of
    /// this crate holds as much as the queue pair was built for, also after it has grown.
    pub fn setup_capabilities(&mut self, capabilities: QueuePairCapabilities) -> &mut Self {
        self.attr.cap = capabilities.into();
        self.set(Mask::Capabilities)
    }

    /// The depths.
    pub fn capabilities(&self) -> QueuePairCapabilities {
        self.attr.cap.into()
    }

    /// Packet pacing: kilobits per second, 0 for no limit. See also
    /// [`modify_rate_limit`](super::QueuePair::modify_rate_limit).
    pub fn setup_rate_limit(&mut self, rate_limit: u32) -> &mut Self {
        self.attr.rate_limit = rate_limit;
        self.set(Mask::RateLimit)
    }

    /// Packet pacing: kilobits per second, 0 for no limit.
    pub fn rate_limit(&self) -> u32 {
        self.attr.rate_limit
    }

    fn set(&mut self, attribute: Mask) -> &mut Self {
        self.mask |= attribute;
        self
    }
}

impl fmt::Debug for QueuePairAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("QueuePairAttribute");
        let mut field = |flag, name, value: &dyn fmt::Debug| {
            if self.mask.contains(flag) {
                out.field(name, value);
            }
        };
        field(Mask::State, "state", &self.state());
        field(Mask::CurrentState, "current_state", &self.current_state());
        field(Mask::EnableSendQueueDrainedAsyncNotify, "sqd_async_notify", &self.sqd_async_notify());
        field(Mask::PartitionKeyIndex, "pkey_index", &self.pkey_index());
        field(Mask::Port, "port", &self.port());
        field(Mask::AccessFlags, "access_flags", &self.access_flags());
        field(Mask::QueueKey, "qkey", &self.qkey());
        field(Mask::PathMtu, "path_mtu", &self.path_mtu());
        field(Mask::DestinationQueuePairNumber, "dest_qp_num", &self.dest_qp_num());
        field(Mask::ReceiveQueuePacketSequenceNumber, "rq_psn", &self.rq_psn());
        field(Mask::SendQueuePacketSequenceNumber, "sq_psn", &self.sq_psn());
        field(Mask::MaxReadAtomic, "max_read_atomic", &self.max_read_atomic());
        field(Mask::MaxDestinationReadAtomic, "max_dest_read_atomic", &self.max_dest_read_atomic());
        field(Mask::MinResponderNotReadyTimer, "min_rnr_timer", &self.min_rnr_timer());
        field(Mask::Timeout, "timeout", &self.timeout());
        field(Mask::RetryCount, "retry_cnt", &self.retry_cnt());
        field(Mask::ResponderNotReadyRetryCount, "rnr_retry", &self.rnr_retry());
        field(Mask::AddressVector, "address_vector", &self.address_vector());
        field(Mask::AlternatePath, "alternate_address_vector", &self.alternate_address_vector());
        field(Mask::AlternatePath, "alternate_port", &self.alternate_port());
        field(Mask::AlternatePath, "alternate_pkey_index", &self.alternate_pkey_index());
        field(Mask::AlternatePath, "alternate_timeout", &self.alternate_timeout());
        field(Mask::PathMigrationState, "path_mig_state", &self.path_mig_state());
        field(Mask::Capabilities, "capabilities", &self.capabilities());
        field(Mask::RateLimit, "rate_limit", &self.rate_limit());
        out.finish_non_exhaustive()
    }
}
