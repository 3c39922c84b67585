//! What can happen.

use rdma_mummy_sys::ibv_event_type as raw;

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_event_type`: InfiniBand specification, volume 1, section 11.6.3. Printed, it says what `ibv_event_type_str` says.
    #[doc(alias = "ibv_event_type")]
    #[doc(alias = "ibv_event_type_str")]
    pub enum AsyncEventType {
        /// A completion queue overran or is broken otherwise. What is completed on it is lost; its queue pairs have failed or
        /// will.
        CompletionQueueError = raw::IBV_EVENT_CQ_ERR.0 => "CQ error",
        /// A queue pair failed, and could not report it with a completion.
        QueuePairFatal = raw::IBV_EVENT_QP_FATAL.0 => "QP fatal error",
        /// A responder got a request that it cannot understand, and went into the error state.
        QueuePairRequestError = raw::IBV_EVENT_QP_REQ_ERR.0 => "QP received an invalid request",
        /// A responder got a request for memory that it may not touch, and went into the error state.
        QueuePairAccessError = raw::IBV_EVENT_QP_ACCESS_ERR.0 => "QP access violation",
        /// A queue pair that is ready to receive got its first packet: the peer is ready to send.
        CommunicationEstablished = raw::IBV_EVENT_COMM_EST.0 => "communication established",
        /// All sends that were begun before the queue pair went to
        /// [`SendQueueDrain`](crate::ibverbs::queue_pair::QueuePairState::SendQueueDrain) are done: attributes may be changed.
        SendQueueDrained = raw::IBV_EVENT_SQ_DRAINED.0 => "send queue drained",
        /// The connection uses its alternate path.
        PathMigrated = raw::IBV_EVENT_PATH_MIG.0 => "path migrated",
        /// The connection was to change to its alternate path, and the peer did not.
        PathMigrationError = raw::IBV_EVENT_PATH_MIG_ERR.0 => "path migration failed",
        /// The device failed or was pulled out: close everything on it.
        DeviceFatal = raw::IBV_EVENT_DEVICE_FATAL.0 => "device fatal error",
        /// A port became active.
        PortActive = raw::IBV_EVENT_PORT_ACTIVE.0 => "port active",
        /// A port went down. Connections may survive that, if it comes back before their retries are used up.
        PortError = raw::IBV_EVENT_PORT_ERR.0 => "port error",
        /// The subnet manager gave a port another LID.
        LidChange = raw::IBV_EVENT_LID_CHANGE.0 => "LID change",
        /// The table of partition keys of a port changed: indices into it may mean something else.
        PkeyChange = raw::IBV_EVENT_PKEY_CHANGE.0 => "P_Key change",
        /// Another subnet manager took over.
        SubnetManagerChange = raw::IBV_EVENT_SM_CHANGE.0 => "subnet manager change",
        /// A shared receive queue failed: no queue pair gets a receive from it any more.
        SharedReceiveQueueError = raw::IBV_EVENT_SRQ_ERR.0 => "SRQ error",
        /// Fewer receives are left in a shared receive queue than the limit it was armed with. It is disarmed by that.
        SharedReceiveQueueLimitReached = raw::IBV_EVENT_SRQ_LIMIT_REACHED.0 => "SRQ limit reached",
        /// A queue pair in the error state has taken its last receive from its shared receive queue: once its completion queue
        /// is empty, nothing of it is outstanding.
        LastWorkRequestReached = raw::IBV_EVENT_QP_LAST_WQE_REACHED.0 => "last WQE reached",
        /// The subnet manager has lost what was registered with it, multicast joins among it.
        ClientReregister = raw::IBV_EVENT_CLIENT_REREGISTER.0 => "clients must register again",
        /// The table of GIDs of a port changed: an address came or went.
        GidChange = raw::IBV_EVENT_GID_CHANGE.0 => "GID table change",
        /// A work queue failed.
        WorkQueueFatal = raw::IBV_EVENT_WQ_FATAL.0 => "WQ fatal error",
    }
}

/// What an event is about: which member of the union of `struct ibv_async_event` was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    CompletionQueue,
    QueuePair,
    SharedReceiveQueue,
    WorkQueue,
    Port,
    Device,
    /// The type is newer than this crate: no member may be read.
    Unknown,
}

impl AsyncEventType {
    pub(super) fn subject(self) -> Subject {
        match self {
            Self::CompletionQueueError => Subject::CompletionQueue,
            Self::QueuePairFatal
            | Self::QueuePairRequestError
            | Self::QueuePairAccessError
            | Self::CommunicationEstablished
            | Self::SendQueueDrained
            | Self::PathMigrated
            | Self::PathMigrationError
            | Self::LastWorkRequestReached => Subject::QueuePair,
            Self::SharedReceiveQueueError | Self::SharedReceiveQueueLimitReached => Subject::SharedReceiveQueue,
            Self::WorkQueueFatal => Subject::WorkQueue,
            Self::PortActive
            | Self::PortError
            | Self::LidChange
            | Self::PkeyChange
            | Self::SubnetManagerChange
            | Self::ClientReregister
            | Self::GidChange => Subject::Port,
            Self::DeviceFatal => Subject::Device,
            _ => Subject::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn the_words_are_those_of_the_c_function() {
        for &event in AsyncEventType::KNOWN {
            // SAFETY: the function gives a string that lasts for ever.
            let words = unsafe { CStr::from_ptr(rdma_mummy_sys::ibv_event_type_str(raw(event.raw()))) };
            assert_eq!(words.to_str().unwrap(), event.to_string());
        }
    }

    #[test]
    fn every_type_has_a_subject_and_unknown_ones_have_none() {
        assert_eq!(AsyncEventType::KNOWN.len(), 20);
        for &event in AsyncEventType::KNOWN {
            assert_ne!(event.subject(), Subject::Unknown, "{event:?}");
        }
        for number in [20, 0x7fff_ffff, u32::MAX] {
            assert_eq!(AsyncEventType::from_raw(number).subject(), Subject::Unknown);
        }
    }
}
