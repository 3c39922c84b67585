//! The other processes of the host, without a daemon: who has which numbers, and rings in shared memory to and from each.
//!
//! `block` says who has which numbers, and `group` who is in a multicast group. With the first message to a process a session is
//! made (`outgoing`), which that process takes (`incoming`). A `session` is a `socket` and memory that both share (`shared`) with
//! two rings (`ring`) of packets (`codec`); `wakeup` is about
//! which end wakes the other. What comes is delivered by programs that poll and by a thread (`reactor`); `peers` is what both know.
//! In a child after `fork` none of it is used.

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

/// The environment variable that keeps other processes away where it is `0`.
pub const PEERS_VARIABLE: &str = "SOFTRNIC_PEERS";

/// Whether processes of this host reach each other: not if the environment says no.
pub(crate) fn is_enabled() -> bool {
    let is_off = env::var_os(PEERS_VARIABLE).is_some_and(|value| value == "0");
    !is_off && !cfg!(miri)
}

/// The transport to the other processes of the host, as each process sees them: a child after `fork` begins anew.
#[derive(Debug)]
pub(crate) struct Processes(pub(crate) &'static PerProcess<Peers>);

impl Transport for Processes {
    fn claim(&self) -> Option<u32> {
        self.0.get().claim().map_err(|error| log::warn!("other processes cannot be reached: {error}")).ok()
    }

    /// Numbers are unique on the host, and so the address is not looked at.
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
            log::warn!("other processes cannot see that this one is in a multicast group: {error}");
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
