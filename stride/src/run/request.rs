//! An operation as a type: what a request of it looks like.

use std::sync::Arc;

use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::memory_region::{LocalKey, RemoteKey};
use sideway::ibverbs::queue_pair::{Connected, Datagram, ExtendedConnected, PostSendGuard, Service};
use sideway::ibverbs::work_request::{HoldsFor, WorkRequestHandle};

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

/// Declares operations of connected queue pairs, and of extended connections.
macro_rules! connected {
    ($($(#[$doc:meta])* $Name:ident, $data:ident => |$handle:ident, $memory:ident, $slot:ident| $request:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $Name;

        impl Request for $Name {
            type Service = Connected;

            #[inline(always)]
            unsafe fn build<'g, G>(&'g self, $handle: WorkRequestHandle<'_, G>, $memory: &Memory, $slot: Slot)
            where
                G: PostSendGuard<Service = Connected> + HoldsFor<'g>,
            {
                data!($data: $request, $memory, $slot)
            }
        }

        impl Request for To<$Name> {
            type Service = ExtendedConnected;

            #[inline(always)]
            unsafe fn build<'g, G>(&'g self, $handle: WorkRequestHandle<'_, G>, $memory: &Memory, $slot: Slot)
            where
                G: PostSendGuard<Service = ExtendedConnected> + HoldsFor<'g>,
            {
                data!($data: $request.setup_xrc_srqn(self.1), $memory, $slot)
            }
        }
    )*};
}

connected! {
    /// RDMA write.
    Write, either => |handle, memory, slot| handle.setup_write(memory.rkey, slot.remote);
    /// RDMA write with immediate.
    WriteImmediate, either => |handle, memory, slot| handle.setup_write_imm(memory.rkey, slot.remote, IMMEDIATE);
    /// RDMA read.
    Read, gathered => |handle, memory, slot| handle.setup_read(memory.rkey, slot.remote);
    /// Send.
    SendPlain, either => |handle, memory, slot| handle.setup_send();
    /// Send with immediate.
    SendImmediate, either => |handle, memory, slot| handle.setup_send_imm(IMMEDIATE);
    /// Atomic addition of one.
    FetchAdd, gathered => |handle, memory, slot| handle.setup_atomic_fetch_add(memory.rkey, slot.remote, 1);
    /// Atomic exchange of zero by zero.
    CompareSwap, gathered => |handle, memory, slot| handle.setup_atomic_compare_swap(memory.rkey, slot.remote, 0, 0);
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
