//! Settings of a queue pair besides its state: multicast groups, ECE, packet pacing, data order.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Kind;
use super::device::state_of;
use super::objects::forever;

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

/// Adds the verbs of this file to the extended table.
pub(super) fn fill_in(table: &mut ffi::verbs_context, has: impl Fn(&str) -> bool) {
    table.modify_qp_rate_limit = has("modify_qp_rate_limit").then_some(modify_qp_rate_limit);
}

/// As in the kernel, only datagram queue pairs can join, only multicast groups, and each group once.
pub(super) unsafe extern "C" fn attach_mcast(qp: *mut ffi::ibv_qp, gid: *const ffi::ibv_gid, lid: u16) -> c_int {
    // SAFETY: objects are never freed, and the GID can be read.
    unsafe {
        let (upper, lower) = halves(gid);
        let arguments = [("qp", qp.addr() as u64), ("upper", upper), ("lower", lower), ("lid", lid.into())];
        let (mut inner, failure) = state_of((*qp).context).enter("attach_mcast", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::QueuePair, qp.addr(), "attach_mcast") {
            return libc::EINVAL;
        }
        let key = (qp.addr(), upper, lower, lid);
        if !inner.groups.contains_key(&key) {
            let member = forever::<u64>();
            inner.made(Kind::MulticastMember, member, &[qp.addr()]);
            inner.groups.insert(key, member.addr());
        }
    }
    0
}

pub(super) unsafe extern "C" fn detach_mcast(qp: *mut ffi::ibv_qp, gid: *const ffi::ibv_gid, lid: u16) -> c_int {
    // SAFETY: objects are never freed, and the GID can be read.
    unsafe {
        let (upper, lower) = halves(gid);
        let arguments = [("qp", qp.addr() as u64), ("upper", upper), ("lower", lower), ("lid", lid.into())];
        let (mut inner, failure) = state_of((*qp).context).enter("detach_mcast", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        match inner.groups.remove(&(qp.addr(), upper, lower, lid)) {
            Some(member) => inner.destroy(Kind::MulticastMember, member).err().unwrap_or(0),
            None => {
                inner.failed(libc::EINVAL);
                libc::EINVAL
            }
        }
    }
}

pub(super) unsafe extern "C" fn query_ece(qp: *mut ffi::ibv_qp, ece: *mut ffi::ibv_ece) -> c_int {
    // SAFETY: objects are never freed, and the struct can be written.
    unsafe {
        let (mut inner, failure) = state_of((*qp).context).enter("query_ece", &[("qp", qp.addr() as u64)]);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::QueuePair, qp.addr(), "query_ece") {
            return libc::EINVAL;
        }
        *ece = inner.facts.ece;
        inner.output("query_ece", ece);
    }
    0
}

/// Accepts only the options that the device has.
pub(super) unsafe extern "C" fn set_ece(qp: *mut ffi::ibv_qp, ece: *mut ffi::ibv_ece) -> c_int {
    // SAFETY: objects are never freed, and the struct can be read and written.
    unsafe {
        let ffi::ibv_ece { vendor_id, options, comp_mask } = *ece;
        let arguments = [("vendor_id", vendor_id.into()), ("options", options.into()), ("comp_mask", comp_mask.into())];
        let (mut inner, failure) = state_of((*qp).context).enter("set_ece", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::QueuePair, qp.addr(), "set_ece") {
            return libc::EINVAL;
        }
        if vendor_id == 0 {
            inner.failed(libc::EOPNOTSUPP);
            return libc::EOPNOTSUPP;
        }
        (*ece).options = options & inner.facts.ece.options;
        inner.output("set_ece", ece);
    }
    0
}

pub(super) unsafe extern "C" fn query_qp_data_in_order(
    qp: *mut ffi::ibv_qp,
    op: ffi::ibv_wr_opcode,
    flags: u32,
) -> c_int {
    // SAFETY: objects are never freed.
    let state = unsafe { state_of((*qp).context) };
    let mut inner = state.note("query_qp_data_in_order", &[("op", op.0.into()), ("flags", flags.into())]);
    let live = inner.is_live(Kind::QueuePair, qp.addr(), "query_qp_data_in_order");
    let order = if live { inner.facts.data_in_order } else { 0 };
    inner.number("query_qp_data_in_order", order)
}

pub(super) unsafe extern "C" fn modify_qp_rate_limit(
    qp: *mut ffi::ibv_qp,
    attr: *mut ffi::ibv_qp_rate_limit_attr,
) -> c_int {
    // SAFETY: objects are never freed, and the attributes can be read.
    unsafe {
        let ffi::ibv_qp_rate_limit_attr { rate_limit, max_burst_sz, typical_pkt_sz, comp_mask } = *attr;
        let arguments = [
            ("rate_limit", rate_limit.into()),
            ("max_burst_sz", max_burst_sz.into()),
            ("typical_pkt_sz", typical_pkt_sz.into()),
            ("comp_mask", comp_mask.into()),
        ];
        let (mut inner, failure) = state_of((*qp).context).enter("modify_qp_rate_limit", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if inner.is_live(Kind::QueuePair, qp.addr(), "modify_qp_rate_limit") { 0 } else { libc::EINVAL }
    }
}
