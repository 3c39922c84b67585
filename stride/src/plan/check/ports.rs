//! Checks tests that run over several ports.

use super::{Contradiction, MOST_PORTS, refuse};
use crate::plan::{Measure, Plan, SideConfig};

impl Plan {
    /// Checks that queue pairs and threads divide equally among the ports of both sides.
    pub(super) fn check_ports(&self) -> Result<(), Contradiction> {
        let Self { workload, queues, attributes, placement, .. } = self;
        let (ours, theirs) = (placement.client.count(), placement.server.count());
        if ours != theirs {
            return refuse(format!(
                "the client has {ours} ports and the server {theirs}; give as many --remote-device and --remote-ib-port \
                  as --device and --ib-port, or one for all"
            ));
        }
        if ours == 1 {
            return Ok(());
        }
        if ours > MOST_PORTS {
            return refuse(format!("--device and --ib-port name {ours} ports; the limit is {MOST_PORTS}"));
        }
        if workload.measure != Measure::Bandwidth {
            return refuse("a latency test uses one port; give one --device and --ib-port, or measure `bw`");
        }
        if attributes.uses_rdma_cm {
            return refuse("--rdma-cm supports one port; leave it out, or give one --device and --ib-port");
        }
        let has_lid = |config: &SideConfig| config.dlid.is_some();
        if has_lid(&placement.client) || has_lid(&placement.server) {
            return refuse(
                "--dlid and --remote-dlid support one port; leave them out, or give one --device and --ib-port",
            );
        }
        let (ports, threads, pairs) = (self.ports(), queues.threads, queues.queue_pairs);
        if threads % ports != 0 {
            return refuse(format!(
                "--threads {threads} is not divisible by {ports} ports; give a multiple of {ports}, or leave it out"
            ));
        }
        if pairs % ports != 0 {
            return refuse(format!(
                "--qp-count {pairs}, the total of all ports, is not divisible by {ports}; give a multiple of {ports}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PortSelector, Queues, Semantics};

    fn refused(change: impl FnOnce(&mut Plan)) -> String {
        let mut plan = Plan { queues: Queues { threads: 2, queue_pairs: 4, ..Queues::default() }, ..Plan::default() };
        (plan.placement.client, plan.placement.server) =
            (plan.placement.client.spread(2), plan.placement.server.spread(2));
        change(&mut plan);
        plan.check().map_or_else(|contradiction| contradiction.0, |()| String::new())
    }

    #[test]
    fn threads_and_queue_pairs_must_divide_among_ports() {
        assert_eq!(refused(|_| ()), "");
        assert!(refused(|plan| plan.queues.threads = 3).starts_with("--threads 3 is not divisible by 2 ports"));
        assert!(refused(|plan| plan.queues.threads = 1).ends_with("give a multiple of 2, or leave it out"));
        assert!(refused(|plan| plan.queues.queue_pairs = 5).starts_with("--qp-count 5, the total of all ports"));
        let three = |plan: &mut Plan| plan.placement.server.others.push(PortSelector::default());
        assert!(refused(three).starts_with("the client has 2 ports and the server 3; "));
        let many = |plan: &mut Plan| {
            (plan.placement.client, plan.placement.server) =
                (SideConfig::default().spread(65), SideConfig::default().spread(65));
        };
        assert!(refused(many).contains("the limit is 64"));
    }

    #[test]
    fn single_port_options_are_rejected_with_several_ports() {
        let latency = |plan: &mut Plan| {
            (plan.workload.measure, plan.queues.threads, plan.queues.queue_pairs) =
                (Measure::Latency(Semantics::Oneway), 1, 1);
        };
        assert!(refused(latency).starts_with("a latency test uses one port"));
        assert!(refused(|plan| plan.attributes.uses_rdma_cm = true).starts_with("--rdma-cm supports one port"));
        assert!(
            refused(|plan| plan.placement.server.dlid = Some(5))
                .starts_with("--dlid and --remote-dlid support one port")
        );
    }

    #[test]
    fn mr_per_qp_requires_several_queue_pairs_per_port() {
        let own = |count| refused(|plan| (plan.placement.has_own_regions, plan.queues.queue_pairs) = (true, count));
        assert!(own(2).contains("the test has one on each of the 2 ports; give --qp-count"), "{}", own(2));
        assert_eq!(own(4), "");
    }

    #[test]
    fn every_port_is_checked() {
        assert_eq!(
            refused(|plan| plan.placement.server.others[0].port = Some(0)),
            "--ib-port is 0; ports are numbered from 1"
        );
        let nameless = refused(|plan| plan.placement.client.others[0].device = Some(String::new()));
        assert!(nameless.contains("is not the name of a device"), "{nameless}");
    }
}
