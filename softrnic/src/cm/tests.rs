//! Tests in which time-outs are simulated.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{ibv_qp_type, rdma_cm_event_type as event_type, rdma_cm_id, rdma_event_channel, rdma_port_space};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::channel::Source;
use super::events::{acknowledge, take};
use super::id::{State, destroy, migrate};
use super::messages::{Kind, Message};
use super::peer::{CM_TIMEOUT, Received, receive, send_message};
use super::{port, world};
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;

/// An identifier and its channel. The identifier is connected to a socket of the test.
struct Side {
    channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
    peer: std::os::fd::OwnedFd,
}

impl Side {
    fn new(state: State) -> Self {
        let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
        let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
        let pair = rustix::net::socketpair(family, kind, flags, None);
        let (own, peer) = pair.unwrap_or_else(|error| panic!("{error}"));
        let own = Descriptor::new(own).unwrap_or_else(|error| panic!("{error}"));
        let mut world = world();
        let made = world.make_channel().and_then(|channel| {
            let kind = (rdma_port_space::RDMA_PS_TCP, ibv_qp_type::IBV_QPT_RC);
            let id = world.make_id(Some(channel), ptr::null_mut(), kind)?;
            let watched = world.watch(id.addr(), Arc::new(own), Source::Link(id.addr()))?;
            let identifier = world.id(id.addr())?;
            (identifier.link, identifier.state) = (Some(watched), state);
            Ok((channel, id))
        });
        drop(world);
        let (channel, id) = made.unwrap_or_else(|errno| panic!("{errno:?}"));
        Self { channel, id, peer }
    }

    /// Makes the deadline expire without waiting for it.
    fn expire_deadline(&self) {
        world().set_deadline(self.id.addr(), Some(Instant::now()));
    }

    /// Takes the next event, which must belong to this identifier, and returns its type and status.
    fn next(&self) -> (event_type, i32) {
        let event = take(self.channel.addr(), true).unwrap_or_else(|errno| panic!("{errno:?}"));
        // SAFETY: the event was just taken.
        let result = unsafe {
            assert_eq!((*event).id, self.id);
            ((*event).event, (*event).status)
        };
        assert_eq!(acknowledge(event), Ok(()));
        result
    }

    /// Whether the descriptor of the channel becomes readable within this time.
    fn is_readable(&self, time: Duration) -> bool {
        // SAFETY: the channel is alive, and so is its descriptor.
        let wake = unsafe { BorrowedFd::borrow_raw((*self.channel).fd) };
        let mut poll = [PollFd::new(&wake, PollFlags::IN)];
        let time = Timespec::try_from(time).unwrap_or_else(|error| panic!("{error}"));
        rustix::event::poll(&mut poll, Some(&time)).unwrap_or_else(|error| panic!("{error}")) > 0
    }

    fn state(&self) -> State {
        world().id(self.id.addr()).map_or(State::Destroyed, |id| id.state)
    }

    fn receive_kind(&self) -> Option<Kind> {
        match receive(&self.peer) {
            Received::Message(message) => Some(message.kind),
            Received::Nothing => panic!("no packet was sent"),
            Received::End => None,
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        assert_eq!(destroy(self.id), Ok(()));
        let gone = world().channels.remove(&self.channel.addr());
        assert!(gone.is_some());
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn waiting_call_survives_the_destruction_of_its_channel() {
    let channel = world().make_channel().unwrap_or_else(|errno| panic!("{errno:?}")).addr();
    let waits = std::thread::spawn(move || take(channel, true).map(|event| event.addr()));
    std::thread::sleep(Duration::from_millis(100));
    let mut held = world();
    let channel = held.channels.remove(&channel).unwrap_or_else(|| panic!("the channel exists"));
    // This wakes the thread that waits while the channel is being destroyed.
    channel.events.put(Err(Errno::AGAIN));
    std::thread::sleep(Duration::from_millis(100));
    drop((held, channel));
    std::thread::sleep(Duration::from_millis(200));
    // The thread waits until the process ends.
    assert!(!waits.is_finished(), "{:?}", waits.join());
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn descriptor_is_readable_only_with_an_event() {
    for (state, kinds, expected) in [
        (State::PeerDisconnected, &[][..], None),
        (State::PeerDisconnected, &[Kind::Disconnected], None),
        (State::Connected, &[Kind::ReadyToUse], None),
        (State::Connected, &[Kind::ReadyToUse, Kind::Disconnect], Some(event_type::RDMA_CM_EVENT_DISCONNECTED)),
        (State::Accepted, &[Kind::ReadyToUse], Some(event_type::RDMA_CM_EVENT_ESTABLISHED)),
    ] {
        let side = Side::new(state);
        for kind in kinds {
            send_message(&side.peer, &Message::new(*kind));
        }
        if kinds.is_empty() {
            assert!(rustix::net::shutdown(&side.peer, rustix::net::Shutdown::Both).is_ok());
        }
        let wait = Duration::from_millis(if expected.is_some() { 60_000 } else { 50 });
        assert_eq!(side.is_readable(wait), expected.is_some(), "{kinds:?} in {state:?}");
        if let Some(expected) = expected {
            assert_eq!(side.next().0, expected);
            assert!(!side.is_readable(Duration::ZERO), "{kinds:?} in {state:?}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn request_without_reply_times_out() {
    for state in [State::Connecting, State::Accepted] {
        let side = Side::new(state);
        side.expire_deadline();
        assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT), "{state:?}");
        assert_eq!((side.state(), side.receive_kind()), (State::Closed, None));
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn disconnect_without_response_times_out() {
    let side = Side::new(State::Disconnecting);
    side.expire_deadline();
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_DISCONNECTED, 0));
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn ended_peer_has_disconnected() {
    let side = Side::new(State::Connected);
    assert!(rustix::net::shutdown(&side.peer, rustix::net::Shutdown::Both).is_ok());
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_DISCONNECTED, 0));
    assert_eq!(side.state(), State::PeerDisconnected);
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn unexpected_packet_ends_the_connection() {
    for (state, kind) in [
        (State::Connected, Kind::Reply),
        (State::Connected, Kind::Request),
        (State::Connected, Kind::DatagramReply),
        (State::Accepted, Kind::Reply),
        (State::Connecting, Kind::ReadyToUse),
        (State::Connecting, Kind::Disconnect),
    ] {
        let side = Side::new(state);
        send_message(&side.peer, &Message::new(kind));
        let expected = match state {
            State::Connected => event_type::RDMA_CM_EVENT_DISCONNECTED,
            _ => event_type::RDMA_CM_EVENT_REJECTED,
        };
        assert_eq!(side.next().0, expected, "{kind:?} in {state:?}");
        assert_eq!(side.receive_kind(), None);
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn destroyed_identifier_notifies_its_peer() {
    for (state, kind) in [
        (State::Connecting, Kind::Reject),
        (State::Requested, Kind::Reject),
        (State::Responded, Kind::Reject),
        (State::Connected, Kind::Disconnect),
        (State::PeerDisconnected, Kind::Disconnected),
    ] {
        let side = Side::new(state);
        let peer = side.peer.try_clone().unwrap_or_else(|error| panic!("{error}"));
        drop(side);
        let Received::Message(message) = receive(&peer) else { panic!("{state:?}") };
        assert_eq!(message.kind, kind, "{state:?}");
        assert!(matches!(receive(&peer), Received::End), "{state:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn request_to_a_full_backlog_times_out() {
    let side = Side::new(State::Connecting);
    {
        let mut world = world();
        let Ok(id) = world.id(side.id.addr()) else { panic!("the identifier exists") };
        id.waiting = Some((Message::new(Kind::Request), Instant::now() - Duration::from_millis(1)));
    }
    side.expire_deadline();
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT));
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn port_of_a_connected_peer_is_retried_longer() {
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let (peer, side) = (Side::new(State::Connected), Side::new(State::Connecting));
    // Simulates a request that was made this long ago, and returns whether it will be retried.
    let is_retried_after = |passed: Duration| {
        {
            let mut world = world();
            let Ok(id) = world.id(side.id.addr()) else { panic!("the identifier exists") };
            let message = Message { to: address, ..Message::new(Kind::Request) };
            (id.state, id.waiting) = (State::Connecting, Some((message, Instant::now() + CM_TIMEOUT - passed)));
        }
        side.expire_deadline();
        assert_eq!(world().gather(side.channel.addr()), Ok(()));
        world().id(side.id.addr()).is_ok_and(|id| id.waiting.is_some())
    };
    let connect_with = |to| {
        if let Ok(id) = world().id(peer.id.addr()) {
            id.destination = Some(to);
        }
    };
    let second = Duration::from_secs(1);
    connect_with(SocketAddr::from(([127, 0, 0, 1], 10)));
    assert!(!is_retried_after(second));
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_REJECTED, 8));
    connect_with(address);
    assert!(is_retried_after(second));
    assert!(!is_retried_after(second * 5));
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_REJECTED, 8));
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn unbound_port_has_no_listener() {
    let socket = port::socket().unwrap_or_else(|errno| panic!("{errno:?}"));
    let found = port::connect(&socket, rdma_port_space(0xfff1), [127, 0, 0, 1].into(), 1);
    assert_eq!(found, Ok(port::Found::NoListener));
}

#[test]
fn unknown_objects_are_refused() {
    let mut world = world();
    assert_eq!(world.id(8).map(drop), Err(Errno::INVALID));
    let kind = (rdma_port_space::RDMA_PS_TCP, ibv_qp_type::IBV_QPT_RC);
    let made = world.make_id(Some(ptr::without_provenance_mut(8)), ptr::null_mut(), kind);
    assert_eq!(made.map(drop), Err(Errno(libc::EBADF)));
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn failed_migration_changes_nothing() {
    let side = Side::new(State::Connected);
    let target = world().make_channel().unwrap_or_else(|errno| panic!("{errno:?}"));
    let none = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    let none = Arc::new(none.unwrap_or_else(|error| panic!("{error}")));
    // Simulates a descriptor that the program has closed, and whose number was reused.
    if let Some(channel) = world().channels.get_mut(&target.addr()) {
        channel.sources = none;
    }
    assert_eq!(migrate(side.id, target), Err(Errno::INVALID));
    drop(world().channels.remove(&target.addr()));
    assert!(rustix::net::shutdown(&side.peer, rustix::net::Shutdown::Both).is_ok());
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_DISCONNECTED, 0));
}
