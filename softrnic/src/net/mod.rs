//! The transports to other hosts.

mod attendance;
pub(crate) mod iwarp;
pub(crate) mod roce;

/// Removes `N` bytes from the start of `bytes` and returns them.
pub(in crate::net) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
