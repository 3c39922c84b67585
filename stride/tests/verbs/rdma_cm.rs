//! Tests of connections through librdmacm under unexpected conditions.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use rdma_mummy_sys::load::provider::ProviderId;
use rdma_mummy_sys::load::rdmacm::{Choice, choose};
use sideway::rdmacm::{ConnectionParameter, Connector, RejectReason};
use sideway_test_names::Port;
use stride_perf::endpoint::{Endpoint, EndpointFactory, Listening, Path, Role, Verbs};
use stride_perf::plan::{Plan, QpAttributes, Queues, Workload};

use crate::sides::MTU;

/// Allows a test to move a side to another thread.
struct Other(Box<dyn Endpoint>);

// SAFETY: only one thread uses the value at a time.
unsafe impl Send for Other {}

fn plan() -> Plan {
    softrnic::register().unwrap();
    // Selects softrnic's librdmacm, even if the system has RDMA devices.
    choose(Choice::Provider(ProviderId::by_name("softrnic").unwrap()));
    Plan {
        attributes: QpAttributes { uses_rdma_cm: true, ..QpAttributes::default() },
        queues: Queues { queue_pairs: 2, ..Queues::default() },
        workload: Workload { sizes: vec![64], ..Workload::default() },
        ..Plan::default()
    }
}

#[test]
fn unexpected_connection_requests_are_rejected() {
    let mut plan = plan();
    plan.attributes.address = Some(Ipv4Addr::LOCALHOST.into());
    let (plan, path) = (plan, Path { client_gid: Some(0), server_gid: Some(0), mtu: MTU, others: Vec::new() });
    let mut client = Verbs.open(&plan, &plan.placement.client, Role::Client).unwrap();
    let mut server = Verbs.open(&plan, &plan.placement.server, Role::Server).unwrap();
    let (near, far) = (client.create_queue_pairs(&path).unwrap(), server.create_queue_pairs(&path).unwrap());
    let listening = far.listening.unwrap();
    let number = near.queue_pairs[0].number;
    thread::scope(|scope| {
        let (server, path, near) = (Other(server), &path, &near);
        let server = scope.spawn(move || {
            let Other(mut server) = { server };
            server.connect(path, near).unwrap();
            server.end();
        });
        // These requests do not belong to the test: they have no private data, the token of another test, or the number
        // of an unknown queue pair.
        let named = |token: u64, index: u32| [b"STRD", &token.to_be_bytes()[..], &index.to_be_bytes()].concat();
        for data in [Vec::new(), named(listening.token ^ 1, 0), named(listening.token, 2)] {
            let resolved = Connector::new().resolve((Ipv4Addr::LOCALHOST, listening.port)).unwrap();
            let mut parameter = ConnectionParameter::default();
            parameter.setup_qp_number(number).setup_private_data(&data);
            let error = resolved.connect_with(&parameter, |_, _| Ok::<_, std::fmt::Error>(())).unwrap_err();
            let rejection = error.rejection().unwrap().private_data().trimmed().to_vec();
            assert_eq!(rejection, b"stride-perf: not a connection of this test", "{data:?}");
        }
        client.connect(path, &far).unwrap();
        client.end();
        server.join().unwrap();
    });
}

#[test]
fn unresolvable_address_error_lists_valid_addresses() {
    // In every network, a socket has no route to this address unless the option for broadcasts is set.
    for role in [Role::Client, Role::Server] {
        let plan = Plan {
            attributes: QpAttributes { address: Some(IpAddr::from([255, 255, 255, 255])), ..plan().attributes },
            ..plan()
        };
        let error = Verbs.open(&plan, &plan.placement.client, role).err().unwrap().to_string();
        assert!(error.starts_with("--rdma-cm: ") && error.contains("255.255.255.255"), "{error}");
        assert!(
            error.contains("soft0 port 1 (") && error.contains("127.0.0.1") && error.contains("; name the server by "),
            "{error}"
        );
    }
    let plan =
        Plan { attributes: QpAttributes { address: Some("fe80::7".parse().unwrap()), ..plan().attributes }, ..plan() };
    let error = Verbs.open(&plan, &plan.placement.client, Role::Client).err().unwrap().to_string();
    assert!(error.contains("fe80::7 is a link-local address"), "{error}");
}

#[test]
fn server_without_listener_is_an_error() {
    let (plan, path) = (plan(), Path { client_gid: Some(0), server_gid: Some(0), mtu: MTU, others: Vec::new() });
    let mut client = Verbs.open(&plan, &plan.placement.client, Role::Client).unwrap();
    let mut server = Verbs.open(&plan, &plan.placement.server, Role::Server).unwrap();
    client.create_queue_pairs(&path).unwrap();
    let mut far = server.create_queue_pairs(&path).unwrap();
    let listening = far.listening.take().unwrap();
    let error = client.connect(&path, &far).unwrap_err().to_string();
    assert!(error.contains("sent no port for --rdma-cm"), "{error}");
    // No server listens on the port that the server has sent.
    let reserved = Port::reserve();
    far.listening = Some(Listening { port: reserved.number(), ..listening });
    let (error, refusal) =
        (format!("{:#}", client.connect(&path, &far).unwrap_err()), RejectReason::InvalidServiceId.to_string());
    assert!(error.starts_with("--rdma-cm: queue pair 0: ") && error.contains(&refusal), "{error}");
}
