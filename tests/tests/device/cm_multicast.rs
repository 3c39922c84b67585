//! Multicast groups that identifiers join: which members receive what, and the state afterwards.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use sideway::ibverbs::queue_pair::QueuePair;
use sideway::rdmacm::communication_manager::{
    EventChannel, EventKind, EventType, Identifier, MulticastJoinFlag, MulticastMembership, PortSpace,
};
use sideway_test_names::Port;
use sideway_tests::connections::{DatagramEnd, LONG, address, channel, datagram_end, expect, send_datagram};
use sideway_tests::datagrams::GRH;
use sideway_tests::recording::Warnings;

/// Tests run in parallel, also in other processes of the user, and a datagram reaches all members of its group in every
/// process. Each test and each process therefore uses its own groups.
fn group(last: u8) -> SocketAddr {
    static PORT: LazyLock<Port> = LazyLock::new(Port::reserve);
    SocketAddr::from((PORT.group(last), 0))
}

/// An identifier for datagrams on the device.
fn bound(channel: &Arc<EventChannel>) -> Arc<Identifier> {
    let id = channel.create_id(PortSpace::Udp).unwrap();
    id.bind_addr(SocketAddr::new(address(), 0)).unwrap();
    id
}

/// Waits until the group is joined.
fn joined(channel: &Arc<EventChannel>, id: &Arc<Identifier>, group: SocketAddr) -> MulticastMembership {
    let event = expect(channel, EventType::MulticastJoin);
    assert!(Arc::ptr_eq(event.cm_id(), id));
    let EventKind::MulticastJoin(membership) = event.kind() else { panic!("{event:?}") };
    assert_eq!(membership.group(), Some(group));
    membership.clone()
}

/// A sender to a group that receives nothing.
struct Sender {
    end: DatagramEnd,
    membership: MulticastMembership,
}

impl Sender {
    fn new(channel: &Arc<EventChannel>, group: SocketAddr) -> Self {
        let id = bound(channel);
        let end = datagram_end(&id);
        id.join_multicast_with(group, MulticastJoinFlag::SendOnlyFullMember).unwrap();
        let membership = joined(channel, &id, group);
        assert_eq!(membership.qp_number(), 0xff_ffff);
        assert_eq!(membership.address_handle_attribute().grh_dest_gid().ipv4().map(Into::into), Some(group.ip()));
        Self { end, membership }
    }

    fn send(&mut self, bytes: &[u8]) {
        let to = (self.membership.qp_number(), self.membership.qkey());
        send_datagram(&mut self.end, self.membership.address_handle_attribute(), to, bytes);
    }
}

#[test]
fn datagram_to_a_group_reaches_every_member_until_it_leaves() {
    let warnings = Warnings::listen();
    let channel = channel();
    let mut members: Vec<_> = (0..2)
        .map(|_| {
            let id = bound(&channel);
            let end = datagram_end(&id);
            id.join_multicast(group(1)).unwrap();
            joined(&channel, &id, group(1));
            (id, end)
        })
        .collect();
    let mut sender = Sender::new(&channel, group(1));
    for (_, end) in &mut members {
        end.post_receive(1, 100, GRH + 16);
    }
    sender.end.post_receive(1, 100, GRH + 16);
    sender.send(b"to all of you");
    for (_, end) in &mut members {
        let received = end.success().received.unwrap();
        assert_eq!((received.0, received.1), (GRH + 13, sender.end.qp.qp_number()));
        assert_eq!(end.bytes(100 + GRH, 13), b"to all of you");
    }
    // A pure sender does not receive its own datagram.
    sender.end.silence();

    let (stays, leaves) = members.split_at_mut(1);
    leaves[0].0.leave_multicast(group(1)).unwrap();
    for (_, end) in stays.iter_mut().chain(leaves.iter_mut()) {
        end.post_receive(2, 100, GRH + 16);
    }
    sender.send(b"anyone here?");
    assert_eq!(stays[0].1.success().wr_id, 2);
    leaves[0].1.silence();
    let error = leaves[0].0.leave_multicast(group(1)).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("rdma_leave_multicast", libc::EADDRNOTAVAIL));
    assert_eq!(error.hint(), Some(&*format!("the identifier is not in the group {}", group(1).ip())));

    // The kernel does not destroy a queue pair in a group.
    for (_, end) in members {
        end.side.qp.close().unwrap();
    }
    drop(sender);
    assert!(channel.try_get_cm_event().unwrap().is_none());
    assert_eq!(warnings.take(), [""; 0]);
}

#[test]
fn several_groups_are_distinct_and_left_with_the_queue_pair_or_the_identifier() {
    let warnings = Warnings::listen();
    let channel = channel();
    let id = bound(&channel);
    let end = datagram_end(&id);
    for last in 11..=13 {
        id.join_multicast(group(last)).unwrap();
    }
    let found: Vec<_> = (0..3)
        .map(|_| {
            let event = expect(&channel, EventType::MulticastJoin);
            let EventKind::MulticastJoin(membership) = event.kind() else { panic!("{event:?}") };
            let gid = membership.address_handle_attribute().grh_dest_gid();
            assert_eq!(gid.ipv4().map(Into::into), membership.group().map(|group| group.ip()));
            membership.group().unwrap()
        })
        .collect();
    for last in 11..=13 {
        assert!(found.contains(&group(last)), "{found:?}");
    }
    let error = id.join_multicast(group(12)).unwrap_err();
    assert_eq!(error.errno().raw(), libc::EADDRINUSE);
    assert_eq!(
        error.hint(),
        Some(&*format!("the identifier is in the group {} or is joining it; leave the group first", group(12).ip()))
    );
    // This address has a port, unlike the one that was joined.
    let mut elsewhere = group(12);
    elsewhere.set_port(7);
    id.leave_multicast(elsewhere).unwrap();
    id.join_multicast(group(12)).unwrap();
    end.side.qp.close().unwrap();
    // The group was left before its event was read.
    assert!(channel.try_get_cm_event().unwrap().is_none());
    id.leave_multicast(group(11)).unwrap_err();

    // Without a queue pair.
    id.join_multicast(group(14)).unwrap();
    joined(&channel, &id, group(14));
    id.join_multicast(group(15)).unwrap();
    drop(id);
    assert!(channel.try_get_cm_event().unwrap().is_none());
    assert_eq!(warnings.take(), [""; 0]);
}

#[test]
fn failed_join_reports_why_and_leaves_no_membership() {
    let channel = channel();
    let id = channel.create_id(PortSpace::Udp).unwrap();
    let hint = |group: SocketAddr, id: &Arc<Identifier>| {
        let error = id.join_multicast(group).unwrap_err();
        let hint = error.hint().unwrap_or_else(|| panic!("{error}")).to_owned();
        (error.errno().raw(), hint)
    };
    assert!(hint(group(21), &id).1.contains("has no device"));
    id.bind_addr(SocketAddr::new(address(), 0)).unwrap();
    let unicast = SocketAddr::new(address(), 0);
    assert!(hint(unicast, &id).1.ends_with("is no multicast address"));
    let ipv6: SocketAddr = "[ff0e::9:9]:0".parse().unwrap();
    let (errno, why) = hint(ipv6, &id);
    assert_eq!(
        (errno, why.as_str()),
        (524, "joining ff0e::9:9: the port does not support IPv6 multicast groups; with RoCE v2 use an IPv4 group")
    );
    id.leave_multicast(ipv6).unwrap_err();
    id.join_multicast(group(21)).unwrap();
    joined(&channel, &id, group(21));

    let connection = channel.create_id(PortSpace::Tcp).unwrap();
    connection.bind_addr(SocketAddr::new(address(), 0)).unwrap();
    let (errno, why) = hint(group(21), &connection);
    assert_eq!(errno, libc::EINVAL);
    assert!(why.contains("create the identifier in PortSpace::Udp"), "{why}");
    assert!(channel.try_get_cm_event().unwrap().is_none());
}

#[test]
fn resolved_group_address_can_be_joined() {
    let channel = channel();
    let id = channel.create_id(PortSpace::Udp).unwrap();
    id.resolve_addr(Some(SocketAddr::new(address(), 0)), group(7), LONG).unwrap();
    expect(&channel, EventType::AddressResolved);
    id.join_multicast(group(7)).unwrap();
    joined(&channel, &id, group(7));
    assert_eq!(id.peer_address().map(|peer| peer.ip()), Some(group(7).ip()));
}
