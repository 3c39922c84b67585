//! Flow rules and the actions that they name. A rule is parsed as in libibverbs: the size of each specification leads
//! to the next.

use std::slice;

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_flow_spec_type as kind;

use super::state::Inner;
use super::stub::{arguments, endings, stubs};

stubs! {
    fn create_flow(qp: *mut ffi::ibv_qp, attr: *mut ffi::ibv_flow_attr) -> *mut ffi::ibv_flow
        [qp; @attr: comp_mask, type_, size, priority, num_of_specs, port, flags] |inner|
    {
        let size = usize::from((*attr).size);
        inner.bytes.push(slice::from_raw_parts(attr.cast(), size).to_vec());
        let mut parents = vec![qp.addr()];
        let mut spec = attr.add(1).cast::<u8>();
        for _ in 0..(*attr).num_of_specs {
            parents.extend(named_by(&mut inner, spec));
            spec = spec.add((*spec.cast::<ffi::ibv_flow_spec_action_drop>()).size.into());
        }
        if spec.addr() - attr.addr() != size {
            inner.violation(format!("a flow states {size} bytes and has {}", spec.addr() - attr.addr()));
        }
        let flow = inner.create::<ffi::ibv_flow>((*qp).context, &parents);
        (*flow).handle = inner.handle();
        flow
    }

    fn create_flow_action_esp(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_flow_action_esp_attr)
        -> *mut ffi::ibv_flow_action [; ..esp_arguments(attr)] |inner|
    {
        inner.create(context, &[context.addr()])
    }

    fn modify_flow_action_esp(action: *mut ffi::ibv_flow_action, attr: *mut ffi::ibv_flow_action_esp_attr) -> c_int
        [; ..esp_arguments(attr)] |_inner|
    {
        0
    }
}

endings! {
    destroy_flow(ffi::ibv_flow);
    destroy_flow_action(ffi::ibv_flow_action);
}

/// The object of a specification, if it exists.
///
/// # Safety
///
/// A specification begins at `spec`.
unsafe fn named_by(inner: &mut Inner, spec: *const u8) -> Option<usize> {
    // SAFETY: guaranteed by the caller; all specifications begin like this one, and the type determines the rest.
    let object = unsafe {
        match (*spec.cast::<ffi::ibv_flow_spec_action_drop>()).type_ {
            kind::IBV_FLOW_SPEC_ACTION_HANDLE => (*spec.cast::<ffi::ibv_flow_spec_action_handle>()).action.addr(),
            kind::IBV_FLOW_SPEC_ACTION_COUNT => (*spec.cast::<ffi::ibv_flow_spec_counter_action>()).counters.addr(),
            _ => return None,
        }
    };
    inner.exists(object, "create_flow").then_some(object)
}

/// The contents of the attributes, including what they point to; absent fields are omitted.
///
/// # Safety
///
/// `attr` can be read, with all that it points to.
unsafe fn esp_arguments(attr: *const ffi::ibv_flow_action_esp_attr) -> Vec<(&'static str, u64)> {
    // SAFETY: guaranteed by the caller; protocols and lengths determine the pointers' types.
    unsafe {
        let mut all = arguments!(
            ; @attr: keymat_proto, keymat_len, replay_proto, replay_len; encap = (*attr).esp_encap,
            comp_mask = (*attr).comp_mask, esn = (*attr).esn
        )
        .to_vec();
        let esp = (*attr).esp_attr;
        if !esp.is_null() {
            all.extend(arguments!(; @esp: spi, seq, tfc_pad, flags, hard_limit_pkts));
        }
        let key = (*attr).keymat_ptr.cast::<ffi::ib_uverbs_flow_action_esp_keymat_aes_gcm>();
        if !key.is_null() {
            all.extend(arguments!(; @key: iv, iv_algo, salt, icv_len, key_len));
            let bytes = (&raw const (*key).aes_key).cast::<u8>();
            all.extend((0..(*key).key_len as usize).map(|index| ("key", u64::from(*bytes.add(index)))));
        }
        let replay = (*attr).replay_ptr.cast::<ffi::ib_uverbs_flow_action_esp_replay_bmp>();
        if !replay.is_null() {
            all.extend(arguments!(; replay_size = (*replay).size));
        }
        all
    }
}
