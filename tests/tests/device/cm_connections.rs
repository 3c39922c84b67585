//! Connections by address, established and ended on one channel.

#![expect(clippy::unwrap_used, reason = "a panic in a helper fails the test")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairState};
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, EventChannel, EventKind, EventType, PortSpace, RejectReason,
};
use sideway_tests::connections::{End, LONG, address, channel, connect, expect, listen, resolve};
use sideway_tests::device;
use sideway_tests::programs::port;

#[test]
fn both_ends_are_ready_to_send_once_they_are_established() {
    let channel = channel();
    let (active, passive) = connect(&channel);
    for end in [&active, &passive] {
        assert_eq!(end.qp.state(), QueuePairState::ReadyToSend);
    }
    assert_eq!(active.id.peer_address(), passive.id.local_address());
    assert_eq!(active.id.local_address(), passive.id.peer_address());
    assert!(Arc::ptr_eq(&active.context, &passive.context));
    active.id.disconnect().unwrap();
    assert_eq!(active.qp.state(), QueuePairState::Error);
    let told = expect(&channel, EventType::Disconnected);
    assert!(Arc::ptr_eq(told.cm_id(), &passive.id));
    passive.id.disconnect().unwrap();
    let answered = expect(&channel, EventType::Disconnected);
    assert!(Arc::ptr_eq(answered.cm_id(), &active.id));
}

#[test]
fn private_data_and_depths_arrive_at_the_peer() {
    let channel = channel();
    let (listener, address) = listen(&channel, PortSpace::Tcp);
    let active = End::of(resolve(&channel, PortSpace::Tcp, address));
    let mut parameter = ConnectionParameter::default();
    parameter.setup_responder_resources(3).setup_initiator_depth(2).setup_rnr_retry_count(5);
    active.id.connect(parameter.setup_private_data(b"ping")).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    assert!(Arc::ptr_eq(request.listener_id().unwrap(), &listener));
    let EventKind::ConnectRequest(info) = request.kind() else { panic!("{request:?}") };
    assert_eq!(info.private_data().trimmed(), b"ping");
    assert_eq!((info.initiator_depth(), info.responder_resources(), info.rnr_retry_count()), (3, 2, 5));
    let passive = End::of(Arc::clone(request.cm_id()));
    passive.id.accept(ConnectionParameter::default().setup_private_data(b"pong")).unwrap();
    let found = [expect(&channel, EventType::Established), expect(&channel, EventType::Established)];
    let mine = found.iter().find(|event| Arc::ptr_eq(event.cm_id(), &active.id)).unwrap();
    let EventKind::Established(info) = mine.kind() else { panic!("{mine:?}") };
    assert_eq!(info.private_data().trimmed(), b"pong");
}

#[test]
fn rejection_has_its_reason_and_the_peers_data() {
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let active = End::of(resolve(&channel, PortSpace::Tcp, address));
    active.id.connect(&ConnectionParameter::default()).unwrap();
    expect(&channel, EventType::ConnectRequest).cm_id().reject(b"not today").unwrap();
    let event = expect(&channel, EventType::Rejected);
    let EventKind::Rejected(rejection) = event.kind() else { panic!("{event:?}") };
    assert_eq!(rejection.reason(), Some(RejectReason::ConsumerDefined));
    assert_eq!(rejection.private_data().trimmed(), b"not today");
    assert_eq!(event.to_string(), "rejected: the program there declined the request, with 9 bytes of data");
}

#[test]
fn unaccepted_request_is_rejected() {
    let channel = channel();
    let (listener, address) = listen(&channel, PortSpace::Tcp);
    let active = End::of(resolve(&channel, PortSpace::Tcp, address));
    active.id.connect(&ConnectionParameter::default()).unwrap();
    drop(expect(&channel, EventType::ConnectRequest));
    expect(&channel, EventType::Rejected);
    drop(listener);
    active.id.connect(&ConnectionParameter::default()).unwrap_err();
    assert!(channel.try_get_cm_event().unwrap().is_none());
}

#[test]
fn port_without_a_listener_is_a_rejection_with_that_reason() {
    let channel = channel();
    let active = End::of(resolve(&channel, PortSpace::Tcp, (address(), port()).into()));
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let event = channel.get_cm_event(Some(LONG)).unwrap();
    assert_eq!(event.to_string(), "rejected: no listener on that port");
}

#[test]
fn accept_is_not_followed_by_a_reject() {
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let active = End::of(resolve(&channel, PortSpace::Tcp, address));
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let passive = End::of(Arc::clone(expect(&channel, EventType::ConnectRequest).cm_id()));
    passive.id.accept(&ConnectionParameter::default()).unwrap();
    // The kernel would accept it, and destroying the identifier would never return.
    let error = passive.id.reject(b"").unwrap_err();
    assert!(error.hint().unwrap().contains("already answered"), "{error}");
    expect(&channel, EventType::Established);
    expect(&channel, EventType::Established);
}

/// A connection that the passive end has accepted, and whose event it has not taken yet although the packet that
/// establishes the connection has arrived. The ends have separate channels.
fn established_unread() -> ([Arc<EventChannel>; 2], [End; 2]) {
    let (here, there) = (channel(), channel());
    let (active, passive) = requested(&here, &there);
    passive.id.accept(&ConnectionParameter::default()).unwrap();
    expect(&here, EventType::Established);
    wait_readable(&there);
    ([here, there], [active, passive])
}

/// Both ends of a connect request.
fn requested(here: &Arc<EventChannel>, there: &Arc<EventChannel>) -> (End, End) {
    let (_listener, address) = listen(there, PortSpace::Tcp);
    let active = End::of(resolve(here, PortSpace::Tcp, address));
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let passive = End::of(Arc::clone(expect(there, EventType::ConnectRequest).cm_id()));
    (active, passive)
}

fn wait_readable(channel: &Arc<EventChannel>) {
    // SAFETY: the channel keeps its descriptor open, and the descriptor is only polled.
    let descriptor = unsafe { BorrowedFd::borrow_raw(channel.as_raw_fd()) };
    let mut poll = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let limit = Timespec::try_from(LONG).unwrap();
    assert_eq!(rustix::event::poll(&mut poll, Some(&limit)), Ok(1), "timed out waiting for an event");
}

/// perftest 6 does so at the end of its server.
#[test]
fn disconnect_before_the_established_event_is_taken_reaches_the_peer() {
    let ([here, there], [_active, passive]) = established_unread();
    passive.id.disconnect().unwrap();
    expect(&here, EventType::Disconnected);
    expect(&there, EventType::Established);
}

#[test]
fn disconnect_before_the_disconnected_event_is_taken_responds_to_the_peer() {
    let ([here, there], [active, passive]) = established_unread();
    expect(&there, EventType::Established);
    active.id.disconnect().unwrap();
    wait_readable(&there);
    passive.id.disconnect().unwrap();
    expect(&there, EventType::Disconnected);
    expect(&here, EventType::Disconnected);
    for channel in [&here, &there] {
        expect(channel, EventType::TimewaitExit);
    }
}

#[test]
fn destroyed_identifier_disconnects_its_peer_before_it_takes_the_established_event() {
    let ([here, _there], [_active, passive]) = established_unread();
    drop(passive);
    expect(&here, EventType::Disconnected);
}

/// The kernel does not report this: an answer there times out.
#[test]
fn withdrawn_request_cannot_be_answered() {
    if !device::is_soft_nic(&device::open()) {
        return;
    }
    for is_accepted in [false, true] {
        let (here, there) = (channel(), channel());
        let (active, passive) = requested(&here, &there);
        drop(active);
        wait_readable(&there);
        let answer = match is_accepted {
            true => passive.id.accept(&ConnectionParameter::default()),
            false => passive.id.reject(b""),
        };
        assert_eq!(answer.unwrap_err().errno().raw(), libc::EINVAL, "{is_accepted}");
        expect(&there, EventType::Rejected);
    }
}

#[test]
fn both_ends_learn_when_a_queue_pair_may_be_reused() {
    let channel = channel();
    let (active, passive) = connect(&channel);
    active.id.disconnect().unwrap();
    expect(&channel, EventType::Disconnected);
    passive.id.disconnect().unwrap();
    expect(&channel, EventType::Disconnected);
    let told = [(); 2].map(|()| expect(&channel, EventType::TimewaitExit));
    assert!(told.iter().all(|event| matches!(event.kind(), EventKind::TimewaitExit) && event.status().is_success()));
    assert!([&active, &passive].iter().all(|end| told.iter().any(|event| Arc::ptr_eq(event.cm_id(), &end.id))));
}
