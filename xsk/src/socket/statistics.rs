//! `XDP_STATISTICS`.

use std::os::fd::BorrowedFd;

use crate::sys::{self, Errno};

/// Packets and descriptors that the kernel did not process, since the socket was opened.
#[doc(alias = "xdp_statistics")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Packets dropped for a reason other than a full RX ring: no free frame, packet too long, or several pieces
    /// without multi-buffer.
    pub rx_dropped: u64,
    /// Invalid descriptors in the fill ring. This crate writes none.
    pub rx_invalid_descs: u64,
    /// Invalid descriptors in the TX ring. This crate writes none.
    pub tx_invalid_descs: u64,
    /// Packets dropped because the RX ring was full. Like the next two counters, 0 before Linux 5.9.
    pub rx_ring_full: u64,
    /// Attempts to take a frame from an empty fill ring.
    pub rx_fill_ring_empty_descs: u64,
    /// Attempts to take a packet from an empty TX ring.
    pub tx_ring_empty_descs: u64,
}

const _: () = assert!(size_of::<Statistics>() == size_of::<libc::xdp_statistics>());

pub(super) fn read(fd: BorrowedFd<'_>) -> Result<Statistics, Errno> {
    // SAFETY: the struct has the kernel's layout, and its fields are integers, so any bytes are valid.
    unsafe { sys::get_option(fd, libc::SOL_XDP, libc::XDP_STATISTICS) }.map(|(statistics, _)| statistics)
}
