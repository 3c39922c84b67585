//! The messages to and fro.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sideway::ibverbs::completion::{
    CompletionQueue, PollCompletionQueueError, WorkCompletionOperationType as Operation, WorkCompletionStatus as Status,
};

use super::pattern::{self, Checker, Side};
use super::statistics::{Clock, Statistics};
use super::{Endpoint, Link};
use crate::exchange::Address;

/// What requests are known by in the lower bits of their numbers; the C programs have the same. Above them stands where the
/// message of a receive is.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const BITS: u32 = 2;

/// After so many polls in vain it is time to look at the clock, and to let another program run.
const PATIENCE: u32 = 1024;

/// The state of the game: the client sends first, and each side answers what it has received.
#[derive(Debug)]
pub(super) struct Game<L> {
    // Dropped before the memory that its requests name, which is in the endpoint.
    link: L,
    endpoint: Endpoint,
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

impl<L: Link> Game<L> {
    /// Posts the receives.
    pub(super) fn new(endpoint: Endpoint, link: L) -> Result<Self> {
        let rules = &endpoint.play;
        let side = if endpoint.place.server.is_some() { Side::Client } else { Side::Server };
        let size = endpoint.size as usize;
        let lanes = vec![Lane::default(); link.addresses().len()];
        let clock = if rules.ts {
            let device = endpoint.port().context().query_device()?;
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
            link,
            endpoint,
        };
        // What the C programs have in their buffer before the first message comes.
        for lane in 0..game.lanes.len() {
            game.endpoint.buffers.write(lane, &vec![0x7b; size])?;
        }
        game.post_receives()?;
        Ok(game)
    }

    /// Connects the queue pairs with those of the peer.
    pub(super) fn connect(&mut self, remotes: &[Address]) -> Result<()> {
        self.link.connect(&self.endpoint, remotes)
    }

    /// Sends and receives all messages.
    pub(super) fn play(&mut self) -> Result<Statistics> {
        let start = Instant::now();
        loop {
            self.post_sends()?;
            if self.received >= self.iterations && self.sent >= self.iterations {
                break;
            }
            self.wait()?;
            // On each lane a message may be on its way.
            if self.receives as usize <= self.lanes.len() {
                self.post_receives()?;
            }
        }
        let time = start.elapsed();
        Ok(Statistics { iterations: self.iterations, size: self.endpoint.size, time, clock: self.clock })
    }

    /// Answers on every lane on which it is this side's turn.
    fn post_sends(&mut self) -> Result<()> {
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            if self.sent >= self.iterations || !lane.has_turn(self.side) {
                continue;
            }
            if let Some((_, message)) = &mut self.check {
                pattern::fill(message, self.side, lane.posted);
                self.endpoint.buffers.write(at, message)?;
            }
            let message = self.endpoint.buffers.outgoing(at);
            // SAFETY: the memory is registered, and dropped after the link. It is written only before a post, and `has_turn` has
            // seen the last send completed.
            unsafe { self.link.post_send(at, SEND, message) }?;
            lane.posted += 1;
        }
        Ok(())
    }

    /// Posts receives until `rx_depth` of them wait.
    fn post_receives(&mut self) -> Result<()> {
        let buffers = &self.endpoint.buffers;
        let mut receives = self.free.iter().map(|&place| (place << BITS | RECEIVE, buffers.incoming(place)));
        // SAFETY: the memory is registered, and dropped after the link. Nobody refers to it: it is copied from, after one message
        // and before the answer that lets the peer send the next. Should a peer not keep to that, the copy has bytes of two
        // messages, and bytes have no wrong values.
        unsafe { self.link.post_receives(&mut receives) }?;
        self.receives = self.endpoint.play.rx_depth;
        self.free.clear();
        Ok(())
    }

    /// Waits until something completes.
    fn wait(&mut self) -> Result<()> {
        let timeout = self.endpoint.play.timeout;
        let mut polls: u32 = 0;
        let mut deadline = None;
        while !self.poll()? {
            if self.endpoint.channel.is_some() {
                if self.sleep()? {
                    return Ok(());
                }
                continue;
            }
            hint::spin_loop();
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(PATIENCE) {
                let now = Instant::now();
                let end = *deadline.get_or_insert_with(|| timeout.0.and_then(|timeout| now.checked_add(timeout)));
                if end.is_some_and(|end| end <= now) {
                    return Err(self.stuck());
                }
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// Sleeps until the channel tells of a completion; returns whether one was polled instead.
    fn sleep(&mut self) -> Result<bool> {
        self.endpoint.cq.req_notify(false)?;
        // What completed before the request raises no event. An event that comes though its completion was polled here does
        // no harm: the next sleep ends at once.
        if self.poll()? {
            return Ok(true);
        }
        let Some(channel) = &self.endpoint.channel else { return Ok(false) };
        match channel.get_cq_event(self.endpoint.play.timeout.0) {
            Ok(_) => Ok(false),
            Err(error) if error.errno().raw() == libc::ETIMEDOUT => Err(self.stuck()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes what has completed off the queue; whether there was anything.
    fn poll(&mut self) -> Result<bool> {
        let size = self.endpoint.size;
        let Endpoint { cq, buffers, .. } = &mut self.endpoint;
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
                    advice(completion.status(), is_send)
                );
            }
            let at = self.link.lane(completion.qp_num()).context("a completion is of no queue pair of this program")?;
            let lane = self.lanes.get_mut(at).context("a completion is of no lane")?;
            if is_send {
                lane.sent += 1;
                self.sent += 1;
                continue;
            }
            let length = completion.byte_len().saturating_sub(L::HEADROOM);
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
    fn stuck(&self) -> anyhow::Error {
        let Self { iterations, received, sent, .. } = self;
        let posted: u32 = self.lanes.iter().map(|lane| lane.posted).sum();
        let seconds = self.endpoint.play.timeout.0.unwrap_or(Duration::ZERO).as_secs_f64();
        let done = format!(
            "nothing completed for {seconds} s: {received} of {iterations} messages were received and {sent} of {posted} that \
             were posted are sent"
        );
        match L::UNRELIABLE {
            Some(loss) => anyhow!(
                "{done}; the peer's next message does not come. {loss} without a word, and then both sides wait in vain: start \
                 both anew. If it happens again: does the peer still run, with the same --size and --iters, and is it reached \
                 from this GID (-g)?"
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
fn advice(status: Status, is_send: bool) -> &'static str {
    match (status, is_send) {
        (Status::RetryExceededError, _) => {
            ": the peer does not answer; it has ended (has it the same --iters?), or is not reached from this GID (-g)"
        }
        // The soft-RoCE of some kernels has the second for both.
        (Status::LocalLengthError | Status::LocalQueuePairOperationError, false) => {
            ": perhaps the peer's messages are longer; give both sides the same --size"
        }
        (Status::RemoteInvalidRequestError | Status::RemoteOperationError, true) => {
            ": the peer could not take it; perhaps its --size is smaller, see what it says"
        }
        _ => "",
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
