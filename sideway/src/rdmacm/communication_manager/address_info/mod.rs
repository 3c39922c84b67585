//! `struct rdma_addrinfo`: where to connect to, or to listen.

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

/// `struct rdma_addrinfo` — where to connect to or to listen, and with what: what [`getaddrinfo`] is asked for (the hints of C), and
/// what it gives. It is plain data of its own, copied from C and to it.
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
    /// Nothing in particular: as hints, reliable connections to any address that is found.
    pub fn new() -> Self {
        Self::default()
    }

    /// `ai_flags`: what is wanted.
    pub fn setup_flags(&mut self, flags: AddressInfoFlags) -> &mut Self {
        self.flags = flags;
        self
    }

    /// `ai_family`: addresses of this family alone. [`InfiniBand`](AddressFamily::InfiniBand) is looked up with
    /// [`Family`](AddressInfoFlags::Family) and [`NumericHost`](AddressInfoFlags::NumericHost): the node is a GID then, written as
    /// an address of IPv6.
    pub fn setup_family(&mut self, family: AddressFamily) -> &mut Self {
        self.family = (family != AddressFamily::Unspecified).then_some(family);
        self
    }

    /// `ai_qp_type`: what is to be connected.
    pub fn setup_qp_type(&mut self, qp_type: QueuePairType) -> &mut Self {
        self.qp_type = Some(qp_type);
        self
    }

    /// `ai_port_space`: what the port is one of.
    pub fn setup_port_space(&mut self, port_space: PortSpace) -> &mut Self {
        self.port_space = Some(port_space);
        self
    }

    /// `ai_src_addr`: this side's address.
    pub fn setup_source(&mut self, source: impl Into<Address>) -> &mut Self {
        self.source = Some(source.into());
        self
    }

    /// `ai_dst_addr`: the other side's address. As a hint it counts where neither node nor service is given.
    pub fn setup_destination(&mut self, destination: impl Into<Address>) -> &mut Self {
        self.destination = Some(destination.into());
        self
    }

    /// `ai_connect`: what [`connect`](super::Identifier::connect) sends before the private data, at most 255 bytes together. As a
    /// hint it says nothing.
    pub fn setup_connect_data(&mut self, connect_data: &[u8]) -> &mut Self {
        connect_data.clone_into(&mut self.connect_data);
        self
    }

    /// What is wanted, or what it is.
    pub fn flags(&self) -> AddressInfoFlags {
        self.flags
    }

    /// Whether it is for listening.
    pub fn is_passive(&self) -> bool {
        self.flags.contains(AddressInfoFlags::Passive)
    }

    /// The family of the addresses: [`Unspecified`](AddressFamily::Unspecified) where there are none and none was set.
    pub fn family(&self) -> AddressFamily {
        let address =
            if self.is_passive() { self.source.or(self.destination) } else { self.destination.or(self.source) };
        self.family.or(address.map(|address| address.family())).unwrap_or(AddressFamily::Unspecified)
    }

    /// What is to be connected.
    pub fn qp_type(&self) -> Option<QueuePairType> {
        self.qp_type
    }

    /// What the port is one of.
    pub fn port_space(&self) -> Option<PortSpace> {
        self.port_space
    }

    /// This side's address; `None` also for one of a family that this crate does not know.
    pub fn source(&self) -> Option<Address> {
        self.source
    }

    /// The other side's address; `None` also for one of a family that this crate does not know.
    pub fn destination(&self) -> Option<Address> {
        self.destination
    }

    /// `ai_src_canonname`: this side's name, where one was found. Nothing says that it is UTF-8.
    pub fn source_name(&self) -> Option<&CStr> {
        self.source_name.as_deref()
    }

    /// `ai_dst_canonname`: the other side's name, where one was found. Nothing says that it is UTF-8.
    pub fn destination_name(&self) -> Option<&CStr> {
        self.destination_name.as_deref()
    }

    /// `ai_route`: the route, where the lookup found one (InfiniBand, with the service ibacm): `struct ibv_path_data`, one after
    /// the other.
    pub fn route(&self) -> &[u8] {
        &self.route
    }

    /// `ai_connect`: what [`connect`](super::Identifier::connect) sends before the private data.
    pub fn connect_data(&self) -> &[u8] {
        &self.connect_data
    }
}
