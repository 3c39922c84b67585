//! Queue pairs for datagrams that are looked up by address and port.

use std::sync::Arc;

use sideway::ibverbs::queue_pair::QueuePair;
use sideway::rdmacm::communication_manager::{ConnectionParameter, EventKind, EventType, PortSpace, SidrStatus};
use sideway_tests::connections::{address, channel, datagram_end, expect, listen, listen_at, resolve, send_datagram};
use sideway_tests::datagrams::GRH;
use sideway_tests::programs::port;

#[test]
fn datagram_arrives_at_the_looked_up_destination() {
    let channel = channel();
    let (listener, address) = listen(&channel, PortSpace::Udp);
    let active = resolve(&channel, PortSpace::Udp, address);
    let mut sender = datagram_end(&active);
    active.connect(ConnectionParameter::default().setup_private_data(b"ping")).unwrap();

    let request = expect(&channel, EventType::ConnectRequest);
    assert!(Arc::ptr_eq(request.listener_id().unwrap(), &listener));
    let EventKind::LookupRequest(data) = request.kind() else { panic!("{request:?}") };
    assert_eq!((data.trimmed(), data.len()), (&b"ping"[..], 180));
    let passive = Arc::clone(request.cm_id());
    let mut receiver = datagram_end(&passive);
    passive.accept(ConnectionParameter::default().setup_private_data(b"me")).unwrap();

    let event = expect(&channel, EventType::Established);
    assert!(Arc::ptr_eq(event.cm_id(), &active));
    let EventKind::LookupResponse(remote) = event.kind() else { panic!("{event:?}") };
    assert_eq!((remote.private_data().trimmed(), remote.private_data().len()), (&b"me"[..], 136));
    assert_eq!(remote.qp_number(), receiver.qp.qp_number());
    // Datagrams have no connection, so the peer receives no event.
    assert!(channel.try_get_cm_event().unwrap().is_none());

    receiver.post_receive(1, 100, GRH + 16);
    let to = (remote.qp_number(), remote.qkey());
    send_datagram(&mut sender, remote.address_handle_attribute(), to, b"found you");
    let received = receiver.success().received.unwrap();
    assert_eq!((received.0, received.1), (GRH + 9, sender.qp.qp_number()));
    assert_eq!(receiver.bytes(100 + GRH, 9), b"found you");
}

#[test]
fn accept_reports_the_number_of_a_programs_own_queue_pair() {
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Udp);
    let active = resolve(&channel, PortSpace::Udp, address);
    active.connect(&ConnectionParameter::default()).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    request.cm_id().accept(ConnectionParameter::default().setup_qp_number(0x1234)).unwrap();
    let event = expect(&channel, EventType::Established);
    let EventKind::LookupResponse(remote) = event.kind() else { panic!("{event:?}") };
    assert_eq!(remote.qp_number(), 0x1234);
}

#[test]
fn refused_lookup_reports_why() {
    let channel = channel();
    let (listener, address) = listen_at(&channel, PortSpace::Udp, (address(), port()).into());
    let refused = |data: &[u8], status: SidrStatus| {
        let event = expect(&channel, EventType::Unreachable);
        let EventKind::Unreachable(unreachable) = event.kind() else { panic!("{event:?}") };
        assert_eq!(unreachable.sidr_status(), Some(status), "{event}");
        assert_eq!(unreachable.private_data().trimmed(), data);
    };
    let active = resolve(&channel, PortSpace::Udp, address);
    active.connect(&ConnectionParameter::default()).unwrap();
    expect(&channel, EventType::ConnectRequest).cm_id().reject(b"not you").unwrap();
    refused(b"not you", SidrStatus::Rejected);

    let told_at_length = resolve(&channel, PortSpace::Udp, address);
    told_at_length.connect(&ConnectionParameter::default()).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    let error = request.cm_id().reject(&[7; 137]).unwrap_err();
    assert!(error.hint().unwrap().contains("137 bytes"), "{error}");
    request.cm_id().reject(&[7; 136]).unwrap();
    refused(&[7; 136], SidrStatus::Rejected);
    // The request keeps the listener alive.
    drop(request);

    let forgotten = resolve(&channel, PortSpace::Udp, address);
    forgotten.connect(&ConnectionParameter::default()).unwrap();
    drop(expect(&channel, EventType::ConnectRequest));
    refused(b"", SidrStatus::Rejected);

    drop(listener);
    let late = resolve(&channel, PortSpace::Udp, address);
    late.connect(&ConnectionParameter::default()).unwrap();
    refused(b"", SidrStatus::UnsupportedServiceId);
}
