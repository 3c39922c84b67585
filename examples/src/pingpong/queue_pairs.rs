//! The queue pairs of a ping-pong, and how a message is sent with them.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::address::{AddressHandle, GlobalRoutingHeader};
use sideway::ibverbs::completion::WorkCompletionSource;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{Connected, Datagram, GenericQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::WorkRequestFlags;

use crate::Buffer;

/// The properties of a transport service that the run loop depends on.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Bytes that the device puts in front of each received message.
    pub headroom: u32,
    /// If lost messages go unnoticed: the beginning of a sentence about it, such as `Datagrams get lost`.
    pub loss: Option<&'static str>,
    /// What decides whether the peer is reached, for error messages.
    pub path: &'static str,
}

impl Service {
    /// A reliable connection by GID.
    pub const RELIABLE: Self = Self { headroom: 0, loss: None, path: "this GID (-g)" };
    /// An unreliable connection by GID.
    pub const UNRELIABLE: Self = Self { loss: Some("An unreliable connection (UC) loses messages"), ..Self::RELIABLE };
    /// Datagrams by GID, each after a global routing header or the room for one.
    pub const DATAGRAM: Self = Self { headroom: 40, loss: Some("Datagrams (UD) get lost"), ..Self::RELIABLE };

    /// The same by IP address.
    pub const fn by_address(self) -> Self {
        Self { path: "this address (-b)", ..self }
    }
}

/// The queue pairs of a program. Their completions go to the completion queue of the [`Resources`](super::Resources).
#[derive(Debug)]
pub enum QueuePairs {
    /// Connections, each with a peer of its own, and the queue of their receives if they share one. Dropped in this order.
    Connected(Vec<GenericQueuePair>, Option<SharedReceiveQueue>),
    /// One queue pair without a peer: each message has an address.
    Datagram {
        /// The queue pair.
        qp: GenericQueuePair<Datagram>,
        /// Its domain, for address handles.
        pd: Arc<ProtectionDomain>,
        /// The only peer that the program talks to.
        peer: Peer,
    },
}

/// The peer of a queue pair for datagrams.
#[derive(Debug)]
pub enum Peer {
    /// Nothing is known of it.
    Unknown,
    /// Its queue pair is known; its first message, to this port of the device, has the path to it.
    Expected {
        /// The port of the device.
        port_num: u8,
        /// The number of the peer's queue pair.
        qp_num: u32,
        /// The key of the peer's queue pair.
        qkey: u32,
    },
    /// It can be sent to.
    Known {
        /// The path.
        path: Arc<AddressHandle>,
        /// The number of the peer's queue pair.
        qp_num: u32,
        /// The key of the peer's queue pair.
        qkey: u32,
    },
}

impl QueuePairs {
    /// The connections.
    ///
    /// # Errors
    ///
    /// It is a queue pair for datagrams.
    pub fn connections(&self) -> Result<&[GenericQueuePair]> {
        match self {
            Self::Connected(qps, _) => Ok(qps),
            Self::Datagram { .. } => bail!("datagrams have no connection"),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Connected(qps, _) => qps.len(),
            Self::Datagram { .. } => 1,
        }
    }

    /// The index of the queue pair with this number.
    pub(super) fn index(&self, qp_num: u32) -> Option<usize> {
        match self {
            Self::Connected(qps, _) => qps.iter().position(|qp| qp.qp_number() == qp_num),
            Self::Datagram { qp, .. } => (qp.qp_number() == qp_num).then_some(0),
        }
    }

    /// Posts a message, signaled, on one of the queue pairs.
    ///
    /// # Safety
    ///
    /// Until the completion has been polled or `self` has been dropped, the memory stays registered and is not written.
    pub(super) unsafe fn post_send(&mut self, index: usize, wr_id: u64, message: Buffer) -> Result<()> {
        let Buffer { lkey, addr, length } = message;
        match self {
            Self::Connected(qps, _) => {
                let mut batch = qps.get_mut(index).context("there is no such queue pair")?.start_post_send();
                let request = batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send();
                // SAFETY: the caller's promise: the queue pair is part of `self`.
                unsafe { request.setup_sge(lkey, addr, length) };
                Ok(batch.post()?)
            }
            Self::Datagram { qp, peer, .. } => {
                let Peer::Known { path, qp_num, qkey } = peer else { bail!("there is no peer yet") };
                let mut batch = qp.start_post_send();
                let request = batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send();
                // SAFETY: as above.
                unsafe { request.setup_ud_addr(path, *qp_num, *qkey).setup_sge(lkey, addr, length) };
                Ok(batch.post()?)
            }
        }
    }

    /// Posts receives, each with the number of its completion and the buffer of a message: to the one queue pair, or to the
    /// shared receive queue.
    ///
    /// # Safety
    ///
    /// Until the completion has been polled or `self` has been dropped, the memory stays registered and nothing refers to it. The
    /// device may write the bytes of any message there.
    pub(super) unsafe fn post_receives(&mut self, receives: impl Iterator<Item = (u64, Buffer)>) -> Result<()> {
        match self {
            Self::Connected(_, Some(srq)) => {
                let mut batch = srq.start_post_recv();
                for (wr_id, Buffer { lkey, addr, length }) in receives {
                    // SAFETY: the caller's promise: the shared queue and all its queue pairs are part of `self`.
                    unsafe { batch.construct_wr(wr_id).setup_sge(lkey, addr, length) };
                }
                Ok(batch.post()?)
            }
            Self::Connected(qps, None) => {
                let qp: &mut GenericQueuePair<Connected> = qps.first_mut().context("there is no queue pair")?;
                // SAFETY: the caller's promise: the queue pair is part of `self`.
                unsafe { post_receives(qp, receives) }
            }
            // SAFETY: as above.
            Self::Datagram { qp, .. } => unsafe { post_receives(qp, receives) },
        }
    }

    /// Whether the next message has the path to the peer: [`meet`](Self::meet) is due.
    pub(super) fn awaits_peer(&self) -> bool {
        matches!(self, Self::Datagram { peer: Peer::Expected { .. }, .. })
    }

    /// Takes the path to the peer from a message of its.
    pub(super) fn meet(&mut self, source: &WorkCompletionSource, header: &GlobalRoutingHeader) -> Result<()> {
        let Self::Datagram { pd, peer, .. } = self else { return Ok(()) };
        let Peer::Expected { port_num, qp_num, qkey } = *peer else { return Ok(()) };
        if source.src_qp != qp_num {
            bail!("a datagram came from queue pair {:#08x}, and that of the client is {qp_num:#08x}", source.src_qp);
        }
        let path = pd.create_ah_from_wc(port_num, source, Some(header)).context("the way back to the client")?;
        *peer = Peer::Known { path, qp_num, qkey };
        Ok(())
    }
}

/// # Safety
///
/// As for [`QueuePairs::post_receives`], until `qp` has been dropped.
unsafe fn post_receives(qp: &mut impl QueuePair, receives: impl Iterator<Item = (u64, Buffer)>) -> Result<()> {
    let mut batch = qp.start_post_recv();
    for (wr_id, Buffer { lkey, addr, length }) in receives {
        // SAFETY: the caller's promise.
        unsafe { batch.construct_wr(wr_id).setup_sge(lkey, addr, length) };
    }
    Ok(batch.post()?)
}
