//! Ending a queue pair so that its buffers can be freed: no device accesses freed memory.
//!
//! A time-out in the program does not stop the device: it may still execute a request, in memory that has been reused
//! since. A request ends only when its completion has been polled, or the queue pair has been reset or destroyed.
//!
//! - [`Pair::drain`](super::Pair::drain) moves the queue pair to the Error state, which flushes all requests, and polls
//!   until the last of them completes. Every completion is passed to the program. After the time limit, a reset ends
//!   remaining requests.
//! - [`Pair::tear_down`](super::Pair::tear_down) does this, destroys the queue pair, and then returns the buffers.

mod drain;
mod error;
mod side;
mod tear_down;

pub use self::drain::{Drained, ResetReason};
pub use self::error::{DrainError, TearDownError};
pub use self::tear_down::TornDown;

/// The numbers (`wr_id`) of the requests that [`Pair::drain`](super::Pair::drain) posts after all others, to the send
/// queue and the receive queue. No other request of the queue pair may use them.
pub const DRAIN_MARKERS: [u64; 2] = [u64::MAX, u64::MAX - 1];
