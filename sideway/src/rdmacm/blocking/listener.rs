//! The passive side: who listens.

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

/// How many events are kept that nobody asks for.
const KEPT: usize = 64;

/// Who waits at an address for those who want to connect. Any number of threads may [`accept`](Self::accept).
///
/// Dropping it rejects those who wait; connections that came of it stay.
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
    /// Those who wait, on the listener's channel.
    requests: VecDeque<Event>,
    others: VecDeque<Event>,
    is_device_gone: bool,
}

impl Listener {
    /// `rdma_bind_addr`, `rdma_listen` — listens at an address of this machine for reliable connections: `"192.0.2.7:7174"`,
    /// `("server", 7174)`; `"0.0.0.0:7174"` for all of IPv4, `"[::]:7174"` for all of IPv6 and IPv4. Port 0 is any port, which
    /// [`local_address`](Self::local_address) tells.
    ///
    /// # Errors
    ///
    /// As [`ListenerBuilder::bind`].
    pub fn bind(address: impl ToSocketAddrs + fmt::Debug) -> Result<Self, ConnectError> {
        Self::builder().bind(address)
    }

    /// With other settings than those of [`bind`](Self::bind).
    pub fn builder() -> ListenerBuilder {
        ListenerBuilder {
            port_space: PortSpace::Tcp,
            backlog: 0,
            is_af_only: None,
            type_of_service: None,
            timeout: super::TIMEOUT,
        }
    }

    /// Waits for somebody who wants to connect; without limit where `timeout` is `None`.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::TimedOut`]: nobody came.
    /// - [`ConnectCause::Channel`]: there is no channel for the connection (`EMFILE`); whoever came still waits.
    /// - [`ConnectCause::DeviceRemoval`]: nobody will come.
    /// - [`ConnectCause::Verb`]: as [`EventChannel::get_cm_event`].
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Request, ConnectError> {
        let deadline = Deadline::within(timeout);
        let accepted = self.inbox.wait(&self.id.event_channel(), &deadline, Inbox::next, |inbox, event| {
            inbox.learn(&self.id, event);
        });
        let step = ConnectStep::AwaitRequest;
        let event = accepted.map_err(|cause| ConnectError::new(step, Some(self.address), cause))?;
        Request::new(event, self.timeout)
    }

    /// What came on the listener's channel beside requests, the oldest first: events of identifiers that the program has made
    /// there, and a change of the hardware address ([`EventKind::AddressChange`]). At most 64 are kept, the latest.
    pub fn take_other_events(&self) -> Vec<Event> {
        self.inbox.lock_known(|inbox| inbox.others.drain(..).collect())
    }

    /// The address that it listens at, with the port.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The identifier that listens.
    pub fn identifier(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// The channel of the identifier, for who waits for several things by poll(2): once it is readable,
    /// [`accept(Some(Duration::ZERO))`](Self::accept) gives those who came, one by one, until the time has passed.
    ///
    /// Who came when there was [no channel](ConnectCause::Channel) for the connection does not make it readable again: the
    /// next `accept` has them.
    pub fn event_channel(&self) -> Arc<EventChannel> {
        self.id.event_channel()
    }
}

impl Inbox {
    /// The next who waits, on a channel of its own from here on. Nobody takes events of it before: this runs under the lock that who
    /// takes events learns under.
    fn next(&mut self) -> Result<Option<Event>, ConnectCause> {
        if self.requests.is_empty() {
            return if self.is_device_gone { Err(ConnectCause::DeviceRemoval) } else { Ok(None) };
        }
        // Without one, the request stays.
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
                    log::warn!("{oldest}: came to a listener, and nobody took it");
                }
                self.others.push_back(event);
            }
        }
    }
}

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenerBuilder {
    port_space: PortSpace,
    backlog: i32,
    is_af_only: Option<bool>,
    type_of_service: Option<u8>,
    timeout: Duration,
}

impl ListenerBuilder {
    /// What the ports are ports of: [`PortSpace::Udp`] for lookups of queue pairs for datagrams.
    pub fn setup_port_space(&mut self, port_space: PortSpace) -> &mut Self {
        self.port_space = port_space;
        self
    }

    /// How many requests may wait; 0, unless set, is as many as the kernel allows (`net.rdma_ucm.max_backlog`, 1024). Those
    /// beyond are not answered, and their side tries again after some seconds.
    pub fn setup_backlog(&mut self, backlog: i32) -> &mut Self {
        self.backlog = backlog;
        self
    }

    /// Whether who listens at an address of IPv6 leaves IPv4 alone; unless set, as the system says: see
    /// [`Identifier::set_af_only`].
    pub fn setup_af_only(&mut self, af_only: bool) -> &mut Self {
        self.is_af_only = Some(af_only);
        self
    }

    /// The type of service of the packets of connections that come: see [`Identifier::set_type_of_service`].
    pub fn setup_type_of_service(&mut self, type_of_service: u8) -> &mut Self {
        self.type_of_service = Some(type_of_service);
        self
    }

    /// How long a peer may take to confirm that it knows of its [acceptance](Request::accept): ten seconds unless set.
    pub fn setup_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// `rdma_bind_addr`, `rdma_listen` — listens. Of a name with several addresses each is tried in turn, until one can be had.
    ///
    /// 127.0.0.1 and `::1` can be had, and nobody ever comes there: no way leads to them over an RDMA device.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::Verb`] with `EADDRINUSE`, or `EADDRNOTAVAIL` for all addresses: the port is in use; `EADDRNOTAVAIL`:
    ///   this machine does not have the address; `ENODEV`: it is not one of an RDMA device; `EACCES`: the port is below 1024.
    /// - [`ConnectCause::Name`]: the name has no address.
    /// - [`ConnectCause::Channel`]: no librdmacm, no device.
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
        // The library forgets the link that an address is of.
        address.set_port(id.port());
        Ok(Listener { id, address, timeout: self.timeout, inbox: Watch::default() })
    }
}
