//! The methods that all kinds of queue pairs have in common.

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

/// The methods that every kind of queue pair has.
pub trait QueuePair: AsQueuePairCore {
    /// The service, which determines the fields of requests.
    type Service: Service;

    /// The batch of sends that [`start_post_send`](Self::start_post_send) returns.
    type Guard<'g>: PostSendGuard<Service = Self::Service> + HoldsFor<'g>
    where
        Self: 'g;

    /// Starts a batch of sends.
    #[doc(alias = "ibv_wr_start")]
    fn start_post_send(&mut self) -> Self::Guard<'_>;

    /// Starts a batch of receives.
    #[doc(alias = "ibv_post_recv")]
    fn start_post_recv(&mut self) -> PostRecvGuard<'_>;

    /// `ibv_modify_qp(qp, attr, attr_mask)` — sets attributes, including the state.
    ///
    /// # Errors
    ///
    /// [`ModifyQueuePairError`] states the cause, such as an invalid transition, missing or extra attributes, or an
    /// unreachable peer.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    #[doc(alias = "ibv_modify_qp")]
    fn modify(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        self.core().modify(attribute)
    }

    /// Returns the data that a peer needs to connect to this queue pair. Send this data to the peer, and pass the
    /// peer's endpoint to [`connect_rc`](Self::connect_rc).
    ///
    /// # Errors
    ///
    /// Returns `ENODATA` if the GID in the options is not in use. Otherwise returns the errno of the query that failed:
    /// that of the port, of the GID or of the device.
    fn local_endpoint(&self, options: &RcOptions) -> Result<QueuePairEndpoint, VerbError>
    where
        Self: QueuePair<Service = Connected>,
    {
        self.core().local_endpoint(options)
    }

    /// `ibv_modify_qp(qp, attr, attr_mask)` — connects a queue pair of type RC with its peer. Makes the transitions to
    /// INIT, RTR and RTS in one call.
    ///
    /// The queue pair must be in Reset or Init. To post receives before the peer can send, [`modify`](Self::modify) the
    /// queue pair to Init first. Alternatively, let the peer wait for a message on the channel over which the endpoints
    /// were exchanged. If the peer sends before a receive is posted, it retries
    /// ([`setup_rnr_retry`](RcOptions::setup_rnr_retry)).
    ///
    /// Queue pairs of iWARP devices can be connected only through [`rdmacm`](crate::rdmacm).
    ///
    /// ```
    /// use sideway::ibverbs::device::DeviceList;
    /// use sideway::ibverbs::queue_pair::{QueuePair, QueuePairEndpoint, QueuePairState, RcOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # softrnic::register()?;
    /// # // Connect this queue pair with itself.
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
    /// [`ConnectQueuePairError`]: the failed transition with the attribute at fault, or a malformed endpoint. The queue
    /// pair stays in the state of the last successful transition; [`modify`](Self::modify) it to Reset to connect
    /// again.
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

    /// `ibv_modify_qp(qp, attr, attr_mask)` — connects a queue pair of type UC, like [`connect_rc`](Self::connect_rc).
    /// The options for retries, reads and atomics have no effect. The peer does not retry, so post receives before it
    /// sends.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`connect_rc`](Self::connect_rc).
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

    /// `ibv_query_qp(qp, attr, attr_mask, init_attr)` — reads attributes. A driver may return more than requested.
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

    /// `ibv_attach_mcast(qp, gid, lid)` — joins a multicast group. Once the queue pair is ready to receive, it also
    /// receives the datagrams that are sent to the group. Each of them consumes one receive. Attaching twice is not an
    /// error.
    ///
    /// On Ethernet `lid` is 0 and the GID is that of an IP group ([`Gid::of_multicast_group`]). On InfiniBand, both
    /// values come from the multicast member record, which librdmacm's `rdma_join_multicast` returns.
    ///
    /// A queue pair leaves its groups when it is dropped.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the queue pair is not a datagram queue pair, or the GID or the LID is not that of a group. The LIDs
    ///   of groups are 0xC000 to 0xFFFE, or 0 on Ethernet.
    /// - `ENOMEM`: the device's limit of members or groups is reached.
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

    /// `ibv_create_flow(qp, flow)` — directs packets that match the rule to this queue pair as long as the [`Flow`]
    /// exists.
    ///
    /// # Errors
    ///
    /// - `EPERM`: the process lacks the capability `CAP_NET_RAW`, which flow steering requires.
    /// - `EOPNOTSUPP`: the device does not support flow steering, or this specification.
    /// - `EINVAL`: an action or counters belong to another device context, or the port is invalid. Or the driver does
    ///   not support the order or the values of the specifications.
    /// - `ENOMEM`: the device cannot store more rules. `EEXIST`: the same rule already exists.
    ///
    /// # References
    ///
    /// [ibv_create_flow(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
    #[doc(alias = "ibv_create_flow")]
    fn create_flow(&self, rule: &FlowRule) -> Result<Flow, VerbError> {
        self.core().create_flow(rule)
    }

    /// `ibv_query_ece(qp, ece)` — returns the enhanced connection establishment options of the queue pair. Before the
    /// connection is established, these are the options that the device supports. The program sends them to the peer.
    /// From the state ReadyToReceive on, these are the options in use.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device does not support ECE.
    ///
    /// # References
    ///
    /// [ibv_query_ece(3)](https://man7.org/linux/man-pages/man3/ibv_query_ece.3.html)
    #[doc(alias = "ibv_query_ece")]
    fn query_ece(&self) -> Result<Ece, VerbError> {
        self.core().query_ece()
    }

    /// `ibv_set_ece(qp, ece)` — requests enhanced connection establishment options for later transitions. Returns the
    /// accepted options.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device does not support ECE, or `vendor_id` is 0.
    /// - `EINVAL`: the options are those of another vendor.
    ///
    /// # References
    ///
    /// [ibv_set_ece(3)](https://man7.org/linux/man-pages/man3/ibv_set_ece.3.html)
    #[doc(alias = "ibv_set_ece")]
    fn set_ece(&self, ece: Ece) -> Result<Ece, VerbError> {
        self.core().set_ece(ece)
    }

    /// `ibv_modify_qp_rate_limit(qp, attr)` — limits the queue pair's send rate.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device does not support packet pacing, or does not support it for this service
    ///   ([`packet_pacing_caps`](crate::ibverbs::device_context::PacketPacingCapabilities)).
    /// - `EINVAL`: the queue pair is not in ReadyToSend, or a value exceeds the device's limits.
    ///
    /// # References
    ///
    /// [ibv_modify_qp_rate_limit(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp_rate_limit.3.html)
    #[doc(alias = "ibv_modify_qp_rate_limit")]
    fn modify_rate_limit(&self, limit: &RateLimit) -> Result<(), VerbError> {
        self.core().modify_rate_limit(limit)
    }

    /// `ibv_query_qp_data_in_order(qp, op, flags)` — returns whether the device writes the data of this operation to
    /// local memory in order. If so, a program may poll the memory instead of the completion. The empty set guarantees
    /// nothing. It is also the result if the device or the library does not support this query.
    ///
    /// # References
    ///
    /// [ibv_query_qp_data_in_order(3)](https://man7.org/linux/man-pages/man3/ibv_query_qp_data_in_order.3.html)
    #[doc(alias = "ibv_query_qp_data_in_order")]
    fn query_data_in_order(&self, operation: WorkRequestOperationType, flags: DataInOrderFlags) -> DataInOrder {
        self.core().query_data_in_order(operation, flags)
    }

    /// Returns the state after the last successful [`modify`](Self::modify) or [`query`](Self::query). A queue pair can
    /// also enter the Error state without a call. Only a query detects this.
    fn state(&self) -> QueuePairState {
        self.core().cached_state()
    }

    /// Returns the transport service.
    fn qp_type(&self) -> QueuePairType {
        self.core().qp_type()
    }

    /// Returns the queue pair's number, 24 bits, by which peers address it.
    fn qp_number(&self) -> u32 {
        self.core().qp_number()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives. Do not destroy it, do not post to it while a guard exists, and do not
    /// change its `qp_context` or its functions.
    unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.core().as_non_null()
    }
}

/// Gives access to the common part of a queue pair. Only the queue pairs of this crate implement this trait.
pub trait AsQueuePairCore {
    #[doc(hidden)]
    fn core(&self) -> &Arc<QueuePairCore>;
}
