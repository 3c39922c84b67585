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
//! cursor over the queue.

mod basic;
mod builder;
mod channel;
mod event_target;
mod extended;
mod fields;
mod generic;
mod opcode;
mod poll_error;
mod queue;
mod queue_ref;
mod record;
mod status;

pub use self::basic::{BasicCompletionQueue, BasicPoller, BasicWorkCompletion};
pub use self::builder::CompletionQueueBuilder;
pub use self::channel::{CompletionChannel, CompletionEvent};
pub use self::extended::{ExtendedCompletionQueue, ExtendedPoller, ExtendedWorkCompletion};
pub use self::fields::{CreateCompletionQueueWorkCompletionFlags, WorkCompletionFlags};
pub use self::generic::{GenericCompletionQueue, GenericPoller, GenericWorkCompletion};
pub use self::opcode::WorkCompletionOperationType;
pub use self::poll_error::PollCompletionQueueError;
pub use self::queue::CompletionQueue;
pub(crate) use self::queue::CompletionQueueCore;
pub use self::queue_ref::CompletionQueueRef;
pub use self::record::{CompletionRecord, PollCompletions};
pub use self::status::WorkCompletionStatus;
