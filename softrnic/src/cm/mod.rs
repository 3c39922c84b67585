//! The connection manager, which implements librdmacm for soft devices. It uses Unix sockets of this host, TCP for iWARP
//! devices ([`iwarp`]), and management datagrams for RoCE devices that reach other hosts ([`roce`]).
//!
//! A listener binds an abstract socket, whose name contains its port and address ([`port`]). A client connects to that
//! name and sends a request ([`messages`]). A connection is a socket, so it is closed when its process exits. No daemon is
//! needed: `rdma_get_cm_event` and the thread of softrnic handle the sockets that are ready ([`channel`]).
//!
//! All state is in one [`World`] under one lock. Verbs may wait for other threads of the program, so they are called
//! without the lock. The child of a `fork` starts with an empty world. It does not know the objects of its parent, so
//! calls on them fail with `EIO`. The C structs are on the heap until they are destroyed. The fields of a C struct
//! change only when the C API permits this.
//!
//! Differences from the kernel's connection manager:
//!
//! - Loopback addresses resolve to a device.
//! - A request to a port whose listener has another address is rejected with `invalid service id` (8). The kernel
//!   rejects it with `consumer defined` (28).
//! - A request to a port without a listener is retried for [`connect::GRACE`], or [`connect::PEER_GRACE`].
//! - A request that finds a full backlog is retried every [`connect::RETRY_INTERVAL`].
//! - Requests, replies and disconnect requests that get no response time out after [`peer::CM_TIMEOUT`] (`-ETIMEDOUT`).
//! - Ports below 1024 require no privilege.
//! - Identifiers can share an address (`RDMA_OPTION_ID_REUSEADDR`) only within one process.
//! - While a port is down, packets wait until it is up, and then arrive. The end of a process arrives at once.

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
mod roce;
mod route;
mod srq;
mod table;
#[cfg(test)]
mod tests;
mod transition;

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, TryLockError};

use rdma_mummy_sys::program::Held;

use self::channel::{Channel, Source};
use self::events::Taken;
use self::id::Identifier;
use crate::sys::errno::Errno;
use crate::sys::fork::{self, PerProcess};
use crate::sys::thread::Place;
use crate::sys::unpoisoned;

pub(crate) use self::channel::port_changed;
pub(crate) use self::events::{address_changed, device_removed};
pub(crate) use self::table::table;

/// The whole state of the connection manager. Objects are identified by the addresses of their C structs.
#[derive(Default)]
struct World {
    ids: HashMap<usize, Identifier>,
    channels: HashMap<usize, Channel>,
    /// The events that the program has taken and not acknowledged yet.
    events: HashMap<usize, Taken>,
    /// The sources that belong to the descriptors in channels.
    sources: BTreeMap<u64, Source>,
    /// The last number of a source or of a channel.
    next_source: u64,
    /// The place in the thread of softrnic, which handles sources.
    place: Option<Place>,
    /// How many groups were joined so far.
    groups: u64,
    /// Whether a link that was handled has ended, but its connection has still to be read to the end.
    is_unread: bool,
    roce: roce::Connections,
}

static WORLD: PerProcess<LazyLock<Mutex<World>>> = PerProcess::new(empty(), || Box::new(empty()));
/// The condition variable that is notified when an event is acknowledged.
static ACKNOWLEDGED: Condvar = Condvar::new();

const fn empty() -> LazyLock<Mutex<World>> {
    LazyLock::new(Mutex::default)
}

/// The world under its lock.
struct Locked {
    world: MutexGuard<'static, World>,
    /// Dropped after the lock is released.
    _held: Held,
}

impl Deref for Locked {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

fn world() -> Locked {
    let held = Held::new();
    Locked { world: unpoisoned(WORLD.get().lock()), _held: held }
}

/// Returns the world, unless another thread holds its lock.
fn try_world() -> Option<Locked> {
    let held = Held::new();
    let world = match WORLD.get().try_lock() {
        Ok(world) => world,
        Err(TryLockError::Poisoned(error)) => error.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    Some(Locked { world, _held: held })
}

/// Takes the management datagrams of RoCEv2 from now on, unless another thread uses the connection manager: their senders
/// repeat them.
pub(crate) fn manage_roce() {
    if let Some(mut world) = try_world() {
        // The error was logged.
        let _ = world.begin_roce();
    }
}

/// Waits until the acknowledgement of an event has ended the condition.
fn world_after(pending: impl FnMut(&mut World) -> bool) -> Locked {
    let Locked { world, _held } = world();
    Locked { world: unpoisoned(ACKNOWLEDGED.wait_while(world, pending)), _held }
}

/// Returns the error for an unknown object. It is `errno`, but in a child it is `EIO`, because the object may belong to
/// the parent.
fn unknown(errno: Errno) -> Errno {
    if fork::generation() == 0 { errno } else { Errno::IO }
}

impl World {
    fn id(&mut self, id: usize) -> Result<&mut Identifier, Errno> {
        self.ids.get_mut(&id).ok_or_else(|| unknown(Errno::INVALID))
    }
}
