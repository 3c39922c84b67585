//! Contexts of the CUDA driver. Each context has a stream for the copies of softrnic.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use rdma_cuda::{CUdevice, CUstream, Context, Current, Driver, Failure, Pointer, Stream};

use super::Device;
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::bytes::Fault;

/// A context of the driver with a stream. A process has few cards, and they exist until it ends.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) driver: &'static Driver,
    pub(super) context: Context,
    /// A stream that only softrnic uses. Its copies therefore do not wait for the program's work on the GPU, which may
    /// itself wait for a message.
    pub(super) stream: Stream,
    /// A small allocation that exists as long as the context. If the allocation no longer exists, the context and its
    /// stream are destroyed, even if a new context has the same address.
    witness: (u64, u32),
    /// The lock that a thread holds during an atomic, which takes several copies.
    pub(super) atomics: Mutex<()>,
    /// The error that was logged last.
    last_error: AtomicU32,
}

static CARDS: RwLock<Vec<&'static Card>> = RwLock::new(Vec::new());

/// The flag of `cuStreamCreate` for a stream that does not synchronize with the default stream.
const NON_BLOCKING: u32 = 1;

impl Card {
    /// Returns the number of the card whose context can copy this memory.
    pub(super) fn of(driver: &'static Driver, pointer: &Pointer) -> Result<u16, Errno> {
        let context = context_of(driver, pointer).map_err(refused)?;
        let mut cards = CARDS.write().unwrap_or_else(PoisonError::into_inner);
        let is_it = |card: &&Card| ptr::eq(card.driver, driver) && card.context == context && card.exists();
        let number = match cards.iter().rposition(is_it) {
            Some(number) => number,
            None => {
                cards.push(Box::leak(Box::new(Self::new(driver, context).map_err(refused)?)));
                cards.len() - 1
            }
        };
        u16::try_from(number).map_err(|_| Errno::NO_MEMORY)
    }

    fn new(driver: &'static Driver, context: Context) -> Result<Self, Failure> {
        let _current = Current::new(driver, context)?;
        let (mut stream, mut address): (CUstream, _) = (ptr::null_mut(), 0);
        // SAFETY: the context is current, and `address` is writable.
        driver.result("cuMemAlloc", unsafe { (driver.cuMemAlloc_v2)(&raw mut address, 1) })?;
        // SAFETY: as above, for `stream`.
        driver.result("cuStreamCreate", unsafe { (driver.cuStreamCreate)(&raw mut stream, NON_BLOCKING) })?;
        let witness = (address, driver.query(address)?.buffer());
        Ok(Self {
            driver,
            context,
            stream: stream.into(),
            witness,
            atomics: Mutex::new(()),
            last_error: AtomicU32::new(0),
        })
    }

    /// Whether the context is still the one for which the card was created.
    fn exists(&self) -> bool {
        let (address, buffer) = self.witness;
        self.driver.query(address).is_ok_and(|pointer| pointer.is_on_device() && pointer.buffer() == buffer)
    }

    /// Converts a failure to a fault. Logs it unless it was the last one that was logged.
    #[cold]
    pub(super) fn fault(&self, failure: Failure) -> Fault {
        if self.last_error.swap(failure.code, Ordering::Relaxed) != failure.code {
            rdma_mummy_sys::log!(debug, "cannot copy memory of a GPU: {failure}");
        }
        Fault::Unmapped
    }

    pub(super) fn lock(&self) -> impl Drop + use<'_> {
        unpoisoned(self.atomics.lock())
    }
}

impl Device {
    /// Returns the card if the registered allocation still exists. In this case the context and the stream of the card
    /// also exist.
    pub(super) fn card(self) -> Result<&'static Card, Fault> {
        let cards = CARDS.read().unwrap_or_else(PoisonError::into_inner);
        let card = *cards.get(usize::from(self.card)).ok_or(Fault::Unmapped)?;
        drop(cards);
        let pointer = card.driver.query(self.address).map_err(|failure| card.fault(failure))?;
        if pointer.is_on_device() && pointer.buffer() == self.buffer {
            return Ok(card);
        }
        rdma_mummy_sys::log!(
            debug,
            "cannot access memory of a GPU at {:#x}: it was freed before it was deregistered",
            self.address
        );
        Err(Fault::Unmapped)
    }
}

/// Returns the context of the memory. Virtual memory mappings and pools have no context. For these, the function
/// retains the primary context of their GPU.
fn context_of(driver: &Driver, pointer: &Pointer) -> Result<Context, Failure> {
    if let Some(context) = pointer.context {
        return Ok(context);
    }
    let mut device: CUdevice = 0;
    // SAFETY: `device` is writable; the driver checks the number.
    driver.result("cuDeviceGet", unsafe { (driver.cuDeviceGet)(&raw mut device, pointer.ordinal) })?;
    driver.primary_context(device)
}

fn refused(failure: Failure) -> Errno {
    /// The error code `CUDA_ERROR_OUT_OF_MEMORY`.
    const OUT_OF_MEMORY: u32 = 2;
    rdma_mummy_sys::log!(debug, "cannot register memory of a GPU: {failure}");
    if failure.code == OUT_OF_MEMORY { Errno::NO_MEMORY } else { Errno::FAULT }
}
