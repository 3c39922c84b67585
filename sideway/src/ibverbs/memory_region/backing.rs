//! What a region keeps alive.

use std::sync::Arc;

use super::pages::Pages;
use crate::ibverbs::device_memory::DeviceMemory;
use crate::ibverbs::dma_handle::DmaHandle;
use crate::ibverbs::provider_buffer::ProviderBuffer;

/// What the device reaches through a region, or needs for it; it goes only once the registration has ended.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its drop")]
pub(crate) enum Backing {
    /// Nothing: the null region.
    Null,
    /// Pages of the region's own.
    Pages(Pages),
    /// Memory on the device.
    DeviceMemory(Arc<DeviceMemory>),
    /// Memory that the driver allocated.
    Buffer(Arc<ProviderBuffer>),
    /// The caller's memory, reached in a way of its own.
    DmaHandle(Arc<DmaHandle>),
}
