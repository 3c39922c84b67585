//! Which fields a completion has.

use std::{fmt, mem};

use rdma_mummy_sys::{IBV_WC_STANDARD_FLAGS, ibv_create_cq_wc_flags as create, ibv_wc, ibv_wc_flags as raw};

bitflags::bitflags! {
    /// `enum ibv_create_cq_wc_flags`: the fields that an extended queue is asked to deliver.
    #[doc(alias = "ibv_create_cq_wc_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct CreateCompletionQueueWorkCompletionFlags: u64 {
        /// The length of what was received.
        const ByteLength = create::IBV_WC_EX_WITH_BYTE_LEN.0 as u64;
        /// Immediate data.
        const ImmediateData = create::IBV_WC_EX_WITH_IMM.0 as u64;
        /// The local queue pair.
        const QueuePairNumber = create::IBV_WC_EX_WITH_QP_NUM.0 as u64;
        /// The sender's queue pair (datagrams).
        const SourceQueuePair = create::IBV_WC_EX_WITH_SRC_QP.0 as u64;
        /// The sender's LID.
        const SourceLocalIdentifier = create::IBV_WC_EX_WITH_SLID.0 as u64;
        /// The service level.
        const ServiceLevel = create::IBV_WC_EX_WITH_SL.0 as u64;
        /// The low bits of the LID that was addressed.
        const DestinationLocalIdentifierPathBits = create::IBV_WC_EX_WITH_DLID_PATH_BITS.0 as u64;
        /// When the request completed, in cycles of the device's clock.
        const CompletionTimestamp = create::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0 as u64;
        /// The VLAN of a received packet.
        const CustomerVlan = create::IBV_WC_EX_WITH_CVLAN.0 as u64;
        /// The tag of the flow rule that matched.
        const FlowTag = create::IBV_WC_EX_WITH_FLOW_TAG.0 as u64;
        /// Tag matching information.
        const TagMatchingInformation = create::IBV_WC_EX_WITH_TM_INFO.0 as u64;
        /// When the request completed, in nanoseconds of the wall clock.
        const CompletionTimestampWallclock = create::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.0 as u64;

        /// The first seven: every extended queue of this crate has a reader for them, whatever else it is asked for.
        const StandardFlags = IBV_WC_STANDARD_FLAGS as u64;
        // Later rdma-core versions' flags pass through.
        const _ = !0;
    }
}

impl Default for CreateCompletionQueueWorkCompletionFlags {
    fn default() -> Self {
        Self::StandardFlags
    }
}

bitflags::bitflags! {
    /// `enum ibv_wc_flags`: what a completion says about its message.
    #[doc(alias = "ibv_wc_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WorkCompletionFlags: u32 {
        /// A global routing header, 40 bytes, stands in front of the datagram.
        const GlobalRoutingHeader = raw::IBV_WC_GRH.0;
        /// The immediate data is valid.
        const WithImmediate = raw::IBV_WC_WITH_IMM.0;
        /// The checksums of the IP packet are right.
        const IpChecksumOk = raw::IBV_WC_IP_CSUM_OK.0;
        /// The invalidated key is valid.
        const WithInvalidate = raw::IBV_WC_WITH_INV.0;
        /// The tag matching lists are to be synchronised.
        const TagMatchingSyncRequest = raw::IBV_WC_TM_SYNC_REQ.0;
        /// The message matched a tag.
        const TagMatchingMatch = raw::IBV_WC_TM_MATCH.0;
        /// The data of a tagged message is in the buffer.
        const TagMatchingDataValid = raw::IBV_WC_TM_DATA_VALID.0;
        // Later rdma-core versions' flags pass through.
        const _ = !0;
    }
}

/// A completion was asked for a field that its queue does not deliver. A basic queue delivers none of the optional ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the completion queue does not deliver {}: name it in CompletionQueueBuilder::setup_wc_flags and make an extended queue", Names(*.field))]
pub struct FieldNotEnabled {
    field: CreateCompletionQueueWorkCompletionFlags,
}

crate::error::debug_is_text!(FieldNotEnabled);

impl FieldNotEnabled {
    #[inline]
    pub(super) const fn new(field: CreateCompletionQueueWorkCompletionFlags) -> Self {
        Self { field }
    }

    /// The flag that the queue was made without.
    pub const fn field(self) -> CreateCompletionQueueWorkCompletionFlags {
        self.field
    }
}

struct Names(CreateCompletionQueueWorkCompletionFlags);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(&self.0, f)
    }
}

/// `struct ibv_wc_tm_info` — what tag matching says of a message.
#[doc(alias = "ibv_wc_tm_info")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TagMatchingInfo {
    /// The tag of the message.
    pub tag: u64,
    /// `priv`: what the sender put beside the tag, for the program alone.
    pub private: u32,
}

/// What a completion says of the sender of a datagram: what [`init_ah_from_wc`] makes the way back from, with the
/// [global routing header] in front of the data.
///
/// Every kind of completion has it as `source()`. The fields are public, so that what came by other means can stand in it.
///
/// [`init_ah_from_wc`]: crate::ibverbs::device_context::DeviceContext::init_ah_from_wc
/// [global routing header]: crate::ibverbs::address::GlobalRoutingHeader
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkCompletionSource {
    /// The sender's queue pair, 24 bits: what an answer is sent to.
    pub src_qp: u32,
    /// The sender's LID; 0 on Ethernet.
    pub slid: u32,
    /// The service level.
    pub sl: u8,
    /// The low bits of the LID that was addressed.
    pub dlid_path_bits: u8,
    /// Whether there is a [global routing header](WorkCompletionFlags::GlobalRoutingHeader), for one.
    pub wc_flags: WorkCompletionFlags,
}

impl WorkCompletionSource {
    /// A completion for C with these fields; `None` where the LID is an extended one, which `ibv_wc` has no room for.
    pub(crate) fn to_raw(self) -> Option<ibv_wc> {
        // SAFETY: all-zero is a legal ibv_wc: it has integers alone.
        let mut wc: ibv_wc = unsafe { mem::zeroed() };
        wc.src_qp = self.src_qp;
        wc.slid = self.slid.try_into().ok()?;
        wc.sl = self.sl;
        wc.dlid_path_bits = self.dlid_path_bits;
        wc.wc_flags = self.wc_flags.bits();
        Some(wc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_not_there_is_named_with_what_to_change() {
        let error = FieldNotEnabled::new(CreateCompletionQueueWorkCompletionFlags::CompletionTimestamp);
        assert_eq!(
            error.to_string(),
            "the completion queue does not deliver CompletionTimestamp: name it in \
             CompletionQueueBuilder::setup_wc_flags and make an extended queue"
        );
    }
}
