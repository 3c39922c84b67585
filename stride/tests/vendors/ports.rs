//! Tests with two ports of one device.

use rdma_mummy_sys::{ibv_gid_entry, ibv_qp_state};
use sideway_tests::recording::{Call, Recording};
use stride_perf::endpoint::{Endpoint, EndpointFactory, Path, Role, Verbs};
use stride_perf::plan::{Placement, Plan, PortSelector, Queues, RunLength, SideConfig, Workload};

#[test]
fn missing_server_port_error_suggests_leaving_it_out() {
    let plan = Plan::default();
    let (_recording, config) = (Recording::of_system(), SideConfig { port: Some(9), ..SideConfig::default() });
    let error = Verbs.open(&plan, &config, Role::Server).map(drop).unwrap_err().to_string();
    let start = "no usable device of the server with port 9, from its --ib-port or the client's --remote-ib-port (";
    assert!(error.starts_with(start) && error.contains("); leave that out to use the first active port"), "{error}");
}

#[test]
fn single_port_server_error_names_the_clients_options() {
    let plan = Plan { queues: Queues { queue_pairs: 2, threads: 2, ..Queues::default() }, ..Plan::default() };
    let error_of = |devices: [Option<&str>; 2]| {
        let spot = |(device, port): (Option<&str>, u8)| PortSelector {
            device: device.map(str::to_owned),
            port: Some(port),
            gid_index: None,
        };
        let config = SideConfig::default().at(devices.into_iter().zip([1, 2]).map(spot).collect());
        Verbs.open(&plan, &config, Role::Server).map(drop).unwrap_err().to_string()
    };
    let (one, other) = (Recording::of_system(), Recording::of_system());
    let (names, without) = ([one.name(), other.name()], "has no port 2 (only port 1)");
    let error = error_of([Some(&names[0]), Some(&names[1])]);
    let way = "leave out the client's --remote-ib-port and -O and the server's --ib-port, or give 1, which applies to \
               each device";
    assert!(error.starts_with(&format!("{} {without}; {way}", names[1])), "{error}");
    let error = error_of([Some(&names[0]), Some(&names[0])]);
    let way = "give them to the client with --remote-device, such as mlx5_0,mlx5_1, and --remote-ib-port 1";
    assert!(error.starts_with(&format!("{} {without}; ", names[0])) && error.contains(way), "{error}");
    let error = error_of([None, None]);
    let start = "no device of the server has all of ports 1,2 active, from the client's --remote-ib-port or -O or its own --ib-port or -O (";
    assert!(error.starts_with(start) && error.contains(way), "{error}");
}

#[test]
fn unnamed_ports_belong_to_one_device() {
    let (one, two) = (Recording::of_system(), of_two_ports());
    let spot = |port| PortSelector { port: Some(port), ..PortSelector::default() };
    let at = |ports: &[u8]| SideConfig::default().at(ports.iter().copied().map(spot).collect());
    let of = |ports: &[u8], role| {
        let count = ports.len() as u32;
        let plan =
            Plan { queues: Queues { queue_pairs: count, threads: count, ..Queues::default() }, ..Plan::default() };
        let side = Verbs.open(&plan, &at(ports), role).map_err(|error| format!("{error:#}"))?;
        Ok(side.port_info().all().map(|port_info| (port_info.device.clone(), port_info.port)).collect::<Vec<_>>())
    };
    let (first, second) = (one.name(), two.name());
    for role in [Role::Client, Role::Server] {
        assert_eq!(of(&[1, 2], role), Ok(vec![(second.clone(), 1), (second.clone(), 2)]));
        assert_eq!(of(&[1, 1], role), Ok(vec![(first.clone(), 1), (second.clone(), 1)]), "port 1 of each");
    }
    let error_of: Result<_, String> = of(&[1, 2, 1], Role::Server);
    assert!(
        error_of.clone().is_err_and(|error_of| error_of.starts_with("--remote-ib-port 1,2,1 names a port twice")),
        "{error_of:?}"
    );
    Verbs.look(&at(&[1, 2])).unwrap();
    assert!(
        Verbs
            .look(&at(&[1, 3]))
            .unwrap_err()
            .to_string()
            .starts_with("no device has all ports of --ib-port 1,3 active (")
    );
}

/// Returns a device that has two ports, each with a GID.
fn of_two_ports() -> Recording {
    let recording = Recording::of_system();
    recording.edit(|port_info| {
        port_info.device.orig_attr.phys_port_cnt = 2;
        let second = ibv_gid_entry { gid_index: 1, port_num: 2, ..port_info.gids[0] };
        port_info.gids.push(second);
    });
    recording
}

fn plan(recording: &Recording) -> Plan {
    let spot = |port| PortSelector { device: Some(recording.name()), port: Some(port), gid_index: None };
    let config = SideConfig::default().at(vec![spot(1), spot(2)]);
    Plan {
        workload: Workload {
            sizes: vec![8],
            amount: RunLength::Messages { count: 20, warm_up: 5 },
            ..Workload::default()
        },
        queues: Queues { queue_pairs: 4, threads: 2, tx_depth: 8, rx_depth: 16, ..Queues::default() },
        placement: Placement { client: config.clone(), server: config, ..Placement::default() },
        ..Plan::default()
    }
}

/// Returns the values that an attribute has in one of the state changes, ordered by queue pair.
fn attribute_values(calls: &[Call], state: ibv_qp_state, argument: &str) -> Vec<u64> {
    let moves = calls.iter().filter(|call| call.verb == "modify_qp" && call.argument("state") == u64::from(state.0));
    moves.map(|call| call.argument(argument)).collect()
}

#[test]
fn queue_pairs_divide_equally_among_ports() {
    let recording = of_two_ports();
    let plan = plan(&recording);
    plan.check().unwrap();
    let open = |config: &SideConfig, role| Verbs.open(&plan, config, role).unwrap();
    let (mut client, mut server) =
        (open(&plan.placement.client, Role::Client), open(&plan.placement.server, Role::Server));
    assert_eq!(client.port_info().all().map(|port_info| port_info.port).collect::<Vec<_>>(), [1, 2]);
    let gids =
        |side: &dyn Endpoint| side.port_info().all().map(|port_info| port_info.gids[0].index).collect::<Vec<_>>();
    assert_eq!(gids(&*client), [0, 1], "each has its own table");
    let way = |gid| Path { client_gid: Some(gid), server_gid: Some(gid), mtu: 1024, others: Vec::new() };
    let path = Path { others: vec![way(1)], ..way(0) };
    let (_, far) = (client.create_queue_pairs(&path).unwrap(), server.create_queue_pairs(&path).unwrap());
    assert_eq!(far.all().map(|ends| ends.queue_pairs.len()).collect::<Vec<_>>(), [2, 2]);
    recording.calls();
    client.connect(&path, &far).unwrap();
    let calls = recording.calls();
    assert_eq!(attribute_values(&calls, ibv_qp_state::IBV_QPS_INIT, "port"), [1, 1, 2, 2]);
    assert_eq!(attribute_values(&calls, ibv_qp_state::IBV_QPS_RTR, "sgid_index"), [0, 0, 1, 1]);
    // The number of paths must equal the number of ports, so one path is an error.
    let message = client.create_queue_pairs(&way(0)).unwrap_err().to_string();
    assert_eq!(message, "1 paths for 2 ports of this side");
}

#[test]
fn inactive_port_error_names_it() {
    let recording = of_two_ports();
    recording.edit(|port_info| port_info.port.state = rdma_mummy_sys::ibv_port_state::IBV_PORT_DOWN);
    let plan = plan(&recording);
    let error = Verbs.open(&plan, &plan.placement.client, Role::Client).map(drop).unwrap_err().to_string();
    assert!(error.starts_with(&format!("port 1 of {} is ", recording.name())), "{error}");
}
