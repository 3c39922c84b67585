//! The messages of RoCE connections. The PSN of a message is the one with which its receiver starts to send, so the
//! PSN of an identifier on RoCE is the first one that it expects.

use std::net::{IpAddr, SocketAddr};

use rdma_mummy_sys::{ibv_qp_type, rdma_port_space};

use crate::cm::address::gid;
use crate::cm::messages::{Kind, Message};
use crate::cm::route::{HOPS, RATE};
use crate::net::roce::cm_message::{
    AddressHeader, Addresses, Ece, Ids, Information, PrimaryPath, Rep, Req, SidrRep, SidrReq, TransportService,
    service_id,
};
use crate::net::roce::socket::batch::Route;
use crate::verbs::device;
use crate::verbs::port::PKEY;
use crate::wire::address::Gid;
use crate::wire::transport::Fabric;

/// The time in which each end responds, as an exponent: 4.3 seconds. It is the one of the kernel, and so are the
/// following two.
const RESPONSE_TIMEOUT: u8 = 20;
const MAX_RETRIES: u8 = 15;
const ACK_DELAY: u8 = 15;
/// The extended transport type of XRC.
const XRC: TransportService = TransportService::Extended(1);

/// Returns the GUID of the device.
pub(super) fn guid() -> u64 {
    device::first(Fabric::Roce).map_or(0, |device| u64::from_be(device.guid()))
}

/// Returns the service id of a listener.
pub(super) fn service(space: rdma_port_space, to: SocketAddr) -> u64 {
    service_id(space, to.port())
}

/// Returns the source and the destination of a request.
pub(super) fn addresses_of(message: &Message) -> (Gid, Gid) {
    (gid(message.from.ip()), gid(message.to.ip()))
}

/// Returns the route of the messages of a connection.
pub(super) fn route(message: &Message) -> Route {
    let (source, destination) = addresses_of(message);
    Route { source, destination, traffic_class: message.traffic_class, hop_limit: HOPS, flow_label: 0 }
}

/// Returns the transport service of a type of QP.
pub(super) fn transport(qp_type: ibv_qp_type) -> TransportService {
    match qp_type {
        ibv_qp_type::IBV_QPT_UC => TransportService::Unreliable,
        ibv_qp_type::IBV_QPT_XRC_SEND | ibv_qp_type::IBV_QPT_XRC_RECV => XRC,
        _ => TransportService::Reliable,
    }
}

fn header(message: &Message) -> Option<AddressHeader> {
    let addresses = match (message.from.ip().to_canonical(), message.to.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
        (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
        _ => return None,
    };
    Some(AddressHeader { source_port: message.from.port(), addresses })
}

fn ece(message: &Message) -> Ece {
    Ece { vendor: message.ece.0, options: message.ece.1 }
}

/// Returns the request of a connection, or `None` if the families of the addresses differ.
pub(super) fn req(
    local_id: u32,
    (service, mtu, ack_timeout): (u64, u8, u8),
    qp_type: ibv_qp_type,
    message: &Message,
) -> Option<Req> {
    let (local, remote) = addresses_of(message);
    Some(Req {
        local_id,
        ece: ece(message),
        service,
        guid: guid(),
        qkey: 0,
        qp_number: message.qp_number,
        responder_resources: message.responder_resources,
        initiator_depth: message.initiator_depth,
        remote_response_timeout: RESPONSE_TIMEOUT,
        local_response_timeout: RESPONSE_TIMEOUT,
        service_type: transport(qp_type),
        has_flow_control: message.flow_control != 0,
        starting_psn: message.psn,
        retry_count: message.retry_count,
        rnr_retry_count: message.rnr_retry_count,
        partition: PKEY,
        mtu,
        max_cm_retries: MAX_RETRIES,
        has_srq: message.srq != 0,
        path: PrimaryPath {
            local,
            remote,
            flow_label: 0,
            packet_rate: RATE,
            traffic_class: message.traffic_class,
            hop_limit: HOPS,
            service_level: 0,
            is_subnet_local: false,
            ack_timeout,
        },
        private: header(message)?.before(&message.data)?,
    })
}

/// Returns the request for the QP of a service, or `None` if the families of the addresses differ.
pub(super) fn sidr_req(request_id: u32, service: u64, message: &Message) -> Option<SidrReq> {
    Some(SidrReq { request_id, partition: PKEY, service, private: header(message)?.before(&message.data)? })
}

/// Returns the reply that accepts a connection, without its ids.
pub(super) fn rep(message: &Message) -> Rep {
    Rep {
        ids: Ids { local: 0, remote: 0 },
        ece: ece(message),
        qkey: 0,
        qp_number: message.qp_number,
        starting_psn: message.psn,
        responder_resources: message.responder_resources,
        initiator_depth: message.initiator_depth,
        ack_delay: ACK_DELAY,
        failover: 0,
        has_flow_control: message.flow_control != 0,
        rnr_retry_count: message.rnr_retry_count,
        has_srq: message.srq != 0,
        guid: guid(),
        private: data(message),
    }
}

/// Returns the answer to a request for the QP of a service, without its id.
pub(super) fn sidr_rep(service: u64, message: &Message) -> SidrRep {
    SidrRep {
        request_id: 0,
        // The reasons that datagram services have fit into a byte.
        status: message.reason as u8,
        ece: ece(message),
        qp_number: message.qp_number,
        service,
        qkey: message.qkey,
        information: Information::NONE,
        private: data(message),
    }
}

/// Returns the private data of a message. Its length is the one of its kind.
fn data<const N: usize>(message: &Message) -> [u8; N] {
    std::array::from_fn(|index| message.data.get(index).copied().unwrap_or(0))
}

/// Returns the request that has arrived from `from` at `to`. `data` is the private data of the program.
pub(super) fn request(req: &Req, from: SocketAddr, to: SocketAddr, data: &[u8]) -> Message {
    Message {
        qp_number: req.qp_number,
        psn: req.starting_psn,
        responder_resources: req.responder_resources,
        initiator_depth: req.initiator_depth,
        flow_control: req.has_flow_control.into(),
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: req.has_srq.into(),
        traffic_class: req.path.traffic_class,
        ece: (req.ece.vendor, req.ece.options),
        from,
        to,
        data: data.to_vec(),
        ..Message::new(Kind::Request)
    }
}

pub(super) fn datagram_request(from: SocketAddr, to: SocketAddr, data: &[u8]) -> Message {
    Message { from, to, data: data.to_vec(), ..Message::new(Kind::DatagramRequest) }
}

pub(super) fn reply(rep: &Rep) -> Message {
    Message {
        qp_number: rep.qp_number,
        psn: rep.starting_psn,
        responder_resources: rep.responder_resources,
        initiator_depth: rep.initiator_depth,
        flow_control: rep.has_flow_control.into(),
        rnr_retry_count: rep.rnr_retry_count,
        srq: rep.has_srq.into(),
        ece: (rep.ece.vendor, rep.ece.options),
        data: rep.private.to_vec(),
        ..Message::new(Kind::Reply)
    }
}

pub(super) fn datagram_reply(rep: &SidrRep) -> Message {
    Message {
        reason: rep.status.into(),
        qp_number: rep.qp_number,
        qkey: rep.qkey,
        ece: (rep.ece.vendor, rep.ece.options),
        data: rep.private.to_vec(),
        ..Message::new(Kind::DatagramReply)
    }
}
