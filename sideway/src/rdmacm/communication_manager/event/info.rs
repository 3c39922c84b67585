//! The data of events.

use std::fmt;
use std::net::SocketAddr;

use rdma_mummy_sys::{rdma_conn_param, rdma_ud_param};

use crate::ibverbs::address::AddressHandleAttribute;
use crate::rdmacm::communication_manager::{EventStatus, Identifier, PrivateData, RejectReason, SidrStatus};

/// The connection parameters of the peer. They are the peer's
/// [`ConnectionParameter`](crate::rdmacm::communication_manager::ConnectionParameter), with the two depths as seen from
/// this side.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    private_data: PrivateData,
    // The C struct. Its pointer is not used.
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
    /// The private data of `raw` has as many readable bytes as its length field states.
    pub(super) unsafe fn copy(raw: &rdma_conn_param) -> Self {
        Self {
            // SAFETY: the caller upholds the contract of this function.
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

    /// Returns the peer's private data.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// Returns how many reads and atomics the peer will have outstanding. This side must serve at least this number.
    pub fn responder_resources(&self) -> u8 {
        self.raw.responder_resources
    }

    /// Returns how many reads and atomics the peer serves at the same time. This side may have at most this number
    /// outstanding.
    pub fn initiator_depth(&self) -> u8 {
        self.raw.initiator_depth
    }

    /// Whether the peer's hardware has end-to-end flow control.
    pub fn flow_control(&self) -> bool {
        self.raw.flow_control != 0
    }

    /// Returns how often to retransmit an unacknowledged request. Only a connect request contains this value.
    pub fn retry_count(&self) -> u8 {
        self.raw.retry_count
    }

    /// Returns how often to retransmit a message if the receiver has no receive posted.
    pub fn rnr_retry_count(&self) -> u8 {
        self.raw.rnr_retry_count
    }

    /// Whether the peer receives from a shared receive queue.
    pub fn srq(&self) -> bool {
        self.raw.srq != 0
    }

    /// Returns the number of the peer's queue pair.
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

/// The result of a lookup: the destination of datagrams.
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
    /// The private data of `raw` has as many readable bytes as its length field states.
    pub(super) unsafe fn copy(raw: &rdma_ud_param) -> Self {
        Self {
            // SAFETY: the caller upholds the contract of this function.
            private_data: unsafe { PrivateData::copy(raw.private_data, raw.private_data_len) },
            address: AddressHandleAttribute::from_raw(raw.ah_attr),
            qp_number: raw.qp_num,
            qkey: raw.qkey,
        }
    }

    /// Returns the peer's private data.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// Returns the path to the peer, as attributes with which an address handle can be created.
    pub fn address_handle_attribute(&self) -> &AddressHandleAttribute {
        &self.address
    }

    /// Returns the queue pair number.
    pub fn qp_number(&self) -> u32 {
        self.qp_number
    }

    /// Returns the key for datagrams to the queue pair.
    pub fn qkey(&self) -> u32 {
        self.qkey
    }
}

/// The membership of an identifier in a multicast group. It contains the destination for datagrams to the group.
#[derive(Clone, Debug)]
pub struct MulticastMembership {
    key: usize,
    group: Option<SocketAddr>,
    address: AddressHandleAttribute,
    qp_number: u32,
    qkey: u32,
}

impl MulticastMembership {
    /// Copies the C struct. Its field for private data contains the context that was passed when the group was joined.
    pub(super) fn copy(raw: &rdma_ud_param) -> Self {
        Self {
            key: raw.private_data.addr(),
            group: None,
            address: AddressHandleAttribute::from_raw(raw.ah_attr),
            qp_number: raw.qp_num,
            qkey: raw.qkey,
        }
    }

    /// Adds the group's address, which the identifier has stored.
    pub(super) fn name_group(&mut self, id: &Identifier) {
        self.group = id.group_of(self.key, false);
    }

    /// Returns the address with which the group was [joined](Identifier::join_multicast), or `None` if it was not
    /// joined through this crate.
    pub fn group(&self) -> Option<SocketAddr> {
        self.group
    }

    /// Returns the path to the group, as attributes with which an address handle can be created. They contain the GID
    /// of the group.
    pub fn address_handle_attribute(&self) -> &AddressHandleAttribute {
        &self.address
    }

    /// Returns the queue pair number of the group: 0xffffff.
    pub fn qp_number(&self) -> u32 {
        self.qp_number
    }

    /// Returns the key for datagrams to the group.
    pub fn qkey(&self) -> u32 {
        self.qkey
    }
}

/// A multicast group that an identifier could not join, or in which it lost its membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastFailure {
    key: usize,
    group: Option<SocketAddr>,
    status: EventStatus,
}

impl MulticastFailure {
    /// Copies the C struct. Its field for private data contains the context that was passed when the group was joined.
    pub(super) fn copy(raw: &rdma_ud_param, status: EventStatus) -> Self {
        Self { key: raw.private_data.addr(), group: None, status }
    }

    /// Adds the group's address, which the identifier has stored, and marks the group as lost.
    pub(super) fn name_group(&mut self, id: &Identifier) {
        self.group = id.group_of(self.key, true);
    }

    /// Returns the address with which the group was [joined](Identifier::join_multicast), or `None` if it was not
    /// joined through this crate.
    pub fn group(&self) -> Option<SocketAddr> {
        self.group
    }

    /// Returns the status of the event.
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

/// A rejection by the peer or its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub(in crate::rdmacm) status: EventStatus,
    pub(in crate::rdmacm) private_data: PrivateData,
}

impl Rejection {
    /// Returns the reason, or `None` on iWARP, which reports an errno instead; see [`status`](Self::status).
    pub fn reason(&self) -> Option<RejectReason> {
        self.status.reject_reason()
    }

    /// Returns the status of the event.
    pub fn status(&self) -> EventStatus {
        self.status
    }

    /// Returns the private data of the peer's program. It is empty if the kernel of the peer's machine rejected the
    /// request.
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

/// The data of an event that reports that the peer did not respond, or that it refused a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    pub(in crate::rdmacm) status: EventStatus,
    pub(in crate::rdmacm) private_data: PrivateData,
}

impl Unreachable {
    /// Returns the reason for refusing a lookup, or `None` if the peer did not respond.
    pub fn sidr_status(&self) -> Option<SidrStatus> {
        self.status.sidr_status()
    }

    /// Returns the status of the event.
    pub fn status(&self) -> EventStatus {
        self.status
    }

    /// Returns the peer's private data.
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
