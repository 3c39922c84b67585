//! Connections on softrnic through a shim: the known faults of librdmacm wrappers, one by one.
#![expect(clippy::unwrap_used, reason = "a test")]

mod addresses;
mod blocking;
mod contexts;
mod events;
mod everything;
mod faults;
mod identifiers;
mod multicast;
mod options;
mod queue_pairs;
mod threads;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rdma_mummy_sys::{rdma_cm_id, rdma_event_channel};
use sideway::rdmacm::communication_manager::{EventChannel, Identifier, PortSpace};
use sideway_tests::connections::{listen_at, resolve};

/// softrnic serves the addresses of this host.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A listener, and an identifier with a route to it.
#[track_caller]
fn pair(channel: &Arc<EventChannel>, port_space: PortSpace) -> (Arc<Identifier>, Arc<Identifier>) {
    let (listener, address) = listen_at(channel, port_space, (HERE, 0).into());
    let id = resolve(channel, port_space, address);
    (listener, id)
}

/// The C objects, for the provider to name in events.
fn raw(channel: &EventChannel, id: &Identifier) -> (*mut rdma_event_channel, *mut rdma_cm_id) {
    // SAFETY: the pointers go to the provider, which dereferences them while the objects live.
    unsafe { (channel.event_channel().as_ptr(), id.cm_id().as_ptr()) }
}
