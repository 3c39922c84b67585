//! The TX ring: packets to send.

use std::ptr::NonNull;
use std::time::Duration;

use super::{Side, side};
use crate::error::Error;
use crate::ring::{Producer, ProducerBatch};
use crate::sys::Desc;
use crate::umem::{CONTINUES, HAS_METADATA, Packet, Region, SHORTEST};

/// Maximum number of pieces of a packet that every kernel sends in copy mode (`MAX_SKB_FRAGS + 1`).
pub const MAX_PIECES: usize = 18;

/// The TX ring of a socket.
#[doc(alias = "XDP_TX_RING")]
#[derive(Debug)]
pub struct Tx {
    producer: Producer<Desc>,
    side: Side,
}

side!(Tx);

impl Tx {
    pub(crate) fn new(producer: Producer<Desc>, side: Side) -> Self {
        Self { producer, side }
    }

    /// Begins a batch of up to `max` packets. The batch has less [`space`](TxBatch::space) if the ring is nearly full.
    ///
    /// Dropping the batch passes the packets to the kernel; [`wake`](Self::wake) then sends them.
    #[inline]
    pub fn batch(&mut self, max: usize) -> TxBatch<'_> {
        let region = self.side.holder.pointer();
        TxBatch { batch: self.producer.batch(u32::try_from(max).unwrap_or(u32::MAX)), region }
    }

    /// The ring, for entries that move from another ring.
    #[inline]
    pub(super) fn entries(&mut self, max: u32, region: NonNull<Region>) -> ProducerBatch<'_, Desc> {
        self.producer.batch(if self.side.holder.pointer() == region { max } else { 0 })
    }

    /// Packets in the ring that the kernel has not taken yet. Before Linux 6.17, the packets of the last
    /// [`wake`](Self::wake) are included until the next one.
    pub fn pending(&self) -> usize {
        self.producer.pending() as usize
    }

    /// Whether the kernel waits for a [`wake`](Self::wake) before it sends. In copy mode it always waits.
    #[inline]
    #[doc(alias = "XDP_RING_NEED_WAKEUP")]
    pub fn needs_wakeup(&self) -> bool {
        self.producer.ring().needs_wakeup() || !self.side.socket.granted().need_wakeup
    }

    /// `sendto(fd, NULL, 0, MSG_DONTWAIT, …)` — sends the packets in the ring, if the kernel must be woken for this.
    ///
    /// Returns `false` if packets may be left: the call has sent its budget, the completion ring is full, or the device
    /// is busy. Call again after frames were taken from the completion ring. In copy mode before Linux 6.17, the call
    /// that sends the last packet also returns `false`; the next call returns `true`.
    ///
    /// # Errors
    ///
    /// The interface was removed, or its link is down.
    #[inline]
    pub fn wake(&mut self) -> Result<bool, Error> {
        if !self.needs_wakeup() {
            return Ok(true);
        }
        let socket = &self.side.socket;
        // Older kernels return success if the completion ring is full.
        Ok(socket.kick_tx()? && (socket.granted().zero_copy || self.pending() == 0))
    }

    /// `poll(POLLOUT)` — waits until the ring has space. Returns `false` after the time-out.
    ///
    /// # Errors
    ///
    /// The interface was removed.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.side.socket.wait(libc::POLLOUT, timeout)
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.side.holder.settle(self.producer.total().wrapping_neg());
    }
}

/// Packets that pass to the kernel when the batch is dropped.
#[derive(Debug)]
pub struct TxBatch<'a> {
    batch: ProducerBatch<'a, Desc>,
    region: NonNull<Region>,
}

// SAFETY: the batch borrows the ring, which may be used from any thread.
unsafe impl Send for TxBatch<'_> {}

impl TxBatch<'_> {
    /// Packets, or pieces of packets, that still fit.
    #[inline]
    pub fn space(&self) -> usize {
        self.batch.space() as usize
    }

    /// Adds a packet.
    ///
    /// # Errors
    ///
    /// Returns the packet if the batch is full, if it belongs to another UMEM, or if it is a received piece of less
    /// than 14 bytes.
    #[inline]
    pub fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.batch.space() == 0 || !packet.token().belongs_to(self.region) || packet.len() < SHORTEST {
            return Err(packet);
        }
        let options = packet.options() & HAS_METADATA;
        self.push(packet, options);
        Ok(())
    }

    /// Adds one packet that consists of several pieces (multi-buffer), in order. Returns `true` if the pieces were
    /// added.
    ///
    /// Returns `false`, and changes nothing, if the packet has more than [`MAX_PIECES`], the space is too small, a
    /// piece belongs to another UMEM, or the first piece has fewer than 14 bytes.
    #[must_use = "the pieces are not sent if this returns false"]
    pub fn send_pieces(&mut self, pieces: &mut Vec<Packet>) -> bool {
        let fits = pieces.len() <= MAX_PIECES.min(self.space());
        let is_long = pieces.first().is_some_and(|first| first.len() >= SHORTEST);
        let are_valid = |piece: &Packet| piece.token().belongs_to(self.region) && piece.len() != 0;
        if !fits || !is_long || !pieces.iter().all(are_valid) {
            return false;
        }
        let last = pieces.len() - 1;
        for (at, piece) in pieces.drain(..).enumerate() {
            // Only the first piece may have metadata.
            let metadata = if at == 0 { piece.options() & HAS_METADATA } else { 0 };
            self.push(piece, metadata | if at == last { 0 } else { CONTINUES });
        }
        true
    }

    #[inline]
    fn push(&mut self, packet: Packet, options: u32) {
        // SAFETY: the callers have checked that there is space.
        unsafe { self.batch.push(give(packet, options)) };
    }
}

/// Transfers a packet to the kernel.
#[inline]
pub(super) fn give(packet: Packet, options: u32) -> Desc {
    let len = packet.len() as u32;
    let token = packet.into_token();
    token.region().pass(token.addr(), true);
    Desc { addr: token.into_addr(), len, options }
}
