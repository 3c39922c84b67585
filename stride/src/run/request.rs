//! Operations as types: each builds its requests.

use std::sync::Arc;

use sideway::efa::ScalableReliableDatagram;
use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::memory_region::{LocalKey, RemoteKey};
use sideway::ibverbs::queue_pair::{Connected, Datagram, PostSendGuard, Service, Xrc};
use sideway::ibverbs::work_request::{HoldsFor, WorkRequestHandle};
use sideway::mlx5::DynamicallyConnected;

use super::cas_check::CasCheck;

/// The immediate data of all requests.
const IMMEDIATE: u32 = 0x5354_5244;

/// A message slot in the memory of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The local address.
    pub(crate) local: u64,
    /// The remote address.
    pub(crate) remote: u64,
}

/// The memory of all messages of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) lkey: LocalKey,
    pub(crate) rkey: RemoteKey,
    /// Bytes per message.
    pub(crate) length: u32,
    /// Whether to send inline: the data is then copied into the request.
    pub(crate) is_inline: bool,
}

/// An operation, without the slot of the message.
pub(crate) trait Request: Send {
    /// The service of the queue pairs that support the operation.
    type Service: Service;

    /// Whether requests complete in the order of their posting, so that a signaled request covers the earlier ones.
    const IS_ORDERED: bool = true;

    /// Whether requests name a slot of the remote memory.
    const HAS_REMOTE_ADDRESS: bool = true;

    /// Adds one request to a batch.
    ///
    /// # Safety
    ///
    /// As for `setup_sge`: until the request completes, the memory of the slot is registered with the key and has the
    /// length that `memory` states. Until then, no other code accesses it, except code that tolerates any contents.
    /// Inline memory must be readable during this call.
    unsafe fn build<'g, G>(&'g self, handle: WorkRequestHandle<'_, G>, memory: &Memory, slot: Slot)
    where
        G: PostSendGuard<Service = Self::Service> + HoldsFor<'g>;
}

/// Adds the data to a request.
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

/// Declares an operation of connected queue pairs that has loops of its own.
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

/// An operation selected at run time, and its destination. All operations of a service share these loops, because each
/// copy takes seconds to compile.
#[derive(Clone, Debug)]
pub(crate) struct Chosen<O, T> {
    pub(crate) operation: O,
    pub(crate) to: T,
}

/// An operation of all services except datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Write,
    WriteImmediate,
    Read,
    Send,
    SendImmediate,
}

/// An operation of connected services, including XRC and DC.
#[derive(Clone, Debug)]
pub(crate) enum Any {
    Message(Message),
    /// Adds one.
    FetchAdd,
    /// Compares with zero and stores zero.
    CompareSwap,
    /// Compares with the value that the previous swap has stored (`--validate`).
    ChainedSwap(CasCheck),
}

/// The peer's shared receive queue, which each XRC request names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerQueue(pub(crate) u32);

/// The destination of a DC request.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) way: Arc<AddressHandle>,
    pub(crate) number: u32,
    pub(crate) key: u64,
}

/// Builds a send or a write.
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

/// Declares the destinations of requests of any operation, and how to set them.
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

/// The destination of a datagram.
#[derive(Clone, Debug)]
pub(crate) struct DatagramSend {
    pub(crate) way: Arc<AddressHandle>,
    pub(crate) number: u32,
    pub(crate) qkey: u32,
}

/// The destination of a datagram with immediate data.
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
