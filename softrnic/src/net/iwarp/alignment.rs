//! Where the stream of frames may be cut into TCP segments.
//!
//! A receiver must accept frames that are cut anywhere (RFC 5044, section 5). The kernel's siw (Linux 6.1) does not: if the
//! header of a Read Request or a Send arrives in two parts, it copies too much of the second, and ends the connection.
//! So no header is cut while requests wait for responses: TCP gets at most as many frames at once as it can cut between
//! headers, and `MSG_EOR` keeps it from appending the next ones to the same segment. Other frames may be cut, because
//! segments of their own would cost three quarters of the rate of short writes. So may the first request after such
//! frames if they still wait in the socket, and a frame that TCP has accepted only in part.

use super::ddp::{OPCODE, header_length};
use super::fpdu::frame_length;
use super::rdmap::Opcode;

/// The length of the field in front of a header.
const LENGTH: usize = 2;

/// The position of TCP in the stream of frames.
#[derive(Debug)]
pub(super) struct Alignment {
    /// The maximum length of a TCP segment.
    mss: usize,
    /// The number of bytes until the next frame begins.
    rest: usize,
}

impl Alignment {
    /// The position before bytes of this length, which come before the first frame.
    pub(super) fn new(mss: u16, first: usize) -> Self {
        Self { mss: mss.into(), rest: first }
    }

    /// Returns how many of these bytes, which are the next ones, TCP may get at once.
    pub(super) fn at_once(&self, bytes: &[u8]) -> usize {
        let mut at = self.rest;
        while let Some(&[high, low, ddp, rdmap]) = bytes.get(at..at + 4) {
            let length = frame_length(u16::from_be_bytes([high, low]));
            let header = match Opcode::parse(rdmap & OPCODE) {
                Some(Opcode::Write | Opcode::ReadResponse | Opcode::Send { .. }) => LENGTH + header_length(ddp),
                // The other messages consist of fields.
                _ => length,
            };
            let cut = at.next_multiple_of(self.mss);
            if at < cut && cut < at + header {
                return at;
            }
            at += length;
        }
        bytes.len()
    }

    /// Records that TCP has accepted the first `sent` of these bytes.
    pub(super) fn sent(&mut self, bytes: &[u8], sent: usize) {
        let mut at = self.rest;
        while let Some(&[high, low]) = bytes.get(at..at + 2).filter(|_| at < sent) {
            at += frame_length(u16::from_be_bytes([high, low]));
        }
        self.rest = at.saturating_sub(sent);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sender::Sender;
    use super::*;

    /// The frames of messages with these opcodes and lengths, and the range of each header.
    fn stream(messages: &[(bool, u16)], max_segment: usize) -> (Vec<u8>, Vec<std::ops::Range<usize>>) {
        let (mut sender, mut bytes, mut headers) = (Sender::new(true, max_segment), Vec::new(), Vec::new());
        for &(is_read, length) in messages {
            let from = bytes.len();
            if is_read {
                sender.fields(Opcode::ReadRequest, &[0; 28], &mut bytes);
                headers.push(from..from + 48);
                continue;
            }
            let opcode = Opcode::Send { is_solicited: false, invalidates: false };
            sender.untagged(opcode, None, 0, &vec![0; length.into()], true, &mut bytes);
            let mut at = from;
            while at < bytes.len() {
                headers.push(at..at + 20);
                at += frame_length(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            }
        }
        (bytes, headers)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

        #[test]
        fn no_header_is_cut_if_tcp_accepts_all(
            messages in proptest::collection::vec((any::<bool>(), 0..4000_u16), 1..40),
            mss in 536..3000_u16,
            first in 0..100_usize,
        ) {
            let (frames, headers) = stream(&messages, usize::from(mss & !3) - 6);
            let bytes = [vec![0; first], frames].concat();
            let (mut alignment, mut taken) = (Alignment::new(mss, first), 0);
            while taken < bytes.len() {
                let length = alignment.at_once(&bytes[taken..]);
                prop_assert!(length > 0);
                for cut in (0..length).step_by(mss.into()).map(|at| taken + at) {
                    let is_inside = |header: &&std::ops::Range<usize>| first + header.start < cut && cut < first + header.end;
                    prop_assert_eq!(headers.iter().find(is_inside), None);
                }
                alignment.sent(&bytes[taken..], length);
                taken += length;
            }
            prop_assert_eq!(alignment.rest, 0);
        }

        #[test]
        fn position_is_that_of_the_next_frame_wherever_tcp_stops(
            messages in proptest::collection::vec((any::<bool>(), 0..4000_u16), 1..20),
            stops in proptest::collection::vec(1..3000_usize, 1..20),
        ) {
            let (bytes, headers) = stream(&messages, 1442);
            let (mut alignment, mut taken) = (Alignment::new(1448, 0), 0);
            for stop in stops.iter().cycle() {
                let length = alignment.at_once(&bytes[taken..]).min(*stop);
                alignment.sent(&bytes[taken..], length);
                taken += length;
                if taken == bytes.len() {
                    break;
                }
                let next = headers.iter().map(|header| header.start).find(|start| *start >= taken);
                prop_assert_eq!(taken + alignment.rest, next.unwrap_or(bytes.len()));
            }
        }
    }

    #[test]
    fn data_is_not_split_without_need() {
        let (mut sender, mut bytes) = (Sender::new(true, 1442), Vec::new());
        sender.tagged(Opcode::Write, 1, 0, &[0; 64 << 10], true, &mut bytes);
        assert_eq!(Alignment::new(1448, 0).at_once(&bytes), bytes.len());
    }
}
