//! The set-up of the connections of iWARP devices on TCP sockets. [`Connection`] owns the socket before and after the
//! set-up.
//!
//! A listener for reliable connections also listens on the TCP port with its port number ([`accept`]). A client whose
//! destination is on another host connects to that port ([`connect`]). Each step has a time-out.

mod accept;
mod connect;

pub(super) use self::accept::{accept, bound, listens, read_request, send_rejection};
pub(super) use self::connect::respond;

use std::net::SocketAddr;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_qp_state, ibv_qp_type, rdma_cm_id, rdma_port_space};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};

use self::connect::Attempt;
use super::address::gid;
use super::calls::system;
use super::id::Identifier;
use super::route::HOPS;
use super::{World, device};
use crate::net::iwarp::connect::{Agreed, Initiator, Request};
use crate::net::iwarp::connection::Connection;
use crate::qp;
use crate::qp::registry::QpRegistry;
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;
use crate::verbs::port::PORT;
use crate::verbs::queue_pair::show_state;
use crate::wire::address::Path;
use crate::wire::limits::MAX_RD_ATOMIC;
use crate::wire::operation::Service;
use crate::wire::transport::{Dedicated, Fabric};
use crate::wiring::streams;

/// The progress of an identifier's connection.
pub(in crate::cm) enum Setup {
    /// TCP has refused the connection, and the attempt is repeated later.
    Retrying(Attempt),
    /// The TCP connection is being established, or the request was sent on it.
    Requesting(Attempt, Initiator),
    /// The request of the peer waits until the program accepts or rejects it.
    Requested(Request),
    /// The peer has accepted, and the program has not taken the event yet.
    Agreed(Attempt, Agreed),
    Connected(Arc<Connection>),
}

/// Whether identifiers of this kind can use an iWARP device.
///
/// # Safety
///
/// The identifier is alive.
pub(in crate::cm) unsafe fn is_possible(id: *mut rdma_cm_id) -> bool {
    // SAFETY: guaranteed by the caller.
    let kind = unsafe { ((*id).ps, (*id).qp_type) };
    kind == (rdma_port_space::RDMA_PS_TCP, ibv_qp_type::IBV_QPT_RC) && device::exists(Fabric::Iwarp)
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn tcp_socket(address: SocketAddr) -> Result<Descriptor, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Descriptor::open(|| rustix::net::socket_with(family(address), SocketType::STREAM, flags, Some(ipproto::TCP)))
        .map_err(system)
}

/// Returns the path between two addresses.
fn path(from: SocketAddr, to: SocketAddr, traffic_class: u8) -> Path {
    Path {
        destination: gid(to.ip()),
        source: gid(from.ip()),
        source_index: 0,
        flow_label: 0,
        hop_limit: HOPS,
        traffic_class,
        service_level: 0,
        port: PORT,
        static_rate: 0,
    }
}

/// Limits a read depth to the maximum of the device, which fits into a byte.
fn depth(value: u16) -> u8 {
    value.min(MAX_RD_ATOMIC as u16) as u8
}

/// Connects the QP and passes the socket to it. The caller must not hold the lock of the world, because the QP may wait
/// for other threads.
fn hand_over(
    socket: Arc<Descriptor>,
    (agreed, is_initiator): (&Agreed, bool),
    first: Vec<u8>,
    number: u32,
    path: Path,
) -> Result<Arc<Connection>, Errno> {
    let pair = QpRegistry::of_process().find(number).filter(|pair| pair.parts().service == Service::Iwarp);
    let pair = pair.ok_or(Errno::INVALID)?;
    let made = streams()
        .connection(socket, agreed, is_initiator, first, (number, &path, pair.parts().condition))
        .map_err(system)?;
    let connection: Arc<dyn Dedicated> = Arc::<Connection>::clone(&made);
    pair.connect(connection, path, (depth(agreed.ord), depth(agreed.ird)))?;
    if let Err(error) = streams().begin(&made) {
        let _ = pair.change(qp::State::ReadyToSend, qp::State::Error, pair.attributes());
        return Err(system(error));
    }
    Ok(made)
}

/// Whether the peer has closed its sending direction, or the connection is lost.
fn is_closed(socket: &Descriptor) -> bool {
    let mut poll = [PollFd::new(socket, PollFlags::RDHUP)];
    rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}

/// Sends the bytes of a start-up frame. They always fit into the buffer of a new socket.
fn send(socket: &Descriptor, bytes: &[u8]) {
    if let Err(error) = rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        rdma_mummy_sys::log!(debug, "cannot send to the peer of a connection: {error}");
    }
}

impl World {
    /// Records the connection, and updates the `state` field of the identifier's QP, if any.
    fn stream_connected(&mut self, id: usize, made: Arc<Connection>) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        identifier.setup = Some(Setup::Connected(made));
        // SAFETY: the identifier is alive, and so is its QP.
        unsafe {
            let qp = (*identifier.c).qp;
            if !qp.is_null() {
                show_state(qp, ibv_qp_state::IBV_QPS_RTS);
            }
        }
        Ok(())
    }

    /// Handles the socket of a connection when it is ready, before or after the set-up.
    pub(in crate::cm) fn handle_stream(&mut self, id: usize) {
        let Ok(identifier) = self.id(id) else { return };
        let Some(link) = &identifier.link else { return };
        let socket = Arc::clone(&link.socket);
        let done = match identifier.setup.take() {
            Some(Setup::Requesting(attempt, initiator)) => self.read_reply(id, &socket, attempt, initiator),
            other => {
                // A peer may disconnect as soon as it is connected, while this side still accepts or responds. The program
                // first gets the event of the connection, and then the link is handled again.
                let has_ended = !matches!(other, None | Some(Setup::Agreed(..))) && is_closed(&socket);
                // The QP receives what has arrived before the program gets the event of the end.
                let has_more = matches!(&other, Some(Setup::Connected(made)) if has_ended && !made.is_read_to_end());
                identifier.setup = other;
                if has_more {
                    self.is_unread = true;
                } else if has_ended {
                    self.handle_peer_end(id);
                }
                Ok(())
            }
        };
        if let Err(errno) = done {
            self.set_up_failed(id, errno.0, Vec::new());
        }
    }

    /// Ends the connection of an identifier that is disconnected, rejected or destroyed.
    pub(in crate::cm) fn end_stream(&mut self, id: usize, data: &[u8]) {
        let Ok(identifier) = self.id(id) else { return };
        match &identifier.setup {
            Some(Setup::Requested(request)) => {
                if let Some(link) = &identifier.link {
                    send_rejection(&link.socket, request, data);
                }
            }
            Some(Setup::Connected(connection)) => connection.end(),
            _ => {}
        }
    }
}

impl Identifier {
    /// Whether a [`Connection`] owns the socket and will close it.
    pub(in crate::cm) fn has_stream(&self) -> bool {
        matches!(self.setup, Some(Setup::Connected(_)))
    }
}
