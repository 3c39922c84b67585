//! Ending a queue pair so that its buffers can be freed without a device accessing freed memory.
//!
//! A time-out in the program does not stop the device. The device may still execute the request later, in memory that
//! the program has reused by then. A request ends only when its completion has been polled, or the queue pair has been
//! reset or destroyed.
//!
//! - [`Pair::drain`](super::Pair::drain) moves the queue pair to the Error state, which flushes all requests. It then
//!   polls until the last of them completes, and passes every completion to the program. If the time limit expires, it
//!   resets the queue pair, which ends the remaining requests.
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
