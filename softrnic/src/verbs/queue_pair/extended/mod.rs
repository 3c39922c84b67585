//! `struct ibv_qp_ex`. Between `ibv_wr_start` and `ibv_wr_complete`, one call begins a request with its operation, and
//! other calls set its data and its address.

mod batch;
mod builders;
mod setters;

use std::mem;
use std::ptr;

use rdma_mummy_sys::{ibv_qp, ibv_qp_create_send_ops_flags as with, ibv_qp_ex, ibv_qp_ex_since_v44};

pub(super) use self::batch::Building;
use self::batch::Open;
use super::operations;
use crate::sys::errno::Errno;
use crate::verbs::limits::Limits;
use crate::wire::operation::Service;

/// Returns a zeroed struct with the functions of the requested operations (`IBV_QP_EX_WITH_*`).
///
/// # Errors
///
/// `EOPNOTSUPP` if the service does not support all requested operations.
pub(super) fn functions(own: &Limits, service: Service, asked: u64) -> Result<ibv_qp_ex_since_v44, Errno> {
    if asked & !own.operations(operations::of(service)) != 0 {
        return Err(Errno::NOT_SUPPORTED);
    }
    // SAFETY: zeros are valid for all fields: pointers, absent functions, numbers, a mutex and a condition variable.
    let mut later: ibv_qp_ex_since_v44 = unsafe { mem::zeroed() };
    let has = |operation: with| asked & u64::from(operation.0) != 0;
    let qp = &mut later.qp;
    qp.wr_start = Some(batch::wr_start);
    qp.wr_complete = Some(batch::wr_complete);
    qp.wr_abort = Some(batch::wr_abort);
    qp.wr_set_sge = Some(setters::wr_set_sge);
    qp.wr_set_sge_list = Some(setters::wr_set_sge_list);
    qp.wr_set_inline_data = Some(setters::wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(setters::wr_set_inline_data_list);
    qp.wr_set_ud_addr = (service == Service::UnreliableDatagram).then_some(setters::wr_set_ud_addr as _);
    qp.wr_set_xrc_srqn = (service == Service::XrcSend).then_some(setters::wr_set_xrc_srqn as _);
    qp.wr_send = has(with::IBV_QP_EX_WITH_SEND).then_some(builders::wr_send as _);
    qp.wr_send_imm = has(with::IBV_QP_EX_WITH_SEND_WITH_IMM).then_some(builders::wr_send_imm as _);
    qp.wr_send_inv = has(with::IBV_QP_EX_WITH_SEND_WITH_INV).then_some(builders::wr_send_inv as _);
    qp.wr_rdma_write = has(with::IBV_QP_EX_WITH_RDMA_WRITE).then_some(builders::wr_rdma_write as _);
    qp.wr_rdma_write_imm = has(with::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM).then_some(builders::wr_rdma_write_imm as _);
    qp.wr_rdma_read = has(with::IBV_QP_EX_WITH_RDMA_READ).then_some(builders::wr_rdma_read as _);
    qp.wr_atomic_cmp_swp = has(with::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP).then_some(builders::wr_atomic_cmp_swp as _);
    qp.wr_atomic_fetch_add =
        has(with::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD).then_some(builders::wr_atomic_fetch_add as _);
    qp.wr_atomic_write = has(with::IBV_QP_EX_WITH_ATOMIC_WRITE).then_some(builders::wr_atomic_write as _);
    qp.wr_local_inv = has(with::IBV_QP_EX_WITH_LOCAL_INV).then_some(builders::wr_local_inv as _);
    qp.wr_bind_mw = has(with::IBV_QP_EX_WITH_BIND_MW).then_some(builders::wr_bind_mw as _);
    later.wr_flush = has(with::IBV_QP_EX_WITH_FLUSH).then_some(builders::wr_flush as _);
    Ok(later)
}

/// `ibv_qp_to_qp_ex(qp)`: null if the QP was not created for extended requests.
///
/// # Safety
///
/// As in C: the QP is alive.
pub(crate) unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    let extended = qp.cast::<ibv_qp_ex>();
    // SAFETY: guaranteed by the caller; every QP has space for the extended struct.
    if unsafe { (*extended).wr_start.is_some() } { extended } else { ptr::null_mut() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::limits::SOFT;

    /// Returns the operations whose functions are set, as bits.
    fn operations_set(later: &ibv_qp_ex_since_v44) -> u64 {
        let qp = &later.qp;
        let all = [
            (with::IBV_QP_EX_WITH_SEND, qp.wr_send.is_some()),
            (with::IBV_QP_EX_WITH_SEND_WITH_IMM, qp.wr_send_imm.is_some()),
            (with::IBV_QP_EX_WITH_SEND_WITH_INV, qp.wr_send_inv.is_some()),
            (with::IBV_QP_EX_WITH_RDMA_WRITE, qp.wr_rdma_write.is_some()),
            (with::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, qp.wr_rdma_write_imm.is_some()),
            (with::IBV_QP_EX_WITH_RDMA_READ, qp.wr_rdma_read.is_some()),
            (with::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, qp.wr_atomic_cmp_swp.is_some()),
            (with::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, qp.wr_atomic_fetch_add.is_some()),
            (with::IBV_QP_EX_WITH_ATOMIC_WRITE, qp.wr_atomic_write.is_some()),
            (with::IBV_QP_EX_WITH_LOCAL_INV, qp.wr_local_inv.is_some()),
            (with::IBV_QP_EX_WITH_BIND_MW, qp.wr_bind_mw.is_some()),
            (with::IBV_QP_EX_WITH_TSO, qp.wr_send_tso.is_some()),
            (with::IBV_QP_EX_WITH_FLUSH, later.wr_flush.is_some()),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(bit, _)| u64::from(bit.0)).sum()
    }

    #[test]
    fn qp_has_the_requested_functions() {
        let services = [Service::ReliableConnection, Service::UnreliableConnection, Service::UnreliableDatagram];
        for service in [&services[..], &[Service::XrcSend]].concat() {
            for bit in (0..16).map(|shift| 1 << shift) {
                let made = functions(&SOFT, service, bit).map(|later| operations_set(&later));
                let expected = if operations::of(service) & bit != 0 { Ok(bit) } else { Err(Errno::NOT_SUPPORTED) };
                assert_eq!(made, expected, "{service:?}: {bit:#x}");
            }
            let all = operations::of(service);
            assert_eq!(functions(&SOFT, service, all).map(|later| operations_set(&later)), Ok(all), "{service:?}");
        }
    }

    #[test]
    fn address_setters_depend_on_the_service() {
        let setters = |service| {
            let made = functions(&SOFT, service, 0).map(|later| later.qp);
            made.map(|qp| (qp.wr_set_ud_addr.is_some(), qp.wr_set_xrc_srqn.is_some(), qp.wr_set_sge.is_some()))
        };
        assert_eq!(setters(Service::ReliableConnection), Ok((false, false, true)));
        assert_eq!(setters(Service::UnreliableDatagram), Ok((true, false, true)));
        assert_eq!(setters(Service::XrcSend), Ok((false, true, true)));
    }
}
