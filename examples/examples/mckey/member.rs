//! One member of the group: an identifier with a queue pair.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    Datagram, GenericQueuePair, PostSendGuard, QueuePair, QueuePairCreateFlags, SendOperationFlags as Operations,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::communication_manager::{Identifier, MulticastJoinFlag, MulticastMembership};

use crate::arguments::Arguments;
use crate::tally::Tally;

/// One member of the group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) qp: GenericQueuePair<Datagram>,
    id: Arc<Identifier>,
    pd: Arc<ProtectionDomain>,
    /// Where to send, once it has joined.
    way: Option<Way>,
    /// What has come, or has been sent.
    pub(crate) tally: Tally,
}

/// How a message gets to all others of the group.
#[derive(Debug)]
struct Way {
    ah: Arc<AddressHandle>,
    qp_num: u32,
    qkey: u32,
}

impl Member {
    /// The queue pair is made before the group is joined: the library attaches it then.
    pub(crate) fn new(
        id: &Arc<Identifier>,
        pd: &Arc<ProtectionDomain>,
        cq: &GenericCompletionQueue,
        depth: u32,
        arguments: &Arguments,
    ) -> Result<Self> {
        let mut builder = pd.create_ud_qp_builder();
        builder.setup_send_cq(cq).setup_recv_cq(cq).setup_send_ops_flags(Operations::SendWithImmediate);
        if arguments.sender {
            builder.setup_max_send_wr(depth);
        } else {
            builder.setup_max_recv_wr(depth);
        }
        if arguments.no_loopback {
            builder.setup_create_flags(QueuePairCreateFlags::BlockSelfMulticastLoopback);
        }
        let qp = id.create_qp_generic(&builder);
        let qp = if arguments.no_loopback { qp.context("-l is not for every device")? } else { qp? };
        Ok(Self { qp, id: Arc::clone(id), pd: Arc::clone(pd), way: None, tally: Tally::new(arguments.count) })
    }

    pub(crate) fn device(&self) -> &Arc<DeviceContext> {
        self.pd.device_context()
    }

    /// Asks to join; an event tells of it.
    pub(crate) fn join(&self, group: SocketAddr, is_send_only: bool) -> Result<()> {
        if is_send_only {
            self.id.join_multicast_with(group, MulticastJoinFlag::SendOnlyFullMember)?;
        } else {
            self.id.join_multicast(group)?;
        }
        Ok(())
    }

    /// Has joined.
    pub(crate) fn learn(&mut self, membership: &MulticastMembership) -> Result<()> {
        let ah = self.pd.create_ah(membership.address_handle_attribute()).context("the way to the group")?;
        self.way = Some(Way { ah, qp_num: membership.qp_number(), qkey: membership.qkey() });
        Ok(())
    }

    /// Leaves the group.
    pub(crate) fn leave(&self, group: SocketAddr) -> Result<()> {
        Ok(self.id.leave_multicast(group)?)
    }

    /// Has the next `count` messages put into the memory, all of them to the same place.
    pub(crate) fn post_receives(&mut self, memory: &OwnedMemoryRegion, count: u32) -> Result<()> {
        let length = u32::try_from(memory.len()).context("the messages are too long")?;
        let mut batch = self.qp.start_post_recv();
        for _ in 0..count {
            // SAFETY: the memory is registered for local writes, has so many bytes, and is dropped behind the queue pairs of the
            // crew. Nobody refers to its bytes, which are of any message, or of several.
            unsafe { batch.construct_wr(0).setup_sge(memory.lkey(), memory.addr(), length) };
        }
        Ok(batch.post()?)
    }

    /// Sends `count` messages to the group, with the number of this queue pair as their immediate data.
    pub(crate) fn post_sends(&mut self, memory: &OwnedMemoryRegion, count: u32) -> Result<()> {
        let way = self.way.as_ref().context("the group is not joined yet")?;
        let length = u32::try_from(memory.len()).context("the messages are too long")?;
        let own = self.qp.qp_number();
        let mut batch = self.qp.start_post_send();
        for _ in 0..count {
            let request = batch.construct_wr(0, WorkRequestFlags::Signaled).setup_send_imm(own);
            let request = request.setup_ud_addr(&way.ah, way.qp_num, way.qkey);
            // SAFETY: the memory is registered, has so many bytes, is dropped behind the queue pairs of the crew, and nobody writes
            // it.
            unsafe { request.setup_sge(memory.lkey(), memory.addr(), length) };
        }
        Ok(batch.post()?)
    }
}
