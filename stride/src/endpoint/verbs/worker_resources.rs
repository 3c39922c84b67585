//! The resources of a worker thread: queue pairs, completion queues and memory.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use stride_run::{CompletionEvents, Failed};

use super::memory::{Areas, Source};
use super::pairs::Pairs;
use crate::endpoint::{Intake, QpAddress};
use crate::plan::Plan;

/// Number of bytes for the GRH, which precedes each received datagram in memory.
pub(super) const HEADROOM: u64 = 40;
const PAGE: u64 = 4096;

/// The resources of a worker thread. Queue pairs are dropped before the resources that they use.
pub(super) struct WorkerResources {
    pub(super) pairs: Pairs,
    pub(super) sends: GenericCompletionQueue,
    pub(super) receives: GenericCompletionQueue,
    /// The completion events, if the thread sleeps until an event.
    pub(super) events: Option<CompletionEvents>,
    pub(super) memory: Areas,
    /// The addresses of the peer's queue pairs, in the same order as those of this side.
    pub(super) theirs: Vec<QpAddress>,
    /// The peer's address, which error texts contain.
    pub(super) there: String,
    /// Size of the largest message that is sent inline.
    pub(super) inline: u32,
    /// For each queue pair, how many receives still have to be posted.
    pub(super) unposted: Vec<u32>,
    /// For each queue pair, how many requests were posted in this step.
    pub(super) posted: Vec<u64>,
    /// Whether requests were still in flight when the step ended.
    pub(super) has_in_flight: bool,
}

impl WorkerResources {
    /// Creates the resources of the thread with the index `thread`, which has `count` queue pairs.
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        source: &Source,
        thread: u32,
        count: u32,
    ) -> Result<Self> {
        let context = pd.device_context();
        let largest = plan.workload.sizes.iter().copied().max().unwrap_or(1);
        let slot_size = (largest.max(PAGE) + HEADROOM).next_multiple_of(PAGE);
        let memory = Areas::new(pd, plan, source, slot_size, count)?;
        let events = plan.queues.sleeps_on_events.then(|| CompletionEvents::new(context)).transpose()?;
        let queue = |number: usize, depth: u32| {
            let mut builder = context.create_cq_builder();
            builder.setup_cqe(depth.saturating_mul(count).max(1)).setup_cq_context(number);
            if let Some(events) = &events {
                // Distributes the threads among the completion vectors of the device, so that each thread has an
                // interrupt of its own if possible.
                builder.setup_comp_channel(events.channel(), thread % context.num_comp_vectors().max(1));
            }
            builder.build_generic()
        };
        let sends = queue(0, plan.queues.tx_depth + 1)
            .context("--tx-depth and --qp-count: the completion queue of a thread")?;
        let depth = plan.receives();
        let receives = queue(1, depth).context("--rx-depth and --qp-count: the completion queue of a thread")?;
        let (pairs, inline) = Pairs::new(pd, plan, (&sends, &receives), count, source.is_host())?;
        Ok(Self {
            pairs,
            sends,
            receives,
            events,
            memory,
            theirs: Vec::new(),
            there: String::new(),
            inline,
            unposted: vec![depth; count as usize],
            posted: vec![0; count as usize],
            has_in_flight: false,
        })
    }

    /// Describes the remote queue pair of a failed request, if it is known.
    pub(super) fn peer(&self, failed: &Failed) -> Option<String> {
        let end = self.theirs.get(failed.qp)?;
        let number = match end.intake {
            Some(Intake::Xrc { number, .. } | Intake::Dc { number, .. }) if !failed.is_receive => number,
            _ => end.number,
        };
        Some(format!("queue pair {number:#x}{}", self.there))
    }

    /// Returns the size of each receive in bytes. A receive has the size of the largest message, because receives that
    /// were posted for an earlier message size may remain.
    pub(super) fn slot_size(&self) -> u32 {
        // The conversion is lossless, because the longest message has 2 GiB.
        u32::try_from(self.memory.slot_size).unwrap_or(u32::MAX)
    }
}

/// Formats the peer's address, for error texts. There is no GID if only LIDs are used.
pub(super) fn at(gid: Option<&str>, lid: u16) -> String {
    match (gid, lid) {
        (Some(gid), _) => format!(" at GID {gid}"),
        (None, 0) => String::new(),
        (None, lid) => format!(" at LID {lid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::verbs::endpoint::VerbsEndpoint;
    use crate::endpoint::{Endpoint, Path, PeerInfo, Role};
    use crate::plan::{Operation, Placement, QpAttributes, Queues, RunLength, SideConfig, Transport, Workload};

    /// Returns two connected sides and the addresses of both. The client has received the addresses of the server after
    /// `change` has changed them.
    fn connected(
        client: &Plan,
        server: &Plan,
        change: impl FnOnce(&mut [QpAddress]),
    ) -> ([VerbsEndpoint; 2], [PeerInfo; 2]) {
        let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
        let mut sides = [(client, Role::Client), (server, Role::Server)]
            .map(|(plan, role)| VerbsEndpoint::open(plan, &plan.placement.client, role).unwrap());
        let [near, far] = [0, 1].map(|side| sides[side].create_queue_pairs(&path).unwrap());
        let mut changed = far.clone();
        change(&mut changed.queue_pairs);
        sides[1].connect(&path, &near).unwrap();
        sides[0].connect(&path, &changed).unwrap();
        (sides, [near, far])
    }

    fn plan(operation: Operation, transport: Transport, size: u64) -> Plan {
        let config = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
        let amount = RunLength::Messages { count: 10, warm_up: 0 };
        let plan = Plan {
            workload: Workload { operation, amount, sizes: vec![size], ..Workload::default() },
            attributes: QpAttributes { transport, ..QpAttributes::default() },
            queues: Queues { queue_pairs: 3, ..Queues::default() },
            ..Plan::default()
        };
        Plan { placement: Placement { client: config.clone(), server: config, ..plan.placement }, ..plan }
    }

    #[test]
    fn failed_request_names_both_queue_pairs() {
        for transport in [Transport::Rc, Transport::Xrc] {
            let plan = plan(Operation::Write, transport, 8);
            let ([mut client, mut server], [near, far]) = connected(&plan, &plan, |ends| ends[2].rkey ^= 0x5555);
            server.prepare(8).unwrap();
            client.prepare(8).unwrap();
            let error = format!("{:#}", client.run(8, None, &mut |_| true).unwrap_err());
            let (ours, theirs) = (near.queue_pairs[2].number, &far.queue_pairs[2]);
            let theirs = match theirs.intake {
                Some(Intake::Xrc { number, .. }) => number,
                _ => theirs.number,
            };
            let gid = far.gid.unwrap();
            let start = format!(
                "a request on queue pair {ours:#x} to queue pair {theirs:#x} at GID {gid} failed: remote access"
            );
            assert!(error.starts_with(&start) && error.contains("refused the access"), "{error}");
        }
    }

    #[test]
    fn failed_receive_names_both_queue_pairs() {
        let [large, small] = [1 << 20, 8].map(|size| plan(Operation::Send, Transport::Rc, size));
        let ([mut client, mut server], [near, far]) = connected(&large, &small, |_| ());
        server.prepare(8).unwrap();
        client.prepare(1 << 20).unwrap();
        client.run(1 << 20, None, &mut |_| true).unwrap_err();
        let error = format!("{:#}", server.run(8, None, &mut |_| true).unwrap_err());
        let is_of = |qp: usize| {
            let (ours, theirs) = (far.queue_pairs[qp].number, near.queue_pairs[qp].number);
            error.starts_with(&format!("a receive on queue pair {ours:#x} from queue pair {theirs:#x} at GID "))
        };
        assert!((0..3).any(is_of) && error.contains(" failed: "), "{error}");
    }

    #[test]
    fn peer_address_is_gid_or_lid() {
        assert_eq!(at(Some("fe80::1"), 7), " at GID fe80::1");
        assert_eq!(at(None, 7), " at LID 7");
        assert_eq!(at(None, 0), "");
    }
}
