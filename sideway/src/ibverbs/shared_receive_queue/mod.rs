//! Shared receive queues, whose receives several queue pairs consume.
//!
//! ```text
//! SharedReceiveQueueBuilder ── build ────► ibv_create_srq     a basic queue
//!                           ── build_ex ─► ibv_create_srq_ex  basic, XRC (setup_xrc), or with tag matching (setup_tag_matching)
//!
//! start_post_recv ─► guard ── construct_wr(wr_id) ── unsafe setup_sge(…) ── post()      as with a queue pair's own receives
//! QueuePairBuilder::setup_srq(&queue)                                                   the queue pair takes its receives there
//! ```
//!
//! A queue has one owner, and posting takes `&mut`. Queue pairs and events keep the C object alive, so the owner may be
//! dropped before them. If a queue pair has a shared receive queue, receives cannot be posted to the queue pair itself.
//!
//! A queue with tag matching also supports operations on its list of tags:
//! [`start_post_ops`](SharedReceiveQueue::start_post_ops).

mod attribute;
mod builder;
mod core;
mod queue;
mod tag_matching;

pub(crate) use self::core::SharedReceiveQueueCore;
pub use attribute::{SharedReceiveQueueAttribute, SharedReceiveQueueAttributeMask, SharedReceiveQueueType};
pub use builder::SharedReceiveQueueBuilder;
pub use queue::{SharedReceiveQueue, SharedReceiveQueueRef};
pub use tag_matching::{
    PostTagOperationsGuard, Tag, TagBufferHandle, TagMatchingOperationFlags, TagMatchingOperationHandle,
};
