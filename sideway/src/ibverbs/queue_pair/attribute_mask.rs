//! The names of a queue pair's attributes.

use std::fmt;

use rdma_mummy_sys::ibv_qp_attr_mask as raw;

bitflags::bitflags! {
    /// `enum ibv_qp_attr_mask`: a set of attributes. It is printed as a list of names, such as `PathMtu,
    /// DestinationQueuePairNumber`.
    #[doc(alias = "ibv_qp_attr_mask")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QueuePairAttributeMask: u32 {
        /// The new state.
        const State = raw::IBV_QP_STATE.0;
        /// The state that the verb assumes the queue pair to be in.
        const CurrentState = raw::IBV_QP_CUR_STATE.0;
        /// Whether an event reports that the send queue has drained.
        const EnableSendQueueDrainedAsyncNotify = raw::IBV_QP_EN_SQD_ASYNC_NOTIFY.0;
        /// The peer's access rights.
        const AccessFlags = raw::IBV_QP_ACCESS_FLAGS.0;
        /// The index into the port's table of partition keys.
        const PartitionKeyIndex = raw::IBV_QP_PKEY_INDEX.0;
        /// The port.
        const Port = raw::IBV_QP_PORT.0;
        /// The Q_Key of datagrams.
        const QueueKey = raw::IBV_QP_QKEY.0;
        /// The path to the peer.
        const AddressVector = raw::IBV_QP_AV.0;
        /// The path MTU.
        const PathMtu = raw::IBV_QP_PATH_MTU.0;
        /// The local ACK timeout.
        const Timeout = raw::IBV_QP_TIMEOUT.0;
        /// How often a request is retransmitted if the peer does not acknowledge it.
        const RetryCount = raw::IBV_QP_RETRY_CNT.0;
        /// The number of retries while the peer has no receive posted.
        const ResponderNotReadyRetryCount = raw::IBV_QP_RNR_RETRY.0;
        /// The first packet sequence number that the queue pair expects.
        const ReceiveQueuePacketSequenceNumber = raw::IBV_QP_RQ_PSN.0;
        /// The maximum number of outstanding local reads and atomics.
        const MaxReadAtomic = raw::IBV_QP_MAX_QP_RD_ATOMIC.0;
        /// The alternate path.
        const AlternatePath = raw::IBV_QP_ALT_PATH.0;
        /// The time that a peer must wait before it retries a message for which no receive was posted.
        const MinResponderNotReadyTimer = raw::IBV_QP_MIN_RNR_TIMER.0;
        /// The first packet sequence number that the queue pair sends.
        const SendQueuePacketSequenceNumber = raw::IBV_QP_SQ_PSN.0;
        /// The maximum number of the peer's outstanding reads and atomics.
        const MaxDestinationReadAtomic = raw::IBV_QP_MAX_DEST_RD_ATOMIC.0;
        /// The state of path migration.
        const PathMigrationState = raw::IBV_QP_PATH_MIG_STATE.0;
        /// Capacities.
        const Capabilities = raw::IBV_QP_CAP.0;
        /// The peer's queue pair.
        const DestinationQueuePairNumber = raw::IBV_QP_DEST_QPN.0;
        /// Packet pacing.
        const RateLimit = raw::IBV_QP_RATE_LIMIT.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

impl fmt::Display for QueuePairAttributeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut separator = "";
        for (name, flag) in self.iter_names() {
            write!(f, "{separator}{name}")?;
            separator = ", ";
            rest.remove(flag);
        }
        if !rest.is_empty() {
            write!(f, "{separator}unknown ({:#x})", rest.bits())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_lists_names_and_unknown_bits() {
        let mask = QueuePairAttributeMask::Port | QueuePairAttributeMask::PathMtu;
        assert_eq!(mask.to_string(), "Port, PathMtu");
        let unknown = mask | QueuePairAttributeMask::from_bits_retain(1 << 31);
        assert_eq!(unknown.to_string(), "Port, PathMtu, unknown (0x80000000)");
        assert_eq!(QueuePairAttributeMask::empty().to_string(), "");
    }
}
