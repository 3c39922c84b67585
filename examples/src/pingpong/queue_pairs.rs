//! The queue pairs of a ping-pong, and how they send a message.

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
    /// Bytes that the device writes before each received message.
    pub headroom: u32,
    /// If the service does not detect lost messages, the text to print about it, such as `datagrams (UD) may be lost`.
    pub loss: Option<&'static str>,
    /// The address that must reach the peer, for error messages.
    pub path: &'static str,
}

impl Service {
    /// A reliable connection by GID.
    pub const RELIABLE: Self = Self { headroom: 0, loss: None, path: "this GID (-g)" };
    /// An unreliable connection by GID.
    pub const UNRELIABLE: Self = Self { loss: Some("unreliable connections (UC) may lose messages"), ..Self::RELIABLE };
    /// Datagrams by GID; a global routing header, or its space, precedes each message.
    pub const DATAGRAM: Self = Self { headroom: 40, loss: Some("datagrams (UD) may be lost"), ..Self::RELIABLE };

    /// The service for connections by IP address.
    pub const fn by_address(self) -> Self {
        Self { path: "this address (-b)", ..self }
    }
}

/// The queue pairs of a program. They report to the completion queue of the [`Resources`](super::Resources).
#[derive(Debug)]
pub enum QueuePairs {
    /// Connections, each with its own peer, and the shared receive queue if there is one. The connections are dropped
    /// first.
    Connected(Vec<GenericQueuePair>, Option<SharedReceiveQueue>),
    /// A single queue pair that is not connected: each message has an address.
    Datagram {
        /// The queue pair.
        qp: GenericQueuePair<Datagram>,
        /// Its domain, for address handles.
        pd: Arc<ProtectionDomain>,
        /// The only peer of the program.
        peer: Peer,
    },
}

/// The peer of a queue pair for datagrams.
#[derive(Debug)]
pub enum Peer {
    /// The program has no data about the peer.
    Unknown,
    /// The queue pair number and key are available; the first message, to this port of the device, adds the path.
    Expected {
        /// The port of the device.
        port_num: u8,
        /// The number of the peer's queue pair.
        qp_num: u32,
        /// The key of the peer's queue pair.
        qkey: u32,
    },
    /// The program can send to the peer.
    Ready {
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
    /// The queue pair is for datagrams.
    pub fn connections(&self) -> Result<&[GenericQueuePair]> {
        match self {
            Self::Connected(qps, _) => Ok(qps),
            Self::Datagram { .. } => bail!("datagrams have no connection"),
        }
    }

    /// The number of queue pairs.
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
                let mut batch = qps.get_mut(index).context("no such queue pair")?.start_post_send();
                let request = batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send();
                // SAFETY: guaranteed by the caller; the queue pair is part of `self`.
                unsafe { request.setup_sge(lkey, addr, length) };
                Ok(batch.post()?)
            }
            Self::Datagram { qp, peer, .. } => {
                let Peer::Ready { path, qp_num, qkey } = peer else { bail!("no peer is connected") };
                let mut batch = qp.start_post_send();
                let request = batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send();
                // SAFETY: as above.
                unsafe { request.setup_ud_addr(path, *qp_num, *qkey).setup_sge(lkey, addr, length) };
                Ok(batch.post()?)
            }
        }
    }

    /// Posts receives, each with its identifier and the buffer of a message: to the one queue pair, or to the shared
    /// receive queue.
    ///
    /// # Safety
    ///
    /// Until the completion has been polled or `self` has been dropped, the memory stays registered and no reference
    /// into it exists. The device may write any bytes there.
    pub(super) unsafe fn post_receives(&mut self, receives: impl Iterator<Item = (u64, Buffer)>) -> Result<()> {
        match self {
            Self::Connected(_, Some(srq)) => {
                let mut batch = srq.start_post_recv();
                for (wr_id, Buffer { lkey, addr, length }) in receives {
                    // SAFETY: guaranteed by the caller; the shared queue and all its queue pairs are part of `self`.
                    unsafe { batch.construct_wr(wr_id).setup_sge(lkey, addr, length) };
                }
                Ok(batch.post()?)
            }
            Self::Connected(qps, None) => {
                let qp: &mut GenericQueuePair<Connected> = qps.first_mut().context("no queue pair exists")?;
                // SAFETY: guaranteed by the caller; the queue pair is part of `self`.
                unsafe { post_receives(qp, receives) }
            }
            // SAFETY: as above.
            Self::Datagram { qp, .. } => unsafe { post_receives(qp, receives) },
        }
    }

    /// Whether the next message will contain the path to the peer, for [`set_path`](Self::set_path).
    pub(super) fn awaits_peer(&self) -> bool {
        matches!(self, Self::Datagram { peer: Peer::Expected { .. }, .. })
    }

    /// Sets the path to the peer, from one of its messages.
    pub(super) fn set_path(&mut self, source: &WorkCompletionSource, header: &GlobalRoutingHeader) -> Result<()> {
        let Self::Datagram { pd, peer, .. } = self else { return Ok(()) };
        let Peer::Expected { port_num, qp_num, qkey } = *peer else { return Ok(()) };
        if source.src_qp != qp_num {
            bail!("a datagram arrived from queue pair {:#08x}, expected {qp_num:#08x}", source.src_qp);
        }
        let path =
            pd.create_ah_from_wc(port_num, source, Some(header)).context("cannot create the path to the client")?;
        *peer = Peer::Ready { path, qp_num, qkey };
        Ok(())
    }
}

/// # Safety
///
/// As for [`QueuePairs::post_receives`], until `qp` has been dropped.
unsafe fn post_receives(qp: &mut impl QueuePair, receives: impl Iterator<Item = (u64, Buffer)>) -> Result<()> {
    let mut batch = qp.start_post_recv();
    for (wr_id, Buffer { lkey, addr, length }) in receives {
        // SAFETY: guaranteed by the caller.
        unsafe { batch.construct_wr(wr_id).setup_sge(lkey, addr, length) };
    }
    Ok(batch.post()?)
}
