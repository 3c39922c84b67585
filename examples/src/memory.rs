//! Memory for a device: allocated, registered, and given back in the right order.

use std::alloc::{self, Layout};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{LocalKey, MemoryRegion, RemoteKey};
use sideway::ibverbs::protection_domain::ProtectionDomain;

/// Registered memory that begins at a page.
///
/// Bytes are copied in and out; nobody gets a reference to the memory, because the device may write it at any moment.
#[derive(Debug)]
pub struct RegisteredMemory {
    // Both dropped by hand: a device must not know memory that has been given back.
    region: ManuallyDrop<Arc<MemoryRegion>>,
    pages: ManuallyDrop<Pages>,
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        // SAFETY: drop runs once, and nothing uses the field behind it.
        let region = unsafe { ManuallyDrop::take(&mut self.region) };
        // Where the registration does not end, or somebody else holds it, the memory stays: the device may still use it.
        if Arc::into_inner(region).is_some_and(|region| region.close().is_ok()) {
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.pages) }
        }
    }
}

impl RegisteredMemory {
    /// Allocates `len` bytes, all zero, and registers them in the domain.
    ///
    /// # Errors
    ///
    /// There is not so much memory, or the device does not take it.
    pub fn new(pd: &Arc<ProtectionDomain>, len: usize, access: AccessFlags) -> Result<Self> {
        let pages = Pages::new(len)?;
        // SAFETY: the bytes stay allocated as long as `pages`, which goes only once the registration has ended (`drop`).
        // There is never a reference to them: `read` and `write` copy through raw pointers. What a peer with the remote key
        // could do is to change bytes, for which every value is legal.
        let region = unsafe { pd.reg_mr(pages.first.as_ptr() as usize, len, access) }?;
        Ok(Self { region: ManuallyDrop::new(region), pages: ManuallyDrop::new(pages) })
    }

    /// The address of the first byte, by which requests name it.
    pub fn addr(&self) -> u64 {
        self.pages.first.as_ptr() as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.pages.layout.size()
    }

    /// Never: there is at least a byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The key for requests of this side.
    pub fn lkey(&self) -> LocalKey {
        self.region.lkey()
    }

    /// The key for requests of the peer.
    pub fn rkey(&self) -> RemoteKey {
        self.region.rkey()
    }

    /// Copies bytes to `offset`.
    ///
    /// # Panics
    ///
    /// The range is not within the memory.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the range is within the allocation (`check`), which does not overlap with what safe code can refer to.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.pages.first.as_ptr().add(offset), bytes.len()) }
    }

    /// Copies bytes from `offset`.
    ///
    /// # Panics
    ///
    /// The range is not within the memory.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        // SAFETY: as in `write`; all bytes are initialised, as the allocation was zeroed. While a device may write them, what
        // is copied may be old, new or mixed; any of it is legal bytes.
        unsafe { ptr::copy_nonoverlapping(self.pages.first.as_ptr().add(offset), bytes.as_mut_ptr(), bytes.len()) }
    }

    #[track_caller]
    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len()), "{len} bytes at {offset} are not within {}", self.len());
    }
}

/// An allocation of its own pages.
#[derive(Debug)]
struct Pages {
    first: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the allocation belongs to its owner and to no thread.
unsafe impl Send for Pages {}

impl Pages {
    fn new(len: usize) -> Result<Self> {
        if len == 0 {
            bail!("memory of no bytes cannot be registered");
        }
        let layout =
            Layout::from_size_align(len, page_size()).with_context(|| format!("{len} bytes cannot be allocated"))?;
        // SAFETY: the layout is not of size zero.
        let first = unsafe { alloc::alloc_zeroed(layout) };
        let first = NonNull::new(first).with_context(|| format!("there is no memory for {len} bytes"))?;
        Ok(Self { first, layout })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and given back once.
        unsafe { alloc::dealloc(self.first.as_ptr(), self.layout) }
    }
}

/// The size of a page of this machine.
fn page_size() -> usize {
    // SAFETY: the call takes a plain number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}
