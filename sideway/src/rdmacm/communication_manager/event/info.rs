//! What comes along with an event.

use std::fmt;
use std::net::SocketAddr;

use rdma_mummy_sys::{rdma_conn_param, rdma_ud_param};

use crate::ibverbs::address::AddressHandleAttribute;
use crate::rdmacm::communication_manager::{EventStatus, Identifier, PrivateData, RejectReason, SidrStatus};

/// What the peer said of the connection: the other side of its
/// [`ConnectionParameter`](crate::rdmacm::communication_manager::ConnectionParameter), with the two depths as they look from
/// here.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    private_data: PrivateData,
    // Its pointer is not used.
    raw: RawNumbers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RawNumbers {
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: u8,
    qp_num: u32,
}

impl ConnectionInfo {
    /// # Safety
    ///
    /// As many bytes can be read at the private data of `raw` as it says.
    pub(super) unsafe fn copy(raw: &rdma_conn_param) -> Self {
        Self {
            // SAFETY: the caller's promise.
            private_data: unsafe { PrivateData::copy(raw.private_data, raw.private_data_len) },
            raw: RawNumbers {
                responder_resources: raw.responder_resources,
                initiator_depth: raw.initiator_depth,
                flow_control: raw.flow_control,
                retry_count: raw.retry_count,
                rnr_retry_count: raw.rnr_retry_count,
                srq: raw.srq,
                qp_num: raw.qp_num,
            },
        }
    }

    /// What the peer wanted to be read here.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// Reads and atomics that the peer will have outstanding at once: at least so many this side is to serve.
    pub fn responder_resources(&self) -> u8 {
        self.raw.responder_resources
    }

    /// Reads and atomics that the peer serves at once: at most so many this side may have outstanding.
    pub fn initiator_depth(&self) -> u8 {
        self.raw.initiator_depth
    }

    /// Whether the peer's hardware has flow control from end to end.
    pub fn flow_control(&self) -> bool {
        self.raw.flow_control != 0
    }

    /// How often a request is to be sent again that nobody acknowledges; in a connect request only.
    pub fn retry_count(&self) -> u8 {
        self.raw.retry_count
    }

    /// How often a message is to be sent again that found no receive posted.
    pub fn rnr_retry_count(&self) -> u8 {
        self.raw.rnr_retry_count
    }

    /// Whether the peer receives from a shared queue.
    pub fn srq(&self) -> bool {
        self.raw.srq != 0
    }

    /// The number of the peer's queue pair.
    pub fn qp_number(&self) -> u32 {
        self.raw.qp_num
    }
}

impl fmt::Debug for ConnectionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionInfo")
            .field("private_data", &self.private_data)
            .field("responder_resources", &self.responder_resources())
            .field("initiator_depth", &self.initiator_depth())
            .field("flow_control", &self.flow_control())
            .field("retry_count", &self.retry_count())
            .field("rnr_retry_count", &self.rnr_retry_count())
            .field("srq", &self.srq())
            .field("qp_number", &self.qp_number())
            .finish()
    }
}

/// A queue pair for datagrams that was looked up: where to send.
#[derive(Clone, Debug)]
pub struct RemoteDatagram {
    private_data: PrivateData,
    address: AddressHandleAttribute,
    qp_number: u32,
    qkey: u32,
}

impl RemoteDatagram {
    /// # Safety
    ///
    /// As many bytes can be read at the private data of `raw` as it says.
    pub(super) unsafe fn copy(raw: &rdma_ud_param) -> Self {
        Self {
            // SAFETY: the caller's promise.
            private_data: unsafe { PrivateData::copy(raw.private_data, raw.private_data_len) },
            address: AddressHandleAttribute::from_raw(raw.ah_attr),
            qp_number: raw.qp_num,
            qkey: raw.qkey,
        }
    }

    /// What the peer wanted to be read here.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// The way there: what an address handle is made from.
    pub fn address_handle_attribute(&self) -> &AddressHandleAttribute {
        &self.address
    }

    /// The number of the queue pair.
    pub fn qp_number(&self) -> u32 {
        self.qp_number
    }

    /// The key that datagrams to it carry.
    pub fn qkey(&self) -> u32 {
        self.qkey
    }
}

/// A multicast group that an identifier is in: where to send, for the group to receive.
#[derive(Clone, Debug)]
pub struct MulticastMembership {
    key: usize,
    group: Option<SocketAddr>,
    address: AddressHandleAttribute,
    qp_number: u32,
    qkey: u32,
}

impl MulticastMembership {
    /// C's private data here is the context that the group was joined with.
    pub(super) fn copy(raw: &rdma_ud_param) -> Self {
        Self {
            key: raw.private_data.addr(),
            group: None,
            address: AddressHandleAttribute::from_raw(raw.ah_attr),
            qp_number: raw.qp_num,
            qkey: raw.qkey,
        }
    }

    /// Asks the identifier where the group is.
    pub(super) fn name_group(&mut self, id: &Identifier) {
        self.group = id.group_of(self.key, false);
    }

    /// The address that it was [joined](Identifier::join_multicast) by; `None` where it was not joined through this crate.
    pub fn group(&self) -> Option<SocketAddr> {
        self.group
    }

    /// The way to the group: what an address handle is made from. Its GID is the group's.
    pub fn address_handle_attribute(&self) -> &AddressHandleAttribute {
        &self.address
    }

    /// The number that datagrams to the group are sent to: 0xffffff.
    pub fn qp_number(&self) -> u32 {
        self.qp_number
    }

    /// The key that datagrams to the group carry.
    pub fn qkey(&self) -> u32 {
        self.qkey
    }
}

/// A multicast group that an identifier could not join, or has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastFailure {
    key: usize,
    group: Option<SocketAddr>,
    status: EventStatus,
}

impl MulticastFailure {
    /// C's private data here is the context that the group was joined with.
    pub(super) fn copy(raw: &rdma_ud_param, status: EventStatus) -> Self {
        Self { key: raw.private_data.addr(), group: None, status }
    }

    /// Asks the identifier where the group is, and says that it is lost.
    pub(super) fn name_group(&mut self, id: &Identifier) {
        self.group = id.group_of(self.key, true);
    }

    /// The address that it was [joined](Identifier::join_multicast) by; `None` where it was not joined through this crate.
    pub fn group(&self) -> Option<SocketAddr> {
        self.group
    }

    /// The status of the event.
    pub fn status(&self) -> EventStatus {
        self.status
    }
}

impl fmt::Display for MulticastFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            Some(group) => write!(f, "{}: {}", group.ip(), self.status),
            None => self.status.fmt(f),
        }
    }
}

/// A no from the peer, or from its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub(super) status: EventStatus,
    pub(super) private_data: PrivateData,
}

impl Rejection {
    /// Why. `None` on iWARP, which gives an errno: [`status`](Self::status).
    pub fn reason(&self) -> Option<RejectReason> {
        self.status.reject_reason()
    }

    /// The status of the event.
    pub fn status(&self) -> EventStatus {
        self.status
    }

    /// What the peer's program wanted to be read here; empty where its machine said no.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Some(reason) => reason.fmt(f)?,
            None => self.status.fmt(f)?,
        }
        match self.private_data.trimmed() {
            [] => Ok(()),
            data => write!(f, ", with {} bytes of data", data.len()),
        }
    }
}

/// No answer from the peer, or a no to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    pub(super) status: EventStatus,
    pub(super) private_data: PrivateData,
}

impl Unreachable {
    /// Why a lookup for datagrams was refused; `None` where nobody answered.
    pub fn sidr_status(&self) -> Option<SidrStatus> {
        self.status.sidr_status()
    }

    /// The status of the event.
    pub fn status(&self) -> EventStatus {
        self.status
    }

    /// What the peer's program wanted to be read here.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sidr_status() {
            Some(status) => status.fmt(f),
            None => self.status.fmt(f),
        }
    }
}
