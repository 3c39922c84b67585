//! Runs the loop that the plan requires for one size.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Outcome, Step};
use crate::endpoint::Role;
use crate::plan::{Measure, Plan, RunLength, Semantics};
use crate::run::{
    Gap, ListQueue, LossTimeout, Opening, Poll, QpDriver, Receives, Request, Samples, Send, Tsc, Turns, Until,
    acknowledged, by_memory, by_receives, length, receive, send, take_count,
};

/// If no message arrives for this time after a side has sent its own last message, either the peer has ended too, or
/// its messages were lost.
const QUIET: Duration = Duration::from_millis(500);
/// Number of samples that are kept in memory if the number of messages is not known in advance. When the memory is
/// full, the samples move into a histogram.
const SAMPLES: usize = 16 << 20;

impl Step<'_> {
    pub(super) fn measure<S, R, C>(
        &self,
        qps: &mut [QpDriver<'_, S, R>],
        sends: &mut C,
        receives: &mut Receives<'_, C>,
        (is_sending, is_receiving): (bool, bool),
    ) -> Result<Outcome>
    where
        S: ListQueue,
        R: Request<Service = S::Service>,
        C: Poll,
    {
        match self.plan.workload.measure {
            Measure::Bandwidth if is_sending => {
                let rules = Send {
                    amount: self.plan.workload.amount,
                    depth: self.plan.queues.tx_depth.into(),
                    list: self.plan.queues.post_list,
                    interval: self.plan.interval_kept(),
                    rate: self.rate(),
                    burst: self.plan.workload.burst_size.unwrap_or(1),
                };
                let mut window = send(qps, sends, is_receiving.then_some(&mut *receives), &rules, self.signal)?;
                if is_receiving {
                    // Continues to receive, because the peer may not have sent all of its messages yet.
                    receive(receives, self.messages(), Some(QUIET), None, self.signal)?;
                }
                if self.plan.counts_arrivals() {
                    window.sent = Some(qps.iter().map(|qp| qp.posted).sum());
                    window.arrived = is_receiving.then_some(receives.taken);
                } else if self.plan.looks_for_arrivals() {
                    window.sent = Some(qps.iter().map(|qp| qp.posted).sum());
                }
                Ok(Outcome::Window(window))
            }
            Measure::Bandwidth if is_receiving && self.plan.counts_arrivals() => {
                take_count(receives, self.plan.workload.amount, self.plan.interval_kept(), self.signal)
                    .map(Outcome::Window)
            }
            Measure::Bandwidth if is_receiving => {
                let opening = Opening::new(self.plan.workload.amount, self.places.len() as u64);
                receive(receives, self.messages(), None, Some(opening), self.signal)?;
                self.signal.close(Instant::now());
                Ok(Outcome::Nothing)
            }
            Measure::Latency(semantics) => self.time(semantics, qps, sends, receives, is_sending),
            Measure::Bandwidth => Ok(self.wait()),
        }
    }

    /// Returns the part of the rate limit that applies to this thread, in messages per second.
    fn rate(&self) -> Option<f64> {
        let bytes = self.plan.workload.rate_limit? * 1e9 / 8.0;
        Some(bytes / self.size.max(1) as f64 / f64::from(self.plan.queues.threads.max(1)))
    }

    /// Returns the number of messages to expect.
    fn messages(&self) -> u64 {
        match self.plan.workload.amount {
            RunLength::Messages { count, warm_up } => (count + warm_up) * self.places.len() as u64,
            RunLength::Time { .. } => u64::MAX,
        }
    }

    fn time<S, R, C>(
        &self,
        semantics: Semantics,
        qps: &mut [QpDriver<'_, S, R>],
        sends: &mut C,
        receives: &mut Receives<'_, C>,
        is_sending: bool,
    ) -> Result<Outcome>
    where
        S: ListQueue,
        R: Request<Service = S::Service>,
        C: Poll,
    {
        let Some(qp) = qps.first_mut() else { return Ok(Outcome::Nothing) };
        let begins = self.role == Role::Client;
        let (until, samples) = match self.plan.workload.amount {
            RunLength::Messages { count, warm_up } => {
                let samples = if begins { Samples::new(count as usize, warm_up) } else { Samples::none() };
                (Until::Count(count + warm_up), samples)
            }
            RunLength::Time { time, warm_up } => {
                // Memory is allocated before the time is read, because the allocation is not part of the test. Only the
                // side that begins needs samples; the peer waits for its first message.
                let samples = if begins { Samples::new(SAMPLES, 0) } else { Samples::none() };
                let begin = Tsc::now().after(warm_up);
                (Until::Time(begin.after(time)), samples.from(begin))
            }
        };
        let mut samples = samples.with_interval(length(self.plan));
        let Plan { workload, queues, attributes, sampling, .. } = self.plan;
        let (service, most, gap, sleeps) =
            (attributes.transport, sampling.timeout, workload.gap, queues.sleeps_on_events);
        let loss_timeout = (!service.is_reliable()).then_some(LossTimeout { most, service });
        let turns = Turns { begins, until, loss_timeout, gap: gap.map(|length| Gap { length, sleeps }) };
        if semantics == Semantics::Ack || self.plan.workload.operation.fetches() {
            if !is_sending {
                if self.plan.workload.operation.takes_receive() {
                    receive(receives, self.messages(), None, None, self.signal)?;
                    return Ok(Outcome::Nothing);
                }
                return Ok(self.wait());
            }
            acknowledged(qp, sends, turns, &mut samples, self.signal)?;
        } else if self.plan.workload.operation.takes_receive() {
            by_receives(qp, sends, receives, turns, &mut samples, self.signal)?;
        } else {
            ensure!(self.is_host, "the processor cannot poll GPU memory; give --imm, or --latency ack");
            let (outgoing, incoming) = self.places[0];
            let last = |start: u64| std::ptr::with_exposed_provenance_mut((start + self.size - 1) as usize);
            // SAFETY: both bytes lie within the memory, which is host memory, and this thread is the only one of the
            // process that accesses them.
            unsafe {
                by_memory(qp, sends, (last(outgoing), last(incoming)), turns, &mut samples, self.signal)?;
            }
        }
        samples.end(self.signal);
        Ok(if begins { Outcome::Times(samples) } else { Outcome::Nothing })
    }

    /// Waits until the peer has ended.
    fn wait(&self) -> Outcome {
        self.signal.wait();
        Outcome::Nothing
    }
}
