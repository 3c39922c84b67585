//! What a program requests for a packet that it sends (`struct xsk_tx_metadata`).

use std::{fmt, io};

use crate::sys::XDP_TXMD_FLAGS_LAUNCH_TIME;

/// Number of bytes before the packet.
pub(crate) const LEN: usize = 24;

const TIMESTAMP: u64 = libc::XDP_TXMD_FLAGS_TIMESTAMP as u64;
const CHECKSUM: u64 = libc::XDP_TXMD_FLAGS_CHECKSUM as u64;

/// Requests for one packet: a checksum, a timestamp of its transmission, a launch time.
///
/// The UMEM must be built with [`tx_metadata`](crate::UmemBuilder::tx_metadata). A driver ignores requests that it does
/// not support.
#[doc(alias = "xsk_tx_metadata")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxMetadata {
    flags: u64,
    checksum_start: u16,
    checksum_offset: u16,
    launch_time: u64,
}

impl TxMetadata {
    /// Requests nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the time of transmission: [`Sent::timestamp`](crate::Sent::timestamp).
    #[must_use]
    pub fn timestamp(mut self) -> Self {
        self.flags |= TIMESTAMP;
        self
    }

    /// Requests the Internet checksum of the bytes from `start` on, written `offset` bytes after `start`. For UDP over
    /// IPv4 without options: 34 and 6. The field must contain the sum of the pseudo header.
    #[must_use]
    pub fn checksum(mut self, start: u16, offset: u16) -> Self {
        self.flags |= CHECKSUM;
        (self.checksum_start, self.checksum_offset) = (start, offset);
        self
    }

    /// Requests transmission at this time of the NIC's clock, in nanoseconds (Linux 6.15; igc, stmmac).
    #[must_use]
    pub fn launch_time(mut self, nanoseconds: u64) -> Self {
        self.flags |= XDP_TXMD_FLAGS_LAUNCH_TIME;
        self.launch_time = nanoseconds;
        self
    }

    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.checksum_start.to_ne_bytes());
        bytes[10..12].copy_from_slice(&self.checksum_offset.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.launch_time.to_ne_bytes());
        bytes
    }
}

/// The timestamp that the kernel has written into metadata, if one was requested.
pub(crate) fn timestamp(metadata: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u64::from_ne_bytes(metadata.get(at..at + 8)?.try_into().ok()?));
    (word(0)? & TIMESTAMP != 0).then_some(())?;
    word(8)
}

/// Checks that the kernel will accept the metadata of a packet, because it stops at a descriptor that it rejects. Returns the
/// offset at which the metadata starts.
pub(crate) fn check(
    offset: usize,
    len: usize,
    is_enabled: bool,
    metadata: &TxMetadata,
) -> Result<usize, MetadataError> {
    if !is_enabled {
        return Err(MetadataError::Disabled);
    }
    if metadata.flags & XDP_TXMD_FLAGS_LAUNCH_TIME != 0 && !has_launch_time() {
        return Err(MetadataError::NoLaunchTime);
    }
    let end = usize::from(metadata.checksum_start) + usize::from(metadata.checksum_offset) + 2;
    if metadata.flags & CHECKSUM != 0 && end > len {
        return Err(MetadataError::ChecksumOutside { end, len });
    }
    // The kernel's words must be aligned; and the start must be even, because Linux 6.18 clears the lowest bit of the
    // addresses that it completes in copy mode.
    if !offset.is_multiple_of(8) {
        return Err(MetadataError::NoSpace { offset });
    }
    offset.checked_sub(LEN).ok_or(MetadataError::NoSpace { offset })
}

/// Whether the kernel supports launch times; older kernels reject the flag.
fn has_launch_time() -> bool {
    use std::sync::OnceLock;
    static RELEASE: OnceLock<bool> = OnceLock::new();
    *RELEASE.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
        (numbers.next(), numbers.next()) >= (Some(6), Some(15))
    })
}

/// The reason why a packet cannot have metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataError {
    /// The UMEM was built without [`tx_metadata`](crate::UmemBuilder::tx_metadata).
    Disabled,
    /// The packet starts less than 24 bytes after its frame, or not at a multiple of 8.
    NoSpace {
        /// The offset at which the packet starts.
        offset: usize,
    },
    /// The checksum field ends after the packet.
    ChecksumOutside {
        /// The offset at which the field ends.
        end: usize,
        /// Length of the packet.
        len: usize,
    },
    /// The kernel is older than Linux 6.15.
    NoLaunchTime,
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => {
                f.write_str("the UMEM has no TX metadata; build it with UmemBuilder::tx_metadata (Linux 6.8)")
            }
            Self::NoSpace { offset } => {
                write!(
                    f,
                    "a packet with TX metadata must start at a multiple of 8 from {LEN} on, but this one starts at {offset}; move it"
                )
            }
            Self::ChecksumOutside { end, len } => {
                write!(
                    f,
                    "the checksum field ends at byte {end}, but the packet has {len} bytes; correct start and offset"
                )
            }
            Self::NoLaunchTime => f.write_str("launch times need Linux 6.15; send without one"),
        }
    }
}

impl std::error::Error for MetadataError {}

impl From<MetadataError> for io::Error {
    fn from(error: MetadataError) -> Self {
        let kind = match error {
            MetadataError::NoLaunchTime => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}
