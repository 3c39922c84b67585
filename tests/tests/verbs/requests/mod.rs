//! Every request of every service on the recording provider: what the device gets, and what is refused first.
#![expect(clippy::unwrap_used, reason = "a test")]

mod borrowed;
mod datagrams;
mod operations;
mod packets;
mod prepared;
mod refusals;
mod support;
mod xrc;
