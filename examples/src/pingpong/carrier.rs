//! How the messages of a program travel.

use std::sync::Arc;

use anyhow::Result;
use sideway::ibverbs::address::{AddressHandle, GlobalRoutingHeader};
use sideway::ibverbs::completion::WorkCompletionSource;
use sideway::ibverbs::queue_pair::{Connected, Datagram, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;

use super::Piece;

/// The queue pairs of a program, and how a message is sent with them. Most have one.
///
/// Completions go to the completion queue of the [`Resources`](super::Resources).
pub trait Carrier {
    /// Bytes that the device puts in front of each message it receives.
    const HEADROOM: u32 = 0;

    /// For a service on which nobody notices that a message is lost, the beginning of a sentence that says so: `Datagrams get lost`.
    const UNRELIABLE: Option<&'static str> = None;

    /// What decides whether the peer is reached, for the user who looks for the fault.
    const WAY: &'static str = "this GID (-g)";

    /// How many queue pairs there are.
    fn lanes(&self) -> usize {
        1
    }

    /// Which queue pair has this number, by its place among them.
    fn lane(&self, _qp_num: u32) -> Option<usize> {
        Some(0)
    }

    /// Posts a message, signaled, on one of the queue pairs.
    ///
    /// # Errors
    ///
    /// It was not posted.
    ///
    /// # Safety
    ///
    /// Until the completion has been polled or the link has been dropped, the memory stays registered and nobody writes it.
    unsafe fn post_send(&mut self, lane: usize, wr_id: u64, message: Piece) -> Result<()>;

    /// Posts receives, each with the number of its completion and a place for a message: to the one queue pair, or to the
    /// shared receive queue of all of them.
    ///
    /// # Errors
    ///
    /// They were not posted.
    ///
    /// # Safety
    ///
    /// Until the completion has been polled or the link has been dropped, the memory stays registered and no reference to it is
    /// held; what the device leaves there may be of any message.
    unsafe fn post_receives(&mut self, receives: &mut dyn Iterator<Item = (u64, Piece)>) -> Result<()>;

    /// Whether the next message tells where the peer is: [`meet`](Self::meet) is called for it.
    fn awaits_peer(&self) -> bool {
        false
    }

    /// Learns where a message came from.
    ///
    /// # Errors
    ///
    /// It is not the peer's, or there is no way back.
    fn meet(&mut self, _source: &WorkCompletionSource, _header: &GlobalRoutingHeader) -> Result<()> {
        Ok(())
    }
}

/// [`Carrier::post_send`] for a queue pair with a peer of its own.
///
/// # Errors
///
/// It was not posted.
///
/// # Safety
///
/// As for [`setup_sge`](sideway::ibverbs::work_request::SetScatterGatherEntry::setup_sge).
pub unsafe fn post_send(qp: &mut impl QueuePair<Service = Connected>, wr_id: u64, message: Piece) -> Result<()> {
    let mut batch = qp.start_post_send();
    let request = batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send();
    // SAFETY: the caller's promise.
    unsafe { request.setup_sge(message.lkey, message.addr, message.length) };
    Ok(batch.post()?)
}

/// [`Carrier::post_send`] for datagrams: to the queue pair of this number, the way that the handle is for, with its key.
///
/// # Errors
///
/// It was not posted.
///
/// # Safety
///
/// As for [`setup_sge`](sideway::ibverbs::work_request::SetScatterGatherEntry::setup_sge).
pub unsafe fn post_datagram(
    qp: &mut impl QueuePair<Service = Datagram>,
    wr_id: u64,
    (way, qp_num, qkey): (&Arc<AddressHandle>, u32, u32),
    message: Piece,
) -> Result<()> {
    let mut batch = qp.start_post_send();
    let request = batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send().setup_ud_addr(way, qp_num, qkey);
    // SAFETY: the caller's promise.
    unsafe { request.setup_sge(message.lkey, message.addr, message.length) };
    Ok(batch.post()?)
}

/// [`Carrier::post_receives`] for a queue pair with a receive queue of its own.
///
/// # Errors
///
/// They were not posted.
///
/// # Safety
///
/// As for [`setup_sge`](sideway::ibverbs::work_request::SetScatterGatherEntry::setup_sge).
pub unsafe fn post_receives(qp: &mut impl QueuePair, receives: &mut dyn Iterator<Item = (u64, Piece)>) -> Result<()> {
    let mut batch = qp.start_post_recv();
    for (wr_id, place) in receives {
        // SAFETY: the caller's promise.
        unsafe { batch.construct_wr(wr_id).setup_sge(place.lkey, place.addr, place.length) };
    }
    Ok(batch.post()?)
}
