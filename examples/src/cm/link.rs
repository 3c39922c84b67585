//! What a connection is used through: its queue pair, the completion queue of it, and the memory of its messages.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::completion::{
    BasicCompletionQueue, CompletionChannel, CompletionQueue, CompletionRecord, PollCompletions, WorkCompletionStatus,
};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::communication_manager::Identifier;

use super::{Places, SharedReceives};

/// Set in the numbers of sends; below stands the place of the message.
const SEND: u64 = 1 << 32;

/// What a link is to be made like.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Bytes of a message.
    pub size: u32,
    /// Sends at a time, and receives that are posted; perhaps none.
    pub messages: u32,
    /// Where completions are told of, with the number of the link there.
    pub told: Option<(&'a Arc<CompletionChannel>, usize)>,
    /// Whose receives are taken instead of the link's own.
    pub shared: Option<&'a Arc<SharedReceives>>,
}

/// A queue pair that was made through an identifier, with what its requests need.
#[derive(Debug)]
pub struct Link {
    // Dropped before the memory that its requests name.
    qp: BasicQueuePair,
    cq: BasicCompletionQueue,
    outgoing: Places,
    incoming: Incoming,
    /// Sends that were posted, and of those the ones that have completed.
    posted: u32,
    completed: u32,
    records: Vec<CompletionRecord>,
}

#[derive(Debug)]
enum Incoming {
    Own(Places),
    Shared(Arc<SharedReceives>),
}

/// What has completed.
#[derive(Debug, Default)]
pub struct Completed {
    /// Sends.
    pub sent: u32,
    /// Where the messages are that came, with their lengths.
    pub received: Vec<(u32, u32)>,
}

impl Link {
    /// Makes everything, and posts the receives: the peer may send as soon as it knows of the connection.
    ///
    /// # Errors
    ///
    /// The identifier is on no device, or the device has no room for the link.
    pub fn new(id: &Arc<Identifier>, pd: &Arc<ProtectionDomain>, shape: &Shape<'_>) -> Result<Self> {
        let Shape { size, messages, told, shared } = *shape;
        let mut builder = pd.device_context().create_cq_builder();
        // C has no queue without room.
        let room = messages.max(1);
        builder.setup_cqe(room.checked_mul(2).context("there is no room for so many messages")?);
        if let Some((channel, number)) = told {
            builder.setup_comp_channel(channel, 0).setup_cq_context(number);
        }
        let cq = builder.build()?;
        if told.is_some() {
            cq.req_notify(false)?;
        }
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(room).setup_send_cq(&cq).setup_recv_cq(&cq);
        let incoming = match shared {
            Some(shared) => {
                builder.setup_srq(shared.queue());
                Incoming::Shared(Arc::clone(shared))
            }
            None => {
                builder.setup_max_recv_wr(room);
                Incoming::Own(Places::new(pd, size, messages)?)
            }
        };
        let qp = id.create_qp(&builder)?;
        let outgoing = Places::new(pd, size, messages)?;
        let mut link = Self { qp, cq, outgoing, incoming, posted: 0, completed: 0, records: Vec::new() };
        link.post_receives()?;
        Ok(link)
    }

    fn post_receives(&mut self) -> Result<()> {
        let Incoming::Own(places) = &self.incoming else { return Ok(()) };
        let mut batch = self.qp.start_post_recv();
        for place in 0..places.count() {
            let (lkey, addr, length) = places.entry(place);
            // SAFETY: the memory is registered and as long, and dropped behind the queue pair. It is copied from once the receive
            // has completed, and nobody refers to it.
            unsafe { batch.construct_wr(place.into()).setup_sge(lkey, addr, length) };
        }
        Ok(batch.post()?)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// As many are on their way as the link was made for, or the connection has ended.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        if self.posted - self.completed >= self.outgoing.count() {
            bail!("{} messages are on their way: there is no room for one more", self.outgoing.count());
        }
        let place = self.posted % self.outgoing.count();
        self.outgoing.write(place, message)?;
        let (lkey, addr, _) = self.outgoing.entry(place);
        let length = u32::try_from(message.len())?;
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(SEND | u64::from(place), WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is registered, dropped behind the queue pair, and as long: the message was copied there. It is written
        // again after as many messages as there are places, when the send has completed: they complete in order.
        unsafe { request.setup_sge(lkey, addr, length) };
        batch.post()?;
        self.posted += 1;
        Ok(())
    }

    /// What has completed since the last time.
    ///
    /// # Errors
    ///
    /// A request failed, or the queue is broken.
    pub fn poll(&mut self) -> Result<Completed> {
        let mut completed = Completed::default();
        self.records.clear();
        self.cq.poll_records(&mut self.records)?;
        for record in &self.records {
            let is_send = record.wr_id & SEND != 0;
            if record.status != WorkCompletionStatus::Success {
                bail!("{} failed: {}", if is_send { "sending" } else { "receiving" }, record.status);
            }
            if is_send {
                completed.sent += 1;
            } else {
                completed.received.push((record.wr_id as u32, record.byte_len));
            }
        }
        self.completed += completed.sent;
        Ok(completed)
    }

    /// Asks for an event when the next request completes. What has completed before is found by polling once more.
    ///
    /// # Errors
    ///
    /// The device does not.
    pub fn req_notify(&self) -> Result<()> {
        Ok(self.cq.req_notify(false)?)
    }

    /// Whether all that was sent has arrived.
    pub fn has_sent(&self) -> bool {
        self.posted == self.completed
    }

    /// A message that came.
    ///
    /// # Errors
    ///
    /// It is none that [`poll`](Self::poll) told of.
    pub fn message(&self, (place, length): (u32, u32)) -> Result<Vec<u8>> {
        let places = match &self.incoming {
            Incoming::Own(places) => places,
            Incoming::Shared(shared) => shared.places(),
        };
        let mut message = places.read(place)?;
        message.truncate(length as usize);
        Ok(message)
    }
}
