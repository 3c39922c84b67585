//! Long messages that are READ into a region of the program.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::memory::{Buf, Ending, Progress, RegionMemory, Transfer};
use crate::proto::{Remote, Request, Stock};

use super::read::Front;
use super::{Inbox, Protocol, Read, Received, Whole};

/// A message that was received for a region.
#[derive(Debug)]
pub(crate) enum Placed {
    /// This number of bytes was READ into the region.
    Region(usize),
    /// The message had arrived already.
    Buffer(Buf),
    /// No message has arrived yet, or its READ is not complete.
    Empty,
    End,
}

/// The first message of the inbox while it is READ into a region. The peer keeps it until the program has received it,
/// so it can be READ again to another place.
#[derive(Debug)]
pub(super) struct Placing {
    pub(super) from: Remote,
    pub(super) length: u32,
    region: Arc<RegionMemory>,
    offset: usize,
    progress: Arc<Progress>,
}

impl Placing {
    pub(super) fn has_ended(&self) -> bool {
        self.progress.ended().is_some()
    }

    fn is_to(&self, region: &Arc<RegionMemory>, offset: usize) -> bool {
        Arc::ptr_eq(&self.region, region) && self.offset == offset
    }
}

impl Protocol {
    /// Receives the next message. If it waits in the peer's memory, it is READ into the region, otherwise it is returned in
    /// a buffer. Until the next ordinary receive, this side does not READ ahead and announces no buffers.
    pub(crate) fn try_place(
        &mut self,
        region: &Arc<RegionMemory>,
        range: Range<usize>,
        stock: &mut Stock,
    ) -> io::Result<Placed> {
        if matches!(self.inbox().front(stock), Front::Rendezvous) && !self.inbox().is_read() {
            let placed = self.whole().place(region, range, stock)?;
            return if matches!(placed, Placed::Empty) { self.still_open().map(|()| placed) } else { Ok(placed) };
        }
        let received = self.try_recv(stock);
        self.whole().incoming.inbox.places = true;
        Ok(match received? {
            Received::Message(message) => Placed::Buffer(message),
            Received::Empty => Placed::Empty,
            Received::End => Placed::End,
        })
    }
}

impl Whole {
    /// Starts the READ of the first message, or completes it.
    fn place(&mut self, region: &Arc<RegionMemory>, range: Range<usize>, stock: &mut Stock) -> io::Result<Placed> {
        let incoming = &mut self.incoming;
        incoming.inbox.places = true;
        if incoming.placing.is_none() {
            incoming.inbox.wait_again(|placing| !placing.is_to(region, range.start));
        }
        match incoming.inbox.reads.front_mut() {
            Some(Read::Placing(placing)) => match placing.progress.ended() {
                Some(Ending::Done) if placing.is_to(region, range.start) => {
                    let length = placing.length as usize;
                    incoming.done = incoming.done.wrapping_add(1);
                    self.rendezvous_received += 1;
                    incoming.inbox.pass_read(stock);
                    Ok(Placed::Region(length))
                }
                _ => Ok(Placed::Empty),
            },
            Some(read @ &mut Read::Waiting { .. }) => {
                let &mut Read::Waiting { from, length } = read else { return Ok(Placed::Empty) };
                if length as usize > range.len() {
                    let text = format!(
                        "the next message has {length} bytes, and the range {}; receive it with a range of that length",
                        range.len()
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
                }
                let progress = Arc::<Progress>::default();
                let (region, offset) = (Arc::clone(region), range.start);
                let place = (&region, offset);
                let transfers = Transfer::cut(false, place, length as usize, (from.address, from.key), &progress);
                self.requests.extend(transfers.map(|transfer| Request::Transfer(Box::new(transfer))));
                incoming.in_flight += 1;
                incoming.placing = Some(Arc::clone(&progress));
                *read = Read::Placing(Box::new(Placing { from, length, region, offset, progress }));
                Ok(Placed::Empty)
            }
            _ => Ok(Placed::Empty),
        }
    }

    /// Whether a READ into a region is in progress.
    pub(crate) fn is_placing(&self) -> bool {
        self.incoming.placing.is_some()
    }

    /// Records that transfers have ended, of which one may be the READ into a region.
    pub(crate) fn moved(&mut self) {
        if self.incoming.placing.take_if(|progress| progress.ended().is_some()).is_some() {
            self.incoming.in_flight -= 1;
            self.alive.heard = true;
            // An ordinary receive has followed, which waits for the message in a buffer.
            if !self.incoming.inbox.places {
                self.incoming.inbox.wait_again(|_| true);
            }
        }
    }
}

impl Inbox {
    /// Lets the first message wait again if it was READ into a region that `is_other` than the place where it is needed.
    pub(super) fn wait_again(&mut self, is_other: impl FnOnce(&Placing) -> bool) {
        if let Some(read) = self.reads.front_mut()
            && let Read::Placing(placing) = read
            && placing.has_ended()
            && is_other(placing)
        {
            *read = Read::Waiting { from: placing.from, length: placing.length };
        }
    }

    /// Whether the next call of [`Protocol::try_place`] has something to do for a message in the peer's memory.
    pub(super) fn is_placeable(&self) -> bool {
        self.places
            && match self.reads.front() {
                Some(Read::Waiting { .. }) => true,
                Some(Read::Placing(placing)) => placing.has_ended(),
                _ => false,
            }
    }
}
