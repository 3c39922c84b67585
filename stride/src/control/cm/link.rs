//! The queue pair of a connection, its completion queue, and the memory of its messages.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use anyhow::Result;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    BasicCompletionQueue, CompletionChannel, CompletionQueue, CompletionRecord, PollCompletions, WorkCompletionStatus,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::Identifier;

use super::hail::Hail;

/// Bytes of a message, with its header.
pub(super) const SIZE: u32 = 512;
/// Receives that are posted, and sends that can be on their way, where the device and the limit of locked memory have room for so many. Here
/// messages run out, and not bytes: while a step runs each side says some five times a second that it is at work, and `--interval 100ms`
/// adds ten, so that a side that does not read holds up the other after more than a minute. With TCP, whose buffers hold megabytes, that
/// takes longer.
const PLACES: u16 = 1024;
/// So many are tried last.
const LEAST: u16 = 64;
/// Set in the numbers of sends; below stands the place of the message.
const SEND: u64 = 1 << 32;

/// What an event is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wanted {
    /// Bytes that have come, or a failure.
    Bytes,
    /// Whatever completes.
    Any,
}

/// What has completed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    /// The message of this place has arrived.
    Sent(u16),
    /// So many bytes have come to this place.
    Came(u16, u32),
    /// The queue pair does nothing any more.
    Failed(WorkCompletionStatus),
}

/// A queue pair that was made through an identifier, with what its requests need.
#[derive(Debug)]
pub(super) struct Link {
    // Dropped before the memory that its requests name.
    qp: BasicQueuePair,
    cq: BasicCompletionQueue,
    channel: Arc<CompletionChannel>,
    outgoing: OwnedMemoryRegion,
    incoming: OwnedMemoryRegion,
    /// An event was asked for, and has not come.
    asked: Option<Wanted>,
    records: Vec<CompletionRecord>,
    places: u16,
}

impl Link {
    /// Makes everything, and posts the receives: the other side may send as soon as it knows of the connection.
    pub(super) fn new(id: &Arc<Identifier>, device: &Arc<DeviceContext>) -> Result<Self> {
        let mut places = device.query_device().map_or(LEAST, |most| places(most.max_qp_wr(), most.max_cqe()));
        loop {
            match Self::of(id, device, places) {
                // Not all that a device has is there for one queue pair, nor may all memory be locked.
                Err(error) if places > LEAST => {
                    log::debug!("{places} messages at a time are too many: {error:#}");
                    places = (places / 4).max(LEAST);
                }
                made => return made,
            }
        }
    }

    fn of(id: &Arc<Identifier>, device: &Arc<DeviceContext>, places: u16) -> Result<Self> {
        let pd = device.alloc_pd()?;
        let bytes = usize::from(places) * SIZE as usize;
        let outgoing = pd.reg_owned_mr(bytes, AccessFlags::LocalWrite)?;
        let incoming = pd.reg_owned_mr(bytes, AccessFlags::LocalWrite)?;
        let channel = device.create_comp_channel()?;
        let mut builder = device.create_cq_builder();
        let cq = builder.setup_cqe(2 * u32::from(places)).setup_comp_channel(&channel, 0).build()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(places.into()).setup_max_recv_wr(places.into());
        builder.setup_send_cq(&cq).setup_recv_cq(&cq);
        let qp = id.create_qp(&builder)?;
        let mut link = Self { qp, cq, channel, outgoing, incoming, asked: None, records: Vec::new(), places };
        for place in 0..places {
            link.receive(place)?;
        }
        Ok(link)
    }

    /// How many receives are posted, and how many sends can be on their way.
    pub(super) fn places(&self) -> u16 {
        self.places
    }

    /// What this side says of itself as it connects.
    pub(super) fn hail(&self) -> Hail {
        Hail { size: SIZE, receives: self.places }
    }

    /// Posts the receive of a place: of one that none is posted of, whose last one has completed and was read.
    pub(super) fn receive(&mut self, place: u16) -> io::Result<()> {
        let (lkey, address) = (self.incoming.lkey(), self.incoming.addr() + offset(place) as u64);
        let mut batch = self.qp.start_post_recv();
        // SAFETY: the memory is registered and as long, and dropped behind the queue pair. It is copied from once the receive has
        // completed, and nobody refers to it.
        unsafe { batch.construct_wr(place.into()).setup_sge(lkey, address, SIZE) };
        batch.post().map_err(io::Error::other)
    }

    /// Sends these parts, which fit into a place together, from one that no send is of any more: [`Done::Sent`] has come of the last one there.
    pub(super) fn send(&mut self, place: u16, parts: [&[u8]; 2]) -> io::Result<()> {
        let mut length = 0;
        for part in parts {
            self.outgoing.write_at(offset(place) + length, part).map_err(io::Error::other)?;
            length += part.len();
        }
        let length = u32::try_from(length).ok().filter(|length| *length <= SIZE);
        let length = length.ok_or_else(|| io::Error::other("a message is longer than its place"))?;
        let (lkey, address) = (self.outgoing.lkey(), self.outgoing.addr() + offset(place) as u64);
        let mut batch = self.qp.start_post_send();
        // Bytes are what the other side may sleep for.
        let solicited = if parts[1].is_empty() { WorkRequestFlags::empty() } else { WorkRequestFlags::Solicited };
        let request = batch.construct_wr(SEND | u64::from(place), WorkRequestFlags::Signaled | solicited).setup_send();
        // SAFETY: the memory is registered, dropped behind the queue pair, and as long: the message was copied there. It is written
        // again when the send has completed.
        unsafe { request.setup_sge(lkey, address, length) };
        batch.post().map_err(io::Error::other)
    }

    /// Copies the first bytes of what has come to a place.
    pub(super) fn read(&self, place: u16, into: &mut [u8]) -> io::Result<()> {
        self.incoming.read_at(offset(place), into).map_err(io::Error::other)
    }

    /// Gives all that has completed.
    pub(super) fn poll(&mut self, mut each: impl FnMut(Done)) -> io::Result<()> {
        loop {
            self.records.clear();
            self.cq.poll_records(&mut self.records).map_err(io::Error::other)?;
            if self.records.is_empty() {
                return Ok(());
            }
            for record in &self.records {
                let place = record.wr_id as u16;
                each(match record.status {
                    WorkCompletionStatus::Success if record.wr_id & SEND != 0 => Done::Sent(place),
                    WorkCompletionStatus::Success => Done::Came(place, record.byte_len),
                    status => Done::Failed(status),
                });
            }
        }
    }

    /// Asks for an event, unless it will come already; whether it was asked for now. What has completed before is found by polling once
    /// more.
    pub(super) fn ask(&mut self, wanted: Wanted) -> io::Result<bool> {
        if self.asked.is_none_or(|asked| asked < wanted) {
            self.cq.req_notify(wanted == Wanted::Bytes).map_err(io::Error::other)?;
            self.asked = Some(wanted);
            return Ok(true);
        }
        Ok(false)
    }

    /// Takes the events that have come.
    pub(super) fn hear(&mut self) -> io::Result<()> {
        while self.channel.try_get_cq_event().map_err(io::Error::other)?.is_some() {
            self.asked = None;
        }
        Ok(())
    }

    /// Becomes readable with an event.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// How many fit into a device that has so many requests in a queue, and completions.
fn places(requests: u32, completions: u32) -> u16 {
    u16::try_from(requests.min(completions / 2)).map_or(PLACES, |most| most.min(PLACES))
}

fn offset(place: u16) -> usize {
    usize::from(place) * SIZE as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_places_as_the_device_has_room_for() {
        for (requests, completions, fit) in [
            (1 << 15, 1 << 22, PLACES),
            (u32::MAX, u32::MAX, PLACES),
            (511, 1 << 22, 511),
            (1 << 15, 301, 150),
            (0, 0, 0),
        ] {
            assert_eq!(places(requests, completions), fit);
        }
    }
}
