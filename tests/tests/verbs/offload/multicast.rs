//! Multicast groups of a queue pair.

use std::net::Ipv4Addr;

use sideway::ibverbs::address::{Gid, GidType};
use sideway::ibverbs::queue_pair::QueuePair;
use sideway_tests::recording::{Failure, Kind, World};

use crate::offload::queue_pair;

fn group(last: u8) -> Gid {
    Gid::of_multicast_group(Ipv4Addr::new(239, 0, 0, last).into(), GidType::RoceV2).unwrap()
}

#[test]
fn group_is_named_by_its_gid_and_lid() {
    let world = World::new();
    for qp in world.queue_pairs() {
        world.recording.calls();
        qp.attach_mcast(&"ff12:401b:ffff::1".parse().unwrap(), 0xc001).unwrap();
        assert!(world.recording.live().contains(&Kind::MulticastMember));
        qp.detach_mcast(&"ff12:401b:ffff::1".parse().unwrap(), 0xc001).unwrap();
        let calls = world.recording.calls();
        assert_eq!(calls.iter().map(|call| call.verb).collect::<Vec<_>>(), ["attach_mcast", "detach_mcast"]);
        for call in calls {
            assert_eq!(
                (call.argument("upper"), call.argument("lower"), call.argument("lid")),
                (0xff12_401b_ffff_0000, 1, 0xc001)
            );
        }
        assert!(!world.recording.live().contains(&Kind::MulticastMember));
    }
    world.end();
}

#[test]
fn dropped_queue_pair_leaves_its_groups_first() {
    let world = World::new();
    let [dropped, closed] = world.queue_pairs();
    for qp in [&dropped, &closed] {
        qp.attach_mcast(&group(1), 0).unwrap();
        qp.attach_mcast(&group(2), 0).unwrap();
        // A repeated attach is not an error, and adds no second membership.
        qp.attach_mcast(&group(2), 0).unwrap();
        qp.detach_mcast(&group(1), 0).unwrap();
    }
    world.recording.calls();
    drop(dropped);
    assert_eq!(world.recording.verbs(), ["detach_mcast", "destroy_qp"]);
    // The queues of a split pair can also join groups, and dropping the last queue leaves them.
    let (send, recv) = closed.split();
    recv.attach_mcast(&group(3), 0).unwrap();
    recv.detach_mcast(&group(2), 0).unwrap();
    drop(recv);
    world.recording.calls();
    drop(send);
    assert_eq!(world.recording.verbs(), ["detach_mcast", "destroy_qp"]);
    world.end();
}

#[test]
fn unjoined_group_is_not_left() {
    let world = World::new();
    let qp = queue_pair(&world);
    let error = qp.detach_mcast(&group(1), 0).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_detach_mcast", libc::EINVAL));
    assert!(error.hint().unwrap().contains("not in the group") && error.to_string().contains("ef00:0001"), "{error}");
    // A group that could not be joined is not left either.
    world.recording.fail("attach_mcast", 0, Failure::documented(libc::ENOMEM));
    assert_eq!(qp.attach_mcast(&group(1), 0).unwrap_err().errno().raw(), libc::ENOMEM);
    world.recording.calls();
    qp.close().unwrap();
    assert_eq!(world.recording.verbs(), ["destroy_qp"]);
}

#[test]
fn refusal_names_the_service() {
    let world = World::new();
    let qp = queue_pair(&world);
    for failure in [Failure::documented(libc::EINVAL), Failure::negative(libc::EINVAL)] {
        world.recording.fail("attach_mcast", 0, failure);
        let error = qp.attach_mcast(&group(1), 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ibv_attach_mcast: EINVAL (Invalid argument): the queue pair is of type ReliableConnection; \
             multicast groups need UnreliableDatagram"
        );
    }
}

#[test]
fn datagram_join_refusal_names_gid_or_lid() {
    let world = World::new();
    let mut builder = world.pd.create_ud_qp_builder();
    let qp = builder.setup_send_cq(&world.send_cq).setup_recv_cq(&world.recv_cq).build().unwrap();
    world.recording.fail_always("attach_mcast", Failure::documented(libc::EINVAL));
    let hint = |gid: &Gid, lid| qp.attach_mcast(gid, lid).unwrap_err().hint().map(str::to_owned);
    for text in ["fe80::1", "::ffff:10.0.0.1"] {
        let hint = hint(&text.parse().unwrap(), 0xc000).unwrap();
        assert!(hint.contains("is not that of a multicast group"), "{hint}");
    }
    assert_eq!(hint(&group(1), 0), None, "there are no LIDs on Ethernet");
    world.recording.edit(|facts| facts.port.link_layer = 1);
    for lid in [0, 0xbfff, 0xffff] {
        assert!(hint(&group(1), lid).unwrap().contains(&format!("the LID {lid:#x} is not that of a multicast group")));
    }
    for lid in [0xc000, 0xfffe] {
        assert_eq!(hint(&group(1), lid), None);
    }
    // Another errno has another cause, so it has no such hint.
    world.recording.succeed("attach_mcast").fail("attach_mcast", 0, Failure::documented(libc::ENOMEM));
    assert_eq!(hint(&"fe80::1".parse().unwrap(), 0), None);
}
