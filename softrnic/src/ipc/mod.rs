//! The transport to the other processes of the host. No daemon is required: each process owns blocks of QP numbers, and
//! pairs of processes share memory with rings.
//!
//! `block` claims the blocks of QP numbers, and `group` finds the members of multicast groups. The first message to a
//! process opens a session (`outgoing`), which that process accepts (`incoming`). A `session` consists of a `socket`,
//! shared memory (`shared`) with two rings (`ring`) of packets (`codec`), and wake-ups (`wakeup`). Programs that poll
//! deliver received packets; if none polls, a thread does (`reactor`). The programs and the thread use `peers`. After
//! `fork`, a child uses nothing of its parent's transport.
//!
//! # Trust
//!
//! Processes reach each other if they have the same user and network namespace. No process accesses another's memory:
//! all data goes through shared memory, and the receiver copies and checks it. A process cannot access memory without
//! its key. A malicious, stopped or killed process affects only requests that other processes have sent to it.
//!
//! A process can forge messages of another process of the same user: a QP is identified by its number, its PSN and a
//! random number, not by its process. Such a process can also exhaust the sessions (`peers::MAX_SESSIONS`).
//!
//! The thread that detects an error logs it (crate `log`, mostly at level `debug`) while it holds locks. So a logger
//! must not call verbs, nor wait for a thread that does.

mod block;
mod codec;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod group;
mod incoming;
mod outgoing;
mod peers;
mod reactor;
mod ring;
mod session;
mod shared;
pub(crate) mod socket;
#[cfg(test)]
mod tests;
mod wakeup;

use std::env;
use std::sync::Arc;

use crate::sys::fork::PerProcess;
use crate::wire::address::Gid;
use crate::wire::packet::BLOCK;
use crate::wire::transport::{Carrier, Transport};

pub(crate) use self::peers::Peers;

/// Environment variable that disables connections to other processes if it is `0`.
pub const PEERS_VARIABLE: &str = "SOFTRNIC_PEERS";

/// Whether processes of this host reach each other, unless disabled by the environment.
pub(crate) fn is_enabled() -> bool {
    let is_off = env::var_os(PEERS_VARIABLE).is_some_and(|value| value == "0");
    !is_off && !cfg!(miri)
}

/// The transport to the other processes of the host. After `fork`, a child has its own transport.
#[derive(Debug)]
pub(crate) struct Processes(pub(crate) &'static PerProcess<Peers>);

impl Transport for Processes {
    fn claim(&self) -> Option<u32> {
        self.0.get().claim().map_err(|error| log::warn!("cannot reach other processes: {error}")).ok()
    }

    /// Ignores the address, because QP numbers are unique on the host.
    fn carrier(&self, _destination: Gid, number: u32) -> Option<Arc<dyn Carrier>> {
        let session = self.0.get().session_with(number / BLOCK)?;
        Some(session)
    }

    fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>> {
        let peers = self.0.get();
        let carrier = |block| peers.session_with(block).map(|session| session as Arc<dyn Carrier>);
        let members = peers.groups.members(group).into_iter();
        members.filter(|&block| !peers.has_block(block)).filter_map(carrier).collect()
    }

    fn joined(&self, group: Gid) {
        let peers = self.0.get();
        if let Some(block) = peers.first_block()
            && let Err(error) = peers.groups.join(group, block)
        {
            log::warn!("cannot announce a multicast group to other processes: {error}");
        }
    }

    fn left(&self, group: Gid) {
        self.0.get().groups.leave(group);
    }

    #[inline]
    fn progress(&self) -> bool {
        self.0.get().progress()
    }

    fn settle(&self) {
        self.0.get().serve_all();
    }
}
