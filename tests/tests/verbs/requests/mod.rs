//! Every request of every service on the recording device: the request that the device receives, and requests that are
//! refused before.
#![expect(clippy::unwrap_used, reason = "a test")]

mod borrowed;
mod datagrams;
mod operations;
mod packets;
mod prepared;
mod refusals;
mod support;
mod xrc;
