//! RoCEv2 over UDP (InfiniBand Architecture Specification, volume 1, chapter 9 and annex A17).
//!
//! The following modules perform no I/O. The lowest one is first:
//!
//! - `packet`: the headers of a packet
//! - `icrc`: the check sum of a packet, which covers parts of the IP header
#![allow(dead_code, reason = "the modules above these follow")]

pub(crate) mod icrc;
pub(crate) mod packet;
