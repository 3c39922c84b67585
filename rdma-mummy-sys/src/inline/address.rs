//! Addresses: a port's GIDs, the UDP source port of a flow label, and InfiniBand socket addresses (ib.h).

use core::ffi::c_int;

use super::library;
use crate::bindings::rdma_cma::ib_addr;
use crate::bindings::verbs::*;

/// Reads one entry of a port's GID table, with its type and network interface. Returns zero or an errno value. See
/// `ibv_query_gid_ex(3)`.
///
/// # Safety
///
/// `context` is live and `entry` can be written.
#[inline]
pub unsafe fn ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
) -> c_int {
    // SAFETY: by contract the context is live and `entry` writable; the library receives its size.
    unsafe { library::_ibv_query_gid_ex(context, port_num, gid_index, entry, flags, size_of::<ibv_gid_entry>()) }
}

/// Reads the valid entries of the GID tables of all ports. Returns the number of entries written, or a negated errno
/// value. See `ibv_query_gid_table(3)`.
///
/// # Safety
///
/// `context` is live and `entries` can be written for `max_entries` entries.
#[inline]
pub unsafe fn ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
) -> isize {
    // SAFETY: by contract the context is live and the entries writable; the library receives the size of one.
    unsafe { library::_ibv_query_gid_table(context, entries, max_entries, flags, size_of::<ibv_gid_entry>()) }
}

/// Returns the UDP source port of a flow label under RoCE v2: its upper six bits folded into its lower fourteen, in the
/// range of dynamic ports.
#[inline]
#[must_use]
pub const fn ibv_flow_label_to_udp_sport(fl: u32) -> u16 {
    let folded = (fl & 0x03fff) ^ ((fl & 0xfc000) >> 14);
    (folded | IB_ROCE_UDP_ENCAP_VALID_PORT_MIN) as u16
}

/// Whether the address is all zeros.
///
/// # Safety
///
/// `a` can be read.
#[inline]
#[must_use]
pub unsafe fn ib_addr_any(a: *const ib_addr) -> c_int {
    // SAFETY: the caller upholds the same contract.
    let [w1, w2, w3, w4] = unsafe { words(a) };
    (w1 | w2 | w3 | w4 == 0) as c_int
}

/// Whether the address is the loopback address: zeros and a one.
///
/// # Safety
///
/// `a` can be read.
#[inline]
#[must_use]
pub unsafe fn ib_addr_loopback(a: *const ib_addr) -> c_int {
    // SAFETY: the caller upholds the same contract.
    let [w1, w2, w3, w4] = unsafe { words(a) };
    (w1 | w2 | w3 | (w4 ^ 1u32.to_be()) == 0) as c_int
}

/// Stores the four words (big-endian) of an address.
///
/// # Safety
///
/// `addr` can be written.
#[inline]
pub unsafe fn ib_addr_set(addr: *mut ib_addr, w1: __be32, w2: __be32, w3: __be32, w4: __be32) {
    // SAFETY: by contract the address is writable.
    unsafe { (*addr).ib_u.uib_addr32 = [w1, w2, w3, w4] };
}

/// Compares two addresses by their bytes: negative, zero or positive.
///
/// # Safety
///
/// `a1` and `a2` can be read.
#[inline]
#[must_use]
pub unsafe fn ib_addr_cmp(a1: *const ib_addr, a2: *const ib_addr) -> c_int {
    // SAFETY: by contract the addresses can be read.
    unsafe { libc::memcmp(a1.cast(), a2.cast(), size_of::<ib_addr>()) }
}

unsafe fn words(a: *const ib_addr) -> [__be32; 4] {
    // SAFETY: by contract the address can be read; all fields of the union are sixteen bytes of plain integers.
    unsafe { (*a).ib_u.uib_addr32 }
}
