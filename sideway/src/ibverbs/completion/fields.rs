//! The fields of a completion.

use std::{fmt, mem};

use rdma_mummy_sys::{IBV_WC_STANDARD_FLAGS, ibv_create_cq_wc_flags as create, ibv_wc, ibv_wc_flags as raw};

bitflags::bitflags! {
    /// `enum ibv_create_cq_wc_flags`: the fields that an extended queue delivers.
    #[doc(alias = "ibv_create_cq_wc_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct CreateCompletionQueueWorkCompletionFlags: u64 {
        /// The length of the received message.
        const ByteLength = create::IBV_WC_EX_WITH_BYTE_LEN.0 as u64;
        /// Immediate data.
        const ImmediateData = create::IBV_WC_EX_WITH_IMM.0 as u64;
        /// The number of the local queue pair.
        const QueuePairNumber = create::IBV_WC_EX_WITH_QP_NUM.0 as u64;
        /// The number of the sender's queue pair, for datagrams.
        const SourceQueuePair = create::IBV_WC_EX_WITH_SRC_QP.0 as u64;
        /// The sender's LID.
        const SourceLocalIdentifier = create::IBV_WC_EX_WITH_SLID.0 as u64;
        /// The service level.
        const ServiceLevel = create::IBV_WC_EX_WITH_SL.0 as u64;
        /// The low bits of the destination LID.
        const DestinationLocalIdentifierPathBits = create::IBV_WC_EX_WITH_DLID_PATH_BITS.0 as u64;
        /// The completion time, in cycles of the device's clock.
        const CompletionTimestamp = create::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0 as u64;
        /// The VLAN of a received packet.
        const CustomerVlan = create::IBV_WC_EX_WITH_CVLAN.0 as u64;
        /// The tag of the matching flow rule.
        const FlowTag = create::IBV_WC_EX_WITH_FLOW_TAG.0 as u64;
        /// Tag matching information.
        const TagMatchingInformation = create::IBV_WC_EX_WITH_TM_INFO.0 as u64;
        /// The completion time, in nanoseconds of the wall clock.
        const CompletionTimestampWallclock = create::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.0 as u64;

        /// The seven fields of the basic completion. Every extended queue of this crate has functions to read them.
        const StandardFlags = IBV_WC_STANDARD_FLAGS as u64;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

impl Default for CreateCompletionQueueWorkCompletionFlags {
    fn default() -> Self {
        Self::StandardFlags
    }
}

bitflags::bitflags! {
    /// `enum ibv_wc_flags`: the flags of a completion. They describe its message.
    #[doc(alias = "ibv_wc_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WorkCompletionFlags: u32 {
        /// A global routing header of 40 bytes precedes the datagram.
        const GlobalRoutingHeader = raw::IBV_WC_GRH.0;
        /// The immediate data is valid.
        const WithImmediate = raw::IBV_WC_WITH_IMM.0;
        /// The checksums of the IP packet are correct.
        const IpChecksumOk = raw::IBV_WC_IP_CSUM_OK.0;
        /// The invalidated key is valid.
        const WithInvalidate = raw::IBV_WC_WITH_INV.0;
        /// The program must synchronise the tag matching lists.
        const TagMatchingSyncRequest = raw::IBV_WC_TM_SYNC_REQ.0;
        /// The message matched a tag.
        const TagMatchingMatch = raw::IBV_WC_TM_MATCH.0;
        /// The data of a tagged message is in the buffer.
        const TagMatchingDataValid = raw::IBV_WC_TM_DATA_VALID.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// A completion field that its queue does not deliver. Basic queues deliver none of the optional fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the completion queue does not deliver {}; add it with CompletionQueueBuilder::setup_wc_flags and build an \
    extended queue", Names(*.field))]
pub struct FieldNotEnabled {
    field: CreateCompletionQueueWorkCompletionFlags,
}

crate::error::debug_is_text!(FieldNotEnabled);

impl FieldNotEnabled {
    #[inline]
    pub(super) const fn new(field: CreateCompletionQueueWorkCompletionFlags) -> Self {
        Self { field }
    }

    /// Returns the flag of the missing field.
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

/// `struct ibv_wc_tm_info` — the tag matching information of a message.
#[doc(alias = "ibv_wc_tm_info")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TagMatchingInfo {
    /// The tag of the message.
    pub tag: u64,
    /// `priv`: a value that the sender adds to the tag. Only the program interprets it.
    pub private: u32,
}

/// The sender of a datagram, as its completion describes it. [`init_ah_from_wc`] computes the return path from these
/// fields and from the [global routing header] in front of the data.
///
/// The method `source()` of each kind of completion returns it. The fields are public, so that a program can fill them
/// with values from other sources.
///
/// [`init_ah_from_wc`]: crate::ibverbs::device_context::DeviceContext::init_ah_from_wc
/// [global routing header]: crate::ibverbs::address::GlobalRoutingHeader
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkCompletionSource {
    /// The number of the sender's queue pair, 24 bits. A reply is sent to this queue pair.
    pub src_qp: u32,
    /// The sender's LID, which is 0 on Ethernet.
    pub slid: u32,
    /// The service level.
    pub sl: u8,
    /// The low bits of the destination LID.
    pub dlid_path_bits: u8,
    /// The flags, such as the one for a [global routing header](WorkCompletionFlags::GlobalRoutingHeader).
    pub wc_flags: WorkCompletionFlags,
}

impl WorkCompletionSource {
    /// Returns a C completion with these fields, or `None` if the LID exceeds the 16 bits that `ibv_wc` has for it.
    pub(crate) fn to_raw(self) -> Option<ibv_wc> {
        // SAFETY: all zeros are a valid ibv_wc, which has only integers.
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
    fn field_not_enabled_error_names_field_and_remedy() {
        let error = FieldNotEnabled::new(CreateCompletionQueueWorkCompletionFlags::CompletionTimestamp);
        assert_eq!(
            error.to_string(),
            "the completion queue does not deliver CompletionTimestamp; add it with \
            CompletionQueueBuilder::setup_wc_flags and build an extended queue"
        );
    }
}
