//! Long messages that are READ into a region of the program.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::memory::{Buf, Ending, Progress, RegionMemory, Transfer};
use crate::proto::{Remote, Request, Stock};

use super::read::Front;
use super::{Inbox, Protocol, Read, Received, Whole};

/// Where a message is that [`Connection::recv_into_region`](crate::Connection::recv_into_region) has received.
#[derive(Debug)]
pub enum Placed {
    /// In the region: this number of bytes, from the start of the range on.
    Region(usize),
    /// In a buffer: the message was short, had arrived before, was too long for one READ, or did not come from the
    /// sender's pool.
    Buffer(Buf),
}

/// The range of a region in which a call receives. Bytes that were READ for one call do not serve another one: the
/// program may have changed them between the calls.
#[derive(Debug)]
pub(crate) struct Place {
    region: Arc<RegionMemory>,
    range: Range<usize>,
    /// Identifies the call.
    call: Arc<()>,
}

impl Place {
    /// The caller has checked the range.
    pub(crate) fn new(region: &Arc<RegionMemory>, range: Range<usize>) -> Place {
        Place { region: Arc::clone(region), range, call: Arc::default() }
    }

    pub(crate) fn region(&self) -> &RegionMemory {
        &self.region
    }

    #[cfg(test)]
    pub(crate) fn share(&self) -> Arc<RegionMemory> {
        Arc::clone(&self.region)
    }
}

/// The first message of the inbox while it is READ into a region, and until the call has received it. The peer keeps it
/// until then, so it can be READ again for another call.
#[derive(Debug)]
pub(super) struct Placing {
    from: Remote,
    length: u32,
    call: Arc<()>,
    progress: Arc<Progress>,
}

impl Protocol {
    /// Receives the next message. If it waits in the peer's memory, it is READ into the region, otherwise it is returned in
    /// a buffer. Returns `None` after the last message. Until an ordinary receive finds a long message, this side does not
    /// READ ahead and announces no buffers.
    pub(crate) fn try_place(&mut self, place: &Place, stock: &mut Stock) -> io::Result<Option<Placed>> {
        self.inbox().region_call = Arc::downgrade(&place.call);
        if matches!(self.inbox().front(stock), Front::Rendezvous) && !self.inbox().is_read() {
            return match self.whole().place(place, stock)? {
                Some(length) => Ok(Some(Placed::Region(length))),
                None => self.still_open().and(Err(io::ErrorKind::WouldBlock.into())),
            };
        }
        let received = self.try_recv(stock);
        self.whole().incoming.inbox.places = true;
        match received? {
            Received::Message(message) => Ok(Some(Placed::Buffer(message))),
            Received::Empty => Err(io::ErrorKind::WouldBlock.into()),
            Received::End => Ok(None),
        }
    }

    /// Whether the next message is for a call that receives in a region, and is woken when it can go on.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_for_a_region(&mut self, stock: &mut Stock) -> bool {
        let inbox = self.inbox();
        matches!(inbox.front(stock), Front::Rendezvous)
            && match inbox.reads.front() {
                Some(Read::Waiting { .. }) => inbox.places && inbox.has_region_call(),
                Some(Read::Placing(placing)) => placing.is_for_a_call(),
                _ => false,
            }
    }

    /// Whether the next message is READ for another call that receives in a region.
    pub(crate) fn is_for_another(&mut self, place: &Place, stock: &mut Stock) -> bool {
        let inbox = self.inbox();
        matches!(inbox.front(stock), Front::Rendezvous)
            && matches!(inbox.reads.front(), Some(Read::Placing(placing))
                if placing.is_for_a_call() && !Arc::ptr_eq(&placing.call, &place.call))
    }
}

impl Whole {
    /// Starts the READ of the first message, or completes it and returns the length of the message.
    fn place(&mut self, place: &Place, stock: &mut Stock) -> io::Result<Option<usize>> {
        let inbox = &mut self.incoming.inbox;
        // The message needs no memory of the pool.
        (inbox.places, inbox.lacking) = (true, 0);
        inbox.wait_again(|placing| !placing.is_for_a_call());
        match inbox.reads.front() {
            Some(&Read::Waiting { from, length }) if self.incoming.placing.is_none() => {
                self.still_open()?;
                self.start(from, length, place)?;
                Ok(None)
            }
            Some(Read::Placing(placing)) if placing.has_arrived() && Arc::ptr_eq(&placing.call, &place.call) => {
                let length = placing.length as usize;
                inbox.pass_read(stock);
                self.incoming.done = self.incoming.done.wrapping_add(1);
                self.rendezvous_received += 1;
                Ok(Some(length))
            }
            _ => Ok(None),
        }
    }

    fn start(&mut self, from: Remote, length: u32, Place { region, range, call }: &Place) -> io::Result<()> {
        if length as usize > range.len() {
            let text = format!(
                "the next message has {length} bytes, and the range {}; receive it with a range of that length",
                range.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let progress = Arc::<Progress>::default();
        let (place, remote) = ((region, range.start), (from.address, from.key));
        let transfers = Transfer::cut(false, place, length as usize, remote, &progress);
        let counted = transfers.map(|transfer| transfer.counted(&self.under_way));
        self.requests.extend(counted.map(|transfer| Request::Transfer(Box::new(transfer))));
        self.incoming.in_flight += 1;
        self.incoming.placing = Some(Arc::clone(&progress));
        let placing = Placing { from, length, call: Arc::clone(call), progress };
        if let Some(read) = self.incoming.inbox.reads.front_mut() {
            *read = Read::Placing(Box::new(placing));
        }
        Ok(())
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

impl Placing {
    /// Whether the call still waits.
    fn is_for_a_call(&self) -> bool {
        Arc::strong_count(&self.call) > 1
    }

    fn has_arrived(&self) -> bool {
        self.progress.ended() == Some(Ending::Done)
    }
}

impl Inbox {
    /// Lets the first message wait again if its READ has ended, and was for another call.
    pub(super) fn wait_again(&mut self, is_other: impl FnOnce(&Placing) -> bool) {
        if let Some(read) = self.reads.front_mut()
            && let Read::Placing(placing) = read
            && placing.progress.ended().is_some()
            && is_other(placing)
        {
            *read = Read::Waiting { from: placing.from, length: placing.length };
        }
    }

    /// Whether a call waits to receive in a region.
    pub(super) fn has_region_call(&self) -> bool {
        self.region_call.strong_count() > 0
    }

    /// Whether [`Protocol::try_place`] would start the READ of a message, or return one that was READ.
    pub(super) fn is_placeable(&self) -> bool {
        self.places
            && match self.reads.front() {
                Some(Read::Waiting { .. }) => true,
                Some(Read::Placing(placing)) => placing.has_arrived(),
                _ => false,
            }
    }
}
