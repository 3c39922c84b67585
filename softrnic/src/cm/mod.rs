//! The connection manager: librdmacm for soft devices, over unix sockets of this host, and over TCP for iWARP devices
//! ([`iwarp`]).
//!
//! A listener binds an abstract socket, whose name contains its port and address ([`port`]). A client connects to that
//! name and sends a request ([`messages`]). A connection is a socket, so it is closed when its process exits. No thread
//! and no daemon is needed: the descriptor of an event channel is an epoll with the sockets of its identifiers, and
//! `rdma_get_cm_event` handles the sockets that are ready ([`channel`]).
//!
//! All state is in one [`World`] under one lock. Verbs may wait for other threads of the program, so they are called
//! without the lock. A child after `fork` starts with an empty world; objects of its parent are unknown and fail with
//! `EIO`. C structs are on the heap until they are destroyed. The fields of a C struct change only when the C API
//! permits this.
//!
//! Differences from the kernel's connection manager:
//!
//! - Loopback addresses resolve to a device.
//! - A request to a port whose listener has another address is rejected with `invalid service id` (8); the kernel uses
//!   `consumer defined` (28).
//! - A request to a port without a listener is retried for [`connect::GRACE`], or [`connect::PEER_GRACE`].
//! - A request that finds a full backlog is retried every [`connect::RETRY_INTERVAL`].
//! - Requests, replies and disconnects without a response time out after [`peer::CM_TIMEOUT`] (`-ETIMEDOUT`).
//! - Ports below 1024 require no privilege.
//! - Identifiers can share an address (`RDMA_OPTION_ID_REUSEADDR`) only within a process.
//! - The events `RDMA_CM_EVENT_DEVICE_REMOVAL` and `RDMA_CM_EVENT_ADDR_CHANGE` do not occur.

mod address;
mod calls;
mod channel;
mod connect;
mod device;
mod endpoint;
mod events;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod id;
mod info;
mod iwarp;
mod listen;
mod messages;
mod multicast;
mod option;
mod peer;
mod port;
mod qp;
mod route;
mod srq;
mod table;
#[cfg(test)]
mod tests;
mod transition;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};

use self::channel::{Channel, Source};
use self::events::Taken;
use self::id::Identifier;
use crate::sys::errno::Errno;
use crate::sys::fork::{self, PerProcess};
use crate::sys::unpoisoned;

pub(crate) use self::table::table;

/// All state. Objects are identified by the addresses of their C structs.
#[derive(Default)]
struct World {
    ids: HashMap<usize, Identifier>,
    channels: HashMap<usize, Channel>,
    /// Taken events that are not acknowledged yet.
    events: HashMap<usize, Taken>,
    /// The sources of the descriptors in channels.
    sources: BTreeMap<u64, Source>,
    next_source: u64,
    /// The number of groups joined so far.
    groups: u64,
}

static WORLD: PerProcess<LazyLock<Mutex<World>>> = PerProcess::new(empty(), || Box::new(empty()));
/// Notified when an event is acknowledged.
static ACKNOWLEDGED: Condvar = Condvar::new();

const fn empty() -> LazyLock<Mutex<World>> {
    LazyLock::new(Mutex::default)
}

fn world() -> MutexGuard<'static, World> {
    unpoisoned(WORLD.get().lock())
}

/// Returns the error for an unknown object: `errno`, or `EIO` in a child, because the object may be the parent's.
fn unknown(errno: Errno) -> Errno {
    if fork::generation() == 0 { errno } else { Errno::IO }
}

impl World {
    fn id(&mut self, id: usize) -> Result<&mut Identifier, Errno> {
        self.ids.get_mut(&id).ok_or_else(|| unknown(Errno::INVALID))
    }
}
