//! The control methods of a queue pair, as inherent methods of types that contain a queue pair but are not a
//! [`Pair`](super::Pair).

use super::Service;
use super::common::AsQueuePairCore;

/// Defines the methods for one such type. `$modify` is the method of the core that modifies the queue pair: either the
/// one for owners of both queues, or the one for owners of a single queue.
macro_rules! control_methods {
    ($Queue:ty $(, $T:ident: $Bound:path)?; $modify:ident$(: $limit:literal)?) => {
        impl $(<$T: $Bound>)? $Queue {
            /// `ibv_modify_qp` on the queue pair: see
            /// [`QueuePair::modify`](crate::ibverbs::queue_pair::QueuePair::modify).
            ///
            /// # Errors
            ///
            /// Returns the same errors as [`QueuePair::modify`](crate::ibverbs::queue_pair::QueuePair::modify).
            $(#[doc = $limit])?
            pub fn modify(
                &self,
                attribute: &crate::ibverbs::queue_pair::QueuePairAttribute,
            ) -> Result<(), crate::ibverbs::queue_pair::ModifyQueuePairError> {
                self.core().$modify(attribute)
            }

            /// `ibv_query_qp` on the queue pair: see
            /// [`QueuePair::query`](crate::ibverbs::queue_pair::QueuePair::query).
            ///
            /// # Errors
            ///
            /// Returns the same errors as [`QueuePair::query`](crate::ibverbs::queue_pair::QueuePair::query).
            pub fn query(
                &self,
                attributes: crate::ibverbs::queue_pair::QueuePairAttributeMask,
            ) -> Result<
                (crate::ibverbs::queue_pair::QueuePairAttribute, crate::ibverbs::queue_pair::QueuePairInitAttribute),
                crate::error::VerbError,
            > {
                self.core().query(attributes)
            }

            /// Returns the state, like [`QueuePair::state`](crate::ibverbs::queue_pair::QueuePair::state).
            pub fn state(&self) -> crate::ibverbs::queue_pair::QueuePairState {
                self.core().cached_state()
            }

            /// Returns the queue pair's number, 24 bits, by which peers address it.
            pub fn qp_number(&self) -> u32 {
                self.core().qp_number()
            }

            /// `ibv_attach_mcast` on the queue pair: see
            /// [`QueuePair::attach_mcast`](crate::ibverbs::queue_pair::QueuePair::attach_mcast).
            ///
            /// # Errors
            ///
            /// Returns the same errors as
            /// [`QueuePair::attach_mcast`](crate::ibverbs::queue_pair::QueuePair::attach_mcast).
            pub fn attach_mcast(
                &self,
                gid: &crate::ibverbs::address::Gid,
                lid: u16,
            ) -> Result<(), crate::error::VerbError> {
                self.core().attach_mcast(gid, lid)
            }

            /// `ibv_detach_mcast` on the queue pair: see
            /// [`QueuePair::detach_mcast`](crate::ibverbs::queue_pair::QueuePair::detach_mcast).
            ///
            /// # Errors
            ///
            /// Returns the same errors as
            /// [`QueuePair::detach_mcast`](crate::ibverbs::queue_pair::QueuePair::detach_mcast).
            pub fn detach_mcast(
                &self,
                gid: &crate::ibverbs::address::Gid,
                lid: u16,
            ) -> Result<(), crate::error::VerbError> {
                self.core().detach_mcast(gid, lid)
            }

            /// `ibv_create_flow` on the queue pair: see
            /// [`QueuePair::create_flow`](crate::ibverbs::queue_pair::QueuePair::create_flow).
            ///
            /// # Errors
            ///
            /// Returns the same errors as
            /// [`QueuePair::create_flow`](crate::ibverbs::queue_pair::QueuePair::create_flow).
            pub fn create_flow(
                &self,
                rule: &crate::ibverbs::flow::FlowRule,
            ) -> Result<crate::ibverbs::flow::Flow, crate::error::VerbError> {
                self.core().create_flow(rule)
            }

            /// `ibv_modify_qp_rate_limit` on the queue pair: see
            /// [`QueuePair::modify_rate_limit`](crate::ibverbs::queue_pair::QueuePair::modify_rate_limit).
            ///
            /// # Errors
            ///
            /// Returns the same errors as
            /// [`QueuePair::modify_rate_limit`](crate::ibverbs::queue_pair::QueuePair::modify_rate_limit).
            pub fn modify_rate_limit(
                &self,
                limit: &crate::ibverbs::queue_pair::RateLimit,
            ) -> Result<(), crate::error::VerbError> {
                self.core().modify_rate_limit(limit)
            }
        }
    };
}

macro_rules! control_methods_of_parts {
    ($( $Queue:ty $(, $T:ident: $Bound:path)?; )+) => { $(
        control_methods!($Queue $(, $T: $Bound)?; modify_part: "`EINVAL` also for the transition to Reset, which \
            needs the [`Pair`](crate::ibverbs::queue_pair::Pair) of both queues: it would invalidate a batch being \
            built on the other queue.");
    )+ };
}

control_methods_of_parts! {
    crate::ibverbs::work_request::ReceiveQueue;
    super::BasicSendQueue<T>, T: Service;
    super::ExtendedSendQueue<T>, T: Service;
    super::GenericSendQueue<T>, T: Service;
    super::QueuePairRef;
}
control_methods!(super::TargetQueuePair; modify);

pub(in crate::ibverbs) use control_methods;
