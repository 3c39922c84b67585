//! An operation as a type: what a request of it looks like.

use std::sync::Arc;

use sideway::efa::ScalableReliableDatagram;
use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::memory_region::{LocalKey, RemoteKey};
use sideway::ibverbs::queue_pair::{Connected, Datagram, PostSendGuard, Service, Xrc};
use sideway::ibverbs::work_request::{HoldsFor, WorkRequestHandle};
use sideway::mlx5::DynamicallyConnected;

use super::cas_check::CasCheck;

/// The number that immediates have.
const IMMEDIATE: u32 = 0x5354_5244;

/// A place of a message, in the memory of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The address here.
    pub(crate) local: u64,
    /// The address there.
    pub(crate) remote: u64,
}

/// The memory of all messages of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) lkey: LocalKey,
    pub(crate) rkey: RemoteKey,
    /// Bytes of a message.
    pub(crate) length: u32,
    /// The bytes are handed over in the request.
    pub(crate) is_inline: bool,
}

/// What a request looks like, but for its place.
pub(crate) trait Request: Send {
    /// The service of the queue pairs that take it.
    type Service: Service;

    /// Requests are done in the order in which they were posted, so that one that is signaled tells of those before it.
    const IS_ORDERED: bool = true;

    /// Adds one to a batch.
    ///
    /// # Safety
    ///
    /// As for `setup_sge`: the memory at the place is registered with the key, as long as the memory says, until the request is done; it is
    /// read or written by nobody else meanwhile, or by those alone to whom it does not matter what they find. Where it is inline it can be
    /// read now.
    unsafe fn build<'g, G>(&'g self, handle: WorkRequestHandle<'_, G>, memory: &Memory, slot: Slot)
    where
        G: PostSendGuard<Service = Self::Service> + HoldsFor<'g>;
}

/// Ends a request with its data.
macro_rules! data {
    (gathered: $request:expr, $memory:expr, $slot:expr) => {{
        let (request, memory, slot) = ($request, $memory, $slot);
        // SAFETY: the caller's promise.
        unsafe { request.setup_sge(memory.lkey, slot.local, memory.length) };
    }};
    (either: $request:expr, $memory:expr, $slot:expr) => {{
        let (request, memory, slot) = ($request, $memory, $slot);
        // SAFETY: the caller's promise.
        unsafe {
            if memory.is_inline {
                let start = std::ptr::with_exposed_provenance::<u8>(slot.local as usize);
                request.setup_inline_data(std::slice::from_raw_parts(start, memory.length as usize));
            } else {
                request.setup_sge(memory.lkey, slot.local, memory.length);
            }
        }
    }};
}

/// A request of an extended connection, which names a shared receive queue of the other side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To<R>(pub(crate) R, pub(crate) u32);

/// Where a request of dynamic connections goes.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) way: Arc<AddressHandle>,
    pub(crate) number: u32,
    pub(crate) key: u64,
}

/// A request of dynamic connections, which names a target of the other side.
#[derive(Clone, Debug)]
pub(crate) struct AtTarget<R>(pub(crate) R, pub(crate) Target);

/// A request of scalable reliable datagrams.
#[derive(Clone, Debug)]
pub(crate) struct AtPeer<R>(pub(crate) R, pub(crate) DatagramSend);

/// Declares an operation of scalable reliable datagrams, which have no atomics.
macro_rules! scalable {
    ($Name:ident, atomic, $data:ident => |$handle:ident, $memory:ident, $slot:ident| $request:expr) => {};
    ($Name:ident, message, $data:ident => |$handle:ident, $memory:ident, $slot:ident| $request:expr) => {
        impl Request for AtPeer<$Name> {
            type Service = ScalableReliableDatagram;

            const IS_ORDERED: bool = false;

            #[inline(always)]
            unsafe fn build<'g, G>(&'g self, $handle: WorkRequestHandle<'_, G>, $memory: &Memory, $slot: Slot)
            where
                G: PostSendGuard<Service = ScalableReliableDatagram> + HoldsFor<'g>,
            {
                let DatagramSend { way, number, qkey } = &self.1;
                data!($data: $request.setup_ud_addr(way, *number, *qkey), $memory, $slot)
            }
        }
    };
}

/// Declares operations of connected queue pairs, of extended and of dynamic connections, and of scalable reliable datagrams.
macro_rules! connected {
    ($(
        $(#[$doc:meta])* $Name:ident $([$own:ident: $Own:ty])?, $kind:ident, $data:ident =>
            |$handle:ident, $memory:ident, $slot:ident| $request:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $Name$((pub(crate) $Own))?;

        impl Request for $Name {
            type Service = Connected;

            #[inline(always)]
            unsafe fn build<'g, G>(&'g self, $handle: WorkRequestHandle<'_, G>, $memory: &Memory, $slot: Slot)
            where
                G: PostSendGuard<Service = Connected> + HoldsFor<'g>,
            {
                $(let $own: &$Own = &self.0;)?
                data!($data: $request, $memory, $slot)
            }
        }

        impl Request for To<$Name> {
            type Service = Xrc;

            #[inline(always)]
            unsafe fn build<'g, G>(&'g self, $handle: WorkRequestHandle<'_, G>, $memory: &Memory, $slot: Slot)
            where
                G: PostSendGuard<Service = Xrc> + HoldsFor<'g>,
            {
                $(let $own: &$Own = &self.0.0;)?
                data!($data: $request.setup_xrc_srqn(self.1), $memory, $slot)
            }
        }

        impl Request for AtTarget<$Name> {
            type Service = DynamicallyConnected;

            #[inline(always)]
            unsafe fn build<'g, G>(&'g self, $handle: WorkRequestHandle<'_, G>, $memory: &Memory, $slot: Slot)
            where
                G: PostSendGuard<Service = DynamicallyConnected> + HoldsFor<'g>,
            {
                let Target { way, number, key } = &self.1;
                $(let $own: &$Own = &self.0.0;)?
                data!($data: $request.setup_dc_addr(way, *number, *key), $memory, $slot)
            }
        }

        scalable!($Name, $kind, $data => |$handle, $memory, $slot| $request);
    )*};
}

connected! {
    /// RDMA write.
    Write, message, either => |handle, memory, slot| handle.setup_write(memory.rkey, slot.remote);
    /// RDMA write with immediate.
    WriteImmediate, message, either => |handle, memory, slot| handle.setup_write_imm(memory.rkey, slot.remote, IMMEDIATE);
    /// RDMA read.
    Read, message, gathered => |handle, memory, slot| handle.setup_read(memory.rkey, slot.remote);
    /// Send.
    SendPlain, message, either => |handle, memory, slot| handle.setup_send();
    /// Send with immediate.
    SendImmediate, message, either => |handle, memory, slot| handle.setup_send_imm(IMMEDIATE);
    /// Atomic addition of one.
    FetchAdd, atomic, gathered => |handle, memory, slot| handle.setup_atomic_fetch_add(memory.rkey, slot.remote, 1);
    /// Atomic exchange of zero by zero.
    CompareSwap, atomic, gathered => |handle, memory, slot| handle.setup_atomic_compare_swap(memory.rkey, slot.remote, 0, 0);
    /// Atomic exchange of what the one before it has left, where it is checked.
    ChainedSwap[chain: CasCheck], atomic, gathered => |handle, memory, slot| {
        let (compare, swap) = chain.next();
        handle.setup_atomic_compare_swap(memory.rkey, slot.remote, compare, swap)
    };
}

/// Where a datagram goes.
#[derive(Clone, Debug)]
pub(crate) struct DatagramSend {
    pub(crate) way: Arc<AddressHandle>,
    pub(crate) number: u32,
    pub(crate) qkey: u32,
}

/// The same with an immediate.
#[derive(Clone, Debug)]
pub(crate) struct DatagramSendImmediate(pub(crate) DatagramSend);

impl Request for DatagramSend {
    type Service = Datagram;

    #[inline(always)]
    unsafe fn build<'g, G>(&'g self, handle: WorkRequestHandle<'_, G>, memory: &Memory, slot: Slot)
    where
        G: PostSendGuard<Service = Datagram> + HoldsFor<'g>,
    {
        data!(either: handle.setup_send().setup_ud_addr(&self.way, self.number, self.qkey), memory, slot)
    }
}

impl Request for DatagramSendImmediate {
    type Service = Datagram;

    #[inline(always)]
    unsafe fn build<'g, G>(&'g self, handle: WorkRequestHandle<'_, G>, memory: &Memory, slot: Slot)
    where
        G: PostSendGuard<Service = Datagram> + HoldsFor<'g>,
    {
        let DatagramSend { way, number, qkey } = &self.0;
        data!(either: handle.setup_send_imm(IMMEDIATE).setup_ud_addr(way, *number, *qkey), memory, slot)
    }
}
