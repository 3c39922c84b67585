//! The shape of a core.

use std::sync::Arc;
use std::time::Duration;

use sideway::error::Errno;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::rdmacm;

use super::{Core, Inner};
use crate::Error;
use crate::error::shape;

/// Builds a [`Core`]. Numbers that exceed the device's limits are refused when the core is built.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(super) device: Device,
    pub(super) connections: u32,
    pub(super) depth: u32,
    pub(super) receives: u32,
    pub(super) receive_size: usize,
    pub(super) unread: Option<usize>,
    pub(super) inline: u32,
    pub(super) spin: Duration,
    pub(super) handshake: Duration,
}

#[derive(Clone, Debug)]
pub(super) enum Device {
    Name(String),
    Open(Arc<DeviceContext>),
}

impl Builder {
    pub(super) fn new(device: Device) -> Self {
        Self {
            device,
            connections: 64,
            depth: 64,
            receives: 512,
            receive_size: 4096,
            unread: None,
            inline: 64,
            spin: Duration::from_micros(50),
            handshake: Duration::from_secs(10),
        }
    }

    /// Sets the maximum number of connections. Defaults to 64. The completion queue has an entry for each request of
    /// each connection.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the number of requests that each connection may have outstanding. Defaults to 64. Further requests wait.
    pub fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Sets the number of messages that all connections together can receive before the program drops the messages.
    /// Defaults to 512. If all are in use, senders wait (RoCE and InfiniBand).
    pub fn receives(mut self, receives: u32) -> Self {
        self.receives = receives;
        self
    }

    /// Sets the maximum length of a received message, in bytes. Defaults to 4096. A longer message ends its connection.
    pub fn receive_size(mut self, bytes: usize) -> Self {
        self.receive_size = bytes;
        self
    }

    /// Sets how many messages of one connection may wait for [`recv`](crate::Connection::recv), so that one peer does not
    /// take the receives of the others. Defaults to a quarter of the receives: four such peers stall the rest.
    ///
    /// If more wait after the tasks had a chance to receive them, the connection ends: here with [`Error::Unread`] after
    /// these messages, at the peer with [`Error::Closed`], although the peer's sends have completed. So choose at least
    /// the number of messages that your protocol lets a peer send before it waits for an answer. With a number that is not
    /// below that of the receives, connections do not end, and senders wait (RoCE, InfiniBand).
    pub fn unread(mut self, messages: usize) -> Self {
        self.unread = Some(messages);
        self
    }

    /// Sets up to which length data is copied into the request. Defaults to 64 bytes. If the device cannot, it is half,
    /// or a quarter, and so on.
    pub fn inline(mut self, bytes: u32) -> Self {
        self.inline = bytes;
        self
    }

    /// Sets how long a core polls without success before its thread sleeps. Defaults to 50 us. `Duration::MAX` never
    /// sleeps.
    pub fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }

    /// Sets how long `connect` and `accept` wait for the peer's answer. Defaults to 10 s.
    pub fn handshake(mut self, limit: Duration) -> Self {
        self.handshake = limit;
        self
    }

    /// Creates the core, with all of its memory and queues.
    ///
    /// # Errors
    ///
    /// - [`Error::NoDevice`]: no device has the name.
    /// - [`Error::Shape`]: a number is zero, or exceeds a limit of the device.
    /// - [`Error::Verb`]: there is too little memory, or too little that may be locked.
    pub fn build(self) -> Result<Core, Error> {
        let unread = self.unread.map_or(1, |unread| unread.min(1) as u32);
        let numbers = [("connections", self.connections), ("depth", self.depth), ("receives", self.receives)];
        for (name, value) in numbers.into_iter().chain([("unread messages", unread)]) {
            if value == 0 {
                return Err(shape(format!("a core with 0 {name}")));
            }
        }
        let context = match &self.device {
            Device::Open(context) => Arc::clone(context),
            Device::Name(name) => open(name)?,
        };
        Inner::new(&self, &context).map(Core::from_inner)
    }
}

/// Finds a device of the connection manager by its name.
fn open(name: &str) -> Result<Arc<DeviceContext>, Error> {
    #[cfg(feature = "softrnic")]
    if let Err(error) = softrnic::register() {
        rdma_mummy_sys::log!(warn, "cannot register softrnic: {error}");
    }
    let devices = match rdmacm::devices() {
        // The error for a missing device or kernel module.
        Err(error) if error.errno() == Errno::ENODEV => Vec::new(),
        devices => devices?,
    };
    let found = devices.iter().find(|device| device.name() == name);
    found.cloned().ok_or_else(|| {
        let present: Vec<String> = devices.iter().map(|device| device.name()).collect();
        let present = if present.is_empty() { "none".to_owned() } else { present.join(", ") };
        let hint = if cfg!(feature = "softrnic") { "" } else { " (the feature softrnic adds soft0)" };
        Error::NoDevice(format!("no RDMA device is named {name}; there are: {present}{hint}").into())
    })
}
