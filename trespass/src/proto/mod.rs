//! A connection as a state machine: no I/O, clock, threads or unsafe code.
//!
//! Events go in by [`Connection::received`], `sent`, `read_done`, `ended` and `tick`; what is to be done comes out in
//! [`Connection::requests`], which the backend empties. The memory that it works on is the [`Stock`] of its worker.
//!
//! # Credits
//!
//! Each SEND takes a receive of the peer's shared queue, so each SEND needs a credit. A credit is a limit on the number of SENDs since the
//! beginning, and each SEND carries the newest limit for the other direction. The ledger of the [`Stock`] leases limits against receives that exist:
//! the sum of all leases never exceeds them, so a SEND always finds a receive (no RNR).
//!
//! A SEND that the program has not read yet stays within its lease; reading it frees the credit. Freed credits are announced with the next
//! SEND of any kind, or by a SEND of their own once two are free and the peer runs short.
//!
//! SENDs with messages leave three credits over, control SENDs one, and the last is for announcements. This rules out three things:
//!
//! - *Deadlock.* Let nothing be in flight, and side A wait for credits while B has read everything. A has three left at most, of a lease of
//!   [`FLOOR`] at least, so two are free at B: B announces them, unless B has none left itself. Then three of B's are free at A, and A
//!   announces. Both at zero cannot be: the last SEND of either would have been an announcement of at least two credits that the other
//!   had not yet seen when it spent its own last credit.
//! - *Endless announcements.* An announcement frees one credit at the peer, and two make an announcement: each round has half as
//!   many.
//! - *Starved control.* A peer that does not read takes the credits of messages only.

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

/// Credits that a connection always has leased.
pub(crate) const FLOOR: u16 = 5;
/// Credits that are left over for control SENDs when messages wait.
pub(crate) const RESERVE: u16 = 3;
/// Credits that a busy connection has leased at most by default.
pub(crate) const WINDOW: u16 = 64;
/// Credits that a peer may grant: half the range of the counter, so that newer and older limits differ in sign.
pub(crate) const WINDOW_MAX: u16 = 1 << 14;
