//! This side of the connections: device, memory, the queues, and the queue pairs.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{CompletionChannel, GenericCompletionQueue};
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway_examples::exchange::Address;
use sideway_examples::open_device;
use sideway_examples::pingpong::{LocalPort, random_psn};

use super::arguments::Arguments;

/// This side of the connections.
#[derive(Debug)]
pub(crate) struct Endpoint {
    // What is used is dropped before what it uses. The queue pairs and the shared queue keep that one's C object: it has gone
    // when both have, and the memory goes after that.
    pub(crate) qps: Vec<GenericQueuePair>,
    pub(crate) srq: SharedReceiveQueue,
    pub(crate) cq: GenericCompletionQueue,
    pub(crate) channel: Option<Arc<CompletionChannel>>,
    pub(crate) outgoing: OwnedMemoryRegion,
    pub(crate) incoming: OwnedMemoryRegion,
    port: LocalPort,
    /// What the peer must know of each queue pair.
    addresses: Vec<Address>,
}

impl Endpoint {
    /// Makes everything that needs no peer, and brings the queue pairs to the state in which they receive.
    pub(crate) fn new(arguments: &Arguments) -> Result<Self> {
        arguments.check()?;
        let context = open_device(arguments.ib_dev.as_deref())?;
        let port = LocalPort::new(&context, arguments.port_choice())?;
        let pd = context.alloc_pd()?;
        let size = arguments.size as usize;
        // The device only reads what it sends, and writes what it receives.
        let outgoing = pd.reg_owned_mr(size, AccessFlags::empty())?;
        let incoming = pd.reg_owned_mr(size, AccessFlags::LocalWrite)?;

        let channel = if arguments.events { Some(context.create_comp_channel()?) } else { None };
        let mut builder = context.create_cq_builder();
        // Each connection has at most one send at a time.
        builder.setup_cqe(arguments.rx_depth.checked_add(arguments.num_qp).context("--rx-depth is too large")?);
        if let Some(channel) = &channel {
            builder.setup_comp_channel(channel, 0);
        }
        let cq = builder.build_generic()?;
        let srq = pd.create_srq_builder().setup_max_wr(arguments.rx_depth).build()?;

        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(1).setup_send_cq(&cq).setup_recv_cq(&cq).setup_srq(&srq);
        let (mut qps, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..arguments.num_qp {
            let qp = builder.build_generic()?;
            port.initialise(&qp)?;
            addresses.push(port.address(qp.qp_number(), random_psn()));
            qps.push(qp);
        }
        Ok(Self { qps, srq, cq, channel, outgoing, incoming, port, addresses })
    }

    /// What the peer must know.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// What was chosen for the user, if anything.
    pub(crate) fn note(&self) -> Option<String> {
        self.port.note()
    }

    /// Brings the queue pairs up, each towards its partner.
    pub(crate) fn connect(&self, remote: &[Address]) -> Result<()> {
        for ((qp, local), remote) in self.qps.iter().zip(&self.addresses).zip(remote) {
            self.port.connect(qp, local.psn, remote)?;
        }
        Ok(())
    }
}
