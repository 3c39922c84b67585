//! The passive side of connections: a listener for requests.

use std::collections::VecDeque;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::connector::look_up;
use super::deadline::Deadline;
use super::watch::Watch;
use super::{ConnectCause, ConnectError, ConnectStep, Request};
use crate::rdmacm::communication_manager::{Event, EventChannel, EventKind, Identifier, PortSpace};

/// The maximum number of events other than requests that are kept for the program.
const KEPT: usize = 64;

/// A listener on an address, which receives connection requests. Any number of threads may [`accept`](Self::accept).
///
/// Dropping the listener rejects the waiting requests. Accepted connections continue to exist.
///
/// ```no_run
/// use std::time::Duration;
///
/// use sideway::rdmacm::{Listener, ConnectionParameter};
///
/// let listener = Listener::bind("0.0.0.0:7174")?;
/// let request = listener.accept(Some(Duration::from_secs(60)))?;
/// let pd = request.device_context().alloc_pd()?;
/// let cq = request.device_context().create_cq_builder().build_generic()?;
/// let mut builder = pd.create_qp_builder();
/// builder.setup_send_cq(&cq).setup_recv_cq(&cq);
/// let qp = request.identifier().create_qp_generic(&builder)?;
/// let connection = request.accept(&ConnectionParameter::default())?;
/// # drop((qp, connection));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    id: Arc<Identifier>,
    address: SocketAddr,
    timeout: Duration,
    inbox: Watch<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The waiting requests, which are still on the listener's channel.
    requests: VecDeque<Event>,
    others: VecDeque<Event>,
    is_device_gone: bool,
}

impl Listener {
    /// `rdma_bind_addr`, `rdma_listen` — listens on an address of this machine for reliable connections. Examples of
    /// addresses are `"192.0.2.7:7174"` and `("server", 7174)`. `"0.0.0.0:7174"` selects all IPv4 addresses, and
    /// `"[::]:7174"` all IPv6 and IPv4 addresses. Port 0 selects a free port, which
    /// [`local_address`](Self::local_address) returns.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ListenerBuilder::bind`].
    pub fn bind(address: impl ToSocketAddrs + fmt::Debug) -> Result<Self, ConnectError> {
        Self::builder().bind(address)
    }

    /// Creates a builder with the defaults of [`bind`](Self::bind).
    pub fn builder() -> ListenerBuilder {
        ListenerBuilder {
            port_space: PortSpace::Tcp,
            backlog: 0,
            is_af_only: None,
            type_of_service: None,
            timeout: super::TIMEOUT,
        }
    }

    /// Waits for a request, without a time limit if `timeout` is `None`.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::TimedOut`]: no request arrived.
    /// - [`ConnectCause::Channel`]: the channel of the connection could not be created (`EMFILE`). The request is kept
    ///   for the next call.
    /// - [`ConnectCause::DeviceRemoval`]: the device is being removed, so no more requests will arrive.
    /// - [`ConnectCause::Verb`]: the errors of [`EventChannel::get_cm_event`].
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Request, ConnectError> {
        let deadline = Deadline::within(timeout);
        let accepted = self.inbox.wait(&self.id.event_channel(), &deadline, Inbox::next, |inbox, event| {
            inbox.learn(&self.id, event);
        });
        let step = ConnectStep::AwaitRequest;
        let event = accepted.map_err(|cause| ConnectError::new(step, Some(self.address), cause))?;
        Request::new(event, self.timeout)
    }

    /// Takes the other events of the listener's channel, the oldest first. These are the events of identifiers that the
    /// program created on that channel, and changes of the hardware address ([`EventKind::AddressChange`]). The
    /// listener keeps the latest 64 events.
    pub fn take_other_events(&self) -> Vec<Event> {
        self.inbox.lock_known(|inbox| inbox.others.drain(..).collect())
    }

    /// Returns the listener's address and port.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the listening identifier.
    pub fn identifier(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// Returns the identifier's channel, for programs that poll(2) several descriptors. Once it is readable, call
    /// [`accept(Some(Duration::ZERO))`](Self::accept) until it times out.
    ///
    /// If a request was kept because [no channel](ConnectCause::Channel) could be created, the channel does not become
    /// readable again for it. The next call of `accept` returns the request.
    pub fn event_channel(&self) -> Arc<EventChannel> {
        self.id.event_channel()
    }
}

impl Inbox {
    /// Takes the next request and moves it to its own channel. This runs under the lock that adds events, so no thread
    /// takes events of the connection before the move.
    fn next(&mut self) -> Result<Option<Event>, ConnectCause> {
        if self.requests.is_empty() {
            return if self.is_device_gone { Err(ConnectCause::DeviceRemoval) } else { Ok(None) };
        }
        // If this call fails, the request stays in the queue.
        let channel = EventChannel::new()?;
        let Some(request) = self.requests.pop_front() else { return Ok(None) };
        request.cm_id().migrate(&channel)?;
        Ok(Some(request))
    }

    fn learn(&mut self, listener: &Arc<Identifier>, event: Event) {
        let is_of = |id: Option<&Arc<Identifier>>| id.is_some_and(|id| Arc::ptr_eq(id, listener));
        match event.kind() {
            EventKind::ConnectRequest(_) | EventKind::LookupRequest(_) if is_of(event.listener_id()) => {
                self.requests.push_back(event);
            }
            kind => {
                self.is_device_gone |= matches!(kind, EventKind::DeviceRemoval) && is_of(Some(event.cm_id()));
                if self.others.len() == KEPT
                    && let Some(oldest) = self.others.pop_front()
                {
                    rdma_mummy_sys::log!(
                        warn,
                        "{oldest}: dropped, because the program did not take it from its listener"
                    );
                }
                self.others.push_back(event);
            }
        }
    }
}

/// Builds a [`Listener`].
#[derive(Clone, Debug)]
pub struct ListenerBuilder {
    port_space: PortSpace,
    backlog: i32,
    is_af_only: Option<bool>,
    type_of_service: Option<u8>,
    timeout: Duration,
}

impl ListenerBuilder {
    /// Sets the port space. Use [`PortSpace::Udp`] for lookups of queue pairs for datagrams.
    pub fn setup_port_space(&mut self, port_space: PortSpace) -> &mut Self {
        self.port_space = port_space;
        self
    }

    /// Sets the maximum number of waiting requests. The default is 0, which selects the kernel's limit
    /// (`net.rdma_ucm.max_backlog`, 1024). The kernel drops further requests, and the peers retry after some seconds.
    pub fn setup_backlog(&mut self, backlog: i32) -> &mut Self {
        self.backlog = backlog;
        self
    }

    /// Sets whether an IPv6 listener excludes IPv4. [`Identifier::set_af_only`] describes the default.
    pub fn setup_af_only(&mut self, af_only: bool) -> &mut Self {
        self.is_af_only = Some(af_only);
        self
    }

    /// Sets the type of service of accepted connections; see [`Identifier::set_type_of_service`].
    pub fn setup_type_of_service(&mut self, type_of_service: u8) -> &mut Self {
        self.type_of_service = Some(type_of_service);
        self
    }

    /// Sets how long a peer may take to confirm its [acceptance](Request::accept); the default is ten seconds.
    pub fn setup_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// `rdma_bind_addr`, `rdma_listen` — binds to an address and listens on it. If a name has several addresses, they
    /// are tried one after the other until one succeeds.
    ///
    /// A listener can be bound to 127.0.0.1 or `::1`, but it receives no requests, because no RDMA device has a route
    /// to these addresses.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::Verb`] with `EADDRINUSE`, or with `EADDRNOTAVAIL` when listening on all addresses: the port is
    ///   in use. With `EADDRNOTAVAIL` in other cases: this machine does not have the address. With `ENODEV`: the
    ///   address does not belong to an RDMA device. With `EACCES`: the port is below 1024.
    /// - [`ConnectCause::Name`]: the name has no address.
    /// - [`ConnectCause::Channel`]: librdmacm is not installed, or there is no device.
    pub fn bind(&self, address: impl ToSocketAddrs + fmt::Debug) -> Result<Listener, ConnectError> {
        let addresses = look_up(&address)?;
        let channel = EventChannel::new().map_err(|error| ConnectError::new(ConnectStep::OpenChannel, None, error))?;
        let mut errors = Vec::new();
        for one in addresses {
            match self.bind_one(&channel, one) {
                Ok(listener) => return Ok(listener),
                Err(error) => errors.push(error),
            }
        }
        Err(ConnectError::of_all(&address, errors))
    }

    fn bind_one(&self, channel: &Arc<EventChannel>, mut address: SocketAddr) -> Result<Listener, ConnectError> {
        let bind = || {
            let id = channel.create_id(self.port_space)?;
            if let Some(is_af_only) = self.is_af_only {
                id.set_af_only(is_af_only)?;
            }
            if let Some(type_of_service) = self.type_of_service {
                id.set_type_of_service(type_of_service)?;
            }
            id.bind_addr(address)?;
            Ok(id)
        };
        let id = bind().map_err(|error: ConnectCause| ConnectError::new(ConnectStep::Bind, Some(address), error))?;
        id.listen(self.backlog).map_err(|error| ConnectError::new(ConnectStep::Listen, Some(address), error))?;
        // The library does not keep the scope of a link-local address.
        address.set_port(id.port());
        Ok(Listener { id, address, timeout: self.timeout, inbox: Watch::default() })
    }
}
