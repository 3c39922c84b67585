//! The set-up of a connection (RFC 5044, section 7.1, and RFC 6581).
//!
//! The initiator sends a request, and the responder sends a reply. If the peer supports only revision 1, the initiator
//! repeats the set-up with that revision on a new TCP connection. The owner of this state machine limits the time of
//! the set-up.

use super::code::Code;
use super::mpa::{ANY_DEPTH, ENHANCED_LENGTH, Enhanced, Frame, MAX_SENT, Malformed, RtrKinds};

/// The highest revision of the protocol that softrnic supports.
const REVISION: u8 = 2;

/// The maximum length of the private data of a program.
pub(crate) const MAX_PRIVATE_DATA: usize = MAX_SENT - ENHANCED_LENGTH;

/// The RTR frames that softrnic supports at both ends.
const RTR: RtrKinds = RtrKinds { fpdu: false, write: true, read: true };

/// The parameters that one end offers.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// The maximum numbers of inbound and of outbound reads in flight.
    pub(crate) ird: u16,
    pub(crate) ord: u16,
    /// Whether this end requests a CRC. Both ends use a CRC if either of them requests it.
    pub(crate) has_crc: bool,
    pub(crate) private: Vec<u8>,
}

/// The parameters on which both ends have agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) ird: u16,
    pub(crate) ord: u16,
    pub(crate) has_crc: bool,
    /// The RTR frame that the initiator sends first.
    pub(crate) rtr: Option<Rtr>,
    /// The private data of the peer.
    pub(crate) private: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rtr {
    Write,
    Read,
}

/// The reason why no connection was established.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Malformed(Malformed),
    /// The peer requires markers.
    Markers,
    /// The peer uses a later revision than 2.
    Revision(u8),
    /// The peer may support only revision 1. The caller must repeat the set-up with [`Initiator::of_revision_1`].
    NeedsRevision1,
    /// The program of the peer has rejected the connection.
    Rejected {
        private: Vec<u8>,
    },
    /// The peer has ended the TCP connection.
    Closed,
    /// The peer has sent data before it was allowed to do so.
    EarlyData,
    /// The read limits or the RTR frames of the two ends do not match. The initiator sends this code in a Terminate
    /// message.
    Mismatch(Code),
    /// The private data of this end is too long.
    PrivateData,
}

/// The end that requests the connection.
#[derive(Debug)]
pub(crate) struct Initiator {
    offer: Offer,
    revision: u8,
    received: Vec<u8>,
}

/// The end that waits for the request.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    received: Vec<u8>,
}

/// A request that the program has neither accepted nor rejected yet.
#[derive(Debug)]
pub(crate) struct Request(Frame);

impl Initiator {
    /// Creates an initiator that begins with the highest revision of the protocol.
    pub(crate) fn new(offer: Offer) -> Self {
        Self { offer, revision: REVISION, received: Vec::new() }
    }

    pub(crate) fn of_revision_1(offer: Offer) -> Self {
        Self { offer, revision: 1, received: Vec::new() }
    }

    /// Appends the request to `out`.
    pub(crate) fn start(&self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let Offer { ird, ord, has_crc, ref private } = self.offer;
        let enhanced = Enhanced { ird, ord, is_peer_to_peer: true, rtr: RTR };
        let frame = Frame {
            is_reply: false,
            revision: self.revision,
            has_markers: false,
            has_crc,
            is_reject: false,
            enhanced: (self.revision >= 2).then_some(enhanced),
            private: private.clone(),
        };
        if frame.emit(out) { Ok(()) } else { Err(Failure::PrivateData) }
    }

    /// Handles bytes that have arrived. Returns `None` until the reply is complete.
    pub(crate) fn received(&mut self, bytes: &[u8]) -> Result<Option<Agreed>, Failure> {
        self.received.extend(bytes);
        let Some((reply, length)) = Frame::parse(&self.received, true).map_err(Failure::Malformed)? else {
            return Ok(None);
        };
        if reply.revision > self.revision {
            return Err(Failure::Revision(reply.revision));
        }
        if self.revision >= 2 && reply.enhanced.is_none() {
            return Err(Failure::NeedsRevision1);
        }
        if reply.is_reject {
            return Err(Failure::Rejected { private: reply.private });
        }
        if reply.has_markers {
            return Err(Failure::Markers);
        }
        if self.received.len() > length {
            return Err(Failure::EarlyData);
        }
        let (ird, ord, rtr) = match reply.enhanced {
            Some(enhanced) => self.agree(enhanced)?,
            None => (self.offer.ird, self.offer.ord, None),
        };
        let has_crc = self.offer.has_crc || reply.has_crc;
        Ok(Some(Agreed { ird, ord, has_crc, rtr, private: reply.private }))
    }

    /// Applies the read limits and the RTR kinds of a reply.
    fn agree(&self, reply: Enhanced) -> Result<(u16, u16, Option<Rtr>), Failure> {
        let Offer { ird, ord, .. } = self.offer;
        if reply.ord != ANY_DEPTH && reply.ord > ird {
            return Err(Failure::Mismatch(Code::IRD));
        }
        let rtr = match reply {
            Enhanced { is_peer_to_peer: false, .. } => None,
            Enhanced { rtr: RtrKinds { write: true, .. }, .. } => Some(Rtr::Write),
            Enhanced { rtr: RtrKinds { read: true, .. }, .. } => Some(Rtr::Read),
            _ => return Err(Failure::Mismatch(Code::RTR)),
        };
        // If the peer leaves the limit open, `ANY_DEPTH` exceeds the limit of this side and has no effect.
        Ok((ird, ord.min(reply.ird), rtr))
    }

    /// Returns the failure if the peer has ended the TCP connection before it sent a reply.
    pub(crate) fn closed(&self) -> Failure {
        if self.revision >= 2 && self.received.is_empty() { Failure::NeedsRevision1 } else { Failure::Closed }
    }
}

impl Responder {
    /// Handles bytes that have arrived. Returns `None` until the request is complete.
    pub(crate) fn received(&mut self, bytes: &[u8]) -> Result<Option<Request>, Failure> {
        self.received.extend(bytes);
        match Frame::parse(&self.received, false).map_err(Failure::Malformed)? {
            Some((_, length)) if self.received.len() > length => Err(Failure::EarlyData),
            Some((request, _)) if request.revision == 0 || request.revision > REVISION => {
                Err(Failure::Revision(request.revision))
            }
            Some((request, _)) => Ok(Some(Request(request))),
            None => Ok(None),
        }
    }
}

impl Request {
    /// Returns the numbers of inbound and of outbound reads that the peer offers. Only revision 2 contains them.
    pub(crate) fn depths(&self) -> Option<(u16, u16)> {
        self.0.enhanced.map(|enhanced| (enhanced.ird, enhanced.ord))
    }

    /// Returns the private data of the peer.
    pub(crate) fn private(&self) -> &[u8] {
        &self.0.private
    }

    /// Accepts the connection by appending the reply to `out`. The responder must send nothing more until it has
    /// received a frame.
    pub(crate) fn accept(self, offer: &Offer, out: &mut Vec<u8>) -> Result<Agreed, Failure> {
        if self.0.has_markers {
            self.reject(&[], out)?;
            return Err(Failure::Markers);
        }
        let has_crc = offer.has_crc || self.0.has_crc;
        let (mut ird, mut ord, mut rtr) = (offer.ird, offer.ord, None);
        let mut enhanced = None;
        if let Some(request) = self.0.enhanced {
            ird = ird.min(request.ord);
            ord = ord.min(request.ird);
            rtr = match request {
                Enhanced { is_peer_to_peer: false, .. } => None,
                Enhanced { rtr: RtrKinds { write: true, .. }, .. } => Some(Rtr::Write),
                Enhanced { rtr: RtrKinds { read: true, .. }, .. } => Some(Rtr::Read),
                _ => {
                    self.reject(&[], out)?;
                    return Err(Failure::Mismatch(Code::RTR));
                }
            };
            let kinds = RtrKinds { fpdu: false, write: rtr == Some(Rtr::Write), read: rtr == Some(Rtr::Read) };
            enhanced = Some(Enhanced { ird, ord, is_peer_to_peer: rtr.is_some(), rtr: kinds });
        }
        self.reply(false, has_crc, enhanced, &offer.private, out)?;
        Ok(Agreed { ird, ord, has_crc, rtr, private: self.0.private })
    }

    /// Rejects the connection by appending the reply to `out`.
    pub(crate) fn reject(&self, private: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        self.reply(true, self.0.has_crc, self.0.enhanced.map(|_| Enhanced::default()), private, out)
    }

    fn reply(
        &self,
        is_reject: bool,
        has_crc: bool,
        enhanced: Option<Enhanced>,
        private: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let revision = self.0.revision;
        let private = private.to_vec();
        let frame = Frame { is_reply: true, revision, has_markers: false, has_crc, is_reject, enhanced, private };
        if frame.emit(out) { Ok(()) } else { Err(Failure::PrivateData) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(ird: u16, ord: u16) -> Offer {
        Offer { ird, ord, has_crc: true, private: b"mine".to_vec() }
    }

    fn request(initiator: &Initiator) -> Request {
        let mut bytes = Vec::new();
        initiator.start(&mut bytes).unwrap();
        Responder::default().received(&bytes).unwrap().unwrap()
    }

    /// Returns the bytes of a request or a reply after `change` has changed it.
    fn frame(is_reply: bool, change: impl FnOnce(&mut Frame)) -> Vec<u8> {
        let rtr = RtrKinds { fpdu: false, write: false, read: true };
        let enhanced = Some(Enhanced { ird: 4, ord: 4, is_peer_to_peer: true, rtr });
        let mut frame = Frame {
            is_reply,
            revision: 2,
            has_markers: false,
            has_crc: false,
            is_reject: false,
            enhanced,
            private: Vec::new(),
        };
        change(&mut frame);
        let mut bytes = Vec::new();
        assert!(frame.emit(&mut bytes));
        bytes
    }

    fn reply(change: impl FnOnce(&mut Frame)) -> Result<Option<Agreed>, Failure> {
        Initiator::new(offer(8, 8)).received(&frame(true, change))
    }

    fn asked(change: impl FnOnce(&mut Frame)) -> Result<Option<Request>, Failure> {
        Responder::default().received(&frame(false, change))
    }

    #[test]
    fn read_limits_are_those_that_both_ends_support() {
        let mut initiator = Initiator::new(offer(16, 100));
        let mut bytes = Vec::new();
        let request = request(&initiator);
        assert_eq!(request.private(), b"mine");
        let here = request.accept(&Offer { private: b"yours".to_vec(), ..offer(32, 64) }, &mut bytes).unwrap();
        let there = initiator.received(&bytes).unwrap().unwrap();
        assert_eq!((here.ird, here.ord, here.rtr), (32, 16, Some(Rtr::Write)));
        assert_eq!((there.ird, there.ord, there.rtr), (16, 32, Some(Rtr::Write)));
        assert_eq!((&there.private[..], there.has_crc, here.has_crc), (&b"yours"[..], true, true));
    }

    #[test]
    fn set_up_with_revision_1_has_no_rtr() {
        let mut initiator = Initiator::of_revision_1(offer(16, 100));
        let mut bytes = Vec::new();
        let here = request(&initiator).accept(&offer(32, 64), &mut bytes).unwrap();
        assert_eq!((here.ird, here.ord, here.rtr), (32, 64, None));
        let there = initiator.received(&bytes).unwrap().unwrap();
        assert_eq!((there.ird, there.ord, there.rtr), (16, 100, None));
    }

    #[test]
    fn peer_without_revision_2_leads_to_revision_1() {
        assert_eq!(reply(|frame| (frame.revision, frame.enhanced) = (1, None)), Err(Failure::NeedsRevision1));
        assert_eq!(Initiator::new(offer(1, 1)).closed(), Failure::NeedsRevision1);
        assert_eq!(Initiator::of_revision_1(offer(1, 1)).closed(), Failure::Closed);
    }

    #[test]
    fn reply_decides_the_rtr_and_the_reads() {
        let agreed = reply(|_| ()).unwrap().unwrap();
        assert_eq!((agreed.rtr, agreed.ord, agreed.has_crc), (Some(Rtr::Read), 4, true));
        let with = |change: fn(&mut Enhanced)| reply(move |frame| change(frame.enhanced.as_mut().unwrap()));
        assert_eq!(with(|reply| reply.is_peer_to_peer = false).unwrap().unwrap().rtr, None);
        assert_eq!(with(|reply| reply.rtr.read = false), Err(Failure::Mismatch(Code::RTR)));
        assert_eq!(with(|reply| reply.ord = 9), Err(Failure::Mismatch(Code::IRD)));
        let any = with(|reply| (reply.ird, reply.ord) = (ANY_DEPTH, ANY_DEPTH)).unwrap().unwrap();
        assert_eq!((any.ird, any.ord), (8, 8));
    }

    #[test]
    fn unusable_replies_fail() {
        assert_eq!(reply(|frame| frame.has_markers = true), Err(Failure::Markers));
        assert_eq!(reply(|frame| frame.revision = 3), Err(Failure::Revision(3)));
        let rejected = reply(|frame| (frame.is_reject, frame.private) = (true, b"no".to_vec()));
        assert_eq!(rejected, Err(Failure::Rejected { private: b"no".to_vec() }));
        let mut early = frame(true, |_| ());
        early.push(0);
        assert_eq!(Initiator::new(offer(8, 8)).received(&early), Err(Failure::EarlyData));
        let malformed = Initiator::new(offer(8, 8)).received(b"HTTP/1.1");
        assert_eq!(malformed, Err(Failure::Malformed(Malformed::Key)));
    }

    #[test]
    fn unusable_requests_fail_or_are_rejected() {
        for revision in [0, 3] {
            assert_eq!(asked(|frame| frame.revision = revision).unwrap_err(), Failure::Revision(revision));
        }
        let rejects = |change: fn(&mut Frame)| {
            let mut bytes = Vec::new();
            let failure = asked(change).unwrap().unwrap().accept(&offer(1, 1), &mut bytes).unwrap_err();
            let (reply, _) = Frame::parse(&bytes, true).unwrap().unwrap();
            assert!(reply.is_reject);
            failure
        };
        assert_eq!(rejects(|frame| frame.has_markers = true), Failure::Markers);
        let no_rtr: fn(&mut Frame) = |frame| frame.enhanced.as_mut().unwrap().rtr = RtrKinds::default();
        assert_eq!(rejects(no_rtr), Failure::Mismatch(Code::RTR));
        let mut early = frame(false, |_| ());
        early.push(0);
        assert_eq!(Responder::default().received(&early).unwrap_err(), Failure::EarlyData);
    }

    #[test]
    fn too_long_private_data_is_an_error_of_this_end() {
        let long = Offer { private: vec![0; MAX_PRIVATE_DATA + 1], ..offer(1, 1) };
        assert_eq!(Initiator::new(long.clone()).start(&mut Vec::new()), Err(Failure::PrivateData));
        let asked = request(&Initiator::new(offer(1, 1)));
        assert_eq!(asked.accept(&long, &mut Vec::new()), Err(Failure::PrivateData));
    }
}
