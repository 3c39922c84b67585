//! The queue pairs of a thread, for each transport.

pub(super) mod vendor;

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    BasicService, Datagram, GenericQueuePair, GenericSendQueue, QueuePair, QueuePairBuilder, QueuePairType, Service,
    Xrc,
};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::ReceiveQueue;
use sideway::ibverbs::xrc_domain::{XrcDomain, XrcDomainFlags, XrcReceiveQueuePair};
use stride_run::{DatagramSend, Pair};

use self::vendor::{Dynamic, Scalable, scalable_inline};
use super::device::provider;
use crate::endpoint::{Intake, QpAddress};
use crate::plan::{Measure, Plan, Transport, family};

/// Default size up to which latency tests send messages inline, in bytes.
pub(super) const INLINE: u32 = 220;

/// The queue pairs of a thread. Each variant is a transport or a group of transports.
pub(super) enum Pairs {
    Connected(Vec<GenericQueuePair>),
    /// Datagram queue pairs, each with its destination, once that is known.
    Datagram(Vec<(GenericQueuePair<Datagram>, Option<DatagramSend>)>),
    Xrc(Vec<XrcPair>),
    Dynamic(Vec<Dynamic>),
    Scalable(Vec<Scalable>),
}

/// Two XRC queue pairs, one of which sends and the other receives. The fields are dropped in this order.
pub(super) struct XrcPair {
    /// The queue pair that sends messages to the peer.
    pub(super) sender: GenericQueuePair<Xrc>,
    /// The queue pair that receives the peer's messages.
    pub(super) receiver: XrcReceiveQueuePair,
    /// The receives for the peer's messages. Each receiver has a queue of its own, so that receives are counted in the
    /// same way as with other transports.
    pub(super) queue: SharedReceiveQueue,
}

/// The completion queues of a thread, first that of sends and then that of receives.
pub(super) type Queues<'q> = (&'q GenericCompletionQueue, &'q GenericCompletionQueue);

impl Pairs {
    /// Creates `count` queue pairs. Also returns up to which size messages are sent inline.
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        queues: Queues<'_>,
        count: u32,
        can_inline: bool,
    ) -> Result<(Self, u32)> {
        // If the device rejects the default inline size, smaller sizes are tried.
        let asked = match (plan.queues.inline, plan.workload.measure) {
            // Nothing is inline if the operation fetches data, or if the processor cannot access the memory from which
            // it would copy inline data.
            _ if plan.workload.operation.fetches() || !can_inline => vec![0],
            (Some(inline), _) => vec![inline],
            (None, Measure::Latency(_)) if plan.attributes.transport == Transport::Srd => scalable_inline(pd, plan)?,
            (None, Measure::Latency(_)) => vec![INLINE, 64, 0],
            (None, Measure::Bandwidth) => vec![0],
        };
        let domain = (plan.attributes.transport == Transport::Xrc).then(|| domain(pd)).transpose()?;
        let mut last = None;
        for inline in asked {
            match Self::with_inline(pd, plan, queues, count, inline, domain.as_ref()) {
                Ok(pairs) => return Ok((pairs, inline)),
                Err(error) => last = Some(error),
            }
        }
        let error = last.context("one attempt exists")?;
        Err(error).with_context(|| {
            let (sends, receives) = (plan.queues.tx_depth, plan.receives());
            match plan.queues.inline {
                Some(bytes @ 1..) => format!(
                    "queue pairs with {sends} sends, {receives} receives and {bytes} bytes inline (-t, -r, -I; \
                     `stride-perf devices` lists the inline limits)"
                ),
                _ => format!("queue pairs with {sends} sends and {receives} receives (-t, -r, -I)"),
            }
        })
    }

    fn with_inline(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        queues: Queues<'_>,
        count: u32,
        inline: u32,
        domain: Option<&Arc<XrcDomain>>,
    ) -> Result<Self> {
        let has_lists = has_prepared_lists(pd, plan, inline);
        match plan.attributes.transport {
            Transport::Rc => {
                Self::connected(pd, plan, queues, count, inline, QueuePairType::ReliableConnection, has_lists)
            }
            Transport::Uc => {
                Self::connected(pd, plan, queues, count, inline, QueuePairType::UnreliableConnection, has_lists)
            }
            Transport::Ud => {
                let make = |_| {
                    let mut builder = pd.create_ud_qp_builder();
                    equip(&mut builder, plan, queues, inline);
                    Ok((built(&builder, has_lists)?, None))
                };
                (0..count).map(make).collect::<Result<_>>().map(Self::Datagram)
            }
            Transport::Xrc => {
                let make = |_| XrcPair::new(pd, domain.context("an XRC domain")?, plan, queues, inline);
                (0..count).map(make).collect::<Result<_>>().map(Self::Xrc)
            }
            Transport::Dc => {
                let make = |_| Dynamic::new(pd, plan, queues, inline);
                (0..count).map(make).collect::<Result<_>>().map(Self::Dynamic)
            }
            Transport::Srd => {
                let make = |_| Scalable::new(pd, plan, queues, inline);
                (0..count).map(make).collect::<Result<_>>().map(Self::Scalable)
            }
        }
    }

    fn connected(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        queues: Queues<'_>,
        count: u32,
        inline: u32,
        kind: QueuePairType,
        has_lists: bool,
    ) -> Result<Self> {
        let make = |_| {
            let mut builder = pd.create_qp_builder();
            builder.setup_qp_type(kind);
            equip(&mut builder, plan, queues, inline);
            built(&builder, has_lists)
        };
        (0..count).map(make).collect::<Result<_>>().map(Self::Connected)
    }

    /// Returns the queues to which the loops post, with the destinations of requests. `theirs` are the peer's queue
    /// pairs.
    pub(super) fn queues(&mut self, theirs: &[QpAddress]) -> stride_run::Pairs<'_> {
        match self {
            Self::Connected(pairs) => {
                stride_run::Pairs::Connected(pairs.iter_mut().map(|pair| own(pair.queues(), ())).collect())
            }
            Self::Datagram(pairs) => {
                let queues = pairs.iter_mut().map(|(pair, target)| own(pair.queues(), target.clone()));
                stride_run::Pairs::Datagram(queues.collect())
            }
            Self::Xrc(pairs) => {
                let queues = pairs.iter_mut().zip(theirs).map(|(pair, their)| pair.queues(their));
                stride_run::Pairs::Xrc(queues.collect())
            }
            Self::Dynamic(pairs) => stride_run::Pairs::Dynamic(pairs.iter_mut().map(Dynamic::queues).collect()),
            Self::Scalable(pairs) => {
                let queues = pairs.iter_mut().map(|Scalable { pair, there }| own(pair.queues(), there.clone()));
                stride_run::Pairs::Scalable(queues.collect())
            }
        }
    }

    /// Returns the number of each queue pair that sends, and the object that receives if it is another one.
    pub(super) fn numbers(&self) -> Result<Vec<(u32, Option<Intake>)>> {
        match self {
            Self::Connected(pairs) => Ok(pairs.iter().map(|pair| (pair.qp_number(), None)).collect()),
            Self::Datagram(pairs) => Ok(pairs.iter().map(|(pair, _)| (pair.qp_number(), None)).collect()),
            Self::Xrc(pairs) => pairs.iter().map(XrcPair::numbers).collect(),
            Self::Dynamic(pairs) => Ok(pairs.iter().map(Dynamic::numbers).collect()),
            Self::Scalable(pairs) => Ok(pairs.iter().map(|pair| (pair.pair.qp_number(), None)).collect()),
        }
    }
}

impl XrcPair {
    fn new(
        pd: &Arc<ProtectionDomain>,
        domain: &Arc<XrcDomain>,
        plan: &Plan,
        (sends, receives): Queues<'_>,
        inline: u32,
    ) -> Result<Self> {
        let mut builder = pd.create_srq_builder();
        let queue = builder.setup_max_wr(plan.receives().max(1)).setup_xrc(domain, receives).build_ex();
        let queue = queue.context("shared receive queues for XRC, one per queue pair")?;
        let mut builder = pd.create_xrc_send_qp_builder();
        set_send_queue(&mut builder, plan);
        builder.setup_max_inline_data(inline).setup_send_cq(sends);
        let sender = built(&builder, has_prepared_lists(pd, plan, inline))?;
        Ok(Self { sender, receiver: domain.create_recv_qp()?, queue })
    }

    /// Returns the queues to which requests and receives are posted, and the number of the peer's receive queue.
    fn queues(&mut self, their: &QpAddress) -> Pair<'_, GenericSendQueue<Xrc>, u32> {
        let to = match their.intake {
            Some(Intake::Xrc { srq, .. }) => srq,
            _ => 0,
        };
        Pair { send: self.sender.queues().0, intake: stride_run::Intake::Named(&mut self.queue), to }
    }

    fn numbers(&self) -> Result<(u32, Option<Intake>)> {
        let intake = Intake::Xrc { number: self.receiver.qp_number(), srq: self.queue.srq_number()? };
        Ok((self.sender.qp_number(), Some(intake)))
    }
}

/// Returns the queues of a queue pair that has a receive queue of its own.
fn own<'q, S, T>((send, receive): (&'q mut S, &'q mut ReceiveQueue), to: T) -> Pair<'q, S, T> {
    Pair { send, intake: stride_run::Intake::Own(receive), to }
}

/// Creates an XRC domain that only this process uses.
fn domain(pd: &ProtectionDomain) -> Result<Arc<XrcDomain>> {
    pd.device_context().open_xrcd(None, XrcDomainFlags::Create).map_err(|error| {
        let is_missing = [libc::EOPNOTSUPP, libc::ENOSYS].contains(&error.errno().raw());
        let why =
            if is_missing { "the device does not support XRC; give --transport rc" } else { "cannot open a domain" };
        anyhow::Error::new(error).context(format!("--transport xrc: {why}"))
    })
}

/// The drivers with which perftest uses the extended interface. Their basic interface converts each request, so a
/// prepared list gains little.
const EXTENDED: [&str; 3] = ["mlx5_core", "efa", "hns3"];

/// Whether the queue pairs post lists that are prepared once, which only the basic interface supports.
fn has_prepared_lists(pd: &ProtectionDomain, plan: &Plan, inline: u32) -> bool {
    let is_inline = inline > 0 && plan.workload.sizes.iter().any(|size| *size <= u64::from(inline));
    let is_list = plan.workload.measure == Measure::Bandwidth && plan.queues.post_list > 1 && !is_inline;
    is_list && !EXTENDED.contains(&family(&provider(pd.device_context())))
}

/// Builds a queue pair with the interface that costs least.
fn built<T: BasicService>(builder: &QueuePairBuilder<T>, has_lists: bool) -> Result<GenericQueuePair<T>> {
    Ok(if has_lists { builder.build()?.into() } else { builder.build_generic()? })
}

pub(super) fn equip<T: Service>(
    builder: &mut QueuePairBuilder<T>,
    plan: &Plan,
    (sends, receives): Queues<'_>,
    inline: u32,
) {
    set_send_queue(builder, plan);
    builder.setup_max_recv_wr(plan.receives().max(1));
    builder.setup_max_inline_data(inline).setup_send_cq(sends).setup_recv_cq(receives);
}

/// Sets the size of the send queue for a test. Also selects extended queue pairs, even for drivers that do not check
/// themselves whether the queue has free entries.
pub(super) fn set_send_queue<T: Service>(builder: &mut QueuePairBuilder<T>, plan: &Plan) {
    // The queue has one more entry, for the last request of a timed test, which is signaled.
    builder.setup_max_send_wr(plan.queues.tx_depth + 1);
    // SAFETY: the loops of `run` have at most `tx_depth` requests outstanding, and the additional one. No request is
    // segmented, and no memory window is bound.
    unsafe { builder.assume_send_room() };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::verbs::device;
    use crate::plan::{Queues, SideConfig, Workload};

    #[test]
    fn lists_are_posted_by_the_interface_that_prepares_them() {
        let config = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
        let (context, _) = device::open_one(&config, &[], |_| true).unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq_builder().build_generic().unwrap();
        let is_basic = |post_list, measure, inline| {
            let workload = Workload { measure, sizes: vec![64], ..Workload::default() };
            let queues = Queues { post_list, inline: Some(inline), ..Queues::default() };
            let plan = Plan { workload, queues, ..Plan::default() };
            let (mut pairs, _) = Pairs::new(&pd, &plan, (&cq, &cq), 1, true).unwrap();
            let stride_run::Pairs::Connected(queues) = pairs.queues(&[]) else { panic!("RC") };
            matches!(queues[0].send, GenericSendQueue::Basic(_))
        };
        assert!(is_basic(64, Measure::Bandwidth, 0));
        assert!(!is_basic(1, Measure::Bandwidth, 0), "the device offers extended queue pairs");
        assert!(is_basic(64, Measure::Bandwidth, 63), "no message is inline");
        assert!(!is_basic(64, Measure::Bandwidth, 64), "a prepared list would send old data");
        assert!(!is_basic(64, Measure::Latency(crate::plan::Semantics::Ack), 0));
    }
}
