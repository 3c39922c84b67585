//! A connection: connects, posts requests, and waits for completions or the end.

use std::fmt;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    CompletionChannel, CompletionQueue, GenericCompletionQueue, WorkCompletionStatus as Status,
};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, PostSendGuard, QueuePair, QueuePairState, SendOperationFlags as Operations, SetScatterGatherEntry,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::communication_manager::Identifier;
use sideway::rdmacm::{Connection, ConnectionParameter, Connector, Request};
use sideway_examples::connections::resolve;
use sideway_examples::{Deadline, Timeout, wait_readable};

use super::{Arguments, Log, RemoteBuffer};

/// Bytes of a message.
pub(crate) const LENGTH: usize = 16;

/// The work request identifiers.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const READ: u64 = 3;
const WRITE: u64 = 4;

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

/// The time for the event that the connection has ended. The end also flushes requests, and these completions may come
/// first.
const END: Duration = Duration::from_secs(2);

/// A connection to the peer.
#[derive(Debug)]
pub(crate) struct Link {
    endpoint: Endpoint,
    connection: Connection,
    /// `server` or `client`.
    peer: &'static str,
    timeout: Timeout,
}

impl Link {
    /// Connects to the server; returns the protection domain as well.
    pub(crate) fn to_server(arguments: &Arguments, log: &mut Log<'_>) -> Result<(Self, Arc<ProtectionDomain>)> {
        let host = arguments.address.as_deref().context("the client requires the address of its server; give -a")?;
        let mut connector = Connector::new();
        connector.setup_timeout(arguments.timeout.0.unwrap_or(Duration::MAX));
        if let Some(source) = &arguments.source {
            connector.setup_source(resolve(source, 0).context("--source")?.ip());
        }
        let resolved = connector.resolve((host, arguments.port))?;
        let device = resolved.device_context();
        log.step(format_args!("the path to {} uses {}", resolved.peer_address(), device.name()))?;

        let pd = device.alloc_pd()?;
        let endpoint = Endpoint::new(resolved.identifier(), device, &pd, arguments.own_qp, log)?;
        let mut parameter = ConnectionParameter::default();
        let connection = if arguments.own_qp {
            parameter.setup_qp_number(endpoint.qp.qp_number());
            resolved.connect_with(&parameter, |id, _| to_ready(&endpoint.qp, id))?
        } else {
            resolved.connect(&parameter)?
        };
        log.step(format_args!("the connection is established"))?;
        Ok((Self { endpoint, connection, peer: "server", timeout: arguments.timeout }, pd))
    }

    /// Accepts the request of a client; returns the protection domain as well.
    pub(crate) fn to_client(
        request: Request,
        arguments: &Arguments,
        log: &mut Log<'_>,
    ) -> Result<(Self, Arc<ProtectionDomain>)> {
        let device = request.device_context();
        let client = request.peer_address().map_or_else(|| "a client".into(), |address| address.to_string());
        log.step(format_args!("{client} requests a connection on {}", device.name()))?;

        let pd = device.alloc_pd()?;
        let endpoint = Endpoint::new(request.identifier(), device, &pd, arguments.own_qp, log)?;
        let mut parameter = ConnectionParameter::default();
        if arguments.own_qp {
            to_ready(&endpoint.qp, request.identifier())?;
            parameter.setup_qp_number(endpoint.qp.qp_number());
        }
        let connection = request.accept(&parameter)?;
        log.step(format_args!("the connection is established"))?;
        Ok((Self { endpoint, connection, peer: "client", timeout: arguments.timeout }, pd))
    }

    /// Sends a message when the previous send has completed.
    pub(crate) fn send(&mut self, message: &[u8; LENGTH]) -> Result<()> {
        self.need(format_args!("receive the last message"), |endpoint| (!endpoint.is_sending).then_some(()))?;
        self.endpoint.send(message)
    }

    /// Waits for the next message, which the peer sends after it did `what`; returns `None` if the peer disconnected.
    pub(crate) fn receive(&mut self, what: fmt::Arguments<'_>) -> Result<Option<[u8; LENGTH]>> {
        self.wait(what, |endpoint| endpoint.received.take())
    }

    /// Reads `length` bytes of the peer's memory.
    pub(crate) fn read(
        &mut self,
        from: &RemoteBuffer,
        length: u32,
        text: OwnedMemoryRegion,
    ) -> Result<OwnedMemoryRegion> {
        let Endpoint { qp, lent, .. } = &mut self.endpoint;
        let mut batch = qp.start_post_send();
        lend(lent, text, length, batch.construct_wr(READ, SIGNALED).setup_read(from.rkey, from.addr))?;
        batch.post()?;
        self.endpoint.is_moving = true;
        self.need(format_args!("let its text be read"), Endpoint::take_text)
    }

    /// Writes `length` bytes to the peer's memory.
    pub(crate) fn write(
        &mut self,
        to: &RemoteBuffer,
        length: u32,
        text: OwnedMemoryRegion,
    ) -> Result<OwnedMemoryRegion> {
        let Endpoint { qp, lent, .. } = &mut self.endpoint;
        let mut batch = qp.start_post_send();
        lend(lent, text, length, batch.construct_wr(WRITE, SIGNALED).setup_write(to.rkey, to.addr))?;
        batch.post()?;
        self.endpoint.is_moving = true;
        self.need(format_args!("let its text be written"), Endpoint::take_text)
    }

    /// Disconnects, or answers the peer that has disconnected.
    pub(crate) fn close(self) -> Result<()> {
        self.connection.disconnect(self.timeout.0)?;
        Ok(())
    }

    /// Waits like [`wait`](Self::wait); returns an error if the peer disconnected.
    fn need<T>(&mut self, what: fmt::Arguments<'_>, take: impl FnMut(&mut Endpoint) -> Option<T>) -> Result<T> {
        match self.wait(what, take)? {
            Some(taken) => Ok(taken),
            None => bail!("the {} disconnected and did not {what}; see its error message", self.peer),
        }
    }

    /// Waits until `take` finds its result among the completions; `None` if the connection ends first.
    fn wait<T>(
        &mut self,
        what: fmt::Arguments<'_>,
        mut take: impl FnMut(&mut Endpoint) -> Option<T>,
    ) -> Result<Option<T>> {
        let (deadline, peer) = (Deadline::after(self.timeout), self.peer);
        loop {
            let is_last = deadline.is_over();
            // A completion after this request raises an event. The following poll also finds messages that arrived
            // before the end.
            while self.endpoint.channel.try_get_cq_event()?.is_some() {}
            self.endpoint.cq.req_notify(false)?;
            let has_ended = self.connection.ended()?.is_some();
            self.endpoint.poll()?;
            if let Some(taken) = take(&mut self.endpoint) {
                return Ok(Some(taken));
            }
            if has_ended {
                return Ok(None);
            }
            if self.endpoint.is_stopped {
                match self.connection.wait(Some(END)) {
                    Err(error) if error.is_timed_out() => bail!(
                        "the device stopped the connection: one side requested memory that was not offered; run rping on both sides"
                    ),
                    ended => return Ok(ended.map(|_| None)?),
                }
            }
            if is_last {
                let seconds = self.timeout.0.unwrap_or(Duration::ZERO).as_secs_f64();
                bail!("the {peer} did not {what} within {seconds} s (--timeout); check that it still runs");
            }
            let events = self.connection.event_channel();
            wait_readable(&[self.endpoint.channel.as_raw_fd(), events.as_raw_fd()], deadline.end())
                .context("cannot wait for the device")?;
        }
    }
}

/// Modifies the program's own queue pair to RTS, with the attributes of the connection.
fn to_ready(qp: &GenericQueuePair, id: &Identifier) -> Result<()> {
    // Repeats INIT, because the access flags are available only now.
    for state in [QueuePairState::Init, QueuePairState::ReadyToReceive, QueuePairState::ReadyToSend] {
        qp.modify(&id.get_qp_attr(state)?)?;
    }
    Ok(())
}

/// The queue pair of this side with its objects, and its completions.
#[derive(Debug)]
struct Endpoint {
    qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    channel: Arc<CompletionChannel>,
    // The memory is dropped after the queue pair, whose requests use it.
    inbox: OwnedMemoryRegion,
    outbox: OwnedMemoryRegion,
    /// The memory of a text while the device reads or writes it.
    lent: Option<OwnedMemoryRegion>,
    /// A received message that was not taken yet.
    received: Option<[u8; LENGTH]>,
    /// Whether a message is in flight.
    is_sending: bool,
    /// Whether a text is in flight.
    is_moving: bool,
    /// Whether requests were flushed.
    is_stopped: bool,
}

impl Endpoint {
    /// Creates all objects: a queue pair that the library modifies, or the program's own, in INIT.
    fn new(
        id: &Arc<Identifier>,
        device: &Arc<DeviceContext>,
        pd: &Arc<ProtectionDomain>,
        is_own: bool,
        log: &mut Log<'_>,
    ) -> Result<Self> {
        let inbox = pd.reg_owned_mr(LENGTH, AccessFlags::LocalWrite)?;
        let outbox = pd.reg_owned_mr(LENGTH, AccessFlags::empty())?;
        let channel = device.create_comp_channel()?;
        let cq = device.create_cq_builder().setup_cqe(8).setup_comp_channel(&channel, 0).build_generic()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(4).setup_max_recv_wr(2).setup_send_cq(&cq).setup_recv_cq(&cq);
        // An extended queue pair supports only the operations that it was created for.
        builder.setup_send_ops_flags(Operations::Send | Operations::Read | Operations::Write);
        let mut qp = if is_own {
            let qp = builder.build_generic()?;
            qp.modify(&id.get_qp_attr(QueuePairState::Init)?)?;
            qp
        } else {
            id.create_qp_generic(&builder)?
        };
        // The peer may send as soon as it is connected.
        post_receive(&mut qp, &inbox)?;
        log.step(format_args!("queue pair {:#08x} is created", qp.qp_number()))?;
        Ok(Self {
            qp,
            cq,
            channel,
            inbox,
            outbox,
            lent: None,
            received: None,
            is_sending: false,
            is_moving: false,
            is_stopped: false,
        })
    }

    /// The memory of the text, when its read or write has completed.
    fn take_text(&mut self) -> Option<OwnedMemoryRegion> {
        if self.is_moving { None } else { self.lent.take() }
    }

    /// Posts a message; the previous send must have completed.
    fn send(&mut self, message: &[u8; LENGTH]) -> Result<()> {
        ensure!(!self.is_sending, "a message is in flight, and its memory is not free");
        self.outbox.write_at(0, message)?;
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(SEND, SIGNALED).setup_send();
        // SAFETY: the memory is registered, has LENGTH bytes, and is dropped after the queue pair. Only the lines above
        // write to it, when no outstanding request uses it.
        unsafe { request.setup_sge(self.outbox.lkey(), self.outbox.addr(), LENGTH as u32) };
        batch.post()?;
        self.is_sending = true;
        Ok(())
    }

    /// Polls all completions.
    fn poll(&mut self) -> Result<()> {
        self.cq.poll_each(u32::MAX, |completion| {
            let (request, status) = (completion.wr_id(), completion.status());
            match (status, request) {
                (Status::WorkRequestFlushedError, _) => self.is_stopped = true,
                (Status::Success, SEND) => self.is_sending = false,
                (Status::Success, RECEIVE) => {
                    let length = completion.byte_len();
                    if length as usize != LENGTH {
                        bail!("the peer sent a message of {length} bytes, expected {LENGTH}; run rping on both sides");
                    }
                    let mut message = [0; LENGTH];
                    self.inbox.read_at(0, &mut message)?;
                    if self.received.replace(message).is_some() {
                        bail!("the peer sends out of turn: a message arrived before the reply to the last; run rping on both sides");
                    }
                    post_receive(&mut self.qp, &self.inbox)?;
                }
                (Status::Success, _) => self.is_moving = false,
                _ => return Err(failed(request, status)),
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Posts a receive for the next message.
fn post_receive(qp: &mut GenericQueuePair, inbox: &OwnedMemoryRegion) -> Result<()> {
    let mut batch = qp.start_post_recv();
    // SAFETY: the memory is registered, has LENGTH bytes, and is dropped after the queue pair. It is read only between
    // the completion of one receive and the posting of the next.
    unsafe { batch.construct_wr(RECEIVE).setup_sge(inbox.lkey(), inbox.addr(), LENGTH as u32) };
    Ok(batch.post()?)
}

/// Adds the first `length` bytes of a text to a request, and keeps its memory until the request has completed.
fn lend(
    lent: &mut Option<OwnedMemoryRegion>,
    text: OwnedMemoryRegion,
    length: u32,
    request: impl SetScatterGatherEntry,
) -> Result<()> {
    ensure!(lent.is_none(), "a text is in flight, and only one can be");
    // Fails if the text is shorter.
    text.sge(..length as usize)?;
    let text = lent.insert(text);
    // SAFETY: `text` is registered and has `length` bytes. `Endpoint` keeps it, unused, until the request has
    // completed, and otherwise drops it after the queue pair.
    unsafe { request.setup_sge(text.lkey(), text.addr(), length) };
    Ok(())
}

/// The error of a failed request, with the remedy.
#[cold]
fn failed(request: u64, status: Status) -> anyhow::Error {
    let name = match request {
        RECEIVE => "receiving a message",
        SEND => "sending a message",
        READ => "reading the client's text",
        _ => "writing the text to the client",
    };
    let advice = match (request, status) {
        // If the message is too long, the soft-RoCE of some kernels reports the second status instead of the first.
        (RECEIVE, Status::LocalLengthError | Status::LocalQueuePairOperationError) => {
            ": the peer's message may exceed 16 bytes; run rping on both sides"
        }
        (_, Status::RetryCounterExceededError) => {
            ": the peer does not acknowledge; check that it still runs and is reachable"
        }
        (READ | WRITE, Status::RemoteAccessError) => ": the address, length or key that the client offered is invalid",
        _ => "",
    };
    anyhow::anyhow!("{name} failed: {status}{advice}")
}
