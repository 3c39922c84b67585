//! RoCEv2 over UDP (InfiniBand Architecture Specification, volume 1, chapter 9 and annex A17).
//!
//! The following modules perform no I/O. The lowest one is first:
//!
//! - `packet`: the headers of a packet
//! - `icrc`: the check sum of a packet, which covers parts of the IP header
//! - `psn`, `line`: packet sequence numbers, and what the packets of a connection have in common
//! - `window`: how many packets may be in flight
//! - `requests`: the requester's side of a reliable connection
//! - `assembly`, `responses`: the responder's side
//!
//! `socket` has the UDP sockets, and is independent of the modules above these two.
#![allow(dead_code, reason = "the modules above these follow")]

mod assembly;
pub(crate) mod icrc;
mod line;
pub(crate) mod packet;
mod psn;
mod requests;
mod responses;
#[cfg(test)]
mod simulator;
mod window;
pub(crate) mod socket;
