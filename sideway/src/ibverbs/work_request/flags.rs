//! How a send request is to be processed.

use rdma_mummy_sys::ibv_send_flags as raw;

bitflags::bitflags! {
    /// `enum ibv_send_flags`: how a send request is to be processed.
    #[doc(alias = "ibv_send_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WorkRequestFlags: u32 {
        /// Begins only when the reads and atomics before it are done.
        const Fence = raw::IBV_SEND_FENCE.0;
        /// Reports its completion. Without it, only a failure is reported; now and then a signaled request is needed so
        /// that the queue's entries become free.
        const Signaled = raw::IBV_SEND_SIGNALED.0;
        /// The peer's completion counts as solicited.
        const Solicited = raw::IBV_SEND_SOLICITED.0;
        /// Set by `setup_inline_data` itself; given here, it has no effect.
        const Inline = raw::IBV_SEND_INLINE.0;
        /// The device computes the IP checksums. An extended queue pair for raw packets takes it once the queue pair was given
        /// an Ethernet port of a device with `RawIpChecksum`, and else refuses it.
        const IpChecksum = raw::IBV_SEND_IP_CSUM.0;
        // Later flags pass through.
        const _ = !0;
    }
}

impl WorkRequestFlags {
    /// For C, without the inline flag: with it, a device takes a gather list for data.
    #[inline]
    pub(crate) fn without_inline(self) -> u32 {
        self.bits() & !raw::IBV_SEND_INLINE.0
    }
}
