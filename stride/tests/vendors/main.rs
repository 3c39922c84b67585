//! Tests of the calls that both sides of a test make into the vendors' libraries. The devices only record these calls.

#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

mod ports;

use std::collections::BTreeSet;

use rdma_mummy_sys::{ibv_mtu, ibv_qp_attr_mask as mask, ibv_qp_state as state};
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway_tests::recording::{Call, Failure, Recording, install_efa, install_mlx5};
use stride_perf::endpoint::{Endpoint, EndpointFactory, Intake, Path, PeerInfo, Role, Verbs};
use stride_perf::plan::{
    Measure, Operation, Placement, Plan, QpAttributes, Queues, RunLength, Semantics, SideConfig, Transport, Workload,
};
use stride_perf::stats::Figures;

/// The value of `IBV_QPT_DRIVER`.
const DRIVER: u64 = 0xff;
/// The value of `MLX5DV_DCTYPE_DCT`. The next constant is that of `MLX5DV_DCTYPE_DCI`.
const TARGET: u64 = 1;
const INITIATOR: u64 = 2;
const QUEUE_PAIRS: u32 = 3;

fn plan(recording: &Recording, transport: Transport, operation: Operation) -> Plan {
    let config = SideConfig { device: Some(recording.name()), ..SideConfig::default() };
    Plan {
        workload: Workload {
            operation,
            sizes: vec![8],
            amount: RunLength::Messages { count: 20, warm_up: 5 },
            ..Workload::default()
        },
        attributes: QpAttributes { transport, traffic_class: 32, service_level: 3, ..QpAttributes::default() },
        queues: Queues { queue_pairs: QUEUE_PAIRS, threads: 2, tx_depth: 8, rx_depth: 16, ..Queues::default() },
        placement: Placement { client: config.clone(), server: config, ..Placement::default() },
        ..Plan::default()
    }
}

fn path() -> Path {
    Path { client_gid: Some(0), server_gid: Some(0), mtu: 1024, others: Vec::new() }
}

fn open(plan: &Plan, role: Role) -> Box<dyn Endpoint> {
    plan.check().unwrap();
    Verbs.open(plan, if role == Role::Client { &plan.placement.client } else { &plan.placement.server }, role).unwrap()
}

fn of<'c>(calls: &'c [Call], verb: &str) -> Vec<&'c Call> {
    calls.iter().filter(|call| call.verb == verb).collect()
}

/// Returns the state changes of queue pairs, each with its attribute mask.
fn moves(calls: &[Call]) -> Vec<(u64, u64)> {
    of(calls, "modify_qp").iter().map(|call| (call.argument("state"), call.argument("mask"))).collect()
}

fn bits(all: &[mask]) -> u64 {
    all.iter().fold(mask::IBV_QP_STATE.0, |all, one| all | one.0).into()
}

fn target(ends: &PeerInfo, qp: usize) -> (u32, u64) {
    let Some(Intake::Dc { number, key }) = ends.queue_pairs[qp].intake else { panic!("{ends:?}") };
    (number, key)
}

#[test]
fn device_of_another_provider_is_not_called_softrnic() {
    install_mlx5();
    let recording = Recording::of_system();
    let side = open(&plan(&recording, Transport::Dc, Operation::Write), Role::Client);
    let (port_info, list) = (side.port_info(), DeviceList::new().unwrap());
    let device = list.find(&recording.name()).unwrap();
    assert_eq!((device.sysfs_path(), device.provider(), port_info.provider.as_str()), (None, None, "unknown"));
    assert!(!port_info.is_soft());
}

#[test]
fn targets_are_ready_before_the_peer_receives_them() {
    install_mlx5();
    let recording = Recording::of_system();
    for (operation, rights) in [(Operation::Write, 0b0110), (Operation::Send, 0b0110), (Operation::FetchAdd, 0b1110)] {
        let mut side = open(&plan(&recording, Transport::Dc, operation), Role::Client);
        recording.calls();
        let ends = side.create_queue_pairs(&path()).unwrap();
        let calls = recording.calls();
        let made = of(&calls, "mlx5dv_create_qp");
        let of_type = |kind| made.iter().filter(|call| call.argument("dc_type") == kind).copied().collect::<Vec<_>>();
        let (targets, initiators) = (of_type(TARGET), of_type(INITIATOR));
        assert_eq!([targets.len(), initiators.len(), made.len()], [3, 3, 6]);
        for (qp, (target_made, initiator)) in targets.iter().zip(&initiators).enumerate() {
            assert_eq!([target_made.argument("qp_type"), initiator.argument("qp_type")], [DRIVER; 2]);
            assert_eq!([target_made.argument("max_send_wr"), initiator.argument("max_recv_wr")], [0; 2]);
            // The queue has one more entry, for the last request of a timed test.
            assert_eq!(initiator.argument("max_send_wr"), 9);
            assert_ne!(target_made.argument("srq"), 0);
            let (number, key) = target(&ends, qp);
            assert_eq!(target_made.argument("dct_access_key"), key);
            assert_ne!([number, ends.queue_pairs[qp].number], [0; 2]);
        }
        let keys: BTreeSet<u64> = (0..3).map(|qp| target(&ends, qp).1).collect();
        assert_eq!(keys.len(), 3, "each has a key of its own");
        // Each target has a receive queue of its own.
        let receives = if operation == Operation::Send { 16 } else { 1 };
        let queues = of(&calls, "create_srq");
        assert_eq!(queues.iter().map(|call| call.argument("max_wr")).collect::<Vec<_>>(), [receives; 3]);
        let init = bits(&[mask::IBV_QP_PKEY_INDEX, mask::IBV_QP_PORT, mask::IBV_QP_ACCESS_FLAGS]);
        let ready = bits(&[mask::IBV_QP_PATH_MTU, mask::IBV_QP_MIN_RNR_TIMER, mask::IBV_QP_AV]);
        let each = [(state::IBV_QPS_INIT.0.into(), init), (state::IBV_QPS_RTR.0.into(), ready)];
        assert_eq!(moves(&calls), [each; 3].concat(), "of targets alone");
        let attributes = recording.qp_attr().unwrap();
        assert_eq!((attributes.path_mtu, attributes.min_rnr_timer), (ibv_mtu::IBV_MTU_1024, 12));
        assert_eq!((attributes.ah_attr.is_global, attributes.ah_attr.port_num, attributes.ah_attr.sl), (1, 1, 3));
        assert_eq!((attributes.ah_attr.grh.sgid_index, attributes.ah_attr.grh.traffic_class), (0, 32));
        // The access rights are set in the first state change. They can still be read if the second state change fails.
        recording.fail("modify_qp", 1, Failure::documented(libc::EINVAL));
        side.create_queue_pairs(&path()).unwrap_err();
        assert_eq!(recording.qp_attr().unwrap().qp_access_flags, rights, "{operation}");
        drop(side);
        assert_eq!(recording.live(), [], "left over");
    }
}

#[test]
fn each_dc_request_names_the_peers_target() {
    install_mlx5();
    let recording = Recording::of_system();
    for operation in [
        Operation::Write,
        Operation::WriteWithImmediate,
        Operation::Read,
        Operation::Send,
        Operation::SendWithImmediate,
        Operation::FetchAdd,
        Operation::CompareSwap,
    ] {
        let is_validated = operation == Operation::CompareSwap;
        let plan = Plan {
            workload: Workload { is_validated, ..plan(&recording, Transport::Dc, operation).workload },
            ..plan(&recording, Transport::Dc, operation)
        };
        let (mut client, mut server) = (open(&plan, Role::Client), open(&plan, Role::Server));
        let (near, far) = (client.create_queue_pairs(&path()).unwrap(), server.create_queue_pairs(&path()).unwrap());
        recording.calls();
        client.connect(&path(), &far).unwrap();
        let calls = recording.calls();
        let init = bits(&[mask::IBV_QP_PKEY_INDEX, mask::IBV_QP_PORT]);
        let receive = bits(&[mask::IBV_QP_PATH_MTU]);
        let send = bits(&[
            mask::IBV_QP_TIMEOUT,
            mask::IBV_QP_RETRY_CNT,
            mask::IBV_QP_RNR_RETRY,
            mask::IBV_QP_MAX_QP_RD_ATOMIC,
            mask::IBV_QP_SQ_PSN,
        ]);
        let [to_init, to_receive, to_send] =
            [state::IBV_QPS_INIT, state::IBV_QPS_RTR, state::IBV_QPS_RTS].map(|to| u64::from(to.0));
        assert_eq!(moves(&calls), [[(to_init, init), (to_receive, receive), (to_send, send)]; 3].concat());
        let attributes = recording.qp_attr().unwrap();
        assert_eq!(
            (attributes.timeout, attributes.retry_cnt, attributes.rnr_retry, attributes.max_rd_atomic),
            (14, 7, 7, 16)
        );
        assert_eq!(of(&calls, "create_ah").len(), 3);
        server.connect(&path(), &near).unwrap();
        recording.calls();
        // The receives are posted to the shared receive queue of the target.
        server.prepare(8).unwrap();
        let posted = recording.posted();
        let receives = if operation.takes_receive() { 16 * 3 } else { 0 };
        assert_eq!(posted.iter().filter(|request| request.opcode.is_none()).count(), receives, "{operation}");
        assert!(of(&recording.calls(), "post_recv").is_empty(), "nothing is posted to a queue pair");
        client.prepare(8).unwrap();
        recording.calls();
        recording.posted();
        let figures = client.run(8, None, &mut |_| true).unwrap().unwrap();
        let Figures::Bandwidth(bandwidth) = figures else { panic!("{figures:?}") };
        assert_eq!(bandwidth.messages, 3 * 20, "{operation}");
        let calls = recording.calls();
        let mut named: Vec<(u32, u64)> = of(&calls, "wr_set_dc_addr")
            .iter()
            .map(|call| (call.argument("dctn") as u32, call.argument("dc_key")))
            .collect();
        named.sort_unstable();
        let mut due: Vec<(u32, u64)> = (0..3).flat_map(|qp| [target(&far, qp); 25]).collect();
        due.sort_unstable();
        assert_eq!(named, due, "{operation}");
        let posted = recording.posted();
        assert_eq!(posted.len(), 75);
        for request in posted.iter().filter(|_| !matches!(operation, Operation::Send | Operation::SendWithImmediate)) {
            let keys: Vec<u32> = far.queue_pairs.iter().map(|end| end.rkey).collect();
            assert!(keys.contains(&request.rkey), "{operation}: {request:?}");
        }
        if is_validated {
            // Each queue pair has slots of its own, and no two swaps of a thread have the same operands.
            let operands: Vec<_> = posted.iter().map(|request| request.operands).collect();
            assert!(operands.iter().all(|(compare, swap)| compare != swap), "{operands:?}");
            let addresses: BTreeSet<_> = posted.iter().map(|request| request.remote_addr).collect();
            let compared: BTreeSet<_> = operands.iter().map(|(compare, _)| compare).collect();
            assert_eq!((addresses.len(), compared.len()), (75, 50));
        }
        drop((client, server));
        assert_eq!(recording.live(), [], "left over");
    }
}

#[test]
fn dc_queue_pairs_use_the_given_partition() {
    install_mlx5();
    let recording = Recording::of_system();
    recording.edit(|port_info| port_info.port.pkey_tbl_len = 3);
    let config = SideConfig { device: Some(recording.name()), pkey_index: Some(2), ..SideConfig::default() };
    let plan = Plan {
        placement: Placement {
            client: config.clone(),
            server: config,
            ..plan(&recording, Transport::Dc, Operation::Write).placement
        },
        ..plan(&recording, Transport::Dc, Operation::Write)
    };
    let (mut client, mut server) = (open(&plan, Role::Client), open(&plan, Role::Server));
    let far = server.create_queue_pairs(&path()).unwrap();
    // The index is set in the first state change. It can still be read if the second state change fails.
    recording.fail("modify_qp", 1, Failure::documented(libc::EINVAL));
    client.create_queue_pairs(&path()).unwrap_err();
    assert_eq!(recording.qp_attr().unwrap().pkey_index, 2, "of targets");
    client.create_queue_pairs(&path()).unwrap();
    recording.fail("modify_qp", 1, Failure::documented(libc::EINVAL));
    client.connect(&path(), &far).unwrap_err();
    assert_eq!(recording.qp_attr().unwrap().pkey_index, 2, "of initiators");
}

#[test]
fn dc_latency_test_has_one_request_in_flight() {
    install_mlx5();
    let recording = Recording::of_system();
    let plan = Plan {
        workload: Workload {
            measure: Measure::Latency(Semantics::Ack),
            ..plan(&recording, Transport::Dc, Operation::Write).workload
        },
        queues: Queues {
            queue_pairs: 1,
            threads: 1,
            tx_depth: 1,
            ..plan(&recording, Transport::Dc, Operation::Write).queues
        },
        ..plan(&recording, Transport::Dc, Operation::Write)
    };
    let (mut client, mut server) = (open(&plan, Role::Client), open(&plan, Role::Server));
    let (near, far) = (client.create_queue_pairs(&path()).unwrap(), server.create_queue_pairs(&path()).unwrap());
    client.connect(&path(), &far).unwrap();
    server.connect(&path(), &near).unwrap();
    client.prepare(8).unwrap();
    let Some(Figures::Latency(latency)) = client.run(8, None, &mut |_| true).unwrap() else { panic!("it has times") };
    assert_eq!(latency.samples, 20);
    assert_eq!(of(&recording.calls(), "wr_set_dc_addr").len(), 25);
    // The client posted inline data, and its queue pair was created with enough space for it.
    assert!(recording.posted().iter().all(|request| request.inline.as_ref().is_some_and(|bytes| bytes.len() == 8)));
}

#[test]
fn peer_without_dc_target_is_an_error() {
    install_mlx5();
    let recording = Recording::of_system();
    let mut side = open(&plan(&recording, Transport::Dc, Operation::Write), Role::Client);
    let mut ends = side.create_queue_pairs(&path()).unwrap();
    ends.queue_pairs[0].intake = Some(Intake::Xrc { number: 1, srq: 2 });
    let why = side.connect(&path(), &ends).unwrap_err().to_string();
    assert_eq!(why, "the peer sent no DC target; run the same version on both sides");
}

#[test]
fn each_srd_request_names_the_peers_queue_pair() {
    install_efa();
    let recording = Recording::of_system();
    recording.edit(|port_info| port_info.port.max_msg_sz = 8928);
    for operation in [
        Operation::Write,
        Operation::WriteWithImmediate,
        Operation::Read,
        Operation::Send,
        Operation::SendWithImmediate,
    ] {
        let plan = plan(&recording, Transport::Srd, operation);
        let (mut client, mut server) = (open(&plan, Role::Client), open(&plan, Role::Server));
        let is_send = matches!(operation, Operation::Send | Operation::SendWithImmediate);
        assert_eq!(client.port_info().longest, Some(if is_send { 8928 } else { 1 << 30 }), "{operation}");
        recording.calls();
        let near = client.create_queue_pairs(&path()).unwrap();
        let calls = recording.calls();
        let made = of(&calls, "efadv_create_qp_ex");
        assert_eq!(made.len(), 3);
        for call in made {
            // In driver calls, the value 0 means `EFADV_QP_DRIVER_TYPE_SRD`.
            assert_eq!([call.argument("qp_type"), call.argument("driver_qp_type")], [DRIVER, 0]);
            assert_eq!([call.argument("max_send_wr"), call.argument("max_inline_data")], [9, 0]);
            assert_eq!(call.argument("max_recv_wr"), if operation.takes_receive() { 16 } else { 1 });
        }
        assert_eq!(moves(&calls), []);
        let far = server.create_queue_pairs(&path()).unwrap();
        assert!(far.queue_pairs.iter().all(|end| end.intake.is_none()));
        recording.calls();
        client.connect(&path(), &far).unwrap();
        let init = bits(&[mask::IBV_QP_PKEY_INDEX, mask::IBV_QP_PORT, mask::IBV_QP_QKEY]);
        let [to_init, to_receive, to_send] =
            [state::IBV_QPS_INIT, state::IBV_QPS_RTR, state::IBV_QPS_RTS].map(|to| u64::from(to.0));
        let send = bits(&[mask::IBV_QP_SQ_PSN, mask::IBV_QP_RNR_RETRY]);
        let due = [(to_init, init), (to_receive, bits(&[])), (to_send, send)];
        assert_eq!(moves(&recording.calls()), [due; 3].concat());
        assert_eq!(recording.qp_attr().unwrap().rnr_retry, 7);
        server.connect(&path(), &near).unwrap();
        recording.posted();
        server.prepare(8).unwrap();
        let receives = if operation.takes_receive() { 16 * 3 } else { 0 };
        assert_eq!(recording.posted().iter().filter(|request| request.opcode.is_none()).count(), receives);
        client.prepare(8).unwrap();
        recording.calls();
        recording.posted();
        let figures = client.run(8, None, &mut |_| true).unwrap().unwrap();
        let Figures::Bandwidth(bandwidth) = figures else { panic!("{figures:?}") };
        assert_eq!(bandwidth.messages, 3 * 20, "{operation}");
        let calls = recording.calls();
        let named = of(&calls, "wr_set_ud_addr");
        assert!(named.iter().all(|call| call.argument("qkey") == 0x1111_1111));
        let mut numbers: Vec<u32> = named.iter().map(|call| call.argument("qpn") as u32).collect();
        numbers.sort_unstable();
        let mut due: Vec<u32> = far.queue_pairs.iter().flat_map(|end| [end.number; 25]).collect();
        due.sort_unstable();
        assert_eq!(numbers, due, "{operation}");
        // The requests have no flag other than `IBV_SEND_SIGNALED`, because EFA devices support no other.
        let posted = recording.posted();
        assert!(posted.len() == 75 && posted.iter().all(|request| request.flags == 1 << 1), "{operation}: {posted:?}");
        drop((client, server));
        assert_eq!(recording.live(), [], "left over");
    }
}

#[test]
fn srd_latency_test_sends_inline_up_to_the_device_limit() {
    install_efa();
    let recording = Recording::of_system();
    for (operation, most) in [(Operation::Send, 32), (Operation::Write, 0), (Operation::WriteWithImmediate, 0)] {
        let measure = Measure::Latency(Semantics::Ack);
        let plan = Plan {
            workload: Workload { measure, ..plan(&recording, Transport::Srd, operation).workload },
            queues: Queues {
                queue_pairs: 1,
                threads: 1,
                tx_depth: 1,
                ..plan(&recording, Transport::Srd, operation).queues
            },
            ..plan(&recording, Transport::Srd, operation)
        };
        let mut side = open(&plan, Role::Client);
        recording.calls();
        side.create_queue_pairs(&path()).unwrap();
        let calls = recording.calls();
        let made: Vec<u64> =
            of(&calls, "efadv_create_qp_ex").iter().map(|call| call.argument("max_inline_data")).collect();
        assert_eq!(made, [most], "{operation}");
    }
}

#[test]
fn rnr_retry_is_set_only_if_the_device_supports_it() {
    install_efa();
    let recording = Recording::of_system();
    recording.without("rnr_retry");
    let plan = plan(&recording, Transport::Srd, Operation::Send);
    let (mut client, mut server) = (open(&plan, Role::Client), open(&plan, Role::Server));
    let far = server.create_queue_pairs(&path()).unwrap();
    client.create_queue_pairs(&path()).unwrap();
    // The Q_Key is set in the first state change. It can still be read if the second state change fails.
    recording.fail("modify_qp", 1, Failure::documented(libc::EINVAL));
    client.connect(&path(), &far).unwrap_err();
    assert_eq!(recording.qp_attr().unwrap().qkey, 0x1111_1111, "as requests name it");
    client.connect(&path(), &far).unwrap();
    let last = moves(&recording.calls()).pop().unwrap().1;
    assert_eq!(last, bits(&[mask::IBV_QP_SQ_PSN]));
}

#[test]
fn vendor_device_is_preferred_by_default() {
    install_mlx5();
    install_efa();
    let (first, second) = (Recording::of_system(), Recording::of_system());
    first.without("mlx5dv_is_supported");
    second.without("efa");
    for (transport, taken) in [(Transport::Rc, &first), (Transport::Dc, &second), (Transport::Srd, &first)] {
        let plan = Plan {
            placement: Placement {
                client: SideConfig::default(),
                ..plan(&first, transport, Operation::Write).placement
            },
            ..plan(&first, transport, Operation::Write)
        };
        assert_eq!(open(&plan, Role::Client).port_info().device, taken.name(), "{transport}");
    }
    // If no device supports the vendor's transport, the error names the first device.
    second.without("mlx5dv_is_supported");
    let plan = Plan {
        placement: Placement {
            client: SideConfig::default(),
            ..plan(&first, Transport::Dc, Operation::Write).placement
        },
        ..plan(&first, Transport::Dc, Operation::Write)
    };
    let Err(why) = Verbs.open(&plan, &plan.placement.client, Role::Client) else { panic!("no device is mlx5") };
    assert!(why.to_string().contains(&format!("and the provider of {} of the client is", first.name())), "{why}");
}

#[test]
fn unsupported_operation_error_names_it() {
    install_efa();
    let recording = Recording::of_system();
    recording.without("rdma_read").without("rdma_write");
    for operation in [Operation::Write, Operation::WriteWithImmediate, Operation::Read] {
        let plan = plan(&recording, Transport::Srd, operation);
        let Err(why) = Verbs.open(&plan, &plan.placement.server, Role::Server) else {
            panic!("it does not support {operation}")
        };
        let due = format!(
            "--transport srd: {} of the server does not support {operation}; measure `send`, or name another device",
            recording.name()
        );
        assert_eq!(why.to_string(), due);
    }
    let plan = plan(&recording, Transport::Srd, Operation::Send);
    assert!(Verbs.open(&plan, &plan.placement.client, Role::Client).is_ok());
}

#[test]
fn device_of_another_vendor_is_rejected_by_name() {
    install_mlx5();
    install_efa();
    let recording = Recording::of_system();
    recording.without("mlx5dv_is_supported").without("efa");
    for (transport, name, vendor) in
        [(Transport::Dc, "dc", "mlx5 (ConnectX, BlueField)"), (Transport::Srd, "srd", "EFA")]
    {
        let plan = plan(&recording, transport, Operation::Write);
        for (role, config, side, option) in [
            (Role::Client, &plan.placement.client, "the client", "with -d,"),
            (Role::Server, &plan.placement.server, "the server", "with --remote-device,"),
        ] {
            let Err(why) = Verbs.open(&plan, config, role) else { panic!("it has another vendor") };
            let (why, device) = (format!("{why:#}"), recording.name());
            let start =
                format!("--transport {name} requires a device of {vendor}, and the provider of {device} of {side} is ");
            assert!(why.starts_with(&start) && why.contains(option) && why.ends_with("give --transport rc"), "{why}");
        }
    }
    assert_eq!(recording.live(), [], "left over");
}
