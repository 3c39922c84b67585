//! Flow rules and the actions that they name. A rule is parsed as in libibverbs: the size of each specification leads
//! to the next.

use std::slice;

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_flow_spec_type as kind;

use super::calls::Kind;
use super::device::state_of;
use super::objects::{destroy_object, forever};
use super::state::Inner;

/// Adds the verbs of this file to the extended table.
pub(super) fn fill_in(table: &mut ffi::verbs_context, has: impl Fn(&str) -> bool) {
    table.ibv_create_flow = has("create_flow").then_some(create_flow);
    table.ibv_destroy_flow = has("destroy_flow").then_some(destroy_flow);
    table.create_flow_action_esp = has("create_flow_action_esp").then_some(create_flow_action_esp);
    table.modify_flow_action_esp = has("modify_flow_action_esp").then_some(modify_flow_action_esp);
    table.destroy_flow_action = has("destroy_flow_action").then_some(destroy_flow_action);
}

pub(super) unsafe extern "C" fn create_flow(qp: *mut ffi::ibv_qp, attr: *mut ffi::ibv_flow_attr) -> *mut ffi::ibv_flow {
    // SAFETY: objects are never freed; the attributes are followed by the stated number of specifications.
    unsafe {
        let ffi::ibv_flow_attr { comp_mask, type_, size, priority, num_of_specs, port, flags } = *attr;
        let arguments = [
            ("qp", qp.addr() as u64),
            ("comp_mask", comp_mask.into()),
            ("type", type_.0.into()),
            ("size", size.into()),
            ("priority", priority.into()),
            ("num_of_specs", num_of_specs.into()),
            ("port", port.into()),
            ("flags", flags.into()),
        ];
        let (mut inner, failure) = state_of((*qp).context).enter("create_flow", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        inner.bytes.push(slice::from_raw_parts(attr.cast(), size.into()).to_vec());
        let mut parents = vec![qp.addr()];
        let mut spec = attr.add(1).cast::<u8>();
        for _ in 0..num_of_specs {
            parents.extend(named_by(&mut inner, spec));
            spec = spec.add((*spec.cast::<ffi::ibv_flow_spec_action_drop>()).size.into());
        }
        if spec.addr() - attr.addr() != usize::from(size) {
            inner.violation(format!("a flow states {size} bytes and has {}", spec.addr() - attr.addr()));
        }
        if !inner.is_live(Kind::QueuePair, qp.addr(), "create_flow") {
            return super::script::Failure::documented(libc::EINVAL).null();
        }
        let flow = forever::<ffi::ibv_flow>();
        (*flow).context = (*qp).context;
        (*flow).handle = inner.handle();
        inner.made(Kind::Flow, flow, &parents);
        flow
    }
}

/// The object of a specification, if it exists.
///
/// # Safety
///
/// A specification begins at `spec`.
unsafe fn named_by(inner: &mut Inner, spec: *const u8) -> Option<usize> {
    // SAFETY: guaranteed by the caller; all specifications begin like this one, and the type determines the rest.
    let (named, object) = unsafe {
        match (*spec.cast::<ffi::ibv_flow_spec_action_drop>()).type_ {
            kind::IBV_FLOW_SPEC_ACTION_HANDLE => {
                (Kind::FlowAction, (*spec.cast::<ffi::ibv_flow_spec_action_handle>()).action.addr())
            }
            kind::IBV_FLOW_SPEC_ACTION_COUNT => {
                (Kind::Counters, (*spec.cast::<ffi::ibv_flow_spec_counter_action>()).counters.addr())
            }
            _ => return None,
        }
    };
    inner.is_live(named, object, "create_flow").then_some(object)
}

pub(super) unsafe extern "C" fn destroy_flow(flow: *mut ffi::ibv_flow) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*flow).context, "destroy_flow", Kind::Flow, flow.addr()) }
}

/// The contents of the attributes, including what they point to; absent fields are omitted.
///
/// # Safety
///
/// `attr` can be read, with all that it points to.
unsafe fn esp_arguments(attr: *const ffi::ibv_flow_action_esp_attr) -> Vec<(&'static str, u64)> {
    // SAFETY: guaranteed by the caller; protocols and lengths determine the pointers' types.
    unsafe {
        let attr = &*attr;
        let mut arguments: Vec<(&'static str, u64)> = vec![
            ("keymat_proto", attr.keymat_proto.0.into()),
            ("keymat_len", attr.keymat_len.into()),
            ("replay_proto", attr.replay_proto.0.into()),
            ("replay_len", attr.replay_len.into()),
            ("encap", attr.esp_encap.addr() as u64),
            ("comp_mask", attr.comp_mask.into()),
            ("esn", attr.esn.into()),
        ];
        if let Some(esp) = attr.esp_attr.as_ref() {
            arguments.extend([
                ("spi", u64::from(esp.spi)),
                ("seq", esp.seq.into()),
                ("tfc_pad", esp.tfc_pad.into()),
                ("flags", esp.flags.into()),
                ("hard_limit_pkts", esp.hard_limit_pkts),
            ]);
        }
        if let Some(key) = attr.keymat_ptr.cast::<ffi::ib_uverbs_flow_action_esp_keymat_aes_gcm>().as_ref() {
            arguments.extend([
                ("iv", key.iv),
                ("iv_algo", key.iv_algo.into()),
                ("salt", key.salt.into()),
                ("icv_len", key.icv_len.into()),
                ("key_len", key.key_len.into()),
            ]);
            let bytes = key.aes_key.as_ptr().cast::<u8>();
            arguments.extend((0..key.key_len as usize).map(|index| ("key", u64::from(*bytes.add(index)))));
        }
        if let Some(replay) = attr.replay_ptr.cast::<ffi::ib_uverbs_flow_action_esp_replay_bmp>().as_ref() {
            arguments.push(("replay_size", replay.size.into()));
        }
        arguments
    }
}

pub(super) unsafe extern "C" fn create_flow_action_esp(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_flow_action_esp_attr,
) -> *mut ffi::ibv_flow_action {
    // SAFETY: the context is one of this provider's, the attributes can be read, and the action is new.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("create_flow_action_esp", &esp_arguments(attr));
        if let Some(failure) = failure {
            return failure.null();
        }
        // As with drivers, more fields follow those of the header.
        let action = forever::<[*mut c_void; 2]>().cast::<ffi::ibv_flow_action>();
        (*action).context = context;
        inner.made(Kind::FlowAction, action, &[context.addr()]);
        action
    }
}

pub(super) unsafe extern "C" fn modify_flow_action_esp(
    action: *mut ffi::ibv_flow_action,
    attr: *mut ffi::ibv_flow_action_esp_attr,
) -> c_int {
    // SAFETY: objects are never freed, and the attributes can be read.
    unsafe {
        let (mut inner, failure) = state_of((*action).context).enter("modify_flow_action_esp", &esp_arguments(attr));
        if let Some(failure) = failure {
            return failure.code();
        }
        if inner.is_live(Kind::FlowAction, action.addr(), "modify_flow_action_esp") { 0 } else { libc::EINVAL }
    }
}

pub(super) unsafe extern "C" fn destroy_flow_action(action: *mut ffi::ibv_flow_action) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*action).context, "destroy_flow_action", Kind::FlowAction, action.addr()) }
}
