//! One end of a connection, in the form that peers exchange.

use crate::ibverbs::address::Gid;
use crate::ibverbs::device_context::Mtu;

/// The data that a peer needs to connect to a queue pair. The two programs exchange it over any channel that they
/// share.
///
/// [`QueuePair::local_endpoint`](super::QueuePair::local_endpoint) returns it; [`to_bytes`](Self::to_bytes) and
/// [`from_bytes`](Self::from_bytes) convert it to and from its wire format.
///
/// ```
/// use sideway::ibverbs::queue_pair::QueuePairEndpoint;
///
/// let endpoint = QueuePairEndpoint { qp_num: 0x12, psn: 0xc0ffee, lid: 7, ..Default::default() };
/// let bytes: [u8; QueuePairEndpoint::LEN] = endpoint.to_bytes();
/// assert_eq!(QueuePairEndpoint::from_bytes(&bytes), endpoint);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuePairEndpoint {
    /// The number of the queue pair, 24 bits.
    pub qp_num: u32,
    /// The first packet sequence number that this end sends, 24 bits.
    pub psn: u32,
    /// The LID of the port, which is 0 on Ethernet.
    pub lid: u16,
    /// The source GID of this end's packets.
    pub gid: Gid,
    /// The active MTU of the port. The connection uses the smaller MTU of its two ends.
    pub mtu: Mtu,
    /// The maximum number of the peer's outstanding reads and atomics for which this side has resources.
    pub max_dest_read_atomic: u8,
}

impl QueuePairEndpoint {
    /// The size of the wire format, in bytes.
    pub const LEN: usize = 28;

    /// Encodes the endpoint in its wire format. All numbers are in network byte order (big-endian):
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 4 | `qp_num` |
    /// | 4 | 4 | `psn` |
    /// | 8 | 2 | `lid` |
    /// | 10 | 1 | `mtu`, as `enum ibv_mtu`: 1 is 256 bytes, 5 is 4096 |
    /// | 11 | 1 | `max_dest_read_atomic` |
    /// | 12 | 16 | `gid` |
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.qp_num.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.psn.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.lid.to_be_bytes());
        // A code that does not fit becomes 255, which is also a code without a name.
        bytes[10] = u8::try_from(self.mtu.raw()).unwrap_or(u8::MAX);
        bytes[11] = self.max_dest_read_atomic;
        bytes[12..].copy_from_slice(&self.gid.raw);
        bytes
    }

    /// Decodes the wire format. All bytes are accepted; [`connect_rc`](super::QueuePair::connect_rc) rejects invalid
    /// values.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, mtu, max_dest_read_atomic, raw @ ..] = *bytes;
        Self {
            qp_num: u32::from_be_bytes([a, b, c, d]),
            psn: u32::from_be_bytes([e, f, g, h]),
            lid: u16::from_be_bytes([i, j]),
            gid: Gid { raw },
            mtu: Mtu::from_raw(mtu.into()),
            max_dest_read_atomic,
        }
    }
}

/// All numbers are zero, and the MTU is 256 bytes, which every port supports.
impl Default for QueuePairEndpoint {
    fn default() -> Self {
        Self { qp_num: 0, psn: 0, lid: 0, gid: Gid::default(), mtu: Mtu::Mtu256, max_dest_read_atomic: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_format_is_in_network_byte_order() {
        let gid = "::ffff:192.0.2.1".parse().unwrap();
        let endpoint = QueuePairEndpoint {
            qp_num: 0x01_0203,
            psn: 0x04_0506,
            lid: 0x0708,
            gid,
            mtu: Mtu::Mtu1024,
            max_dest_read_atomic: 9,
        };
        let bytes = [0, 1, 2, 3, 0, 4, 5, 6, 7, 8, 3, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
        assert_eq!(endpoint.to_bytes(), bytes);
        assert_eq!(QueuePairEndpoint::from_bytes(&bytes), endpoint);
    }

    #[test]
    fn any_bytes_decode_without_panic() {
        let bytes = [0xff; QueuePairEndpoint::LEN];
        let endpoint = QueuePairEndpoint::from_bytes(&bytes);
        assert_eq!(endpoint.mtu.raw(), 255);
        assert_eq!(endpoint.to_bytes(), bytes);
    }
}
