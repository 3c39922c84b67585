//! Memory of GPUs, through the CUDA driver that the program itself has loaded.
//!
//! A program that has a device pointer has libcuda, and it alone decides about that: nothing here loads it or initializes it. Of an
//! address that is registered the driver tells whether it is memory of a GPU, and to which context that belongs; each copy
//! then runs on a stream of that context, whatever thread makes it, and that thread's own context is as before when it ends.
//! Managed memory, and host memory that is pinned, are addresses like all others.
//!
//! `driver` has the functions of libcuda, `card` the contexts and their streams, and `moves` the copies.

mod card;
mod driver;
#[cfg(test)]
mod fake;
mod moves;

pub(crate) use self::driver::is_loaded;
#[cfg(test)]
pub(crate) use self::fake::Fake;
pub(crate) use self::moves::End;
pub(super) use self::moves::{atomic, move_bytes};

use self::card::Card;
use crate::sys::errno::Errno;
use crate::wire::bytes::Place;

/// Where memory of a GPU is: an address that the driver knows, in an allocation that has this number, on a [`Card`]. Small, as
/// each segment has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Device {
    address: u64,
    buffer: u32,
    card: u16,
}

/// What the program means by an address: memory of a GPU, or `None` where it is the host's to look at.
///
/// # Errors
///
/// `EFAULT` where it goes beyond the end of its allocation, or the driver cannot copy there; `ENOMEM`.
pub(crate) fn locate(address: u64, length: u64) -> Result<Option<Place>, Errno> {
    let Some(driver) = driver::of_process() else { return Ok(None) };
    let Some(pointer) = driver.look_at(address).ok().filter(|pointer| pointer.is_on_device()) else { return Ok(None) };
    let room = address.checked_sub(pointer.start).and_then(|before| pointer.size.checked_sub(before));
    if room.is_none_or(|room| room < length) {
        log::debug!("{length} bytes at {address:#x} are not within one allocation of a GPU's memory");
        return Err(Errno::FAULT);
    }
    let card = Card::of(driver, &pointer)?;
    Ok(Some(Place::Device { address, buffer: pointer.buffer(), card }))
}
