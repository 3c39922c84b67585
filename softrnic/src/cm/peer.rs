//! How the packets and the time-outs of the peer of a connection are handled.

use std::ffi::c_int;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{RDMA_UDP_QKEY, ibv_ece, rdma_cm_event_type as event_type, rdma_conn_param, rdma_ud_param};
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::events::{Parameters, Pending, is_datagram, no_connection, no_datagram};
use super::id::{Identifier, State};
use super::messages::{Kind, Message, SIZE};
use super::transition::address_handle;
use super::{World, device};
use crate::sys::errno::Errno;
use crate::wire::transport::Fabric;

/// The time-out of requests, replies and disconnect requests. It is about as long as the connection manager of the
/// kernel retries them.
pub(super) const CM_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a disconnected QP is in timewait before it can be connected again. It is about as long as in the kernel on
/// Ethernet.
const TIMEWAIT: Duration = Duration::from_millis(537);

/// The maximum number of packets that a call handles before it reads the state. A peer sends at most three.
const MAX_PACKETS: usize = 8;

/// The reason for a rejection. The numbers are those of the InfiniBand specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason(pub(super) u16);

impl Reason {
    pub(super) const TIMEOUT: Self = Self(4);
    pub(super) const INVALID_SERVICE_ID: Self = Self(8);
    pub(super) const INVALID_GID: Self = Self(12);
    pub(super) const CONSUMER_DEFINED: Self = Self(28);
    pub(super) const VENDOR_OPTION: Self = Self(35);
    /// A reason for rejecting a request of a datagram service. Datagram services have their own numbers.
    pub(super) const DATAGRAM_UNSUPPORTED: Self = Self(1);
    pub(super) const DATAGRAM_REJECTED: Self = Self(2);
}

/// The result of reading from a socket.
pub(super) enum Received {
    Message(Box<Message>),
    Nothing,
    /// The peer has closed its socket, or sent a malformed packet.
    End,
}

pub(super) fn receive(socket: impl AsFd) -> Received {
    // The buffer has one more byte than a packet, so that longer packets are detected.
    let mut packet = [0; SIZE + 1];
    // `recv` reports a reset once. After that, packets that arrived before the reset can still be read.
    for _ in 0..3 {
        match rustix::net::recv(&socket, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Received::End,
            Ok((_, length)) => {
                let message = packet.get(..length).and_then(Message::decode);
                return message.map_or_else(
                    || {
                        rdma_mummy_sys::log!(
                            debug,
                            "closed a connection: the peer sent a malformed packet of {length} bytes"
                        );
                        Received::End
                    },
                    |message| Received::Message(Box::new(message)),
                );
            }
            Err(rustix::io::Errno::AGAIN) => return Received::Nothing,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            Err(_) => return Received::End,
        }
    }
    Received::End
}

/// Sends a packet. An error is ignored, because if the peer has exited, a later read of the socket reports this.
pub(super) fn send_message(socket: impl AsFd, message: &Message) {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    if let Err(error) = rustix::net::send(socket, &message.encode(), flags) {
        rdma_mummy_sys::log!(debug, "cannot send to the peer of a connection: {error}");
    }
}

impl World {
    /// Sends a packet to the peer of an identifier.
    pub(super) fn send(&mut self, id: usize, message: &Message) {
        let Ok(identifier) = self.id(id) else { return };
        match identifier.fabric {
            Fabric::Host => {}
            Fabric::Roce => return self.send_on_roce(id, message),
            Fabric::Iwarp => return,
        }
        if device::is_down(Fabric::Host) {
            identifier.unsent.push(message.clone());
        } else if let Some(link) = &identifier.link {
            send_message(&*link.socket, message);
        }
    }

    pub(super) fn close_link(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        let (channel, has_stream) = (identifier.channel, identifier.has_stream());
        if let Some(link) = identifier.link.take() {
            self.unwatch(channel, &link);
            if has_stream {
                return;
            }
            // The port may refer to the same socket, so dropping the link may not close it.
            let _ = rustix::net::shutdown(&*link.socket, Shutdown::Both);
        }
    }

    /// Returns an identifier after the packets of its peer that have arrived were handled. The kernel handles packets
    /// when they arrive, and not when the program takes an event. A call whose result depends on the state therefore
    /// reads the state from this function.
    pub(super) fn current(&mut self, id: usize) -> Result<&mut Identifier, Errno> {
        for _ in 0..MAX_PACKETS {
            if !self.handle_link(id) {
                break;
            }
        }
        self.id(id)
    }

    /// Handles the socket of a connection when it is ready. Returns whether further packets may have arrived.
    pub(super) fn handle_link(&mut self, id: usize) -> bool {
        let Ok(identifier) = self.id(id) else { return false };
        if device::is_down(identifier.fabric) {
            return false;
        }
        match identifier.fabric {
            Fabric::Host => {}
            Fabric::Iwarp => {
                self.handle_stream(id);
                return false;
            }
            Fabric::Roce => {
                self.take_arrived();
                return false;
            }
        }
        let Some(link) = &identifier.link else { return false };
        match receive(&*link.socket) {
            Received::Message(message) => {
                self.handle_message(id, *message);
                true
            }
            Received::Nothing => false,
            Received::End => {
                self.handle_peer_end(id);
                false
            }
        }
    }

    pub(super) fn handle_message(&mut self, id: usize, message: Message) {
        let Ok(state) = self.id(id).map(|id| id.state) else { return };
        match (message.kind, state) {
            (Kind::Reply, State::Connecting) => self.handle_reply(id, message),
            (Kind::DatagramReply, State::Connecting) => self.handle_datagram_reply(id, message),
            (Kind::ReadyToUse, State::Accepted) => self.established(id),
            // The program has already reported the connection with `rdma_notify`.
            (Kind::ReadyToUse, State::Connected) => {}
            (Kind::Reject, State::Connecting | State::Responded | State::Requested | State::Accepted) => {
                self.rejected(id, message.reason.into(), message.data);
            }
            (Kind::Disconnect, State::Connected | State::Accepted) => {
                self.handle_disconnect(id, State::PeerDisconnected)
            }
            (Kind::Disconnect | Kind::Disconnected, State::Disconnecting) => self.handle_disconnect(id, State::Closed),
            (Kind::Disconnected, State::PeerDisconnected | State::Closed) => {}
            _ => self.handle_peer_end(id),
        }
    }

    pub(super) fn handle_peer_end(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        // SAFETY: the identifier is alive.
        let datagram = unsafe { is_datagram(identifier.c) };
        match identifier.state {
            State::Connecting if datagram => self.rejected(id, Reason::DATAGRAM_REJECTED.0.into(), Vec::new()),
            State::Connecting | State::Responded => self.rejected(id, Reason::CONSUMER_DEFINED.0.into(), Vec::new()),
            State::Requested | State::Accepted if !datagram => {
                self.rejected(id, Reason::TIMEOUT.0.into(), Vec::new());
            }
            State::Connected if !datagram => self.handle_disconnect(id, State::PeerDisconnected),
            State::Disconnecting => self.handle_disconnect(id, State::Closed),
            _ => {}
        }
        self.close_link(id);
    }

    /// Handles a reply. The program or the library then sends the ready-to-use packet.
    fn handle_reply(&mut self, id: usize, message: Message) {
        self.set_deadline(id, None);
        let Ok(identifier) = self.id(id) else { return };
        identifier.state = State::Responded;
        (identifier.remote_qp, identifier.remote_psn) = (message.qp_number, message.psn);
        identifier.rnr_retry_count = message.rnr_retry_count;
        // The responder resources of the peer limit the initiator depth of this side, and vice versa. A larger value of
        // the peer has no effect.
        identifier.initiator_depth = identifier.initiator_depth.min(message.responder_resources);
        identifier.responder_resources = identifier.responder_resources.min(message.initiator_depth);
        identifier.remote_ece = ibv_ece { vendor_id: message.ece.0, options: message.ece.1, comp_mask: 0 };
        let parameters = Parameters::Connection(rdma_conn_param { retry_count: 0, ..connection(&message) });
        let kind = event_type::RDMA_CM_EVENT_CONNECT_RESPONSE;
        self.put(Pending { parameters, data: message.data, ..Pending::new(id, kind) });
    }

    fn handle_datagram_reply(&mut self, id: usize, message: Message) {
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
        self.close_link(id);
    }

    /// Handles the ready-to-use packet on the side that has accepted.
    pub(super) fn established(&mut self, id: usize) {
        self.set_deadline(id, None);
        let Ok(identifier) = self.id(id) else { return };
        identifier.state = State::Connected;
        let parameters = Parameters::Connection(no_connection());
        self.put(Pending { parameters, ..Pending::new(id, event_type::RDMA_CM_EVENT_ESTABLISHED) });
    }

    /// Ends an attempt to connect that was rejected or has failed.
    pub(super) fn rejected(&mut self, id: usize, status: c_int, data: Vec<u8>) {
        self.set_deadline(id, None);
        let Ok(identifier) = self.id(id) else { return };
        (identifier.state, identifier.waiting) = (State::Closed, None);
        // SAFETY: the identifier is alive.
        let datagram = unsafe { is_datagram(identifier.c) };
        let (kind, parameters) = match datagram {
            true => (event_type::RDMA_CM_EVENT_UNREACHABLE, Parameters::Datagram(no_datagram())),
            false if status < 0 => (event_type::RDMA_CM_EVENT_UNREACHABLE, Parameters::Connection(no_connection())),
            false => (event_type::RDMA_CM_EVENT_REJECTED, Parameters::Connection(no_connection())),
        };
        self.put(Pending { status, parameters, data, ..Pending::new(id, kind) });
        self.close_link(id);
    }

    /// Ends an attempt to connect to a host on which no process listens.
    pub(super) fn no_listener(&mut self, id: usize) {
        let Ok(c) = self.id(id).map(|id| id.c) else { return };
        // SAFETY: the identifier is alive.
        let datagram = unsafe { is_datagram(c) };
        let (reason, kind) = match datagram {
            true => (Reason::DATAGRAM_UNSUPPORTED, Kind::DatagramReply),
            false => (Reason::INVALID_SERVICE_ID, Kind::Reject),
        };
        self.rejected(id, reason.0.into(), Message::new(kind).data);
    }

    /// Ends a connection because the peer has disconnected.
    fn handle_disconnect(&mut self, id: usize, state: State) {
        let Ok(identifier) = self.id(id) else { return };
        identifier.state = state;
        let parameters = Parameters::Connection(no_connection());
        self.put(Pending { parameters, ..Pending::new(id, event_type::RDMA_CM_EVENT_DISCONNECTED) });
        if state == State::Closed {
            self.enter_timewait(id);
        }
    }

    /// Begins timewait after both sides have disconnected.
    pub(super) fn enter_timewait(&mut self, id: usize) {
        self.close_link(id);
        self.set_deadline(id, Some(Instant::now() + TIMEWAIT));
    }

    pub(super) fn handle_deadline(&mut self, id: usize, now: Instant) {
        let Ok(identifier) = self.id(id) else { return };
        match identifier.state {
            State::Listening => self.close_silent(id, now),
            State::Connecting if identifier.fabric == Fabric::Iwarp => self.set_up_expired(id),
            State::Connecting => match identifier.waiting.take() {
                Some((message, until)) if now < until => self.retry_request(id, message, until),
                _ => self.rejected(id, -libc::ETIMEDOUT, Vec::new()),
            },
            State::Accepted => self.rejected(id, -libc::ETIMEDOUT, Vec::new()),
            State::Disconnecting => {
                self.handle_disconnect(id, State::Closed);
            }
            State::Closed => {
                let parameters = Parameters::Connection(no_connection());
                self.put(Pending { parameters, ..Pending::new(id, event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT) });
            }
            _ => {}
        }
    }
}

/// Returns the parameters of the event for a packet that has arrived. The initiator depth of the sender becomes the
/// responder resources of this side, and vice versa.
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

/// The Q_Key that all datagram services use.
pub(super) const QKEY: u32 = RDMA_UDP_QKEY;
