//! The vendor's crate: a service, its address, and the creation of its queue pairs.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_cq_ex, ibv_qp_ex};
use sideway::error::{Errno, VerbError};
use sideway::ibverbs::completion::{
    CompletionQueue, CompletionQueueBuilder, ExtendedCompletionQueue, ExtendedWorkCompletion,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::vendor::{self, Vendor, VendorAddress};
use sideway::ibverbs::queue_pair::{
    ExtendedQueuePair, PostSendGuard, QueuePairAttributeMask, QueuePairBuilder, QueuePairState, QueuePairType,
    SendOperationFlags, TargetQueuePair, Transition,
};
use sideway::ibverbs::work_request::{Addressed, HoldsFor, LocalBufferHandle, SendOperation};

use super::acme;

const VERB: &str = "acme_create_qp";

/// The name of the service: each request goes along a route.
#[derive(Debug)]
pub(crate) enum ParcelName {}

pub(crate) type Parcel = Vendor<ParcelName>;

fn transition(_: QueuePairType, from: QueuePairState, to: QueuePairState) -> Option<Transition> {
    let none = QueuePairAttributeMask::empty();
    match (from, to) {
        (QueuePairState::Reset, QueuePairState::ReadyToSend) | (QueuePairState::ReadyToSend, QueuePairState::Error) => {
            Some(Transition { needed: none, optional: none })
        }
        _ => None,
    }
}

/// A vendor's object that requests name.
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

/// Naming the route of a request.
pub(crate) trait SetRoute<'g, G, O> {
    fn setup_route<'q>(
        self,
        route: &'q Route,
    ) -> LocalBufferHandle<'g, G, Addressed<O, VendorAddress<impl FnOnce(*mut ibv_qp_ex) + Copy + 'q>>>
    where
        G: HoldsFor<'q>;
}

impl<'g, G, O> SetRoute<'g, G, O> for LocalBufferHandle<'g, G, O>
where
    G: PostSendGuard<Service = Parcel>,
    O: SendOperation,
{
    fn setup_route<'q>(
        self,
        route: &'q Route,
    ) -> LocalBufferHandle<'g, G, Addressed<O, VendorAddress<impl FnOnce(*mut ibv_qp_ex) + Copy + 'q>>>
    where
        G: HoldsFor<'q>,
    {
        let give = move |qp: *mut ibv_qp_ex| {
            // SAFETY: queue pairs of the service are made by `build_parcel` alone, and their data is this; the route is
            // borrowed, and compared with the queue pair's device.
            unsafe {
                let Some(functions) = vendor::data::<Functions>(qp) else { return };
                match vendor::check_device(route.raw.context, &raw mut (*qp).qp_base) {
                    Ok(()) => (functions.as_ref().set_route)(qp, &raw const route.raw),
                    Err(reason) => vendor::refuse(qp, reason),
                }
            }
        };
        // SAFETY: a route completes the request, and is borrowed until the batch is posted; the vendor's function is
        // called only if the queue pair has its data.
        unsafe { self.setup_vendor_address(give) }
    }
}

/// The functions found in the queue pair when it is built.
struct Functions {
    set_route: unsafe extern "C" fn(*mut ibv_qp_ex, *const acme::Route),
}

/// Creating queue pairs.
pub(crate) trait AcmeBuilder {
    fn create_parcel_builder(&self) -> QueuePairBuilder<Parcel>;
}

impl AcmeBuilder for Arc<ProtectionDomain> {
    fn create_parcel_builder(&self) -> QueuePairBuilder<Parcel> {
        let mut builder = QueuePairBuilder::of_vendor(self, transition);
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
        // SAFETY: the library creates a queue pair from the attributes, or returns null.
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

/// Creating completion queues with the vendor's field.
pub(crate) trait BuildWithWeight {
    fn build_with_weight(&self) -> Result<(ExtendedCompletionQueue, WeightReader), VerbError>;
}

impl BuildWithWeight for CompletionQueueBuilder {
    fn build_with_weight(&self) -> Result<(ExtendedCompletionQueue, WeightReader), VerbError> {
        // SAFETY: the library creates an extended queue from the attributes, or returns null.
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
    // SAFETY: guaranteed by the caller.
    let found = unsafe { &*acme::acme_qp_functions(qp.as_ptr()) };
    match found.wr_set_route {
        Some(set_route) => Ok(Functions { set_route }),
        None => Err(VerbError::new(VERB, Errno::from_raw(libc::EOPNOTSUPP))
            .with_hint("libacme created the queue pair without wr_set_route")),
    }
}
