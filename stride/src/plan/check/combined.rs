//! What a latency cannot have, nor a test without an end, and what cannot be done in the memory of a GPU.

use std::time::Duration;

use super::{Contradiction, refuse};
use crate::plan::{Measure, Memory, Operation, Plan, RunLength, Semantics, SideConfig, Transport, time};

/// The longest pause between two messages of a latency.
const LONGEST_GAP: Duration = Duration::from_secs(10);

impl Plan {
    pub(super) fn check_latency(&self, semantics: Semantics) -> Result<(), Contradiction> {
        let counts = [
            ("--qp-count", self.queues.queue_pairs),
            ("--threads", self.queues.threads),
            ("--tx-depth", self.queues.tx_depth),
            ("--post-list", self.queues.post_list),
            ("--cq-mod", self.queues.cq_moderation),
        ];
        if let Some((option, _)) = counts.iter().find(|(_, count)| *count != 1) {
            return refuse(format!("a latency is of one message at a time, and {option} has to be 1: leave it out"));
        }
        if self.workload.direction.is_reversed() {
            return refuse("--reversed is for `bw`: a latency is of the client's messages, leave it out");
        }
        if self.workload.direction.is_both() {
            return refuse("--bidirectional is for `bw`: a latency has one message at a time, leave it out");
        }
        if self.workload.rate_limit.is_some() {
            return refuse("--rate-limit is for `bw`: leave it out");
        }
        if self.workload.operation.fetches() && semantics != Semantics::Ack {
            return refuse(format!(
                "--latency {semantics} needs an answer of the other side's, and {} has none but its completion: give --latency ack",
                self.workload.operation
            ));
        }
        if semantics == Semantics::Ack && !self.attributes.transport.is_reliable() {
            let service = self.attributes.transport.to_string();
            return refuse(format!(
                "--latency ack needs acknowledgements, which {service} has not: give --latency oneway or rtt"
            ));
        }
        if self.polls_memory() && self.queues.sleeps_on_events {
            return refuse(
                "a plain write raises no event at the other side: leave out --events, or give --imm or --latency ack",
            );
        }
        Ok(())
    }

    /// Whether what was done can be told from memory.
    pub(super) fn check_validation(&self) -> Result<(), Contradiction> {
        match (self.workload.operation, self.workload.amount) {
            _ if !self.workload.is_validated => Ok(()),
            (Operation::FetchAdd, RunLength::Time { .. }) => refuse(
                "--validate compares the sum of --atomic fadd with the number of additions, which --duration leaves open: give --iters or --atomic \
                 cswap, or leave it out",
            ),
            _ => Ok(()),
        }
    }

    pub(super) fn check_endless(&self) -> Result<(), Contradiction> {
        if !self.workload.is_endless {
            return Ok(());
        }
        if self.workload.sizes.len() > 1 {
            return refuse("--duration forever is of one size, after which no other comes: give one --msg-size");
        }
        if self.workload.is_validated {
            return refuse(
                "--validate looks at memory after a whole size, and --duration forever has no end of its own: leave it out",
            );
        }
        if !matches!(self.workload.amount, RunLength::Time { .. }) {
            return refuse("--duration forever has no number of messages: leave out --iters");
        }
        Ok(())
    }

    pub(super) fn check_gap(&self) -> Result<(), Contradiction> {
        let Some(gap) = self.workload.gap else { return Ok(()) };
        if self.workload.measure == Measure::Bandwidth {
            return refuse("--gap is for `lat`: a bandwidth has no pauses but those of --rate-limit, leave it out");
        }
        if gap < Duration::from_micros(1) || gap > LONGEST_GAP {
            return refuse(format!("--gap is {}: it can be 1us to {}", time::show(gap), time::show(LONGEST_GAP)));
        }
        if !self.attributes.transport.is_reliable() && gap >= self.sampling.timeout {
            return refuse(format!(
                "--gap {} is not below --timeout {}, after which a message over {} counts as lost: give a longer --timeout",
                time::show(gap),
                time::show(self.sampling.timeout),
                self.attributes.transport
            ));
        }
        Ok(())
    }

    pub(super) fn check_memory(&self) -> Result<(), Contradiction> {
        if self.placement.has_own_regions && self.queues.queue_pairs <= self.ports() {
            let whose = match self.ports() {
                1 => String::new(),
                ports => format!(" at each of the {ports} ports"),
            };
            return refuse(format!(
                "--mr-per-qp is for several queue pairs, and there is one{whose}, which has its own regions: give --qp-count, or leave it out"
            ));
        }
        let on_gpu = |place: &SideConfig| matches!(place.memory, Some(Memory::Cuda(_)));
        let (ours, theirs) = (on_gpu(&self.placement.client), on_gpu(&self.placement.server));
        if self.polls_memory() && (ours || theirs) {
            let Measure::Latency(semantics) = self.workload.measure else { return Ok(()) };
            return refuse(format!(
                "--latency {semantics} of a plain write watches memory with the processor, which --use-cuda does not let it: give --imm, \
                 or --latency ack"
            ));
        }
        // The server may have a GPU that its client does not name.
        let is_host = |place: &SideConfig| place.memory.as_ref().is_some_and(|memory| memory.cuda().is_none());
        if self.placement.client.gpu_registration.is_some() && !ours
            || self.placement.server.gpu_registration.is_some() && is_host(&self.placement.server)
        {
            return refuse(
                "--gpu-registration is of the memory of a GPU, and the messages lie in the host's: give --use-cuda as well, or leave it out",
            );
        }
        if self.placement.is_on_demand && (ours || theirs) {
            return refuse("--odp is for pages of the host, and --use-cuda is of a GPU: give one of them");
        }
        let Some(inline @ 1..) = self.queues.inline else { return Ok(()) };
        if self.workload.operation.fetches() {
            return refuse(format!(
                "--inline {inline} is for data that is sent, and {} sends none: leave it out",
                self.workload.operation
            ));
        }
        if self.attributes.transport == Transport::Srd
            && !matches!(self.workload.operation, Operation::Send | Operation::SendWithImmediate)
        {
            return refuse(format!(
                "--inline {inline}: over SRD devices take data in the request with a send alone: leave it out, or measure `send`"
            ));
        }
        if ours && self.client_sends() || theirs && self.server_sends() {
            return refuse(format!(
                "--inline {inline} has the processor read the data, which --use-cuda does not let it: give --inline 0"
            ));
        }
        Ok(())
    }
}
