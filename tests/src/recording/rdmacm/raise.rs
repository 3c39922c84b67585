//! Events that a test says come.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::Manager;
use super::events::Pending;
use crate::recording::state::Device;

/// What stands in the union of an event.
#[derive(Clone, Copy)]
pub enum ConnectionParameters {
    /// Zeros.
    None,
    /// Of a connection.
    Connection(ffi::rdma_conn_param),
    /// Of datagrams.
    Datagram(ffi::rdma_ud_param),
}

impl std::fmt::Debug for ConnectionParameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Connection(_) => "Connection(..)",
            Self::Datagram(_) => "Datagram(..)",
        })
    }
}

/// An event to raise on a channel. Nothing of it need be true.
#[derive(Clone, Debug)]
pub struct ConnectionEvent {
    /// `enum rdma_cm_event_type`.
    pub event: u32,
    /// Zero, a negative errno value, or a reason to reject.
    pub status: c_int,
    /// What it is about, and counted on; may be null.
    pub id: *mut ffi::rdma_cm_id,
    /// Of a request: who listens. With `processed` it is `id` that does, and this is not looked at.
    pub listen_id: *mut ffi::rdma_cm_id,
    /// The rest.
    pub parameters: ConnectionParameters,
    /// Private data, up to 255 bytes, whose address and length then stand in the parameters. If there is none, those stay
    /// as they are.
    pub private_data: Vec<u8>,
    /// Whether the library does with it what it does with all of this type: writes addresses, moves the queue pair, makes
    /// an identifier of a request. Else the program gets it as it stands here.
    pub processed: bool,
}

impl ConnectionEvent {
    /// Of this type on this identifier, with status zero and no parameters, as it stands.
    pub fn new(event: u32, id: *mut ffi::rdma_cm_id) -> Self {
        Self {
            event,
            status: 0,
            id,
            listen_id: std::ptr::null_mut(),
            parameters: ConnectionParameters::None,
            private_data: Vec::new(),
            processed: false,
        }
    }
}

/// Adds an event to a channel.
pub(in crate::recording) fn raise(
    device: &'static Device,
    channel: *mut ffi::rdma_event_channel,
    event: ConnectionEvent,
) {
    let ConnectionEvent { event, status, id, listen_id, parameters, private_data, processed } = event;
    let pending = Pending {
        status,
        listen_id,
        parameters,
        private_data,
        processed: processed && !id.is_null(),
        ..Pending::of(id, ffi::rdma_cm_event_type(event))
    };
    let mut inner = device.state.lock();
    match inner.manager.channels.get_mut(&channel.addr()) {
        Some(channel) => channel.put(pending),
        None => inner.violation("an event was raised on a channel that is not there"),
    }
    drop(inner);
    device.state.acknowledged.notify_all();
}

impl Manager {
    /// Nothing happens by itself from now on, or does again.
    pub(in crate::recording) fn set_scripted(&mut self, scripted: bool) {
        self.scripted = scripted;
    }
}
