//! RoCEv2 over UDP (InfiniBand Architecture Specification, volume 1, chapter 9 and annex A17).
//!
//! The following modules perform no I/O. The lowest one is first:
//!
//! - `packet`: the headers of a packet
//! - `icrc`: the check sum of a packet, which covers parts of the IP header
//! - `psn`, `line`: packet sequence numbers, and what the packets of a connection have in common
//! - `spare`: buffers that are used again; `counters`: what has happened
//! - `window`: how many packets may be in flight to a host
//! - `requests`: the requester's side of a reliable connection
//! - `assembly`, `responses`: the responder's side
//! - `unreliable`: both sides of an unreliable connection
//! - `mad`, `cm_message`: the messages of the connection manager
//! - `connect`: the set-up and the end of a connection by these messages
//!
//! The following modules perform I/O, for the devices named `softroce...`:
//!
//! - `socket`: the UDP sockets, which are independent of the state machines
//! - `management`: the datagrams to QP 1, which the connection manager handles
//! - `probe`: whether any process of a host uses the port of RoCEv2
//! - `run`: packets that are delivered together
//! - `link`: the carrier of a QP; `datagrams`: the carrier of all datagrams
//! - `engine`: the links of the process, and the thread that serves them
//!
//! `simulator` tests both ends of a connection without I/O.

mod assembly;
pub(crate) mod cm_message;
pub(crate) mod connect;
pub(crate) mod counters;
mod datagrams;
pub(crate) mod engine;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod icrc;
mod line;
pub(crate) mod link;
mod mad;
pub(crate) mod management;
pub(crate) mod packet;
pub(crate) mod probe;
mod psn;
mod requests;
mod responses;
mod run;
#[cfg(test)]
mod simulator;
pub(crate) mod socket;
mod spare;
mod unreliable;
mod window;
