//! The header of the table: what is measured, and between which ports.

use crate::endpoint::{Path, PortInfo};
use crate::plan::{LARGE, Measure, Plan};
use crate::report;

/// Returns the header of the table, which contains what is measured and between which ports.
pub(super) fn head(plan: &Plan, client: &PortInfo, server: &PortInfo, path: &Path) -> String {
    let what = match plan.workload.measure {
        Measure::Bandwidth if plan.workload.direction.is_both() => "bandwidth, bidirectional".to_owned(),
        Measure::Bandwidth if plan.workload.direction.is_reversed() => "bandwidth, sent by the server".to_owned(),
        Measure::Bandwidth => "bandwidth".to_owned(),
        Measure::Latency(semantics) => format!("latency ({semantics})"),
    };
    let port = |port_info: &PortInfo, gid: Option<u32>| {
        let found = port_info.gids.iter().find(|fact| Some(fact.index) == gid);
        let gid = match found {
            // The GID is left out, because librdmacm chooses it.
            _ if plan.attributes.uses_rdma_cm => String::new(),
            None => format!(", LID {}", port_info.lid),
            Some(fact) => format!(", GID {} ({}, {})", fact.index, fact.gid, fact.kind),
        };
        let memory = port_info.gpu.as_ref().zip(port_info.registration);
        let memory =
            memory.map_or_else(String::new, |(gpu, registration)| format!(", memory of {gpu} ({registration})"));
        let partition = port_info.partition.filter(|partition| partition.index > 0);
        let partition = partition.map_or_else(String::new, |partition| format!(", {partition}"));
        let lid = port_info.dlid.map_or_else(String::new, |lid| format!(", to LID {lid}"));
        let node = report::bound(port_info);
        format!("{} on {}{gid}{lid}{partition}{memory}{node}", port_info.name(), port_info.host)
    };
    // The inline size is only shown for a side that sends data. A side that requests reads or atomics sends none.
    let inline = |port_info: &PortInfo, sends: bool| {
        let inline = port_info.inline.filter(|_| sends && !plan.workload.operation.fetches());
        inline.map_or_else(String::new, |bytes| match bytes {
            0 => ", none inline".to_owned(),
            bytes => format!(", up to {bytes} bytes inline"),
        })
    };
    // Each port has a line of its own.
    let side = |port_info: &PortInfo, gid: fn(&Path) -> Option<u32>, sends: bool| {
        let ports = port_info.all().zip(path.all());
        let ports =
            ports.map(|(port_info, path)| format!("{}{}", port(port_info, gid(path)), inline(port_info, sends)));
        ports.collect::<Vec<_>>().join("\n          ")
    };
    let mut mtus: Vec<_> = path.all().map(|path| path.mtu.to_string()).collect();
    mtus.dedup();
    let pairs = match (plan.queues.queue_pairs, plan.ports()) {
        (1, _) => "1 queue pair".to_owned(),
        (count, 1) => format!("{count} queue pairs"),
        (count, ports) => format!("{count} queue pairs, {} on each of {ports} ports", count / ports),
    };
    let way = match plan.attributes.address {
        _ if !plan.attributes.uses_rdma_cm => String::new(),
        Some(address) => format!(", by address {address}"),
        None => ", by address".to_owned(),
    };
    let transport = plan.attributes.transport;
    let transport = if client.is_iwarp() { format!("{transport} over iWARP") } else { transport.to_string() };
    let queues = match plan.workload.measure {
        Measure::Bandwidth => {
            format!(", -t {} -l {} {}", plan.queues.tx_depth, plan.queues.post_list, completions(plan))
        }
        // The queue depth is left out, because only one message is in flight at a time.
        Measure::Latency(_) => String::new(),
    };
    format!(
        "{} {what}, {}, {pairs}, MTU {}{way}{queues}\n  client: {}\n  server: {}\n",
        plan.workload.operation,
        transport,
        mtus.join(" and "),
        side(client, |path| path.client_gid, plan.client_sends()),
        side(server, |path| path.server_gid, plan.server_sends())
    )
}

/// Returns a text that contains how often completions are requested, for all sizes.
fn completions(plan: &Plan) -> String {
    let all = |is: fn(&u64) -> bool| plan.workload.sizes.iter().all(is);
    match plan.queues.cq_moderation {
        _ if plan.queues.is_each_large_signaled && all(|size| *size > LARGE) => "-Q 1".to_owned(),
        every if plan.queues.is_each_large_signaled && !all(|size| *size <= LARGE) => {
            format!("-Q {every}, above {} -Q 1", report::bytes(LARGE))
        }
        every => format!("-Q {every}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::fake::Fake;
    use crate::endpoint::{EndpointFactory, Role};
    use crate::plan::{Direction, Operation, Placement, Queues, SideConfig, Workload};

    fn line_of(change: impl FnOnce(&mut Plan)) -> String {
        let mut plan = Plan::default();
        change(&mut plan);
        let side = Fake::default().open(&Plan::default(), &SideConfig::default(), Role::Client).expect("a fake one");
        let gid = side.port_info().gids.first().map(|fact| fact.index);
        head(
            &plan,
            side.port_info(),
            side.port_info(),
            &Path { client_gid: gid, server_gid: gid, mtu: 1024, others: Vec::new() },
        )
    }

    #[test]
    fn header_describes_the_test() {
        let head = line_of(|_| {});
        assert!(head.contains(", RC, 1 queue pair, MTU 1024, -t 128 -l 1 -Q 1\n"), "{head}");
        assert_eq!(head.matches(", GID ").count(), 2, "{head}");
        assert!(line_of(|plan| plan.queues.queue_pairs = 3).contains(" 3 queue pairs,"));
    }

    #[test]
    fn header_has_a_line_per_port() {
        let config = SideConfig { device: Some("mlx4_0".to_owned()), ..SideConfig::default() };
        let mut config = config.spread(2);
        config.others[0].port = Some(2);
        let plan = Plan {
            queues: Queues { queue_pairs: 4, threads: 2, ..Queues::default() },
            placement: Placement { client: config.clone(), server: config, ..Placement::default() },
            ..Plan::default()
        };
        let side = |config: &SideConfig| Fake::default().open(&plan, config, Role::Client).unwrap().port_info().clone();
        let (client, server) = (side(&plan.placement.client), side(&plan.placement.server));
        let way = |client_gid, mtu| Path { client_gid, server_gid: Some(3), mtu, others: Vec::new() };
        let path = Path { others: vec![way(Some(2), 1024)], ..way(Some(3), 4096) };
        let head = head(&plan, &client, &server, &path);
        let lines: Vec<_> = head.lines().collect();
        assert!(lines[0].contains(", RC, 4 queue pairs, 2 on each of 2 ports, MTU 4096 and 1024, -t "), "{head}");
        for (line, beginning) in [
            "  client: mlx4_0 port 1 on fake, Linux, GID 3 ",
            "          mlx4_0 port 2 on fake, Linux, GID 2 ",
            "  server: mlx4_0 port 1 on ",
            "          mlx4_0 port 2 on ",
        ]
        .into_iter()
        .enumerate()
        {
            assert!(lines[line + 1].starts_with(beginning), "{head}");
        }
    }

    #[test]
    fn header_has_the_moderation_of_all_sizes() {
        let found = |sizes: &[u64], by_size| {
            let head = line_of(|plan| {
                (plan.workload.sizes, plan.queues.cq_moderation, plan.queues.is_each_large_signaled) =
                    (sizes.to_vec(), 100, by_size);
            });
            head.lines().next().and_then(|line| line.split_once(" -l 1 ")).map(|(_, found)| found.to_owned()).unwrap()
        };
        assert_eq!(found(&[64, 8192], true), "-Q 100");
        assert_eq!(found(&[64, 8193], true), "-Q 100, above 8 KiB -Q 1");
        assert_eq!(found(&[8193], true), "-Q 1");
        assert_eq!(found(&[8193], false), "-Q 100");
    }

    #[test]
    fn header_has_inline_sizes_of_senders() {
        let port_info =
            Fake::default().open(&Plan::default(), &SideConfig::default(), Role::Client).unwrap().port_info().clone();
        let bound = PortInfo { inline: Some(220), is_bound: true, numa_node: Some(1), ..port_info.clone() };
        let none = PortInfo { inline: Some(0), ..port_info };
        let path = Path { client_gid: None, server_gid: None, mtu: 1024, others: Vec::new() };
        let lines = |plan: &Plan| head(plan, &bound, &none, &path).lines().map(str::to_owned).collect::<Vec<_>>();
        let both = lines(&Plan {
            workload: Workload { direction: Direction::Both, ..Workload::default() },
            ..Plan::default()
        });
        assert!(both[1].ends_with(", threads on NUMA node 1, up to 220 bytes inline"), "{both:?}");
        assert!(both[2].ends_with(", LID 0, none inline"), "{both:?}");
        let one = lines(&Plan::default());
        assert!(one[1].ends_with(" inline") && one[2].ends_with(", LID 0"), "{one:?}");
        let read = lines(&Plan {
            workload: Workload { operation: Operation::Read, ..Workload::default() },
            ..Plan::default()
        });
        assert!(read[1].ends_with(", threads on NUMA node 1"), "{read:?}");
    }

    #[test]
    fn header_omits_gids_with_rdma_cm() {
        let head =
            line_of(|plan| (plan.attributes.uses_rdma_cm, plan.attributes.address) = (true, "192.0.2.7".parse().ok()));
        assert!(head.contains(", by address 192.0.2.7, -t ") && !head.contains("GID"), "{head}");
    }
}
