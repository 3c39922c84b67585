//! Settings of a queue pair besides its state: multicast groups, ECE, packet pacing, data order.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Kind;
use super::device::state_of;
use super::stub::{forever, stubs};

/// The halves of a GID, in host order.
///
/// # Safety
///
/// `gid` can be read.
unsafe fn halves(gid: *const ffi::ibv_gid) -> (u64, u64) {
    // SAFETY: guaranteed by the caller; any bits are a value of both views.
    let raw = u128::from_be_bytes(unsafe { (*gid).raw });
    ((raw >> 64) as u64, raw as u64)
}

stubs! {
    /// Joining a group again has no effect.
    fn ibv_attach_mcast(qp: *mut ffi::ibv_qp, gid: *const ffi::ibv_gid, lid: u16) -> c_int
        [qp, lid; upper = halves(gid).0, lower = halves(gid).1] |inner|
    {
        let (upper, lower) = halves(gid);
        let key = (qp.addr(), upper, lower, lid);
        if !inner.groups.contains_key(&key) {
            let member = forever::<u64>();
            inner.made(Kind::MulticastMember, member, &[qp.addr()]);
            inner.groups.insert(key, member.addr());
        }
        0
    }

    fn ibv_detach_mcast(qp: *mut ffi::ibv_qp, gid: *const ffi::ibv_gid, lid: u16) -> c_int
        [qp, lid; upper = halves(gid).0, lower = halves(gid).1] |inner|
    {
        let (upper, lower) = halves(gid);
        match inner.groups.remove(&(qp.addr(), upper, lower, lid)) {
            Some(member) => inner.destroy(Kind::MulticastMember, member).err().unwrap_or(0),
            None => inner.refuse("detach_mcast", libc::EINVAL),
        }
    }

    fn ibv_query_ece(qp: *mut ffi::ibv_qp, ece: *mut ffi::ibv_ece) -> c_int [qp] |inner| {
        *ece = inner.facts.ece;
        inner.output("query_ece", ece);
        0
    }

    /// Accepts only the options that the device has.
    fn ibv_set_ece(qp: *mut ffi::ibv_qp, ece: *mut ffi::ibv_ece) -> c_int
        [; @ece: vendor_id, options, comp_mask] |inner|
    {
        if (*ece).vendor_id == 0 {
            return inner.refuse("set_ece", libc::EOPNOTSUPP);
        }
        (*ece).options &= inner.facts.ece.options;
        inner.output("set_ece", ece);
        0
    }

    fn modify_qp_rate_limit(qp: *mut ffi::ibv_qp, attr: *mut ffi::ibv_qp_rate_limit_attr) -> c_int
        [; @attr: rate_limit, max_burst_sz, typical_pkt_sz, comp_mask] |_inner|
    {
        0
    }
}

/// Cannot fail.
pub(super) unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut ffi::ibv_qp,
    op: ffi::ibv_wr_opcode,
    flags: u32,
) -> c_int {
    // SAFETY: objects are never freed.
    let state = unsafe { state_of((*qp).context) };
    let mut inner = state.note("query_qp_data_in_order", &[("op", op.0.into()), ("flags", flags.into())]);
    let order = if inner.exists(qp.addr(), "query_qp_data_in_order") { inner.facts.data_in_order } else { 0 };
    inner.number("query_qp_data_in_order", order)
}
