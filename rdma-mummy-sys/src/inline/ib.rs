//! InfiniBand socket addresses.

use core::ffi::c_int;

use crate::bindings::rdma_cma::ib_addr;
use crate::bindings::verbs::__be32;

/// Whether the address is all zeros.
///
/// # Safety
///
/// `a` can be read.
#[inline]
#[must_use]
pub unsafe fn ib_addr_any(a: *const ib_addr) -> c_int {
    // SAFETY: the same contract.
    let [w1, w2, w3, w4] = unsafe { words(a) };
    (w1 | w2 | w3 | w4 == 0) as c_int
}

/// Whether the address is that of the host itself: zeros and a one.
///
/// # Safety
///
/// `a` can be read.
#[inline]
#[must_use]
pub unsafe fn ib_addr_loopback(a: *const ib_addr) -> c_int {
    // SAFETY: the same contract.
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
