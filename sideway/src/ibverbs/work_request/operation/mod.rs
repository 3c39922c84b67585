//! The operations of send requests. Each defines how it is begun on an extended queue pair, and how it is written into
//! a request of a basic queue pair.

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
        /// Invalidation of a local key.
        LocalInvalidate = raw::IBV_WR_LOCAL_INV.0,
        /// Bind of a memory window.
        BindMemoryWindow = raw::IBV_WR_BIND_MW.0,
        /// Send that invalidates a key of the peer.
        SendWithInvalidate = raw::IBV_WR_SEND_WITH_INV.0,
        /// Segmented send.
        TcpSegmentationOffload = raw::IBV_WR_TSO.0,
        /// An operation defined by the vendor.
        Driver1 = raw::IBV_WR_DRIVER1.0,
        /// Flush.
        Flush = 14,
        /// Atomic write of 8 bytes.
        AtomicWrite = raw::IBV_WR_ATOMIC_WRITE.0,
    }
}

/// One operation with its parameters. This trait is sealed.
///
/// # Safety
///
/// Both functions follow the driver's interface. Pointers that they store in the request are valid until the batch is
/// posted, which happens within the lifetime in the guard's type (see [`HoldsFor`](super::HoldsFor)).
/// [`write`](Self::write) does not change `wr_id`, `next`, `sg_list` and `num_sge`, and only adds flags to
/// `send_flags`.
pub unsafe trait SendOperation: Sealed + Copy {
    /// Whether a basic queue pair accepts this operation only if the device reports support for atomic writes. The
    /// check is needed because the siw driver looks up every opcode in a table, which has no entry for atomic writes.
    #[doc(hidden)]
    const IS_ATOMIC_WRITE: bool = false;

    /// Begins the request. Its data is set next.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair of this crate between `wr_start` and `wr_complete`, with `wr_id` and
    /// `wr_flags` set. None of the functions in the original struct (up to `wr_abort`) is null.
    unsafe fn begin(self, qp: *mut ibv_qp_ex);

    /// Writes the opcode and the parameters, or returns why a basic queue pair cannot post them.
    ///
    /// # Errors
    ///
    /// Returns the reason. The batch is then rejected.
    ///
    /// # Safety
    ///
    /// `qp` is a live queue pair.
    unsafe fn write(self, wr: &mut ibv_send_wr, qp: *mut ibv_qp) -> Result<(), RefusalReason>;
}

/// One of two operations, chosen at run time: `setup_send_optional_imm`, `setup_write_optional_imm`.
#[derive(Clone, Copy, Debug)]
pub enum Either<A, B> {
    /// The first operation.
    Left(A),
    /// The second operation.
    Right(B),
}

impl<A, B> Sealed for Either<A, B> {}

// SAFETY: the contained operation upholds the contract.
unsafe impl<A: SendOperation, B: SendOperation> SendOperation for Either<A, B> {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            match self {
                Self::Left(operation) => operation.begin(qp),
                Self::Right(operation) => operation.begin(qp),
            }
        }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        // SAFETY: the caller upholds the contract of this function.
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

/// Checks that a request of `qp` may name an object of the device `context`. Drivers do not check whether the object
/// belongs to their device.
///
/// # Safety
///
/// `qp` is a live queue pair.
#[inline]
pub(crate) unsafe fn check_device(context: *mut ibv_context, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
    // SAFETY: by the contract of this function, `qp` is live, and the field does not change.
    if context == unsafe { (*qp).context } { Ok(()) } else { Err(RefusalReason::OfAnotherDevice) }
}
