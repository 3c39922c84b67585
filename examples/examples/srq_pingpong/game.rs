//! The messages to and fro.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sideway::ibverbs::completion::{
    CompletionChannel, GenericCompletionQueue, PollCompletionQueueError, WorkCompletionOperationType as Operation,
    WorkCompletionStatus as Status,
};
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::Timeout;
use sideway_examples::pingpong::{Statistics, Wait, advice};

use super::arguments::Arguments;
use super::endpoint::Endpoint;

/// What requests are known by in their completions; the C program has the same numbers.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// The state of the game: on each connection the client sends first, and each side answers what it has received.
#[derive(Debug)]
pub(crate) struct Game<'e> {
    endpoint: &'e mut Endpoint,
    /// What each connection waits for.
    pending: Vec<Pending>,
    /// The place of each queue pair, by its number.
    places: BTreeMap<u32, usize>,
    /// Connections that wait for nothing: this side's turn.
    turns: Vec<usize>,
    iterations: u32,
    size: u32,
    rx_depth: u32,
    timeout: Timeout,
    /// Messages that were sent, and that have arrived.
    sent: u32,
    received: u32,
    /// Receives that wait for a message.
    receives: u32,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug)]
struct Pending {
    send: bool,
    receive: bool,
}

impl<'e> Game<'e> {
    /// Posts the receives.
    pub(crate) fn new(arguments: &Arguments, endpoint: &'e mut Endpoint) -> Result<Self> {
        let is_client = arguments.server.is_some();
        let count = endpoint.qps.len();
        let mut game = Self {
            pending: vec![Pending { send: false, receive: !is_client }; count],
            places: endpoint.qps.iter().enumerate().map(|(place, qp)| (qp.qp_number(), place)).collect(),
            turns: if is_client { (0..count).collect() } else { Vec::with_capacity(count) },
            endpoint,
            iterations: arguments.iters,
            size: arguments.size,
            rx_depth: arguments.rx_depth,
            timeout: arguments.timeout,
            sent: 0,
            received: 0,
            receives: 0,
        };
        game.post_receives()?;
        Ok(game)
    }

    /// This side of the connections.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.endpoint
    }

    /// Sends and receives all messages. As with the C program, a few more than were asked for may be under way at the end.
    pub(crate) fn play(mut self) -> Result<Statistics> {
        let start = Instant::now();
        loop {
            while let Some(place) = self.turns.pop() {
                self.post_send(place)?;
            }
            if self.received >= self.iterations && self.sent >= self.iterations {
                break;
            }
            self.wait()?;
            if self.receives <= self.endpoint.qps.len() as u32 {
                self.post_receives()?;
            }
        }
        let time = start.elapsed();
        Ok(Statistics { iterations: self.iterations, size: self.size, time, clock: None })
    }

    fn post_send(&mut self, place: usize) -> Result<()> {
        let Endpoint { qps, outgoing, .. } = &mut *self.endpoint;
        let (Some(qp), Some(pending)) = (qps.get_mut(place), self.pending.get_mut(place)) else { return Ok(()) };
        let mut batch = qp.start_post_send();
        let request = batch.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is registered and has `size` bytes; it lives in the endpoint, where the queue pairs are dropped
        // before it. Nobody writes it.
        unsafe { request.setup_sge(outgoing.lkey(), outgoing.addr(), self.size) };
        batch.post()?;
        *pending = Pending { send: true, receive: true };
        Ok(())
    }

    /// Posts receives until `rx_depth` of them wait.
    fn post_receives(&mut self) -> Result<()> {
        let Endpoint { srq, incoming, .. } = &mut *self.endpoint;
        let mut batch = srq.start_post_recv();
        for _ in self.receives..self.rx_depth {
            let request = batch.construct_wr(RECEIVE);
            // SAFETY: the memory is registered and has `size` bytes; it lives in the endpoint, where the shared queue and all
            // its queue pairs are dropped before it. Nobody looks at it, so that messages may overwrite each other.
            unsafe { request.setup_sge(incoming.lkey(), incoming.addr(), self.size) };
        }
        batch.post()?;
        self.receives = self.rx_depth;
        Ok(())
    }
}

impl Wait for Game<'_> {
    fn queue(&self) -> (&GenericCompletionQueue, Option<&CompletionChannel>) {
        (&self.endpoint.cq, self.endpoint.channel.as_deref())
    }

    fn timeout(&self) -> Timeout {
        self.timeout
    }

    fn poll(&mut self) -> Result<bool> {
        let mut poller = match self.endpoint.cq.start_poll() {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        while let Some(completion) = poller.next()? {
            let is_send = completion.wr_id() == SEND;
            let qp_num = completion.qp_num();
            if completion.status() != Status::Success {
                let (what, done) = if is_send { ("sending", self.sent) } else { ("receiving", self.received) };
                bail!(
                    "{what} a message of queue pair {qp_num:#08x} failed after {done} of {}: {}{}",
                    self.iterations,
                    completion.status(),
                    advice(completion.status(), is_send)
                );
            }
            let place = self.places.get(&qp_num).copied();
            let place =
                place.with_context(|| format!("a completion is of queue pair {qp_num:#08x}, which is not ours"))?;
            let Some(pending) = self.pending.get_mut(place) else { continue };
            if is_send {
                self.sent += 1;
                pending.send = false;
            } else {
                if completion.opcode() != Operation::Receive || completion.byte_len() != self.size {
                    bail!(
                        "the peer sent a message of {} bytes and {} were due: give both sides the same --size",
                        completion.byte_len(),
                        self.size
                    );
                }
                if !pending.receive {
                    bail!("the peer sends out of turn on queue pair {qp_num:#08x}");
                }
                self.received += 1;
                self.receives = self.receives.saturating_sub(1);
                pending.receive = false;
            }
            if self.sent < self.iterations && !pending.send && !pending.receive {
                self.turns.push(place);
            }
        }
        Ok(true)
    }

    #[cold]
    fn stuck(&self) -> anyhow::Error {
        let Self { iterations, received, sent, .. } = self;
        let seconds = self.timeout.0.unwrap_or(Duration::ZERO).as_secs_f64();
        anyhow::anyhow!(
            "nothing completed for {seconds} s: {received} of {iterations} messages were received and {sent} were sent. Does the \
             peer still run, and with the same --iters?"
        )
    }
}
