//! Packets of one datagram that are parts of one message, and are delivered together.

use arrayvec::ArrayVec;

use super::packet::{Body, Packet};
use crate::wire::bytes::{Segment, with_segments};
use crate::wire::packet::Part;

/// The maximum number of packets of a run. The kernel joins no more.
const MAX_PACKETS: usize = 64;

/// Payloads that follow each other in the data of a message.
#[derive(Debug)]
pub(super) struct Run<'p> {
    target: Option<Target>,
    payloads: ArrayVec<&'p [u8], MAX_PACKETS>,
}

/// What the payloads of a run are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// A part of a message of the peer.
    Part(Part),
    /// Data of the read with this PSN.
    Data { psn: u32, attempt: u32, offset: u64, length: u32 },
}

impl Target {
    /// Whether `next` is the data that follows.
    fn precedes(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Part(first), Self::Part(next)) => {
                first.request.psn == next.request.psn && first.offset + u64::from(first.length) == next.offset
            }
            (
                Self::Data { psn, attempt, offset, length },
                Self::Data { psn: next_psn, attempt: next_attempt, offset: next_offset, .. },
            ) => (psn, attempt, offset + u64::from(*length)) == (next_psn, next_attempt, *next_offset),
            _ => false,
        }
    }
}

impl<'p> Run<'p> {
    pub(super) fn new() -> Self {
        Self { target: None, payloads: ArrayVec::new() }
    }

    /// Whether the run need not be delivered before this packet is handled. A refusal of the run then has the same effect
    /// as one of its first packet. Immediate data of a write can be refused alone, so it continues nothing.
    pub(super) fn may_continue(&self, packet: &Packet) -> bool {
        let is_next = match (&self.target, packet.body) {
            (Some(Target::Part(_)), Body::Send { place, .. } | Body::Write { place, immediate: None, .. })
            | (Some(Target::Data { .. }), Body::ReadResponse { place, .. }) => !place.is_first(),
            _ => false,
        };
        is_next && !self.payloads.is_full()
    }

    /// Adds a payload. Returns `false` if it does not follow those before it: the caller delivers these, and adds it again.
    pub(super) fn add(&mut self, next: Target, payload: &'p [u8]) -> bool {
        let target = match (self.target, next) {
            (None, next) => next,
            (Some(target), _) if !target.precedes(&next) => return false,
            // The last packet determines the operation and the length of a message.
            (Some(Target::Part(first)), Target::Part(next)) => {
                Target::Part(Part { offset: first.offset, length: first.length + next.length, ..next })
            }
            (Some(Target::Data { offset, length, .. }), Target::Data { psn, attempt, length: more, .. }) => {
                Target::Data { psn, attempt, offset, length: length + more }
            }
            _ => return false,
        };
        if !payload.is_empty() && self.payloads.try_push(payload).is_err() {
            return false;
        }
        self.target = Some(target);
        true
    }

    /// Passes the target and its payloads to `call`, and empties the run. Returns `None` if it is empty.
    pub(super) fn deliver<T>(&mut self, call: impl FnOnce(Target, &[Segment]) -> T) -> Option<T> {
        let target = self.target.take()?;
        let result = with_segments(&self.payloads, |segments| call(target, segments));
        self.payloads.clear();
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::roce::line::Line;
    use crate::net::roce::packet::{Place, Range, SendEnd};
    use crate::net::roce::responses::tests::template;
    use crate::wire::operation::{Operation, Service};

    fn part(psn: u32, offset: u64, length: u32) -> Target {
        let mut request = template(5);
        (request.psn, request.operation, request.length) = (psn, Operation::Send, offset + u64::from(length));
        Target::Part(Part { number: 0, request, offset, length, attempt: 0 })
    }

    fn data(offset: u64, length: u32) -> Target {
        Target::Data { psn: 7, attempt: 0, offset, length }
    }

    /// Returns the target and the length of each payload.
    fn delivered(run: &mut Run<'_>) -> (Target, Vec<usize>) {
        run.deliver(|target, segments| (target, segments.iter().map(Segment::len).collect())).unwrap()
    }

    #[test]
    fn parts_of_a_message_are_delivered_as_one() {
        let mut run = Run::new();
        assert!(run.add(part(7, 1024, 1024), &[1; 1024]) && run.add(part(7, 2048, 9), &[2; 9]));
        let (Target::Part(joined), lengths) = delivered(&mut run) else { panic!("not a part") };
        assert_eq!((joined.offset, joined.length, joined.request.length), (1024, 1033, 2057));
        assert!(joined.is_last());
        assert_eq!(lengths, [1024, 9]);
        assert!(run.deliver(|_, _| ()).is_none());
    }

    #[test]
    fn what_does_not_follow_is_not_added() {
        let mut run = Run::new();
        assert!(run.add(data(1024, 1024), &[0; 1024]));
        for other in [data(1024, 1024), data(3072, 1024), part(7, 2048, 1024)] {
            assert!(!run.add(other, &[0; 1024]), "{other:?}");
        }
        assert!(run.add(data(2048, 1024), &[0; 1024]));
        let (Target::Data { offset: 1024, length: 2048, .. }, lengths) = delivered(&mut run) else { panic!("changed") };
        assert_eq!(lengths, [1024, 1024]);
        assert!(run.add(part(7, 0, 1024), &[0; 1024]));
        for other in [part(8, 1024, 1024), part(7, 2048, 1024)] {
            assert!(!run.add(other, &[0; 1024]), "{other:?}");
        }
    }

    #[test]
    fn full_run_is_delivered_first() {
        let mut run = Run::new();
        let added = (0..100).take_while(|index| run.add(data(index * 4, 4), &[0; 4])).count();
        assert_eq!(added, MAX_PACKETS);
        let body = Body::ReadResponse { place: Place::Middle, acknowledgement: None };
        let line = Line { mtu: 4096, service: Service::ReliableConnection, destination: 5 };
        assert!(!run.may_continue(&line.packet(body, 0, 0)));
        assert_eq!(delivered(&mut run).1.len(), MAX_PACKETS);
    }

    #[test]
    fn only_packets_without_a_refusal_of_their_own_continue() {
        let mut run = Run::new();
        let line = Line { mtu: 1024, service: Service::ReliableConnection, destination: 5 };
        let range = Some(Range { address: 0, rkey: 0, length: 4096 });
        let send = |place| Body::Send { place, end: SendEnd::Nothing };
        let write = |place, immediate| Body::Write { place, range: range.filter(|_| place == Place::First), immediate };
        let response = Body::ReadResponse { place: Place::Middle, acknowledgement: None };
        let bodies = [
            send(Place::First),
            send(Place::Middle),
            send(Place::Last),
            write(Place::First, None),
            write(Place::Middle, None),
            write(Place::Last, None),
            write(Place::Last, Some(1)),
            response,
            Body::AtomicWrite(Range { address: 0, rkey: 0, length: 8 }),
        ];
        let continuing = |run: &Run<'_>| {
            let may = |index: &usize| run.may_continue(&line.packet(bodies[*index], 0, 0));
            (0..bodies.len()).filter(may).collect::<Vec<_>>()
        };
        assert_eq!(continuing(&run), []);
        run.add(part(7, 0, 1024), &[0; 1024]);
        assert_eq!(continuing(&run), [1, 2, 4, 5]);
        delivered(&mut run);
        run.add(data(0, 1024), &[0; 1024]);
        assert_eq!(continuing(&run), [7]);
    }
}
