//! The limits that differ between the models of NICs that a device can resemble. `ibv_query_device` and `ibv_query_port`
//! report them, and the verbs enforce them. `wire::limits` has the others.

use std::ffi::c_uint;

use rdma_mummy_sys::{
    IB_UVERBS_DEVICE_ATOMIC_WRITE, IB_UVERBS_DEVICE_FLUSH_GLOBAL, ibv_device_cap_flags as flags, ibv_mtu, ibv_qp_cap,
    ibv_qp_create_send_ops_flags as with,
};

use crate::sys::errno::Errno;
use crate::wire::limits;
use crate::wire::operation::Service;

/// A model of NICs that soft devices can resemble: see [`Builder::like`](crate::Builder::like).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// A ConnectX-5 on Ethernet with the usual MTU of 1500 bytes, with the kernel and the libmlx5 of rdma-core.
    ///
    /// The values are those that `ibv_devinfo -v` prints in reports of users, and the smallest if they differ: UCX
    /// [9830](https://github.com/openucx/ucx/issues/9830), [10317](https://github.com/openucx/ucx/issues/10317),
    /// [10430](https://github.com/openucx/ucx/issues/10430), [5376](https://github.com/openucx/ucx/issues/5376), Open MPI
    /// [6137](https://github.com/open-mpi/ompi/pull/6137). The size of send requests is that of libmlx5's source.
    ///
    /// - At most 30 scatter/gather entries per request and 16 outstanding reads; messages of at most 1 GiB; an active
    ///   MTU of 1024 bytes, which is also the longest datagram.
    /// - A send queue has 2 MiB. A basic RC queue pair thus holds 8,192 requests of one entry, and copies 828 bytes
    ///   inline at most.
    /// - No memory windows (some drivers report none), no resizing of shared receive queues, no flushes, no atomic writes.
    ///   On-demand paging is reported for sends, receives, writes and reads over RC, and for sends over UD.
    /// - The vendor ID of the NIC. With it, the crate `sideway` treats extended queue pairs as those of libmlx5, which do
    ///   not check for overflow: `build_generic` builds basic ones, unless the program calls `assume_send_room`.
    ConnectX,
}

/// What a kind of device can do.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) capabilities: c_uint,
    /// The kernel's capability flags beyond the first 32 bits.
    pub(super) more_capabilities: u64,
    pub(super) max_sge: u32,
    /// The maximum for each direction of a QP.
    pub(crate) max_rd_atomic: u32,
    pub(super) max_srq_wr: u32,
    pub(super) max_srq_sge: u32,
    pub(super) max_mw: u32,
    pub(super) max_dm_size: u64,
    pub(super) max_msg_size: u32,
    pub(crate) active_mtu: ibv_mtu,
    /// The size of the active MTU in bytes.
    pub(super) mtu: u32,
    /// Checks the capacities of a send queue for these operations, and writes the largest inline data. `None`: these are the
    /// operations of a basic queue pair.
    pub(super) send_queue: fn(Service, Option<u64>, &mut ibv_qp_cap) -> Result<(), Errno>,
}

/// The capability flags that all devices report.
const COMMON: u32 = flags::IBV_DEVICE_SYS_IMAGE_GUID.0
    | flags::IBV_DEVICE_RC_RNR_NAK_GEN.0
    | flags::IBV_DEVICE_MEM_MGT_EXTENSIONS.0
    | flags::IBV_DEVICE_XRC.0;

/// The limits of a device that resembles no NIC.
pub(super) static SOFT: Limits = Limits {
    // No hardware vendor uses this ID.
    vendor_id: 0x00ff_ffff,
    vendor_part_id: 0,
    capabilities: (COMMON
        | flags::IBV_DEVICE_CURR_QP_STATE_MOD.0
        | flags::IBV_DEVICE_SRQ_RESIZE.0
        | flags::IBV_DEVICE_MEM_WINDOW.0
        | flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0) as c_uint,
    // Flushes for visibility, and atomic writes. Flushes for persistence are unsupported.
    more_capabilities: IB_UVERBS_DEVICE_FLUSH_GLOBAL | IB_UVERBS_DEVICE_ATOMIC_WRITE,
    max_sge: limits::MAX_SGE,
    max_rd_atomic: limits::MAX_RD_ATOMIC,
    max_srq_wr: limits::MAX_SRQ_WR,
    max_srq_sge: limits::MAX_SGE,
    max_mw: limits::MAX_MW,
    max_dm_size: limits::MAX_DM_SIZE,
    max_msg_size: limits::MAX_MSG_SIZE,
    active_mtu: ibv_mtu::IBV_MTU_4096,
    mtu: limits::MTU,
    send_queue: soft_send_queue,
};

pub(super) static CONNECT_X: Limits = Limits {
    vendor_id: 0x02c9,
    vendor_part_id: 4119,
    capabilities: (COMMON | flags::IBV_DEVICE_PORT_ACTIVE_EVENT.0) as c_uint,
    more_capabilities: 0,
    max_sge: 30,
    max_rd_atomic: 16,
    max_srq_wr: 32767,
    max_srq_sge: 31,
    max_mw: 0,
    max_dm_size: 1 << 17,
    max_msg_size: 1 << 30,
    active_mtu: ibv_mtu::IBV_MTU_1024,
    mtu: 1024,
    send_queue: connect_x_send_queue,
};

impl Limits {
    /// Whether a shared receive queue can be resized.
    pub(super) fn resizes_srq(&self) -> bool {
        self.capabilities & flags::IBV_DEVICE_SRQ_RESIZE.0 as c_uint != 0
    }

    /// Those of the operations that the device executes.
    pub(super) fn operations(&self, all: u64) -> u64 {
        let unless = |capability, operation: with| {
            if self.more_capabilities & capability == 0 { u64::from(operation.0) } else { 0 }
        };
        all & !unless(IB_UVERBS_DEVICE_FLUSH_GLOBAL, with::IBV_QP_EX_WITH_FLUSH)
            & !unless(IB_UVERBS_DEVICE_ATOMIC_WRITE, with::IBV_QP_EX_WITH_ATOMIC_WRITE)
    }

    /// The length of the longest message of a QP.
    pub(super) fn max_message(&self, service: Service) -> u32 {
        if service == Service::UnreliableDatagram { self.mtu } else { self.max_msg_size }
    }
}

fn soft_send_queue(_: Service, _: Option<u64>, cap: &mut ibv_qp_cap) -> Result<(), Errno> {
    // As with drivers, whose requests have a fixed smallest size, some inline data is always allowed.
    cap.max_inline_data = cap.max_inline_data.max(limits::MIN_INLINE);
    if cap.max_inline_data <= limits::MAX_INLINE { Ok(()) } else { Err(Errno::INVALID) }
}

/// Divides the send queue as libmlx5 does (`mlx5_calc_sq_size`, rdma-core 55). A request consists of segments for its
/// operations, and of its pieces or its inline data.
fn connect_x_send_queue(service: Service, operations: Option<u64>, cap: &mut ibv_qp_cap) -> Result<(), Errno> {
    /// A control, address, atomic or data segment, and the header of inline data.
    const SEGMENT: u32 = 16;
    const INLINE_HEADER: u32 = 4;
    /// The segments for a memory window.
    const WINDOW: u32 = 48 + 64 + 64;
    const DATAGRAM: u32 = 48;
    const MAX_REQUEST: u32 = 1024;
    /// The unit of the queue, and their largest number.
    const BLOCK: u32 = 64;
    const MAX_BLOCKS: u32 = 1 << 15;

    if cap.max_send_wr == 0 {
        return Ok(());
    }
    let has = |some: &[with]| {
        let is_basic = service != Service::UnreliableDatagram;
        operations.map_or(is_basic, |given| some.iter().any(|operation| given & u64::from(operation.0) != 0))
    };
    let windows = has(&[with::IBV_QP_EX_WITH_BIND_MW, with::IBV_QP_EX_WITH_LOCAL_INV]);
    let atomics = has(&[with::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, with::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD]);
    let addresses = has(&[
        with::IBV_QP_EX_WITH_RDMA_WRITE,
        with::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
        with::IBV_QP_EX_WITH_RDMA_READ,
    ]);
    let largest = if windows { WINDOW } else { SEGMENT * if atomics { 2 } else { addresses.into() } };
    let peer = match service {
        Service::UnreliableDatagram => DATAGRAM,
        Service::XrcSend => SEGMENT,
        _ => 0,
    };
    let head = SEGMENT + largest + peer;
    let pieces = cap.max_send_sge.max(1) * SEGMENT;
    let inline = match cap.max_inline_data {
        0 => 0,
        length => length.checked_add(INLINE_HEADER).ok_or(Errno::INVALID)?,
    };
    let request =
        head.checked_add(pieces.max(inline)).filter(|request| *request <= MAX_REQUEST).ok_or(Errno::INVALID)?;
    let request = request.next_multiple_of(BLOCK);
    if (cap.max_send_wr * request).next_power_of_two() / BLOCK > MAX_BLOCKS {
        return Err(Errno::INVALID);
    }
    cap.max_inline_data = request - head - INLINE_HEADER;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cap(max_send_wr: u32, max_send_sge: u32, max_inline_data: u32) -> ibv_qp_cap {
        ibv_qp_cap { max_send_wr, max_recv_wr: 1, max_send_sge, max_recv_sge: 1, max_inline_data }
    }

    /// The largest inline data that is granted.
    fn inline(service: Service, operations: Option<u64>, mut cap: ibv_qp_cap) -> Option<u32> {
        connect_x_send_queue(service, operations, &mut cap).ok().map(|()| cap.max_inline_data)
    }

    #[test]
    fn connect_x_grants_the_inline_data_that_fills_its_requests() {
        let rc = |cap| inline(Service::ReliableConnection, None, cap);
        assert_eq!(rc(cap(1, 1, 0)), Some(60));
        // The largest value of `ib_write_bw -I` on a ConnectX.
        assert_eq!((rc(cap(1, 1, 828)), rc(cap(1, 1, 829))), (Some(828), None));
        assert_eq!(rc(cap(1, 1, u32::MAX)), None);
        let writes = u64::from(with::IBV_QP_EX_WITH_RDMA_WRITE.0);
        assert_eq!(inline(Service::ReliableConnection, Some(writes), cap(1, 1, 0)), Some(28));
        assert_eq!(inline(Service::UnreliableDatagram, None, cap(1, 1, 0)), Some(60));
        assert_eq!(inline(Service::XrcSend, None, cap(1, 1, 0)), Some(44));
    }

    #[test]
    fn connect_x_limits_the_bytes_of_a_send_queue() {
        let fits = |max_send_wr, sge| inline(Service::ReliableConnection, None, cap(max_send_wr, sge, 0)).is_some();
        assert!(fits(8192, 1) && !fits(8193, 1));
        assert!(fits(2048, 30) && !fits(4096, 30));
        let writes = Some(u64::from(with::IBV_QP_EX_WITH_RDMA_WRITE.0));
        assert!(inline(Service::ReliableConnection, writes, cap(32768, 1, 0)).is_some());
        assert_eq!(inline(Service::ReliableConnection, None, cap(0, 0, 0)), Some(0));
    }
}
