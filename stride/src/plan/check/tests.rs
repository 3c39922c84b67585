use super::*;
use crate::plan::{Direction, GpuRegistration, QpAttributes, Workload};

fn complaint(change: impl FnOnce(&mut Plan)) -> String {
    let mut plan = Plan::default();
    change(&mut plan);
    plan.check().map_or_else(|contradiction| contradiction.0, |()| String::new())
}

fn latency(change: impl FnOnce(&mut Plan)) -> String {
    complaint(|plan| {
        plan.workload.measure = Measure::Latency(Semantics::Oneway);
        (plan.queues.tx_depth, plan.queues.cq_moderation) = (1, 1);
        change(plan);
    })
}

#[test]
fn default_plans_are_valid() {
    assert_eq!(complaint(|_| ()), "");
    assert_eq!(latency(|_| ()), "");
}

#[test]
fn numbers_out_of_range_are_rejected() {
    type Case = (&'static str, fn(&mut Plan));
    let cases: [Case; 18] = [
        ("--qp-count is 0", |plan| plan.queues.queue_pairs = 0),
        ("--threads is 0", |plan| (plan.queues.queue_pairs, plan.queues.threads) = (0, 0)),
        ("--threads is 0", |plan| plan.queues.threads = 0),
        ("--tx-depth is 65537", |plan| plan.queues.tx_depth = 65537),
        ("--rx-depth is 0", |plan| plan.queues.rx_depth = 0),
        ("--post-list is 0", |plan| plan.queues.post_list = 0),
        ("--recv-post-list is 513; it can be 1 to 512", |plan| {
            (plan.queues.receive_list, plan.workload.operation) = (Some(513), Operation::Send)
        }),
        ("--cq-mod is 0", |plan| plan.queues.cq_moderation = 0),
        ("--qp-timeout is 32", |plan| plan.attributes.qp_timeout = 32),
        ("--sl is 16", |plan| plan.attributes.service_level = 16),
        ("--flow-label is 1048576", |plan| plan.attributes.flow_label = 1 << 20),
        ("--dlid is 0", |plan| plan.placement.client.dlid = Some(0)),
        ("--dlid is 49152", |plan| plan.placement.server.dlid = Some(0xc000)),
        ("--mtu is 1500", |plan| plan.attributes.mtu = Some(1500)),
        ("--msg-size is 0", |plan| plan.workload.sizes = vec![0]),
        ("--iters is 0", |plan| plan.workload.amount = RunLength::Messages { count: 0, warm_up: 0 }),
        ("--duration is 0s", |plan| {
            plan.workload.amount = RunLength::Time { time: Duration::ZERO, warm_up: Duration::ZERO }
        }),
        ("--interval is 0s", |plan| plan.sampling.interval = Some(Duration::ZERO)),
    ];
    for (start, change) in cases {
        let error = complaint(change);
        assert!(error.starts_with(start), "{error}");
        assert!(error.contains("it can be"), "{error}");
    }
    assert!(complaint(|plan| plan.queues.receive_list = Some(16)).contains("write does not"));
}

#[test]
fn queue_depths_must_be_consistent() {
    assert!(complaint(|plan| plan.queues.threads = 2).contains("give --qp-count 2 or more"));
    assert!(complaint(|plan| plan.queues.post_list = 129).contains("give --tx-depth 129 or more"));
    assert!(complaint(|plan| plan.queues.cq_moderation = 129).contains("give --cq-mod 128 or less"));
    let queues = |list, every, depth| {
        complaint(|plan| {
            (plan.queues.post_list, plan.queues.cq_moderation, plan.queues.tx_depth) = (list, every, depth)
        })
    };
    // When 64 unsignaled requests are in the queue, it has no space for another list.
    assert!(queues(64, 100, 100).contains("give --tx-depth 160 or more, or --cq-mod 64"));
    for (list, every, depth) in [(64, 100, 160), (64, 64, 64), (64, 32, 64), (32, 64, 64), (1, 100, 100)] {
        assert_eq!(queues(list, every, depth), "");
    }
    assert!(complaint(|plan| plan.workload.rate_limit = Some(f64::NAN)).contains("--rate-limit"));
}

#[test]
fn transport_limits_operations_and_sizes() {
    assert!(complaint(|plan| plan.attributes.transport = Transport::Ud).contains("measure `send`"));
    let read =
        |plan: &mut Plan| (plan.workload.operation, plan.attributes.transport) = (Operation::Read, Transport::Uc);
    assert_eq!(complaint(read), "--transport uc does not support read; give --transport rc");
    let large =
        |plan: &mut Plan| (plan.workload.operation, plan.attributes.transport) = (Operation::Send, Transport::Ud);
    assert!(complaint(large).contains("give --msg-size 4096 or less"));
    assert!(complaint(|plan| plan.workload.operation = Operation::FetchAdd).contains("eight bytes"));
    assert!(
        complaint(|plan| (plan.placement.is_on_demand, plan.attributes.transport) = (true, Transport::Dc))
            .contains("leave it out")
    );
    let datagram = Plan {
        workload: Workload { operation: Operation::Send, sizes: vec![2048], ..Workload::default() },
        attributes: QpAttributes { transport: Transport::Ud, ..QpAttributes::default() },
        ..Plan::default()
    };
    assert_eq!(datagram.check(), Ok(()));
    assert!(datagram.check_limits(PathLimits { mtu: 1024, longest: None }, NAMED).is_err());
}

#[test]
fn srd_has_its_own_limits() {
    let srd = |operation, size| Plan {
        workload: Workload { operation, sizes: vec![size], ..Workload::default() },
        attributes: QpAttributes { transport: Transport::Srd, ..QpAttributes::default() },
        ..Plan::default()
    };
    let refused =
        |plan: &Plan, longest| plan.check_limits(PathLimits { mtu: 4096, longest }, SWEPT).err().map(|why| why.0);
    for operation in [Operation::Write, Operation::Read, Operation::Send, Operation::WriteWithImmediate] {
        assert_eq!(srd(operation, 1 << 20).check(), Ok(()), "a device may support this size");
        assert_eq!(refused(&srd(operation, 8928), Some(8928)), None);
        let why = format!(
            "a {operation} over SRD holds at most 8928 bytes on this path, and the largest message has 8929; give --max-msg-size 8928 or less"
        );
        assert_eq!(refused(&srd(operation, 8929), Some(8928)), Some(why));
    }
    let atomic =
        |plan: &mut Plan| (plan.workload.operation, plan.attributes.transport) = (Operation::FetchAdd, Transport::Srd);
    assert!(complaint(atomic).starts_with("--transport srd does not support fetch-and-add; measure another operation"));
    let moderated = |plan: &mut Plan| (plan.queues.cq_moderation, plan.attributes.transport) = (2, Transport::Srd);
    assert!(complaint(moderated).contains("--cq-mod must be 1"));
    let inline = |operation| {
        complaint(|plan| {
            (plan.workload.operation, plan.queues.inline, plan.attributes.transport) =
                (operation, Some(16), Transport::Srd)
        })
    };
    assert!(inline(Operation::Write).contains("measure `send`"));
    assert_eq!(inline(Operation::Send), "");
    assert!(
        complaint(|plan| (plan.placement.is_on_demand, plan.attributes.transport) = (true, Transport::Srd))
            .contains("over SRD")
    );
}

#[test]
fn unordered_transport_polls_one_packet_only() {
    let watched = |operation, semantics, size| {
        latency(|plan| {
            (plan.workload.operation, plan.workload.measure, plan.workload.sizes) =
                (operation, Measure::Latency(semantics), vec![size]);
            plan.attributes.transport = Transport::Srd;
        })
    };
    for semantics in [Semantics::Oneway, Semantics::Rtt] {
        assert_eq!(watched(Operation::Write, semantics, 4096), "");
        let why = watched(Operation::Write, semantics, 4097);
        assert!(why.contains("give --msg-size 4096 or less, or --imm, or --latency ack"), "{why}");
        assert_eq!(watched(Operation::WriteWithImmediate, semantics, 4097), "");
    }
    assert_eq!(watched(Operation::Write, Semantics::Ack, 4097), "");
}

#[test]
fn latency_test_rejects_bandwidth_options() {
    assert!(latency(|plan| plan.queues.queue_pairs = 2).contains("--qp-count must be 1"));
    assert!(latency(|plan| plan.workload.direction = Direction::Both).contains("--bidirectional"));
    assert!(latency(|plan| plan.workload.rate_limit = Some(1.0)).contains("--rate-limit"));
    assert!(latency(|plan| plan.workload.operation = Operation::Read).contains("--latency ack"));
    assert!(latency(|plan| plan.queues.sleeps_on_events = true).contains("--imm"));
    let ack = |plan: &mut Plan| {
        (plan.workload.measure, plan.attributes.transport) = (Measure::Latency(Semantics::Ack), Transport::Uc)
    };
    assert!(latency(ack).contains("--latency oneway"));
    let ack = |plan: &mut Plan| {
        (plan.workload.measure, plan.attributes.transport) = (Measure::Latency(Semantics::Ack), Transport::Xrc)
    };
    assert_eq!(latency(ack), "");
}

#[test]
fn gpu_memory_rejects_polling_and_inline() {
    let gpu = || Some(Memory::Cuda("0".to_owned()));
    assert!(latency(|plan| plan.placement.client.memory = gpu()).contains("give --imm"));
    assert!(latency(|plan| plan.placement.server.memory = gpu()).contains("give --imm"));
    let imm = |plan: &mut Plan| {
        (plan.placement.client.memory, plan.workload.operation) = (gpu(), Operation::WriteWithImmediate)
    };
    assert_eq!(latency(imm), "");
    assert!(
        complaint(|plan| (plan.placement.server.memory, plan.placement.is_on_demand) = (gpu(), true)).contains("--odp")
    );
    let way = Some(GpuRegistration::DmaBuf);
    assert!(complaint(|plan| plan.placement.client.gpu_registration = way).contains("give --use-cuda as well"));
    assert_eq!(complaint(|plan| plan.placement.server.gpu_registration = way), "");
    let huge = |plan: &mut Plan| {
        (plan.placement.server.gpu_registration, plan.placement.server.memory) = (way, Some(Memory::HugePages))
    };
    assert!(complaint(huge).contains("give --use-cuda as well"));
    assert_eq!(
        complaint(|plan| (plan.placement.client.gpu_registration, plan.placement.client.memory) = (way, gpu())),
        ""
    );
    assert_eq!(complaint(|plan| plan.placement.is_on_demand = true), "");
    assert!(
        complaint(|plan| (plan.placement.client.memory, plan.queues.inline) = (gpu(), Some(64))).contains("--inline 0")
    );
    assert_eq!(complaint(|plan| (plan.placement.server.memory, plan.queues.inline) = (gpu(), Some(64))), "");
    assert_eq!(complaint(|plan| (plan.placement.client.memory, plan.queues.inline) = (gpu(), Some(0))), "");
    assert!(
        complaint(|plan| (plan.workload.operation, plan.queues.inline) = (Operation::Read, Some(64)))
            .contains("does not")
    );
}

#[test]
fn fetch_and_add_validation_requires_a_count() {
    let of = |operation, amount| {
        complaint(|plan| {
            (plan.workload.operation, plan.workload.amount, plan.workload.is_validated) = (operation, amount, true);
            if operation.is_atomic() {
                plan.workload.sizes = vec![8];
            }
        })
    };
    let time = RunLength::Time { time: Duration::from_secs(1), warm_up: Duration::ZERO };
    let count = RunLength::Messages { count: 100, warm_up: 0 };
    assert!(of(Operation::FetchAdd, time).contains("give --iters"));
    for (operation, amount) in [
        (Operation::FetchAdd, count),
        (Operation::CompareSwap, count),
        (Operation::CompareSwap, time),
        (Operation::Write, time),
        (Operation::Read, time),
    ] {
        assert_eq!(of(operation, amount), "");
    }
}

#[test]
fn rdma_cm_rejects_explicit_paths() {
    assert_eq!(complaint(|plan| plan.attributes.uses_rdma_cm = true), "");
    let index = |plan: &mut Plan| (plan.attributes.uses_rdma_cm, plan.placement.server.gid_index) = (true, Some(1));
    assert!(complaint(index).contains("conflict with --rdma-cm, which selects GIDs"));
    assert_eq!(complaint(|plan| (plan.attributes.uses_rdma_cm, plan.attributes.flow_label) = (true, 7)), "");
    for of_hand in [
        SideConfig { pkey_index: Some(0), ..SideConfig::default() },
        SideConfig { dlid: Some(1), ..SideConfig::default() },
    ] {
        assert_eq!(complaint(|plan| plan.placement.server = of_hand.clone()), "");
        let error = complaint(|plan| (plan.attributes.uses_rdma_cm, plan.placement.server) = (true, of_hand.clone()));
        assert!(error.contains("conflict with --rdma-cm"), "{error}");
    }
    assert_eq!(
        complaint(|plan| (plan.attributes.uses_rdma_cm, plan.attributes.transport) = (true, Transport::Xrc)),
        ""
    );
    for transport in [Transport::Dc, Transport::Srd] {
        let refused = complaint(|plan| (plan.attributes.uses_rdma_cm, plan.attributes.transport) = (true, transport));
        assert!(refused.contains("give --transport rc"), "{refused}");
        assert_eq!(complaint(|plan| plan.attributes.transport = transport), "");
    }
}

#[test]
fn burst_size_requires_a_rate_limit() {
    let burst = |size, list, rate_limit| {
        complaint(|plan| {
            (plan.workload.burst_size, plan.queues.post_list, plan.workload.rate_limit) = (Some(size), list, rate_limit)
        })
    };
    assert!(burst(10, 1, None).contains("give --rate-limit as well"));
    assert!(burst(0, 1, Some(1.0)).starts_with("--burst-size is 0; it can be 1 to "));
    assert!(burst(10, 4, Some(1.0)).contains("give a multiple of 4"));
    for (size, list) in [(1, 1), (10, 1), (1000, 1), (12, 4)] {
        assert_eq!(burst(size, list, Some(1.0)), "");
    }
}

#[test]
fn gap_applies_to_latency_tests_only() {
    let gap = |time| move |plan: &mut Plan| plan.workload.gap = Some(time);
    assert!(complaint(gap(Duration::from_micros(5))).starts_with("--gap applies to `lat` only"));
    assert_eq!(latency(gap(Duration::from_micros(5))), "");
    for wrong in [Duration::ZERO, Duration::from_nanos(999), Duration::from_secs(11)] {
        assert!(latency(gap(wrong)).contains("; it can be 1us to 10s"), "{wrong:?}");
    }
    let lost = |timeout| {
        latency(|plan| {
            (plan.workload.gap, plan.sampling.timeout) = (Some(Duration::from_secs(5)), Duration::from_secs(timeout));
            (plan.workload.operation, plan.attributes.transport) = (Operation::Send, Transport::Uc);
        })
    };
    assert!(lost(5).contains("give a longer --timeout"));
    assert_eq!(lost(6), "");
}

#[test]
fn mr_per_qp_requires_several_queue_pairs() {
    let own = |count| complaint(|plan| (plan.placement.has_own_regions, plan.queues.queue_pairs) = (true, count));
    assert!(own(1).contains("give --qp-count"));
    assert_eq!(own(2), "");
}

#[test]
fn endless_test_requires_one_size() {
    let endless = |change: fn(&mut Plan)| {
        complaint(|plan| {
            (plan.workload.is_endless, plan.workload.amount) =
                (true, RunLength::Time { time: LONGEST, warm_up: Duration::ZERO });
            change(plan);
        })
    };
    assert_eq!(endless(|plan| plan.sampling.interval = Some(Duration::from_millis(1))), "");
    assert!(endless(|plan| plan.workload.sizes = vec![2, 64]).contains("give one --msg-size"));
    assert!(endless(|plan| plan.workload.is_validated = true).starts_with("--validate compares memory"));
    assert!(endless(|plan| plan.workload.amount = Plan::default().workload.amount).contains("leave out --iters"));
}

#[test]
fn invalid_counter_names_are_rejected() {
    let of = |names: &[&str]| {
        complaint(|plan| plan.sampling.counters = names.iter().map(|name| (*name).to_owned()).collect())
    };
    assert!(of(&["all", "x"]).contains("leave out the other names"));
    assert!(of(&["x", ""]).starts_with("--counters \"\" is not a counter's name"));
    assert!(of(&["x".repeat(129).as_str()]).contains("is not a counter's name"));
    assert!(of(&["x"; 257]).contains("give --counters all"));
    assert_eq!(of(&["all"]), "");
    assert_eq!(of(&["port_xmit_data", "hw_counters/out_of_buffer"]), "");
}

#[test]
fn device_options_are_checked() {
    assert!(complaint(|plan| plan.placement.server.port = Some(0)).contains("--ib-port"));
    assert!(complaint(|plan| plan.placement.server.device = Some(String::new())).contains("stride-perf devices"));
    assert!(complaint(|plan| plan.placement.client.cpus = Some(Vec::new())).contains("--cpu"));
}

#[test]
fn receives_are_posted_if_the_operation_consumes_them() {
    let plan = |operation| Plan { workload: Workload { operation, ..Workload::default() }, ..Plan::default() };
    assert_eq!(plan(Operation::Send).receives(), 512);
    assert_eq!(plan(Operation::WriteWithImmediate).receives(), 512);
    assert_eq!(plan(Operation::Write).receives(), 0);
    assert_eq!(plan(Operation::Read).receives(), 0);
}
