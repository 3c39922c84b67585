//! The queue pairs, and what they share.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use sideway::error::VerbError;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::queue_pair::{BasicQueuePair, QueuePairBuilder};
use sideway::rdmacm::communication_manager::Identifier;

/// Makes queue pairs through identifiers, with a domain for each device that they are on.
#[derive(Debug, Default)]
pub(crate) struct Queues(Mutex<Vec<Arc<Domain>>>);

/// What all queue pairs on one device share: a protection domain, and a completion queue to which nothing ever goes.
#[derive(Debug)]
pub(crate) struct Domain {
    context: Arc<DeviceContext>,
    /// All queue pairs are alike.
    builder: QueuePairBuilder,
}

impl Queues {
    /// The domain of the device that the identifier is on.
    pub(crate) fn domain(&self, id: &Arc<Identifier>) -> Result<Arc<Domain>> {
        let context = id.get_device_context().context("the connection is on no device")?;
        let mut domains = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(domain) = domains.iter().find(|domain| Arc::ptr_eq(&domain.context, &context)) {
            return Ok(Arc::clone(domain));
        }
        let domain = Arc::new(Domain::new(context)?);
        domains.push(Arc::clone(&domain));
        Ok(domain)
    }
}

impl Domain {
    fn new(context: Arc<DeviceContext>) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_builder().setup_cqe(1).build()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(1).setup_max_recv_wr(1).setup_send_cq(&cq).setup_recv_cq(&cq);
        Ok(Self { context, builder })
    }

    /// A queue pair that the identifier moves.
    pub(crate) fn create_qp(&self, id: &Arc<Identifier>) -> Result<BasicQueuePair, VerbError> {
        id.create_qp(&self.builder)
    }
}
