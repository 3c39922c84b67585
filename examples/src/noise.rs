//! Bytes that look like nothing else.

/// Fills `bytes` with what belongs to `seed`, the same each time.
pub fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in bytes.chunks_mut(8) {
        // A step of a linear congruential generator, of which the upper half is good.
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let noise = (state ^ state >> 32).to_le_bytes();
        word.copy_from_slice(noise.get(..word.len()).unwrap_or(&noise));
    }
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn each_seed_has_its_own() {
        let noise = |seed, length| {
            let mut bytes = vec![0; length];
            fill(&mut bytes, seed);
            bytes
        };
        assert_eq!(noise(7, 100), noise(7, 100));
        assert_eq!(noise(7, 100)[..13], noise(7, 13));
        let distinct: std::collections::HashSet<Vec<u8>> = (0..1000).map(|seed| noise(seed, 16)).collect();
        assert_eq!(distinct.len(), 1000);
    }
}
