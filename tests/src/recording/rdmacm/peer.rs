//! The two ends of a connection: who finds whom, and what an end hears of the other.

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;

use super::address::Address;
use super::events::{Pending, is_datagram, queue};
use super::id::State;
use super::raise::ConnectionParameters;
use crate::recording::state::Inner;

/// Why a connection is rejected, as the InfiniBand specification numbers it.
pub(super) mod reason {
    use libc::c_int;

    pub(in super::super) const TIMEOUT: c_int = 4;
    pub(in super::super) const INVALID_SERVICE_ID: c_int = 8;
    pub(in super::super) const CONSUMER_DEFINED: c_int = 28;
    pub(in super::super) const VENDOR_OPTION: c_int = 35;
}

/// Why a datagram service is not there.
const SIDR_UNSUPPORTED: c_int = 1;
const SIDR_REJECT: c_int = 2;

/// Bytes of private data that a packet carries.
pub(super) mod room {
    pub(in super::super) const REQUEST: usize = 56;
    pub(in super::super) const REPLY: usize = 196;
    pub(in super::super) const REJECT: usize = 148;
    pub(in super::super) const DATAGRAM_REQUEST: usize = 180;
    pub(in super::super) const DATAGRAM_REPLY: usize = 136;
}

/// What a request says of who sent it.
pub(super) struct Request {
    /// The identifier that asks, which may be gone when the request is read.
    pub(super) peer: usize,
    pub(super) from: Option<Address>,
    pub(super) to: Option<Address>,
    pub(super) ece: ffi::ibv_ece,
}

/// Private data as a packet carries it, or `EINVAL` where there is no room.
pub(super) fn carried(data: &[u8], room: usize) -> Result<Vec<u8>, c_int> {
    if data.len() > room {
        return Err(libc::EINVAL);
    }
    let mut carried = data.to_vec();
    carried.resize(room, 0);
    Ok(carried)
}

/// Who listens where this identifier wants to connect.
pub(super) fn listener(inner: &mut Inner, id: usize) -> Option<*mut ffi::rdma_cm_id> {
    let found = inner.manager.ids.get(&id)?;
    let destination = found.destination?;
    // SAFETY: identifiers are never freed, and their port spaces never changed.
    let space = |c: *mut ffi::rdma_cm_id| unsafe { (*c).ps };
    let ps = space(found.c);
    let listens = |found: &&super::id::Identifier| {
        found.state == State::Listening
            && space(found.c) == ps
            && found.source.is_some_and(|source| source.covers(&destination))
    };
    inner.manager.ids.values().find(listens).map(|found| found.c)
}

/// A request has made this identifier.
pub(super) fn arrived(inner: &mut Inner, id: usize, request: &Request) {
    // The one who asks may be gone.
    let asks = inner.manager.id(request.peer).map(|peer| peer.peer = Some(id)).is_ok();
    let Ok(identifier) = inner.manager.id(id) else { return };
    identifier.peer = asks.then_some(request.peer);
    identifier.source = request.to;
    identifier.destination = request.from;
    identifier.remote_ece = request.ece;
    if !asks {
        let c = identifier.c;
        queue(inner, Pending { status: reason::TIMEOUT, ..Pending::of(c, event_type::RDMA_CM_EVENT_REJECTED) });
    }
}

/// The request of this identifier is not answered by its listener, which goes.
pub(super) fn refuse(inner: &mut Inner, id: usize) {
    reject(inner, id, reason::CONSUMER_DEFINED, &[]);
}

/// Nobody is where this identifier wants to connect.
pub(super) fn nobody(inner: &mut Inner, id: *mut ffi::rdma_cm_id) {
    let status = if is_datagram(id) { SIDR_UNSUPPORTED } else { reason::INVALID_SERVICE_ID };
    reject(inner, id.addr(), status, &[]);
}

/// The request of this identifier is rejected.
pub(super) fn reject(inner: &mut Inner, id: usize, status: c_int, data: &[u8]) {
    let Ok(identifier) = inner.manager.id(id) else { return };
    identifier.state = State::Over;
    let c = identifier.c;
    let datagram = is_datagram(c);
    let (kind, room) = match datagram {
        true => (event_type::RDMA_CM_EVENT_UNREACHABLE, room::DATAGRAM_REPLY),
        false => (event_type::RDMA_CM_EVENT_REJECTED, room::REJECT),
    };
    let status = if datagram && status == reason::CONSUMER_DEFINED { SIDR_REJECT } else { status };
    let parameters = match datagram {
        true => ConnectionParameters::Datagram(super::connect::no_datagram()),
        false => ConnectionParameters::Connection(super::connect::no_parameters()),
    };
    // Who sent it has seen that there is room.
    let private_data = carried(data, room).unwrap_or_default();
    queue(inner, Pending { status, parameters, private_data, ..Pending::of(c, kind) });
}

/// Both ends of a connection see its end.
pub(super) fn part(inner: &mut Inner, id: usize) {
    let peer = inner.manager.id(id).ok().and_then(|id| id.peer);
    for end in [Some(id), peer].into_iter().flatten() {
        let Ok(identifier) = inner.manager.id(end) else { continue };
        if identifier.state != State::Connected {
            continue;
        }
        identifier.state = State::Over;
        let c = identifier.c;
        for kind in [event_type::RDMA_CM_EVENT_DISCONNECTED, event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT] {
            let parameters = ConnectionParameters::Connection(super::connect::no_parameters());
            queue(inner, Pending { parameters, ..Pending::of(c, kind) });
        }
    }
}

/// An end is destroyed, which the other hears of.
pub(super) fn leave(inner: &mut Inner, id: usize) {
    let Ok(identifier) = inner.manager.id(id) else { return };
    let (state, peer, c) = (identifier.state, identifier.peer, identifier.c);
    let Some(peer) = peer else { return };
    match state {
        _ if is_datagram(c) && state != State::Requested => {}
        State::Connected => part(inner, id),
        State::Requested => refuse(inner, peer),
        State::Connecting | State::Responded | State::Accepted => reject(inner, peer, reason::TIMEOUT, &[]),
        _ => {}
    }
    if let Ok(peer) = inner.manager.id(peer) {
        peer.peer = None;
    }
}
