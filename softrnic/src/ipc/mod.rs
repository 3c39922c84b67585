//! The other processes of the host, without a daemon: who has which numbers, and rings in shared memory to and from each.
//!
//! `block` says who has which numbers, and `group` who is in a multicast group. With the first message to a process a session is
//! made (`outgoing`), which that process takes (`incoming`). A `session` is a `socket` and memory that both share (`shared`) with
//! two rings (`ring`) of packets (`codec`); `bells` says who is to ring for whom. What comes is told to the queue pairs (`deliver`), by programs that poll and by a thread
//! (`reactor`); `peers` is what both know. In a child after `fork` none of it is used (`descriptor`).

mod block;
mod codec;
mod deliver;
pub(crate) mod descriptor;
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

use self::deliver::ToNetwork;
use self::peers::Peers;
use crate::qp::registry::QpRegistry;
use crate::sys::fork::PerProcess;
use crate::wire::address::Gid;
use crate::wire::packet::{BLOCK, Carrier, Fabric};

/// The environment variable that keeps other processes away where it is `0`.
pub const PEERS_VARIABLE: &str = "SOFTRNIC_PEERS";

static PROCESS: PerProcess<Peers> = PerProcess::new(Peers::new(&ToNetwork), || Box::new(Peers::new(&ToNetwork)));

/// Lets the queue pairs of this process reach those of others; does nothing that another process could see until one has a number.
pub(crate) fn enable() {
    let is_off = env::var_os(PEERS_VARIABLE).is_some_and(|value| value == "0");
    if !is_off && !cfg!(miri) {
        QpRegistry::set_fabric(&Process);
    }
}

/// To be called in a child after `fork`, before anything else of the fabric: what its parent had is closed. Safe for a handler of
/// `pthread_atfork`: takes no locks and allocates nothing.
pub(crate) fn forked_child() {
    descriptor::close_all();
}

/// The other processes of the host, for this one: a child after `fork` begins anew.
#[derive(Debug)]
struct Process;

impl Fabric for Process {
    fn claim(&self) -> Option<u32> {
        Host(PROCESS.get()).claim()
    }

    fn carrier(&self, number: u32) -> Option<Arc<dyn Carrier>> {
        Host(PROCESS.get()).carrier(number)
    }

    fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>> {
        Host(PROCESS.get()).group(group)
    }

    fn joined(&self, group: Gid) {
        Host(PROCESS.get()).joined(group);
    }

    fn left(&self, group: Gid) {
        Host(PROCESS.get()).left(group);
    }

    #[inline]
    fn progress(&self) -> bool {
        PROCESS.get().progress()
    }
}

/// The other processes of the host.
#[derive(Debug)]
struct Host(&'static Peers);

impl Fabric for Host {
    fn claim(&self) -> Option<u32> {
        self.0.claim().map_err(|error| log::warn!("other processes cannot be reached: {error}")).ok()
    }

    fn carrier(&self, number: u32) -> Option<Arc<dyn Carrier>> {
        let session = self.0.session_with(number / BLOCK)?;
        Some(session)
    }

    fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>> {
        let carrier = |block| self.0.session_with(block).map(|session| session as Arc<dyn Carrier>);
        let members = self.0.groups.members(group).into_iter();
        members.filter(|&block| !self.0.has_block(block)).filter_map(carrier).collect()
    }

    fn joined(&self, group: Gid) {
        if let Some(block) = self.0.first_block()
            && let Err(error) = self.0.groups.join(group, block)
        {
            log::warn!("other processes cannot see that this one is in a multicast group: {error}");
        }
    }

    fn left(&self, group: Gid) {
        self.0.groups.leave(group);
    }

    #[inline]
    fn progress(&self) -> bool {
        self.0.progress()
    }
}
