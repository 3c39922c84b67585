//! Uses features of the processor: prefetches memory into the cache, and determines whether string instructions copy
//! fast.
//!
//! For a few thousand bytes and more, C libraries copy with `rep movsb` if the processor reports a fast implementation.
//! QEMU's emulator reports a fast implementation, but copies byte by byte, which takes eight times as long as vector
//! copies of small pieces. AMD's processors drop to a fifteenth of their speed if the target's page offset is a few
//! bytes above the source's.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The assumed size of a cache line. If the lines are larger, each of them is prefetched twice, which costs almost
/// nothing.
const LINE: usize = 64;

/// Prefetches the first `bytes` bytes of `*start` into the cache. The pointer may be invalid.
#[inline]
pub(crate) fn prefetch<T>(start: *const T, bytes: usize) {
    for offset in (0..bytes).step_by(LINE) {
        line(start.cast::<u8>().wrapping_add(offset));
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint: it has no visible effect, and the processor ignores invalid addresses.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

/// Does nothing: Rust has no stable prefetch intrinsic for other architectures.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline]
fn line(_at: *const u8) {}

/// The size of the pieces in which memory is copied. It is a multiple of the cache line, and below the smallest size
/// for which C libraries use string instructions.
pub(crate) const PIECE: usize = 1920;
/// For copies of at least this size, C libraries may bypass the caches, which saves more time than the string
/// instructions cost.
const CACHED: usize = 256 << 10;

/// Returns the largest size of a copy that is made in pieces of [`PIECE`] bytes. The result is zero if string
/// instructions are as fast as the processor reports.
#[inline]
pub(crate) fn in_pieces_up_to() -> usize {
    const UNKNOWN: usize = 1;
    static LIMIT: AtomicUsize = AtomicUsize::new(UNKNOWN);
    match LIMIT.load(Ordering::Relaxed) {
        UNKNOWN => {
            let most = look();
            LIMIT.store(most, Ordering::Relaxed);
            most
        }
        most => most,
    }
}

#[cold]
fn look() -> usize {
    names().map_or(0, |(vendor, hypervisor)| of(&vendor, hypervisor.as_ref()))
}

/// A name in the form that `cpuid` returns.
type Name = [u8; 12];

/// The name of the processor's vendor, and that of the hypervisor if there is one. `None` if the vendor is unknown, as
/// on other architectures.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn names() -> Option<(Name, Option<Name>)> {
    use std::arch::x86_64::{__cpuid, CpuidResult};

    // The `cpuid` leaf that reports features, the bit in it that reports a hypervisor, and the first leaf that the
    // hypervisor defines.
    const FEATURES: u32 = 1;
    const HAS_HYPERVISOR: u32 = 1 << 31;
    const HYPERVISOR: u32 = 0x4000_0000;
    // Newer compilers declare `__cpuid` as a safe function.
    let ask: unsafe fn(u32) -> CpuidResult = __cpuid;
    // SAFETY: all processors of this architecture have the instruction.
    let leaf = |leaf| unsafe { ask(leaf) };
    let name = |words: [u32; 3]| {
        let mut name = [0; 12];
        name.iter_mut().zip(words.into_iter().flat_map(u32::to_ne_bytes)).for_each(|(to, from)| *to = from);
        name
    };
    let CpuidResult { ebx, ecx, edx, .. } = leaf(0);
    let vendor = name([ebx, edx, ecx]);
    let hypervisor = (leaf(FEATURES).ecx & HAS_HYPERVISOR != 0).then(|| {
        let CpuidResult { ebx, ecx, edx, .. } = leaf(HYPERVISOR);
        name([ebx, ecx, edx])
    });
    Some((vendor, hypervisor))
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn names() -> Option<(Name, Option<Name>)> {
    None
}

/// Computes the result of [`in_pieces_up_to`] from the names of the vendor and of the hypervisor.
fn of(vendor: &Name, hypervisor: Option<&Name>) -> usize {
    match (vendor, hypervisor) {
        (_, Some(b"TCGTCGTCGTCG")) => usize::MAX,
        (b"AuthenticAMD", _) => CACHED,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_and_amd_copy_in_pieces() {
        assert_eq!(of(b"AuthenticAMD", None), CACHED);
        assert_eq!(of(b"AuthenticAMD", Some(b"KVMKVMKVM\0\0\0")), CACHED);
        assert_eq!(of(b"GenuineIntel", Some(b"TCGTCGTCGTCG")), usize::MAX);
        assert_eq!(of(b"GenuineIntel", Some(b"KVMKVMKVM\0\0\0")), 0);
        assert_eq!(of(b"GenuineIntel", None), 0);
        assert_eq!(in_pieces_up_to(), in_pieces_up_to());
    }
}
