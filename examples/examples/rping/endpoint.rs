//! This side's queue pair, with what it needs: posting, and taking what has completed.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    CompletionChannel, CompletionQueue, GenericCompletionQueue, PollCompletionQueueError,
    WorkCompletionStatus as Status,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, PostSendGuard, QueuePair, QueuePairBuilder, SendOperationFlags as Operations,
};
use sideway::ibverbs::work_request::WorkRequestFlags;

use super::message::{Bytes, LENGTH, Place};

/// What a request is known by when it completes.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const READ: u64 = 3;
const WRITE: u64 = 4;

/// A queue pair with all that it needs.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    channel: Arc<CompletionChannel>,
    // The memory is dropped behind the queue pair, whose requests name it.
    inbox: OwnedMemoryRegion,
    outbox: OwnedMemoryRegion,
    /// The memory of a text that is on its way.
    lent: Option<OwnedMemoryRegion>,
    state: State,
}

/// What has completed.
#[derive(Debug, Default)]
struct State {
    /// The message that has come and that nobody has looked at.
    received: Option<Bytes>,
    /// Whether a message is on its way.
    is_sending: bool,
    /// Whether a text is on its way.
    is_moving: bool,
    /// Whether the queue pair has been stopped: what was outstanding came back undone.
    is_stopped: bool,
}

impl Endpoint {
    /// Makes everything. `make` makes the queue pair, in INIT.
    pub(crate) fn new(
        context: &Arc<DeviceContext>,
        pd: &Arc<ProtectionDomain>,
        make: impl FnOnce(&QueuePairBuilder) -> Result<GenericQueuePair>,
    ) -> Result<Self> {
        let inbox = pd.reg_owned_mr(LENGTH, AccessFlags::LocalWrite)?;
        let outbox = pd.reg_owned_mr(LENGTH, AccessFlags::empty())?;
        let channel = context.create_comp_channel()?;
        let cq = context.create_cq_builder().setup_cqe(8).setup_comp_channel(&channel, 0).build_generic()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(4).setup_max_recv_wr(2).setup_send_cq(&cq).setup_recv_cq(&cq);
        // What an extended queue pair cannot do unless it was asked for.
        builder.setup_send_ops_flags(Operations::Send | Operations::Read | Operations::Write);
        let qp = make(&builder)?;
        let mut endpoint = Self { qp, cq, channel, inbox, outbox, lent: None, state: State::default() };
        // The peer may send as soon as it is connected.
        post_receive(&mut endpoint.qp, &endpoint.inbox)?;
        Ok(endpoint)
    }

    /// The message that has come, once.
    pub(crate) fn take_message(&mut self) -> Option<Bytes> {
        self.state.received.take()
    }

    /// Whether the last message has left: only then another can be sent.
    pub(crate) fn has_sent(&self) -> bool {
        !self.state.is_sending
    }

    /// The memory that [`read`](Self::read) or [`write`](Self::write) was given, once that is done.
    pub(crate) fn take_text(&mut self) -> Option<OwnedMemoryRegion> {
        if self.state.is_moving { None } else { self.lent.take() }
    }

    /// Whether requests came back undone, because the queue pair was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.is_stopped
    }

    /// Posts a message; the one before has left.
    pub(crate) fn send(&mut self, message: &Bytes) -> Result<()> {
        ensure!(!self.state.is_sending, "a message is on its way, and its memory is not free");
        self.outbox.write_at(0, message)?;
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is registered, has so many bytes, is dropped behind the queue pair, and is written only above,
        // where no request is outstanding that names it.
        unsafe { request.setup_sge(self.outbox.lkey(), self.outbox.addr(), LENGTH as u32) };
        batch.post()?;
        self.state.is_sending = true;
        Ok(())
    }

    /// Posts a read of `length` bytes of the peer's into `text`, which [`take_text`](Self::take_text) gives back.
    pub(crate) fn read(&mut self, from: &Place, length: u32, text: OwnedMemoryRegion) -> Result<()> {
        let text = lend(&mut self.lent, text, length)?;
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(READ, WorkRequestFlags::Signaled).setup_read(from.rkey, from.addr);
        // SAFETY: `text` is registered and has so many bytes (`lend`). Nobody reaches it until it is given back, when the request
        // has completed; else it is dropped behind the queue pair.
        unsafe { request.setup_sge(text.lkey(), text.addr(), length) };
        batch.post()?;
        self.state.is_moving = true;
        Ok(())
    }

    /// Posts a write of the first `length` bytes of `text` to the peer's memory. As above.
    pub(crate) fn write(&mut self, to: &Place, length: u32, text: OwnedMemoryRegion) -> Result<()> {
        let text = lend(&mut self.lent, text, length)?;
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(WRITE, WorkRequestFlags::Signaled).setup_write(to.rkey, to.addr);
        // SAFETY: as in `read`.
        unsafe { request.setup_sge(text.lkey(), text.addr(), length) };
        batch.post()?;
        self.state.is_moving = true;
        Ok(())
    }

    /// Asks for an event on [`as_fd`](AsFd::as_fd) when something completes.
    pub(crate) fn notify(&self) -> Result<()> {
        Ok(self.cq.req_notify(false)?)
    }

    /// Takes the events off the channel.
    pub(crate) fn take_events(&self) -> Result<()> {
        while self.channel.try_get_cq_event()?.is_some() {}
        Ok(())
    }

    /// Takes what has completed off the queue.
    ///
    /// # Errors
    ///
    /// A sentence for the user: a request failed, or the peer's message is none.
    pub(crate) fn poll(&mut self) -> Result<()> {
        let Self { qp, cq, inbox, state, .. } = self;
        let mut poller = match cq.start_poll() {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        while let Some(completion) = poller.next()? {
            let (request, status) = (completion.wr_id(), completion.status());
            match status {
                Status::Success => {}
                Status::WorkRequestFlushedError => {
                    state.is_stopped = true;
                    continue;
                }
                _ => bail!("{} failed: {status}{}", name(request), advice(request, status)),
            }
            match request {
                SEND => state.is_sending = false,
                RECEIVE => {
                    let length = completion.byte_len();
                    if length as usize != LENGTH {
                        bail!(
                            "the peer sent a message of {length} bytes, and those of an rping have {LENGTH}: is it one?"
                        );
                    }
                    let mut message = [0; LENGTH];
                    inbox.read_at(0, &mut message)?;
                    if state.received.replace(message).is_some() {
                        bail!("the peer sends out of turn: a message came before the last was answered");
                    }
                    post_receive(qp, inbox)?;
                }
                _ => state.is_moving = false,
            }
        }
        Ok(())
    }
}

/// Readable when something has completed after [`notify`](Endpoint::notify).
impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Has the next message put into the inbox.
fn post_receive(qp: &mut GenericQueuePair, inbox: &OwnedMemoryRegion) -> Result<()> {
    let mut batch = qp.start_post_recv();
    // SAFETY: the memory is registered, has so many bytes, is dropped behind the queue pair, and is read only between the
    // completion of one receive and the posting of the next.
    unsafe { batch.construct_wr(RECEIVE).setup_sge(inbox.lkey(), inbox.addr(), LENGTH as u32) };
    Ok(batch.post()?)
}

/// Keeps the memory until the request that names its first `length` bytes has completed.
fn lend(lent: &mut Option<OwnedMemoryRegion>, text: OwnedMemoryRegion, length: u32) -> Result<&OwnedMemoryRegion> {
    ensure!(lent.is_none(), "a text is on its way, and one is moved at a time");
    // One that does not fit is told here.
    text.sge(..length as usize)?;
    Ok(lent.insert(text))
}

/// What a request is called.
#[cold]
fn name(request: u64) -> &'static str {
    match request {
        RECEIVE => "receiving a message",
        SEND => "sending a message",
        READ => "reading the client's text",
        _ => "writing the text to the client",
    }
}

/// What a user can do about a failed request.
#[cold]
fn advice(request: u64, status: Status) -> String {
    match (request, status) {
        // The soft-RoCE of some kernels has the second for both.
        (RECEIVE, Status::LocalLengthError | Status::LocalQueuePairOperationError) => {
            format!(": perhaps the peer's message has more than the {LENGTH} bytes of an rping: is it one?")
        }
        (_, Status::RetryExceededError) => {
            ": the peer does not answer; it has ended, or is not reached any more".into()
        }
        (READ | WRITE, Status::RemoteAccessError) => {
            ": the client does not have the memory that it offers, or the key does not open it".into()
        }
        _ => String::new(),
    }
}
