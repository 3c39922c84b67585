//! Copies to, from and within GPU memory. Each function returns after its copy has ended.

use std::sync::atomic::{Ordering, fence};

use rdma_cuda::{Context, Current, Failure};

use super::Device;
use super::card::Card;
use crate::wire::bytes::copy::{self, tail_of};
use crate::wire::bytes::{Atomic, Fault, Place};

/// The side of a copy that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    From,
    To,
}

/// The size of the host buffer that is used for a copy whose source and target overlap in one allocation.
const STAGE: usize = if cfg!(test) { 1 << 10 } else { 64 << 10 };

/// Copies memory of which at least one side is GPU memory. The last bytes are copied last, as in [`copy::copy`].
///
/// # Safety
///
/// The host side is readable or writable for `length` bytes.
#[cold]
pub(in crate::wire::bytes) unsafe fn move_bytes(from: Place, to: Place, length: usize) -> Result<(), (End, Fault)> {
    if length == 0 {
        return Ok(());
    }
    let source = device(from).map(|device| device.card().map(|card| (device, card)));
    let target = device(to).map(|device| device.card().map(|card| (device, card)));
    let source = source.transpose().map_err(|fault| (End::From, fault))?;
    let target = target.transpose().map_err(|fault| (End::To, fault))?;
    match (from, to, source, target) {
        (Place::Host(from), _, None, Some((to, card))) => {
            let tail = tail_of(to.address as usize, length);
            // SAFETY: guaranteed by the caller; the copy has ended when `run` returns.
            run(card, &|queue| unsafe {
                queue.host_to_device(to.address, from, length - tail)?;
                queue.host_to_device(to.address + (length - tail) as u64, from.wrapping_add(length - tail), tail)
            })
            .map_err(|failure| (End::To, card.fault(failure)))
        }
        (_, Place::Host(to), Some((from, card)), None) => {
            // SAFETY: guaranteed by the caller.
            unsafe { to_host(card, from, to, length) }.map_err(|failure| (End::From, card.fault(failure)))
        }
        (_, _, Some((from, source)), Some((to, target))) => {
            within((from, source), (to, target), length).map_err(|failure| (End::To, target.fault(failure)))
        }
        (Place::Null, _, None, Some((to, card))) => {
            let tail = tail_of(to.address as usize, length);
            run(card, &|queue| {
                queue.clear(to.address, length - tail)?;
                queue.clear(to.address + (length - tail) as u64, tail)
            })
            .map_err(|failure| (End::To, card.fault(failure)))
        }
        // The write is discarded, or no GPU takes part in the copy.
        _ => Ok(()),
    }
}

/// Executes an atomic on eight bytes. As with a NIC, it is atomic only with respect to other atomics of the devices.
pub(in crate::wire::bytes) fn atomic(at: Place, operation: Atomic) -> Result<u64, Fault> {
    let Some(device) = device(at) else { return Ok(0) };
    let card = device.card()?;
    let _turn = card.lock();
    let mut bytes = [0; 8];
    // SAFETY: the array has eight bytes.
    unsafe { to_host(card, device, bytes.as_mut_ptr(), bytes.len()) }.map_err(|failure| card.fault(failure))?;
    let found = u64::from_ne_bytes(bytes);
    let new = match operation {
        Atomic::CompareSwap { compare, .. } if compare != found => return Ok(found),
        Atomic::CompareSwap { swap, .. } => swap,
        Atomic::FetchAdd(add) => found.wrapping_add(add),
        Atomic::Store(new) => new,
    };
    let new = new.to_ne_bytes();
    // SAFETY: as above.
    run(card, &|queue| unsafe { queue.host_to_device(device.address, new.as_ptr(), new.len()) })
        .map_err(|failure| card.fault(failure))?;
    Ok(found)
}

fn device(place: Place) -> Option<Device> {
    match place {
        Place::Device { address, buffer, card } => Some(Device { address, buffer, card }),
        Place::Host(_) | Place::Null => None,
    }
}

/// Adds copies to the stream of a card, and waits until they have ended. It also waits if some of the copies could not
/// be added.
fn run(card: &Card, put: &dyn Fn(Queue<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let _current = Current::new(card.driver, card.context)?;
    let is_put = put(Queue(card));
    // SAFETY: the stream exists as long as its context.
    let code = unsafe { (card.driver.cuStreamSynchronize)(card.stream.raw()) };
    let has_ended = card.driver.result("cuStreamSynchronize", code);
    is_put.and(has_ended)
}

/// Copies GPU memory to the host. This thread itself stores the last bytes, because the driver guarantees no order
/// within a copy.
///
/// # Safety
///
/// `to` is writable for `length` bytes.
unsafe fn to_host(card: &Card, from: Device, to: *mut u8, length: usize) -> Result<(), Failure> {
    let tail = tail_of(to.addr(), length);
    let bulk = length - tail;
    let mut last = [0u8; 8];
    let kept = (&raw mut last).cast::<u8>();
    // SAFETY: the caller guarantees that `to` is writable. The local bytes, at most eight, stay valid until `run` has
    // waited.
    run(card, &|queue| unsafe {
        queue.device_to_host(to, from.address, bulk)?;
        queue.device_to_host(kept, from.address + bulk as u64, tail)
    })?;
    fence(Ordering::Release);
    // SAFETY: these bytes are the last ones of the caller's.
    unsafe { copy::store(to.add(bulk), last, tail) };
    Ok(())
}

fn within((from, source): (Device, &Card), (to, target): (Device, &Card), length: usize) -> Result<(), Failure> {
    let distance = to.address.wrapping_sub(from.address);
    if distance < length as u64 || distance.wrapping_neg() < length as u64 {
        return overlapping(source, from, to, length);
    }
    let tail = tail_of(to.address as usize, length);
    let bulk = length - tail;
    run(target, &|queue| {
        queue.device_to_device(to.address, (from.address, source.context), bulk)?;
        queue.device_to_device(to.address + bulk as u64, (from.address + bulk as u64, source.context), tail)
    })
}

/// Copies memory that overlaps, through a buffer on the host. The direction of the copy ensures that each byte is read
/// before it is overwritten.
fn overlapping(card: &Card, from: Device, to: Device, length: usize) -> Result<(), Failure> {
    let mut stage = vec![0u8; length.min(STAGE)];
    let start = stage.as_mut_ptr();
    let parts = length.div_ceil(STAGE);
    for part in 0..parts {
        let offset = if to.address > from.address { parts - 1 - part } else { part } * STAGE;
        let count = STAGE.min(length - offset);
        // SAFETY: the copy has at most `count` bytes of `stage`, which outlives `run`.
        run(card, &|queue| unsafe {
            queue.device_to_host(start, from.address + offset as u64, count)?;
            queue.host_to_device(to.address + offset as u64, start, count)
        })?;
    }
    Ok(())
}

/// The stream of a card whose context is current.
#[derive(Clone, Copy)]
struct Queue<'c>(&'c Card);

impl Queue<'_> {
    /// # Safety
    ///
    /// `from` is readable until the stream is synchronized.
    unsafe fn host_to_device(self, to: u64, from: *const u8, length: usize) -> Result<(), Failure> {
        let Card { driver, stream, .. } = self.0;
        // SAFETY: guaranteed by the caller; the driver checks the address on the GPU.
        let call = || unsafe { (driver.cuMemcpyHtoDAsync_v2)(to, from.cast(), length, stream.raw()) };
        self.put("cuMemcpyHtoDAsync", length, call)
    }

    /// # Safety
    ///
    /// `to` is writable until the stream is synchronized.
    unsafe fn device_to_host(self, to: *mut u8, from: u64, length: usize) -> Result<(), Failure> {
        let Card { driver, stream, .. } = self.0;
        // SAFETY: as above.
        let call = || unsafe { (driver.cuMemcpyDtoHAsync_v2)(to.cast(), from, length, stream.raw()) };
        self.put("cuMemcpyDtoHAsync", length, call)
    }

    fn device_to_device(self, to: u64, (from, context): (u64, Context), length: usize) -> Result<(), Failure> {
        let Card { driver, context: own, stream, .. } = self.0;
        if context == *own {
            // SAFETY: the driver checks the addresses, which are in its own memory.
            let call = || unsafe { (driver.cuMemcpyDtoDAsync_v2)(to, from, length, stream.raw()) };
            return self.put("cuMemcpyDtoDAsync", length, call);
        }
        // SAFETY: as above, and both contexts exist as long as their memory.
        let call = || unsafe { (driver.cuMemcpyPeerAsync)(to, own.raw(), from, context.raw(), length, stream.raw()) };
        self.put("cuMemcpyPeerAsync", length, call)
    }

    fn clear(self, at: u64, length: usize) -> Result<(), Failure> {
        let Card { driver, stream, .. } = self.0;
        // SAFETY: the driver checks the address.
        self.put("cuMemsetD8Async", length, || unsafe { (driver.cuMemsetD8Async)(at, 0, length, stream.raw()) })
    }

    fn put(self, name: &'static str, length: usize, call: impl FnOnce() -> u32) -> Result<(), Failure> {
        if length == 0 { Ok(()) } else { self.0.driver.result(name, call()) }
    }
}
