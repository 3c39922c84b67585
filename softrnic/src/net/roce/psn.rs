//! Packet sequence numbers: 24 bits that wrap around.

use crate::wire::packet::MAX_NUMBER;

/// Returns how many packets `to` is after `from`: a negative number if it is before.
pub(super) fn distance(from: u32, to: u32) -> i32 {
    // The sign of the 24-bit difference is its bit 23.
    (to.wrapping_sub(from) << 8) as i32 >> 8
}

/// Returns the PSN before this one.
pub(super) fn before(psn: u32) -> u32 {
    psn.wrapping_sub(1) & MAX_NUMBER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::packet::psn_after;

    #[test]
    fn distance_wraps() {
        assert_eq!(distance(5, 5), 0);
        assert_eq!(distance(0xff_ffff, 0), 1);
        assert_eq!(distance(0, 0xff_ffff), -1);
        assert_eq!(distance(0, 0x7f_ffff), 0x7f_ffff);
        assert_eq!(distance(0, 0x80_0000), -0x80_0000);
        assert_eq!(distance(7, psn_after(7, 1000)), 1000);
        assert_eq!(before(0), 0xff_ffff);
    }
}
