//! The processor: bringing memory into its cache ahead of use, and whether its string instructions copy fast.
//!
//! From some thousand bytes on, C libraries copy with `rep movsb` where a processor says that it is fast. QEMU's emulator says so
//! and goes byte by byte: eight times as slow as in pieces that are copied by vectors. AMD's processors fall to a fifteenth where the
//! target stands a few bytes after the source, counted from the starts of their pages.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The size of a cache line; where it is larger, one is asked for twice, which costs next to nothing.
const LINE: usize = 64;

/// Has the first bytes of what `start` points to, up to `bytes`, come into the cache. The pointer need not be valid.
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
    // SAFETY: a hint, which reads nothing as far as the program goes, and ignores addresses where nothing is.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

/// Others have no such instruction that Rust knows.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline]
fn line(_at: *const u8) {}

/// Less than the least size from which C libraries use string instructions, and whole cache lines.
pub(crate) const PIECE: usize = 1920;
/// From here on C libraries may go past the caches, which is worth more than string instructions cost.
const CACHED: usize = 256 << 10;

/// Up to how many bytes are copied in pieces of [`PIECE`]; zero where string instructions are as fast as they say.
#[inline]
pub(crate) fn in_pieces_up_to() -> usize {
    const UNKNOWN: usize = 1;
    static MOST: AtomicUsize = AtomicUsize::new(UNKNOWN);
    match MOST.load(Ordering::Relaxed) {
        UNKNOWN => {
            let most = look();
            MOST.store(most, Ordering::Relaxed);
            most
        }
        most => most,
    }
}

#[cold]
fn look() -> usize {
    names().map_or(0, |(vendor, hypervisor)| of(&vendor, hypervisor.as_ref()))
}

/// As the processor gives them.
type Name = [u8; 12];

/// The names of the processor's vendor, and of the hypervisor where there is one; `None` where they are not known, as on other
/// architectures.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn names() -> Option<(Name, Option<Name>)> {
    use std::arch::x86_64::{__cpuid, CpuidResult};

    // The leaf of features, its bit that there is a hypervisor, and the first leaf of that.
    const FEATURES: u32 = 1;
    const HAS_HYPERVISOR: u32 = 1 << 31;
    const HYPERVISOR: u32 = 0x4000_0000;
    // To newer compilers it is a safe function.
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

/// Of such a machine.
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
    fn the_emulator_and_one_vendor_copy_in_pieces() {
        assert_eq!(of(b"AuthenticAMD", None), CACHED);
        assert_eq!(of(b"AuthenticAMD", Some(b"KVMKVMKVM\0\0\0")), CACHED);
        assert_eq!(of(b"GenuineIntel", Some(b"TCGTCGTCGTCG")), usize::MAX);
        assert_eq!(of(b"GenuineIntel", Some(b"KVMKVMKVM\0\0\0")), 0);
        assert_eq!(of(b"GenuineIntel", None), 0);
        assert_eq!(in_pieces_up_to(), in_pieces_up_to());
    }
}
