//! The attributes that bring a queue pair from RESET to RTS.

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::queue_pair::{QueuePairAttribute, QueuePairState};

use crate::{datagrams, device};

/// RESET to INIT.
pub fn init() -> QueuePairAttribute {
    let mut attributes = to(QueuePairState::Init);
    attributes.setup_pkey_index(0).setup_port(device::PORT).setup_access_flags(all_access());
    attributes
}

/// INIT to RTR, to a queue pair of the same port.
///
/// # Panics
///
/// If the port has no address.
#[track_caller]
pub fn ready_to_receive(context: &DeviceContext, dest_qp_num: u32, rq_psn: u32) -> QueuePairAttribute {
    let mut attributes = to(QueuePairState::ReadyToReceive);
    attributes
        .setup_address_vector(&datagrams::to_itself(context))
        .setup_path_mtu(Mtu::Mtu1024)
        .setup_dest_qp_num(dest_qp_num)
        .setup_rq_psn(rq_psn)
        .setup_max_dest_read_atomic(4)
        .setup_min_rnr_timer(1);
    attributes
}

/// RTR to RTS.
pub fn ready_to_send(sq_psn: u32, rnr_retry: u8) -> QueuePairAttribute {
    let mut attributes = to(QueuePairState::ReadyToSend);
    attributes
        .setup_sq_psn(sq_psn)
        .setup_timeout(14)
        .setup_retry_cnt(7)
        .setup_rnr_retry(rnr_retry)
        .setup_max_read_atomic(4);
    attributes
}

/// A transition with only its state.
pub fn to(state: QueuePairState) -> QueuePairAttribute {
    let mut attributes = QueuePairAttribute::new();
    attributes.setup_state(state);
    attributes
}

/// All access rights of a peer.
pub(super) fn all_access() -> AccessFlags {
    AccessFlags::LocalWrite | AccessFlags::RemoteWrite | AccessFlags::RemoteRead | AccessFlags::RemoteAtomic
}
