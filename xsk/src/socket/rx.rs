//! The RX ring: received packets.

use std::ptr::NonNull;
use std::time::Duration;

use super::{Fill, Side, Tx, fill, side, tx};
use crate::error::Error;
use crate::ring::{Consumer, ConsumerBatch, transfer};
use crate::sys::Desc;
use crate::umem::{CONTINUES, Packet, Region, SHORTEST, Token};

/// The RX ring of a socket.
#[doc(alias = "XDP_RX_RING")]
#[derive(Debug)]
pub struct Rx {
    consumer: Consumer<Desc>,
    /// With multi-buffer: whether the last received piece continues in the next one.
    is_inside: Option<bool>,
    side: Side,
}

side!(Rx);

impl Rx {
    pub(crate) fn new(consumer: Consumer<Desc>, side: Side) -> Self {
        Self { consumer, is_inside: side.socket.granted().multi_buffer.then_some(false), side }
    }

    /// Begins a batch of up to `max` received packets.
    #[inline]
    pub fn batch(&mut self, max: usize) -> RxBatch<'_> {
        let region = self.side.holder.pointer();
        let is_inside = self.is_inside.as_mut();
        RxBatch { batch: self.consumer.batch(u32::try_from(max).unwrap_or(u32::MAX)), is_inside, region }
    }

    /// Packets, or pieces of packets, that can be received now.
    pub fn available(&self) -> usize {
        self.consumer.available() as usize
    }

    /// `poll(POLLIN)` — waits for packets. Returns `false` after the time-out.
    ///
    /// # Errors
    ///
    /// The interface was removed.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        if self.available() != 0 {
            return Ok(true);
        }
        self.side.socket.wait(libc::POLLIN, timeout)
    }

    /// `recvfrom(fd, NULL, 0, MSG_DONTWAIT, …)` — lets the driver receive on this thread (busy polling).
    ///
    /// # Errors
    ///
    /// The interface was removed, or its link is down.
    pub fn busy_poll(&mut self) -> Result<(), Error> {
        self.side.socket.kick_rx()
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        self.side.holder.settle(self.consumer.total());
    }
}

/// Received packets. Those that the loop does not take stay in the ring.
#[derive(Debug)]
pub struct RxBatch<'a> {
    batch: ConsumerBatch<'a, Desc>,
    is_inside: Option<&'a mut bool>,
    region: NonNull<Region>,
}

// SAFETY: the batch borrows the ring, which may be used from any thread.
unsafe impl Send for RxBatch<'_> {}

impl RxBatch<'_> {
    /// Passes each packet to `inspect`, and its frame back to the fill ring. Returns the number of packets.
    ///
    /// This is the fastest way to receive. It stops early if the fill ring is full, and does nothing if the fill ring
    /// belongs to another UMEM. The remaining packets stay in the RX ring.
    #[inline]
    pub fn recycle(self, to: &mut Fill, mut inspect: impl FnMut(&mut Packet)) -> usize {
        let Self { batch, mut is_inside, region } = self;
        let to = to.entries(batch.len(), region);
        transfer(batch, to, |desc| {
            follow(&mut is_inside, &desc);
            // SAFETY: the entry was in the RX ring, whose batch keeps the region.
            let mut packet = unsafe { packet(desc, region) };
            inspect(&mut packet);
            // The closure may have replaced the packet by another one.
            if packet.token().belongs_to(region) { Ok(fill::give(packet.into_token())) } else { Err(Some(packet)) }
        })
    }

    /// Passes each packet to `edit`, and then to a TX ring. Returns the number of packets.
    ///
    /// This is the fastest way to forward. It stops early if the TX ring is full, and does nothing if the TX ring
    /// belongs to another UMEM. The remaining packets stay in the RX ring. A packet shorter than 14 bytes is dropped.
    /// Pieces of a larger packet (multi-buffer) are dropped without a call of `edit`.
    #[inline]
    pub fn forward(self, to: &mut Tx, mut edit: impl FnMut(&mut Packet)) -> usize {
        let Self { batch, mut is_inside, region } = self;
        let to = to.entries(batch.len(), region);
        transfer(batch, to, |desc| {
            let is_piece = follow(&mut is_inside, &desc);
            // SAFETY: the entry was in the RX ring, whose batch keeps the region.
            let mut packet = unsafe { packet(desc, region) };
            if is_piece {
                return Err(Some(packet));
            }
            edit(&mut packet);
            if !packet.token().belongs_to(region) || packet.len() < SHORTEST {
                return Err(Some(packet));
            }
            let options = packet.options();
            Ok(tx::give(packet, options))
        })
    }
}

/// Records whether the next descriptor continues this packet. Returns whether this one is a piece.
#[inline]
fn follow(is_inside: &mut Option<&mut bool>, desc: &Desc) -> bool {
    let Some(is_inside) = is_inside else { return false };
    let continues = desc.options & CONTINUES != 0;
    std::mem::replace(&mut **is_inside, continues) || continues
}

/// The packet of a descriptor.
///
/// # Safety
///
/// The descriptor was in an RX ring with this region, which exists, and becomes a packet once.
#[inline]
unsafe fn packet(desc: Desc, region: NonNull<Region>) -> Packet {
    let Desc { addr, len, options } = desc;
    // SAFETY: the kernel returns each frame of the fill ring once.
    let token = unsafe { Token::new(region, addr) };
    token.region().pass(addr, false);
    Packet::new(token, len, options & CONTINUES)
}

impl Iterator for RxBatch<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        let desc = self.batch.pop()?;
        follow(&mut self.is_inside, &desc);
        // SAFETY: the entry was in the RX ring, whose batch keeps the region.
        Some(unsafe { packet(desc, self.region) })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.batch.len() as usize;
        (len, Some(len))
    }
}

impl ExactSizeIterator for RxBatch<'_> {}
