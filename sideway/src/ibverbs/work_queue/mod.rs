//! Work queues: receive queues without a queue pair, and queue pairs that distribute packets among them (receive side
//! scaling).
//!
//! ```text
//! WorkQueueBuilder ── build ─► WorkQueue            ibv_create_wq; posted to by &mut, a thread each
//!        │ a power of two of them
//!        ▼
//! DeviceContext::create_rwq_ind_table ─► Arc<RwqIndirectionTable>
//!        │                               ibv_create_rwq_ind_table
//!        ▼
//! RssQueuePairBuilder ── build ─► RssQueuePair ── create_flow(&rule) ─► Flow
//!                                 ibv_create_qp_ex with IBV_QP_INIT_ATTR_IND_TABLE and IBV_QP_INIT_ATTR_RX_HASH
//! ```
//!
//! The device computes a hash over the selected fields of each packet that a flow directs to the queue pair. The lowest
//! bits of the hash are an index into the table. The work queue at that index receives the packet.

mod attribute;
mod builder;
mod queue;
mod rss;
mod table;

pub use self::attribute::{WorkQueueAttribute, WorkQueueFlags, WorkQueueState};
pub use self::builder::WorkQueueBuilder;
pub use self::queue::{WorkQueue, WorkQueueRef};
pub use self::rss::{RssQueuePair, RssQueuePairBuilder};
pub use self::table::RwqIndirectionTable;
