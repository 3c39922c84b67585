//! One of the two sides: a queue pair, its completion queue and its memory.

use std::future::Future;
use std::sync::Arc;

use anyhow::{Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    CompletionQueue, GenericCompletionQueue, PollCompletionQueueError, WorkCompletionStatus,
};
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{GenericQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::exchange::Address;
use sideway_examples::watched::CompletionEvents;
use sideway_examples::{LocalPort, Timeout};

use super::arguments::Arguments;

/// The numbers by which the requests come back in their completions.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
/// Receives that wait at a time: one is made anew while the other takes the next message.
const RECEIVES: u32 = 2;

/// One side.
#[derive(Debug)]
pub(crate) struct Side {
    // Dropped before the memory that its requests name.
    qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    events: CompletionEvents,
    outgoing: OwnedMemoryRegion,
    incoming: OwnedMemoryRegion,
    local: Address,
    size: u32,
    iterations: u32,
    timeout: Timeout,
    sent: u32,
    received: u32,
    sleeps: u32,
}

impl Side {
    /// Makes everything, and takes the queue pair to the state in which receives can be posted.
    pub(crate) fn new(port: &LocalPort, pd: &Arc<ProtectionDomain>, arguments: &Arguments) -> Result<Self> {
        let context = pd.device_context();
        let size = arguments.size as usize;
        let outgoing = pd.reg_owned_mr(size, AccessFlags::empty())?;
        let incoming = pd.reg_owned_mr(size, AccessFlags::LocalWrite)?;
        let channel = context.create_comp_channel()?;
        let cq = context.create_cq_builder().setup_cqe(RECEIVES + 1).setup_comp_channel(&channel, 0).build_generic()?;
        let qp = pd
            .create_qp_builder()
            .setup_max_send_wr(1)
            .setup_max_recv_wr(RECEIVES)
            .setup_send_cq(&cq)
            .setup_recv_cq(&cq)
            .build_generic()?;
        qp.modify(port.to_init().setup_access_flags(AccessFlags::empty()))?;
        let mut side = Self {
            local: port.address(qp.qp_number()),
            qp,
            cq,
            events: CompletionEvents::new(channel)?,
            outgoing,
            incoming,
            size: arguments.size,
            iterations: arguments.iters,
            timeout: arguments.timeout,
            sent: 0,
            received: 0,
            sleeps: 0,
        };
        for _ in 0..RECEIVES {
            side.post_receive()?;
        }
        Ok(side)
    }

    /// Sends all messages and receives as many; the client begins.
    pub(crate) async fn play(&mut self, is_client: bool) -> Result<()> {
        for round in 1..=self.iterations {
            if is_client {
                self.send(round).await?;
            }
            while self.received < round {
                self.complete().await?;
            }
            if !is_client {
                self.send(round).await?;
            }
        }
        Ok(())
    }

    /// How often it has slept until something completed.
    pub(crate) fn sleeps(&self) -> u32 {
        self.sleeps
    }

    /// Sends a message and waits until it has arrived.
    async fn send(&mut self, number: u32) -> Result<()> {
        self.outgoing.write_at(0, &[number as u8])?;
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is registered, has `size` bytes, and is dropped behind the queue pair, also when this future is
        // dropped: both belong to the side. It is written only here, and the last send has completed.
        unsafe { request.setup_sge(self.outgoing.lkey(), self.outgoing.addr(), self.size) };
        batch.post()?;
        while self.sent < number {
            self.complete().await?;
        }
        Ok(())
    }

    fn post_receive(&mut self) -> Result<()> {
        let mut batch = self.qp.start_post_recv();
        // SAFETY: the memory is registered, has `size` bytes, and is dropped behind the queue pair. It is copied from, and nobody
        // refers to it.
        unsafe { batch.construct_wr(RECEIVE).setup_sge(self.incoming.lkey(), self.incoming.addr(), self.size) };
        batch.post()?;
        Ok(())
    }

    /// Sleeps until something has completed, and takes it off the queue.
    async fn complete(&mut self) -> Result<()> {
        while !self.poll()? {
            self.cq.req_notify(false)?;
            // What completed before the request raises no event.
            if self.poll()? {
                return Ok(());
            }
            // Other futures run now. An event that comes though its completion was polled here does no harm: the next sleep ends at
            // once.
            within(self.timeout, self.events.next()).await?;
            self.sleeps += 1;
        }
        Ok(())
    }

    /// Takes what has completed off the queue; whether there was anything.
    fn poll(&mut self) -> Result<bool> {
        let mut arrived = 0;
        let mut poller = match self.cq.start_poll() {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        while let Some(completion) = poller.next()? {
            let is_send = completion.wr_id() == SEND;
            if completion.status() != WorkCompletionStatus::Success {
                bail!("{} failed: {}", if is_send { "sending" } else { "receiving" }, completion.status());
            }
            if is_send {
                self.sent += 1;
            } else {
                arrived += 1;
            }
        }
        drop(poller);
        for _ in 0..arrived {
            self.received += 1;
            let mut first = [0];
            self.incoming.read_at(0, &mut first)?;
            if first != [self.received as u8] {
                bail!("message {} begins with the byte {} of another", self.received, first[0]);
            }
            self.post_receive()?;
        }
        Ok(true)
    }
}

/// Connects the queue pairs of two sides with each other.
pub(crate) fn connect(sides: &[Side; 2], port: &LocalPort) -> Result<()> {
    let [one, other] = sides;
    for (here, there) in [(one, other), (other, one)] {
        port.connect(&here.qp, port.attr().active_mtu(), &here.local, &there.local)?;
    }
    Ok(())
}

/// Ends a wait in time.
async fn within<T>(timeout: Timeout, future: impl Future<Output = Result<T>>) -> Result<T> {
    let Some(time) = timeout.0 else { return future.await };
    match tokio::time::timeout(time, future).await {
        Ok(result) => result,
        Err(_elapsed) => bail!("nothing completed for {} s: is the port still up?", time.as_secs_f64()),
    }
}
