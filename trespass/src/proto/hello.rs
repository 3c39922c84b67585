//! The handshake before the first frame: versions, limits, features, and refusals.
//!
//! A hello has 56 bytes, which fit into the private data of a connection request. Limits are negotiated to the minimum
//! of both sides.

use std::fmt;

/// Length of a hello, in bytes.
const HELLO: usize = 56;
/// Maximum length of a refusal, in bytes.
const REFUSAL: usize = 148;
/// Bytes that the program may add to a hello.
pub(crate) const TOKEN: usize = 24;

const MAGIC: [u8; 4] = *b"trsp";
/// Supported versions of the protocol.
const VERSIONS: (u8, u8) = (1, 2);
/// The features that a peer may require. There are none so far.
const FEATURES: u16 = 0;
/// The minimum length of a segment. A SEND with control frames fits into it.
const SHORTEST_SEGMENT: u32 = 512;

/// One side's hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The oldest and the newest supported version.
    pub(crate) versions: (u8, u8),
    /// Features that this side requires of the peer.
    pub(crate) required: u16,
    /// Length of this side's receives, in bytes.
    pub(crate) segment: u32,
    /// Number of SENDs that the peer may send before the first frame arrives.
    pub(crate) credits: u16,
    /// Maximum number of READs that this side has outstanding; 0 if it does not use READs.
    pub(crate) reads: u16,
    /// Length of the longest message that this side READs in one piece, in bytes.
    pub(crate) rendezvous: u32,
    /// Length of the longest message that this side assembles, in bytes.
    pub(crate) message: u32,
    /// A random number, which is different for each connection. It identifies late replies that belong to an earlier
    /// connection.
    pub(crate) epoch: u64,
    pub(crate) token: [u8; TOKEN],
}

/// The reason why a side refuses a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: RefusalCode,
    pub(crate) text: String,
}

/// The code of a refusal. A peer may send any value, not only those below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusalCode(pub(crate) u16);

impl RefusalCode {
    pub(crate) const NOT_TRESPASS: RefusalCode = RefusalCode(1);
    pub(crate) const VERSION: RefusalCode = RefusalCode(2);
    pub(crate) const FEATURE: RefusalCode = RefusalCode(3);
    pub(crate) const LIMIT: RefusalCode = RefusalCode(4);
    /// The listener's backlog is full, or its memory is exhausted.
    pub(crate) const BUSY: RefusalCode = RefusalCode(5);
}

/// The negotiated limits, which both sides use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) version: u8,
    /// Maximum length of a SEND in bytes, in both directions.
    pub(crate) segment: u32,
    /// Number of SENDs that this side may post before it receives credits.
    pub(crate) credits: u16,
    /// Maximum number of outstanding READs of this side.
    pub(crate) reads: u16,
    /// Length of the longest message that the peer READs; 0 if the peer does not use READs.
    pub(crate) rendezvous: u32,
    /// Length of the longest message that the peer accepts.
    pub(crate) message: u32,
}

impl Hello {
    /// Creates the hello of this side. The caller sets the limits afterwards.
    pub(crate) fn new(epoch: u64) -> Hello {
        Hello {
            versions: VERSIONS,
            required: 0,
            segment: 0,
            credits: 0,
            reads: 0,
            rendezvous: 0,
            message: 0,
            epoch,
            token: [0; TOKEN],
        }
    }

    pub(crate) fn emit(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&[self.versions.0, self.versions.1]);
        put(&self.required.to_le_bytes());
        put(&self.credits.to_le_bytes());
        put(&self.reads.to_le_bytes());
        put(&(self.segment.min(u32::from(u16::MAX) * 16) / 16).to_le_bytes()[..2]);
        // Features that this side offers. There are none, and `parse` ignores those of a peer.
        put(&[0; 2]);
        put(&self.epoch.to_le_bytes());
        put(&self.rendezvous.to_le_bytes());
        put(&self.message.to_le_bytes());
        put(&self.token);
        bytes
    }

    /// Parses a hello. Bytes after the hello are ignored, because later versions may add fields, and rdma_cm pads with
    /// zeros.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Hello, Refusal> {
        let Some(bytes) = bytes.first_chunk::<HELLO>().filter(|bytes| bytes.starts_with(&MAGIC)) else {
            return Err(Refusal::new(RefusalCode::NOT_TRESPASS, "the peer does not speak trespass on this port"));
        };
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let mut token = [0; TOKEN];
        token.copy_from_slice(&bytes[HELLO - TOKEN..]);
        Ok(Hello {
            versions: (bytes[4], bytes[5]),
            required: u16_at(6),
            credits: u16_at(8),
            reads: u16_at(10),
            segment: u32::from(u16_at(12)) * 16,
            epoch: u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32,
            rendezvous: u32_at(24),
            message: u32_at(28),
            token,
        })
    }

    /// Combines the limits of both hellos. Returns a refusal if the two sides are not compatible.
    pub(crate) fn agree(&self, peer: &Hello) -> Result<Agreement, Refusal> {
        let version = self.versions.1.min(peer.versions.1);
        if version < self.versions.0.max(peer.versions.0) {
            let text = format!(
                "the wire versions of the two sides, {}-{} and {}-{}, do not overlap",
                self.versions.0, self.versions.1, peer.versions.0, peer.versions.1
            );
            return Err(Refusal { code: RefusalCode::VERSION, text });
        }
        let unknown = peer.required & !FEATURES;
        if unknown != 0 {
            let text = format!("the peer requires features {unknown:#06x}, which this side does not have");
            return Err(Refusal { code: RefusalCode::FEATURE, text });
        }
        let segment = self.segment.min(peer.segment);
        if segment < SHORTEST_SEGMENT || peer.credits < super::FLOOR || peer.credits > super::WINDOW_MAX {
            let text = format!(
                "the peer's limits are out of range: segments of {} bytes, {} credits",
                peer.segment, peer.credits
            );
            return Err(Refusal { code: RefusalCode::LIMIT, text });
        }
        Ok(Agreement {
            version,
            segment,
            credits: peer.credits,
            reads: self.reads,
            rendezvous: if peer.reads == 0 { 0 } else { peer.rendezvous },
            message: peer.message,
        })
    }
}

impl Refusal {
    pub(crate) fn new(code: RefusalCode, text: &str) -> Refusal {
        Refusal { code, text: text.to_owned() }
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.code.0.to_le_bytes());
        let room = REFUSAL - bytes.len() - 1;
        let text = &self.text.as_bytes()[..self.text.floor_char_boundary_at(room)];
        bytes.push(u8::try_from(text.len()).unwrap_or(0));
        bytes.extend_from_slice(text);
        bytes
    }

    /// Parses the refusal in a rejection, if this library sent it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Refusal> {
        let bytes = bytes.strip_prefix(&MAGIC)?;
        let (&[c0, c1, length], text) = bytes.split_first_chunk::<3>()?;
        let text = String::from_utf8_lossy(text.get(..usize::from(length))?).into_owned();
        Some(Refusal { code: RefusalCode(u16::from_le_bytes([c0, c1])), text })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.text, self.code.0)
    }
}

/// Replaces `str::floor_char_boundary`, which the oldest supported compiler does not have.
trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, most: usize) -> usize;
}

impl FloorCharBoundary for String {
    fn floor_char_boundary_at(&self, most: usize) -> usize {
        (0..=most.min(self.len())).rev().find(|&at| self.is_char_boundary(at)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place of the offered features.
    const OFFERED: std::ops::Range<usize> = 14..16;

    fn hello() -> Hello {
        let limits = Hello {
            segment: 4096,
            credits: 5,
            reads: 16,
            rendezvous: 1 << 20,
            message: 1 << 30,
            ..Hello::new(u64::MAX - 1)
        };
        Hello { token: *b"a token of 24 bytes here", ..limits }
    }

    #[test]
    fn hello_emitted_parses_back() {
        assert_eq!(Hello::parse(&hello().emit()), Ok(hello()));
        let mut padded = hello().emit().to_vec();
        padded.resize(196, 0);
        assert_eq!(Hello::parse(&padded), Ok(hello()));
        // Features that a later version offers.
        assert_eq!(padded[OFFERED], [0; 2]);
        padded[OFFERED].fill(0xff);
        assert_eq!(Hello::parse(&padded), Ok(hello()));
    }

    #[test]
    fn other_private_data_is_refused() {
        assert_eq!(Hello::parse(&[0; 196]).map_err(|refusal| refusal.code), Err(RefusalCode::NOT_TRESPASS));
        assert_eq!(
            Hello::parse(&hello().emit()[..HELLO - 1]).map_err(|refusal| refusal.code),
            Err(RefusalCode::NOT_TRESPASS)
        );
    }

    #[test]
    fn limits_are_the_minimum_of_both_sides() {
        let peer = Hello { segment: 8192, credits: 9, reads: 4, rendezvous: 1 << 16, ..hello() };
        let agreement = hello().agree(&peer);
        let expected =
            Agreement { version: 2, segment: 4096, credits: 9, reads: 16, rendezvous: 1 << 16, message: 1 << 30 };
        assert_eq!(agreement, Ok(expected));
    }

    #[test]
    fn peer_that_does_not_read_gets_no_rendezvous() {
        let agreement = hello().agree(&Hello { reads: 0, ..hello() });
        assert_eq!(agreement.map(|agreement| agreement.rendezvous), Ok(0));
    }

    #[test]
    fn unsupported_versions_and_features_are_refused() {
        let newer = Hello { versions: (3, 4), ..hello() };
        assert_eq!(hello().agree(&newer).map_err(|refusal| refusal.code), Err(RefusalCode::VERSION));
        for (newest, agreed) in [(1, 1), (2, 2), (4, 2)] {
            let peer = Hello { versions: (1, newest), ..hello() };
            assert_eq!(hello().agree(&peer).map(|agreement| agreement.version), Ok(agreed));
        }
        let demanding = Hello { required: 1, ..hello() };
        assert_eq!(hello().agree(&demanding).map_err(|refusal| refusal.code), Err(RefusalCode::FEATURE));
        let few = Hello { credits: 1, ..hello() };
        assert_eq!(hello().agree(&few).map_err(|refusal| refusal.code), Err(RefusalCode::LIMIT));
    }

    #[test]
    fn refusal_emitted_parses_back_and_is_cut_at_a_character() {
        let refusal = Refusal::new(RefusalCode::BUSY, "backlog full");
        assert_eq!(Refusal::parse(&refusal.emit()), Some(refusal));
        let long = Refusal::new(RefusalCode::BUSY, &"ä".repeat(200));
        let bytes = long.emit();
        assert!(bytes.len() <= REFUSAL);
        assert!(
            Refusal::parse(&bytes)
                .is_some_and(|cut| cut.text.chars().all(|letter| letter == 'ä') && cut.text.len() > 120)
        );
        assert_eq!(Refusal::parse(b"busy"), None);
    }
}
