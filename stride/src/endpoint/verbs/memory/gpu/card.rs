//! A GPU and its memory.

use std::ffi::{c_char, c_int, c_uint};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rdma_cuda::{CUdevice, CUdeviceptr, CUmemRangeHandleType, CUpointer_attribute, Current, Driver, Failure};

use crate::plan::PciAddress;

/// Size of the pages in which other devices access GPU memory: 64 KiB.
const GPU_PAGE: usize = 64 << 10;

/// A GPU that the driver lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    driver: &'static Driver,
    device: CUdevice,
}

impl Card {
    pub(super) fn count(driver: &'static Driver) -> Result<u32, Failure> {
        let mut count: c_int = 0;
        // SAFETY: the pointer is to a local variable.
        driver.result("cuDeviceGetCount", unsafe { (driver.cuDeviceGetCount)(&raw mut count) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    pub(super) fn new(driver: &'static Driver, index: u32) -> Result<Self, Failure> {
        let mut device: CUdevice = 0;
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: the pointer is to a local variable; the driver checks the index.
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
        // SAFETY: the buffer has this length; its last byte is left out and stays a nul.
        let code = unsafe { function(text.as_mut_ptr().cast(), text.len() as c_int - 1, self.device) };
        self.driver.result(name, code)?;
        let bytes = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The primary context of a GPU, which the CUDA runtime shares. The context is retained until drop.
#[derive(Debug)]
pub(super) struct CardContext {
    card: Card,
    context: rdma_cuda::Context,
}

impl CardContext {
    pub(super) fn new(card: Card) -> Result<Arc<Self>, Failure> {
        Ok(Arc::new(Self { card, context: card.driver.primary_context(card.device)? }))
    }

    /// Calls a function of the driver while this context is current, and restores the thread's context afterwards.
    fn call(&self, name: &'static str, function: impl FnOnce(&Driver) -> c_uint) -> Result<(), Failure> {
        let driver = self.card.driver;
        let _current = Current::new(driver, self.context)?;
        driver.result(name, function(driver))
    }
}

impl Drop for CardContext {
    fn drop(&mut self) {
        let Card { driver, device } = self.card;
        // SAFETY: the context was retained once. Everything that was created in the context is destroyed, because it
        // would hold a reference to this value.
        let code = unsafe { (driver.cuDevicePrimaryCtxRelease_v2)(device) };
        if let Err(failure) = driver.result("cuDevicePrimaryCtxRelease", code) {
            log::debug!("{failure}");
        }
    }
}

/// GPU memory in whole pages that nothing else uses. The memory contains zeros at first. The processor cannot
/// dereference the address of this memory.
#[derive(Debug)]
pub(super) struct Allocation {
    context: Arc<CardContext>,
    /// The address that the driver returned.
    base: CUdeviceptr,
    /// The address of the first whole page.
    start: u64,
    bytes: usize,
}

impl Allocation {
    /// Allocates at least `bytes` bytes of GPU memory.
    pub(super) fn new(context: &Arc<CardContext>, bytes: usize) -> Result<Self> {
        let whole = bytes
            .max(1)
            .checked_next_multiple_of(GPU_PAGE)
            .and_then(|bytes| Some((bytes, bytes.checked_add(GPU_PAGE)?)));
        let (bytes, with_slack) = whole.context("the buffers of all messages exceed the address space")?;
        let mut base: CUdeviceptr = 0;
        // SAFETY: the pointer is to a local variable.
        let allocated =
            context.call("cuMemAlloc", |driver| unsafe { (driver.cuMemAlloc_v2)(&raw mut base, with_slack) });
        allocated.with_context(|| format!("{with_slack} bytes of the GPU's memory"))?;
        let memory = Self { context: Arc::clone(context), base, start: base.next_multiple_of(GPU_PAGE as u64), bytes };
        let is_on: c_uint = 1;
        let sync = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        // SAFETY: the attribute is a readable 32-bit number, and the memory is allocated. The attribute makes copies
        // complete before their function returns, so that a NIC reads the copied data.
        let set = |driver: &Driver| unsafe { (driver.cuPointerSetAttribute)((&raw const is_on).cast(), sync, base) };
        context.call("cuPointerSetAttribute", set)?;
        // SAFETY: the range is within the allocation, which nothing else uses yet.
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

    /// Exports the memory as a DMA buffer, which drivers of the kernel can use.
    pub(super) fn dma_buf(&self) -> Result<OwnedFd> {
        let context = &self.context;
        let make = context.card.driver.cuMemGetHandleForAddressRange;
        let make = make.context("libcuda.so.1 has no cuMemGetHandleForAddressRange, which requires CUDA 11.7")?;
        let mut file: c_int = -1;
        let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        // SAFETY: the pointer is to a local descriptor variable, and the pages are allocated.
        context.call("cuMemGetHandleForAddressRange", |_| unsafe {
            make((&raw mut file).cast(), self.start, self.bytes, kind, 0)
        })?;
        ensure!(file >= 0, "cuMemGetHandleForAddressRange returned no file descriptor");
        // SAFETY: the driver has opened the descriptor for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }

    /// Copies bytes from the host to the GPU.
    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: the bytes are readable, and the range is within the allocation.
        self.context.call("cuMemcpyHtoD", |driver| unsafe {
            (driver.cuMemcpyHtoD_v2)(to, bytes.as_ptr().cast(), bytes.len())
        })?;
        self.end()
    }

    /// Copies bytes from the GPU to the host.
    pub(super) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: the bytes are writable, and the range is within the allocation.
        Ok(self.context.call("cuMemcpyDtoH", |driver| unsafe {
            (driver.cuMemcpyDtoH_v2)(bytes.as_mut_ptr().cast(), from, bytes.len())
        })?)
    }

    /// Waits until the driver has finished its outstanding work.
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
        // SAFETY: the driver allocated the memory, and nothing uses it: its registration has ended.
        if let Err(failure) = self.context.call("cuMemFree", |driver| unsafe { (driver.cuMemFree_v2)(self.base) }) {
            log::debug!("{failure}");
        }
    }
}
