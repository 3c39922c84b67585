//! Checks latency tests, endless tests and tests with GPU memory.

use std::time::Duration;

use super::{Contradiction, refuse};
use crate::plan::{Measure, Memory, Operation, Plan, RunLength, Semantics, SideConfig, Transport, time};

/// The longest pause that a user can request between two messages of a latency test.
const LONGEST_GAP: Duration = Duration::from_secs(10);

impl Plan {
    pub(super) fn check_latency(&self, semantics: Semantics) -> Result<(), Contradiction> {
        let Self { workload, queues, attributes, .. } = self;
        let counts = [
            ("--qp-count", queues.queue_pairs),
            ("--threads", queues.threads),
            ("--tx-depth", queues.tx_depth),
            ("--post-list", queues.post_list),
            ("--cq-mod", queues.cq_moderation),
        ];
        if let Some((option, _)) = counts.iter().find(|(_, count)| *count != 1) {
            return refuse(format!("a latency test has one message in flight, so {option} must be 1; leave it out"));
        }
        if workload.direction.is_reversed() {
            return refuse("--reversed applies to `bw` only; leave it out");
        }
        if workload.direction.is_both() {
            return refuse("--bidirectional applies to `bw` only; leave it out");
        }
        if workload.rate_limit.is_some() {
            return refuse("--rate-limit applies to `bw` only; leave it out");
        }
        if workload.operation.fetches() && semantics != Semantics::Ack {
            return refuse(format!(
                "--latency {semantics} requires a reply from the peer, and {} has only its completion; give --latency ack",
                workload.operation
            ));
        }
        if semantics == Semantics::Ack && !attributes.transport.is_reliable() {
            let service = attributes.transport.to_string();
            return refuse(format!(
                "--latency ack requires acknowledgements, which {service} does not have; give --latency oneway or rtt"
            ));
        }
        if self.polls_memory() && queues.sleeps_on_events {
            return refuse(
                "a plain write raises no event at the peer; leave out --events, or give --imm or --latency ack",
            );
        }
        Ok(())
    }

    /// Checks that `--validate` can verify the result by the contents of memory after the test.
    pub(super) fn check_validation(&self) -> Result<(), Contradiction> {
        let Self { workload, .. } = self;
        match (workload.operation, workload.amount) {
            _ if !workload.is_validated => Ok(()),
            (Operation::FetchAdd, RunLength::Time { .. }) => refuse(
                "--validate of --atomic fadd requires a fixed number of additions; give --iters or --atomic cswap, or \
                 leave it out",
            ),
            _ => Ok(()),
        }
    }

    pub(super) fn check_endless(&self) -> Result<(), Contradiction> {
        let Self { workload, .. } = self;
        if !workload.is_endless {
            return Ok(());
        }
        if workload.sizes.len() > 1 {
            return refuse("--duration forever supports one size; give one --msg-size");
        }
        if workload.is_validated {
            return refuse(
                "--validate compares memory at the end of a size, which --duration forever does not have; leave it out",
            );
        }
        if !matches!(workload.amount, RunLength::Time { .. }) {
            return refuse("--duration forever conflicts with --iters; leave out --iters");
        }
        Ok(())
    }

    pub(super) fn check_gap(&self) -> Result<(), Contradiction> {
        let Self { workload, attributes, sampling, .. } = self;
        let Some(gap) = workload.gap else { return Ok(()) };
        if workload.measure == Measure::Bandwidth {
            return refuse("--gap applies to `lat` only; leave it out, or use --rate-limit");
        }
        if gap < Duration::from_micros(1) || gap > LONGEST_GAP {
            return refuse(format!("--gap is {}; it can be 1us to {}", time::show(gap), time::show(LONGEST_GAP)));
        }
        if !attributes.transport.is_reliable() && gap >= sampling.timeout {
            return refuse(format!(
                "--gap {} is not below --timeout {}, after which a message over {} counts as lost; give a longer --timeout",
                time::show(gap),
                time::show(sampling.timeout),
                attributes.transport
            ));
        }
        Ok(())
    }

    pub(super) fn check_memory(&self) -> Result<(), Contradiction> {
        let Self { workload, queues, attributes, placement, .. } = self;
        if placement.has_own_regions && queues.queue_pairs <= self.ports() {
            let per_port = match self.ports() {
                1 => String::new(),
                ports => format!(" on each of the {ports} ports"),
            };
            return refuse(format!(
                "--mr-per-qp requires several queue pairs, and the test has one{per_port}; give --qp-count, or leave it out"
            ));
        }
        let on_gpu = |config: &SideConfig| matches!(config.memory, Some(Memory::Cuda(_)));
        let (ours, theirs) = (on_gpu(&placement.client), on_gpu(&placement.server));
        if self.polls_memory() && (ours || theirs) {
            let Measure::Latency(semantics) = workload.measure else { return Ok(()) };
            return refuse(format!(
                "--latency {semantics} of a plain write polls memory, which the processor cannot do with --use-cuda; \
                 give --imm, or --latency ack"
            ));
        }
        // The server's user may have chosen a GPU that the client does not name, so only memory that is known to be
        // host memory is an error.
        let is_host = |config: &SideConfig| config.memory.as_ref().is_some_and(|memory| memory.cuda().is_none());
        if placement.client.gpu_registration.is_some() && !ours
            || placement.server.gpu_registration.is_some() && is_host(&placement.server)
        {
            return refuse("--gpu-registration requires GPU memory; give --use-cuda as well, or leave it out");
        }
        if placement.is_on_demand && (ours || theirs) {
            return refuse("--odp and --use-cuda conflict; give one of them");
        }
        let Some(inline @ 1..) = queues.inline else { return Ok(()) };
        if workload.operation.fetches() {
            return refuse(format!(
                "--inline {inline} applies to operations that send data, and {} does not; leave it out",
                workload.operation
            ));
        }
        if attributes.transport == Transport::Srd
            && !matches!(workload.operation, Operation::Send | Operation::SendWithImmediate)
        {
            return refuse(format!(
                "--inline {inline}: over SRD, devices support inline data in sends only; leave it out, or measure `send`"
            ));
        }
        if ours && self.client_sends() || theirs && self.server_sends() {
            return refuse(format!(
                "--inline {inline} conflicts with --use-cuda: the processor cannot read GPU memory; give --inline 0"
            ));
        }
        Ok(())
    }
}
