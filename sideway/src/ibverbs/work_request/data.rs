//! The data of a send request, which is a gather list, or bytes that are copied into the request.

use std::io::IoSlice;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_data_buf, ibv_qp_ex, ibv_send_flags, ibv_send_wr, ibv_sge};

use super::ScatterGatherEntry;
use super::post_error::RefusalReason;
use crate::ibverbs::queue_pair::refuse;

/// The memory of one request in a basic queue pair's ring.
#[derive(Clone, Copy, Debug)]
pub struct BasicSlot {
    /// The request itself.
    pub(crate) wr: *mut ibv_send_wr,
    /// The request's gather list, of `max_sge` entries.
    pub(crate) sges: *mut ibv_sge,
    pub(crate) max_sge: usize,
    /// The request's inline data, of `max_inline` bytes.
    pub(crate) inline: *mut u8,
    pub(crate) max_inline: usize,
}

/// The data of a send request, in one of several forms.
pub trait SendData {
    /// Flags that the request must have. Most drivers do not require the flag for inline data, but the soft-RoCE driver
    /// does.
    const FLAGS: u32 = 0;

    /// Flags that a request of a basic queue pair must have.
    const BASIC_FLAGS: u32 = Self::FLAGS;

    /// Whether the data is always exactly one gather list entry, for which every request has space.
    const ONE_ENTRY: bool = false;

    /// Whether the device reads or writes registered memory directly.
    #[inline]
    fn names_memory(&self) -> bool {
        false
    }

    /// Completes the request that an operation has begun.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair between `wr_start` and `wr_complete`, an operation was begun, and the
    /// contract of `setup_sge` holds for gathered memory.
    unsafe fn give(self, qp: *mut ibv_qp_ex);

    /// Writes the gather list, or returns why it does not fit.
    ///
    /// # Safety
    ///
    /// The pointers of `slot` are exclusive, and point to memory of the stated capacities. If
    /// [`ONE_ENTRY`](Self::ONE_ENTRY) is set, there is space for at least one entry.
    unsafe fn write(self, slot: BasicSlot) -> Result<(), RefusalReason>;
}

/// One entry.
#[derive(Clone, Copy)]
pub(crate) struct Single(pub(crate) ScatterGatherEntry);

/// A list of entries, possibly empty.
#[derive(Clone, Copy)]
pub(crate) struct Gather<'d>(pub(crate) &'d [ScatterGatherEntry]);

/// The length in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Inline<'d>(pub(crate) &'d [u8]);

/// Bytes that do not change until the batch is posted or discarded. Drivers copy them when the batch is posted, or
/// earlier.
#[derive(Clone, Copy)]
pub(crate) struct Borrowed<'q>(pub(crate) &'q [u8]);

/// No data, for operations without a data step.
#[derive(Clone, Copy)]
pub(crate) struct Nothing;

/// Data that is rejected together with its request.
#[derive(Clone, Copy)]
pub(crate) struct Refused(pub(crate) RefusalReason);

/// Bytes that an extended queue pair passes to the operation itself, and that a basic queue pair sends as inline data.
#[derive(Clone, Copy)]
pub(crate) struct Within<'d>(pub(crate) &'d [u8]);

/// Inline bytes that consist of several pieces.
#[derive(Clone, Copy)]
pub(crate) struct InlineList<'d>(pub(crate) &'d [IoSlice<'d>]);

impl SendData for Single {
    const ONE_ENTRY: bool = true;

    #[inline]
    fn names_memory(&self) -> bool {
        true
    }

    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        let sge = self.0.raw();
        // SAFETY: the caller upholds the contract of this function.
        unsafe { sys::ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length) }
    }

    #[inline]
    unsafe fn write(self, slot: BasicSlot) -> Result<(), RefusalReason> {
        // SAFETY: there is space for one entry (`ONE_ENTRY`).
        unsafe {
            slot.sges.write(self.0.raw());
            (*slot.wr).num_sge = 1;
        }
        Ok(())
    }
}

impl SendData for Gather<'_> {
    #[inline]
    fn names_memory(&self) -> bool {
        !self.0.is_empty()
    }

    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        // SAFETY: by the contract of this function. An entry is an ibv_sge (`repr(transparent)`), which the function
        // only reads.
        unsafe { sys::ibv_wr_set_sge_list(qp, self.0.len(), self.0.as_ptr().cast()) }
    }

    #[inline]
    unsafe fn write(self, slot: BasicSlot) -> Result<(), RefusalReason> {
        if self.0.len() > slot.max_sge {
            return Err(RefusalReason::TooManyEntries { given: self.0.len(), limit: slot.max_sge });
        }
        // SAFETY: there is space for `max_sge` entries, and always for at least one. An entry is an ibv_sge.
        unsafe {
            slot.sges.write(of_nothing());
            slot.sges.copy_from_nonoverlapping(self.0.as_ptr().cast(), self.0.len());
            (*slot.wr).num_sge = self.0.len() as c_int;
        }
        Ok(())
    }
}

impl SendData for Nothing {
    #[inline]
    unsafe fn give(self, _qp: *mut ibv_qp_ex) {}

    #[inline]
    unsafe fn write(self, slot: BasicSlot) -> Result<(), RefusalReason> {
        // SAFETY: by the contract of this function, there is space for one entry.
        unsafe {
            slot.sges.write(of_nothing());
            (*slot.wr).num_sge = 0;
        }
        Ok(())
    }
}

impl SendData for Refused {
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        // SAFETY: by the contract of this function. Extended queue pairs of this crate have a SendContext.
        unsafe { refuse(qp, self.0) }
    }

    unsafe fn write(self, _slot: BasicSlot) -> Result<(), RefusalReason> {
        Err(self.0)
    }
}

impl SendData for Within<'_> {
    const BASIC_FLAGS: u32 = Inline::FLAGS;

    #[inline]
    unsafe fn give(self, _qp: *mut ibv_qp_ex) {}

    #[inline]
    unsafe fn write(self, slot: BasicSlot) -> Result<(), RefusalReason> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { Inline(self.0).write(slot) }
    }
}

impl SendData for Inline<'_> {
    const FLAGS: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        // SAFETY: by the contract of this function. The C function reads the bytes before it returns.
        unsafe { sys::ibv_wr_set_inline_data(qp, self.0.as_ptr().cast_mut().cast(), self.0.len()) }
    }

    #[inline]
    unsafe fn write(self, slot: BasicSlot) -> Result<(), RefusalReason> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { write_inline(slot, self.0.len(), |to| copy(self.0, to)) }
    }
}

impl SendData for Borrowed<'_> {
    const FLAGS: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { Inline(self.0).give(qp) }
    }

    #[inline]
    unsafe fn write(self, slot: BasicSlot) -> Result<(), RefusalReason> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { name_inline(slot, self.0.as_ptr(), self.0.len()) }
    }
}

impl SendData for InlineList<'_> {
    const FLAGS: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        // An IoSlice has the layout of an iovec. Both an iovec and an ibv_data_buf consist of a pointer and a length.
        const _: () = assert!(size_of::<IoSlice<'_>>() == size_of::<ibv_data_buf>());
        const _: () = assert!(std::mem::offset_of!(libc::iovec, iov_len) == std::mem::offset_of!(ibv_data_buf, length));
        // SAFETY: by the contract of this function. The C function reads the bytes before it returns.
        unsafe { sys::ibv_wr_set_inline_data_list(qp, self.0.len(), self.0.as_ptr().cast()) }
    }

    #[inline]
    unsafe fn write(self, slot: BasicSlot) -> Result<(), RefusalReason> {
        let length = self.0.iter().map(|piece| piece.len()).fold(0, usize::saturating_add);
        // SAFETY: by the contract of this function. The pieces together have `length` bytes.
        unsafe {
            write_inline(slot, length, |mut to| {
                for piece in self.0 {
                    to.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                    to = to.add(piece.len());
                }
            })
        }
    }
}

/// Returns the first entry of an empty list. Even if the list of a raw packet is empty, the mlx4 driver reads the
/// destination hardware address from the first entry. This entry points to static bytes, and not to the bytes of an
/// earlier request.
#[inline]
fn of_nothing() -> ibv_sge {
    static NOTHING: [u8; PACKET_START] = [0; PACKET_START];
    ibv_sge { addr: NOTHING.as_ptr() as u64, length: 0, lkey: 0 }
}

/// The number of bytes that drivers read from the start of a raw packet, even if the packet is shorter.
pub(crate) const PACKET_START: usize = 64;

/// Lets `copy` write `length` bytes into the slot, and sets these bytes as the data of the request.
///
/// # Safety
///
/// The contract of [`SendData::write`] applies, and `copy` writes at most `length` bytes.
#[inline]
unsafe fn write_inline(slot: BasicSlot, length: usize, copy: impl FnOnce(*mut u8)) -> Result<(), RefusalReason> {
    if length > slot.max_inline {
        return Err(RefusalReason::InlineTooLong { given: length, limit: slot.max_inline });
    }
    copy(slot.inline);
    // SAFETY: the caller upholds the contract of this function.
    unsafe { name_inline(slot, slot.inline, length) }
}

/// Copies the bytes to `to`. Copies 16 to 64 bytes, which are typical of small messages, without a function call.
///
/// # Safety
///
/// `bytes.len()` bytes can be written at `to`, and do not overlap `bytes`.
#[inline]
unsafe fn copy(bytes: &[u8], to: *mut u8) {
    type Piece = [u8; 16];
    const PIECE: usize = size_of::<Piece>();
    let length = bytes.len();
    if !(PIECE..=4 * PIECE).contains(&length) {
        // SAFETY: the caller upholds the contract of this function.
        return unsafe { copy_by_a_call(bytes, to) };
    }
    let piece = |at: usize| {
        // SAFETY: each position below is followed by a whole piece within `bytes`, and `to` has the same length. A
        // piece needs no alignment.
        unsafe { to.add(at).cast::<Piece>().write(bytes.as_ptr().add(at).cast::<Piece>().read()) }
    };
    // The pieces are copied from both ends, so bytes in the middle may be written twice.
    if length > 2 * PIECE {
        piece(PIECE);
        piece(length - 2 * PIECE);
    }
    piece(0);
    piece(length - PIECE);
}

/// Copies any number of bytes. This is a separate, cold function, so that a loop that posts can use its registers for
/// the common path.
///
/// # Safety
///
/// The contract of [`copy`] applies.
#[cold]
#[inline(never)]
unsafe fn copy_by_a_call(bytes: &[u8], to: *mut u8) {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
}

/// Sets the data of the request to the `length` bytes at `data`.
///
/// # Safety
///
/// The contract of [`SendData::write`] applies.
#[inline]
unsafe fn name_inline(slot: BasicSlot, data: *const u8, length: usize) -> Result<(), RefusalReason> {
    if length > slot.max_inline {
        return Err(RefusalReason::InlineTooLong { given: length, limit: slot.max_inline });
    }
    // SAFETY: every request has space for at least one entry (`Requests::new`). The length fits in 32 bits, because it
    // does not exceed the limit, which has 32 bits.
    unsafe {
        slot.sges.write(ibv_sge { addr: data as u64, length: length as u32, lkey: 0 });
        (*slot.wr).num_sge = 1;
    }
    Ok(())
}
