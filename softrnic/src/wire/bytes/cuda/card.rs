//! Contexts of the driver, and what is needed to copy in them.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use super::Device;
use super::driver::{Driver, Failure, Handle, Pointer, result};
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::bytes::Fault;

/// A context, and a stream in it. They are few, and stay to the end of the process.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) driver: &'static Driver,
    pub(super) context: Handle,
    /// Waits for nothing but what is put on it: work of the program's may go on for as long as it waits for a message.
    pub(super) stream: Handle,
    /// A little memory of the context. It goes when the context does, and then the stream is gone too, though another context
    /// may have come in the same place.
    witness: (u64, u32),
    /// Held by atomics, which are several copies.
    pub(super) atomics: Mutex<()>,
    /// What was last told of it.
    told: AtomicI32,
}

static CARDS: RwLock<Vec<&'static Card>> = RwLock::new(Vec::new());

/// A bit for `cuStreamCreate`: it does not wait for the stream that all programs have.
const NON_BLOCKING: u32 = 1;

impl Card {
    /// The one by which memory can be copied that the driver knows so.
    pub(super) fn of(driver: &'static Driver, pointer: &Pointer) -> Result<u16, Errno> {
        let context = context_of(driver, pointer).map_err(refused)?;
        let mut cards = CARDS.write().unwrap_or_else(PoisonError::into_inner);
        let is_it = |card: &&Card| std::ptr::eq(card.driver, driver) && card.context == context && card.is_there();
        let number = match cards.iter().rposition(is_it) {
            Some(number) => number,
            None => {
                cards.push(Box::leak(Box::new(Self::new(driver, context).map_err(refused)?)));
                cards.len() - 1
            }
        };
        u16::try_from(number).map_err(|_| Errno::NO_MEMORY)
    }

    fn new(driver: &'static Driver, context: Handle) -> Result<Self, Failure> {
        let _current = Current::new(driver, context)?;
        let (mut stream, mut address) = (0, 0);
        // SAFETY: the context is current, and the place there to be written.
        result(unsafe { (driver.mem_alloc)(&raw mut address, 1) })?;
        // SAFETY: as above.
        result(unsafe { (driver.stream_create)(&raw mut stream, NON_BLOCKING) })?;
        let witness = (address, driver.look_at(address)?.buffer());
        Ok(Self { driver, context, stream, witness, atomics: Mutex::new(()), told: AtomicI32::new(0) })
    }

    /// Whether its context is still the one that it was made in.
    fn is_there(&self) -> bool {
        let (address, buffer) = self.witness;
        self.driver.look_at(address).is_ok_and(|pointer| pointer.is_on_device() && pointer.buffer() == buffer)
    }

    /// Says once why it fails.
    #[cold]
    pub(super) fn fault(&self, Failure(code): Failure) -> Fault {
        if self.told.swap(code, Ordering::Relaxed) != code {
            log::debug!("the CUDA driver does not copy (CUresult {code})");
        }
        Fault::Unmapped
    }

    pub(super) fn lock(&self) -> impl Drop + use<'_> {
        unpoisoned(self.atomics.lock())
    }
}

impl Device {
    /// The way to it, where its allocation is still the one that was registered; then its context is there, and the stream in it.
    pub(super) fn card(self) -> Result<&'static Card, Fault> {
        let cards = CARDS.read().unwrap_or_else(PoisonError::into_inner);
        let card = *cards.get(usize::from(self.card)).ok_or(Fault::Unmapped)?;
        drop(cards);
        let pointer = card.driver.look_at(self.address).map_err(|failure| card.fault(failure))?;
        if pointer.is_on_device() && pointer.buffer() == self.buffer {
            return Ok(card);
        }
        log::debug!("memory of a GPU at {:#x} has been freed while it is registered", self.address);
        Err(Fault::Unmapped)
    }
}

/// Memory that is mapped by hand, or of a pool, has no context: that of the runtime API on its GPU will do, and is there from now on.
fn context_of(driver: &Driver, pointer: &Pointer) -> Result<Handle, Failure> {
    if pointer.context != 0 {
        return Ok(pointer.context);
    }
    let (mut device, mut context): (c_int, Handle) = (0, 0);
    // SAFETY: the place is there to be written; the driver checks the number.
    result(unsafe { (driver.device_get)(&raw mut device, pointer.ordinal) })?;
    // SAFETY: as above, with a device of the driver's.
    result(unsafe { (driver.device_primary_ctx_retain)(&raw mut context, device) })?;
    Ok(context)
}

fn refused(Failure(code): Failure) -> Errno {
    /// `CUDA_ERROR_OUT_OF_MEMORY`
    const OUT_OF_MEMORY: c_int = 2;
    log::debug!("memory of a GPU is not registered: the CUDA driver refuses (CUresult {code})");
    if code == OUT_OF_MEMORY { Errno::NO_MEMORY } else { Errno::FAULT }
}

/// A context is the thread's current one until this is dropped; then that is again which was before.
#[derive(Debug)]
pub(super) struct Current<'d>(&'d Driver);

impl<'d> Current<'d> {
    pub(super) fn new(driver: &'d Driver, context: Handle) -> Result<Self, Failure> {
        // SAFETY: a context that the driver has named for memory that was there just now; it looks at what it is given.
        result(unsafe { (driver.ctx_push_current)(context) })?;
        Ok(Self(driver))
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut context: Handle = 0;
        // SAFETY: the place is there to be written. What is popped was pushed by `new` on this thread: the guard does not leave it.
        unsafe { (self.0.ctx_pop_current)(&raw mut context) };
    }
}
