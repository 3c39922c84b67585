//! What takes long outside: time that passes, as if it had.

use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{ibv_qp_type, rdma_cm_event_type as event_type, rdma_cm_id, rdma_event_channel, rdma_port_space};

use super::channel::Source;
use super::events::{acknowledge, take};
use super::id::{State, destroy, migrate};
use super::messages::{Kind, Message};
use super::peer::{Heard, PATIENCE, hear, tell};
use super::{port, world};
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;

/// A channel with an identifier that is connected with a socket of the test's.
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

    /// It has waited long enough.
    fn time_is_up(&self) {
        world().set_deadline(self.id.addr(), Some(Instant::now()));
    }

    /// The next event, which is of this identifier: its type and status.
    fn next(&self) -> (event_type, i32) {
        let event = take(self.channel.addr(), true).unwrap_or_else(|errno| panic!("{errno:?}"));
        // SAFETY: it was taken just now.
        let told = unsafe {
            assert_eq!((*event).id, self.id);
            ((*event).event, (*event).status)
        };
        assert_eq!(acknowledge(event), Ok(()));
        told
    }

    fn state(&self) -> State {
        world().id(self.id.addr()).map_or(State::Gone, |id| id.state)
    }

    fn hears(&self) -> Option<Kind> {
        match hear(&self.peer) {
            Heard::Message(message) => Some(message.kind),
            Heard::Nothing => panic!("nothing is said"),
            Heard::End => None,
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
#[cfg_attr(miri, ignore = "makes sockets")]
fn who_waits_when_the_channel_is_destroyed_waits_on() {
    let channel = world().make_channel().unwrap_or_else(|errno| panic!("{errno:?}")).addr();
    let waits = std::thread::spawn(move || take(channel, true).map(|event| event.addr()));
    std::thread::sleep(Duration::from_millis(100));
    let mut held = world();
    let channel = held.channels.remove(&channel).unwrap_or_else(|| panic!("it was made"));
    // Something comes at the same time.
    channel.wake();
    std::thread::sleep(Duration::from_millis(100));
    drop((held, channel));
    std::thread::sleep(Duration::from_millis(200));
    // It ends with the process.
    assert!(!waits.is_finished(), "{:?}", waits.join());
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn who_gets_no_answer_is_told_and_hangs_up() {
    for state in [State::Connecting, State::Accepted] {
        let side = Side::new(state);
        side.time_is_up();
        assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT), "{state:?}");
        assert_eq!((side.state(), side.hears()), (State::Over, None));
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn a_farewell_that_is_not_answered_is_one() {
    let side = Side::new(State::Parting);
    side.time_is_up();
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_DISCONNECTED, 0));
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn who_is_gone_has_parted() {
    let side = Side::new(State::Connected);
    assert!(rustix::net::shutdown(&side.peer, rustix::net::Shutdown::Both).is_ok());
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_DISCONNECTED, 0));
    assert_eq!(side.state(), State::Left);
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn what_does_not_belong_ends_a_connection() {
    for (state, kind) in [
        (State::Connected, Kind::Reply),
        (State::Connected, Kind::Request),
        (State::Connected, Kind::DatagramReply),
        (State::Accepted, Kind::Reply),
        (State::Connecting, Kind::ReadyToUse),
        (State::Connecting, Kind::Disconnect),
    ] {
        let side = Side::new(state);
        tell(&side.peer, &Message::new(kind));
        let expected = match state {
            State::Connected => event_type::RDMA_CM_EVENT_DISCONNECTED,
            _ => event_type::RDMA_CM_EVENT_REJECTED,
        };
        assert_eq!(side.next().0, expected, "{kind:?} in {state:?}");
        assert_eq!(side.hears(), None);
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn who_is_destroyed_says_good_bye() {
    for (state, kind) in [
        (State::Connecting, Kind::Reject),
        (State::Requested, Kind::Reject),
        (State::Responded, Kind::Reject),
        (State::Connected, Kind::Disconnect),
        (State::Left, Kind::Disconnected),
    ] {
        let side = Side::new(state);
        let peer = side.peer.try_clone().unwrap_or_else(|error| panic!("{error}"));
        drop(side);
        let Heard::Message(message) = hear(&peer) else { panic!("{state:?}") };
        assert_eq!(message.kind, kind, "{state:?}");
        assert!(matches!(hear(&peer), Heard::End), "{state:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn a_request_that_finds_no_room_is_given_up_in_the_end() {
    let side = Side::new(State::Connecting);
    {
        let mut world = world();
        let Ok(id) = world.id(side.id.addr()) else { panic!("it is there") };
        id.waiting = Some((Message::new(Kind::Request), Instant::now() - Duration::from_millis(1)));
    }
    side.time_is_up();
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT));
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn a_port_of_who_is_still_connected_is_asked_for_longer() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let (peer, side) = (Side::new(State::Connected), Side::new(State::Connecting));
    // Asks once more, as if the request had been made so long ago, and tells whether it will again.
    let asks_again_after = |passed: Duration| {
        {
            let mut world = world();
            let Ok(id) = world.id(side.id.addr()) else { panic!("it is there") };
            let message = Message { to: nobody, ..Message::new(Kind::Request) };
            (id.state, id.waiting) = (State::Connecting, Some((message, Instant::now() + PATIENCE - passed)));
        }
        side.time_is_up();
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
    assert!(!asks_again_after(second));
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_REJECTED, 8));
    connect_with(nobody);
    assert!(asks_again_after(second));
    assert!(!asks_again_after(second * 5));
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_REJECTED, 8));
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn nobody_listens_where_nobody_is() {
    let socket = port::socket().unwrap_or_else(|errno| panic!("{errno:?}"));
    let found = port::connect(&socket, rdma_port_space(0xfff1), [127, 0, 0, 1].into(), 1);
    assert_eq!(found, Ok(port::Found::Nobody));
}

#[test]
fn what_is_not_there_is_refused() {
    let mut world = world();
    assert_eq!(world.id(8).map(drop), Err(Errno::INVALID));
    let kind = (rdma_port_space::RDMA_PS_TCP, ibv_qp_type::IBV_QPT_RC);
    let made = world.make_id(Some(ptr::without_provenance_mut(8)), ptr::null_mut(), kind);
    assert_eq!(made.map(drop), Err(Errno(libc::EBADF)));
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn an_identifier_that_cannot_move_stays_where_it_is() {
    let side = Side::new(State::Connected);
    let target = world().make_channel().unwrap_or_else(|errno| panic!("{errno:?}"));
    let none = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    let none = Arc::new(none.unwrap_or_else(|error| panic!("{error}")));
    // As where the program has closed the descriptor and the number is another's.
    if let Some(channel) = world().channels.get_mut(&target.addr()) {
        channel.epoll = none;
    }
    assert_eq!(migrate(side.id, target), Err(Errno::INVALID));
    drop(world().channels.remove(&target.addr()));
    assert!(rustix::net::shutdown(&side.peer, rustix::net::Shutdown::Both).is_ok());
    assert_eq!(side.next(), (event_type::RDMA_CM_EVENT_DISCONNECTED, 0));
}
