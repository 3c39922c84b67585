//! The status and the operation of a completed request.

use rdma_mummy_sys::{ibv_wc_opcode, ibv_wc_status as raw};

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_wc_status`: the status of a completed request (InfiniBand specification, volume 1, section 11.6.2).
    #[doc(alias = "ibv_wc_status")]
    #[doc(alias = "ibv_wc_status_str")]
    pub enum WorkCompletionStatus {
        /// The request completed successfully.
        Success = raw::IBV_WC_SUCCESS.0 => "success",
        /// The message exceeds the local buffers or the queue pair's limits.
        LocalLengthError = raw::IBV_WC_LOC_LEN_ERR.0 => "local length error",
        /// An internal consistency check of the queue pair failed.
        LocalQueuePairOperationError = raw::IBV_WC_LOC_QP_OP_ERR.0 => "local QP operation error",
        /// Reserved for end-to-end contexts of reliable datagrams.
        LocalEndToEndContextOperationError = raw::IBV_WC_LOC_EEC_OP_ERR.0 => "local EE context operation error",
        /// A local key, address or access right was wrong.
        LocalProtectionError = raw::IBV_WC_LOC_PROT_ERR.0 => "local protection error",
        /// The queue pair entered the Error state before the request completed.
        WorkRequestFlushedError = raw::IBV_WC_WR_FLUSH_ERR.0 => "work request flushed",
        /// A memory window could not be bound.
        MemoryWindowBindError = raw::IBV_WC_MW_BIND_ERR.0 => "memory window bind error",
        /// The peer's response matches no outstanding request.
        BadResponseError = raw::IBV_WC_BAD_RESP_ERR.0 => "bad response",
        /// The memory of a receive is not accessible.
        LocalAccessError = raw::IBV_WC_LOC_ACCESS_ERR.0 => "local access error",
        /// The peer rejected the request as invalid, or its receive buffer is too short.
        RemoteInvalidRequestError = raw::IBV_WC_REM_INV_REQ_ERR.0 => "remote invalid request",
        /// The peer denied the access, because the remote key, the address, the length or the access flags are wrong.
        RemoteAccessError = raw::IBV_WC_REM_ACCESS_ERR.0 => "remote access error",
        /// The peer could not complete the request.
        RemoteOperationError = raw::IBV_WC_REM_OP_ERR.0 => "remote operation error",
        /// The peer did not acknowledge the request within the time that `timeout` and `retry_cnt` allow. The peer is
        /// down or unreachable, or its queue pair is not ready.
        RetryCounterExceededError = raw::IBV_WC_RETRY_EXC_ERR.0 => "transport retry counter exceeded",
        /// The peer had no receive posted in any of the attempts that `rnr_retry` allows.
        ResponderNotReadyRetryCounterExceededError = raw::IBV_WC_RNR_RETRY_EXC_ERR.0 => "RNR retry counter exceeded",
        /// Reserved for reliable datagrams.
        LocalReliableDatagramDomainViolationError = raw::IBV_WC_LOC_RDD_VIOL_ERR.0 => "local RDD violation",
        /// Reserved for reliable datagrams.
        RemoteInvalidReliableDatagramRequest = raw::IBV_WC_REM_INV_RD_REQ_ERR.0 => "remote invalid RD request",
        /// The peer aborted the operation.
        RemoteAbortedError = raw::IBV_WC_REM_ABORT_ERR.0 => "remote aborted",
        /// Reserved for end-to-end contexts.
        InvalidEndToEndContextNumberError = raw::IBV_WC_INV_EECN_ERR.0 => "invalid EE context number",
        /// Reserved for end-to-end contexts.
        InvalidEndToEndContextStateError = raw::IBV_WC_INV_EEC_STATE_ERR.0 => "invalid EE context state",
        /// The device failed.
        FatalError = raw::IBV_WC_FATAL_ERR.0 => "fatal error",
        /// The device did not respond.
        ResponseTimeoutError = raw::IBV_WC_RESP_TIMEOUT_ERR.0 => "response time-out",
        /// Another error; see the vendor's error code.
        GeneralError = raw::IBV_WC_GENERAL_ERR.0 => "general error",
        /// Tag matching failed.
        TagMatchingError = raw::IBV_WC_TM_ERR.0 => "tag matching error",
        /// A tagged message is too long for its buffer; the program must fetch it by rendezvous.
        TagMatchingRendezvousIncomplete = raw::IBV_WC_TM_RNDV_INCOMPLETE.0 => "tag matching rendezvous incomplete",
    }
}

open_enum! {
    /// `enum ibv_wc_opcode`: the completed operation. It is valid only if the status is
    /// [`Success`](super::WorkCompletionStatus::Success).
    #[doc(alias = "ibv_wc_opcode")]
    pub enum WorkCompletionOperationType {
        /// A send, with or without immediate data.
        Send = ibv_wc_opcode::IBV_WC_SEND.0,
        /// A write, with or without immediate data.
        Write = ibv_wc_opcode::IBV_WC_RDMA_WRITE.0,
        /// A read.
        Read = ibv_wc_opcode::IBV_WC_RDMA_READ.0,
        /// An atomic compare-and-swap.
        AtomicCompareAndSwap = ibv_wc_opcode::IBV_WC_COMP_SWAP.0,
        /// An atomic fetch-and-add.
        AtomicFetchAndAdd = ibv_wc_opcode::IBV_WC_FETCH_ADD.0,
        /// The bind of a memory window.
        BindMemoryWindow = ibv_wc_opcode::IBV_WC_BIND_MW.0,
        /// A local invalidation.
        LocalInvalidate = ibv_wc_opcode::IBV_WC_LOCAL_INV.0,
        /// A send with TCP segmentation offload.
        TcpSegmentationOffload = ibv_wc_opcode::IBV_WC_TSO.0,
        /// A flush.
        Flush = 8,
        /// An atomic write of 8 bytes.
        AtomicWrite = ibv_wc_opcode::IBV_WC_ATOMIC_WRITE.0,
        /// A message was received.
        Receive = ibv_wc_opcode::IBV_WC_RECV.0,
        /// A peer's write with immediate data was received.
        ReceiveWriteWithImmediate = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM.0,
        /// A tagged receive was added.
        TagMatchingAdd = ibv_wc_opcode::IBV_WC_TM_ADD.0,
        /// A tagged receive was removed.
        TagMatchingDelete = ibv_wc_opcode::IBV_WC_TM_DEL.0,
        /// The lists of tagged receives are synchronised.
        TagMatchingSync = ibv_wc_opcode::IBV_WC_TM_SYNC.0,
        /// A tagged message was received.
        TagMatchingReceive = ibv_wc_opcode::IBV_WC_TM_RECV.0,
        /// A message matched no tag.
        TagMatchingNoTag = ibv_wc_opcode::IBV_WC_TM_NO_TAG.0,
        /// The first of three operations defined by the vendor.
        Driver1 = ibv_wc_opcode::IBV_WC_DRIVER1.0,
        /// The second of three operations defined by the vendor.
        Driver2 = ibv_wc_opcode::IBV_WC_DRIVER2.0,
        /// The third of three operations defined by the vendor.
        Driver3 = ibv_wc_opcode::IBV_WC_DRIVER3.0,
    }
    renamed {
        CompareAndSwap => AtomicCompareAndSwap, "named `AtomicCompareAndSwap`, as the request is";
        FetchAndAdd => AtomicFetchAndAdd, "named `AtomicFetchAndAdd`, as the request is";
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn display_matches_c_function() {
        for &status in WorkCompletionStatus::KNOWN {
            // SAFETY: the function returns a static string.
            let words = unsafe { CStr::from_ptr(rdma_mummy_sys::ibv_wc_status_str(raw(status.raw()))) };
            assert_eq!(words.to_str().unwrap(), status.to_string());
        }
    }
}
