//! `ibv_query_qp`.

use std::ffi::c_int;

use rdma_mummy_sys::{
    ibv_ah_attr, ibv_gid, ibv_global_route, ibv_mig_state, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_wr_opcode,
};

use super::attributes::mtu;
use super::{Pair, show_state, state_to_c};
use crate::wire::address::Path;

/// `ibv_query_qp(qp, attr, attr_mask, init_attr)`: writes all attributes, whatever the mask is.
///
/// # Safety
///
/// As in C: the QP is alive, and the attributes are writable.
pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller: `qp` points to a `Pair`, whose fields outside of the C struct are not written.
    let (pair, cap) = unsafe { (Pair::qp(qp), (*qp.cast::<Pair>()).cap) };
    let (state, attributes) = (state_to_c(pair.state()), pair.attributes());
    let current = ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: mtu(attributes.path_mtu),
        path_mig_state: ibv_mig_state::IBV_MIG_MIGRATED,
        qkey: attributes.key,
        rq_psn: attributes.rq_psn,
        sq_psn: attributes.sq_psn,
        dest_qp_num: attributes.destination_number,
        qp_access_flags: attributes.access,
        cap,
        ah_attr: address_vector(attributes.path),
        alt_ah_attr: address_vector(None),
        pkey_index: attributes.pkey_index,
        alt_pkey_index: 0,
        en_sqd_async_notify: attributes.drain_notify.into(),
        sq_draining: pair.is_draining().into(),
        max_rd_atomic: attributes.max_rd_atomic,
        max_dest_rd_atomic: attributes.max_dest_rd_atomic,
        min_rnr_timer: attributes.min_rnr_timer,
        port_num: attributes.port,
        timeout: attributes.timeout,
        retry_cnt: attributes.retry_count,
        rnr_retry: attributes.rnr_retry,
        alt_port_num: 0,
        alt_timeout: 0,
        rate_limit: 0,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        attr.write(current);
        init_attr.write(ibv_qp_init_attr {
            qp_context: (*qp).qp_context,
            send_cq: (*qp).send_cq,
            recv_cq: (*qp).recv_cq,
            srq: (*qp).srq,
            cap,
            qp_type: (*qp).qp_type,
            sq_sig_all: pair.parts().signals_all.into(),
        });
        show_state(qp, state);
    }
    0
}

/// Converts a path to its C struct. If there is no path, the struct contains zeros.
fn address_vector(path: Option<Path>) -> ibv_ah_attr {
    let gid = path.map_or([0; 16], |path| path.destination.0);
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: gid },
            flow_label: path.map_or(0, |path| path.flow_label),
            sgid_index: path.map_or(0, |path| path.source_index),
            hop_limit: path.map_or(0, |path| path.hop_limit),
            traffic_class: path.map_or(0, |path| path.traffic_class),
        },
        dlid: 0,
        sl: path.map_or(0, |path| path.service_level),
        src_path_bits: 0,
        static_rate: path.map_or(0, |path| path.static_rate),
        is_global: path.is_some().into(),
        port_num: path.map_or(0, |path| path.port),
    }
}

/// `ibv_query_qp_data_in_order(qp, op, flags)`: returns zero, because the device guarantees no order. In practice, it
/// writes the last bytes of each piece last.
///
/// # Safety
///
/// This function has no requirements.
pub(crate) unsafe extern "C" fn query_qp_data_in_order(_qp: *mut ibv_qp, _op: ibv_wr_opcode, _flags: u32) -> c_int {
    0
}
