//! `struct ibv_qp_attr`, with its attribute mask.

use std::{fmt, mem};

use rdma_mummy_sys::{ibv_mig_state, ibv_mtu, ibv_qp_attr, ibv_qp_state};

use super::{PathMigrationState, QueuePairAttributeMask as Mask, QueuePairCapabilities, QueuePairState};
use crate::ibverbs::AccessFlags;
use crate::ibverbs::address::AddressHandleAttribute;
use crate::ibverbs::device_context::Mtu;

/// Attributes of a queue pair. They are either set with [`modify`](super::QueuePair::modify), or returned by
/// [`query`](super::QueuePair::query). Each setter also sets the attribute's mask bit.
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
    /// Creates attributes with an empty mask.
    pub fn new() -> Self {
        // SAFETY: all zeros are a valid ibv_qp_attr, which has only integers.
        Self { attr: unsafe { mem::zeroed() }, mask: Mask::empty() }
    }

    /// Wraps the result of a query.
    pub(crate) fn from_raw(attr: ibv_qp_attr, mask: Mask) -> Self {
        Self { attr, mask }
    }

    /// Returns the C struct.
    pub(crate) fn raw(&self) -> &ibv_qp_attr {
        &self.attr
    }

    /// Returns the mask of set attributes.
    pub fn mask(&self) -> Mask {
        self.mask
    }

    /// Sets the new state.
    pub fn setup_state(&mut self, state: QueuePairState) -> &mut Self {
        self.attr.qp_state = ibv_qp_state(state.raw());
        self.set(Mask::State)
    }

    /// Returns the state.
    pub fn state(&self) -> QueuePairState {
        QueuePairState::from_raw(self.attr.qp_state.0)
    }

    /// Sets the state that the verb assumes the queue pair to be in.
    pub fn setup_current_state(&mut self, state: QueuePairState) -> &mut Self {
        self.attr.cur_qp_state = ibv_qp_state(state.raw());
        self.set(Mask::CurrentState)
    }

    /// Returns the state that the verb assumes the queue pair to be in.
    pub fn current_state(&self) -> QueuePairState {
        QueuePairState::from_raw(self.attr.cur_qp_state.0)
    }

    /// Sets whether an event (`IBV_EVENT_SQ_DRAINED`) reports that the send queue has drained. This is used in the
    /// transition to [`SendQueueDrain`](QueuePairState::SendQueueDrain).
    pub fn setup_sqd_async_notify(&mut self, notify: bool) -> &mut Self {
        self.attr.en_sqd_async_notify = notify.into();
        self.set(Mask::EnableSendQueueDrainedAsyncNotify)
    }

    /// Whether an event reports that the send queue has drained.
    pub fn sqd_async_notify(&self) -> bool {
        self.attr.en_sqd_async_notify != 0
    }

    /// Sets the index in the port's table of partition keys. Index 0 is usually the default partition.
    pub fn setup_pkey_index(&mut self, pkey_index: u16) -> &mut Self {
        self.attr.pkey_index = pkey_index;
        self.set(Mask::PartitionKeyIndex)
    }

    /// Returns the index in the port's table of partition keys.
    pub fn pkey_index(&self) -> u16 {
        self.attr.pkey_index
    }

    /// Sets the port, from 1.
    pub fn setup_port(&mut self, port: u8) -> &mut Self {
        self.attr.port_num = port;
        self.set(Mask::Port)
    }

    /// Returns the port, from 1.
    pub fn port(&self) -> u8 {
        self.attr.port_num
    }

    /// Sets the operations that the peer may execute through this queue pair.
    pub fn setup_access_flags(&mut self, access_flags: AccessFlags) -> &mut Self {
        self.attr.qp_access_flags = access_flags.bits();
        self.set(Mask::AccessFlags)
    }

    /// Returns the operations that the peer may execute through this queue pair.
    pub fn access_flags(&self) -> AccessFlags {
        AccessFlags::from_bits_retain(self.attr.qp_access_flags)
    }

    /// Sets the path MTU, which is the largest payload of a packet. It must not exceed the active MTU of either port.
    pub fn setup_path_mtu(&mut self, path_mtu: Mtu) -> &mut Self {
        self.attr.path_mtu = ibv_mtu(path_mtu.raw());
        self.set(Mask::PathMtu)
    }

    /// Returns the path MTU.
    pub fn path_mtu(&self) -> Mtu {
        Mtu::from_raw(self.attr.path_mtu.0)
    }

    /// Sets the peer's queue pair number, 24 bits.
    pub fn setup_dest_qp_num(&mut self, dest_qp_num: u32) -> &mut Self {
        self.attr.dest_qp_num = dest_qp_num;
        self.set(Mask::DestinationQueuePairNumber)
    }

    /// Returns the peer's queue pair number.
    pub fn dest_qp_num(&self) -> u32 {
        self.attr.dest_qp_num
    }

    /// Sets the first packet sequence number that this queue pair expects, 24 bits. It must equal the peer's `sq_psn`.
    pub fn setup_rq_psn(&mut self, rq_psn: u32) -> &mut Self {
        self.attr.rq_psn = rq_psn;
        self.set(Mask::ReceiveQueuePacketSequenceNumber)
    }

    /// Returns the next packet sequence number that this queue pair expects.
    pub fn rq_psn(&self) -> u32 {
        self.attr.rq_psn
    }

    /// Sets the first packet sequence number that this queue pair sends, 24 bits. It must equal the peer's `rq_psn`.
    pub fn setup_sq_psn(&mut self, sq_psn: u32) -> &mut Self {
        self.attr.sq_psn = sq_psn;
        self.set(Mask::SendQueuePacketSequenceNumber)
    }

    /// Returns the next packet sequence number that this queue pair sends.
    pub fn sq_psn(&self) -> u32 {
        self.attr.sq_psn
    }

    /// Sets the maximum number of outstanding local reads and atomics. It must not exceed the peer's
    /// `max_dest_read_atomic`.
    pub fn setup_max_read_atomic(&mut self, max_read_atomic: u8) -> &mut Self {
        self.attr.max_rd_atomic = max_read_atomic;
        self.set(Mask::MaxReadAtomic)
    }

    /// Returns the maximum number of outstanding local reads and atomics.
    pub fn max_read_atomic(&self) -> u8 {
        self.attr.max_rd_atomic
    }

    /// Sets the maximum number of the peer's outstanding reads and atomics for which this side has resources.
    pub fn setup_max_dest_read_atomic(&mut self, max_dest_read_atomic: u8) -> &mut Self {
        self.attr.max_dest_rd_atomic = max_dest_read_atomic;
        self.set(Mask::MaxDestinationReadAtomic)
    }

    /// Returns the maximum number of the peer's outstanding reads and atomics.
    pub fn max_dest_read_atomic(&self) -> u8 {
        self.attr.max_dest_rd_atomic
    }

    /// Sets the time that a peer must wait before it retries a message for which no receive was posted. The value is a
    /// code of the specification (0 to 31): 12 means 0.64 ms, and 0 means the longest time, 655.36 ms.
    pub fn setup_min_rnr_timer(&mut self, min_rnr_timer: u8) -> &mut Self {
        self.attr.min_rnr_timer = min_rnr_timer;
        self.set(Mask::MinResponderNotReadyTimer)
    }

    /// Returns the code of the time that a peer must wait before it retries a message for which no receive was posted.
    pub fn min_rnr_timer(&self) -> u8 {
        self.attr.min_rnr_timer
    }

    /// Sets the local ACK timeout as a code (0 to 31). The timeout is 4.096 us × 2^`timeout`, so 14 is 67 ms. The code
    /// 0 means that there is no timeout.
    pub fn setup_timeout(&mut self, timeout: u8) -> &mut Self {
        self.attr.timeout = timeout;
        self.set(Mask::Timeout)
    }

    /// Returns the code of the local ACK timeout.
    pub fn timeout(&self) -> u8 {
        self.attr.timeout
    }

    /// Sets how often a request is retransmitted if the peer does not acknowledge it, 0 to 7.
    pub fn setup_retry_cnt(&mut self, retry_cnt: u8) -> &mut Self {
        self.attr.retry_cnt = retry_cnt;
        self.set(Mask::RetryCount)
    }

    /// Returns how often a request is retransmitted if the peer does not acknowledge it.
    pub fn retry_cnt(&self) -> u8 {
        self.attr.retry_cnt
    }

    /// Sets the number of retries while the peer has no receive posted, 0 to 6. The value 7 means that there is no
    /// limit.
    pub fn setup_rnr_retry(&mut self, rnr_retry: u8) -> &mut Self {
        self.attr.rnr_retry = rnr_retry;
        self.set(Mask::ResponderNotReadyRetryCount)
    }

    /// Returns the number of retries while the peer has no receive posted.
    pub fn rnr_retry(&self) -> u8 {
        self.attr.rnr_retry
    }

    /// Sets the path to the peer.
    pub fn setup_address_vector(&mut self, address: &AddressHandleAttribute) -> &mut Self {
        self.attr.ah_attr = *address.as_raw();
        self.set(Mask::AddressVector)
    }

    /// Returns the path to the peer.
    pub fn address_vector(&self) -> AddressHandleAttribute {
        AddressHandleAttribute::from_raw(self.attr.ah_attr)
    }

    /// Sets the Q_Key of the queue pair. The device drops datagrams that arrive with a different Q_Key.
    pub fn setup_qkey(&mut self, qkey: u32) -> &mut Self {
        self.attr.qkey = qkey;
        self.set(Mask::QueueKey)
    }

    /// Returns the Q_Key of datagrams.
    pub fn qkey(&self) -> u32 {
        self.attr.qkey
    }

    /// Sets the alternate path for migration: the path, the local port, the index of the partition key, and the code of
    /// the local ACK timeout (as in [`setup_timeout`](Self::setup_timeout)). C combines these four values in one
    /// attribute.
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

    /// Returns the alternate path.
    pub fn alternate_address_vector(&self) -> AddressHandleAttribute {
        AddressHandleAttribute::from_raw(self.attr.alt_ah_attr)
    }

    /// Returns the local port of the alternate path.
    pub fn alternate_port(&self) -> u8 {
        self.attr.alt_port_num
    }

    /// Returns the index in the partition key table of the alternate path's port.
    pub fn alternate_pkey_index(&self) -> u16 {
        self.attr.alt_pkey_index
    }

    /// Returns the code of the local ACK timeout on the alternate path.
    pub fn alternate_timeout(&self) -> u8 {
        self.attr.alt_timeout
    }

    /// Arms path migration ([`Rearm`](PathMigrationState::Rearm)) or starts it
    /// ([`Migrated`](PathMigrationState::Migrated)).
    pub fn setup_path_mig_state(&mut self, state: PathMigrationState) -> &mut Self {
        self.attr.path_mig_state = ibv_mig_state(state.raw());
        self.set(Mask::PathMigrationState)
    }

    /// Returns the state of path migration.
    pub fn path_mig_state(&self) -> PathMigrationState {
        PathMigrationState::from_raw(self.attr.path_mig_state.0)
    }

    /// Sets new capacities, for a device that can resize a queue pair
    /// ([`ResizeMaxWorkRequest`](crate::ibverbs::device_context::DeviceCapabilityFlags::ResizeMaxWorkRequest)). Even
    /// after the queue pair has grown, a batch holds at most as many requests as the queue pair was built for.
    pub fn setup_capabilities(&mut self, capabilities: QueuePairCapabilities) -> &mut Self {
        self.attr.cap = capabilities.into();
        self.set(Mask::Capabilities)
    }

    /// Returns the capacities.
    pub fn capabilities(&self) -> QueuePairCapabilities {
        self.attr.cap.into()
    }

    /// Limits the send rate (packet pacing), in kbit/s. The value 0 removes the limit. See also
    /// [`modify_rate_limit`](super::QueuePair::modify_rate_limit).
    pub fn setup_rate_limit(&mut self, rate_limit: u32) -> &mut Self {
        self.attr.rate_limit = rate_limit;
        self.set(Mask::RateLimit)
    }

    /// Returns the limit of the send rate (packet pacing), in kbit/s, or 0 if there is no limit.
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
