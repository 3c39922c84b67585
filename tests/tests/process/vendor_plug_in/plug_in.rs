//! What a vendor would write: a service, its address, its operation, and how its queue pairs are made.

use std::any::Any;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_cq_ex, ibv_qp, ibv_qp_ex, ibv_send_wr};
use sideway::error::{Errno, VerbError};
use sideway::ibverbs::completion::{
    CompletionQueue, CompletionQueueBuilder, ExtendedCompletionQueue, ExtendedWorkCompletion,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    ExtendedQueuePair, Offers, OffersWithoutData, PostSendGuard, QueuePairAttributeMask, QueuePairBuilder,
    QueuePairState, QueuePairType, SendOperationFlags, Service, TargetQueuePair, Transition, vendor,
};
use sideway::ibverbs::work_request::{
    Addressed, HoldsFor, LocalBufferHandle, PostSendError, RefusalReason, Send as SendMessage, SendAddress,
    SendOperation, WorkRequestFlags, Write,
};

use super::acme;

const VERB: &str = "acme_create_qp";

/// The service: each request goes along a route.
#[derive(Debug)]
pub(crate) enum Parcel {}

// SAFETY: sends and writes are offered with a route, pings go nowhere.
unsafe impl Service for Parcel {
    fn transition(_: QueuePairType, from: QueuePairState, to: QueuePairState) -> Option<Transition> {
        let none = QueuePairAttributeMask::empty();
        match (from, to) {
            (QueuePairState::Reset, QueuePairState::ReadyToSend)
            | (QueuePairState::ReadyToSend, QueuePairState::Error) => Some(Transition { needed: none, optional: none }),
            _ => None,
        }
    }

    fn post_marker<'q, G>(mut guard: G, wr_id: u64) -> Option<Result<(), PostSendError>>
    where
        G: PostSendGuard<Service = Self> + HoldsFor<'q>,
    {
        guard.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_operation_without_data(Ping(0));
        Some(guard.post())
    }
}

// SAFETY: the route is there.
unsafe impl Offers<Addressed<SendMessage, RouteAddress<'_>>> for Parcel {}
// SAFETY: as above.
unsafe impl Offers<Addressed<Write, RouteAddress<'_>>> for Parcel {}
// SAFETY: the driver takes no data for a ping.
unsafe impl OffersWithoutData<Ping> for Parcel {}

/// An object of the vendor's own that requests name.
pub(crate) struct Route {
    raw: acme::Route,
    _context: Arc<DeviceContext>,
}

impl Route {
    pub(crate) fn to(context: &Arc<DeviceContext>, place: u32) -> Self {
        // SAFETY: the pointer is kept beside its owner.
        let raw = acme::Route { context: unsafe { context.context() }.as_ptr(), place };
        Self { raw, _context: Arc::clone(context) }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct RouteAddress<'a> {
    route: *const acme::Route,
    borrowed: PhantomData<&'a Route>,
}

// SAFETY: the route lives as long as the lifetime in the type, and is seen to be of the queue pair's device. The driver's function
// is called where there is one alone.
unsafe impl SendAddress for RouteAddress<'_> {
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        // SAFETY: only queue pairs of `build_parcel` take routes, and their data is this; the route is borrowed.
        unsafe {
            let Some(functions) = vendor::data::<Functions>(qp) else { return };
            match vendor::check_device((*self.route).context, &raw mut (*qp).qp_base) {
                Ok(()) => (functions.as_ref().set_route)(qp, self.route),
                Err(reason) => vendor::refuse(qp, reason),
            }
        }
    }

    unsafe fn write(self, _wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        Err(RefusalReason::DriverFault("parcels are for extended queue pairs"))
    }
}

/// An operation of the vendor's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ping(pub(crate) u64);

// SAFETY: no pointer is left in the request.
unsafe impl SendOperation for Ping {
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: only queue pairs of `build_parcel` are offered pings, and their data is this.
        unsafe {
            if let Some(functions) = vendor::data::<Functions>(qp) {
                (functions.as_ref().ping)(qp, self.0);
            }
        }
    }

    unsafe fn write(self, _wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        Err(RefusalReason::DriverFault("parcels are for extended queue pairs"))
    }
}

/// Naming the route of a request.
pub(crate) trait SetRoute<'g, G, O> {
    fn setup_route<'q>(self, route: &'q Route) -> LocalBufferHandle<'g, G, Addressed<O, RouteAddress<'q>>>
    where
        G: HoldsFor<'q>;
}

impl<'g, G: PostSendGuard, O: SendOperation> SetRoute<'g, G, O> for LocalBufferHandle<'g, G, O> {
    fn setup_route<'q>(self, route: &'q Route) -> LocalBufferHandle<'g, G, Addressed<O, RouteAddress<'q>>>
    where
        G: HoldsFor<'q>,
    {
        self.setup_address(RouteAddress { route: &raw const route.raw, borrowed: PhantomData })
    }
}

/// What is found in the queue pair when it is built.
struct Functions {
    set_route: unsafe extern "C" fn(*mut ibv_qp_ex, *const acme::Route),
    ping: unsafe extern "C" fn(*mut ibv_qp_ex, u64),
}

/// Making queue pairs.
pub(crate) trait AcmeBuilder {
    fn create_parcel_builder(&self) -> QueuePairBuilder<Parcel>;
}

impl AcmeBuilder for Arc<ProtectionDomain> {
    fn create_parcel_builder(&self) -> QueuePairBuilder<Parcel> {
        // SAFETY: queue pairs of the vendor's type are made by `build_parcel` alone.
        let mut builder = unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::Driver]) };
        builder.setup_send_ops_flags(SendOperationFlags::Send);
        builder
    }
}

pub(crate) trait BuildParcel {
    fn build_parcel(&self, tag: u32) -> Result<ExtendedQueuePair<Parcel>, VerbError>;
    fn build_parcel_target(&self, tag: u32) -> Result<TargetQueuePair, VerbError>;
}

impl BuildParcel for QueuePairBuilder<Parcel> {
    fn build_parcel(&self, tag: u32) -> Result<ExtendedQueuePair<Parcel>, VerbError> {
        // SAFETY: the library makes a queue pair of the attributes, or gives null.
        unsafe { self.build_with(VERB, |context, attr| acme::acme_create_qp(context, attr, tag), |qp| attach(qp)) }
    }

    fn build_parcel_target(&self, tag: u32) -> Result<TargetQueuePair, VerbError> {
        // SAFETY: as above.
        unsafe { self.build_target_with(VERB, |context, attr| acme::acme_create_qp(context, attr, tag)) }
    }
}

/// Reads a field that the vendor adds to completions of one queue.
pub(crate) struct WeightReader {
    cq: NonNull<ibv_cq_ex>,
    _queue: Arc<dyn Any + Send + Sync>,
}

impl WeightReader {
    /// `None` for completions of other queues.
    pub(crate) fn read(&self, completion: &ExtendedWorkCompletion<'_>) -> Option<u32> {
        // SAFETY: the queue is alive, is the vendor's, and its cursor is on the completion.
        unsafe { (completion.cq_ex() == self.cq).then(|| acme::acme_wc_read_weight(self.cq.as_ptr())) }
    }
}

/// Making completion queues with the vendor's field.
pub(crate) trait BuildWithWeight {
    fn build_with_weight(&self) -> Result<(ExtendedCompletionQueue, WeightReader), VerbError>;
}

impl BuildWithWeight for CompletionQueueBuilder {
    fn build_with_weight(&self) -> Result<(ExtendedCompletionQueue, WeightReader), VerbError> {
        // SAFETY: the library makes an extended queue of the attributes, or gives null.
        let queue =
            unsafe { self.build_ex_with("acme_create_cq", |context, attr| acme::acme_create_cq(context, attr)) }?;
        // SAFETY: the queue is kept alive beside the pointer, and only read.
        let cq = unsafe { queue.cq() }.cast();
        let _queue = queue.keep_alive();
        Ok((queue, WeightReader { cq, _queue }))
    }
}

/// Finds the vendor's functions.
///
/// # Safety
///
/// `qp` is one of the vendor's.
unsafe fn attach(qp: NonNull<ibv_qp_ex>) -> Result<Functions, VerbError> {
    // SAFETY: the caller's promise.
    let found = unsafe { &*acme::acme_qp_functions(qp.as_ptr()) };
    match (found.wr_set_route, found.wr_ping) {
        (Some(set_route), Some(ping)) => Ok(Functions { set_route, ping }),
        _ => Err(VerbError::new(VERB, Errno::from_raw(libc::EOPNOTSUPP))
            .with_hint("libacme made the queue pair without wr_set_route")),
    }
}
