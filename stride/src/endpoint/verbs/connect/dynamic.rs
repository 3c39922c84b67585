//! Makes DC queue pairs ready. DC queue pairs are not connected, because each request contains its destination.

use std::sync::Arc;

use anyhow::{Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttribute, QueuePairState, TargetQueuePair};
use stride_run::Target;

use super::{Addresses, Manual, RNR_TIMER, Shared};
use crate::endpoint::Intake;
use crate::endpoint::verbs::pairs::Pairs;
use crate::endpoint::verbs::pairs::vendor::Dynamic;
use crate::plan::Plan;

impl Manual {
    /// Makes the DC targets of a side ready, if it has any. A target has a number only after this. The address vector
    /// contains this side's own address, because a target uses only those fields of it that concern its own port.
    pub(in super::super) fn open_targets(&self, pairs: &Pairs, plan: &Plan, mtu: Mtu) -> Result<()> {
        let Pairs::Dynamic(pairs) = pairs else { return Ok(()) };
        pairs.iter().try_for_each(|pair| self.open_target(&pair.target, plan, mtu))
    }

    fn open_target(&self, target: &TargetQueuePair, plan: &Plan, mtu: Mtu) -> Result<()> {
        let mut access = AccessFlags::RemoteWrite | AccessFlags::RemoteRead;
        // Remote atomics are only requested if the test needs them, because not every device supports them over DC.
        access.set(AccessFlags::RemoteAtomic, plan.workload.operation.is_atomic());
        let mut init = QueuePairAttribute::new();
        init.setup_state(QueuePairState::Init).setup_pkey_index(self.pkey_index).setup_port(self.port);
        target.modify(init.setup_access_flags(access))?;
        let mut receive = QueuePairAttribute::new();
        receive.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(mtu).setup_min_rnr_timer(RNR_TIMER);
        Ok(target.modify(receive.setup_address_vector(&self.way))?)
    }

    /// Makes an initiator ready to send, and sets the address of the peer's target.
    pub(super) fn initiate(
        &self,
        shared: &Shared<'_>,
        pd: &Arc<ProtectionDomain>,
        pair: &mut Dynamic,
        Addresses { own, their }: Addresses<'_>,
    ) -> Result<()> {
        let Some(Intake::Dc { number, key }) = their.intake else {
            bail!("the peer sent no DC target; run the same version on both sides")
        };
        let mut init = QueuePairAttribute::new();
        init.setup_state(QueuePairState::Init).setup_pkey_index(self.pkey_index).setup_port(self.port);
        pair.initiator.modify(&init)?;
        let mut receive = QueuePairAttribute::new();
        pair.initiator.modify(receive.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(shared.mtu))?;
        let mut send = QueuePairAttribute::new();
        send.setup_state(QueuePairState::ReadyToSend)
            .setup_sq_psn(own.psn)
            .setup_timeout(shared.plan.attributes.qp_timeout);
        send.setup_retry_cnt(7).setup_rnr_retry(7).setup_max_read_atomic(shared.initiator_depth);
        pair.initiator.modify(&send)?;
        pair.there = Some(Target { way: pd.create_ah(&self.way)?, number, key });
        Ok(())
    }
}
