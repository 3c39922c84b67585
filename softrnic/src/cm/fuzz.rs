//! A fuzz target in which a malicious peer sends packets to the connection manager.

#[cfg(test)]
pub(crate) mod seeds;

use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use rdma_mummy_sys::{
    rdma_cm_event, rdma_cm_event_type as event_type, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space,
};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, socketpair};

use super::channel::Source;
use super::connect::{accept, disconnect, reject};
use super::events::{acknowledge, no_connection, take};
use super::id::{State, destroy, type_of};
use super::messages::{Message, SIZE};
use super::{port, world};
use crate::fuzz::Input;
use crate::sys::descriptor::Descriptor;

/// Whether the kernel's list of sockets contains ports of the port space for connections (`RDMA_PS_TCP`).
pub(crate) fn has_ports(list: &str) -> bool {
    list.lines().filter_map(|line| port::read(line, "@softrnic/1/cm/262/")).count() > 0
}

/// The states that a connection can have when the script begins.
const STATES: [State; 8] = [
    State::Connecting,
    State::Responded,
    State::Requested,
    State::Accepted,
    State::Connected,
    State::Disconnecting,
    State::PeerDisconnected,
    State::Closed,
];

/// Runs a script. Its first byte selects a connection or a listener. Packets of the peer and actions of the program
/// follow. Returns whether an event has reported a success, such as a request or a reply, and no event has reported a
/// failure.
///
/// # Panics
///
/// Panics if an event has an unknown identifier.
pub fn connections(input: &[u8]) -> bool {
    crate::builder::register().expect("devices");
    let mut input = Input(input);
    let choice = input.byte();
    let is_datagram = choice & 0x80 != 0;
    let mut side = match choice & 0x7f {
        0 => Side::listening(is_datagram),
        state => Side::connected(is_datagram, STATES[usize::from(state - 1) % STATES.len()]),
    };
    while !input.is_empty() {
        side.step(&mut input);
    }
    side.take_all(&mut input);
    side.has_good && !side.has_bad
}

/// An identifier and a socket that is connected to it.
struct Side {
    channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
    peer: Descriptor,
    /// The address, if the identifier is a listener.
    own: Option<SocketAddr>,
    /// The identifiers of the requests that have arrived.
    made: Vec<*mut rdma_cm_id>,
    has_good: bool,
    has_bad: bool,
}

impl Side {
    fn new(is_datagram: bool, peer: Descriptor) -> Self {
        let space = if is_datagram { rdma_port_space::RDMA_PS_UDP } else { rdma_port_space::RDMA_PS_TCP };
        let kind = type_of(space, rdma_mummy_sys::ibv_qp_type::IBV_QPT_RC).expect("a port space");
        let mut world = world();
        let channel = world.make_channel().expect("a channel");
        let id = world.make_id(Some(channel), ptr::null_mut(), (space, kind)).expect("an identifier");
        drop(world);
        // SAFETY: the channel was just created; its descriptor is open, and set to nonblocking.
        let set = unsafe { libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(set, 0);
        Self { channel, id, peer, own: None, made: Vec::new(), has_good: false, has_bad: false }
    }

    /// Creates a listener to which the peer is connected.
    fn listening(is_datagram: bool) -> Self {
        let mut side = Self::new(is_datagram, port::socket().expect("a socket"));
        let mut world = world();
        world.bind(side.id.addr(), SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        world.listen(side.id.addr(), 8).expect("a listener");
        let own = world.id(side.id.addr()).ok().and_then(|id| id.source).expect("an address");
        drop(world);
        // SAFETY: the identifier is alive.
        let space = unsafe { (*side.id).ps };
        assert_eq!(port::connect(&side.peer, space, own.ip(), own.port()), Ok(port::Found::Listener));
        side.own = Some(own);
        side
    }

    fn connected(is_datagram: bool, state: State) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let [own, peer] =
            <[_; 2]>::from(pair.expect("two sockets")).map(|socket| Descriptor::new(socket).expect("a free entry"));
        let side = Self::new(is_datagram, peer);
        let mut world = world();
        let watched = world.watch(side.id.addr(), Arc::new(own), Source::Link(side.id.addr())).expect("a source");
        let identifier = world.id(side.id.addr()).expect("the identifier exists");
        (identifier.link, identifier.state) = (Some(watched), state);
        drop(world);
        side
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0..=2 => {
                let packet = self.addressed(input.bytes(SIZE));
                let _ = rustix::net::send(&self.peer, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
            3 => {
                let length = usize::from(input.short()) % (SIZE + 8);
                let packet = input.bytes(length);
                let _ = rustix::net::send(&self.peer, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
            4 => world().set_deadline(self.id.addr(), Some(Instant::now())),
            5 => {
                let _ = rustix::net::shutdown(&self.peer, Shutdown::Both);
            }
            6 => {
                // SAFETY: the identifier is alive.
                unsafe { disconnect(self.id) };
            }
            _ => self.take_all(input),
        }
    }

    /// Returns a packet of the script. If its destination port is 1, the destination is replaced by the address of the
    /// listener.
    fn addressed(&self, packet: &[u8]) -> Vec<u8> {
        let mut whole = packet.to_vec();
        whole.resize(SIZE, 0);
        match (Message::decode(&whole), self.own) {
            (Some(message), Some(own)) if message.to.port() == 1 => Message { to: own, ..message }.encode().to_vec(),
            _ => whole,
        }
    }

    /// Takes all events, and calls functions on the identifiers of requests.
    fn take_all(&mut self, input: &mut Input<'_>) {
        while let Ok(event) = take(self.channel.addr(), false) {
            // SAFETY: the event was just taken.
            let (kind, id) = unsafe { self.check_event(&*event) };
            assert_eq!(acknowledge(event), Ok(()));
            if kind == event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
                self.made.push(id);
                Self::react(id, input.byte());
            }
        }
    }

    fn check_event(&mut self, event: &rdma_cm_event) -> (event_type, *mut rdma_cm_id) {
        let known = event.id == self.id || self.made.contains(&event.id) || event.listen_id == self.id;
        assert!(known && world().id(event.id.addr()).is_ok(), "an event without identifier");
        match event.event {
            event_type::RDMA_CM_EVENT_CONNECT_REQUEST
            | event_type::RDMA_CM_EVENT_CONNECT_RESPONSE
            | event_type::RDMA_CM_EVENT_ESTABLISHED => self.has_good = true,
            event_type::RDMA_CM_EVENT_REJECTED
            | event_type::RDMA_CM_EVENT_UNREACHABLE
            | event_type::RDMA_CM_EVENT_CONNECT_ERROR => self.has_bad = true,
            _ => {}
        }
        // SAFETY: the parameters of connections and datagrams start with the same fields: the private data.
        let (data, length) = unsafe { (event.param.conn.private_data, event.param.conn.private_data_len) };
        if !data.is_null() {
            // SAFETY: the event contains `length` bytes.
            let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length.into()) };
            std::hint::black_box(data.iter().map(|&byte| u32::from(byte)).sum::<u32>());
        }
        (event.event, event.id)
    }

    /// Accepts, rejects or ignores a request.
    fn react(id: *mut rdma_cm_id, choice: u8) {
        let mut parameters = rdma_conn_param { qp_num: 7, retry_count: 7, ..no_connection() };
        // SAFETY: the identifier is alive, and the parameters have no private data. Errors caused by the peer are
        // ignored.
        unsafe {
            match choice % 4 {
                0 => drop(accept(id, &raw mut parameters)),
                1 => drop(reject(id, ptr::null(), 0)),
                2 => drop(disconnect(id)),
                _ => {}
            }
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        for &id in self.made.iter().chain([&self.id]) {
            assert_eq!(destroy(id), Ok(()));
        }
        let removed = world().channels.remove(&self.channel.addr());
        assert!(removed.is_some());
    }
}
