//! Shared receive queues, XRC and tag matching, on the recording device: no hardware, no library.
#![expect(clippy::unwrap_used, reason = "a test")]

mod builder;
mod change;
mod faults;
mod ownership;
mod posting;
mod tags;
mod xrc;
