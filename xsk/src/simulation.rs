//! A simulated queue, for measurements, and for tests on machines without privileges or interfaces.
//!
//! ```
//! use xsk::{Umem, simulation};
//!
//! # fn main() -> Result<(), xsk::Error> {
//! let (umem, mut pool) = Umem::builder(64).build()?;
//! let (mut queue, mut kernel) = simulation::queue(&umem, 32)?;
//! queue.fill.refill(&mut pool);
//! assert!(kernel.deliver(b"a packet of 22 bytes.."));
//! for packet in queue.rx.batch(64) {
//!     assert_eq!(packet.len(), 22);
//! }
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use crate::error::{Error, Step};
use crate::ring::{Consumer, Producer, Ring};
use crate::socket::{Completion, Fill, Granted, Layout, Queue, Rings, Rx, Side, Socket, Tx};
use crate::sys::{self, Desc, Mapping};
use crate::umem::Umem;

/// The offset at which the kernel puts packets within a frame, in addition to the UMEM's headroom.
const XDP_HEADROOM: u64 = 256;
const LAYOUT: Layout = Layout { producer: 0, consumer: 64, flags: 128, slots: 192 };

/// The kernel's side of a simulated queue.
#[derive(Debug)]
pub struct Kernel {
    rx: Producer<Desc>,
    tx: Consumer<Desc>,
    fill: Consumer<u64>,
    completion: Producer<u64>,
    /// Keeps the memory of the rings.
    socket: Arc<Socket>,
}

/// Creates a queue whose kernel side is a value in this process. Its rings have `size` entries, a power of two.
///
/// # Errors
///
/// The size is not a power of two, or there is not enough memory.
pub fn queue(umem: &Umem, size: u32) -> Result<(Queue, Kernel), Error> {
    let subject = || "a simulated queue".to_owned();
    if !size.is_power_of_two() {
        let cause = format!("rings of {size} entries; choose a power of two");
        return Err(Error::invalid(Step::SizeRing, subject(), cause));
    }
    let error = |errno| Error::new(Step::MapRing, errno, subject());
    let mut rings = Rings::default();
    let [rx, tx] = [pair::<Desc>(&mut rings, size).map_err(error)?, pair(&mut rings, size).map_err(error)?];
    let [fill, completion] = [pair::<u64>(&mut rings, size).map_err(error)?, pair(&mut rings, size).map_err(error)?];
    // The descriptor is not a socket; a wait on it lasts until its time-out.
    let fd = Arc::new(sys::eventfd().map_err(error)?);
    let granted = Granted { need_wakeup: true, ..Granted::default() };
    let socket = Arc::new(Socket::new(rings, fd, subject(), 0, granted, umem.clone()));
    let side = || Side::new(&umem.holder, &socket);
    let queue = Queue {
        rx: Rx::new(Consumer::new(rx.0), side()),
        tx: Tx::new(Producer::new(tx.0), side()),
        fill: Fill::new(Producer::new(fill.0), side()),
        completion: Completion::new(Consumer::new(completion.0), side()),
    };
    let kernel = Kernel {
        rx: Producer::new(rx.1),
        tx: Consumer::new(tx.1),
        fill: Consumer::new(fill.1),
        completion: Producer::new(completion.1),
        socket: Arc::clone(&socket),
    };
    Ok((queue, kernel))
}

/// Both sides of a ring.
fn pair<T: Copy>(rings: &mut Rings, size: u32) -> Result<(Ring<T>, Ring<T>), sys::Errno> {
    let mapping = Mapping::anonymous(LAYOUT.len::<T>(size), false)?;
    // SAFETY: zeroes are an empty ring, and the mapping is long enough for it. The rings keep the socket, which takes
    // over the mapping. Each value acts for one side.
    Ok(unsafe { rings.add_pair(mapping, LAYOUT, size) })
}

impl Kernel {
    /// Receives a packet. Returns `false` if the packet was dropped: the fill ring was empty, the RX ring was full, or
    /// the packet exceeds a frame.
    pub fn deliver(&mut self, packet: &[u8]) -> bool {
        let geometry = *self.socket.umem().holder.geometry();
        let offset = XDP_HEADROOM + u64::from(geometry.headroom);
        let mut rx = self.rx.batch(1);
        if packet.len() as u64 > u64::from(geometry.frame_size) - offset || rx.space() == 0 {
            return false;
        }
        let Some(addr) = self.fill.batch(1).pop() else { return false };
        let frame = addr & geometry.start_mask();
        let to = self.socket.umem().holder.base().as_ptr().wrapping_add((frame + offset) as usize);
        // SAFETY: the frame was in the fill ring, so it lies within the UMEM and no `Frame` of it exists. The packet
        // fits.
        unsafe { std::ptr::copy_nonoverlapping(packet.as_ptr(), to, packet.len()) };
        let desc = Desc { addr: frame + (offset << geometry.offset_shift()), len: packet.len() as u32, options: 0 };
        // SAFETY: there is space.
        unsafe { rx.push(desc) };
        true
    }

    /// Sends up to `max` packets, or pieces of packets: passes each to `send`, and completes its frame.
    pub fn transmit(&mut self, max: usize, mut send: impl FnMut(&[u8])) -> usize {
        let geometry = *self.socket.umem().holder.geometry();
        let mut completion = self.completion.batch(u32::try_from(max).unwrap_or(u32::MAX));
        let mut tx = self.tx.batch(completion.space());
        let mut count = 0;
        while let Some(Desc { addr, len, .. }) = tx.pop() {
            let position = if geometry.is_unaligned { (addr & geometry.start_mask()) + (addr >> 48) } else { addr };
            let from = self.socket.umem().holder.base().as_ptr().wrapping_add(position as usize);
            // SAFETY: the packet was in the TX ring, so it lies within the UMEM and no `Frame` of it exists until it
            // completes.
            send(unsafe { std::slice::from_raw_parts(from, len as usize) });
            // SAFETY: the batch of the TX ring is no longer than the space.
            unsafe { completion.push(addr) };
            count += 1;
        }
        count
    }
}
