//! Pseudo-random bytes for messages.

/// Fills `bytes` with a sequence that depends only on `seed`.
pub fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in bytes.chunks_mut(8) {
        // One step of a linear congruential generator; only the upper half of its state is random enough.
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let noise = (state ^ state >> 32).to_le_bytes();
        word.copy_from_slice(noise.get(..word.len()).unwrap_or(&noise));
    }
}

/// `size` bytes of the sequence of `seed`.
pub fn of(size: u32, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    fill(&mut bytes, seed);
    bytes
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn each_seed_has_its_own_sequence() {
        assert_eq!(of(100, 7), of(100, 7));
        assert_eq!(of(100, 7)[..13], of(13, 7));
        let distinct: std::collections::HashSet<Vec<u8>> = (0..1000).map(|seed| of(16, seed)).collect();
        assert_eq!(distinct.len(), 1000);
    }
}
