//! The messages to and fro.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sideway::ibverbs::completion::{
    CompletionChannel, GenericCompletionQueue, PollCompletionQueueError, WorkCompletionOperationType as Operation,
    WorkCompletionStatus as Status,
};
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::Timeout;
use sideway_examples::pingpong::{Clock, Statistics, Wait, advice};

use super::arguments::Arguments;
use super::endpoint::Endpoint;
use super::pattern::{self, Checker, Side};

/// What requests are known by in their completions; the C program has the same numbers.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// The state of the game: the client sends first, and each side answers what it has received.
#[derive(Debug)]
pub(crate) struct Game<'e> {
    endpoint: &'e mut Endpoint,
    side: Side,
    iterations: u32,
    size: u32,
    rx_depth: u32,
    timeout: Timeout,
    /// Sends that were posted, and those of them that are done.
    posted: u32,
    sent: u32,
    /// Messages that have arrived, and those of them that were checked.
    received: u32,
    checked: u32,
    /// Receives that wait for a message.
    receives: u32,
    check: Option<(Checker, Vec<u8>)>,
    clock: Option<Clock>,
}

impl<'e> Game<'e> {
    /// Posts the receives.
    pub(crate) fn new(arguments: &Arguments, endpoint: &'e mut Endpoint) -> Result<Self> {
        let side = if arguments.server.is_some() { Side::Client } else { Side::Server };
        let size = arguments.size as usize;
        let clock = if arguments.ts {
            let device = endpoint.context.query_device()?;
            Some(Clock::new(device.hca_core_clock(), device.completion_timestamp_mask()))
        } else {
            None
        };
        let mut game = Self {
            endpoint,
            side,
            iterations: arguments.iters,
            size: arguments.size,
            rx_depth: arguments.rx_depth,
            timeout: arguments.timeout,
            posted: 0,
            sent: 0,
            received: 0,
            checked: 0,
            receives: 0,
            check: arguments.chk.then(|| (Checker::new(side, size), vec![0; size])),
            clock,
        };
        // What the C program has in its buffer before the first message comes.
        game.endpoint.outgoing.write_at(0, &vec![0x7b; size])?;
        game.post_receives()?;
        Ok(game)
    }

    /// This side of the connection.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.endpoint
    }

    /// Sends and receives all messages.
    pub(crate) fn play(mut self) -> Result<Statistics> {
        let start = Instant::now();
        loop {
            if self.has_turn() {
                self.post_send()?;
            }
            if self.received == self.iterations && self.sent == self.iterations {
                break;
            }
            self.wait()?;
            if self.received > self.may_receive() {
                bail!("the peer sends out of turn: {} messages came, {} were due", self.received, self.may_receive());
            }
            self.check_data()?;
            if self.receives <= 1 {
                self.post_receives()?;
            }
        }
        let time = start.elapsed();
        Ok(Statistics { iterations: self.iterations, size: self.size, time, clock: self.clock })
    }

    /// How many messages a peer that keeps to the rules can have sent by now.
    fn may_receive(&self) -> u32 {
        match self.side {
            Side::Client => self.posted,
            Side::Server => self.posted + 1,
        }
    }

    /// Whether the next message is this side's, and the memory of the last is free again.
    fn has_turn(&self) -> bool {
        self.posted < self.iterations && self.sent == self.posted && self.received == self.may_receive()
    }

    fn post_send(&mut self) -> Result<()> {
        if let Some((_, message)) = &mut self.check {
            pattern::fill(message, self.side, self.posted);
            self.endpoint.outgoing.write_at(0, message)?;
        }
        let Endpoint { qp, outgoing, .. } = &mut *self.endpoint;
        let mut batch = qp.start_post_send();
        let request = batch.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is registered and has `size` bytes; it lives in the endpoint, where the queue pair is dropped
        // before it. It is written only before a post, and `has_turn` has seen the last send completed.
        unsafe { request.setup_sge(outgoing.lkey(), outgoing.addr(), self.size) };
        batch.post()?;
        self.posted += 1;
        Ok(())
    }

    /// Posts receives until `rx_depth` of them wait.
    fn post_receives(&mut self) -> Result<()> {
        let Endpoint { qp, incoming, .. } = &mut *self.endpoint;
        let mut batch = qp.start_post_recv();
        for _ in self.receives..self.rx_depth {
            let request = batch.construct_wr(RECEIVE);
            // SAFETY: the memory is registered and has `size` bytes; it lives in the endpoint, where the queue pair is dropped
            // before it. Nobody refers to it: it is copied from, after one message and before the answer that lets the peer
            // send the next. Should a peer not keep to that, the copy has bytes of two messages, and bytes have no wrong values.
            unsafe { request.setup_sge(incoming.lkey(), incoming.addr(), self.size) };
        }
        batch.post()?;
        self.receives = self.rx_depth;
        Ok(())
    }

    fn check_data(&mut self) -> Result<()> {
        let Some((checker, message)) = &mut self.check else { return Ok(()) };
        if self.checked < self.received {
            self.endpoint.incoming.read_at(0, message)?;
            checker.check(message, self.checked)?;
            self.checked += 1;
        }
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
            if completion.status() != Status::Success {
                let what = if is_send { self.posted } else { self.received + 1 };
                bail!(
                    "{} message {what} of {} failed: {}{}",
                    if is_send { "sending" } else { "receiving" },
                    self.iterations,
                    completion.status(),
                    advice(completion.status(), is_send)
                );
            }
            if is_send {
                self.sent += 1;
                continue;
            }
            if completion.opcode() != Operation::Receive || completion.byte_len() != self.size {
                bail!(
                    "the peer sent a message of {} bytes and {} were due: give both sides the same --size",
                    completion.byte_len(),
                    self.size
                );
            }
            self.received += 1;
            self.receives = self.receives.saturating_sub(1);
            if let (Some(clock), Ok(now)) = (&mut self.clock, completion.completion_timestamp()) {
                clock.tick(now);
            }
        }
        Ok(true)
    }

    #[cold]
    fn stuck(&self) -> anyhow::Error {
        let Self { iterations, received, sent, posted, .. } = self;
        let seconds = self.timeout.0.unwrap_or(Duration::ZERO).as_secs_f64();
        let what = if posted == sent {
            "the peer's next message does not come"
        } else {
            "the peer does not acknowledge the last one"
        };
        anyhow::anyhow!(
            "nothing completed for {seconds} s: {received} of {iterations} messages were received and {sent} of {posted} that \
             were posted are sent; {what}. Does it still run, and with the same --iters?"
        )
    }
}
