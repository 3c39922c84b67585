//! Address handles, and the address of a datagram's sender.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Kind;
use super::device::state_of;
use super::objects::{destroy_object, forever};

pub(super) unsafe extern "C" fn create_ah(pd: *mut ffi::ibv_pd, attr: *mut ffi::ibv_ah_attr) -> *mut ffi::ibv_ah {
    // SAFETY: the domain is one of this provider's, the attributes can be read, and the handle is new.
    unsafe {
        let attr = &*attr;
        let arguments = [
            ("pd", pd.addr() as u64),
            ("port", attr.port_num.into()),
            ("dlid", attr.dlid.into()),
            ("is_global", attr.is_global.into()),
            ("sgid_index", attr.grh.sgid_index.into()),
            ("hop_limit", attr.grh.hop_limit.into()),
            ("dgid_end", u64::from_be(attr.grh.dgid.global.interface_id)),
        ];
        let (mut inner, failure) = state_of((*pd).context).enter("create_ah", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        inner.is_live(Kind::ProtectionDomain, pd.addr(), "create_ah");
        let ah = forever::<ffi::ibv_ah>();
        (*ah).context = (*pd).context;
        (*ah).pd = pd;
        (*ah).handle = inner.handle();
        inner.made(Kind::AddressHandle, ah, &[pd.addr()]);
        ah
    }
}

pub(super) unsafe extern "C" fn destroy_ah(ah: *mut ffi::ibv_ah) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*ah).context, "destroy_ah", Kind::AddressHandle, ah.addr()) }
}

/// Like the library for native InfiniBand headers: this side's GID is always the first.
pub(super) unsafe extern "C" fn init_ah_from_wc(
    context: *mut ffi::ibv_context,
    port_num: u8,
    wc: *mut ffi::ibv_wc,
    grh: *mut ffi::ibv_grh,
    attr: *mut ffi::ibv_ah_attr,
) -> c_int {
    // SAFETY: the context is one of this provider's, the completion can be read, and the attributes can be written.
    unsafe {
        let wc = &*wc;
        let arguments = [
            ("port", port_num.into()),
            ("slid", wc.slid.into()),
            ("sl", wc.sl.into()),
            ("src_qp", wc.src_qp.into()),
            ("wc_flags", wc.wc_flags.into()),
            ("grh", u64::from(!grh.is_null())),
        ];
        let (mut inner, failure) = state_of(context).enter("init_ah_from_wc", &arguments);
        if let Some(failure) = failure {
            return failure.minus();
        }
        attr.write_bytes(0, 1);
        (*attr).dlid = wc.slid;
        (*attr).sl = wc.sl;
        (*attr).src_path_bits = wc.dlid_path_bits;
        (*attr).port_num = port_num;
        if wc.wc_flags & ffi::ibv_wc_flags::IBV_WC_GRH.0 == 0 {
            inner.output("init_ah_from_wc", attr);
            return 0;
        }
        if grh.is_null() {
            inner.violation("init_ah_from_wc would have read a missing header");
            return -1;
        }
        (*attr).is_global = 1;
        (*attr).grh.dgid = (*grh).sgid;
        (*attr).grh.hop_limit = (*grh).hop_limit;
        (*attr).grh.flow_label = u32::from_be((*grh).version_tclass_flow) & 0xf_ffff;
        inner.output("init_ah_from_wc", attr);
    }
    0
}

pub(super) unsafe extern "C" fn resolve_eth_l2_from_gid(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_ah_attr,
    mac: *mut u8,
    vid: *mut u16,
) -> c_int {
    // SAFETY: the context is one of this provider's, the attributes can be read, and six bytes and a number be written.
    unsafe {
        let arguments = [("port", (*attr).port_num.into()), ("sgid_index", (*attr).grh.sgid_index.into())];
        let (mut inner, failure) = state_of(context).enter("resolve_eth_l2_from_gid", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        mac.copy_from_nonoverlapping((*attr).grh.dgid.raw.as_ptr().add(10), 6);
        *vid = inner.facts.vlan;
        inner.output("resolve_eth_l2_from_gid: mac", mac.cast::<[u8; 6]>());
        inner.output("resolve_eth_l2_from_gid: vid", vid);
    }
    0
}
