//! Completion queues, which report completed requests.
//!
//! ```text
//! CompletionQueueBuilder ── build ───────► BasicCompletionQueue     ibv_create_cq     ibv_poll_cq, in batches
//!                        ── build_ex ────► ExtendedCompletionQueue  ibv_create_cq_ex  ibv_start_poll, ibv_next_poll …
//!                        ── build_generic ► GenericCompletionQueue  either, as the device has it
//! ```
//!
//! A queue has one owner, and polling takes `&mut`. So safe code cannot create two pollers on one queue, and polling
//! needs no lock or flag. Queue pairs keep the C object of the queue alive. To poll from several threads, give each
//! thread its own queue, or put the queue in a mutex.
//!
//! A completion borrows the poller until the next one is requested, because the extended interface moves one cursor
//! over the queue. `poll_each` passes up to N completions to a closure in one poll.
//!
//! Functions that are generic over [`PollCompletions`] poll queues of any kind. They are as fast as the methods of the
//! concrete type.
//!
//! Every completion has a number and a status; its other fields depend on the queue. A basic queue delivers the
//! standard fields. An extended queue also delivers the fields that were set with
//! [`CompletionQueueBuilder::setup_wc_flags`]. The methods of standard fields return plain values. The methods of other
//! fields return [`FieldNotEnabled`] if the queue does not deliver the field.
//!
//! | field | flag of `CreateCompletionQueueWorkCompletionFlags` | |
//! |---|---|---|
//! | `byte_len` | `ByteLength` | standard |
//! | `imm_data`, `invalidated_rkey` | `ImmediateData` | standard |
//! | `qp_num` | `QueuePairNumber` | standard |
//! | `src_qp` | `SourceQueuePair` | standard; 0 if the driver has none |
//! | `slid` | `SourceLocalIdentifier` | standard; 0 if the driver has none |
//! | `sl` | `ServiceLevel` | standard; 0 if the driver has none |
//! | `dlid_path_bits` | `DestinationLocalIdentifierPathBits` | standard; 0 if the driver has none |
//! | `completion_timestamp` | `CompletionTimestamp` | extended queues |
//! | `completion_wallclock_ns` | `CompletionTimestampWallclock` | extended queues |
//! | `cvlan` | `CustomerVlan` | extended queues |
//! | `flow_tag` | `FlowTag` | extended queues |
//! | `tag_matching_info` | `TagMatchingInformation` | extended queues |
//! | `pkey_index` | | basic queues |
//!
//! Module [`single_threaded`](super::single_threaded) has queues that take no lock and are confined to one thread.

mod basic;
mod builder;
mod channel;
mod counter;
mod event;
mod extended;
mod fields;
mod generic;
pub(in crate::ibverbs) mod poll;
mod queue;
mod status;

pub use self::basic::{BasicCompletionQueue, BasicPoller, BasicWorkCompletion};
pub use self::builder::CompletionQueueBuilder;
pub use self::channel::CompletionChannel;
pub use self::counter::{CompletionCounter, CompletionCounterCapabilities, CompletionCounterType, CountedOperations};
pub use self::event::CompletionEvent;
pub use self::extended::{ExtendedCompletionQueue, ExtendedPoller, ExtendedWorkCompletion};
pub use self::fields::{
    CreateCompletionQueueWorkCompletionFlags, FieldNotEnabled, TagMatchingInfo, WorkCompletionFlags,
    WorkCompletionSource,
};
pub use self::generic::{GenericCompletionQueue, GenericPoller, GenericWorkCompletion};
pub(crate) use self::poll::Token;
pub use self::poll::{CompletionRecord, PollCompletionQueueError, PollCompletions, WorkCompletion};
pub(crate) use self::queue::AsCore;
pub use self::queue::{CompletionModeration, CompletionQueue, CompletionQueueRef};
pub(crate) use self::queue::{CompletionQueueCore, Threads};
pub use self::status::{WorkCompletionOperationType, WorkCompletionStatus};
