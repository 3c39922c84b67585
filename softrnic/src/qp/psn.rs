//! Packet sequence numbers: 24 bits, going round.

use crate::wire::packet::MAX_NUMBER;

/// The packets that a message of `length` bytes takes at this MTU: one also where it is empty.
pub(crate) fn packets(length: u64, mtu: u32) -> u32 {
    let packets = length.div_ceil(u64::from(mtu.max(1))).max(1);
    // Numbers go round, so more than fit are as good as what is left of them; messages end at 2 GiB anyway.
    u32::try_from(packets).unwrap_or(MAX_NUMBER)
}

/// The number that many packets after `psn`.
pub(crate) fn after(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) & MAX_NUMBER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_a_packet_per_mtu() {
        assert_eq!(packets(0, 1024), 1);
        assert_eq!(packets(1, 1024), 1);
        assert_eq!(packets(1024, 1024), 1);
        assert_eq!(packets(1025, 1024), 2);
        assert_eq!(packets(1 << 31, 256), 1 << 23);
    }

    #[test]
    fn numbers_go_round_at_24_bits() {
        assert_eq!(after(0xff_fffe, 1), 0xff_ffff);
        assert_eq!(after(0xff_ffff, 1), 0);
        assert_eq!(after(0xff_ffff, 3), 2);
    }
}
