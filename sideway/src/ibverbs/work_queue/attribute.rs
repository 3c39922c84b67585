//! `struct ibv_wq_attr`: what of a work queue can be changed.

use rdma_mummy_sys::{ibv_wq_attr, ibv_wq_attr_mask as mask, ibv_wq_flags, ibv_wq_state};

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_wq_state` — the state of a work queue: Reset, then Ready, then Reset or Error.
    #[doc(alias = "ibv_wq_state")]
    pub enum WorkQueueState {
        /// Newly made, or emptied.
        Reset = ibv_wq_state::IBV_WQS_RESET.0,
        /// Packets are received.
        Ready = ibv_wq_state::IBV_WQS_RDY.0,
        /// Something went wrong: receives are flushed.
        Error = ibv_wq_state::IBV_WQS_ERR.0,
        /// The driver does not know.
        Unknown = ibv_wq_state::IBV_WQS_UNKNOWN.0,
    }
}

bitflags::bitflags! {
    /// `enum ibv_wq_flags` — what a work queue does with packets.
    #[doc(alias = "ibv_wq_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WorkQueueFlags: u32 {
        /// Takes the customer VLAN tag out of packets; the completion has it.
        const CvlanStripping = ibv_wq_flags::IBV_WQ_FLAGS_CVLAN_STRIPPING.0;
        /// Stores the frame check sequence behind the packet.
        const ScatterFcs = ibv_wq_flags::IBV_WQ_FLAGS_SCATTER_FCS.0;
        /// Holds packets back for a while, instead of dropping them, when no receive is posted.
        const DelayDrop = ibv_wq_flags::IBV_WQ_FLAGS_DELAY_DROP.0;
        /// Pads what is written to whole cache lines.
        const PciWriteEndPadding = ibv_wq_flags::IBV_WQ_FLAGS_PCI_WRITE_END_PADDING.0;
        // Later flags pass through.
        const _ = !0;
    }
}

/// What to change with [`WorkQueue::modify`](super::WorkQueue::modify). Each setter marks its attribute in the mask.
#[doc(alias = "ibv_wq_attr")]
#[derive(Clone, Copy, Debug)]
pub struct WorkQueueAttribute {
    attr: ibv_wq_attr,
}

impl Default for WorkQueueAttribute {
    fn default() -> Self {
        Self::new()
    }
}

impl WorkQueueAttribute {
    /// No attribute set.
    pub const fn new() -> Self {
        let reset = ibv_wq_state::IBV_WQS_RESET;
        Self { attr: ibv_wq_attr { attr_mask: 0, wq_state: reset, curr_wq_state: reset, flags: 0, flags_mask: 0 } }
    }

    /// The state to go to.
    pub fn setup_state(&mut self, state: WorkQueueState) -> &mut Self {
        self.attr.wq_state = ibv_wq_state(state.raw());
        self.attr.attr_mask |= mask::IBV_WQ_ATTR_STATE.0;
        self
    }

    /// The state that the queue is taken to be in: the change fails where it is in another.
    pub fn setup_current_state(&mut self, state: WorkQueueState) -> &mut Self {
        self.attr.curr_wq_state = ibv_wq_state(state.raw());
        self.attr.attr_mask |= mask::IBV_WQ_ATTR_CURR_STATE.0;
        self
    }

    /// Of the flags in `which`, those in `flags` are set and the others cleared. Drivers take
    /// [`CvlanStripping`](WorkQueueFlags::CvlanStripping) alone.
    pub fn setup_flags(&mut self, flags: WorkQueueFlags, which: WorkQueueFlags) -> &mut Self {
        self.attr.flags = flags.bits();
        self.attr.flags_mask = which.bits();
        self.attr.attr_mask |= mask::IBV_WQ_ATTR_FLAGS.0;
        self
    }

    /// The C struct.
    pub(super) fn raw(&self) -> &ibv_wq_attr {
        &self.attr
    }

    /// The state to go to, if one was set.
    pub(super) fn target(&self) -> Option<WorkQueueState> {
        let is_set = self.attr.attr_mask & mask::IBV_WQ_ATTR_STATE.0 != 0;
        is_set.then(|| WorkQueueState::from_raw(self.attr.wq_state.0))
    }
}
