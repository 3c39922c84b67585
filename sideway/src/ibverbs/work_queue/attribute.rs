//! `struct ibv_wq_attr`: the attributes of a work queue that can be changed.

use rdma_mummy_sys::{ibv_wq_attr, ibv_wq_attr_mask as mask, ibv_wq_flags, ibv_wq_state};

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_wq_state` — the state of a work queue: Reset, then Ready, then Reset or Error.
    #[doc(alias = "ibv_wq_state")]
    pub enum WorkQueueState {
        /// The queue was just created, or was emptied.
        Reset = ibv_wq_state::IBV_WQS_RESET.0,
        /// The queue receives packets.
        Ready = ibv_wq_state::IBV_WQS_RDY.0,
        /// The queue has failed, and its receives are flushed.
        Error = ibv_wq_state::IBV_WQS_ERR.0,
        /// The driver does not provide the state.
        Unknown = ibv_wq_state::IBV_WQS_UNKNOWN.0,
    }
}

bitflags::bitflags! {
    /// `enum ibv_wq_flags` — how a work queue processes packets.
    #[doc(alias = "ibv_wq_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WorkQueueFlags: u32 {
        /// The device removes the customer VLAN tag from packets. The completion contains the tag.
        const CvlanStripping = ibv_wq_flags::IBV_WQ_FLAGS_CVLAN_STRIPPING.0;
        /// The device stores the frame check sequence after the packet.
        const ScatterFcs = ibv_wq_flags::IBV_WQ_FLAGS_SCATTER_FCS.0;
        /// If no receive is posted, the device delays packets for some time instead of dropping them.
        const DelayDrop = ibv_wq_flags::IBV_WQ_FLAGS_DELAY_DROP.0;
        /// The device pads its writes to full cache lines.
        const PciWriteEndPadding = ibv_wq_flags::IBV_WQ_FLAGS_PCI_WRITE_END_PADDING.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// The attributes that [`WorkQueue::modify`](super::WorkQueue::modify) changes. Each setter also sets the attribute's
/// mask bit.
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
    /// Creates attributes with an empty mask.
    pub const fn new() -> Self {
        let reset = ibv_wq_state::IBV_WQS_RESET;
        Self { attr: ibv_wq_attr { attr_mask: 0, wq_state: reset, curr_wq_state: reset, flags: 0, flags_mask: 0 } }
    }

    /// Sets the new state.
    pub fn setup_state(&mut self, state: WorkQueueState) -> &mut Self {
        self.attr.wq_state = ibv_wq_state(state.raw());
        self.attr.attr_mask |= mask::IBV_WQ_ATTR_STATE.0;
        self
    }

    /// Sets the state that the verb assumes the queue to be in. The change fails if the queue is in a different state.
    pub fn setup_current_state(&mut self, state: WorkQueueState) -> &mut Self {
        self.attr.curr_wq_state = ibv_wq_state(state.raw());
        self.attr.attr_mask |= mask::IBV_WQ_ATTR_CURR_STATE.0;
        self
    }

    /// Sets the flags in `flags` and clears the others in `which`. Drivers support only
    /// [`CvlanStripping`](WorkQueueFlags::CvlanStripping).
    pub fn setup_flags(&mut self, flags: WorkQueueFlags, which: WorkQueueFlags) -> &mut Self {
        self.attr.flags = flags.bits();
        self.attr.flags_mask = which.bits();
        self.attr.attr_mask |= mask::IBV_WQ_ATTR_FLAGS.0;
        self
    }

    /// Returns the C struct.
    pub(super) fn raw(&self) -> &ibv_wq_attr {
        &self.attr
    }

    /// Returns the new state, if set.
    pub(super) fn target(&self) -> Option<WorkQueueState> {
        let is_set = self.attr.attr_mask & mask::IBV_WQ_ATTR_STATE.0 != 0;
        is_set.then(|| WorkQueueState::from_raw(self.attr.wq_state.0))
    }
}
