//! Ending a queue pair so that its buffers can go: no device reads or writes memory that was freed.
//!
//! A time-out says nothing about the device: a request that the program has given up may still be carried out, in memory that
//! has another owner by then. It ends only when its completion has been polled, or the queue pair has been reset or destroyed.
//!
//! - [`Pair::drain`](super::Pair::drain) moves the queue pair to the error state, which flushes all requests, and polls until
//!   the last of them has been seen. Every completion is handed to the program. What does not come within the time given is
//!   ended by a reset.
//! - [`Pair::tear_down`](super::Pair::tear_down) does that and destroys the queue pair, and gives the buffers back only then.

mod drain;
mod error;
mod side;
mod tear_down;

pub use self::drain::{Drained, ResetReason};
pub use self::error::{DrainError, TearDownError};
pub use self::tear_down::TornDown;

/// The numbers (`wr_id`) of the requests that [`Pair::drain`](super::Pair::drain) posts behind all others, to the send queue
/// and to the receive queue. No other request of the queue pair may have them.
pub const DRAIN_MARKERS: [u64; 2] = [u64::MAX, u64::MAX - 1];
