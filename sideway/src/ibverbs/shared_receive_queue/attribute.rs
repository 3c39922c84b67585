//! `struct ibv_srq_attr` with its attribute mask, and the types of shared receive queues.

use std::fmt;

use rdma_mummy_sys::{ibv_srq_attr, ibv_srq_attr_mask, ibv_srq_type};

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_srq_type`: which queue pairs consume receives, and how.
    #[doc(alias = "ibv_srq_type")]
    pub enum SharedReceiveQueueType {
        /// The queue pairs that were built with the queue consume its receives in order.
        Basic = ibv_srq_type::IBV_SRQT_BASIC.0,
        /// XRC: the sender of each message names the queue by the queue's number.
        ReliableConnectionExtended = ibv_srq_type::IBV_SRQT_XRC.0,
        /// The queue pairs that were built with the queue consume its receives. For each message, the device selects
        /// the receive whose tag matches.
        TagMatching = ibv_srq_type::IBV_SRQT_TM.0,
    }
}

bitflags::bitflags! {
    /// `enum ibv_srq_attr_mask`: a set of attributes of a shared receive queue.
    #[doc(alias = "ibv_srq_attr_mask")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SharedReceiveQueueAttributeMask: u32 {
        /// The maximum number of outstanding receives.
        const MaxWr = ibv_srq_attr_mask::IBV_SRQ_MAX_WR.0;
        /// The number of receives below which an event is raised.
        const Limit = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// Attributes of a shared receive queue. They are either set with [`modify`](super::SharedReceiveQueue::modify), or
/// returned by [`query`](super::SharedReceiveQueue::query). Each setter also sets the attribute's mask bit.
#[doc(alias = "ibv_srq_attr")]
#[derive(Clone, Copy)]
pub struct SharedReceiveQueueAttribute {
    attr: ibv_srq_attr,
    mask: SharedReceiveQueueAttributeMask,
}

impl SharedReceiveQueueAttribute {
    /// Creates attributes with an empty mask.
    pub fn new() -> Self {
        let attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        Self { attr, mask: SharedReceiveQueueAttributeMask::empty() }
    }

    /// Wraps the result of a query.
    pub(super) fn from_raw(attr: ibv_srq_attr) -> Self {
        Self { attr, mask: SharedReceiveQueueAttributeMask::MaxWr | SharedReceiveQueueAttributeMask::Limit }
    }

    /// Returns the C struct.
    pub(super) fn raw(&self) -> &ibv_srq_attr {
        &self.attr
    }

    /// Returns the mask of set attributes.
    pub fn mask(&self) -> SharedReceiveQueueAttributeMask {
        self.mask
    }

    /// Sets the maximum number of outstanding receives, which resizes the queue.
    pub fn setup_max_wr(&mut self, max_wr: u32) -> &mut Self {
        self.attr.max_wr = max_wr;
        self.mask |= SharedReceiveQueueAttributeMask::MaxWr;
        self
    }

    /// Returns the maximum number of outstanding receives.
    pub fn max_wr(&self) -> u32 {
        self.attr.max_wr
    }

    /// Returns the maximum number of entries of a receive's scatter list. It does not change after the queue was built.
    pub fn max_sge(&self) -> u32 {
        self.attr.max_sge
    }

    /// Sets the number of receives below which the device raises the event `IBV_EVENT_SRQ_LIMIT_REACHED` once. If it is
    /// 0, the device raises no event.
    pub fn setup_limit(&mut self, limit: u32) -> &mut Self {
        self.attr.srq_limit = limit;
        self.mask |= SharedReceiveQueueAttributeMask::Limit;
        self
    }

    /// Returns the number of receives below which the device raises an event. If it is 0, the device raises no event.
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
    fn setters_set_mask_bits() {
        let mut attribute = SharedReceiveQueueAttribute::new();
        assert!(attribute.mask().is_empty());
        attribute.setup_limit(3);
        assert_eq!(attribute.mask(), SharedReceiveQueueAttributeMask::Limit);
        attribute.setup_max_wr(20);
        assert_eq!(attribute.mask().bits(), 3);
        assert_eq!((attribute.max_wr(), attribute.max_sge(), attribute.limit()), (20, 0, 3));
    }

    #[test]
    fn unknown_type_prints_its_number() {
        assert_eq!(format!("{:?}", SharedReceiveQueueType::from_raw(9)), "SharedReceiveQueueType(9)");
        assert_eq!(format!("{:?}", SharedReceiveQueueType::TagMatching), "TagMatching");
    }
}
