//! Runs the loop that a step requires.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Arrival, Bandwidth, Latency, Measure, Outcome, Queue, Step};
use crate::amount::Amount;
use crate::bandwidth::{Send, send};
use crate::latency::{Samples, Turns, Until, acknowledged, by_memory, by_receives};
use crate::qp_driver::Drive;
use crate::receive::{Opening, Receives, receive, take_count};
use crate::tsc::Tsc;

/// If no message arrives for this time after a side has sent its own last message, either the peer has ended too, or
/// its messages were lost.
const QUIET: Duration = Duration::from_millis(500);
/// Number of samples that are kept in memory if the number of messages is not known in advance. When the memory is
/// full, the samples move into a histogram.
const SAMPLES: usize = 16 << 20;

impl Step<'_> {
    /// Runs the loop of a side that sends.
    pub(super) fn measure<'q, D: Drive>(
        &self,
        qps: &mut [D],
        sends: &mut Queue<'q>,
        receives: &mut Receives<'_, Queue<'q>>,
    ) -> Result<Outcome> {
        match self.measure {
            Measure::Bandwidth(Bandwidth { interval, rate, burst, counts_sent, counts_arrivals }) => {
                let (depth, list) = (self.depth.into(), self.list);
                let rules = Send { amount: self.amount, depth, list, interval, rate, burst };
                let mut window = send(qps, sends, self.receives.then_some(&mut *receives), &rules, self.signal)?;
                if self.receives {
                    // Continues to receive, because the peer may not have sent all of its messages yet.
                    receive(receives, self.messages(), Some(QUIET), None, self.signal)?;
                }
                if counts_sent {
                    window.sent = Some(qps.iter().map(D::posted).sum());
                }
                if counts_arrivals {
                    window.arrived = self.receives.then_some(receives.taken);
                }
                Ok(Outcome::Window(window))
            }
            Measure::Latency(latency) => {
                let Some(qp) = qps.first_mut() else { return Ok(Outcome::Nothing) };
                let (turns, mut samples) = self.turns(&latency);
                match latency.arrival {
                    Arrival::Acknowledged => acknowledged(qp, sends, turns, &mut samples, self.signal)?,
                    Arrival::Received => by_receives(qp, sends, receives, turns, &mut samples, self.signal)?,
                    Arrival::Written => {
                        let last = |start: u64| std::ptr::with_exposed_provenance_mut((start + self.size - 1) as usize);
                        let bytes = (last(self.ends[0].outgoing), last(self.ends[0].incoming));
                        // SAFETY: the caller of `run` guarantees that both bytes are in memory that the processor can
                        // access. This thread is the only one of the process that accesses them.
                        unsafe { by_memory(qp, sends, bytes, turns, &mut samples, self.signal)? }
                    }
                }
                samples.end(self.signal);
                Ok(if latency.begins { Outcome::Times(samples) } else { Outcome::Nothing })
            }
        }
    }

    /// Runs the loop of a side that does not send. It receives, or waits until the peer has ended.
    pub(super) fn watch(&self, receives: &mut Receives<'_, Queue<'_>>) -> Result<Outcome> {
        match self.measure {
            _ if !self.receives => self.signal.wait(),
            Measure::Bandwidth(Bandwidth { counts_arrivals: true, interval, .. }) => {
                return take_count(receives, self.amount, interval, self.signal).map(Outcome::Window);
            }
            Measure::Bandwidth(_) => {
                let opening = Opening::new(self.amount, self.ends.len() as u64);
                receive(receives, self.messages(), None, Some(opening), self.signal)?;
                self.signal.close(Instant::now());
            }
            Measure::Latency(_) => receive(receives, self.messages(), None, None, self.signal)?,
        }
        Ok(Outcome::Nothing)
    }

    /// Returns the number of messages to expect.
    fn messages(&self) -> u64 {
        match self.amount {
            Amount::Messages { count, warm_up } => (count + warm_up) * self.ends.len() as u64,
            Amount::Time { .. } => u64::MAX,
        }
    }

    /// Returns how both sides send in turn, and memory for the samples of this side. Only the side that begins needs
    /// samples; the peer waits for its first message.
    fn turns(&self, latency: &Latency) -> (Turns, Samples) {
        let &Latency { begins, interval, loss_timeout, gap, .. } = latency;
        let (until, samples) = match self.amount {
            Amount::Messages { count, warm_up } => {
                let samples = if begins { Samples::new(count as usize, warm_up) } else { Samples::none() };
                (Until::Count(count + warm_up), samples)
            }
            Amount::Time { time, warm_up } => {
                // Memory is allocated before the time is read, because the allocation is not part of the test.
                let samples = if begins { Samples::new(SAMPLES, 0) } else { Samples::none() };
                let begin = Tsc::now().after(warm_up);
                (Until::Time(begin.after(time)), samples.from(begin))
            }
        };
        (Turns { begins, until, loss_timeout, gap }, samples.with_interval(interval))
    }
}
