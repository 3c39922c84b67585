use rdma_cuda::Fake;
use sideway::ibverbs::AccessFlags;

use super::super::endpoint::VerbsEndpoint;
use super::{Areas, Source, common, rights};
use crate::endpoint::{Endpoint, Path, PeerInfo, QpAddress, Registration, Role};
use crate::plan::{Measure, Memory, Operation, Placement, Plan, Queues, RunLength, Semantics, SideConfig, Workload};

fn plan(operation: Operation) -> Plan {
    let config = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
    Plan {
        workload: Workload {
            operation,
            sizes: vec![8],
            amount: RunLength::Messages { count: 10, warm_up: 0 },
            ..Workload::default()
        },
        placement: Placement { client: config.clone(), server: config, ..Placement::default() },
        ..Plan::default()
    }
}

/// Returns the result of a client that accesses the server's memory by addresses that `change` has changed.
fn attack(plan: &Plan, change: impl Fn(&Areas, &mut QpAddress)) -> Result<(), String> {
    let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
    let mut client = VerbsEndpoint::open(plan, &plan.placement.client, Role::Client).unwrap();
    let mut server = VerbsEndpoint::open(plan, &plan.placement.server, Role::Server).unwrap();
    let (near, far) = (client.create_queue_pairs(&path).unwrap(), server.create_queue_pairs(&path).unwrap());
    let mut queue_pairs = far.queue_pairs.clone();
    change(&server.resources[0].memory, &mut queue_pairs[0]);
    server.connect(&path, &near).unwrap();
    client.connect(&path, &PeerInfo { queue_pairs, ..far }).unwrap();
    server.prepare(8).unwrap();
    client.prepare(8).unwrap();
    client.run(8, None, &mut |_| true).map(|_| ()).map_err(|error| format!("{error:#}"))
}

#[test]
fn peer_cannot_access_outgoing_memory() {
    for operation in [Operation::Write, Operation::Read, Operation::FetchAdd, Operation::CompareSwap] {
        let plan = plan(operation);
        assert_eq!(attack(&plan, |_, _| ()), Ok(()), "{operation}");
        let own_key = attack(&plan, |memory, end| {
            end.address = memory.places(0).0;
            end.rkey = memory.of(0).outgoing.rkey().into();
        });
        let other_key = attack(&plan, |memory, end| end.address = memory.places(0).0);
        for refused in [own_key, other_key] {
            let why = refused.expect_err("the peer rejects the access");
            assert!(why.contains("refused the access"), "{operation}: {why}");
        }
    }
}

#[test]
fn regions_are_shared_unless_per_queue_pair() {
    let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
    for has_own_regions in [false, true] {
        let plan = Plan {
            placement: Placement { has_own_regions, ..plan(Operation::Write).placement },
            queues: Queues { queue_pairs: 3, ..plan(Operation::Write).queues },
            ..plan(Operation::Write)
        };
        let mut side = VerbsEndpoint::open(&plan, &plan.placement.client, Role::Client).unwrap();
        let ends = side.create_queue_pairs(&path).unwrap();
        let mut keys: Vec<_> = ends.queue_pairs.iter().map(|end| end.rkey).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), if has_own_regions { 3 } else { 1 });
        let mut places: Vec<_> = ends.queue_pairs.iter().map(|end| end.address).collect();
        places.sort_unstable();
        let slot_size = side.resources[0].memory.slot_size;
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= slot_size), "{places:?}");
        // The regions do not overlap.
        let ends: Vec<_> = (0..3).map(|qp| side.resources[0].memory.of(qp)).collect();
        assert_eq!(std::ptr::eq(ends[0], ends[2]), !has_own_regions);
    }
}

#[test]
fn peer_has_only_the_rights_of_the_operation() {
    for (operation, expected) in [
        (Operation::Write, AccessFlags::RemoteWrite),
        (Operation::WriteWithImmediate, AccessFlags::RemoteWrite),
        (Operation::Read, AccessFlags::RemoteRead),
        (Operation::FetchAdd, AccessFlags::RemoteAtomic),
        (Operation::CompareSwap, AccessFlags::RemoteAtomic),
        (Operation::Send, AccessFlags::empty()),
        (Operation::SendWithImmediate, AccessFlags::empty()),
    ] {
        assert_eq!(rights(operation), expected, "{operation}");
    }
}

#[test]
fn relaxed_ordering_is_off_if_order_matters() {
    let is_relaxed = |operation, measure, is_validated| {
        common(&Plan { workload: Workload { measure, is_validated, ..plan(operation).workload }, ..plan(operation) })
            .contains(AccessFlags::RelaxedOrdering)
    };
    for operation in [Operation::Write, Operation::FetchAdd, Operation::CompareSwap] {
        for is_validated in [false, true] {
            let expected = !(is_validated && operation == Operation::CompareSwap);
            assert_eq!(is_relaxed(operation, Measure::Bandwidth, is_validated), expected, "{operation}");
        }
    }
    assert!(!is_relaxed(Operation::Write, Measure::Latency(Semantics::Oneway), false));
}

/// Runs a test, both sides of which take turns on one thread.
fn play(plan: &Plan) -> Result<(), String> {
    let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
    let text = |error: anyhow::Error| format!("{error:#}");
    let mut client = VerbsEndpoint::open(plan, &plan.placement.client, Role::Client).map_err(text)?;
    let mut server = VerbsEndpoint::open(plan, &plan.placement.server, Role::Server).map_err(text)?;
    let (near, far) =
        (client.create_queue_pairs(&path).map_err(text)?, server.create_queue_pairs(&path).map_err(text)?);
    server.connect(&path, &near).unwrap();
    client.connect(&path, &far).unwrap();
    for &size in &plan.workload.sizes {
        server.prepare(size).unwrap();
        client.prepare(size).unwrap();
        client.run(size, None, &mut |_| true).map_err(text)?.expect("the client measures");
        server.check(size).map_err(text)?;
        client.check(size).map_err(text)?;
    }
    Ok(())
}

#[test]
fn every_operation_works_with_gpu_memory() {
    let fake = Fake::load();
    let gpu = || Some(Memory::Cuda("1".to_owned()));
    for (client, server) in [(gpu(), None), (None, gpu()), (gpu(), gpu())] {
        for operation in [Operation::Write, Operation::Read, Operation::FetchAdd, Operation::CompareSwap] {
            for measure in [Measure::Bandwidth, Measure::Latency(Semantics::Ack)] {
                let mut plan = Plan {
                    workload: Workload { measure, is_validated: true, ..plan(operation).workload },
                    ..plan(operation)
                };
                if !operation.is_atomic() {
                    plan.workload.sizes = vec![8, 5000, 64];
                }
                if measure != Measure::Bandwidth {
                    (plan.queues.tx_depth, plan.queues.cq_moderation) = (1, 1);
                }
                (plan.placement.client.memory, plan.placement.server.memory) = (client.clone(), server.clone());
                plan.check().unwrap();
                fake.calls();
                assert_eq!(play(&plan), Ok(()), "{operation} {client:?} {server:?}");
                assert!(fake.calls().contains(&"cuMemcpyHtoD"));
            }
        }
    }
    assert_eq!(fake.live(), (0, 0));
}

#[test]
fn missing_message_in_gpu_memory_is_detected() {
    let fake = Fake::load();
    let mut plan =
        Plan { workload: Workload { is_validated: true, ..plan(Operation::Write).workload }, ..plan(Operation::Write) };
    plan.placement.server.memory = Some(Memory::Cuda("0".to_owned()));
    let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
    let mut server = VerbsEndpoint::open(&plan, &plan.placement.server, Role::Server).unwrap();
    server.create_queue_pairs(&path).unwrap();
    server.prepare(8).unwrap();
    let why = server.check(8).unwrap_err().to_string();
    assert!(why.contains("nothing was written"), "{why}");
    fake.fails(Some(("cuMemcpyDtoH", 2)));
    assert!(server.check(8).unwrap_err().to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"));
    fake.fails(None);
}

#[test]
fn gpu_memory_is_not_read_by_the_processor() {
    Fake::load();
    let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
    for (memory, expected) in [(None, true), (Some(Memory::Cuda("0".to_owned())), false)] {
        let measure = Measure::Latency(Semantics::Ack);
        let mut plan = Plan {
            workload: Workload { measure, ..plan(Operation::Write).workload },
            queues: Queues { tx_depth: 1, cq_moderation: 1, ..plan(Operation::Write).queues },
            ..plan(Operation::Write)
        };
        plan.placement.client.memory = memory;
        let mut client = VerbsEndpoint::open(&plan, &plan.placement.client, Role::Client).unwrap();
        client.create_queue_pairs(&path).unwrap();
        let worker = &client.resources[0];
        assert_eq!((worker.inline > 0, worker.memory.is_host()), (expected, expected));
    }
}

#[test]
fn gpu_registration_is_reported() {
    Fake::load();
    let mut plan = plan(Operation::Write);
    let side =
        |plan: &Plan| VerbsEndpoint::open(plan, &plan.placement.client, Role::Client).unwrap().port_info().clone();
    let host = side(&plan);
    assert_eq!((host.gpu, host.registration), (None, None));
    plan.placement.client.memory = Some(Memory::Cuda("ca:00.0".to_owned()));
    let gpu = side(&plan);
    assert_eq!(gpu.gpu.map(|gpu| gpu.index), Some(1));
    assert_eq!(gpu.registration, Some(Registration::PeerMemory));
}

#[test]
fn memory_is_registered_with_on_demand_paging() {
    let mut plan = plan(Operation::Write);
    let pd = super::super::device::open_one(&plan.placement.client, &[], |_| true).unwrap().0.alloc_pd().unwrap();
    let source = Source::open(&pd, &plan, &SideConfig::default()).unwrap();
    assert!(Areas::new(&pd, &plan, &source, 4096, 1).is_ok());
    plan.placement.is_on_demand = true;
    let source = Source::open(&pd, &plan, &SideConfig::default()).unwrap();
    assert!(Areas::new(&pd, &plan, &source, 4096, 1).is_ok());
}
