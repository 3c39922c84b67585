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

/// Declares an operation of connected queue pairs that has loops of its own.
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
    )*};
}

connected! {
    /// RDMA write.
    Write, either => |handle, memory, slot| handle.setup_write(memory.rkey, slot.remote);
    /// RDMA read.
    Read, gathered => |handle, memory, slot| handle.setup_read(memory.rkey, slot.remote);
    /// Send.
    SendPlain, either => |handle, memory, slot| handle.setup_send();
}

/// A request whose operation is chosen at run time, and where it goes: all operations of a service share its loops, as each copy of them takes
/// seconds to compile.
#[derive(Clone, Debug)]
pub(crate) struct Chosen<O, T> {
    pub(crate) operation: O,
    pub(crate) to: T,
}

/// An operation of all services but datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Write,
    WriteImmediate,
    Read,
    Send,
    SendImmediate,
}

/// An operation of connections, extended and dynamic ones too.
#[derive(Clone, Debug)]
pub(crate) enum Any {
    Message(Message),
    /// Addition of one.
    FetchAdd,
    /// Exchange of zero by zero.
    CompareSwap,
    /// Exchange of what the one before it has left, where it is checked.
    ChainedSwap(CasCheck),
}

/// The shared receive queue of the peer that a request of an extended connection names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerQueue(pub(crate) u32);

/// Where a request of dynamic connections goes.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) way: Arc<AddressHandle>,
    pub(crate) number: u32,
    pub(crate) key: u64,
}

/// Builds the request of a message.
macro_rules! message {
    ($message:expr, $handle:ident, $memory:ident, $slot:ident, |$request:ident| $addressed:expr) => {{
        macro_rules! end {
            ($data:ident: $begun:expr) => {{
                let $request = $begun;
                data!($data: $addressed, $memory, $slot)
            }};
        }
        match $message {
            Message::Write => end!(either: $handle.setup_write($memory.rkey, $slot.remote)),
            Message::WriteImmediate => end!(either: $handle.setup_write_imm($memory.rkey, $slot.remote, IMMEDIATE)),
            Message::Read => end!(gathered: $handle.setup_read($memory.rkey, $slot.remote)),
            Message::Send => end!(either: $handle.setup_send()),
            Message::SendImmediate => end!(either: $handle.setup_send_imm(IMMEDIATE)),
        }
    }};
}

/// Declares where requests of any operation go, and how they say so.
macro_rules! chosen {
    ($($Service:ident, $To:ty => |$request:ident, $to:ident| $addressed:expr;)*) => {$(
        impl Request for Chosen<Any, $To> {
            type Service = $Service;

            #[inline(always)]
            unsafe fn build<'g, G>(&'g self, handle: WorkRequestHandle<'_, G>, memory: &Memory, slot: Slot)
            where
                G: PostSendGuard<Service = $Service> + HoldsFor<'g>,
            {
                let $to = &self.to;
                let swap = match &self.operation {
                    Any::Message(message) => return message!(message, handle, memory, slot, |$request| $addressed),
                    Any::FetchAdd => None,
                    Any::CompareSwap => Some((0, 0)),
                    Any::ChainedSwap(chain) => Some(chain.next()),
                };
                match swap {
                    Some((compare, swap)) => {
                        let $request = handle.setup_atomic_compare_swap(memory.rkey, slot.remote, compare, swap);
                        data!(gathered: $addressed, memory, slot)
                    }
                    None => {
                        let $request = handle.setup_atomic_fetch_add(memory.rkey, slot.remote, 1);
                        data!(gathered: $addressed, memory, slot)
                    }
                }
            }
        }
    )*};
}

chosen! {
    Connected, () => |request, _to| request;
    Xrc, PeerQueue => |request, to| request.setup_xrc_srqn(to.0);
    DynamicallyConnected, Target => |request, to| request.setup_dc_addr(&to.way, to.number, to.key);
}

impl Request for Chosen<Message, DatagramSend> {
    type Service = ScalableReliableDatagram;

    const IS_ORDERED: bool = false;

    #[inline(always)]
    unsafe fn build<'g, G>(&'g self, handle: WorkRequestHandle<'_, G>, memory: &Memory, slot: Slot)
    where
        G: PostSendGuard<Service = ScalableReliableDatagram> + HoldsFor<'g>,
    {
        let DatagramSend { way, number, qkey } = &self.to;
        message!(self.operation, handle, memory, slot, |request| request.setup_ud_addr(way, *number, *qkey))
    }
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
