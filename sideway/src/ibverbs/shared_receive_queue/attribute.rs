//! `struct ibv_srq_attr`, with the mask of what was set; the types of queues.

use std::fmt;

use rdma_mummy_sys::{ibv_srq_attr, ibv_srq_attr_mask, ibv_srq_type};

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_srq_type`: who takes receives from the queue, and how.
    #[doc(alias = "ibv_srq_type")]
    pub enum SharedReceiveQueueType {
        /// Queue pairs that were made with the queue, in the order of the receives.
        Basic = ibv_srq_type::IBV_SRQT_BASIC.0,
        /// XRC: the sender of each message names the queue by its number.
        ReliableConnectionExtended = ibv_srq_type::IBV_SRQT_XRC.0,
        /// Queue pairs that were made with the queue; the device finds the receive whose tag matches that of the message.
        TagMatching = ibv_srq_type::IBV_SRQT_TM.0,
    }
}

bitflags::bitflags! {
    /// `enum ibv_srq_attr_mask`: which attributes of a shared receive queue a call is about.
    #[doc(alias = "ibv_srq_attr_mask")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SharedReceiveQueueAttributeMask: u32 {
        /// Receives that can be outstanding.
        const MaxWr = ibv_srq_attr_mask::IBV_SRQ_MAX_WR.0;
        /// The number of receives below which an event is raised.
        const Limit = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0;
        // Later attributes pass through.
        const _ = !0;
    }
}

/// Attributes of a shared receive queue: what to set with [`modify`](super::SharedReceiveQueue::modify), or what
/// [`query`](super::SharedReceiveQueue::query) found. Each setter marks its attribute in the mask.
#[doc(alias = "ibv_srq_attr")]
#[derive(Clone, Copy)]
pub struct SharedReceiveQueueAttribute {
    attr: ibv_srq_attr,
    mask: SharedReceiveQueueAttributeMask,
}

impl SharedReceiveQueueAttribute {
    /// No attribute set.
    pub fn new() -> Self {
        let attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        Self { attr, mask: SharedReceiveQueueAttributeMask::empty() }
    }

    /// What a query filled in.
    pub(super) fn from_raw(attr: ibv_srq_attr) -> Self {
        Self { attr, mask: SharedReceiveQueueAttributeMask::MaxWr | SharedReceiveQueueAttributeMask::Limit }
    }

    /// The C struct.
    pub(super) fn raw(&self) -> &ibv_srq_attr {
        &self.attr
    }

    /// Which attributes are set.
    pub fn mask(&self) -> SharedReceiveQueueAttributeMask {
        self.mask
    }

    /// Receives that can be outstanding: resizes the queue.
    pub fn setup_max_wr(&mut self, max_wr: u32) -> &mut Self {
        self.attr.max_wr = max_wr;
        self.mask |= SharedReceiveQueueAttributeMask::MaxWr;
        self
    }

    /// Receives that can be outstanding.
    pub fn max_wr(&self) -> u32 {
        self.attr.max_wr
    }

    /// Entries of a receive's scatter list. It cannot be set once the queue is made.
    pub fn max_sge(&self) -> u32 {
        self.attr.max_sge
    }

    /// The number of receives below which the device raises the event `IBV_EVENT_SRQ_LIMIT_REACHED`, once; 0 for never.
    pub fn setup_limit(&mut self, limit: u32) -> &mut Self {
        self.attr.srq_limit = limit;
        self.mask |= SharedReceiveQueueAttributeMask::Limit;
        self
    }

    /// The number of receives below which the device raises an event; 0 where none is to come.
    pub fn limit(&self) -> u32 {
        self.attr.srq_limit
    }
}

impl Default for SharedReceiveQueueAttribute {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SharedReceiveQueueAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueueAttribute")
            .field("max_wr", &self.max_wr())
            .field("max_sge", &self.max_sge())
            .field("limit", &self.limit())
            .field("mask", &self.mask)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setters_mark_what_they_set() {
        let mut attribute = SharedReceiveQueueAttribute::new();
        assert!(attribute.mask().is_empty());
        attribute.setup_limit(3);
        assert_eq!(attribute.mask(), SharedReceiveQueueAttributeMask::Limit);
        attribute.setup_max_wr(20);
        assert_eq!(attribute.mask().bits(), 3);
        assert_eq!((attribute.max_wr(), attribute.max_sge(), attribute.limit()), (20, 0, 3));
    }

    #[test]
    fn an_unknown_type_prints_its_number() {
        assert_eq!(format!("{:?}", SharedReceiveQueueType::from_raw(9)), "SharedReceiveQueueType(9)");
        assert_eq!(format!("{:?}", SharedReceiveQueueType::TagMatching), "TagMatching");
    }
}
