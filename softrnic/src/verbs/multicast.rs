//! Multicast groups of a `struct ibv_qp`.

use std::ffi::c_int;

use rdma_mummy_sys::{ibv_gid, ibv_qp};

use super::failure::result;
use super::queue_pair::Pair;
use crate::qp::registry::QpRegistry;
use crate::sys::errno::Errno;
use crate::wire::address::Gid;
use crate::wire::operation::Service;

/// `ibv_attach_mcast(qp, gid, lid)`: succeeds only for a datagram QP. The LID is ignored.
///
/// # Safety
///
/// As in C: the QP is alive, and the GID is readable.
pub(crate) unsafe extern "C" fn attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (pair, group) = unsafe { (Pair::qp(qp), group(gid)) };
    result(check(pair.parts().service, group).and_then(|()| QpRegistry::of_process().attach(group, pair)))
}

/// `ibv_detach_mcast(qp, gid, lid)`.
///
/// # Safety
///
/// As in C: the QP is alive, and the GID is readable.
pub(crate) unsafe extern "C" fn detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (pair, group) = unsafe { (Pair::qp(qp), group(gid)) };
    result(check(pair.parts().service, group).and_then(|()| QpRegistry::of_process().detach(group, pair)))
}

/// Reads the GID of a multicast group.
///
/// # Safety
///
/// The GID is readable.
unsafe fn group(gid: *const ibv_gid) -> Gid {
    // SAFETY: guaranteed by the caller; all sixteen bytes of a GID are valid.
    Gid(unsafe { (*gid).raw })
}

fn check(service: Service, group: Gid) -> Result<(), Errno> {
    if service == Service::UnreliableDatagram && group.is_multicast() { Ok(()) } else { Err(Errno::INVALID) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_datagram_qps_join_and_only_multicast_groups() {
        let group = Gid::from_ipv4([239, 1, 2, 3]);
        assert_eq!(check(Service::UnreliableDatagram, group), Ok(()));
        assert_eq!(check(Service::UnreliableDatagram, Gid::from_ipv4([10, 1, 2, 3])), Err(Errno::INVALID));
        for service in
            [Service::ReliableConnection, Service::UnreliableConnection, Service::XrcSend, Service::XrcReceive]
        {
            assert_eq!(check(service, group), Err(Errno::INVALID), "{service:?}");
        }
    }
}
