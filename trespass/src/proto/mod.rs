//! A connection as a state machine: no I/O, clock, threads or unsafe code.
//!
//! The worker passes events to [`Connection::received`], `sent`, `read_done`, `ended` and `tick`. The connection puts
//! its requests into [`Connection::requests`], which the backend empties. It takes memory from the [`Stock`] of its
//! worker.
//!
//! # Credits
//!
//! Each SEND consumes a receive of the peer's shared queue, so each SEND needs a credit. Credits are granted as a limit
//! on the number of SENDs since the start; each SEND carries the newest limit for the other direction. The ledger of
//! the [`Stock`] leases credits. The sum of all leases never exceeds the number of posted receives, so a receive exists
//! for each SEND (no RNR).
//!
//! Until the program has read a SEND, its credit stays in use; reading it frees the credit. Freed credits are announced
//! with the next SEND of any kind, or by a SEND of their own when two are free and the peer has few left.
//!
//! SENDs with messages leave three credits unused, and control SENDs leave one. The last credit is reserved for
//! announcements. These rules exclude three faults:
//!
//! - *Deadlock.* Assume that nothing is in flight, and that side A waits for credits while B has read everything. A has
//!   at most three credits left of a lease of at least [`FLOOR`], so at least two are free at B. B announces them,
//!   unless B has no credit itself. In that case three of B's credits are free at A, and A announces them. Both sides
//!   cannot have zero credits: each side's last SEND would have been an announcement of at least two credits, which had
//!   not arrived when its peer used its last credit.
//! - *Endless announcements.* An announcement frees one credit at the peer, and an announcement requires two free
//!   credits. So each round has half as many announcements as the one before.
//! - *Starved control.* A program that does not read blocks only the credits of messages.

mod connection;
mod failure;
mod frame;
mod hello;
mod request;
#[cfg(test)]
mod sim;
mod stock;

pub(crate) use connection::{Connection, Port, Received, Settings};
pub(crate) use failure::Failure;
pub(crate) use frame::HEADER;
#[cfg(test)]
pub(crate) use frame::{Frame, Kind as FrameKind};
pub(crate) use hello::{Agreement, Hello, Refusal, RefusalCode};
pub(crate) use request::{Remote, Request};
pub(crate) use stock::Stock;

/// The minimum number of credits leased to a connection.
pub(crate) const FLOOR: u16 = 5;
/// Credits reserved for control SENDs while messages wait.
pub(crate) const RESERVE: u16 = 3;
/// The default maximum of credits leased to a busy connection.
pub(crate) const WINDOW: u16 = 64;
/// The maximum number of credits that a peer may grant: half the range of the counter, so that the sign distinguishes
/// newer from older limits.
pub(crate) const WINDOW_MAX: u16 = 1 << 14;
