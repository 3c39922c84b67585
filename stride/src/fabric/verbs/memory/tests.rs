use sideway::ibverbs::AccessFlags;

use super::super::side::VerbsSide;
use super::{Areas, rights};
use crate::fabric::{End, Ends, Path, Role, Side};
use crate::plan::{Amount, Operation, Place, Plan};

fn plan(operation: Operation) -> Plan {
    let place = Place { device: Some("soft0".to_owned()), ..Place::default() };
    Plan {
        operation,
        sizes: vec![8],
        amount: Amount::Messages { count: 10, warm_up: 0 },
        client: place.clone(),
        server: place,
        ..Plan::example()
    }
}

/// What a client brings back that uses the memory of the server at `ends`.
fn attack(plan: &Plan, change: impl Fn(&Areas, &mut End)) -> Result<(), String> {
    let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096 };
    let mut client = VerbsSide::open(plan, &plan.client, Role::Client).unwrap();
    let mut server = VerbsSide::open(plan, &plan.server, Role::Server).unwrap();
    let (near, far) = (client.make_ends(&path).unwrap(), server.make_ends(&path).unwrap());
    let mut queue_pairs = far.queue_pairs.clone();
    change(&server.corners[0].memory, &mut queue_pairs[0]);
    server.connect(&path, &near).unwrap();
    client.connect(&path, &Ends { queue_pairs, ..far }).unwrap();
    server.prepare(8).unwrap();
    client.prepare(8).unwrap();
    client.run(8, &mut |_| true).map(|_| ()).map_err(|error| format!("{error:#}"))
}

#[test]
fn no_peer_reaches_what_goes_out() {
    for operation in [Operation::Write, Operation::Read, Operation::FetchAdd, Operation::CompareSwap] {
        let plan = plan(operation);
        assert_eq!(attack(&plan, |_, _| ()), Ok(()), "{operation}");
        let own_key = attack(&plan, |memory, end| {
            end.address = memory.places(0).0;
            end.rkey = memory.outgoing.rkey().into();
        });
        let other_key = attack(&plan, |memory, end| end.address = memory.places(0).0);
        for refused in [own_key, other_key] {
            let why = refused.expect_err("the other side refuses");
            assert!(why.contains("does not allow the access"), "{operation}: {why}");
        }
    }
}

#[test]
fn a_peer_may_do_what_the_test_needs_and_nothing_else() {
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
