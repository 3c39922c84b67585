//! A connection as a state machine: no I/O, clock, threads or unsafe code.
//!
//! The worker passes events to `received`, `sent`, `read_done`, `ended` and `tick`. The connection adds
//! its requests to `requests`, from which the backend takes them. The connection takes memory from its
//! worker's [`Stock`].
//!
//! # Credits
//!
//! Each SEND consumes a receive of the peer's shared queue, so each SEND needs a credit. Credits are granted as a limit
//! on the number of SENDs since the start; each SEND carries the newest limit for the other direction. The ledger of
//! the [`Stock`] leases credits. The sum of all leases never exceeds the number of posted receives, so a receive exists
//! for each SEND (no RNR).
//!
//! A SEND's credit stays in use until the program has read the SEND. Freed credits are announced with the next SEND of
//! any kind, or by a SEND of their own when two are free and the peer has few left.
//!
//! A SEND with messages is posted only if three credits remain, and a control SEND only if one remains. The last credit
//! is reserved for announcements. These rules exclude three faults:
//!
//! - *Deadlock.* Assume that nothing is in flight, that side A waits for credits, and that B has read everything. A has
//!   at most three unused credits of a lease of at least [`FLOOR`], so B has freed at least two. B announces these,
//!   unless B has no credit to send with. In that case A has freed three of B's credits, and announces them. The two
//!   sides cannot both have zero credits: otherwise each side's last SEND would have announced at least two credits,
//!   and this announcement would not have arrived before its peer used its last credit.
//! - *Endless announcements.* Each announcement frees one credit at the peer, and two free credits are required for an
//!   announcement. So each round has at most half as many announcements as the round before.
//! - *Blocked control frames.* A program that does not read uses up only the credits for messages.

mod connection;
mod failure;
mod frame;
mod hello;
mod request;
#[cfg(test)]
mod sim;
mod stock;

pub use connection::Placed;
pub(crate) use connection::{Place, Protocol, Received, Settings};
pub use failure::Failure;
pub(crate) use frame::HEADER;
#[cfg(test)]
pub(crate) use frame::{Frame, Kind as FrameKind};
pub(crate) use hello::{Agreement, Hello, Refusal, RefusalCode};
pub(crate) use request::{Remote, Request};
#[cfg(test)]
pub(crate) use sim::Rng;
pub(crate) use stock::Stock;

/// The minimum number of credits leased to a connection.
pub(crate) const FLOOR: u16 = 5;
/// The number of credits that messages leave unused, so that control SENDs can use them.
pub(crate) const RESERVE: u16 = 3;
/// The default maximum of credits leased to a busy connection.
pub(crate) const WINDOW: u16 = 64;
/// The maximum number of credits that a peer may grant. It is less than half the range of the counter, so that the sign
/// of a difference distinguishes newer from older limits.
pub(crate) const WINDOW_MAX: u16 = 1 << 14;
