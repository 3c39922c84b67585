//! The operations as types. Each type builds the requests of its operation.

use std::sync::Arc;

use sideway::efa::ScalableReliableDatagram;
use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::memory_region::{LocalKey, RemoteKey};
use sideway::ibverbs::queue_pair::{Connected, Datagram, PostSendGuard, Service, Xrc};
use sideway::ibverbs::work_request::{HoldsFor, WorkRequestHandle};
use sideway::mlx5::DynamicallyConnected;

use crate::cas_check::CasCheck;

/// The immediate data that all requests send.
const IMMEDIATE: u32 = 0x5354_5244;

/// The memory of one message on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The address in local memory.
    pub(crate) local: u64,
    /// The address in remote memory.
    pub(crate) remote: u64,
}

/// The memory that contains all messages of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) lkey: LocalKey,
    pub(crate) rkey: RemoteKey,
    /// Length of each message in bytes.
    pub(crate) length: u32,
    /// Whether messages are sent inline, which copies their data into the request.
    pub(crate) is_inline: bool,
}

/// An operation that builds requests. The slot of the message is given with each request.
pub(crate) trait Request: Send {
    /// The type of queue pairs that support the operation.
    type Service: Service;

    /// Whether requests complete in the order in which they were posted. If requests complete in order, a signaled
    /// request also covers the earlier ones.
    const IS_ORDERED: bool = true;

    /// Whether requests contain an address in remote memory.
    const HAS_REMOTE_ADDRESS: bool = true;

    /// Adds one request to a batch.
    ///
    /// # Safety
    ///
    /// The requirements of `setup_sge` apply. Until the request completes, the memory of the slot must be registered
    /// with the key and have the length that `memory` contains. Until then, no other code may access this memory,
    /// except for code that tolerates any contents. Inline memory only has to be readable during this call.
    unsafe fn build<'g, G>(&'g self, handle: WorkRequestHandle<'_, G>, memory: &Memory, slot: Slot)
    where
        G: PostSendGuard<Service = Self::Service> + HoldsFor<'g>;
}

/// Adds the data of the message to a request.
macro_rules! data {
    (gathered: $request:expr, $memory:expr, $slot:expr) => {{
        let (request, memory, slot) = ($request, $memory, $slot);
        // SAFETY: the caller guarantees registered memory of this length.
        unsafe { request.setup_sge(memory.lkey, slot.local, memory.length) };
    }};
    (either: $request:expr, $memory:expr, $slot:expr) => {{
        let (request, memory, slot) = ($request, $memory, $slot);
        // SAFETY: the caller guarantees registered, or for inline data readable, memory of this length.
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

/// Declares an operation of connected queue pairs, for which separate loops are compiled.
macro_rules! connected {
    ($($(#[$doc:meta])* $Name:ident, $data:ident, $has_remote_address:literal => |$handle:ident, $memory:ident, $slot:ident| $request:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $Name;

        impl Request for $Name {
            type Service = Connected;

            const HAS_REMOTE_ADDRESS: bool = $has_remote_address;

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
    Write, either, true => |handle, memory, slot| handle.setup_write(memory.rkey, slot.remote);
    /// RDMA read.
    Read, gathered, true => |handle, memory, slot| handle.setup_read(memory.rkey, slot.remote);
    /// Send.
    SendPlain, either, false => |handle, memory, slot| handle.setup_send();
}

/// An operation that is selected at run time, and the destination of its requests. All operations of a service share
/// one copy of the loops, because each copy takes seconds to compile.
#[derive(Clone, Debug)]
pub(crate) struct Chosen<O, T> {
    pub(crate) operation: O,
    pub(crate) to: T,
}

/// An operation that every service except datagrams supports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Write,
    WriteImmediate,
    Read,
    Send,
    SendImmediate,
}

/// An operation that connected services support, including XRC and DC.
#[derive(Clone, Debug)]
pub(crate) enum Any {
    Message(Message),
    /// Adds one to the value.
    FetchAdd,
    /// Compares the value with zero and stores zero.
    CompareSwap,
    /// Compares the value with the one that the previous swap has stored, for `--validate`.
    ChainedSwap(CasCheck),
}

/// The number of the peer's shared receive queue, which each XRC request contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerQueue(pub(crate) u32);

/// The destination of a request over DC.
#[derive(Clone, Debug)]
pub struct Target {
    /// The way to the peer's port.
    pub way: Arc<AddressHandle>,
    /// Number of the DC target.
    pub number: u32,
    /// The DC access key of the target.
    pub key: u64,
}

/// Builds a request that sends or writes.
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

/// Declares the destinations of requests, and how each is set in a request.
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

/// A send over datagrams, with its destination.
#[derive(Clone, Debug)]
pub struct DatagramSend {
    /// The way to the peer's port.
    pub way: Arc<AddressHandle>,
    /// Number of the peer's queue pair.
    pub number: u32,
    /// The Q_Key of the peer's queue pair.
    pub qkey: u32,
}

/// A send with immediate data over datagrams, with its destination.
#[derive(Clone, Debug)]
pub(crate) struct DatagramSendImmediate(pub(crate) DatagramSend);

impl Request for DatagramSend {
    type Service = Datagram;

    const HAS_REMOTE_ADDRESS: bool = false;

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
