//! What all kinds of queue pair can do.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::ibv_qp;

use super::{
    ConnectQueuePairError, Connected, DataInOrder, DataInOrderFlags, Ece, ModifyQueuePairError, QueuePairAttribute,
    QueuePairAttributeMask as Mask, QueuePairCore, QueuePairEndpoint, QueuePairInitAttribute, QueuePairState,
    QueuePairType, RateLimit, RcOptions, Service,
};
use crate::error::VerbError;
use crate::ibverbs::address::Gid;
use crate::ibverbs::flow::{Flow, FlowRule};
use crate::ibverbs::work_request::{HoldsFor, PostRecvGuard, PostSendGuard, WorkRequestOperationType};

/// What every kind of queue pair can do.
pub trait QueuePair: AsQueuePairCore {
    /// What requests of the queue pair look like.
    type Service: Service;

    /// The batch of sends that [`start_post_send`](Self::start_post_send) begins.
    type Guard<'g>: PostSendGuard<Service = Self::Service> + HoldsFor<'g>
    where
        Self: 'g;

    /// Begins a batch of sends.
    #[doc(alias = "ibv_wr_start")]
    fn start_post_send(&mut self) -> Self::Guard<'_>;

    /// Begins a batch of receives.
    #[doc(alias = "ibv_post_recv")]
    fn start_post_recv(&mut self) -> PostRecvGuard<'_>;

    /// `ibv_modify_qp(qp, attr, attr_mask)` — sets attributes, the state among them.
    ///
    /// # Errors
    ///
    /// [`ModifyQueuePairError`] tells what was wrong: a transition that does not exist, attributes missing or too many,
    /// a peer that is not reached.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    #[doc(alias = "ibv_modify_qp")]
    fn modify(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        self.core().modify(attribute)
    }

    /// What a peer needs to connect to this queue pair: send it to the peer, and give the peer's to [`connect_rc`](Self::connect_rc).
    ///
    /// # Errors
    ///
    /// `ENODATA` if the GID that the options name is not in use; else the errno of the query of port, GID or device that failed.
    fn local_endpoint(&self, options: &RcOptions) -> Result<QueuePairEndpoint, VerbError>
    where
        Self: QueuePair<Service = Connected>,
    {
        self.core().local_endpoint(options)
    }

    /// `ibv_modify_qp(qp, attr, attr_mask)` — connects a queue pair of type RC with its peer: INIT, RTR and RTS in one call.
    ///
    /// The queue pair is in Reset or Init. To post receives before the peer can send, [`modify`](Self::modify) it to Init first, or
    /// let the peer send after a message over the channel that the endpoints came by; until then the peer retries
    /// ([`setup_rnr_retry`](RcOptions::setup_rnr_retry)).
    ///
    /// Devices of iWARP connect through [`rdmacm`](crate::rdmacm) alone.
    ///
    /// ```
    /// use sideway::ibverbs::device::DeviceList;
    /// use sideway::ibverbs::queue_pair::{QueuePair, QueuePairEndpoint, QueuePairState, RcOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # softrnic::register()?;
    /// # // This queue pair is its own peer.
    /// # let exchange = |local: [u8; QueuePairEndpoint::LEN]| local;
    /// let context = DeviceList::new()?.find("soft0")?.open()?;
    /// let (pd, cq) = (context.alloc_pd()?, context.create_cq_builder().build_generic()?);
    /// let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_generic()?;
    ///
    /// let options = RcOptions::new();
    /// let local = qp.local_endpoint(&options)?;
    /// let remote = exchange(local.to_bytes()); // over TCP, for example
    /// qp.connect_rc(&QueuePairEndpoint::from_bytes(&remote), &options)?;
    /// assert_eq!(qp.state(), QueuePairState::ReadyToSend);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConnectQueuePairError`]: the transition that failed with the attribute at fault, or a malformed endpoint. The queue pair stays
    /// in the state of the last transition that succeeded; [`modify`](Self::modify) it to Reset to connect again.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    #[doc(alias = "ibv_modify_qp")]
    fn connect_rc(&self, remote: &QueuePairEndpoint, options: &RcOptions) -> Result<(), ConnectQueuePairError>
    where
        Self: QueuePair<Service = Connected>,
    {
        self.core().connect(QueuePairType::ReliableConnection, remote, options, |step| self.modify(step))
    }

    /// `ibv_modify_qp(qp, attr, attr_mask)` — connects a queue pair of type UC, as [`connect_rc`](Self::connect_rc) does one of RC.
    /// Options for retries, reads and atomics do not apply. The peer does not retry: post receives before it sends.
    ///
    /// # Errors
    ///
    /// As [`connect_rc`](Self::connect_rc).
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    #[doc(alias = "ibv_modify_qp")]
    fn connect_uc(&self, remote: &QueuePairEndpoint, options: &RcOptions) -> Result<(), ConnectQueuePairError>
    where
        Self: QueuePair<Service = Connected>,
    {
        self.core().connect(QueuePairType::UnreliableConnection, remote, options, |step| self.modify(step))
    }

    /// `ibv_query_qp(qp, attr, attr_mask, init_attr)` — reads attributes. A driver may fill in more than is asked for.
    ///
    /// # Errors
    ///
    /// The driver's errno.
    ///
    /// # References
    ///
    /// [ibv_query_qp(3)](https://man7.org/linux/man-pages/man3/ibv_query_qp.3.html)
    #[doc(alias = "ibv_query_qp")]
    fn query(&self, mask: Mask) -> Result<(QueuePairAttribute, QueuePairInitAttribute), VerbError> {
        self.core().query(mask)
    }

    /// `ibv_attach_mcast(qp, gid, lid)` — takes part in a multicast group: datagrams to it arrive here too, in a receive
    /// each, once the queue pair is ready to receive. Attaching twice is no error.
    ///
    /// On Ethernet `lid` is 0 and the GID is that of an IP group ([`Gid::of_multicast_group`]). On InfiniBand both are those
    /// of the multicast member record, which joining gives (librdmacm's `rdma_join_multicast`).
    ///
    /// A queue pair that goes leaves the groups that it is in.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the queue pair is no datagram one, the GID is none of a group, or the LID not one of a group
    ///   (0xC000 to 0xFFFE, or 0 on Ethernet).
    /// - `ENOMEM`: the device has no room for another member or group.
    ///
    /// # References
    ///
    /// [ibv_attach_mcast(3)](https://man7.org/linux/man-pages/man3/ibv_attach_mcast.3.html)
    #[doc(alias = "ibv_attach_mcast")]
    fn attach_mcast(&self, gid: &Gid, lid: u16) -> Result<(), VerbError> {
        self.core().attach_mcast(gid, lid)
    }

    /// `ibv_detach_mcast(qp, gid, lid)` — leaves a multicast group.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the queue pair is not in this group.
    ///
    /// # References
    ///
    /// [ibv_attach_mcast(3)](https://man7.org/linux/man-pages/man3/ibv_attach_mcast.3.html)
    #[doc(alias = "ibv_detach_mcast")]
    fn detach_mcast(&self, gid: &Gid, lid: u16) -> Result<(), VerbError> {
        self.core().detach_mcast(gid, lid)
    }

    /// `ibv_create_flow(qp, flow)` — brings packets that match the rule to this queue pair, as long as the [`Flow`] lives.
    ///
    /// # Errors
    ///
    /// - `EPERM`: steering needs the capability `CAP_NET_RAW`.
    /// - `EOPNOTSUPP`: the device has no flow steering, or not this specification.
    /// - `EINVAL`: an action or counters of another device context; a port that is not there; specifications in an order, or
    ///   with values, that the driver does not take.
    /// - `ENOMEM`, `EEXIST`: no room for another rule; the same rule is there.
    ///
    /// # References
    ///
    /// [ibv_create_flow(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
    #[doc(alias = "ibv_create_flow")]
    fn create_flow(&self, rule: &FlowRule) -> Result<Flow, VerbError> {
        self.core().create_flow(rule)
    }

    /// `ibv_query_ece(qp, ece)` — the enhanced connection establishment options of the queue pair: before a connection
    /// those that the device can do, to be sent to the peer; in ReadyToReceive and later those that are in use.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device has none.
    ///
    /// # References
    ///
    /// [ibv_query_ece(3)](https://man7.org/linux/man-pages/man3/ibv_query_ece.3.html)
    #[doc(alias = "ibv_query_ece")]
    fn query_ece(&self) -> Result<Ece, VerbError> {
        self.core().query_ece()
    }

    /// `ibv_set_ece(qp, ece)` — asks for enhanced connection establishment options, to be used by the transitions that
    /// follow. What comes back is what was accepted of them.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device has none, or `vendor_id` is 0.
    /// - `EINVAL`: options of another vendor.
    ///
    /// # References
    ///
    /// [ibv_set_ece(3)](https://man7.org/linux/man-pages/man3/ibv_set_ece.3.html)
    #[doc(alias = "ibv_set_ece")]
    fn set_ece(&self, ece: Ece) -> Result<Ece, VerbError> {
        self.core().set_ece(ece)
    }

    /// `ibv_modify_qp_rate_limit(qp, attr)` — paces what the queue pair sends.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device has no packet pacing
    ///   ([`packet_pacing_caps`](crate::ibverbs::device_context::PacketPacingCapabilities)), or not for this service.
    /// - `EINVAL`: the queue pair is not in ReadyToSend, or a value is beyond what the device has.
    ///
    /// # References
    ///
    /// [ibv_modify_qp_rate_limit(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp_rate_limit.3.html)
    #[doc(alias = "ibv_modify_qp_rate_limit")]
    fn modify_rate_limit(&self, limit: &RateLimit) -> Result<(), VerbError> {
        self.core().modify_rate_limit(limit)
    }

    /// `ibv_query_qp_data_in_order(qp, op, flags)` — whether what this operation brings is written to memory of this side
    /// in order, so that a program may watch the memory instead of polling for the completion. The empty set promises
    /// nothing, and is the answer of devices and libraries that do not know.
    ///
    /// # References
    ///
    /// [ibv_query_qp_data_in_order(3)](https://man7.org/linux/man-pages/man3/ibv_query_qp_data_in_order.3.html)
    #[doc(alias = "ibv_query_qp_data_in_order")]
    fn query_data_in_order(&self, operation: WorkRequestOperationType, flags: DataInOrderFlags) -> DataInOrder {
        self.core().query_data_in_order(operation, flags)
    }

    /// The state that the last successful [`modify`](Self::modify) or [`query`](Self::query) left. A queue pair also goes
    /// into the error state by itself, which only a query shows.
    fn state(&self) -> QueuePairState {
        self.core().cached_state()
    }

    /// The transport service.
    fn qp_type(&self) -> QueuePairType {
        self.core().qp_type()
    }

    /// The number by which peers address the queue pair, 24 bits.
    fn qp_number(&self) -> u32 {
        self.core().qp_number()
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, not destroyed, and not posted to while a guard is out; its `qp_context` and its
    /// functions stay as they are.
    unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.core().as_non_null()
    }
}

/// Access to the shared part; only this crate's queue pairs have it.
pub trait AsQueuePairCore {
    #[doc(hidden)]
    fn core(&self) -> &Arc<QueuePairCore>;
}
