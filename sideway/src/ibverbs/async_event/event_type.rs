//! Types of asynchronous events.

use rdma_mummy_sys::ibv_event_type as raw;

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_event_type`: the type of an asynchronous event (InfiniBand specification, volume 1, section 11.6.3).
    /// `Display` prints the text of `ibv_event_type_str`.
    #[doc(alias = "ibv_event_type")]
    #[doc(alias = "ibv_event_type_str")]
    pub enum AsyncEventType {
        /// A completion queue overran or failed. Its completions are lost. The queue pairs that use it have failed or
        /// will fail.
        CompletionQueueError = raw::IBV_EVENT_CQ_ERR.0 => "CQ error",
        /// A queue pair failed, and could not report the failure with a completion.
        QueuePairFatal = raw::IBV_EVENT_QP_FATAL.0 => "QP fatal error",
        /// A responder received an invalid request, and entered the Error state.
        QueuePairRequestError = raw::IBV_EVENT_QP_REQ_ERR.0 => "QP received an invalid request",
        /// A responder received a request for memory that the requester has no right to access, and entered the Error
        /// state.
        QueuePairAccessError = raw::IBV_EVENT_QP_ACCESS_ERR.0 => "QP access violation",
        /// A queue pair in ReadyToReceive received its first packet, so the peer is ready to send.
        CommunicationEstablished = raw::IBV_EVENT_COMM_EST.0 => "communication established",
        /// All sends begun before the queue pair entered
        /// [`SendQueueDrain`](crate::ibverbs::queue_pair::QueuePairState::SendQueueDrain) have completed. The
        /// attributes of the queue pair may now be changed.
        SendQueueDrained = raw::IBV_EVENT_SQ_DRAINED.0 => "send queue drained",
        /// The connection uses its alternate path.
        PathMigrated = raw::IBV_EVENT_PATH_MIG.0 => "path migrated",
        /// Migration of the connection to its alternate path failed.
        PathMigrationError = raw::IBV_EVENT_PATH_MIG_ERR.0 => "path migration failed",
        /// The device failed or was removed. The program must close all objects of the device.
        DeviceFatal = raw::IBV_EVENT_DEVICE_FATAL.0 => "device fatal error",
        /// A port became active.
        PortActive = raw::IBV_EVENT_PORT_ACTIVE.0 => "port active",
        /// A port went down. Connections survive if the port comes back before their retries are exhausted.
        PortError = raw::IBV_EVENT_PORT_ERR.0 => "port error",
        /// The subnet manager changed a port's LID.
        LidChange = raw::IBV_EVENT_LID_CHANGE.0 => "LID change",
        /// A port's table of partition keys changed. The program must look up the indices again.
        PkeyChange = raw::IBV_EVENT_PKEY_CHANGE.0 => "P_Key change",
        /// Another subnet manager took over.
        SubnetManagerChange = raw::IBV_EVENT_SM_CHANGE.0 => "subnet manager change",
        /// A shared receive queue failed. Queue pairs can no longer take receives from it.
        SharedReceiveQueueError = raw::IBV_EVENT_SRQ_ERR.0 => "SRQ error",
        /// A shared receive queue has fewer receives than its armed limit. This disarms the limit.
        SharedReceiveQueueLimitReached = raw::IBV_EVENT_SRQ_LIMIT_REACHED.0 => "SRQ limit reached",
        /// A queue pair in the Error state has taken its last receive from its shared receive queue. Once its
        /// completion queue is empty, the queue pair has no outstanding receives.
        LastWorkRequestReached = raw::IBV_EVENT_QP_LAST_WQE_REACHED.0 => "last WQE reached",
        /// The subnet manager has lost its registrations, including multicast joins. The program must register again.
        ClientReregister = raw::IBV_EVENT_CLIENT_REREGISTER.0 => "clients must register again",
        /// A port's GID table changed: an address was added or removed.
        GidChange = raw::IBV_EVENT_GID_CHANGE.0 => "GID table change",
        /// A work queue failed.
        WorkQueueFatal = raw::IBV_EVENT_WQ_FATAL.0 => "WQ fatal error",
    }
}

/// The kind of object that an event names. It determines which member of the union in `struct ibv_async_event` was
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    CompletionQueue,
    QueuePair,
    SharedReceiveQueue,
    WorkQueue,
    Port,
    Device,
    /// The type is unknown to this version of the crate, so no member may be read.
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
    fn display_matches_c_function() {
        for &event in AsyncEventType::KNOWN {
            // SAFETY: the function returns a static string.
            let words = unsafe { CStr::from_ptr(rdma_mummy_sys::ibv_event_type_str(raw(event.raw()))) };
            assert_eq!(words.to_str().unwrap(), event.to_string());
        }
    }

    #[test]
    fn known_types_have_a_subject_and_unknown_none() {
        assert_eq!(AsyncEventType::KNOWN.len(), 20);
        for &event in AsyncEventType::KNOWN {
            assert_ne!(event.subject(), Subject::Unknown, "{event:?}");
        }
        for number in [20, 0x7fff_ffff, u32::MAX] {
            assert_eq!(AsyncEventType::from_raw(number).subject(), Subject::Unknown);
        }
    }
}
