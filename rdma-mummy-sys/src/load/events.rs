//! Acknowledging an asynchronous event, which tells its maker only through what it is about.

use super::failure;
use super::ibverbs::IbverbsTable;
use super::route::{Owner, Routed, find};
use crate::bindings::verbs::*;

/// `ibv_ack_async_event`: see `ibv_get_async_event(3)`. An event about a port or the whole device counts nothing that
/// waits for it, and needs no acknowledgement; neither does a null pointer.
///
/// # Safety
///
/// `event` is null or came from `ibv_get_async_event` and was not acknowledged.
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    if event.is_null() {
        return failure::nothing(libc::EINVAL);
    }
    // SAFETY: an event that is not acknowledged keeps its object alive, and the type says which member of the union
    // that is.
    let owner = unsafe {
        match (*event).event_type {
            ibv_event_type::IBV_EVENT_CQ_ERR => (*event).element.cq.owner(),
            ibv_event_type::IBV_EVENT_QP_FATAL
            | ibv_event_type::IBV_EVENT_QP_REQ_ERR
            | ibv_event_type::IBV_EVENT_QP_ACCESS_ERR
            | ibv_event_type::IBV_EVENT_COMM_EST
            | ibv_event_type::IBV_EVENT_SQ_DRAINED
            | ibv_event_type::IBV_EVENT_PATH_MIG
            | ibv_event_type::IBV_EVENT_PATH_MIG_ERR
            | ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED => (*event).element.qp.owner(),
            ibv_event_type::IBV_EVENT_SRQ_ERR | ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED => {
                (*event).element.srq.owner()
            }
            ibv_event_type::IBV_EVENT_WQ_FATAL => (*event).element.wq.owner(),
            ibv_event_type::IBV_EVENT_DEVICE_FATAL
            | ibv_event_type::IBV_EVENT_PORT_ACTIVE
            | ibv_event_type::IBV_EVENT_PORT_ERR
            | ibv_event_type::IBV_EVENT_LID_CHANGE
            | ibv_event_type::IBV_EVENT_PKEY_CHANGE
            | ibv_event_type::IBV_EVENT_SM_CHANGE
            | ibv_event_type::IBV_EVENT_CLIENT_REREGISTER
            | ibv_event_type::IBV_EVENT_GID_CHANGE => return,
            // A type that this crate does not know can only come from a newer library.
            _ => Owner::System,
        }
    };
    match find::<IbverbsTable, _>(owner, |table| table.ibv_ack_async_event) {
        // SAFETY: the function is that of the library or provider that the event came from, and the caller keeps its
        // contract.
        Ok(acknowledge) => unsafe { acknowledge(event) },
        Err(code) => failure::nothing(code),
    }
}
