//! The transport to the other processes of the host. No daemon is required. Each process owns blocks of QP numbers, and
//! two processes that communicate share memory that contains rings.
//!
//! `block` claims the blocks of QP numbers, and `group` finds the members of multicast groups. The first message to a
//! process opens a session (`outgoing`), which that process accepts (`incoming`). A `session` consists of a `socket`,
//! shared memory (`shared`) with two rings (`ring`) of packets (`codec`), and wake-ups (`wakeup`). A program that polls
//! delivers the packets that have arrived. If the program does not poll, the thread of softrnic does this (`reactor`).
//! Both the polls and the thread use `peers`. After `fork`, a child uses nothing of its parent's transport.
//!
//! # Trust
//!
//! Two processes can reach each other if they have the same user and network namespace. No process accesses the memory
//! of another one. All data goes through the shared memory, and the receiver checks and copies it. A process cannot
//! access registered memory of another process without the key of this memory. A malicious, stopped or killed process
//! affects only requests that other processes have sent to it.
//!
//! A process can forge messages of another process of the same user, because a QP is identified by its number, its PSN
//! and a random number, but not by its process. A process of the same user can also use up the sessions
//! (`peers::MAX_SESSIONS`).
//!
//! The thread that detects an error logs it (crate `log`, mostly at level `debug`) when it has released its locks, so a
//! logger may call verbs (`rdma_mummy_sys::program`). While the thread of softrnic runs the logger, it receives nothing.

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
mod unsettled;
mod wakeup;

use std::env;
use std::sync::Arc;

use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::wire::address::Gid;
use crate::wire::packet::BLOCK;
use crate::wire::transport::{Carrier, Fabric, Routes, Sockets, Transport};

pub(crate) use self::peers::Peers;

/// Name of the environment variable that disables connections to other processes if its value is `0`.
pub const PEERS_VARIABLE: &str = "SOFTRNIC_PEERS";

/// Whether this process can reach other processes, which the environment can disable.
pub(crate) fn is_enabled() -> bool {
    let is_off = env::var_os(PEERS_VARIABLE).is_some_and(|value| value == "0");
    !is_off && !cfg!(miri)
}

/// The transport to the other processes of the host. After `fork`, a child has its own transport.
#[derive(Debug)]
pub(crate) struct Processes(pub(crate) &'static PerProcess<Peers>);

impl Routes for Processes {
    fn claim(&self) -> Option<u32> {
        self.0.get().claim().map_err(|error| rdma_mummy_sys::log!(warn, "cannot reach other processes: {error}")).ok()
    }

    fn carrier(&self, number: u32) -> Option<Arc<dyn Carrier>> {
        let session = self.0.get().session_with(number / BLOCK)?;
        Some(session)
    }

    fn reach(&self, number: u32) -> Result<(), Errno> {
        self.0.get().open(number / BLOCK).map_err(|error| Errno(error.raw_os_error()))
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
            rdma_mummy_sys::log!(warn, "cannot announce a multicast group to other processes: {error}");
        }
    }

    fn left(&self, group: Gid) {
        self.0.get().groups.leave(group);
    }

    fn settle(&self) {
        self.0.get().serve_all();
    }
}

impl Transport for Processes {
    fn fabric(&self) -> Fabric {
        Fabric::Host
    }

    #[inline]
    fn progress(&self) -> bool {
        self.0.get().progress()
    }

    fn armed(&self) {
        self.0.get().armed();
    }

    fn sockets(&self) -> Option<&'static dyn Sockets> {
        Some(self.0.get())
    }
}
