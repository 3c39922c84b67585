//! Multicast groups: `struct ibv_qp` takes part in them.

use std::ffi::c_int;

use rdma_mummy_sys::{ibv_gid, ibv_qp};

use super::failure::result;
use super::queue_pair::Pair;
use crate::qp::registry::QpRegistry;
use crate::sys::errno::Errno;
use crate::wire::address::Gid;
use crate::wire::operation::Service;

/// `ibv_attach_mcast(qp, gid, lid)`: of datagrams alone. The LID is InfiniBand's.
///
/// # Safety
///
/// As for C: the queue pair is alive, and the GID can be read.
pub(crate) unsafe extern "C" fn attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the caller's promise.
    let (pair, group) = unsafe { (Pair::qp(qp), group(gid)) };
    result(check(pair.parts().service, group).and_then(|()| QpRegistry::of_process().attach(group, pair)))
}

/// `ibv_detach_mcast(qp, gid, lid)`.
///
/// # Safety
///
/// As for C: the queue pair is alive, and the GID can be read.
pub(crate) unsafe extern "C" fn detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the caller's promise.
    let (pair, group) = unsafe { (Pair::qp(qp), group(gid)) };
    result(check(pair.parts().service, group).and_then(|()| QpRegistry::of_process().detach(group, pair.number())))
}

/// # Safety
///
/// The GID can be read.
unsafe fn group(gid: *const ibv_gid) -> Gid {
    // SAFETY: the caller's promise; all sixteen bytes of a GID are a value.
    Gid(unsafe { (*gid).raw })
}

fn check(service: Service, group: Gid) -> Result<(), Errno> {
    if service == Service::UnreliableDatagram && group.is_multicast() { Ok(()) } else { Err(Errno::INVALID) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_datagrams_take_part_and_only_in_groups() {
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
