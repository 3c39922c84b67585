//! `struct rdma_addrinfo`: a destination to connect to, or an address to listen on.

mod flags;
mod lookup;
mod raw;

use std::ffi::{CStr, CString};

pub use self::flags::AddressInfoFlags;
pub(super) use self::lookup::Lookup;
pub use self::lookup::{GetAddressInfoError, LookupError, getaddrinfo};
pub(super) use self::raw::{List, check_families};
use super::{Address, AddressFamily, PortSpace};
use crate::ibverbs::queue_pair::QueuePairType;

/// `struct rdma_addrinfo` — an address to connect to or to listen on, with its parameters. It is the type of both the
/// hints and the results of [`getaddrinfo`]. It is plain data, which is copied from and to C.
///
/// ```
/// use sideway::rdmacm::communication_manager::{AddressInfo, AddressInfoFlags, PortSpace};
///
/// let mut hints = AddressInfo::new();
/// hints.setup_flags(AddressInfoFlags::Passive | AddressInfoFlags::NumericHost).setup_port_space(PortSpace::Tcp);
/// assert!(hints.is_passive());
/// assert_eq!(hints.destination(), None);
/// ```
#[doc(alias = "rdma_addrinfo")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressInfo {
    flags: AddressInfoFlags,
    family: Option<AddressFamily>,
    qp_type: Option<QueuePairType>,
    port_space: Option<PortSpace>,
    source: Option<Address>,
    destination: Option<Address>,
    source_name: Option<CString>,
    destination_name: Option<CString>,
    route: Vec<u8>,
    connect_data: Vec<u8>,
}

impl AddressInfo {
    /// Creates empty information. As hints, it selects reliable connections to any address.
    pub fn new() -> Self {
        Self::default()
    }

    /// `ai_flags`: sets the flags.
    pub fn setup_flags(&mut self, flags: AddressInfoFlags) -> &mut Self {
        self.flags = flags;
        self
    }

    /// `ai_family`: restricts the lookup to this family. To look up [`InfiniBand`](AddressFamily::InfiniBand)
    /// addresses, also set [`Family`](AddressInfoFlags::Family) and [`NumericHost`](AddressInfoFlags::NumericHost). The
    /// node is then a GID, written like an IPv6 address.
    pub fn setup_family(&mut self, family: AddressFamily) -> &mut Self {
        self.family = (family != AddressFamily::Unspecified).then_some(family);
        self
    }

    /// `ai_qp_type`: sets the queue pair type.
    pub fn setup_qp_type(&mut self, qp_type: QueuePairType) -> &mut Self {
        self.qp_type = Some(qp_type);
        self
    }

    /// `ai_port_space`: sets the port space.
    pub fn setup_port_space(&mut self, port_space: PortSpace) -> &mut Self {
        self.port_space = Some(port_space);
        self
    }

    /// `ai_src_addr`: sets the local address.
    pub fn setup_source(&mut self, source: impl Into<Address>) -> &mut Self {
        self.source = Some(source.into());
        self
    }

    /// `ai_dst_addr`: sets the peer's address. As a hint, the address is used if there is neither a node nor a service.
    pub fn setup_destination(&mut self, destination: impl Into<Address>) -> &mut Self {
        self.destination = Some(destination.into());
        self
    }

    /// `ai_connect`: sets the data that [`connect`](super::Identifier::connect) sends before the private data. Both
    /// together have at most 255 bytes. As a hint, this is ignored.
    pub fn setup_connect_data(&mut self, connect_data: &[u8]) -> &mut Self {
        connect_data.clone_into(&mut self.connect_data);
        self
    }

    /// Returns the flags.
    pub fn flags(&self) -> AddressInfoFlags {
        self.flags
    }

    /// Whether the information is for listening.
    pub fn is_passive(&self) -> bool {
        self.flags.contains(AddressInfoFlags::Passive)
    }

    /// Returns the family of the addresses. It is [`Unspecified`](AddressFamily::Unspecified) if there are no addresses
    /// and no family was set.
    pub fn family(&self) -> AddressFamily {
        let address =
            if self.is_passive() { self.source.or(self.destination) } else { self.destination.or(self.source) };
        self.family.or(address.map(|address| address.family())).unwrap_or(AddressFamily::Unspecified)
    }

    /// Returns the queue pair type.
    pub fn qp_type(&self) -> Option<QueuePairType> {
        self.qp_type
    }

    /// Returns the port space.
    pub fn port_space(&self) -> Option<PortSpace> {
        self.port_space
    }

    /// Returns the local address, or `None` if there is none or its family is unsupported.
    pub fn source(&self) -> Option<Address> {
        self.source
    }

    /// Returns the peer's address, or `None` if there is none or its family is unsupported.
    pub fn destination(&self) -> Option<Address> {
        self.destination
    }

    /// `ai_src_canonname`: returns the local name, if one was found. It may not be UTF-8.
    pub fn source_name(&self) -> Option<&CStr> {
        self.source_name.as_deref()
    }

    /// `ai_dst_canonname`: returns the peer's name, if one was found. It may not be UTF-8.
    pub fn destination_name(&self) -> Option<&CStr> {
        self.destination_name.as_deref()
    }

    /// `ai_route`: returns the route, if the lookup found one (on InfiniBand, with the service ibacm). It consists of
    /// consecutive `struct ibv_path_data`.
    pub fn route(&self) -> &[u8] {
        &self.route
    }

    /// `ai_connect`: returns the data that [`connect`](super::Identifier::connect) sends before the private data.
    pub fn connect_data(&self) -> &[u8] {
        &self.connect_data
    }
}
