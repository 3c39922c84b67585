//! The passive side of a connection: listeners on TCP ports, and the requests that they receive.

use std::net::SocketAddr;
use std::sync::Arc;

use rdma_mummy_sys::rdma_cm_id;
use rustix::net::{RecvFlags, sockopt};

use super::{Setup, depth, hand_over, is_possible, path, send, tcp_socket};
use crate::cm::address::Scope;
use crate::cm::calls::system;
use crate::cm::channel::Source;
use crate::cm::id::State;
use crate::cm::listen::MAX_BACKLOG;
use crate::cm::messages::{Kind, Message};
use crate::cm::{World, device, world};
use crate::net::iwarp::connect::{Offer, Request, Responder};
use crate::net::iwarp::engine::prepare;
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;
use crate::sys::tcp;
use crate::wire::limits::MAX_RD_ATOMIC;
use crate::wire::transport::Fabric;

/// Accepts a request. The identifier must be in the state [`State::Requested`], and the length of the private data is
/// checked.
pub(in crate::cm) fn accept(id: usize, number: u32, limits: (u8, u8), data: &[u8]) -> Result<(), Errno> {
    let (request, socket, path) = {
        let mut world = world();
        let identifier = world.id(id)?;
        let (Some(from), Some(to), Some(link)) = (identifier.source, identifier.destination, &identifier.link) else {
            return Err(Errno::INVALID);
        };
        let (socket, path) = (Arc::clone(&link.socket), path(from, to, identifier.options.traffic_class));
        let Some(Setup::Requested(request)) = identifier.setup.take() else { return Err(Errno::INVALID) };
        (request, socket, path)
    };
    let offer = Offer { ord: limits.0.into(), ird: limits.1.into(), has_crc: true, private: data.to_vec() };
    let mut first = Vec::new();
    let result = match request.accept(&offer, &mut first) {
        Ok(agreed) => hand_over(socket, (&agreed, false), first, number, path),
        Err(failure) => {
            rdma_mummy_sys::log!(debug, "cannot accept a connection: {failure:?}");
            send(&socket, &first);
            Err(Errno(libc::EPROTO))
        }
    };
    let mut world = world();
    match result {
        Ok(made) => {
            world.stream_connected(id, made)?;
            world.established(id);
            Ok(())
        }
        Err(errno) => {
            world.id(id)?.state = State::Closed;
            world.close_link(id);
            Err(errno)
        }
    }
}

/// Whether an identifier must listen on TCP if it is bound to this address. Other hosts cannot reach a loopback
/// address, so if a RoCE device exists, only this device listens there.
///
/// # Safety
///
/// The identifier is alive.
pub(in crate::cm) unsafe fn listens(id: *mut rdma_cm_id, address: SocketAddr) -> bool {
    // SAFETY: guaranteed by the caller.
    (unsafe { is_possible(id) }) && !(address.ip().is_loopback() && device::exists(Fabric::Host))
}

/// Binds a TCP port to listen on.
pub(in crate::cm) fn bound(address: SocketAddr, af_only: bool) -> Result<Descriptor, Errno> {
    let socket = tcp_socket(address)?;
    sockopt::set_socket_reuseaddr(&socket, true).map_err(system)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, af_only).map_err(system)?;
    }
    rustix::net::bind(&socket, &address).map_err(system)?;
    Ok(socket)
}

pub(in crate::cm) fn send_rejection(socket: &Descriptor, request: &Request, data: &[u8]) {
    let mut bytes = Vec::new();
    if request.reject(data, &mut bytes).is_ok() {
        send(socket, &bytes);
    }
}

impl World {
    /// Listens on the TCP port of an identifier. If TCP fails to listen, and a RoCE device exists, only clients of
    /// that device can connect.
    pub(in crate::cm) fn listen_on_tcp(&mut self, id: usize, backlog: i32) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let Some(source) = identifier.source else { return Ok(()) };
        // SAFETY: the identifier is alive.
        if !unsafe { listens(identifier.c, source) } {
            return Ok(());
        }
        let af_only = identifier.options.af_only;
        let listen = || {
            let socket = bound(source, af_only)?;
            // The sockets that are accepted inherit the options.
            prepare(&socket).map_err(system)?;
            if let Err(error) = tcp::defer_accept(&socket, 1) {
                rdma_mummy_sys::log!(debug, "connections are accepted before their requests have arrived: {error}");
            }
            rustix::net::listen(&socket, backlog.min(MAX_BACKLOG)).map_err(system)?;
            Ok::<_, Errno>(socket)
        };
        match listen() {
            Ok(socket) => {
                let watched = self.watch(id, Arc::new(socket), Source::StreamListener(id))?;
                self.id(id)?.stream_listener = Some(watched);
                Ok(())
            }
            Err(errno) if device::exists(Fabric::Host) || device::exists(Fabric::Roce) => {
                let error = std::io::Error::from_raw_os_error(errno.0);
                rdma_mummy_sys::log!(
                    info,
                    "no client can connect over iWARP: cannot listen on TCP port {}: {error}",
                    source.port()
                );
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }
}

/// Reads the bytes that have arrived of the request of a new connection.
///
/// # Errors
///
/// Returns an error if the peer has closed the connection or sent an invalid request.
pub(in crate::cm) fn read_request(
    socket: &Descriptor,
    responder: &mut Responder,
) -> Result<Option<(Request, Message)>, ()> {
    let mut buffer = [0; 1024];
    let length = match rustix::net::recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
        Ok((_, length)) if length > 0 => length,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        _ => return Err(()),
    };
    let request = responder.received(&buffer[..length]).map_err(|failure| {
        rdma_mummy_sys::log!(debug, "closed a connection: its request is invalid: {failure:?}");
    })?;
    let Some(request) = request else { return Ok(None) };
    // A socket for both address families returns IPv4 addresses in mapped form.
    let address = |name: rustix::io::Result<rustix::net::SocketAddrAny>| {
        let address = SocketAddr::try_from(name.map_err(drop)?).map_err(drop)?;
        Ok(SocketAddr::new(address.ip().to_canonical(), address.port()).with_scope_of(address))
    };
    let limit = MAX_RD_ATOMIC as u16;
    let (ird, ord) = request.depths().unwrap_or((limit, limit));
    let message = Message {
        from: address(rustix::net::getpeername(socket).and_then(|name| name.ok_or(rustix::io::Errno::NOTCONN)))?,
        to: address(rustix::net::getsockname(socket))?,
        responder_resources: depth(ird),
        initiator_depth: depth(ord),
        data: request.private().to_vec(),
        ..Message::new(Kind::Request)
    };
    Ok(Some((request, message)))
}
