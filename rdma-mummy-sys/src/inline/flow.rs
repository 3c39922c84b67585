//! Flow steering: rules that direct packets to a queue pair, and their actions.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use super::unsupported;
use crate::bindings::verbs::*;

/// Attaches a rule to `qp`, which then receives the packets that match it. Returns null and sets errno on failure. See
/// `ibv_create_flow(3)`.
///
/// # Safety
///
/// `qp` is live, and `flow` is followed by the number of specifications that it states.
#[inline]
pub unsafe fn ibv_create_flow(qp: *mut ibv_qp, flow: *mut ibv_flow_attr) -> *mut ibv_flow {
    // SAFETY: by contract the queue pair is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*qp).context, ibv_create_flow) {
            Some(create) => create(qp, flow),
            None => unsupported(),
        }
    }
}

/// Removes a rule. Returns zero or an errno value. See `ibv_destroy_flow(3)`.
///
/// # Safety
///
/// `flow_id` is live, and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn ibv_destroy_flow(flow_id: *mut ibv_flow) -> c_int {
    // SAFETY: by contract the rule is live, and with it its context; the operation receives this function's arguments.
    unsafe {
        match extended_op!((*flow_id).context, ibv_destroy_flow) {
            Some(destroy) => destroy(flow_id),
            None => EOPNOTSUPP,
        }
    }
}

/// Creates an action that encrypts or decrypts (ESP). Returns null and sets errno on failure. See
/// `ibv_create_flow_action(3)`.
///
/// # Safety
///
/// `ctx` is live, and `esp` can be read with all that it points to.
#[inline]
pub unsafe fn ibv_create_flow_action_esp(
    ctx: *mut ibv_context,
    esp: *mut ibv_flow_action_esp_attr,
) -> *mut ibv_flow_action {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(ctx, create_flow_action_esp) {
            Some(create) => create(ctx, esp),
            None => unsupported(),
        }
    }
}

/// Changes an action that encrypts or decrypts. Returns zero or an errno value. See `ibv_modify_flow_action(3)`.
///
/// # Safety
///
/// `action` is live, and `esp` can be read with all that it points to.
#[inline]
pub unsafe fn ibv_modify_flow_action_esp(action: *mut ibv_flow_action, esp: *mut ibv_flow_action_esp_attr) -> c_int {
    // SAFETY: by contract the action is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*action).context, modify_flow_action_esp) {
            Some(modify) => modify(action, esp),
            None => EOPNOTSUPP,
        }
    }
}

/// Destroys an action. Returns zero or an errno value. See `ibv_destroy_flow_action(3)`.
///
/// # Safety
///
/// `action` is live, and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn ibv_destroy_flow_action(action: *mut ibv_flow_action) -> c_int {
    // SAFETY: by contract the action is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*action).context, destroy_flow_action) {
            Some(destroy) => destroy(action),
            None => EOPNOTSUPP,
        }
    }
}
