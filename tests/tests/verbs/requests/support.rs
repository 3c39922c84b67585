//! Builders, and the three kinds of queue pairs.

use std::sync::Arc;

use sideway::error::VerbError;
use sideway::ibverbs::address::{AddressHandle, AddressHandleAttribute};
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, BasicService, Datagram, ExtendedQueuePair, GenericQueuePair, QueuePair, QueuePairBuilder,
    SendOperationFlags, Service, Xrc,
};
use sideway::ibverbs::work_request::{PostSendError, WorkRequestFlags};
use sideway_tests::recording::{Posted, World};

pub(crate) const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

/// All operations of an extended queue pair except binding windows.
pub(crate) fn all_operations() -> SendOperationFlags {
    SendOperationFlags::from_bits_retain(0x1fff).difference(SendOperationFlags::BindMemoryWindow)
}

/// Space for 8 requests of 2 entries and 16 bytes, in both queues.
pub(crate) fn sized<T: Service>(world: &World, mut builder: QueuePairBuilder<T>) -> QueuePairBuilder<T> {
    builder.setup_send_cq(&world.send_cq).setup_recv_cq(&world.recv_cq);
    builder.setup_max_send_wr(8).setup_max_recv_wr(8).setup_max_send_sge(2).setup_max_recv_sge(2);
    builder.setup_max_inline_data(16);
    builder
}

pub(crate) fn datagrams(world: &World) -> QueuePairBuilder<Datagram> {
    sized(world, world.pd.create_ud_qp_builder())
}

pub(crate) fn xrc(world: &World) -> QueuePairBuilder<Xrc> {
    sized(world, world.pd.create_xrc_send_qp_builder())
}

pub(crate) fn handle(world: &World) -> Arc<AddressHandle> {
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_grh_src_gid_index(0);
    world.pd.create_ah(&way).unwrap()
}

/// A batch that can be posted to every kind of queue pair of a service.
pub(crate) trait Batch<T> {
    fn post<Q: QueuePair<Service = T>>(&self, qp: &mut Q) -> Result<(), PostSendError>;
}

/// The outcome of a batch on a basic, an extended and a generic queue pair: the result, the requests that arrived, and
/// the calls.
pub(crate) struct Outcome {
    pub(crate) kind: &'static str,
    pub(crate) result: Result<(), PostSendError>,
    pub(crate) posted: Vec<Posted>,
    pub(crate) verbs: Vec<&'static str>,
}

/// Posts `batch` to a queue pair of each kind, and then `good`, which must arrive.
pub(crate) fn on_each_kind<T: BasicService>(
    world: &World,
    builder: &QueuePairBuilder<T>,
    batch: &impl Batch<T>,
    good: &impl Batch<T>,
) -> [Outcome; 3] {
    fn run<T: Service, Q: QueuePair<Service = T>>(
        world: &World,
        kind: &'static str,
        qp: Result<Q, VerbError>,
        batch: &impl Batch<T>,
        good: &impl Batch<T>,
    ) -> Outcome {
        let mut qp = qp.unwrap();
        world.recording.calls();
        let result = batch.post(&mut qp);
        let (posted, verbs) = (world.recording.posted(), world.recording.verbs());
        good.post(&mut qp).unwrap();
        assert!(!world.recording.posted().is_empty(), "{kind}: the next batch did not arrive");
        Outcome { kind, result, posted, verbs }
    }
    [
        run::<T, BasicQueuePair<T>>(world, "basic", builder.build(), batch, good),
        run::<T, ExtendedQueuePair<T>>(world, "extended", builder.build_ex(), batch, good),
        run::<T, GenericQueuePair<T>>(world, "generic", builder.build_generic(), batch, good),
    ]
}

/// A closure cannot be generic over the queue pair, so this trait stands for a function that is.
#[macro_export]
macro_rules! batch {
    ($Name:ident $(<$lifetime:lifetime>)? of $Service:ty { $($field:ident: $Type:ty),* }, |$this:ident, $guard:ident| $build:expr) => {
        struct $Name $(<$lifetime>)? { $($field: $Type),* }
        impl $(<$lifetime>)? $crate::requests::support::Batch<$Service> for $Name $(<$lifetime>)? {
            fn post<Q: sideway::ibverbs::queue_pair::QueuePair<Service = $Service>>(
                &self,
                qp: &mut Q,
            ) -> Result<(), sideway::ibverbs::work_request::PostSendError> {
                let $this = self;
                let mut $guard = qp.start_post_send();
                $build;
                sideway::ibverbs::queue_pair::PostSendGuard::post($guard)
            }
        }
    };
}
