//! The other processes of the host, without a daemon: who has which numbers, and rings in shared memory to and from each.
//!
//! `block` says who has which numbers, and `group` who is in a multicast group. With the first message to a process a session is
//! made (`outgoing`), which that process takes (`incoming`). A `session` is a `socket` and memory that both share (`shared`) with
//! two rings (`ring`) of packets (`wire`). What comes is told to the queue pairs (`deliver`), by programs that poll and by a thread
//! (`reactor`); `peers` is what both know. In a child after `fork` none of it is used (`descriptor`).

mod block;
mod deliver;
mod descriptor;
mod group;
mod incoming;
mod outgoing;
mod peers;
mod reactor;
mod ring;
mod session;
mod shared;
mod socket;
#[cfg(test)]
mod tests;
mod wire;

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::deliver::ToNetwork;
use self::peers::Peers;
use crate::engine::address::Gid;
use crate::engine::network::Network;
use crate::engine::packet::{BLOCK, Carrier, Fabric};

/// The environment variable that keeps other processes away where it is `0`.
pub const PEERS_VARIABLE: &str = "SOFTRNIC_PEERS";

static PROCESS: Peers = Peers::new(&ToNetwork);
static HOST: Host = Host(&PROCESS);
/// This is a child of the process that the fabric is of.
static IS_FORKED_CHILD: AtomicBool = AtomicBool::new(false);

/// Lets the queue pairs of this process reach those of others; does nothing that another process could see until one has a number.
pub(crate) fn enable() {
    let is_off = env::var_os(PEERS_VARIABLE).is_some_and(|value| value == "0");
    if !is_off && !cfg!(miri) {
        Network::of_process().set_fabric(&HOST);
    }
}

/// To be called in a child after `fork`, before anything else of the fabric: it has no peers. Safe for a handler of `pthread_atfork`:
/// takes no locks and allocates nothing.
#[cfg_attr(not(test), expect(dead_code, reason = "for who handles forks"))]
pub(crate) fn forked_child() {
    IS_FORKED_CHILD.store(true, Ordering::SeqCst);
    PROCESS.forget_all();
    descriptor::close_all();
}

fn is_forked_child() -> bool {
    IS_FORKED_CHILD.load(Ordering::Relaxed)
}

/// The other processes of the host.
#[derive(Debug)]
struct Host(&'static Peers);

impl Fabric for Host {
    fn claim(&self) -> Option<u32> {
        if is_forked_child() {
            return None;
        }
        self.0.claim().map_err(|error| log::warn!("other processes cannot be reached: {error}")).ok()
    }

    fn carrier(&self, number: u32) -> Option<Arc<dyn Carrier>> {
        if is_forked_child() {
            return None;
        }
        let session = self.0.session_with(number / BLOCK)?;
        Some(session)
    }

    fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>> {
        if is_forked_child() {
            return Vec::new();
        }
        let carrier = |block| self.0.session_with(block).map(|session| session as Arc<dyn Carrier>);
        self.0.groups.members(group).into_iter().filter_map(carrier).collect()
    }

    fn joined(&self, group: Gid) {
        if is_forked_child() {
            return;
        }
        if let Some(block) = self.0.first_block()
            && let Err(error) = self.0.groups.join(group, block)
        {
            log::warn!("other processes cannot see that this one is in a multicast group: {error}");
        }
    }

    fn left(&self, group: Gid) {
        if !is_forked_child() {
            self.0.groups.leave(group);
        }
    }

    #[inline]
    fn progress(&self) {
        self.0.progress();
    }
}
