//! A GPU, and memory of it.

use std::ffi::{c_char, c_int, c_uint};
use std::marker::PhantomData;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use super::driver::{CUcontext, CUdevice, CUdeviceptr, CUmemRangeHandleType, CUpointer_attribute, Driver, Failure};
use crate::plan::PciAddress;
use anyhow::{Context, Result, ensure};

/// GPUs give their memory to other devices in pages of 64 KiB.
const GPU_PAGE: usize = 64 << 10;

/// A GPU of the driver's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    driver: &'static Driver,
    device: CUdevice,
}

impl Card {
    pub(super) fn count(driver: &'static Driver) -> Result<u32, Failure> {
        let mut count: c_int = 0;
        // SAFETY: the place is there to be written.
        driver.result("cuDeviceGetCount", unsafe { (driver.cuDeviceGetCount)(&raw mut count) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    pub(super) fn new(driver: &'static Driver, index: u32) -> Result<Self, Failure> {
        let mut device: CUdevice = 0;
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: the place is there to be written; the driver checks the index.
        driver.result("cuDeviceGet", unsafe { (driver.cuDeviceGet)(&raw mut device, index) })?;
        Ok(Self { driver, device })
    }

    pub(super) fn name(&self) -> Result<String, Failure> {
        self.text("cuDeviceGetName", self.driver.cuDeviceGetName)
    }

    pub(super) fn address(&self) -> Result<PciAddress> {
        let text = self.text("cuDeviceGetPCIBusId", self.driver.cuDeviceGetPCIBusId)?;
        text.parse().with_context(|| format!("cuDeviceGetPCIBusId gives {text:?}"))
    }

    fn text(
        &self,
        name: &'static str,
        function: unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> c_uint,
    ) -> Result<String, Failure> {
        let mut text = [0_u8; 256];
        // SAFETY: so many bytes are there to be written, of which the last is kept a nul.
        let code = unsafe { function(text.as_mut_ptr().cast(), text.len() as c_int - 1, self.device) };
        self.driver.result(name, code)?;
        let bytes = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The context that the runtime API has on a GPU too, kept until this is dropped.
#[derive(Debug)]
pub(super) struct CardContext {
    card: Card,
    /// A `CUcontext`, which is a pointer of the driver's own.
    raw: usize,
}

impl CardContext {
    pub(super) fn new(card: Card) -> Result<Arc<Self>, Failure> {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: the place is there to be written, and the device is one of the driver's.
        let code = unsafe { (card.driver.cuDevicePrimaryCtxRetain)(&raw mut raw, card.device) };
        card.driver.result("cuDevicePrimaryCtxRetain", code)?;
        Ok(Arc::new(Self { card, raw: raw.expose_provenance() }))
    }

    /// Has a function of the driver run in this context, whatever the thread's is before and afterwards.
    fn call(&self, name: &'static str, function: impl FnOnce(&Driver) -> c_uint) -> Result<(), Failure> {
        let _current = Current::new(self)?;
        let driver = self.card.driver;
        driver.result(name, function(driver))
    }
}

impl Drop for CardContext {
    fn drop(&mut self) {
        let Card { driver, device } = self.card;
        // SAFETY: it was retained once, and what was made in it has gone: that holds it.
        let code = unsafe { (driver.cuDevicePrimaryCtxRelease_v2)(device) };
        if let Err(failure) = driver.result("cuDevicePrimaryCtxRelease", code) {
            log::debug!("{failure}");
        }
    }
}

/// A context is the thread's current one until this is dropped; then that is again which was before.
struct Current<'c>(&'c CardContext, PhantomData<*const ()>);

impl<'c> Current<'c> {
    fn new(context: &'c CardContext) -> Result<Self, Failure> {
        let driver = context.card.driver;
        let raw: CUcontext = ptr::with_exposed_provenance_mut(context.raw);
        // SAFETY: the context is retained.
        driver.result("cuCtxPushCurrent", unsafe { (driver.cuCtxPushCurrent_v2)(raw) })?;
        Ok(Self(context, PhantomData))
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: the place is there to be written. What is popped was pushed by `new` on this thread, which the guard does not leave.
        unsafe { (self.0.card.driver.cuCtxPopCurrent_v2)(&raw mut raw) };
    }
}

/// Memory of a GPU, all zero at first: whole pages of its, which nothing else is in. To the processor its address is a number.
#[derive(Debug)]
pub(super) struct Allocation {
    context: Arc<CardContext>,
    /// As the driver has given it.
    base: CUdeviceptr,
    /// The first page.
    start: u64,
    bytes: usize,
}

impl Allocation {
    /// Of so many bytes, or a few more.
    pub(super) fn new(context: &Arc<CardContext>, bytes: usize) -> Result<Self> {
        let whole = bytes
            .max(1)
            .checked_next_multiple_of(GPU_PAGE)
            .and_then(|bytes| Some((bytes, bytes.checked_add(GPU_PAGE)?)));
        let (bytes, with_slack) = whole.context("the buffers of all messages exceed the address space")?;
        let mut base: CUdeviceptr = 0;
        // SAFETY: the place is there to be written.
        let allocated =
            context.call("cuMemAlloc", |driver| unsafe { (driver.cuMemAlloc_v2)(&raw mut base, with_slack) });
        allocated.with_context(|| format!("{with_slack} bytes of the GPU's memory"))?;
        let memory = Self { context: Arc::clone(context), base, start: base.next_multiple_of(GPU_PAGE as u64), bytes };
        let is_on: c_uint = 1;
        let sync = CUpointer_attribute::SYNC_MEMOPS;
        // SAFETY: the attribute is a number of 32 bits, which is there to be read, and the memory is there. By it a copy has ended when its
        // function returns, so that a NIC sees what was copied.
        let set = |driver: &Driver| unsafe { (driver.cuPointerSetAttribute)((&raw const is_on).cast(), sync, base) };
        context.call("cuPointerSetAttribute", set)?;
        // SAFETY: within the memory, where nobody else is yet.
        context.call("cuMemsetD8", |driver| unsafe { (driver.cuMemsetD8_v2)(memory.start, 0, bytes) })?;
        memory.end()?;
        Ok(memory)
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of it, for devices of the kernel's.
    pub(super) fn dma_buf(&self) -> Result<OwnedFd> {
        let context = &self.context;
        let make = context.card.driver.cuMemGetHandleForAddressRange;
        let make = make.context("libcuda.so.1 has no cuMemGetHandleForAddressRange, which requires CUDA 11.7")?;
        let mut file: c_int = -1;
        let kind = CUmemRangeHandleType::DMA_BUF_FD;
        // SAFETY: the place of a descriptor is there to be written, and the pages are there.
        context.call("cuMemGetHandleForAddressRange", |_| unsafe {
            make((&raw mut file).cast(), self.start, self.bytes, kind, 0)
        })?;
        ensure!(file >= 0, "cuMemGetHandleForAddressRange returned no file descriptor");
        // SAFETY: the driver has opened it for us.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }

    /// Copies bytes from the host.
    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: the bytes are there to be read, and the range is within the memory.
        self.context.call("cuMemcpyHtoD", |driver| unsafe {
            (driver.cuMemcpyHtoD_v2)(to, bytes.as_ptr().cast(), bytes.len())
        })?;
        self.end()
    }

    /// Copies bytes to the host.
    pub(super) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: the bytes are there to be written, and the range is within the memory.
        Ok(self.context.call("cuMemcpyDtoH", |driver| unsafe {
            (driver.cuMemcpyDtoH_v2)(bytes.as_mut_ptr().cast(), from, bytes.len())
        })?)
    }

    /// Waits for what the driver does still.
    fn end(&self) -> Result<()> {
        // SAFETY: the context is current.
        Ok(self.context.call("cuCtxSynchronize", |driver| unsafe { (driver.cuCtxSynchronize)() })?)
    }

    fn at(&self, offset: u64, length: usize) -> Result<CUdeviceptr> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.bytes as u64);
        end.with_context(|| format!("{length} bytes at {offset} exceed the buffer of {} bytes", self.bytes))?;
        Ok(self.start + offset)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: it is the driver's, and nobody uses it any more: a registration of it has ended.
        if let Err(failure) = self.context.call("cuMemFree", |driver| unsafe { (driver.cuMemFree_v2)(self.base) }) {
            log::debug!("{failure}");
        }
    }
}
