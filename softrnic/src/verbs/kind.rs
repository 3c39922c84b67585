//! What the devices of a fabric have in common, as programs see them: the only place that describes it.

use std::ffi::c_uint;

use rdma_mummy_sys::{
    ib_uverbs_query_port_flags, ibv_gid_type, ibv_node_type, ibv_odp_transport_cap_bits as odp, ibv_port_cap_flags,
    ibv_qp_type, ibv_transport_type,
};

use super::limits::{self, Limits, Profile};
use crate::qp::Reach;
use crate::sys::errno::Errno;
use crate::wire::operation::Service;
use crate::wire::transport::Fabric;
use crate::wiring;

/// The length of the GID table of a RoCE device, which is the range of the index in an address handle.
pub(crate) const GID_TABLE_LENGTH: u32 = 256;

/// The description of the devices of a fabric.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) fabric: Fabric,
    /// The prefix of the names of the devices. The last kind has none, and takes all other names.
    prefix: &'static str,
    pub(super) node: ibv_node_type,
    /// The type of the node, as in sysfs.
    pub(super) node_text: &'static str,
    pub(super) transport: ibv_transport_type,
    /// The length of the GID table.
    pub(super) gids: u32,
    pub(super) gid_type: ibv_gid_type,
    /// The type that `ibv_query_gid_type` returns. This verb has its own numbers for the types.
    pub(super) gid_type_code: c_uint,
    /// The type of the GIDs, as in sysfs.
    pub(super) gid_type_text: &'static str,
    pub(super) port_capabilities: c_uint,
    pub(super) port_flags: u8,
    pub(super) services: &'static [(ibv_qp_type, Service, OnDemand)],
    /// Whether QPs have no state RESET, so that a new one is in INIT.
    pub(super) begins_in_init: bool,
    pub(crate) limits: &'static Limits,
}

/// The operations of a service that work on memory with on-demand paging: all operations of the service.
pub(super) type OnDemand = u32;

const DATAGRAMS: OnDemand = odp::IBV_ODP_SUPPORT_SEND.0 | odp::IBV_ODP_SUPPORT_RECV.0 | odp::IBV_ODP_SUPPORT_SRQ_RECV.0;
const UNRELIABLE: OnDemand = odp::IBV_ODP_SUPPORT_SEND.0 | odp::IBV_ODP_SUPPORT_RECV.0 | odp::IBV_ODP_SUPPORT_WRITE.0;
const ATOMIC: OnDemand =
    DATAGRAMS | odp::IBV_ODP_SUPPORT_WRITE.0 | odp::IBV_ODP_SUPPORT_READ.0 | odp::IBV_ODP_SUPPORT_ATOMIC.0;
const ON_DEMAND_OF_CONNECT_X: OnDemand = UNRELIABLE | odp::IBV_ODP_SUPPORT_READ.0;
const RELIABLE: OnDemand = ATOMIC | odp::IBV_ODP_SUPPORT_FLUSH.0 | odp::IBV_ODP_SUPPORT_ATOMIC_WRITE.0;

static IWARP: Kind = Kind {
    fabric: Fabric::Iwarp,
    prefix: "softiw",
    node: ibv_node_type::IBV_NODE_RNIC,
    node_text: "4: RNIC",
    transport: ibv_transport_type::IBV_TRANSPORT_IWARP,
    gids: 1,
    gid_type: ibv_gid_type::IBV_GID_TYPE_IB,
    gid_type_code: 0,
    gid_type_text: "IB/RoCE v1",
    port_capabilities: 0,
    port_flags: 0,
    services: &[(ibv_qp_type::IBV_QPT_RC, Service::Iwarp, ATOMIC)],
    begins_in_init: true,
    limits: &limits::SOFT,
};

static ROCE: Kind = Kind { fabric: Fabric::Roce, prefix: "softroce", ..PLAIN };

const PLAIN: Kind = Kind {
    fabric: Fabric::Host,
    prefix: "",
    node: ibv_node_type::IBV_NODE_CA,
    node_text: "1: CA",
    transport: ibv_transport_type::IBV_TRANSPORT_IB,
    gids: GID_TABLE_LENGTH,
    gid_type: ibv_gid_type::IBV_GID_TYPE_ROCE_V2,
    gid_type_code: 1,
    gid_type_text: "RoCE v2",
    port_capabilities: ibv_port_cap_flags::IBV_PORT_IP_BASED_GIDS.0,
    port_flags: ib_uverbs_query_port_flags::IB_UVERBS_QPF_GRH_REQUIRED.0 as u8,
    services: &[
        (ibv_qp_type::IBV_QPT_RC, Service::ReliableConnection, RELIABLE),
        (ibv_qp_type::IBV_QPT_UC, Service::UnreliableConnection, UNRELIABLE),
        (ibv_qp_type::IBV_QPT_UD, Service::UnreliableDatagram, DATAGRAMS),
        (ibv_qp_type::IBV_QPT_XRC_SEND, Service::XrcSend, RELIABLE),
        (ibv_qp_type::IBV_QPT_XRC_RECV, Service::XrcReceive, RELIABLE),
    ],
    begins_in_init: false,
    limits: &limits::SOFT,
};

pub(super) static HOST: Kind = PLAIN;

static CONNECT_X: Kind = Kind {
    services: &[
        (ibv_qp_type::IBV_QPT_RC, Service::ReliableConnection, ON_DEMAND_OF_CONNECT_X),
        (ibv_qp_type::IBV_QPT_UC, Service::UnreliableConnection, 0),
        (ibv_qp_type::IBV_QPT_UD, Service::UnreliableDatagram, odp::IBV_ODP_SUPPORT_SEND.0),
        (ibv_qp_type::IBV_QPT_XRC_SEND, Service::XrcSend, 0),
        (ibv_qp_type::IBV_QPT_XRC_RECV, Service::XrcReceive, 0),
    ],
    limits: &limits::CONNECT_X,
    ..PLAIN
};

static KINDS: [&Kind; 3] = [&IWARP, &ROCE, &HOST];

impl Kind {
    /// Returns the kind of the device with this name. iWARP devices ignore the profile.
    pub(super) fn named(name: &str, profile: Option<Profile>) -> &'static Self {
        let kind = KINDS.into_iter().find(|kind| name.starts_with(kind.prefix)).unwrap_or(&HOST);
        match profile {
            Some(Profile::ConnectX) if kind.fabric == Fabric::Host => &CONNECT_X,
            _ => kind,
        }
    }

    /// Returns how the messages of a QP of this service leave the device.
    ///
    /// # Errors
    ///
    /// The sockets of the device cannot be opened.
    pub(super) fn reach(&self, service: Service) -> Result<Reach, Errno> {
        Ok(match self.fabric {
            Fabric::Host => Reach::Registry,
            Fabric::Iwarp => Reach::Connection,
            Fabric::Roce => {
                let engine = wiring::roce();
                engine.start().map_err(|error| {
                    rdma_mummy_sys::log!(error, "{error}");
                    Errno(error.errno())
                })?;
                match service {
                    Service::UnreliableDatagram => Reach::Carrier(engine.datagrams()),
                    _ => Reach::Connection,
                }
            }
        })
    }

    /// Returns the service of a type of QP.
    pub(super) fn service(&self, qp_type: ibv_qp_type) -> Result<Service, Errno> {
        let found = self.services.iter().find(|(found, ..)| *found == qp_type);
        found.map(|(_, service, _)| *service).ok_or(Errno::NOT_SUPPORTED)
    }

    /// Returns the operations of a type of QP that work on memory with on-demand paging.
    pub(super) fn on_demand(&self, qp_type: ibv_qp_type) -> OnDemand {
        self.services.iter().find(|(found, ..)| *found == qp_type).map_or(0, |(.., operations)| *operations)
    }
}
