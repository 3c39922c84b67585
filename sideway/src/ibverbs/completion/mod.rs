//! Completion queues: where requests report that they are done.
//!
//! ```text
//! CompletionQueueBuilder ── build ───────► BasicCompletionQueue     ibv_create_cq     ibv_poll_cq, in batches
//!                        ── build_ex ────► ExtendedCompletionQueue  ibv_create_cq_ex  ibv_start_poll, ibv_next_poll …
//!                        ── build_generic ► GenericCompletionQueue  either, as the device has it
//! ```
//!
//! A queue is one owned value, and polling takes it by `&mut`: two pollers on one queue cannot be written in safe code,
//! and no lock or flag is needed for that. Queue pairs keep the C object alive for themselves. To poll from several
//! threads, give each a queue of its own, or put the queue into a mutex.
//!
//! Completions are lent: each borrows the poller until the next is asked for, because the extended interface moves one
//! cursor over the queue. `poll_each` lends them to a closure instead, up to so many in one poll.
//!
//! A function that is generic over [`PollCompletions`] polls queues of any kind, at the cost of the queue's own methods.
//!
//! What a completion has beside its number and status depends on the queue. A basic queue has the standard fields; an extended one
//! those and what it was asked for with [`CompletionQueueBuilder::setup_wc_flags`]. Standard fields are plain values; asked for
//! another that the queue has not, a completion answers with [`FieldNotEnabled`].
//!
//! | field | flag of `CreateCompletionQueueWorkCompletionFlags` | |
//! |---|---|---|
//! | `byte_len` | `ByteLength` | standard |
//! | `imm_data`, `invalidated_rkey` | `ImmediateData` | standard |
//! | `qp_num` | `QueuePairNumber` | standard |
//! | `src_qp` | `SourceQueuePair` | standard; 0 where the driver has none |
//! | `slid` | `SourceLocalIdentifier` | standard; 0 where the driver has none |
//! | `sl` | `ServiceLevel` | standard; 0 where the driver has none |
//! | `dlid_path_bits` | `DestinationLocalIdentifierPathBits` | standard; 0 where the driver has none |
//! | `completion_timestamp` | `CompletionTimestamp` | extended queues |
//! | `completion_wallclock_ns` | `CompletionTimestampWallclock` | extended queues |
//! | `cvlan` | `CustomerVlan` | extended queues |
//! | `flow_tag` | `FlowTag` | extended queues |
//! | `tag_matching_info` | `TagMatchingInformation` | extended queues |
//! | `pkey_index` | | basic queues |
//!
//! Queues that cost no lock, and stay with one thread, are in [`single_threaded`](super::single_threaded).

mod basic;
mod builder;
mod channel;
mod counter;
mod extended;
mod fields;
mod generic;
mod poll;
mod queue;
mod status;

pub use self::basic::{BasicCompletionQueue, BasicPoller, BasicWorkCompletion};
pub use self::builder::CompletionQueueBuilder;
pub use self::channel::{CompletionChannel, CompletionEvent};
pub use self::counter::{CompletionCounter, CompletionCounterCapabilities, CompletionCounterType, CountedOperations};
pub use self::extended::{ExtendedCompletionQueue, ExtendedPoller, ExtendedWorkCompletion};
pub use self::fields::{
    CreateCompletionQueueWorkCompletionFlags, FieldNotEnabled, TagMatchingInfo, WorkCompletionFlags,
    WorkCompletionSource,
};
pub use self::generic::{GenericCompletionQueue, GenericPoller, GenericWorkCompletion};
pub(crate) use self::poll::Token;
pub use self::poll::{CompletionRecord, PollCompletionQueueError, PollCompletions, WorkCompletion};
pub use self::queue::{CompletionModeration, CompletionQueue, CompletionQueueRef};
pub(crate) use self::queue::{CompletionQueueCore, Threads};
pub use self::status::{WorkCompletionOperationType, WorkCompletionStatus};
