//! The packet memory (UMEM): its layout, its frames and their owners.

mod builder;
mod frame;
mod metadata;
mod packet;
mod pool;
mod region;
mod token;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use self::builder::UmemBuilder;
pub use self::frame::Frame;
pub(crate) use self::metadata::{LEN as METADATA_LEN, timestamp};
pub use self::metadata::{MetadataError, TxMetadata};
pub use self::packet::Packet;
pub(crate) use self::packet::{CONTINUES, HAS_METADATA};
pub use self::pool::Pool;
pub(crate) use self::region::{Holder, Region};
pub(crate) use self::token::{SHORTEST, Token, is_packet};

/// Memory into which sockets receive and from which they send, divided into frames of equal size.
///
/// Clones refer to the same memory. The memory is unmapped when all clones, pools, sockets and frames are dropped, in
/// any order.
///
/// The first socket that is opened with the memory registers it with the kernel (`XDP_UMEM_REG`). Later sockets share
/// that registration (`XDP_SHARED_UMEM`), even on other queues and interfaces.
#[doc(alias = "xsk_umem")]
#[derive(Clone)]
pub struct Umem {
    pub(crate) holder: Holder,
    /// The sockets that are bound with this memory. A new socket must name one of them when it binds.
    bound: Arc<Mutex<Vec<Bound>>>,
}

/// A bound socket.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) socket: Weak<OwnedFd>,
    /// The index of the interface, and the queue.
    pub(crate) queue: (u32, u32),
    pub(crate) is_multi_buffer: bool,
}

impl Umem {
    /// Returns a builder for a UMEM with this number of frames, of 4096 bytes each by default.
    pub fn builder(frames: u32) -> UmemBuilder {
        UmemBuilder::new(frames)
    }

    fn new(holder: Holder) -> Self {
        Self { holder, bound: Arc::default() }
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.holder.geometry().count
    }

    /// Size of a frame in bytes.
    pub fn frame_size(&self) -> u32 {
        self.holder.geometry().frame_size
    }

    /// Bytes that the kernel leaves free before a received packet, in addition to the 256 of XDP.
    pub fn headroom(&self) -> u32 {
        self.holder.geometry().headroom
    }

    /// Whether packets can carry [`TxMetadata`].
    pub fn has_tx_metadata(&self) -> bool {
        self.holder.geometry().has_metadata
    }

    /// An empty pool, for another thread.
    pub fn pool(&self) -> Pool {
        Pool::empty(self.holder.clone())
    }

    /// A socket that is bound with this memory, and whether it has multi-buffer.
    pub(crate) fn bound(&self) -> Option<(Arc<OwnedFd>, bool)> {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.retain(|one| one.socket.strong_count() > 0);
        bound.iter().find_map(|one| Some((one.socket.upgrade()?, one.is_multi_buffer)))
    }

    pub(crate) fn add_bound(&self, one: Bound) {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }

    /// Whether a socket with this memory is bound to the queue of an interface.
    pub(crate) fn is_bound_to(&self, queue: (u32, u32)) -> bool {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.iter().any(|one| one.queue == queue && one.socket.strong_count() > 0)
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem").field("geometry", self.holder.geometry()).finish_non_exhaustive()
    }
}
