//! How the messages of a program travel.

use anyhow::{Result, bail};
use sideway::ibverbs::device_context::PortAttr;
use sideway::ibverbs::queue_pair::{Connected, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;

use super::{Endpoint, Piece};
use crate::exchange::Address;

/// The queue pairs of a program, and how a message is sent with them. Most have one.
///
/// Completions go to the completion queue of the [`Endpoint`].
pub trait Link {
    /// Bytes that the device puts in front of each message it receives.
    const HEADROOM: u32 = 0;

    /// For a service on which nobody notices that a message is lost, the beginning of a sentence that says so: `Datagrams get lost`.
    const UNRELIABLE: Option<&'static str> = None;

    /// Addresses that each side tells, where that is the same number however many queue pairs it has: those behind its own
    /// are zero. Else it tells its own.
    const ADDRESSES_TOLD: Option<usize> = None;

    /// Whether messages of `size` bytes can be sent from this port.
    ///
    /// # Errors
    ///
    /// How long they may be.
    fn check_size(port: &PortAttr, size: u32) -> Result<()> {
        let most = port.max_msg_sz();
        if size > most {
            bail!("a message of {size} bytes is asked for and the port sends {most} at most");
        }
        Ok(())
    }

    /// What the peer must know: one address for each queue pair, always in the same order.
    fn addresses(&self) -> Vec<Address>;

    /// Brings the queue pairs from INIT to RTS, where they send to these of the peer; as many as there are
    /// [addresses](Self::addresses).
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    fn connect(&mut self, endpoint: &Endpoint, remotes: &[Address]) -> Result<()>;

    /// Which queue pair has this number, by its place among the [addresses](Self::addresses).
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
}

/// [`Link::post_send`] for a queue pair with a peer of its own.
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

/// [`Link::post_receives`] for a queue pair with a receive queue of its own.
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
