//! What a thread of a side has: queue pairs, their completion queues, and memory.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::memory::{Areas, Source};
use super::pairs::Pairs;
use crate::endpoint::{Intake, QpAddress};
use crate::plan::Plan;
use crate::run::{Bell, Failed};

/// Bytes in front of a datagram that has come.
pub(super) const HEADROOM: u64 = 40;
const PAGE: u64 = 4096;

/// What a thread has. Queue pairs go before what they use.
pub(super) struct WorkerResources {
    pub(super) pairs: Pairs,
    pub(super) sends: GenericCompletionQueue,
    pub(super) receives: GenericCompletionQueue,
    /// What wakes the thread, where it sleeps.
    pub(super) bell: Option<Bell>,
    pub(super) memory: Areas,
    /// The other side's, in the same order.
    pub(super) theirs: Vec<QpAddress>,
    /// How the other side's port is addressed, in sentences.
    pub(super) there: String,
    /// Messages of up to so many bytes are inline.
    pub(super) inline: u32,
    /// Receives of each queue pair that are to be posted.
    pub(super) unposted: Vec<u32>,
    /// Requests of each that were posted in the step.
    pub(super) posted: Vec<u64>,
    /// Some of them were not done when the step ended.
    pub(super) has_under_way: bool,
}

impl WorkerResources {
    /// Of the thread of this index, with so many queue pairs.
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        source: &Source,
        thread: u32,
        count: u32,
    ) -> Result<Self> {
        let context = pd.device_context();
        let largest = plan.workload.sizes.iter().copied().max().unwrap_or(1);
        let room = (largest.max(PAGE) + HEADROOM).next_multiple_of(PAGE);
        let memory = Areas::new(pd, plan, source, room, count)?;
        let bell = plan.queues.sleeps_on_events.then(|| Bell::new(context)).transpose()?;
        let queue = |number: usize, depth: u32| {
            let mut builder = context.create_cq_builder();
            builder.setup_cqe(depth.saturating_mul(count).max(1)).setup_cq_context(number);
            if let Some(bell) = &bell {
                // Threads that sleep are woken by interrupts of their own, as far as the device has so many.
                builder.setup_comp_channel(bell.channel(), thread % context.num_comp_vectors().max(1));
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
            bell,
            memory,
            theirs: Vec::new(),
            there: String::new(),
            inline,
            unposted: vec![depth; count as usize],
            posted: vec![0; count as usize],
            has_under_way: false,
        })
    }

    /// Who is at the other end of a queue pair of which a request failed.
    pub(super) fn peer(&self, failed: &Failed) -> Option<String> {
        let end = self.theirs.get(failed.lane)?;
        let number = match end.intake {
            Some(Intake::Xrc { number, .. } | Intake::Dc { number, .. }) if !failed.is_receive => number,
            _ => end.number,
        };
        Some(format!("queue pair {number:#x}{}", self.there))
    }

    /// Bytes that a receive has room for: the largest message, as those of a size before may still wait.
    pub(super) fn room(&self) -> u32 {
        // Of 2 GiB at most, as messages are.
        u32::try_from(self.memory.room).unwrap_or(u32::MAX)
    }
}

/// How the other side's port is addressed, in sentences: there is no GID where LIDs alone lead.
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

    /// Two sides, connected, of which the client has been told of the server's ends otherwise; with the ends of both.
    fn connected(
        client: &Plan,
        server: &Plan,
        change: impl FnOnce(&mut [QpAddress]),
    ) -> ([VerbsEndpoint; 2], [PeerInfo; 2]) {
        let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
        let mut sides = [(client, Role::Client), (server, Role::Server)]
            .map(|(plan, role)| VerbsEndpoint::open(plan, &plan.placement.client, role).unwrap());
        let [near, far] = [0, 1].map(|side| sides[side].create_queue_pairs(&path).unwrap());
        let mut told = far.clone();
        change(&mut told.queue_pairs);
        sides[1].connect(&path, &near).unwrap();
        sides[0].connect(&path, &told).unwrap();
        (sides, [near, far])
    }

    fn plan(operation: Operation, transport: Transport, size: u64) -> Plan {
        let place = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
        let amount = RunLength::Messages { count: 10, warm_up: 0 };
        let plan = Plan {
            workload: Workload { operation, amount, sizes: vec![size], ..Workload::default() },
            attributes: QpAttributes { transport, ..QpAttributes::default() },
            queues: Queues { queue_pairs: 3, ..Queues::default() },
            ..Plan::default()
        };
        Plan { placement: Placement { client: place.clone(), server: place, ..plan.placement }, ..plan }
    }

    #[test]
    fn a_request_that_fails_names_both_ends_of_its_connection() {
        for transport in [Transport::Rc, Transport::Xrc] {
            let plan = plan(Operation::Write, transport, 8);
            let ([mut client, mut server], [near, far]) = connected(&plan, &plan, |ends| ends[2].rkey ^= 0x5555);
            server.prepare(8).unwrap();
            client.prepare(8).unwrap();
            let said = format!("{:#}", client.run(8, None, &mut |_| true).unwrap_err());
            let (ours, theirs) = (near.queue_pairs[2].number, &far.queue_pairs[2]);
            let theirs = match theirs.intake {
                Some(Intake::Xrc { number, .. }) => number,
                _ => theirs.number,
            };
            let gid = far.gid.unwrap();
            let start = format!(
                "a request on queue pair {ours:#x} to queue pair {theirs:#x} at GID {gid} failed: remote access"
            );
            assert!(said.starts_with(&start) && said.contains("refused the access"), "{said}");
        }
    }

    #[test]
    fn a_receive_that_fails_names_them_too() {
        let [large, small] = [1 << 20, 8].map(|size| plan(Operation::Send, Transport::Rc, size));
        let ([mut client, mut server], [near, far]) = connected(&large, &small, |_| ());
        server.prepare(8).unwrap();
        client.prepare(1 << 20).unwrap();
        client.run(1 << 20, None, &mut |_| true).unwrap_err();
        let said = format!("{:#}", server.run(8, None, &mut |_| true).unwrap_err());
        let is_of = |lane: usize| {
            let (ours, theirs) = (far.queue_pairs[lane].number, near.queue_pairs[lane].number);
            said.starts_with(&format!("a receive on queue pair {ours:#x} from queue pair {theirs:#x} at GID "))
        };
        assert!((0..3).any(is_of) && said.contains(" failed: "), "{said}");
    }

    #[test]
    fn a_port_is_addressed_by_its_gid_or_its_lid() {
        assert_eq!(at(Some("fe80::1"), 7), " at GID fe80::1");
        assert_eq!(at(None, 7), " at LID 7");
        assert_eq!(at(None, 0), "");
    }
}
