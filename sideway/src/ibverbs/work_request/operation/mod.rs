//! The operations: how each is begun on an extended queue pair, and written into a request for a basic one.

mod local;
mod message;
mod remote;

use rdma_mummy_sys::{ibv_context, ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_wr_opcode as raw};

pub use self::local::{BindMemoryWindow, LocalInvalidate};
pub use self::message::{Send, SendImm, SendInv, SendTso};
pub use self::remote::{AtomicWrite, CompareSwap, FetchAdd, Flush, FlushLevel, FlushPlacement, Read, Write, WriteImm};
use super::RefusalReason;
use crate::ffi::{Sealed, open_enum};

open_enum! {
    /// `enum ibv_wr_opcode`: the operation of a send request.
    #[doc(alias = "ibv_wr_opcode")]
    pub enum WorkRequestOperationType {
        /// Write.
        Write = raw::IBV_WR_RDMA_WRITE.0,
        /// Write with immediate data.
        WriteWithImmediate = raw::IBV_WR_RDMA_WRITE_WITH_IMM.0,
        /// Send.
        Send = raw::IBV_WR_SEND.0,
        /// Send with immediate data.
        SendWithImmediate = raw::IBV_WR_SEND_WITH_IMM.0,
        /// Read.
        Read = raw::IBV_WR_RDMA_READ.0,
        /// Atomic compare-and-swap.
        AtomicCompareAndSwap = raw::IBV_WR_ATOMIC_CMP_AND_SWP.0,
        /// Atomic fetch-and-add.
        AtomicFetchAndAdd = raw::IBV_WR_ATOMIC_FETCH_AND_ADD.0,
        /// Invalidation of a key of this side.
        LocalInvalidate = raw::IBV_WR_LOCAL_INV.0,
        /// Bind of a memory window.
        BindMemoryWindow = raw::IBV_WR_BIND_MW.0,
        /// Send that invalidates a key of the peer.
        SendWithInvalidate = raw::IBV_WR_SEND_WITH_INV.0,
        /// Segmented send.
        TcpSegmentationOffload = raw::IBV_WR_TSO.0,
        /// The vendor's own.
        Driver1 = raw::IBV_WR_DRIVER1.0,
        /// Flush.
        Flush = 14,
        /// Atomic write of 8 bytes.
        AtomicWrite = raw::IBV_WR_ATOMIC_WRITE.0,
    }
}

/// One operation with its parameters. Sealed.
///
/// # Safety
///
/// Both functions keep to the driver's interface: what they leave in the request is valid until the batch is posted, which is
/// as long as the lifetime in the type of the guard that it is given to (see
/// [`HoldsFor`](super::HoldsFor)). [`write`](Self::write) leaves `wr_id`, `next`, `sg_list` and `num_sge` as they are, and of
/// `send_flags` only adds to what is set.
pub unsafe trait SendOperation: Sealed + Copy {
    /// Whether a basic queue pair takes it only of a device that has atomic writes: siw looks every opcode up in a table that ends
    /// before this one.
    #[doc(hidden)]
    const IS_ATOMIC_WRITE: bool = false;

    /// Begins the request: the data is given next.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair of this crate's between `wr_start` and `wr_complete`, with `wr_id` and `wr_flags` set.
    /// None of its functions that are as old as the struct (up to `wr_abort`) is null.
    unsafe fn begin(self, qp: *mut ibv_qp_ex);

    /// Writes the opcode and the parameters, or says why this cannot be posted to a basic queue pair.
    ///
    /// # Errors
    ///
    /// The reason, which takes the batch back.
    ///
    /// # Safety
    ///
    /// `qp` is a live queue pair.
    unsafe fn write(self, wr: &mut ibv_send_wr, qp: *mut ibv_qp) -> Result<(), RefusalReason>;
}

/// One of two operations, as the program chooses while it runs: `setup_send_optional_imm`, `setup_write_optional_imm`.
#[derive(Clone, Copy, Debug)]
pub enum Either<A, B> {
    /// The one.
    Left(A),
    /// The other.
    Right(B),
}

impl<A, B> Sealed for Either<A, B> {}

// SAFETY: as for the operation that it is.
unsafe impl<A: SendOperation, B: SendOperation> SendOperation for Either<A, B> {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Left(operation) => operation.begin(qp),
                Self::Right(operation) => operation.begin(qp),
            }
        }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Left(operation) => operation.write(wr, qp),
                Self::Right(operation) => operation.write(wr, qp),
            }
        }
    }
}

macro_rules! seal {
    ($($Operation:ty),+ $(,)?) => { $( impl Sealed for $Operation {} )+ };
}

seal!(Send, SendImm, SendInv, SendTso<'_>, Write, WriteImm, Read, CompareSwap, FetchAdd, AtomicWrite, Flush);
seal!(LocalInvalidate, BindMemoryWindow<'_>);

/// Whether an object of the device `context` may be named in a request of `qp`: drivers take it for one of their own.
///
/// # Safety
///
/// `qp` is a live queue pair.
#[inline]
pub(crate) unsafe fn check_device(context: *mut ibv_context, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
    // SAFETY: the caller's promise; the field does not change.
    if context == unsafe { (*qp).context } { Ok(()) } else { Err(RefusalReason::OfAnotherDevice) }
}
