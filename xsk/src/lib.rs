//! AF_XDP sockets: packets between a NIC's queue and this process, without the kernel's network stack.
//!
//! The crate makes the system calls itself. It needs no libbpf, libxdp, clang or ELF file, because it contains the XDP
//! program.
//!
//! # Frames
//!
//! A [`Umem`] is memory for packets, divided into frames. Each [`Frame`] is an owned value. Pools, rings and packets
//! take frames by value:
//!
//! ```text
//!   Pool ──Fill──▶ kernel ──Rx──▶ Packet ──Tx──▶ kernel ──Completion──▶ Sent ──▶ Pool
//! ```
//!
//! So a frame cannot be in two rings, and its bytes cannot be accessed while the kernel has it. Rings reject frames of
//! another UMEM. A frame that is dropped returns to the UMEM. Frames have no reference count: rings count the frames
//! that pass through them, and the memory is unmapped after its last user.
//!
//! # Example
//!
//! ```no_run
#![doc = include_str!("../examples/count.rs")]
//! ```
//!
//! # Waiting
//!
//! [`Rx::wait`] sleeps until packets arrive. Each ring implements [`AsFd`](std::os::fd::AsFd) for epoll and async
//! runtimes; `examples/xsk_tokio.rs` of the repository uses tokio. Call [`Tx::wake`] after a batch; epoll, unlike poll,
//! does not wake the kernel. Always wait with a time-out: a socket whose interface was removed is never ready again.
//!
//! # Rights
//!
//! | task | requires |
//! |---|---|
//! | send | CAP_NET_RAW in the network namespace; a user namespace suffices |
//! | receive | also a [`Program`] that redirects packets |
//! | load and attach a program | CAP_BPF and CAP_NET_ADMIN, outside of any user namespace |
//! | insert a socket into a map | the descriptor of the map |
//!
//! A privileged process can open the socket, the map and the link, and pass them on: [`SocketBuilder::socket`],
//! [`SocketMap`]'s `From<OwnedFd>`, [`Attached`].
//!
//! # Several sockets
//!
//! Open further sockets with the same [`Umem`] on other queues and interfaces: their packets can be passed from one to
//! the other without a copy. [`SocketBuilder::share`] opens a further socket on the same queue.
//!
//! Other processes must not use the descriptor of a socket of this crate: they could map its rings and write to them.

mod error;
mod interface;
#[cfg(doctest)]
mod misuse;
mod program;
mod ring;
pub mod simulation;
mod socket;
mod sys;
mod umem;

pub use self::error::{Error, ErrorKind, Step};
pub use self::interface::Interface;
pub use self::program::{AttachMode, Attached, Filter, Program, SocketMap};
pub use self::socket::{
    BusyPoll, Completion, CompletionBatch, Fill, FillBatch, Granted, MAX_PIECES, Queue, Rx, RxBatch, RxQueue, Sent,
    SharedQueue, Socket, SocketBuilder, Statistics, Tx, TxBatch, TxQueue, ZeroCopy,
};
pub use self::umem::{Frame, MetadataError, Packet, Pool, TxMetadata, Umem, UmemBuilder};
