//! Address handles, and the address of a datagram's sender.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::stub::{endings, stubs};

stubs! {
    fn ibv_create_ah(pd: *mut ffi::ibv_pd, attr: *mut ffi::ibv_ah_attr) -> *mut ffi::ibv_ah
        [
            pd; @attr: dlid, is_global; port = (*attr).port_num, sgid_index = (*attr).grh.sgid_index,
            hop_limit = (*attr).grh.hop_limit, dgid_end = u64::from_be((*attr).grh.dgid.global.interface_id)
        ] |inner|
    {
        let ah = inner.create::<ffi::ibv_ah>((*pd).context, &[pd.addr()]);
        ((*ah).pd, (*ah).handle) = (pd, inner.handle());
        ah
    }

    /// Like the library for native InfiniBand headers: this side's GID is always the first.
    fn ibv_init_ah_from_wc(
        context: *mut ffi::ibv_context,
        port: u8,
        wc: *mut ffi::ibv_wc,
        grh: *mut ffi::ibv_grh,
        attr: *mut ffi::ibv_ah_attr,
    ) -> c_int [port; @wc: slid, sl, src_qp, wc_flags; grh = !grh.is_null()] |inner| {
        attr.write_bytes(0, 1);
        ((*attr).dlid, (*attr).sl, (*attr).port_num) = ((*wc).slid, (*wc).sl, port);
        (*attr).src_path_bits = (*wc).dlid_path_bits;
        if (*wc).wc_flags & ffi::ibv_wc_flags::IBV_WC_GRH.0 != 0 {
            if grh.is_null() {
                inner.violation("init_ah_from_wc would have read a missing header");
                return -1;
            }
            (*attr).is_global = 1;
            (*attr).grh.dgid = (*grh).sgid;
            (*attr).grh.hop_limit = (*grh).hop_limit;
            (*attr).grh.flow_label = u32::from_be((*grh).version_tclass_flow) & 0xf_ffff;
        }
        inner.output("init_ah_from_wc", attr);
        0
    }

    fn ibv_resolve_eth_l2_from_gid(
        context: *mut ffi::ibv_context,
        attr: *mut ffi::ibv_ah_attr,
        mac: *mut u8,
        vid: *mut u16,
    ) -> c_int [; port = (*attr).port_num, sgid_index = (*attr).grh.sgid_index] |inner| {
        mac.copy_from_nonoverlapping((*attr).grh.dgid.raw.as_ptr().add(10), 6);
        *vid = inner.facts.vlan;
        inner.output("resolve_eth_l2_from_gid: mac", mac.cast::<[u8; 6]>());
        inner.output("resolve_eth_l2_from_gid: vid", vid);
        0
    }
}

endings! {
    ibv_destroy_ah(ffi::ibv_ah);
}
