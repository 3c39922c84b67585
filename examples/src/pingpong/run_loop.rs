//! Sending and receiving the messages.

use std::hint;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sideway::ibverbs::address::GlobalRoutingHeader;
use sideway::ibverbs::completion::{
    CompletionQueue, WorkCompletionOperationType as Operation, WorkCompletionStatus as Status,
};
use sideway::rdmacm::Connection;

use super::check::{self, Side};
use super::statistics::{Clock, Statistics};
use super::{QueuePairs, Resources};
use crate::wait_readable;

/// The lowest bits of work request identifiers have the values of the C programs. The bits above contain the slot of a
/// receive.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const BITS: u32 = 2;

/// After this many polls without a completion, the loop reads the clock, and yields to other programs.
const POLLS: u32 = 1024;

/// How long to wait for outstanding messages of the peer after it disconnects.
const AFTER_THE_END: Duration = Duration::from_millis(500);

/// The state of a run: the client sends first, and each side answers what it has received.
#[derive(Debug)]
pub struct RunLoop {
    // Dropped before the memory that its requests use, which is part of the resources.
    qps: QueuePairs,
    resources: Resources,
    side: Side,
    sent: u32,
    received: u32,
    turns: Vec<Turn>,
    /// Posted receives.
    receives: u32,
    /// Slots without a posted receive.
    free: Vec<u32>,
    clock: Option<Clock>,
}

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Posted sends, and how many of them have completed.
    posted: u32,
    sent: u32,
    /// Messages received.
    received: u32,
}

impl Turn {
    /// Maximum number of messages that a conforming peer can have sent.
    fn due(&self, side: Side) -> u32 {
        match side {
            Side::Client => self.posted,
            Side::Server => self.posted.saturating_add(1),
        }
    }

    /// Whether it is this side's turn to send, and the buffer of its last send is free again.
    fn is_own(&self, side: Side) -> bool {
        self.sent == self.posted && self.received == self.due(side)
    }
}

impl RunLoop {
    /// Posts the receives: a peer may send as soon as it can.
    ///
    /// # Errors
    ///
    /// The device rejects a receive.
    pub fn new(resources: Resources, qps: QueuePairs, side: Side) -> Result<Self> {
        let options = &resources.options;
        let clock = if options.ts {
            let device = resources.pd().device_context().query_device()?;
            Some(Clock::new(device.hca_core_clock(), device.completion_timestamp_mask()))
        } else {
            None
        };
        let mut run_loop = Self {
            side,
            sent: 0,
            received: 0,
            receives: 0,
            free: (0..options.rx_depth).collect(),
            clock,
            turns: vec![Turn::default(); qps.count()],
            qps,
            resources,
        };
        // The C programs fill their buffer with this byte before the first message.
        let message = vec![0x7b; run_loop.resources.size as usize];
        for slot in 0..run_loop.resources.outgoing.count() {
            run_loop.resources.outgoing.write(slot, &message)?;
        }
        run_loop.post_receives()?;
        Ok(run_loop)
    }

    /// The queue pairs.
    pub fn qps_mut(&mut self) -> &mut QueuePairs {
        &mut self.qps
    }

    /// Sends and receives all messages. With a connection of the connection manager, the run ends early if the peer
    /// disconnects.
    ///
    /// # Errors
    ///
    /// The peer's options differ, or it has ended.
    pub fn run(&mut self, connection: Option<&Connection>) -> Result<Statistics> {
        let iterations = self.resources.options.iters;
        let start = Instant::now();
        loop {
            self.post_sends()?;
            if self.received >= iterations && self.sent >= iterations {
                break;
            }
            self.wait(connection)?;
            // Each queue pair may have a message in flight.
            if self.receives as usize <= self.turns.len() {
                self.post_receives()?;
            }
        }
        let time = start.elapsed();
        Ok(Statistics { iterations, size: self.resources.size, time, clock: self.clock })
    }

    /// Sends a message on every queue pair on which it is this side's turn.
    fn post_sends(&mut self) -> Result<()> {
        let Resources { options, outgoing, size, .. } = &mut self.resources;
        for (index, turn) in self.turns.iter_mut().enumerate() {
            if self.sent >= options.iters || !turn.is_own(self.side) {
                continue;
            }
            let slot = u32::try_from(index)?;
            if options.chk {
                let mut message = vec![0; *size as usize];
                check::fill(&mut message, self.side, turn.posted);
                outgoing.write(slot, &message)?;
            }
            // SAFETY: the memory is registered, and dropped after the queue pairs. It is written only before a post,
            // and `is_own` checks that the last send has completed.
            unsafe { self.qps.post_send(index, SEND, outgoing.buffer(slot)) }?;
            turn.posted += 1;
        }
        Ok(())
    }

    /// Posts receives until `rx_depth` are posted.
    fn post_receives(&mut self) -> Result<()> {
        let incoming = &self.resources.incoming;
        let receives = self.free.iter().map(|&slot| (u64::from(slot) << BITS | RECEIVE, incoming.buffer(slot)));
        // SAFETY: the memory is registered, and dropped after the queue pairs. No reference into it exists: the program
        // copies from it after one message and before the answer that lets the peer send the next. If a peer does not
        // wait for the answer, the copy may mix the bytes of two messages. That is sound: every byte value is valid.
        unsafe { self.qps.post_receives(receives) }?;
        self.receives = self.resources.options.rx_depth;
        self.free.clear();
        Ok(())
    }

    /// Waits for a completion.
    fn wait(&mut self, connection: Option<&Connection>) -> Result<()> {
        let timeout = self.resources.options.timeout;
        let mut polls: u32 = 0;
        let mut deadline = None;
        let mut has_ended = false;
        while !self.poll()? {
            hint::spin_loop();
            polls = polls.wrapping_add(1);
            let sleeps = self.resources.channel.is_some();
            if !sleeps && !polls.is_multiple_of(POLLS) {
                continue;
            }
            let now = Instant::now();
            let end = *deadline.get_or_insert_with(|| timeout.0.and_then(|timeout| now.checked_add(timeout)));
            if end.is_some_and(|end| end <= now) {
                return Err(if has_ended { self.disconnected() } else { self.stuck() });
            }
            if let Some(connection) = connection.filter(|_| !has_ended)
                && connection.ended()?.is_some()
            {
                // Receives of earlier messages may still complete.
                has_ended = true;
                let soon = now.checked_add(AFTER_THE_END);
                deadline = Some(end.map_or(soon, |end| Some(soon.map_or(end, |soon| soon.min(end)))));
                continue;
            }
            if !sleeps || has_ended {
                thread::yield_now();
            } else if self.sleep(connection, end)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sleeps until a completion event or an event of the connection; returns whether it polled a completion instead.
    fn sleep(&mut self, connection: Option<&Connection>, end: Option<Instant>) -> Result<bool> {
        let Some(channel) = self.resources.channel.clone() else { return Ok(false) };
        while channel.try_get_cq_event()?.is_some() {}
        self.resources.cq.req_notify(false)?;
        // A completion before the request raises no event. An event of a completion already polled here is harmless:
        // the next sleep ends at once.
        if self.poll()? {
            return Ok(true);
        }
        let events = connection.map(Connection::event_channel);
        let fds: Vec<_> =
            std::iter::once(channel.as_raw_fd()).chain(events.as_ref().map(|events| events.as_raw_fd())).collect();
        wait_readable(&fds, end).context("cannot wait for the device")?;
        Ok(false)
    }

    /// Polls all completions; returns whether there was one.
    fn poll(&mut self) -> Result<bool> {
        let Resources { cq, incoming, options, size, service, .. } = &mut self.resources;
        let size = *size;
        let count = cq.poll_each(u32::MAX, |completion| {
            let wr_id = completion.wr_id();
            let is_send = wr_id == SEND;
            let status = completion.status();
            // The end of an iWARP connection flushes the receives that are left.
            if status == Status::WorkRequestFlushedError && !is_send && self.received >= options.iters {
                return Ok(());
            }
            if status != Status::Success {
                bail!(
                    "{} message {} of {} failed: {status}{}",
                    if is_send { "sending" } else { "receiving" },
                    if is_send { self.sent } else { self.received } + 1,
                    options.iters,
                    advice(status, is_send, service.path)
                );
            }
            let index = self.qps.index(completion.qp_num());
            let turn = index.and_then(|index| self.turns.get_mut(index));
            let turn = turn.context("a completion has an unknown queue pair number")?;
            if is_send {
                turn.sent += 1;
                self.sent += 1;
                return Ok(());
            }
            let length = completion.byte_len().saturating_sub(service.headroom);
            if completion.opcode() != Operation::Receive || length != size {
                bail!("the peer sent a message of {length} bytes, expected {size}; give both sides the same --size");
            }
            turn.received += 1;
            self.received += 1;
            self.receives = self.receives.saturating_sub(1);
            let slot = (wr_id >> BITS) as u32;
            self.free.push(slot);
            let (received, due) = (turn.received, turn.due(self.side));
            if received > due {
                bail!("the peer sends out of turn: {received} messages arrived, expected {due}; run the same example on both sides");
            }
            if self.qps.awaits_peer() {
                let mut header = [0; 40];
                incoming.read(slot, 0, &mut header)?;
                let header = GlobalRoutingHeader::from_prefix(&header).context("the header is too short")?;
                self.qps.set_path(&completion.source(), &header)?;
            }
            if options.chk {
                let mut message = vec![0; size as usize];
                incoming.read(slot, service.headroom, &mut message)?;
                check::check(self.side, &message, received - 1)?;
            }
            if let (Some(clock), Ok(now)) = (&mut self.clock, completion.completion_timestamp()) {
                clock.tick(now);
            }
            Ok(())
        })?;
        Ok(count > 0)
    }

    #[cold]
    fn disconnected(&self) -> anyhow::Error {
        let (Self { received, sent, .. }, iterations) = (self, self.resources.options.iters);
        anyhow!(
            "the peer disconnected: {received} of {iterations} messages were received, {sent} were sent; give both sides the same \
             --iters, or see the peer's error message"
        )
    }

    #[cold]
    fn stuck(&self) -> anyhow::Error {
        let (Self { received, sent, .. }, iterations) = (self, self.resources.options.iters);
        let posted: u32 = self.turns.iter().map(|turn| turn.posted).sum();
        let seconds = self.resources.options.timeout.0.unwrap_or(Duration::ZERO).as_secs_f64();
        let done = format!(
            "nothing completed for {seconds} s: {received} of {iterations} messages were received, {sent} of {posted} posted sends \
             have completed"
        );
        match self.resources.service.loss {
            Some(loss) => anyhow!(
                "{done}; the peer's next message is missing, and {loss}; restart both sides with the same --size and --iters, and \
                 check that the peer is reachable from {}",
                self.resources.service.path
            ),
            None => {
                let what = if posted == *sent {
                    "the peer's next message is missing"
                } else {
                    "the peer does not acknowledge the last send"
                };
                anyhow!("{done}; {what}; check that the peer still runs, with the same --iters")
            }
        }
    }
}

/// The remedy for a failed message.
#[cold]
fn advice(status: Status, is_send: bool, path: &str) -> String {
    match (status, is_send) {
        (Status::RetryCounterExceededError, _) => {
            format!(
                ": the peer does not acknowledge; give both sides the same --iters, and check that it is reachable from {path}"
            )
        }
        // If the message is too long, the soft-RoCE of some kernels reports the second status instead of the first.
        (Status::LocalLengthError | Status::LocalQueuePairOperationError, false) => {
            ": the peer's messages may be longer; give both sides the same --size".into()
        }
        (Status::RemoteInvalidRequestError | Status::RemoteOperationError, true) => {
            ": the peer rejected it; give both sides the same --size, or see the peer's error message".into()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_sends_first_and_then_the_sides_alternate() {
        let is_own = |side, posted, sent, received| Turn { posted, sent, received }.is_own(side);
        for round in 0..3 {
            // The client has the turn until it posts the message: not while the message is in flight, nor after it has
            // completed.
            assert!(is_own(Side::Client, round, round, round));
            assert!(!is_own(Side::Client, round + 1, round, round));
            assert!(!is_own(Side::Client, round + 1, round + 1, round));
            // The answer may arrive before the send completes, and the buffer is not free until then.
            assert!(!is_own(Side::Client, round + 1, round, round + 1));

            assert!(!is_own(Side::Server, round, round, round));
            assert!(is_own(Side::Server, round, round, round + 1));
            assert!(!is_own(Side::Server, round + 1, round, round + 1));
            assert!(!is_own(Side::Server, round + 1, round, round + 2));
        }
        let turn = Turn { posted: 3, sent: 3, received: 3 };
        assert_eq!((turn.due(Side::Client), turn.due(Side::Server)), (3, 4));
    }
}
