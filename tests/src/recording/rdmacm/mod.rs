//! The connection manager: what librdmacm 44 does, in this process and without a network.
//!
//! Everything belongs to the device that the calling thread plugged in last; what is called on an object belongs to the
//! object's device, whatever the thread. Calls are written down under their whole names (`rdma_connect`), by which they
//! fail as well; those that librdmacm makes of libibverbs appear under theirs (`modify_qp`).
//!
//! A connect finds an identifier that listens at its port on the same device, and what happens then happens at once:
//! nothing is lost and nothing takes time, so that an end that disconnects sees its event without waiting for the other
//! to answer. With [`script_connections`](super::Recording::script_connections) nothing happens by itself, and every
//! event comes from [`raise_connection_event`](super::Recording::raise_connection_event).
//!
//! Private data arrives as long as the packet that carries it is and not as long as it was sent, with zeros behind, as
//! from the kernel: 56 bytes of a connect, 196 of an accept, 148 of a reject; of datagrams, 180 and 136.
//!
//! Events, and identifiers and lists of addresses that are given back are overwritten: who still looks sees nonsense.

mod address;
mod attributes;
mod calls;
mod channel;
mod connect;
mod devices;
mod endpoint;
mod events;
mod id;
mod info;
mod memory;
mod multicast;
mod peer;
mod qp;
mod raise;

use std::collections::BTreeMap;

use rdma_mummy_sys::load::rdmacm::RdmacmTable;
use rdma_mummy_sys::since_v44::RdmacmSinceV44;

use super::calls::Kind;
use super::state::{Device, Inner};

pub(super) use calls::queue_pair_destroyed;
pub(super) use devices::remove;
pub(super) use raise::raise;
pub use raise::{ConnectionEvent, ConnectionParameters};

/// What the connection manager remembers of a device.
#[derive(Default)]
pub(super) struct Manager {
    channels: BTreeMap<usize, channel::Channel>,
    ids: BTreeMap<usize, id::Identifier>,
    /// Events that were taken and not acknowledged.
    events: BTreeMap<usize, events::Taken>,
    /// The devices of each list of open devices.
    lists: BTreeMap<usize, Vec<&'static Device>>,
    shared: devices::Shared,
    /// Ports that were given to who did not ask for one.
    ports: u16,
    groups: usize,
    /// Whether nothing happens by itself.
    scripted: bool,
}

/// The test is over: an event that was never acknowledged is a violation.
pub(super) fn ended(inner: &mut Inner) {
    for _ in 0..inner.manager.events.len() {
        inner.violation(format!("a {:?} was never acknowledged", Kind::ConnectionEvent));
    }
    inner.manager.events.clear();
}

pub(super) fn table() -> RdmacmTable {
    RdmacmTable {
        rdma_create_event_channel: Some(channel::create_event_channel),
        rdma_destroy_event_channel: Some(channel::destroy_event_channel),
        rdma_create_id: Some(id::create_id),
        rdma_destroy_id: Some(id::destroy_id),
        rdma_create_ep: Some(endpoint::create_ep),
        rdma_destroy_ep: Some(endpoint::destroy_ep),
        rdma_get_request: Some(endpoint::get_request),
        rdma_bind_addr: Some(address::bind_addr),
        rdma_resolve_addr: Some(address::resolve_addr),
        rdma_resolve_route: Some(address::resolve_route),
        rdma_listen: Some(address::listen),
        rdma_get_src_port: Some(address::get_src_port),
        rdma_get_dst_port: Some(address::get_dst_port),
        rdma_set_option: Some(id::set_option),
        rdma_migrate_id: Some(id::migrate_id),
        rdma_create_qp: Some(qp::create_qp),
        rdma_create_qp_ex: Some(qp::create_qp_ex),
        rdma_destroy_qp: Some(qp::destroy_qp),
        rdma_create_srq: Some(qp::create_srq),
        rdma_create_srq_ex: Some(qp::create_srq_ex),
        rdma_destroy_srq: Some(qp::destroy_srq),
        rdma_init_qp_attr: Some(attributes::init_qp_attr),
        rdma_connect: Some(connect::connect),
        rdma_accept: Some(connect::accept),
        rdma_establish: Some(connect::establish),
        rdma_reject: Some(connect::reject),
        rdma_reject_ece: Some(connect::reject_ece),
        rdma_disconnect: Some(connect::disconnect),
        rdma_notify: Some(connect::notify),
        rdma_set_local_ece: Some(id::set_local_ece),
        rdma_get_remote_ece: Some(id::get_remote_ece),
        rdma_join_multicast: Some(multicast::join_multicast),
        rdma_join_multicast_ex: Some(multicast::join_multicast_ex),
        rdma_leave_multicast: Some(multicast::leave_multicast),
        rdma_get_cm_event: Some(events::get_cm_event),
        rdma_ack_cm_event: Some(events::ack_cm_event),
        rdma_getaddrinfo: Some(info::getaddrinfo),
        rdma_freeaddrinfo: Some(info::freeaddrinfo),
        rdma_get_devices: Some(devices::get_devices),
        rdma_free_devices: Some(devices::free_devices),
        since_v44: RdmacmSinceV44 {
            rdma_resolve_addrinfo: Some(info::resolve_addrinfo),
            rdma_query_addrinfo: Some(info::query_addrinfo),
            rdma_write_cm_event: Some(events::write_cm_event),
        },
        ..Default::default()
    }
}

/// What is called on objects that were given back, which are nobody's: it goes to the library of the system.
pub(super) fn system_table() -> RdmacmTable {
    RdmacmTable { rdma_get_devices: None, ..table() }
}
