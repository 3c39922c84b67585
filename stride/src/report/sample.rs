//! Sample values for tests.

use std::time::{Duration, UNIX_EPOCH};

use super::{Environment, Row};
use crate::endpoint::{Changes, Counted, GidInfo, Partition, Path, PortInfo};
use crate::plan::{Measure, Memory, Placement, Plan, Queues, RunLength, Semantics, SideConfig, Workload};
use crate::stats::{Bandwidth, Figures, Latency};

/// A row with `messages` messages in one second, in four intervals.
pub(crate) fn bandwidth_row(size: u64, messages: u64) -> Row {
    let intervals = [9, 10, 11, 10].map(|share| messages * share / 40).to_vec();
    let bandwidth =
        Bandwidth { messages, seconds: 1.0, intervals, interval: 0.25, cpu: Some(1.0), ..Bandwidth::default() };
    Row::new(size, Figures::Bandwidth(bandwidth))
}

/// Returns a row of a test over two ports. The first port has a quarter of the messages.
pub(crate) fn ports_row(size: u64, messages: u64) -> Row {
    let mut row = bandwidth_row(size, messages);
    let of = |messages| bandwidth_row(size, messages).bandwidth().cloned().unwrap_or_default();
    if let Figures::Bandwidth(bandwidth) = &mut row.figures {
        bandwidth.ports = vec![of(messages / 4), of(messages - messages / 4)];
    }
    row
}

/// Returns a row with a thousand samples between `nanoseconds` and twice that value.
pub(crate) fn latency_row(size: u64, nanoseconds: u64) -> Row {
    let ticks = (0..1000).map(|i| nanoseconds + nanoseconds * i / 1000);
    let latency = Latency::of(ticks, 1.0, Semantics::Rtt).unwrap();
    Row::new(size, Figures::Latency(latency))
}

/// Returns counter changes of the client. The server has no counters, so its field is empty.
pub(super) fn counted() -> Counted {
    let changes = [("counters/symbol_error", 0), ("hw_counters/out_of_buffer", -6)];
    Counted {
        client: Some(Changes(changes.map(|(name, change)| (name.to_owned(), Some(change))).into())),
        server: None,
    }
}

pub(crate) fn plan(measure: Measure) -> Plan {
    Plan {
        workload: Workload {
            measure,
            sizes: vec![64, 4096],
            amount: RunLength::Time { time: Duration::from_secs(1), warm_up: Duration::from_millis(100) },
            ..Workload::default()
        },
        queues: Queues { cq_moderation: 100, ..Queues::default() },
        placement: Placement {
            server: SideConfig { memory: Some(Memory::Cuda("0".to_owned())), ..SideConfig::default() },
            ..Placement::default()
        },
        ..Plan::default()
    }
}

pub(super) fn port_info(host: &str) -> PortInfo {
    PortInfo {
        version: "0.5.0".to_owned(),
        host: host.to_owned(),
        kernel: "Linux 6.1.0".to_owned(),
        machine: host.to_owned(),
        cpu_model: "AMD EPYC 9354 32-Core Processor".to_owned(),
        cpu_governor: "performance".to_owned(),
        device: "mlx5_0".to_owned(),
        provider: "mlx5".to_owned(),
        firmware: "28.39.1002".to_owned(),
        vendor_id: 0x02c9,
        vendor_part_id: 4129,
        port: 1,
        link_layer: "Ethernet".to_owned(),
        gigabits: Some(400.0),
        mtu: 4096,
        longest: None,
        lid: 0,
        dlid: None,
        partition: Some(Partition { index: 0, key: 0xffff }),
        gids: vec![GidInfo {
            index: 3,
            gid: "::ffff:10.0.0.1".to_owned(),
            kind: "RoCE v2".to_owned(),
            interface: "eth0".to_owned(),
            prefix: Some(24),
        }],
        memory: Memory::Host,
        gpu: None,
        registration: None,
        numa_node: Some(0),
        cpus: vec![2],
        thread_nodes: vec![0],
        near_cpus: "0-7".to_owned(),
        is_bound: false,
        reads: [16, 16],
        inline: Some(220),
        others: Vec::new(),
    }
}

pub(super) fn path() -> Path {
    Path { client_gid: Some(3), server_gid: Some(3), mtu: 4096, others: Vec::new() }
}

pub(crate) fn environment(measure: Measure) -> Environment {
    let command_line = ["stride-perf", "write", "bw", "server, one"].map(str::to_owned).to_vec();
    let time = UNIX_EPOCH + Duration::from_secs(1_782_907_200);
    Environment::new(time, command_line, plan(measure), path(), ["one", "two"].map(port_info))
}

/// Changes the environment to that of a test over two ports, which are on two devices of the server.
pub(super) fn over_two_ports(mut environment: Environment) -> Environment {
    let Environment { plan, path, client, server, .. } = &mut environment;
    (plan.queues.queue_pairs, plan.queues.threads) = (2, 2);
    (plan.placement.client, plan.placement.server) =
        (plan.placement.client.clone().spread(2), plan.placement.server.clone().spread(2));
    path.others = vec![Path { client_gid: Some(5), ..path.clone() }];
    client.others = vec![PortInfo { port: 2, ..client.clone() }];
    server.others = vec![PortInfo { device: "mlx5_1".to_owned(), numa_node: Some(1), ..server.clone() }];
    environment
}

/// Returns the text that `write` writes.
pub(crate) fn written(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}
