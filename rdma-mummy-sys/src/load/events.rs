//! Acknowledging an asynchronous event, whose provider follows from the object it names.

use super::failure;
use super::front::front;
use super::ibverbs::IbverbsTable;
use super::route::{Owner, Routed, find};
use crate::bindings::verbs::*;

/// `ibv_ack_async_event`: see `ibv_get_async_event(3)`. Events of a port or of the device need no acknowledgement,
/// because no object counts them. A null pointer is ignored.
///
/// # Safety
///
/// `event` is null or came from `ibv_get_async_event` and was not acknowledged.
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    front!(IbverbsTable, ibv_ack_async_event(event));
    if event.is_null() {
        return failure::nothing(libc::EINVAL);
    }
    // SAFETY: an unacknowledged event keeps its object alive, and the type selects the member of the union.
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
            // An unknown type can only come from a newer library.
            _ => Owner::System,
        }
    };
    match find::<IbverbsTable, _>(owner, |table| table.ibv_ack_async_event) {
        // SAFETY: the function comes from the library or provider of the event, and the caller upholds its contract.
        Ok(acknowledge) => unsafe { acknowledge(event) },
        Err(code) => failure::nothing(code),
    }
}
