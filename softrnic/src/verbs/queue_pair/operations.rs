//! The operations that each transport service supports.

use rdma_mummy_sys::ibv_qp_create_send_ops_flags as with;

use crate::wire::operation::{Operation, Service};

/// Returns the operations of a service as bits of `enum ibv_qp_create_send_ops_flags`.
pub(super) fn of(service: Service) -> u64 {
    let (address, rkey, immediate) = (0, 0, 0);
    let all = [
        (with::IBV_QP_EX_WITH_SEND, Operation::Send),
        (with::IBV_QP_EX_WITH_SEND_WITH_IMM, Operation::SendImmediate { immediate }),
        (with::IBV_QP_EX_WITH_SEND_WITH_INV, Operation::SendInvalidate { rkey }),
        (with::IBV_QP_EX_WITH_RDMA_WRITE, Operation::Write { address, rkey }),
        (with::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, Operation::WriteImmediate { address, rkey, immediate }),
        (with::IBV_QP_EX_WITH_RDMA_READ, Operation::Read { address, rkey }),
        (with::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, Operation::CompareSwap { address, rkey, compare: 0, swap: 0 }),
        (with::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, Operation::FetchAdd { address, rkey, add: 0 }),
        (with::IBV_QP_EX_WITH_ATOMIC_WRITE, Operation::AtomicWrite { address, rkey }),
        (with::IBV_QP_EX_WITH_FLUSH, Operation::Flush { address, rkey, length: 0, placement: 0, level: 0 }),
        (with::IBV_QP_EX_WITH_LOCAL_INV, Operation::LocalInvalidate { rkey }),
        (with::IBV_QP_EX_WITH_BIND_MW, Operation::Bind),
    ];
    all.into_iter().filter(|(_, operation)| service.sends(*operation)).map(|(bit, _)| u64::from(bit.0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_match_the_manual_page() {
        let datagram = u64::from(with::IBV_QP_EX_WITH_SEND.0 | with::IBV_QP_EX_WITH_SEND_WITH_IMM.0);
        assert_eq!(of(Service::UnreliableDatagram), datagram);
        let reads = u64::from(with::IBV_QP_EX_WITH_RDMA_READ.0)
            | u64::from(with::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0)
            | u64::from(with::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD.0)
            | u64::from(with::IBV_QP_EX_WITH_ATOMIC_WRITE.0)
            | u64::from(with::IBV_QP_EX_WITH_FLUSH.0);
        let all = 0x1fff & !u64::from(with::IBV_QP_EX_WITH_TSO.0);
        assert_eq!(of(Service::ReliableConnection), all);
        assert_eq!(of(Service::XrcSend), all);
        assert_eq!(of(Service::UnreliableConnection), all & !reads);
        assert_eq!(of(Service::XrcReceive), 0);
    }
}
