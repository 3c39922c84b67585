//! A copy of a C event, which is made before the event is acknowledged.

use std::sync::Arc;

use rdma_mummy_sys::{ibv_qp_type, rdma_cm_event, rdma_cm_id};

use super::info::{ConnectionInfo, MulticastFailure, MulticastMembership, Rejection, RemoteDatagram, Unreachable};
use super::{Event, EventKind};
use crate::error::{Errno, VerbError};
use crate::ffi::Found;
use crate::rdmacm::communication_manager::{EventStatus, EventType, Identifier, PrivateData};

/// A copied event. Its only pointers to C memory are the addresses of two identifiers.
pub(in crate::rdmacm::communication_manager) struct RawEvent {
    pub(in crate::rdmacm::communication_manager) id: *mut rdma_cm_id,
    pub(in crate::rdmacm::communication_manager) listen_id: *mut rdma_cm_id,
    pub(in crate::rdmacm::communication_manager) event_type: EventType,
    status: EventStatus,
    kind: EventKind,
}

impl RawEvent {
    /// Copies an event. `errno` is the errno after the call that returned the event.
    ///
    /// # Safety
    ///
    /// The event is not acknowledged yet, and its identifier, if it has one, is live.
    pub(in crate::rdmacm::communication_manager) unsafe fn copy(raw: *const rdma_cm_event, errno: i32) -> Self {
        // SAFETY: the caller upholds the contract of this function.
        let (id, listen_id, event_type, status) =
            unsafe { ((*raw).id, (*raw).listen_id, EventType::from_raw((*raw).event.0), (*raw).status) };
        // The program sets the status of a user event.
        let status = EventStatus::new(status, if event_type == EventType::User { 0 } else { errno });
        // SAFETY: this follows from the contract of this function. The field is written only when the identifier is
        // created.
        let is_datagram = !id.is_null() && unsafe { (*id).qp_type } == ibv_qp_type::IBV_QPT_UD;
        // SAFETY: by the contract of this function, the library has filled the union member that belongs to the types
        // of the event and of the identifier, in zeroed memory. The members consist of integers, and of a pointer with
        // its length.
        let kind = unsafe {
            let connection = || ConnectionInfo::copy(&(*raw).param.conn);
            let private_data = || match is_datagram {
                true => PrivateData::copy((*raw).param.ud.private_data, (*raw).param.ud.private_data_len),
                false => PrivateData::copy((*raw).param.conn.private_data, (*raw).param.conn.private_data_len),
            };
            match event_type {
                EventType::AddressResolved => EventKind::AddressResolved,
                EventType::AddressError => EventKind::AddressError(status),
                EventType::RouteResolved => EventKind::RouteResolved,
                EventType::RouteError => EventKind::RouteError(status),
                EventType::ConnectRequest if is_datagram => EventKind::LookupRequest(private_data()),
                EventType::ConnectRequest => EventKind::ConnectRequest(connection()),
                EventType::ConnectResponse => EventKind::ConnectResponse(connection()),
                EventType::ConnectError => EventKind::ConnectError(status),
                EventType::Unreachable => EventKind::Unreachable(Unreachable { status, private_data: private_data() }),
                EventType::Rejected => EventKind::Rejected(Rejection { status, private_data: private_data() }),
                EventType::Established if is_datagram => {
                    EventKind::LookupResponse(RemoteDatagram::copy(&(*raw).param.ud))
                }
                EventType::Established => EventKind::Established(connection()),
                EventType::Disconnected => EventKind::Disconnected(private_data()),
                EventType::DeviceRemoval => EventKind::DeviceRemoval,
                EventType::MulticastJoin => EventKind::MulticastJoin(MulticastMembership::copy(&(*raw).param.ud)),
                EventType::MulticastError => {
                    EventKind::MulticastError(MulticastFailure::copy(&(*raw).param.ud, status))
                }
                EventType::AddressChange => EventKind::AddressChange,
                EventType::TimewaitExit => EventKind::TimewaitExit,
                EventType::AddressInfoResolved => EventKind::AddressInfoResolved,
                EventType::AddressInfoError => EventKind::AddressInfoError(status),
                // The bindings lack the union member for user events, because it was added later. The other two members
                // of the union contain its eight bytes.
                EventType::User => EventKind::User((&raw const (*raw).param).cast::<u64>().read()),
                _ => EventKind::Other,
            }
        };
        Self { id, listen_id, event_type, status, kind }
    }

    /// Adds the address of the event's multicast group, if it has one, and marks a lost group in the identifier.
    pub(in crate::rdmacm::communication_manager) fn name_group(&mut self, id: &Identifier) {
        match &mut self.kind {
            EventKind::MulticastJoin(membership) => membership.name_group(id),
            EventKind::MulticastError(failure) => failure.name_group(id),
            _ => {}
        }
    }

    /// Returns the event of this identifier.
    ///
    /// # Errors
    ///
    /// Returns `EIO` if the event is a connect request but its identifier is not new.
    pub(in crate::rdmacm::communication_manager) fn of(
        self,
        id: Arc<Identifier>,
        listener: Found<Identifier>,
    ) -> Result<Event, VerbError> {
        let is_request = self.event_type == EventType::ConnectRequest;
        if is_request && !id.is_request() {
            return Err(VerbError::new("rdma_get_cm_event", Errno::EIO)
                .with_hint("the library reported a connect request without a new identifier"));
        }
        let listener = match listener {
            Found::Object(listener) if is_request => Some(listener),
            _ => None,
        };
        Ok(Event { id, listener, event_type: self.event_type, status: self.status, kind: self.kind })
    }
}
