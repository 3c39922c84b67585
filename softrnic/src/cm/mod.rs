//! The connection manager: what librdmacm is to the devices of the kernel, over unix sockets of this host.
//!
//! Who listens binds an abstract socket whose name says where ([`port`]); who connects finds it by that name and sends a request
//! ([`messages`]). A connection is a socket, and its end is that of the socket. There is no thread and no daemon: the descriptor of an
//! event channel is an epoll that has the sockets of its identifiers, and taking an event looks at those that are ready ([`channel`]).
//!
//! Everything known is in one [`World`] under one lock. Verbs, which may wait for other threads of the program, are called without it.
//! A child after `fork` begins with an empty one: what it has of its parent's is not in it, and gives `EIO`.
//! The C structs lie on the heap from their making to their end, and are written where C expects it.

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

/// Everything that is known. Objects go by the addresses of their C structs.
#[derive(Default)]
struct World {
    ids: HashMap<usize, Identifier>,
    channels: HashMap<usize, Channel>,
    /// Events that were taken and not yet acknowledged.
    events: HashMap<usize, Taken>,
    /// What the descriptors in the channels are of.
    sources: BTreeMap<u64, Source>,
    next_source: u64,
    /// Groups that were joined so far.
    groups: u64,
}

static WORLD: PerProcess<LazyLock<Mutex<World>>> = PerProcess::new(empty(), || Box::new(empty()));
/// An event was acknowledged.
static ACKNOWLEDGED: Condvar = Condvar::new();

const fn empty() -> LazyLock<Mutex<World>> {
    LazyLock::new(Mutex::default)
}

/// The world, locked.
fn world() -> MutexGuard<'static, World> {
    unpoisoned(WORLD.get().lock())
}

/// How calls fail on what is not known: `errno`, or in a child `EIO`, as it may be its parent's.
fn unknown(errno: Errno) -> Errno {
    if fork::generation() == 0 { errno } else { Errno::IO }
}

impl World {
    fn id(&mut self, id: usize) -> Result<&mut Identifier, Errno> {
        self.ids.get_mut(&id).ok_or_else(|| unknown(Errno::INVALID))
    }
}
