//! The other end of a connection: what it says, and what comes of its silence.

use std::ffi::c_int;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{RDMA_UDP_QKEY, ibv_ece, rdma_cm_event_type as event_type, rdma_conn_param, rdma_ud_param};
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::World;
use super::events::{Parameters, Pending, is_datagram, no_connection, no_datagram};
use super::id::State;
use super::messages::{Kind, Message, SIZE};
use super::transition::address_handle;

/// How long a request or a farewell waits for its answer: about as long as the kernel's connection manager tries.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// When a queue pair can be used for another connection: about as long as the kernel waits on Ethernet.
const TIMEWAIT: Duration = Duration::from_millis(537);

/// Why a connection is rejected, as the InfiniBand specification numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason(pub(super) u16);

impl Reason {
    pub(super) const TIMEOUT: Self = Self(4);
    pub(super) const INVALID_SERVICE_ID: Self = Self(8);
    pub(super) const CONSUMER_DEFINED: Self = Self(28);
    pub(super) const VENDOR_OPTION: Self = Self(35);
    /// Of datagrams, which have numbers of their own.
    pub(super) const DATAGRAM_UNSUPPORTED: Self = Self(1);
    pub(super) const DATAGRAM_REJECTED: Self = Self(2);
}

/// What came of a look at a socket.
pub(super) enum Heard {
    Message(Box<Message>),
    Nothing,
    /// The other side is gone, or says what nobody says.
    End,
}

/// Reads the next packet.
pub(super) fn hear(socket: impl AsFd) -> Heard {
    // One more, so that a longer one is seen to be longer.
    let mut packet = [0; SIZE + 1];
    // A reset is told once, before what came earlier can be read.
    for _ in 0..3 {
        match rustix::net::recv(&socket, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Heard::End,
            Ok((_, length)) => {
                let message = packet.get(..length).and_then(Message::decode);
                return message.map_or_else(
                    || {
                        log::debug!("a peer of the connection manager says {length} bytes that mean nothing");
                        Heard::End
                    },
                    |message| Heard::Message(Box::new(message)),
                );
            }
            Err(rustix::io::Errno::AGAIN) => return Heard::Nothing,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            Err(_) => return Heard::End,
        }
    }
    Heard::End
}

/// Says something, if the other side is there to hear it: that it is not is seen by its socket.
pub(super) fn tell(socket: impl AsFd, message: &Message) {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    if let Err(error) = rustix::net::send(socket, &message.encode(), flags) {
        log::debug!("a peer of the connection manager cannot be told: {error}");
    }
}

impl World {
    /// Says something to the other side of an identifier.
    pub(super) fn say(&mut self, id: usize, message: &Message) {
        if let Some(link) = self.id(id).ok().and_then(|id| id.link.as_ref()) {
            tell(&*link.socket, message);
        }
    }

    /// Ends the socket of a connection.
    pub(super) fn hang_up(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        let channel = identifier.channel;
        if let Some(link) = identifier.link.take() {
            self.unwatch(channel, &link);
            // The port may still have it.
            let _ = rustix::net::shutdown(&*link.socket, Shutdown::Both);
        }
    }

    /// A connection's socket is ready.
    pub(super) fn peer_speaks(&mut self, id: usize) {
        let Some(link) = self.id(id).ok().and_then(|id| id.link.as_ref()) else { return };
        match hear(&*link.socket) {
            Heard::Message(message) => self.hears(id, *message),
            Heard::Nothing => {}
            Heard::End => self.peer_is_gone(id),
        }
    }

    fn hears(&mut self, id: usize, message: Message) {
        let Ok(state) = self.id(id).map(|id| id.state) else { return };
        match (message.kind, state) {
            (Kind::Reply, State::Connecting) => self.replied(id, message),
            (Kind::DatagramReply, State::Connecting) => self.datagram_replied(id, message),
            (Kind::ReadyToUse, State::Accepted) => self.established(id),
            // The program has heard of it already.
            (Kind::ReadyToUse, State::Connected) => {}
            (Kind::Reject, State::Connecting | State::Responded | State::Requested | State::Accepted) => {
                self.rejected(id, message.reason.into(), message.data);
            }
            (Kind::Disconnect, State::Connected | State::Accepted) => self.parted(id, State::Left),
            (Kind::Disconnect | Kind::Disconnected, State::Parting) => self.parted(id, State::Over),
            (Kind::Disconnected, State::Left | State::Over) => {}
            _ => self.peer_is_gone(id),
        }
    }

    fn peer_is_gone(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        // SAFETY: the identifier is alive.
        let datagram = unsafe { is_datagram(identifier.c) };
        match identifier.state {
            State::Connecting if datagram => self.rejected(id, Reason::DATAGRAM_REJECTED.0.into(), Vec::new()),
            State::Connecting | State::Responded => self.rejected(id, Reason::CONSUMER_DEFINED.0.into(), Vec::new()),
            State::Requested | State::Accepted if !datagram => {
                self.rejected(id, Reason::TIMEOUT.0.into(), Vec::new());
            }
            State::Connected if !datagram => self.parted(id, State::Left),
            State::Parting => self.parted(id, State::Over),
            _ => {}
        }
        self.hang_up(id);
    }

    /// An answer has come, which the program, or the library for it, answers in turn.
    fn replied(&mut self, id: usize, message: Message) {
        self.set_deadline(id, None);
        let Ok(identifier) = self.id(id) else { return };
        identifier.state = State::Responded;
        (identifier.remote_qp, identifier.remote_psn) = (message.qp_number, message.psn);
        identifier.rnr_retry_count = message.rnr_retry_count;
        // What the other side answers is what this one may begin, and the other way round; more than was asked for is not.
        identifier.initiator_depth = identifier.initiator_depth.min(message.responder_resources);
        identifier.responder_resources = identifier.responder_resources.min(message.initiator_depth);
        identifier.remote_ece = ibv_ece { vendor_id: message.ece.0, options: message.ece.1, comp_mask: 0 };
        let parameters = Parameters::Connection(rdma_conn_param { retry_count: 0, ..connection(&message) });
        let kind = event_type::RDMA_CM_EVENT_CONNECT_RESPONSE;
        self.put(Pending { parameters, data: message.data, ..Pending::new(id, kind) });
    }

    fn datagram_replied(&mut self, id: usize, message: Message) {
        self.set_deadline(id, None);
        if message.reason != 0 {
            return self.rejected(id, message.reason.into(), message.data);
        }
        let Ok(identifier) = self.id(id) else { return };
        identifier.state = State::Connected;
        identifier.remote_qp = message.qp_number;
        identifier.remote_ece = ibv_ece { vendor_id: message.ece.0, options: message.ece.1, comp_mask: 0 };
        let ah_attr = address_handle(identifier);
        let parameters = rdma_ud_param { ah_attr, qp_num: message.qp_number, qkey: message.qkey, ..no_datagram() };
        let kind = event_type::RDMA_CM_EVENT_ESTABLISHED;
        let parameters = Parameters::Datagram(parameters);
        self.put(Pending { parameters, data: message.data, ..Pending::new(id, kind) });
        self.hang_up(id);
    }

    /// The side that accepted hears that the other is ready.
    pub(super) fn established(&mut self, id: usize) {
        self.set_deadline(id, None);
        let Ok(identifier) = self.id(id) else { return };
        identifier.state = State::Connected;
        let parameters = Parameters::Connection(no_connection());
        self.put(Pending { parameters, ..Pending::new(id, event_type::RDMA_CM_EVENT_ESTABLISHED) });
    }

    /// There will be no connection.
    pub(super) fn rejected(&mut self, id: usize, status: c_int, data: Vec<u8>) {
        self.set_deadline(id, None);
        let Ok(identifier) = self.id(id) else { return };
        (identifier.state, identifier.waiting) = (State::Over, None);
        // SAFETY: the identifier is alive.
        let datagram = unsafe { is_datagram(identifier.c) };
        let (kind, parameters) = match datagram {
            true => (event_type::RDMA_CM_EVENT_UNREACHABLE, Parameters::Datagram(no_datagram())),
            false if status < 0 => (event_type::RDMA_CM_EVENT_UNREACHABLE, Parameters::Connection(no_connection())),
            false => (event_type::RDMA_CM_EVENT_REJECTED, Parameters::Connection(no_connection())),
        };
        self.put(Pending { status, parameters, data, ..Pending::new(id, kind) });
        self.hang_up(id);
    }

    /// The connection has ended.
    fn parted(&mut self, id: usize, state: State) {
        let Ok(identifier) = self.id(id) else { return };
        identifier.state = state;
        let parameters = Parameters::Connection(no_connection());
        self.put(Pending { parameters, ..Pending::new(id, event_type::RDMA_CM_EVENT_DISCONNECTED) });
        if state == State::Over {
            self.wait_out(id);
        }
    }

    /// Both sides have parted.
    pub(super) fn wait_out(&mut self, id: usize) {
        self.hang_up(id);
        self.set_deadline(id, Some(Instant::now() + TIMEWAIT));
    }

    /// An identifier has waited long enough.
    pub(super) fn time_is_up(&mut self, id: usize, now: Instant) {
        let Ok(identifier) = self.id(id) else { return };
        match identifier.state {
            State::Listening => self.forget_the_silent(id, now),
            State::Connecting => match identifier.waiting.take() {
                Some((message, until)) if now < until => self.ask_again(id, message, until),
                _ => self.rejected(id, -libc::ETIMEDOUT, Vec::new()),
            },
            State::Accepted => self.rejected(id, -libc::ETIMEDOUT, Vec::new()),
            State::Parting => {
                self.parted(id, State::Over);
            }
            State::Over => {
                let parameters = Parameters::Connection(no_connection());
                self.put(Pending { parameters, ..Pending::new(id, event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT) });
            }
            _ => {}
        }
    }
}

/// What an event says of a packet: what the sender begins is what this side answers.
pub(super) fn connection(message: &Message) -> rdma_conn_param {
    rdma_conn_param {
        initiator_depth: message.responder_resources,
        responder_resources: message.initiator_depth,
        flow_control: message.flow_control,
        retry_count: message.retry_count,
        rnr_retry_count: message.rnr_retry_count,
        srq: message.srq,
        qp_num: message.qp_number,
        ..no_connection()
    }
}

/// The key of all datagram services.
pub(super) const QKEY: u32 = RDMA_UDP_QKEY;
