//! The usual setup of a test: a device, a domain, two completion queues.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, ModifyQueuePairError, QueuePair, QueuePairAttribute, QueuePairBuilder, QueuePairState,
};

use super::Recording;

/// A device that is open, with a domain and two completion queues.
#[derive(Debug)]
pub struct World {
    /// The completion queue of sends.
    pub send_cq: GenericCompletionQueue,
    /// The completion queue of receives.
    pub recv_cq: GenericCompletionQueue,
    /// The domain.
    pub pd: Arc<ProtectionDomain>,
    /// The open device.
    pub context: Arc<DeviceContext>,
    // Dropped last, because it checks all calls until then.
    /// The recording.
    pub recording: Recording,
}

impl World {
    /// Creates all objects, and clears the log of these calls.
    ///
    /// # Panics
    ///
    /// If an object cannot be created.
    #[track_caller]
    pub fn new() -> Self {
        Self::on(Recording::new())
    }

    /// Creates all objects on this device.
    ///
    /// # Panics
    ///
    /// If an object cannot be created.
    #[track_caller]
    pub fn on(recording: Recording) -> Self {
        let context = recording.open();
        let pd = context.alloc_pd().unwrap_or_else(|error| panic!("{error}"));
        let cq = || context.create_cq_builder().build_generic().unwrap_or_else(|error| panic!("{error}"));
        let (send_cq, recv_cq) = (cq(), cq());
        recording.calls();
        Self { send_cq, recv_cq, pd, context, recording }
    }

    /// A builder of queue pairs with both completion queues: 4 requests per queue, 2 entries per list, 16 bytes of
    /// inline data.
    pub fn qp_builder(&self) -> QueuePairBuilder {
        let mut builder = self.pd.create_qp_builder();
        builder.setup_send_cq(&self.send_cq).setup_recv_cq(&self.recv_cq);
        builder.setup_max_send_wr(4).setup_max_recv_wr(4).setup_max_send_sge(2).setup_max_recv_sge(2);
        builder.setup_max_inline_data(16);
        builder
    }

    /// A queue pair of each kind, with one type: first a basic one, then an extended one.
    ///
    /// # Panics
    ///
    /// If a queue pair cannot be created.
    #[track_caller]
    pub fn queue_pairs(&self) -> [GenericQueuePair; 2] {
        let builder = self.qp_builder();
        let basic = builder.build().unwrap_or_else(|error| panic!("{error}"));
        let extended = builder.build_ex().unwrap_or_else(|error| panic!("{error}"));
        self.recording.calls();
        [basic.into(), extended.into()]
    }

    /// Drops everything, and asserts that nothing is left.
    ///
    /// # Panics
    ///
    /// If an object is left.
    #[track_caller]
    pub fn end(self) -> Recording {
        let Self { send_cq, recv_cq, pd, context, recording } = self;
        drop((send_cq, recv_cq, pd, context));
        assert_eq!(recording.live(), [], "left over");
        recording
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// Brings a queue pair to ReadyToSend, connected to itself.
///
/// # Errors
///
/// The error of a transition.
pub fn connect(qp: &impl QueuePair) -> Result<(), ModifyQueuePairError> {
    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(1);
    init.setup_access_flags(AccessFlags::RemoteWrite);
    qp.modify(&init)?;
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_grh_src_gid_index(0);
    let mut receive = QueuePairAttribute::new();
    receive.setup_state(QueuePairState::ReadyToReceive).setup_address_vector(&way).setup_path_mtu(Mtu::Mtu1024);
    receive.setup_dest_qp_num(qp.qp_number()).setup_rq_psn(0).setup_max_dest_read_atomic(1).setup_min_rnr_timer(12);
    qp.modify(&receive)?;
    let mut send = QueuePairAttribute::new();
    send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(0).setup_max_read_atomic(1);
    send.setup_timeout(14).setup_retry_cnt(7).setup_rnr_retry(7);
    qp.modify(&send)
}
