//! Where a datagram came from.

use std::mem;

use rdma_mummy_sys::ibv_wc;

use super::WorkCompletionFlags;

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
