//! The messages to and fro.

use std::hint;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sideway::ibverbs::address::GlobalRoutingHeader;
use sideway::ibverbs::completion::{
    CompletionQueue, PollCompletionQueueError, WorkCompletionOperationType as Operation, WorkCompletionStatus as Status,
};
use sideway::rdmacm::Connection;

use super::pattern::{self, Checker, Side};
use super::statistics::{Clock, Statistics};
use super::{Carrier, Resources};
use crate::wait_readable;

/// What requests are known by in the lower bits of their numbers; the C programs have the same. Above them stands where the
/// message of a receive is.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const BITS: u32 = 2;

/// After so many polls in vain it is time to look at the clock, and to let another program run.
const PATIENCE: u32 = 1024;

/// How long what the peer has sent may take to come up after the news that it has ended the connection.
const AFTER_THE_END: Duration = Duration::from_millis(500);

/// The state of the game: the client sends first, and each side answers what it has received.
#[derive(Debug)]
pub struct Game<C> {
    // Dropped before the memory that its requests name, which is in the resources.
    carrier: C,
    resources: Resources,
    side: Side,
    /// Messages in either direction, on all lanes together.
    iterations: u32,
    sent: u32,
    received: u32,
    lanes: Vec<Lane>,
    /// Receives that wait for a message.
    receives: u32,
    /// Where messages can come in: the places that no receive has.
    free: Vec<u64>,
    check: Option<(Checker, Vec<u8>)>,
    clock: Option<Clock>,
}

/// The same of one queue pair.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Sends that were posted, and those of them that are done.
    posted: u32,
    sent: u32,
    /// Messages that have arrived.
    received: u32,
}

impl Lane {
    /// How many messages a peer that keeps to the rules can have sent by now.
    fn may_receive(&self, side: Side) -> u32 {
        match side {
            Side::Client => self.posted,
            Side::Server => self.posted.saturating_add(1),
        }
    }

    /// Whether the next message is this side's, and the memory of the last is free again.
    fn has_turn(&self, side: Side) -> bool {
        self.sent == self.posted && self.received == self.may_receive(side)
    }
}

impl<C: Carrier> Game<C> {
    /// Posts the receives: a peer may send as soon as it can.
    ///
    /// # Errors
    ///
    /// The device does not take them.
    pub fn new(resources: Resources, carrier: C, side: Side) -> Result<Self> {
        let rules = &resources.play;
        let size = resources.size as usize;
        let lanes = vec![Lane::default(); carrier.lanes()];
        let clock = if rules.ts {
            let device = resources.pd().device_context().query_device()?;
            Some(Clock::new(device.hca_core_clock(), device.completion_timestamp_mask()))
        } else {
            None
        };
        let mut game = Self {
            side,
            iterations: rules.iters,
            sent: 0,
            received: 0,
            receives: 0,
            free: (0..rules.rx_depth.into()).collect(),
            check: rules.chk.then(|| (Checker::new(side, size), vec![0; size])),
            clock,
            lanes,
            carrier,
            resources,
        };
        // What the C programs have in their buffer before the first message comes.
        for lane in 0..game.lanes.len() {
            game.resources.buffers.write(lane, &vec![0x7b; size])?;
        }
        game.post_receives()?;
        Ok(game)
    }

    /// The queue pairs.
    pub fn carrier_mut(&mut self) -> &mut C {
        &mut self.carrier
    }

    /// Sends and receives all messages. Where there is a connection of which the connection manager knows, it is noticed when the
    /// peer ends it.
    ///
    /// # Errors
    ///
    /// A sentence for the user: the peer plays by other rules, or has gone.
    pub fn play(&mut self, connection: Option<&Connection>) -> Result<Statistics> {
        let start = Instant::now();
        loop {
            self.post_sends()?;
            if self.received >= self.iterations && self.sent >= self.iterations {
                break;
            }
            self.wait(connection)?;
            // On each lane a message may be on its way.
            if self.receives as usize <= self.lanes.len() {
                self.post_receives()?;
            }
        }
        let time = start.elapsed();
        Ok(Statistics { iterations: self.iterations, size: self.resources.size, time, clock: self.clock })
    }

    /// Answers on every lane on which it is this side's turn.
    fn post_sends(&mut self) -> Result<()> {
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            if self.sent >= self.iterations || !lane.has_turn(self.side) {
                continue;
            }
            if let Some((_, message)) = &mut self.check {
                pattern::fill(message, self.side, lane.posted);
                self.resources.buffers.write(at, message)?;
            }
            let message = self.resources.buffers.outgoing(at);
            // SAFETY: the memory is registered, and dropped after the carrier. It is written only before a post, and `has_turn` has
            // seen the last send completed.
            unsafe { self.carrier.post_send(at, SEND, message) }?;
            lane.posted += 1;
        }
        Ok(())
    }

    /// Posts receives until `rx_depth` of them wait.
    fn post_receives(&mut self) -> Result<()> {
        let buffers = &self.resources.buffers;
        let mut receives = self.free.iter().map(|&place| (place << BITS | RECEIVE, buffers.incoming(place)));
        // SAFETY: the memory is registered, and dropped after the carrier. Nobody refers to it: it is copied from, after one message
        // and before the answer that lets the peer send the next. Should a peer not keep to that, the copy has bytes of two
        // messages, and bytes have no wrong values.
        unsafe { self.carrier.post_receives(&mut receives) }?;
        self.receives = self.resources.play.rx_depth;
        self.free.clear();
        Ok(())
    }

    /// Waits until something completes.
    fn wait(&mut self, connection: Option<&Connection>) -> Result<()> {
        let timeout = self.resources.play.timeout;
        let mut polls: u32 = 0;
        let mut deadline = None;
        let mut has_ended = false;
        while !self.poll()? {
            hint::spin_loop();
            polls = polls.wrapping_add(1);
            let sleeps = self.resources.channel.is_some();
            if !sleeps && !polls.is_multiple_of(PATIENCE) {
                continue;
            }
            let now = Instant::now();
            let end = *deadline.get_or_insert_with(|| timeout.0.and_then(|timeout| now.checked_add(timeout)));
            if end.is_some_and(|end| end <= now) {
                return Err(if has_ended { self.left() } else { self.stuck() });
            }
            if let Some(connection) = connection.filter(|_| !has_ended)
                && connection.ended()?.is_some()
            {
                // What the peer has sent before may be on its way up yet.
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

    /// Sleeps until the channel tells of a completion, or the connection of something; returns whether a completion was polled
    /// instead.
    fn sleep(&mut self, connection: Option<&Connection>, end: Option<Instant>) -> Result<bool> {
        let Some(channel) = self.resources.channel.clone() else { return Ok(false) };
        while channel.try_get_cq_event()?.is_some() {}
        self.resources.cq.req_notify(false)?;
        // What completed before the request raises no event. An event that comes though its completion was polled here does
        // no harm: the next sleep ends at once.
        if self.poll()? {
            return Ok(true);
        }
        match connection.map(Connection::event_channel) {
            Some(events) => wait_readable([channel.as_fd(), events.as_fd()], end),
            None => wait_readable([channel.as_fd()], end),
        }
        .context("waiting for the device")?;
        Ok(false)
    }

    /// Takes what has completed off the queue; whether there was anything.
    fn poll(&mut self) -> Result<bool> {
        let size = self.resources.size;
        let Resources { cq, buffers, .. } = &mut self.resources;
        let mut poller = match cq.start_poll() {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        while let Some(completion) = poller.next()? {
            let wr_id = completion.wr_id();
            let is_send = wr_id == SEND;
            if completion.status() != Status::Success {
                let what = if is_send { self.sent } else { self.received };
                bail!(
                    "{} message {} of {} failed: {}{}",
                    if is_send { "sending" } else { "receiving" },
                    what + 1,
                    self.iterations,
                    completion.status(),
                    advice(completion.status(), is_send, C::WAY)
                );
            }
            let at =
                self.carrier.lane(completion.qp_num()).context("a completion is of no queue pair of this program")?;
            let lane = self.lanes.get_mut(at).context("a completion is of no lane")?;
            if is_send {
                lane.sent += 1;
                self.sent += 1;
                continue;
            }
            let length = completion.byte_len().saturating_sub(C::HEADROOM);
            if completion.opcode() != Operation::Receive || length != size {
                bail!("the peer sent a message of {length} bytes and {size} were due: give both sides the same --size");
            }
            lane.received += 1;
            self.received += 1;
            self.receives = self.receives.saturating_sub(1);
            let place = wr_id >> BITS;
            self.free.push(place);
            if lane.received > lane.may_receive(self.side) {
                bail!(
                    "the peer sends out of turn: {} messages came, {} were due",
                    lane.received,
                    lane.may_receive(self.side)
                );
            }
            if self.carrier.awaits_peer() {
                let header = buffers.header(place)?;
                let header = GlobalRoutingHeader::from_prefix(&header).context("the header is too short")?;
                self.carrier.meet(&completion.source(), &header)?;
            }
            if let Some((checker, message)) = &mut self.check {
                buffers.read(place, message)?;
                checker.check(message, lane.received - 1)?;
            }
            if let (Some(clock), Ok(now)) = (&mut self.clock, completion.completion_timestamp()) {
                clock.tick(now);
            }
        }
        Ok(true)
    }

    #[cold]
    fn left(&self) -> anyhow::Error {
        let Self { iterations, received, sent, .. } = self;
        anyhow!(
            "the peer has ended the connection: {received} of {iterations} messages were received and {sent} are sent. Had it the \
             same --iters? Else see what it says"
        )
    }

    #[cold]
    fn stuck(&self) -> anyhow::Error {
        let Self { iterations, received, sent, .. } = self;
        let posted: u32 = self.lanes.iter().map(|lane| lane.posted).sum();
        let seconds = self.resources.play.timeout.0.unwrap_or(Duration::ZERO).as_secs_f64();
        let done = format!(
            "nothing completed for {seconds} s: {received} of {iterations} messages were received and {sent} of {posted} that \
             were posted are sent"
        );
        match C::UNRELIABLE {
            Some(loss) => anyhow!(
                "{done}; the peer's next message does not come. {loss} without a word, and then both sides wait in vain: start \
                 both anew. If it happens again: does the peer still run, with the same --size and --iters, and is it reached \
                 from {}?",
                C::WAY
            ),
            None => {
                let what = if posted == *sent {
                    "the peer's next message does not come"
                } else {
                    "the peer does not acknowledge the last one"
                };
                anyhow!("{done}; {what}. Does it still run, and with the same --iters?")
            }
        }
    }
}

/// What a user can do about a failed message.
#[cold]
fn advice(status: Status, is_send: bool, way: &str) -> String {
    match (status, is_send) {
        (Status::RetryExceededError, _) => {
            format!(": the peer does not answer; it has ended (has it the same --iters?), or is not reached from {way}")
        }
        // The soft-RoCE of some kernels has the second for both.
        (Status::LocalLengthError | Status::LocalQueuePairOperationError, false) => {
            ": perhaps the peer's messages are longer; give both sides the same --size".into()
        }
        (Status::RemoteInvalidRequestError | Status::RemoteOperationError, true) => {
            ": the peer could not take it; perhaps its --size is smaller, see what it says".into()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_begins_and_then_they_take_turns() {
        let lane = |posted, sent, received| Lane { posted, sent, received };
        for round in 0..3 {
            // Before the message of this round, while it is on its way, and when it has left.
            assert!(lane(round, round, round).has_turn(Side::Client));
            assert!(!lane(round + 1, round, round).has_turn(Side::Client));
            assert!(!lane(round + 1, round + 1, round).has_turn(Side::Client));
            // The answer may come before one's own message is known to have left, whose memory is not free until then.
            assert!(!lane(round + 1, round, round + 1).has_turn(Side::Client));

            assert!(!lane(round, round, round).has_turn(Side::Server));
            assert!(lane(round, round, round + 1).has_turn(Side::Server));
            assert!(!lane(round + 1, round, round + 1).has_turn(Side::Server));
            assert!(!lane(round + 1, round, round + 2).has_turn(Side::Server));
        }
    }

    #[test]
    fn who_sends_out_of_turn_is_found() {
        let lane = Lane { posted: 3, sent: 3, received: 3 };
        assert_eq!((lane.may_receive(Side::Client), lane.may_receive(Side::Server)), (3, 4));
    }
}
