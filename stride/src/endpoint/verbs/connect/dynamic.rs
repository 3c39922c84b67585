//! The ends of dynamic connections. Neither is told of the other: each request says where it goes.

use std::sync::Arc;

use anyhow::{Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttribute, QueuePairState, TargetQueuePair};

use super::{Joint, Manual, RNR_TIMER};
use crate::endpoint::verbs::pairs::Pairs;
use crate::endpoint::verbs::vendor_pairs::Dynamic;
use crate::endpoint::{Intake, QpAddress};
use crate::plan::Plan;
use crate::run::Target;

impl Manual {
    /// Makes the targets of a side ready, where it has any: from then on they have numbers. This is the way to the side itself; of it a
    /// target takes what is the port's own, and no peer.
    pub(in super::super) fn open_targets(&self, pairs: &Pairs, plan: &Plan, mtu: Mtu) -> Result<()> {
        let Pairs::Dynamic(pairs) = pairs else { return Ok(()) };
        pairs.iter().try_for_each(|pair| self.open_target(&pair.target, plan, mtu))
    }

    fn open_target(&self, target: &TargetQueuePair, plan: &Plan, mtu: Mtu) -> Result<()> {
        let mut access = AccessFlags::RemoteWrite | AccessFlags::RemoteRead;
        // Not every device has atomics here.
        access.set(AccessFlags::RemoteAtomic, plan.workload.operation.is_atomic());
        let mut init = QueuePairAttribute::new();
        init.setup_state(QueuePairState::Init).setup_pkey_index(self.pkey_index).setup_port(self.port);
        target.modify(init.setup_access_flags(access))?;
        let mut receive = QueuePairAttribute::new();
        receive.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(mtu).setup_min_rnr_timer(RNR_TIMER);
        Ok(target.modify(receive.setup_address_vector(&self.way))?)
    }

    /// Makes an initiator ready, and finds the way to the target of the other side.
    pub(super) fn initiate(
        &self,
        joint: &Joint<'_>,
        pd: &Arc<ProtectionDomain>,
        pair: &mut Dynamic,
        (own, their): (&QpAddress, &QpAddress),
    ) -> Result<()> {
        let Some(Intake::Dc { number, key }) = their.intake else { bail!("the peer sent no DC target") };
        let mut init = QueuePairAttribute::new();
        init.setup_state(QueuePairState::Init).setup_pkey_index(self.pkey_index).setup_port(self.port);
        pair.initiator.modify(&init)?;
        let mut receive = QueuePairAttribute::new();
        pair.initiator.modify(receive.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(joint.mtu))?;
        let mut send = QueuePairAttribute::new();
        send.setup_state(QueuePairState::ReadyToSend)
            .setup_sq_psn(own.psn)
            .setup_timeout(joint.plan.attributes.qp_timeout);
        send.setup_retry_cnt(7).setup_rnr_retry(7).setup_max_read_atomic(joint.asks);
        pair.initiator.modify(&send)?;
        pair.there = Some(Target { way: pd.create_ah(&self.way)?, number, key });
        Ok(())
    }
}
